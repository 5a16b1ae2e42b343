"""The calculator against the rooms it stands on: the same numbers as statistics, and intervals that hold."""

from __future__ import annotations

import numpy as np
import pytest

import sfumato as sf
from sfumato.studio.reading import OPERATIONS, calculate, cell_ranks

SPACE = sf.Domain({"age": sf.Integers(0, 9), "sex": sf.Categories(["f", "m"]), "town": sf.Categories(list("abc"))})
WORK = sf.stack(tables=sf.marginals(SPACE, upto=2), curve=sf.prefix(SPACE, "age", by=["sex"]))
PLAN = sf.plan(WORK, sf.zcdp("0.5"), neighbours="add-remove")
COUNTS = np.random.default_rng(3).poisson(40, size=SPACE.shape)
PAIRS = (("age", "sex"), ("age", "town"), ("sex", "town"))


def released(name: str = "r") -> sf.Release:
    return sf.release(PLAN, sf.Histogram(COUNTS), ledger=None, name=name)


def condition(rng: np.random.Generator) -> str:
    """A condition on a measured pair, or none."""
    first, second = PAIRS[rng.integers(3)]
    parts = {
        "age": f"age >= {rng.integers(1, 9)}",
        "sex": f"sex == '{'fm'[rng.integers(2)]}'",
        "town": "town in ('a', 'b')",
    }
    return ["", parts[first], parts[second], f"{parts[first]} and {parts[second]}"][rng.integers(4)]


def test_expressions_against_dense_arithmetic() -> None:
    """Values, and ends from a Fieller interval found by bisection, from one covariance matrix of all conditions.

    Mutants: no covariance between A and B; a delta method's interval; a ratio turned round.
    """
    release, rng, z = released(), np.random.default_rng(11), 1.959963984540054
    texts = list(dict.fromkeys(condition(rng) for _ in range(12)))
    work = sf.stack(*(sf.predicates(SPACE, [t]) if t else sf.total(SPACE) for t in texts))
    values, var = np.asarray(release.ask(work)["answer"]), release.covariance(work)
    for _ in range(40):
        (i, j), how = rng.integers(len(texts), size=2).tolist(), list(OPERATIONS)[rng.integers(5)]
        found = calculate(how, (release, texts[i]), (release, texts[j]))
        x, y, own = values[i], values[j], var[np.ix_([i, j], [i, j])]
        if how in ("difference", "sum"):
            sign = 1 if how == "sum" else -1
            half = z * np.sqrt(max(0.0, own[0, 0] + own[1, 1] + 2 * sign * own[0, 1]))
            expected = [x + sign * y, x + sign * y - half, x + sign * y + half]
        else:
            shift = 1 if how == "growth" else 0
            expected = [e - shift for e in (x / y, *(_end(x, y, own, z, s) for s in (-1, 1)))]
            if how == "share":
                expected = [min(1.0, max(0.0, e)) for e in expected]
        assert (found.value, found.low, found.high) == pytest.approx(expected, rel=1e-7, abs=1e-7)


def _end(x: float, y: float, var: np.ndarray, z: float, side: int) -> float:
    """The farthest r on one side of x / y at which x - r y cannot be told from 0, by bisection."""
    near = x / y
    far = near + side * 10.0
    for _ in range(60):
        r = (near + far) / 2
        spread = np.sqrt(max(0.0, var[0, 0] - 2 * r * var[0, 1] + r * r * var[1, 1]))
        near, far = (r, far) if abs(x - r * y) <= z * spread else (near, r)
    return float(near)


def test_shares_are_those_of_the_statistics() -> None:
    release = released()
    for row in release.share("sex").rows():
        found = calculate("share", (release, f"sex == '{row['sex']}'"), (release, ""))
        assert (found.value, found.low, found.high) == pytest.approx((row["share"], row["low"], row["high"]), abs=1e-12)


def test_two_releases_are_independent_and_one_is_not() -> None:
    """Mutant: one release with itself taken for two, whose growth is then known to be 0 with an error."""
    one, two = released("one"), released("two")
    same = calculate("difference", (one, "age >= 5"), (one, "age >= 5"))
    assert (same.low, same.high) == pytest.approx((0, 0), abs=1e-6)
    apart = calculate("difference", (two, "age >= 5"), (one, "age >= 5"))
    error = one.ask("age >= 5").standard_error
    assert apart.high - apart.value == pytest.approx(1.96 * np.sqrt(2) * error, rel=1e-3)


def test_what_cannot_be_told_from_noise_is_no_number() -> None:
    """Mutant: a ratio whatever the noise of its denominator."""
    nobody = sf.release(PLAN, sf.Histogram(np.zeros(SPACE.shape, dtype=int)), ledger=None)
    with pytest.raises(sf.NotAnswerable, match="too near 0"):
        calculate("ratio", (nobody, "age >= 5"), (nobody, "sex == 'f'"))


def test_places_hold_together() -> None:
    release = released()
    found = cell_ranks(release, "town")
    assert [r.value for r in found] == sorted((r.value for r in found), reverse=True)
    true = dict(zip("abc", COUNTS.sum(axis=(0, 1)), strict=True))
    order = sorted("abc", key=lambda t: -true[t])
    assert all(r.first <= order.index(r.cell) + 1 <= r.last for r in found)


def test_refusals() -> None:
    release = released()
    with pytest.raises(sf.errors.InvalidInput, match="share"):
        calculate("power", (release, ""), (release, ""))
    with pytest.raises(sf.SfumatoError):
        calculate("share", (release, "height >= 3"), (release, ""))
