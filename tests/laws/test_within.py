"""Records that are replaced within groups alone: what it costs, whose totals are public, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato._util.codec import value_fingerprint
from sfumato.curator.curator import Curator
from sfumato.errors import LedgerMismatch, PlanError
from sfumato.operators import Block, Combination, Dense, Grouping, Identity, Scaled
from sfumato.plans.plan import Plan, price_design
from sfumato.postprocess import geography as parts
from sfumato.privacy import replaced
from sfumato.privacy.accounting import GaussianEvent
from sfumato.privacy.debits import _unit_from_text, _unit_to_text  # pyright: ignore[reportPrivateUsage]
from sfumato.privacy.ledger.words import secrecy_clause
from sfumato.privacy.noise import RoundedGaussian
from sfumato.privacy.sensitivity import certified_bound
from sfumato.privacy.unit import Neighbours, PrivacyUnit, Within
from sfumato.strategies.certificates import exact_sensitivity, find_certificate
from sfumato.strategies.design import Problem
from sfumato.strategies.geography import Spine
from sfumato.strategies.geography_planning import design_geography
from sfumato.strategies.geography_tree import read_totals, read_unit
from sfumato.strategies.strategy import KnownGroups
from support.places import dense, grown, nested, random_spine
from support.seeded import draws

REPLACE_ONE = PrivacyUnit(Neighbours.REPLACE_ONE)
SETS: list[list[list[str]]] = [[[], ["a0"], ["a0", "a1"]], [["a0"], ["a1"]], [["a0", "a1"]], [[], ["a1"]]]
BOTH = pytest.mark.parametrize("residual", [False, True], ids=["tables", "residuals"])


def within(codes: Any, name: str = "L0", attribute: str = "place") -> PrivacyUnit:
    kept = np.asarray(codes, dtype=np.int64)
    return PrivacyUnit("replace-one", within=Within(name, attribute, value_fingerprint((attribute, kept)), kept))  # pyright: ignore[reportArgumentType]


def drawn(seed: int, *, residual: bool) -> tuple[Spine, PrivacyUnit, float, float]:
    """A strategy, the relation within the groups of one of its levels, or of all, or of cells; and the largest squared
    distance of two of its columns, of cells of one group and of any."""
    rng = np.random.default_rng(seed)
    made = random_spine(rng, residual=residual, public=True)
    cells = made.shape[0]
    groups = [np.zeros(cells), *(f.codes for f in made.levels if isinstance(f, Grouping)), np.arange(cells)]
    codes = groups[int(rng.integers(len(groups)))]
    matrix = dense(sf.Domain(dict(zip(made.names, made.shape, strict=True))), made.blocks)
    norms = (matrix**2).sum(axis=0)
    apart = norms[:, None] + norms - 2 * matrix.T @ matrix
    own = np.repeat(codes, len(norms) // cells)
    return made, within(codes), float(apart[own[:, None] == own].max()), float(apart.max())


@BOTH
def test_prices_are_those_of_brute_force_over_pairs_of_one_group(residual: bool) -> None:
    """The search's price, and what the wall proves of it, on random trees.

    Mutants: pairs of any cells (the price of the plain relation: never less, so nothing is lost but accuracy); pairs of
    cells of different groups, or of one group alone; groups in the order of the tree taken for those of cells.
    """
    less = 0
    for seed in range(draws(250)):
        made, unit, wanted, free = drawn(seed, residual=residual)
        sizes = dict(zip(made.names, made.shape, strict=True))
        found = exact_sensitivity(made.blocks, sizes, unit, 2)
        assert (found.value, found.exact) == (round(wanted), True)
        maps = [b.lowered() for b in made.blocks]
        assert certified_bound(maps, sizes, unit, 2, find_certificate(made.blocks, sizes, unit, 2)) == round(wanted)
        less += wanted < free
    assert less > draws(50)


@BOTH
def test_of_many_cells_a_bound_is_proved_that_whole_tables_reach(
    residual: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: a level whose groups are in several of the groups that count taken for one in which two records lie
    together; then two records would be nearer than they are."""
    monkeypatch.setattr(replaced, "_MOST_CELLS_JOINT", 0)
    monkeypatch.setattr(replaced, "_MOST_CELLS_ALONE", 0)
    for seed in range(60):
        made, unit, wanted, free = drawn(seed, residual=residual)
        sizes = dict(zip(made.names, made.shape, strict=True))
        found = exact_sensitivity(made.blocks, sizes, unit, 2).value
        assert wanted <= found
        assert residual or found <= round(free)


def test_other_measurements_are_priced_no_lower_than_brute_force() -> None:
    """Squares and absolute values, of one block and of several over joint attributes, with entries of either sign.

    Mutant: columns of the whole matrix that are distinct taken for cells, by their numbers.
    """
    rng = np.random.default_rng(3)
    domain = sf.Domain({"place": 4, "a": 3})
    for _ in range(30):
        unit = within(rng.integers(0, 2, 4))
        codes = unit.within.codes if unit.within else None
        assert codes is not None
        blocks = [
            q.block
            for names in (["place"], ["place", "a"], ["a"])
            for q in sf.queries(rng.integers(-2, 3, (2, domain[names[0]].size)), domain, names[0]).blocks
        ]
        matrix = dense(domain, blocks)
        own = np.repeat(codes, 3)
        summed = Combination(tuple(blocks), rng.integers(-2, 3, (3, len(matrix))))
        far = ((summed.matrix @ matrix)[:, :, None] - (summed.matrix @ matrix)[:, None]) ** 2
        combined = exact_sensitivity([summed], {"place": 4, "a": 3}, unit, 2)
        assert combined.value >= far.sum(axis=0)[own[:, None] == own].max()
        assert not combined.exact
        for power in (1, 2):
            apart = (np.abs(matrix[:, :, None] - matrix[:, None]) ** power).sum(axis=0)
            found = exact_sensitivity(blocks, {"place": 4, "a": 3}, unit, power)
            assert found.value >= apart[own[:, None] == own].max()
            assert not found.exact or found.value == apart[own[:, None] == own].max()


# ---- the unit, in ledgers ---------------------------------------------------------------------------------------


def test_the_unit_says_its_groups_and_refuses_others_than_hashed() -> None:
    """Mutant: the hash believed, so that one ledger would add up what is spent on different relations."""
    unit = within([0, 0, 1])
    held = unit.within
    assert held is not None
    assert unit.describe() == "one record replaced by another of the same L0"
    assert _unit_from_text(_unit_to_text(unit)) == unit
    assert json.loads(_unit_to_text(unit)) == ["replace-one", None, 1, "L0", "place", held.digest]
    assert _unit_to_text(REPLACE_ONE) == '["replace-one", null, 1]'
    assert unit != within([0, 1, 1])
    assert unit != REPLACE_ONE
    with pytest.raises(PlanError, match="hash"):
        replace(held, codes=np.array([0, 1, 1]))
    for given in ({"neighbours": "add-remove"}, {"person": "who"}):
        with pytest.raises(PlanError, match="within a group"):
            replace(unit, **given)
    with pytest.raises(ValueError, match="hash"):
        _unit_from_text(_unit_to_text(unit)[:-1] + ', "more"]')


def test_groups_of_other_values_are_another_unit_though_their_codes_are_the_same() -> None:
    """What states have is free to look at, so one ledger of two divisions into states would give every block away.

    Mutants: the hash of codes alone, so that the second division is paid from the ledger of the first; a door that
    does not hold the hash against the cells of its table; one that takes the hash of 0.2; records that are moved.
    """

    def divided(*rows: tuple[str, str], impossible: tuple[str, ...] = ()) -> sf.Domain:
        return sf.Domain({"place": sf.Hierarchy(rows, levels=["state", "block"]), "a": 2}, impossible=impossible)

    def look(domain: sf.Domain, unit: PrivacyUnit, name: str) -> int:
        assert unit.within is not None
        held = Curator(sf.Histogram([[70, 0], [50, 0], [9, 0]]), domain, unit, ledger)
        first = Dense((unit.within.codes == 0)[None] * 2**20)
        found, _ = held.measure(
            [Block((("place",),), (first,))], RoundedGaussian(Fraction(1)), free, name=name, plan_hash="0"
        )
        return round(int(found.values[0][0]) / 2**20)

    ledger, free = sf.Ledger.in_memory(sf.gdp("1e-9")), GaussianEvent(Fraction(0))
    one, other = divided(("A", "1"), ("A", "2"), ("B", "3")), divided(("A", "1"), ("A", "3"), ("B", "2"))
    units = [read_unit("replace-one within state", None, 1, d) for d in (one, other)]
    groups = [unit.within for unit in units]
    assert groups[0] is not None
    assert groups[1] is not None
    assert groups[0].codes is not None
    assert groups[0].codes.tolist() == [0, 0, 1]
    assert np.array_equal(groups[0].codes, groups[1].codes)
    assert look(one, units[0], "one") == 120
    with pytest.raises(LedgerMismatch, match="groups of other cells"):
        look(other, units[1], "other")
    for given in (groups[0], replace(groups[1], digest=groups[1].digest[:64])):
        with pytest.raises(PlanError, match="groups of other cells"):
            look(other, PrivacyUnit(Neighbours.REPLACE_ONE, within=given), "other")
    moved = divided(("A", "1"), ("A", "2"), ("B", "3"), impossible=("place == '2'", "place == '3'"))
    with pytest.raises(PlanError, match="moved out of theirs"):
        look(moved, units[0], "moved")


def test_groups_that_are_not_of_the_cells_are_refused() -> None:
    made, unit, _, _ = drawn(1, residual=False)
    sizes = dict(zip(made.names, made.shape, strict=True))
    held = unit.within
    assert held is not None
    for other in (replace(held, codes=None), within([0, 1] * 9).within, within([0, 0], attribute="nobody").within):
        with pytest.raises(PlanError, match="not of its cells"):
            exact_sensitivity(made.blocks, sizes, PrivacyUnit(Neighbours.REPLACE_ONE, within=other), 2)


# ---- plans and releases -------------------------------------------------------------------------------------------


def declared(seed: int = 0) -> tuple[sf.Workload, np.ndarray, dict[Any, Any]]:
    """Tables at levels, counts, and the states' totals."""
    rng = np.random.default_rng(seed)
    rows = grown((3, 3, 3), rng, 0.4)
    work = nested([rows[i] for i in rng.permutation(len(rows))], (2, 3), SETS[seed % 4], before=seed % 2)
    x = rng.poisson(2.0, work.domain.shape)
    return work, x, {("L0",): totals(work.domain, x, "L0")}


def totals(domain: sf.Domain, x: np.ndarray, level: str) -> np.ndarray:
    axis, found = domain.axis("place"), domain.grouping(level)
    sums = x.sum(axis=tuple(i for i in range(x.ndim) if i != axis))
    return sums if found is None else np.bincount(found.groups, sums)


def planned(work: sf.Workload, level: str, public: dict[Any, Any]) -> Plan:
    unit = read_unit(f"replace-one within {level}", None, 1, work.domain)
    assert unit.within is not None
    known = read_totals(work.domain, unit.within, public)
    asked = Problem(work, sf.gdp(1), unit, "gaussian", known=(known,))
    return price_design(design_geography(asked)[0], asked)


@pytest.mark.parametrize("seed", range(12))
def test_variances_covariances_and_answers_are_those_of_dense_least_squares(seed: int) -> None:
    """With the totals of the groups of any level, the finest too, and of one that is not asked, kept exactly.

    Mutants: the total of all records alone kept; totals in the order of the tree taken for their numbers.
    """
    work, x, _ = declared(seed)
    level = ["L0", "L1", "place"][seed % 3]
    if seed % 2:
        work = sf.Workload(work.domain, tuple(i for i in work.items if i.part != level))
    known = totals(work.domain, x, level)
    made = planned(work, level, {(level,): known})
    strategy, domain = made.strategy, work.domain
    assert isinstance(strategy, Spine)
    both = [q.block for q in work.blocks]
    measured, asked = dense(domain, strategy.blocks), dense(domain, both)
    group = KnownGroups(0, made.unit.within.codes, known.astype(float)) if made.unit.within else None  # type: ignore[arg-type]
    assert group is not None
    place = sf.queries(np.asarray(group.operator.dense()), domain, "place").blocks[0].block
    exact = dense(domain, [place])
    # where the totals are known, columns count up to what these say
    across = np.eye(domain.size) - np.linalg.pinv(exact) @ exact
    back = asked @ across @ np.linalg.pinv(measured @ across, rcond=1e-11)
    wanted = back @ back.T
    scale = wanted.max()
    powers = np.concatenate(
        [np.broadcast_to(strategy.row_powers(b, 2), [f.shape[0] for f in b.factors]).reshape(-1) for b in both]
    )
    assert np.abs(powers - np.diag(wanted)).max() < 1e-9 * scale
    found = np.block([[strategy.covariance(a, b) for b in both] for a in both])
    assert np.abs(found - wanted).max() < 1e-9 * scale
    values = [(dense(domain, [b]) @ x.reshape(-1)).astype(np.int64) for b in strategy.blocks]
    values = [v + np.random.default_rng(seed).integers(-9999, 9999, len(v)) for v in values]
    answers = np.concatenate([strategy.answer(strategy.estimate(values, int(x.sum())), b) for b in both])
    even = np.linalg.pinv(exact) @ known
    expected = asked @ even + back @ (np.concatenate(values) - measured @ even)
    assert np.abs(answers - expected).max() < 1e-8 * np.abs(expected).max()
    plain = Problem(work, sf.gdp(1), REPLACE_ONE, "gaussian")
    other = price_design(design_geography(plain)[0], plain)
    assert (made.standard_errors() <= other.standard_errors() * (1 + 1e-9)).mean() > 0.5
    assert made.rmse is not None
    assert other.rmse is not None
    assert made.rmse <= other.rmse * (1 + 1e-9)


def test_a_release_keeps_the_totals_and_says_the_relation_everywhere(tmp_path: Path) -> None:
    """Unprojected, projected, in whole numbers; in plan, ledger, files and report."""
    work, x, public = declared(0)
    budget, ledger = sf.zcdp("0.5"), sf.Ledger.create(tmp_path / "l.db", total=sf.zcdp(2))
    made = sf.plan(work, budget, neighbours="replace-one within L0", public=public)
    assert "protects   one record replaced by another of the same L0" in str(made)
    assert "the totals of L0 are public: exact, not measured, not protected" in str(made)
    release = sf.release(made, sf.Histogram(x), ledger=ledger, name="it", out=tmp_path / "it")
    codes = work.domain.grouping("L0")
    assert codes is not None
    whole, real = release.project(body="spine", integer=True), release.project()
    assert real.projection is not None
    assert real.projection.body == "spine"
    for found, off in ((release, 1e-9), (real, 1e-9), (whole, 0.0)):
        assert np.abs(found.table("L0").values - public["L0",]).max() <= off
        blocks = found.table("place").values
        assert np.abs(np.bincount(codes.groups, blocks) - public["L0",]).max() <= off * 100
    ends = release.intervals(0.95)
    exact = made.standard_errors() < 1e-9
    assert exact.sum() == 1 + len(public["L0",])
    assert np.abs(ends.high - ends.low)[exact].max() < 1e-9
    assert (whole.table("place").values >= 0).all()
    assert len(whole.synthetic()) == x.sum()
    (entry,) = [e for e in ledger.entries() if e.kind == "spend"]
    assert entry.unit == made.unit
    facts = json.loads((tmp_path / "it" / "release.json").read_text())["privacy"]
    assert facts["within"][:2] == ["L0", "place"]
    assert secrecy_clause(made.unit) == "which of two records of the same L0 a given person has"
    assert np.array_equal(sf.load(tmp_path / "it").answers, release.answers)
    with pytest.raises(LedgerMismatch, match="same L0"):
        sf.release(sf.plan(work, budget, neighbours="replace-one"), sf.Histogram(x), ledger=ledger, name="other")


@pytest.mark.parametrize("level", ["L0", "L1", "place"])
@pytest.mark.parametrize("parted", [False, True], ids=["whole", "in parts"])
def test_totals_are_kept_where_cells_are_clipped(level: str, parted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few records under much noise; with an impossible cell besides, and branch by branch.

    Mutant: totals of children left to the noise in the projection.
    """
    monkeypatch.setattr(parts, "_WHOLE", 0 if parted else 2**30)
    rng = np.random.default_rng(4)
    place = sf.Hierarchy(grown((3, 3, 3), rng, 0.4), levels=["L0", "L1", "L2"])
    for cannot in ((), ("a0 == 1 and a1 == 2",)):
        domain = sf.Domain({"place": place, "a0": 2, "a1": 3}, impossible=cannot)
        work = sf.marginals(domain, sets=[[], ["a0"], ["a0", "a1"]], factors={"place": "levels"})
        x = rng.poisson(0.3, domain.shape)
        x[:, 1, 2] = 0
        known = totals(domain, x, level)
        made = sf.plan(work, sf.zcdp("0.01"), neighbours=f"replace-one within {level}", public={(level,): known})
        release = sf.release(made, sf.Histogram(x), ledger=None)
        for integer, off in ((True, 0.0), (False, 1e-9)):
            found = release.project(integer=integer)
            assert found.projection is not None
            assert found.projection.body == "spine"
            assert np.abs(found.table(level).values - known).max() <= off
            tables = [found.table(name, "a0", "a1").values for name in ("L0", "L1", "place")]
            assert min(t.min() for t in tables) >= 0
            for name, table in zip(("L0", "L1"), tables, strict=False):
                grouping = domain.grouping(name)
                assert grouping is not None
                sums = np.zeros_like(table)
                np.add.at(sums, grouping.groups, tables[-1])
                assert np.abs(sums - table).max() <= off * 10
            if cannot:
                assert tables[-1][:, 1, 2].max() == 0


def test_the_wall_refuses_the_price_where_any_record_may_be_replaced() -> None:
    """Mutant: a door that prices by the plan's relation and debits another's."""
    work, x, _ = declared(0)
    sizes = dict(zip(work.domain.names, work.domain.shape, strict=True))
    level, own = work.domain.grouping("L0"), read_unit("replace-one within L0", None, 1, work.domain)
    assert level is not None
    # how many records each group has: free where they stay, two counts of seven otherwise
    states = Block((("place",), ()), (Grouping(level.groups, 3), Scaled(Identity(1), 7)))
    blocks, noise, price = (
        [states, Block((("a0",),), (Identity(2),))],
        RoundedGaussian(Fraction(2)),
        GaussianEvent(Fraction(1)),
    )
    within_groups, anywhere = (exact_sensitivity(blocks, sizes, unit, 2) for unit in (own, REPLACE_ONE))
    assert (within_groups.value, anywhere.value) == (2, 100)
    whole = Within.of("L0", "place", np.zeros(len(level.groups), dtype=np.int64), work.domain["place"].rule)
    for unit in (own, REPLACE_ONE, PrivacyUnit(Neighbours.REPLACE_ONE, within=whole)):
        held = Curator(sf.Histogram(x), work.domain, unit, sf.Ledger.in_memory(sf.gdp(9)))
        measure = partial(held.measure, blocks, noise, price, name="a", plan_hash="0")
        proof = find_certificate(blocks, sizes, unit, 2)
        if unit is own:
            assert measure(stated=within_groups, certificate=proof)[0].total == x.sum()
            continue
        for stated in (within_groups, anywhere, None):
            with pytest.raises(PlanError, match=r"sensitivity|costs more"):
                measure(stated=stated, certificate=proof)


def test_a_plan_whose_totals_are_of_other_groups_is_damaged() -> None:
    work, _, public = declared(0)
    made = sf.plan(work, sf.zcdp(1), neighbours="replace-one within L0", public=public)
    for unit in (REPLACE_ONE, within(np.zeros(work.domain["place"].size))):
        with pytest.raises(PlanError, match="do not stay"):
            replace(made, unit=unit).check()
