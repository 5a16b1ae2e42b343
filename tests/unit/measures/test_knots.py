"""Knots of a measure: shares by pieces, their price, gaps, clipped sums, and a cut chosen after the release."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato import check_maps
from sfumato.cells import POINTS, Amounts
from sfumato.curator.rows.shares import SHARES, shares
from sfumato.curator.rows.sources import open_source
from sfumato.errors import DomainError, PlanError, SfumatoError, WorkloadError
from sfumato.maps import BlockMap, DenseMap
from sfumato.privacy import measures as priced_measures
from sfumato.privacy.measures import PIECES, corners
from sfumato.privacy.sensitivity import certified_bound
from sfumato.releases.means import cut_weights
from sfumato.specs import read_spec
from sfumato.workloads.schema import spec_text
from support.forging import verdict
from support.seeded import draws
from support.shares import ADD, errs

KNOTS = [10_000, 20_000, 40_000.5, 160_000]
TOP = 1_000_000


def _domain(**others: sf.Measure) -> sf.Domain:
    area = sf.Categories(["n", "s"], outside="other", missing="other")
    return sf.Domain({"area": area}, measures={"income": sf.Measure(0, TOP, knots=KNOTS), **others})


def _frame(seed: int, n: int = 3_000) -> pd.DataFrame:
    rng = np.random.default_rng([152, seed])
    income = np.round(np.exp(rng.normal(9.8, 1.1, n)), 2)
    frame = pd.DataFrame({"area": rng.choice(["n", "s", "w"], n, p=[0.6, 0.35, 0.05]), "income": income})
    frame.loc[rng.random(n) < 0.05, "income"] = np.nan
    return frame


# ---- shares and their price --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_shares_are_whole_and_near_the_curve_of_one_piece(seed: int) -> None:
    """They add up to 2^24, all within three cells, each at most 9/4 off what its place in its piece says; beside
    another measure the same in all. Mutants: the lower piece's cells at the upper piece's place; a place rounded to
    less than the piece; a record of no number in the last piece."""
    rng = np.random.default_rng([152, seed])
    inner = sorted({int(k) for k in rng.integers(2**11, POINTS - 2**11, 4)} | {2**12})
    ends = (0, *inner, POINTS)
    cells = 2 * len(ends)
    spread = [a + rng.integers(0, b - a, 50) for a, b in itertools.pairwise(ends)]
    codes = np.concatenate([ends, np.array(inner) - 1, *spread, [POINTS + 1]]).astype(np.uint32)
    table = shares([codes], [cells], [ends])
    assert (table.sum(axis=0) == SHARES).all()
    assert (table >= -2).all()
    for code, own in zip(codes.tolist(), table.T.tolist(), strict=True):
        if code > POINTS:
            assert own == [0] * (cells - 1) + [SHARES]
            continue
        piece = max(p for p in range(len(ends) - 1) if ends[p] <= code)
        place = Fraction(code - ends[piece], ends[piece + 1] - ends[piece])
        u = Fraction((place * POINTS + Fraction(1, 2)).__floor__(), POINTS)
        exact = [Fraction(0)] * cells
        exact[2 * piece : 2 * piece + 3] = [(1 - u) ** 2, 2 * u * (1 - u), u * u]
        assert all(abs(a - SHARES * e) <= Fraction(9, 4) * (e != 0) for a, e in zip(own, exact, strict=True))
        if code in ends:
            assert own[2 * ends.index(code)] == SHARES
    other = rng.permutation(np.append(rng.integers(0, POINTS + 1, len(codes) - 1), POINTS + 1)).astype(np.uint32)
    both = shares([codes, other], [cells, 4], [ends, (0, POINTS)]).reshape(cells, 4, -1)
    assert (both.sum(axis=1) == table).all()


def test_no_record_changes_more_than_is_priced() -> None:
    """Of random maps over a measure of two to four pieces and one without knots. Mutants: below."""
    assert errs(40, 0, knots=True)[0] == 0


@pytest.mark.parametrize("left_out", ["a knot", "the last end", "meeting points"])
def test_a_corner_that_is_left_out_is_found(monkeypatch: pytest.MonkeyPatch, left_out: str) -> None:
    """Whether the test above could fail."""
    whole = corners

    def fewer(cells: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        pieces = (cells - 1) // 2
        gone = {
            "a knot": [PIECES + 1],
            "the last end": [(PIECES + 1) * pieces],
            "meeting points": [1 + i for i in range(PIECES)],
        }
        return np.delete(whole(cells), gone[left_out], axis=1)

    monkeypatch.setattr(priced_measures, "corners", fewer)
    assert errs(40, 0, knots=True, enough=1)[0] > 0


def test_rounding_is_priced_where_nothing_else_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 - (4 u - 1)^2 is 20 at two corners, and where both meet the curve, at u = 1 / 4: there rounding adds to it.
    Mutant: slack 0."""
    ends = (0, POINTS // 3, POINTS)
    steps = (POINTS // 12 + np.arange(-(2**16), 2**16)).astype(np.uint32)
    row = np.array([19, 23, 11, 11, 11, 0])
    most = int((row @ shares([steps], [6], [ends])).max())
    block = BlockMap((("m",),), (DenseMap(row[None, :]),))
    assert most <= certified_bound([block], {"m": 6}, ADD, 1, None, ("m",))
    monkeypatch.setattr(priced_measures, "_OFF", (0, 4))
    assert most > certified_bound([block], {"m": 6}, ADD, 1, None, ("m",))


def test_the_price_of_what_is_linear_between_knots_is_what_a_record_adds() -> None:
    """But for rounding: middles are never dearest. Mutant: corners with middles of their own."""
    row = np.array([[4, 3, 2, 7, 12, 3, -6, 0]])
    block = BlockMap((("m",),), (DenseMap(row),))
    price = certified_bound([block], {"m": 8}, ADD, 1, None, ("m",))
    assert 12 * SHARES <= price <= 12 * SHARES + 9 * 40


def test_the_curve_of_every_piece_lies_in_the_hull() -> None:
    """Each point is a mean of the corners of its eighth of its piece, exactly. Mutant: corners of another piece."""
    cells = 8
    c = corners(cells).astype(object)
    assert c.shape == (cells, 3 * (PIECES + 1) + 2)
    assert (c.sum(axis=0) == PIECES**2).all()
    for p, i, k in itertools.product(range(3), range(PIECES), range(6)):
        u, a, b = Fraction(k, 5), Fraction(i, PIECES), Fraction(i + 1, PIECES)
        t = a + (b - a) * u

        def place(x: Fraction, p: int = p) -> Any:
            out = np.zeros(cells, dtype=object)
            out[2 * p : 2 * p + 3] = [(1 - x) ** 2, 2 * x * (1 - x), x * x]
            return out * PIECES**2

        middle = c[:, (PIECES + 1) * p + 1 + i]
        found = (1 - u) ** 2 * place(a) + 2 * u * (1 - u) * middle + u * u * place(b)
        assert (found == place(t)).all()
        if i > 0:
            assert (place(a) * 2 == c[:, (PIECES + 1) * p + i] + middle).all()
    ends = [c[:, (PIECES + 1) * p].tolist() for p in range(4)]
    assert all(e[2 * p] == PIECES**2 for p, e in enumerate(ends))


def test_a_stranger_finds_the_same_corners() -> None:
    """Mutant: a hull of one piece where there are knots."""
    for cells in range(3, 13):
        ours = {tuple(map(int, col)) for col in corners(cells).T}
        assert ours == {tuple(map(int, row)) for row in check_maps.hull(cells)}


def test_sums_are_those_of_exact_numbers() -> None:
    """Of v, v^2 and min(v, z), off by a step's rounding. Mutants: a knot's position rounded down; squares of a piece
    taken for those of the range; the middle of the range in the middle of a piece."""
    frame, domain = _frame(1), _domain()
    measure = domain["income"]
    assert isinstance(measure, sf.Measure)
    ((_, counted),) = open_source(frame, domain).shared([(1,)])
    table = counted.astype(object)
    assert int(table.sum()) == len(frame) * SHARES
    kept = [Fraction(min(v, TOP)) for v in frame.income.dropna().tolist()]
    most = len(frame) * Fraction(1, 2**25) * Fraction(9, 8)
    rows: list[tuple[Any, Fraction, int]] = [
        (measure.midpoints, sum(kept, Fraction(0)), 1),
        (measure.squares, sum((v * v for v in kept), Fraction(0)), 2),
    ]
    rows += [(measure.clipped(z), sum((min(v, Fraction(z)) for v in kept), Fraction(0)), 1) for z in KNOTS]
    for row, exact, power in rows:
        found = sum(Fraction(r) * int(s) for r, s in zip(row, table.tolist(), strict=False)) / SHARES
        assert abs(found - exact) <= most * TOP**power * power


# ---- plans and answers -------------------------------------------------------------------------------------

WORKS: dict[str, Callable[[sf.Domain], sf.Workload]] = {
    "means": lambda d: sf.means(d, "income", by="area"),
    "clipped": lambda d: sf.means(d, "income", by="area", clip="best"),
    "gaps": lambda d: sf.gaps(d, "income", at=[10_000, 40_000.5], by="area"),
    "moments": lambda d: sf.moments(d, "income", by="area"),
    "sums and counts": lambda d: sf.stack(sf.sums(d, "income", by="area"), sf.marginals(d, upto=1)),
}


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_plans_are_near_the_bound_of_the_curve(work: str, relation: str) -> None:
    """Below it none is. Mutants: a bound of what is measured beside; whole rows that leave out a knot's."""
    plan = sf.plan(WORKS[work](_domain()), sf.gdp(1), neighbours=relation)  # type: ignore[call-overload]
    assert plan.lower_bound is not None
    assert 1 <= plan.objective_value / plan.lower_bound <= 1.02


@pytest.mark.parametrize("work", ["clipped", "gaps", "moments"])
@pytest.mark.parametrize("budget", [sf.gdp(1), sf.pure(1)], ids=["gdp", "pure"])
def test_answers_stand_within_their_errors(work: str, budget: sf.Budget) -> None:
    """Answers of a release less exact ones, in standard errors. Mutant: cells of pieces in another order."""
    domain, frame = _domain(), _frame(2)
    plan = sf.plan(WORKS[work](domain), budget, neighbours="add-remove")
    release = sf.release(plan, frame, ledger=None)
    measure = domain["income"]
    assert isinstance(measure, sf.Measure)
    area = frame.area.where(frame.area.isin(["n", "s"]), "(other)")
    held = np.zeros((measure.size, len(frame)))
    edges = [0, *KNOTS, TOP]
    for i, v in enumerate(np.minimum(frame.income, TOP).tolist()):
        if np.isnan(v):
            held[-1, i] = 1
            continue
        p = min(int(np.searchsorted(edges, v, side="right")) - 1, len(edges) - 2)
        u = (v - edges[p]) / (edges[p + 1] - edges[p])
        held[2 * p : 2 * p + 3, i] = (1 - u) ** 2, 2 * u * (1 - u), u * u
    cells = {"area": np.stack([(area == w).to_numpy() for w in ("n", "s", "(other)")]).astype(float), "income": held}
    worst = 0.0
    for query in plan.workload.blocks:
        exact = np.ones((1, len(frame)))
        for (name,), factor in zip(query.block.groups, query.block.factors, strict=True):
            own = np.asarray(factor.dense(), dtype=float) @ cells[name]
            exact = (exact[:, None, :] * own[None]).reshape(-1, len(frame))
        error = np.sqrt(release.variances(query.block)).reshape(-1)
        off = np.abs(release.answer_block(query.block) - exact.sum(axis=1)) / np.maximum(error, 1e-9)
        worst = max(worst, float(off.max()))
    assert 0 < worst < (6 if budget.kind == "gdp" else 12)


def test_answers_are_those_of_the_table_without_noise() -> None:
    """At a budget beyond use. Mutants: below for above; a gap over the poor alone; a mean cut at another knot."""
    domain, frame = _domain(), _frame(3)
    work = sf.stack(sf.gaps(domain, "income", by="area"), sf.moments(domain, "income", by="area"))
    release = sf.release(sf.plan(work, sf.gdp(10**8), neighbours="add-remove"), frame, ledger=None)
    whole = frame[frame.income.notna() & frame.area.isin(["n", "s"])]
    v, by = whole.income.clip(0, TOP), whole.area
    asked: list[tuple[Any, Any]] = [
        (release.mean("income", by="area"), v.groupby(by).mean()),
        (release.variance("income", by="area"), v.groupby(by).var(ddof=0)),
    ]
    for z in KNOTS:
        asked += [
            (release.gap("income", z, by="area"), (z - v).clip(lower=0).groupby(by).mean()),
            (release.gap("income", z, by="area", side="above"), (v - z).clip(lower=0).groupby(by).mean()),
            (release.mean("income", by="area", clip=z), v.clip(upper=z).groupby(by).mean()),
        ]
    for found, exact in asked:
        for low, high, value in zip(found["low"], found["high"], exact.tolist(), strict=False):
            assert low - 1e-3 * value <= value <= high + 1e-3 * value
            assert high - low < 0.01 * value
    best = release.mean("income", by="area", clip="best")
    for low, high, value in zip(best["low"], best["high"], v.groupby(by).mean().tolist(), strict=False):
        assert low * 0.999 <= value <= high * 1.001


def test_cuts_weigh_by_noise_and_by_what_they_cut_off() -> None:
    """Of numbers beyond z as many as 1 / z^2, what each cut loses is known exactly, and so is its weight. Mutants: the
    side that says more; what lies below a cut taken for what lies above; errors in place of their squares."""
    z = np.array([1.0, 2.0, 4.0, 8.0, 32.0])
    lost = 1 / z - 1 / z[-1]
    far = (lost[:, None] - lost[None])[..., None]
    error = np.array([0.01, 0.02, 0.05, 0.2, 3.0])[:, None]
    doubt = np.abs(error[None] - error[:, None])
    square = error[:, 0] ** 2 + lost**2
    assert cut_weights(z, error, far, doubt)[:, 0] == pytest.approx(square**-3 / (square**-3).sum(), rel=1e-9)
    # nothing between two cuts and nothing beyond, as far as noise tells: the lower one errs by its noise alone
    none = far.copy()
    none[2:, :] = none[:, 2:] = 0.0
    none[:2, 2:] = far[:2, 2:3]
    none[2:, :2] = -none[:2, 2:].transpose(1, 0, 2)
    assert cut_weights(z, error, none, doubt)[2, 0] > 0.99


def test_a_cut_below_what_higher_ones_show_is_not_taken() -> None:
    """Few records lie very high, with nothing between. Mutants: neighbours compared alone; the lower called higher."""
    z = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    means = np.array([0.5, 0.5, 0.5, 0.5, 0.6])
    error = np.array([0.001, 0.001, 0.001, 0.002, 0.004])[:, None]
    far = (means[None] - means[:, None])[..., None]
    doubt = np.full((5, 5, 1), 0.004)
    assert cut_weights(z, error, far, doubt)[-1, 0] > 0.99
    assert cut_weights(z, error, np.abs(far) * 0, doubt)[:3, 0].sum() > 0.9


def test_intervals_of_a_cut_that_is_chosen_hold() -> None:
    """Releases of a heavy tail, over a range that is a hundred times what matters. With .95 each, fewer than .85 of
    60 hold once in 300 drawings, of 240 never. Mutants: the interval of the cut mean called that of the mean; one
    level for all."""
    rng = np.random.default_rng(152)
    x = np.minimum(5_000 * (1 - rng.random(2_000)) ** (-1 / 1.5), 2**22)
    domain = sf.Domain({}, measures={"x": sf.Measure(0, 2**22, knots=[2**k for k in range(11, 22)])})
    plan = sf.plan(sf.means(domain, "x", clip="best"), sf.gdp(1), neighbours="add-remove")
    held, near, top = 0, [], []
    for _ in range(draws(60)):
        release = sf.release(plan, pd.DataFrame({"x": x}), ledger=None)
        row = release.mean("x", clip="best").rows()[0]
        held += row["low"] <= x.mean() <= row["high"]
        assert row["low"] <= row["mean x"] <= row["high"]
        near.append(row["mean x"] - x.mean())
        top.append(release.mean("x").rows()[0]["mean x"] - x.mean())
    assert held >= 0.85 * draws(60)
    assert np.square(near).mean() < 0.1 * np.square(top).mean()


def test_groups_too_small_are_blank() -> None:
    """Mutant: notes of the told groups written over the reason."""
    domain, frame = _domain(), _frame(4)
    plan = sf.plan(WORKS["clipped"](domain), sf.gdp("0.5"), neighbours="add-remove")
    release = sf.release(plan, frame[frame.area != "s"], ledger=None)
    for found in (release.gap("income", 10_000, by="area"), release.mean("income", by="area", clip="best")):
        row = found.rows()[1]
        assert row["low"] is None
        assert "too few" in row["note"]
        assert "cut" in found.rows()[0]["note"]


@pytest.mark.parametrize("work", ["clipped", "moments"])
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_a_stranger_prices_it(tmp_path: Path, work: str, relation: str) -> None:
    """Nothing is wrong and no price is left unchecked. Mutant: cells counted as if there were no knots."""
    plan = sf.plan(WORKS[work](_domain()), sf.gdp(1), neighbours=relation)  # type: ignore[call-overload]
    ledger = sf.Ledger.create(tmp_path / "ledger.db", total=sf.gdp(2))
    sf.release(plan, _frame(5), ledger=ledger, name="q", out=tmp_path / "r")
    assert verdict(tmp_path / "r", tmp_path / "ledger.db") == ("accepted", set(), [])


# ---- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "knots",
    [
        [5, 5],
        [6, 5],
        [0],
        [10],
        [-1],
        [11],
        [1e-9],
        [float("nan")],
        [float("inf")],
        ["a"],
        "12",
        5,
        [None],
        list(np.linspace(0.1, 9.9, 31)),
    ],
)
def test_knots_rise_within_the_range(knots: Any) -> None:
    """Mutants: an end as a knot; two knots at one step; a text read as digits."""
    with pytest.raises(SfumatoError):
        sf.Measure(0, 10, knots=knots)


def test_rules_of_a_stored_grid_are_held_too() -> None:
    """Mutant: knots checked where they are declared alone."""
    for knots in ((0.5, 0.5), (2.0,), (1.0 - 1e-9,), (0.5,) * 31):
        with pytest.raises(DomainError):
            Amounts(kind="measure", outside="clamp", missing="other", low=0.0, high=1.0, knots=knots)


REFUSED: dict[str, Callable[[sf.Domain], object]] = {
    "no knot": lambda d: sf.gaps(d, "income", at=11_000),
    "nothing": lambda d: sf.gaps(d, "income", at=[]),
    "without knots": lambda d: sf.gaps(d, "age"),
    "clip without knots": lambda d: sf.means(d, ["income", "age"], clip="best"),
    "another clip": lambda d: sf.means(d, "income", clip="worst"),  # type: ignore[arg-type]
    "an attribute": lambda d: sf.gaps(d, "area"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_has_no_knots_is_refused(what: str) -> None:
    """In words that name the knots. Mutant: any of them let through."""
    with pytest.raises(WorkloadError, match=r"knot|measures"):
        REFUSED[what](_domain(age=sf.Measure(0, 100)))


def test_releases_refuse_in_words() -> None:
    """Mutants: the nearest knot taken; a cut beside a condition."""
    domain = _domain(age=sf.Measure(0, 100))
    plan = sf.plan(sf.gaps(domain, "income", at=10_000), sf.gdp(1), neighbours="add-remove")
    release = sf.release(plan, _frame(6).assign(age=1), ledger=None)
    for ask in (
        lambda: release.gap("income", 11_000),
        lambda: release.gap("income", 10_000, side="beside"),  # type: ignore[arg-type]
        lambda: release.gap("age", 50),
        lambda: release.mean("income", clip=12.5),
        lambda: release.mean("age", clip="best"),
        lambda: release.mean("income", clip=10_000, values=[1.0]),
    ):
        with pytest.raises(PlanError, match=r"knot|side|clip"):
            ask()
    plan = sf.plan(sf.means(domain, "age"), sf.gdp(1), neighbours="add-remove")
    with pytest.raises(sf.NotAnswerable):
        sf.release(plan, _frame(6).assign(age=1), ledger=None).gap("income", 10_000)


def test_two_measures_with_very_many_knots_are_planned_apart() -> None:
    """Mutant: a search over a hundred thousand corners."""
    knots = [float(k) for k in range(1, 31)]
    domain = sf.Domain({}, measures={n: sf.Measure(0, 31, knots=knots) for n in ("x", "y")})
    with pytest.raises(PlanError, match="too many knots"):
        sf.plan(sf.moments(domain, ["x", "y"]), sf.gdp(1), neighbours="add-remove")


SPEC = """
[schema.area]
type = "category"
values = ["n", "s"]
outside = "other"
missing = "other"

[measures.income]
min = 0
max = 1000000
knots = [10000, 20000]

[privacy]
rho = "0.5"
neighbours = "add-remove"

[[queries]]
gaps = "income"
at = [20000]
by = ["area"]

[[queries]]
means = "income"
clip = "best"
"""


def test_a_spec_declares_knots(tmp_path: Path) -> None:
    """Mutants: knots left out of the text; at= read as a place in the list."""
    (tmp_path / "s.toml").write_text(SPEC)
    spec = read_spec(tmp_path / "s.toml")
    measure = spec.workload.domain["income"]
    assert isinstance(measure, sf.Measure)
    assert measure.knots == (10_000, 20_000)
    assert "area = n, shortfall of income below 20000" in spec.workload.labels()
    assert "knots = [10000, 20000]" in spec_text(spec.workload.domain)
    for wrong in ("at = [30000]", 'at = "x"', 'knots = "x"', "knots = [20000, 10000]"):
        text = SPEC.replace(
            wrong.split(" = ", maxsplit=1)[0] + " = [" + ("20000]" if "at" in wrong else "10000, 20000]"), wrong
        )
        assert text != SPEC
        (tmp_path / "s.toml").write_text(text)
        with pytest.raises(SfumatoError, match=r"knot"):
            read_spec(tmp_path / "s.toml")


def test_what_was_not_asked_is_named_with_the_query_that_asks_it() -> None:
    """Mutants: the strategy's own coefficients named, with measures that nobody asked about; no query to ask."""
    domain = _domain(other=sf.Measure(0, 9))
    plan = sf.plan(sf.stack(sf.means(domain, "income"), sf.means(domain, "other")), sf.gdp(1), neighbours="add-remove")
    people = pd.DataFrame({"area": ["n", "s"] * 50, "income": [5.0, 6.0] * 50, "other": [1.0, 2.0] * 50})
    release = sf.release(plan, people, ledger=None)
    by = r"sums of income by area were not measured; ask "
    for asks, said in (
        (lambda: release.mean("income", by="area"), by + r"sf.means\(domain, 'income', by=\['area'\]\) in"),
        (lambda: release.mean("income", by="area", clip=10_000), by + r"sf.means\(.*, clip=\"best\"\) in"),
        (lambda: release.mean("income", by="area", clip="best"), by + r"sf.means\(.*, clip=\"best\"\) in"),
        (
            lambda: release.gap("income", at=10_000, by="area", side="above"),
            by + r"sf.gaps\(domain, 'income', at=10000, by=\['area'\], side=\"above\"\) in",
        ),
        (lambda: release.gini("income", by="area"), by + r"sf.means\(.*, clip=\"best\"\) in"),
        (lambda: release.mean("other", by="area"), r"sums of other by area were not measured; ask sf.means"),
        (lambda: release.table(), r"number of records was not measured, only what was asked of income, other; ask for"),
    ):
        with pytest.raises(sf.NotAnswerable, match=said):
            asks()
