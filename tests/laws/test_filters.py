"""The integer filter of streams: its response, what rounding adds, and what limbs do, against Python's integers."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from sfumato.curator.streams.measuring import filter_period
from sfumato.errors import PlanError
from sfumato.privacy.stream_price import MOST_COUNT, SLACK, IntegerFilter
from support.streams import drawn, filtered, response, truncated

PAIRS = 500
"""Of streams for every filter; there are 20."""


def on_limbs(used: IntegerFilter, counts: np.ndarray, multiple: int = 1, grain: int = 0) -> np.ndarray:
    cells, decays = counts.shape[1], [(int(e), int(g)) for e, g in used.decays]
    high, low = (np.zeros((len(decays), cells), dtype=np.int64) for _ in range(2))
    out = []
    for t, x in enumerate(counts):
        factors = np.repeat(used.coefficients(t, [multiple], grain), cells, axis=1)
        out.append(filter_period(high, low, x, factors, decays, used.row(t), used.shift))
    return np.array(out)


def matrix(used: IntegerFilter) -> list[list[Fraction]]:
    n = used.periods
    return [[response(used, t, u) for u in range(n)] for t in range(n)]


def excess(used: IntegerFilter, floor=None) -> float:
    """How far pairs of streams differ from the exact response, in the bound for it: below 1 if the lemma holds.

    Streams of counts of both signs, that differ from a random period on, in one period, several or all.
    """
    rng = np.random.default_rng([used.shift, *used.direct.tolist()])
    n = used.periods
    first = rng.integers(-20, 21, size=(n, PAIRS))
    change = rng.integers(-2, 3, size=(n, PAIRS)) * (rng.random((n, PAIRS)) < rng.random(PAIRS))
    change *= np.arange(n)[:, None] >= rng.integers(0, n, size=PAIRS)
    given = {} if floor is None else {"floor": floor}
    moved = filtered(used, first + change, **given) - filtered(used, first, **given)
    unit = 2 ** (used.shift + 9 * n)  # g is at most 8
    response = np.array([[int(c * unit) for c in row] for row in matrix(used)], dtype=object)
    off = np.abs(moved * unit - response @ change.astype(object))
    bound = np.array([int(b * 2**40) * unit // 2**40 for b in used.rounding()], dtype=object)
    return float((off / bound[:, None]).max())


def test_rounding_adds_no_more_than_the_lemma_says() -> None:
    """10,000 pairs, of both signs, with any number of participations.

    Mutants: floors towards zero (below); no 1 for the last floor in `rounding`; its sums begun a period later, or the
    sum over states left out.
    """
    rng = np.random.default_rng(1)
    worst = [excess(drawn(rng, bits=int(rng.integers(1, 12)))) for _ in range(20)]
    assert max(worst) < 1
    assert max(worst) > 0.9  # the bound is no looser than it need be


def test_towards_zero_breaks_the_lemma() -> None:
    rng = np.random.default_rng(1)
    assert max(excess(drawn(rng, bits=int(rng.integers(1, 12))), truncated) for _ in range(20)) > 1


def test_limbs_are_python_integers_modulo_2_64() -> None:
    """Mutants: a carry left out, a shift of exactly 48 bits, an unsigned shift of a negative state."""
    rng = np.random.default_rng(2)
    for trial in range(60):
        used = drawn(rng, bits=int(rng.integers(1, 60)))
        top = 2 ** int(rng.integers(1, 37))
        counts = rng.integers(-top, top + 1, size=(used.periods, 50))
        with np.errstate(all="raise"):
            found = on_limbs(used, counts, 5, 3)
        wanted = filtered(used, counts, 5, 3) % 2**64
        assert (found.astype(object) % 2**64 == wanted).all(), trial


@pytest.mark.parametrize("shift", [0, 1, 47, 48, 49, 96, 100])
@pytest.mark.parametrize("g", [12, 47, 48, 49, 53])
def test_limbs_at_their_ends(shift: int, g: int) -> None:
    """States as large as are let in, of both signs, at the shifts where limbs meet."""
    used = IntegerFilter([[4095, g]], shift, [40], [2**14 - 1], [2**54 - 1], [[2**53 - 1]])
    most = 2**36
    while not passes(used, most):
        most //= 2
    for sign in (1, -1):
        counts = np.full((used.periods, 1), sign * most)
        assert (on_limbs(used, counts).astype(object) % 2**64 == filtered(used, counts) % 2**64).all()


def test_the_response_bounds_every_column_and_every_pattern() -> None:
    """Against exact rationals. Mutants: rows left out, the diagonal left out, a pair of decays counted once."""
    rng = np.random.default_rng(3)
    for _ in range(40):
        used = drawn(rng, bits=int(rng.integers(1, 30)))
        scaled = [[c * 2**used.shift for c in row] for row in matrix(used)]
        exact = max(sum(row[u] ** 2 for row in scaled) for u in range(used.periods))
        assert exact <= used.response() <= exact * Fraction(SLACK) ** 2 + 2


def test_the_worst_pattern_is_the_first() -> None:
    """All patterns of at most k periods, b apart, by brute force. Mutants: b + 1, k - 1, no check that it falls."""
    rng = np.random.default_rng(4)
    for _ in range(25):
        used = drawn(rng, alike=True, bits=8)
        n = used.periods
        scaled = np.array([[c * 2**used.shift for c in row] for row in matrix(used)], dtype=object)
        for k, b in ((2, 1), (2, 3), (3, 2), (4, 1), (n, 1)):
            patterns = (
                p
                for size in range(1, min(k, n) + 1)
                for p in itertools.combinations(range(n), size)
                if all(y - x >= b for x, y in itertools.pairwise(p))
            )
            exact = max((scaled[:, list(p)].sum(axis=1) ** 2).sum() for p in patterns)
            assert exact <= used.response(k, b) <= exact * Fraction(SLACK) ** 2 + 2


def test_several_participations_need_periods_that_are_alike() -> None:
    for direct, rows, carried in (
        ([5, 6], [3, 3], [[1], [1]]),
        ([5, 5], [3, 4], [[1], [1]]),
        ([5, 5], [3, 3], [[1], [2]]),
        ([5, 5], [3, 3], [[6], [6]]),
    ):
        used = IntegerFilter([[1, 4]], 2, [3, 3], rows, direct, carried)
        assert used.response() > 0
        with pytest.raises(PlanError, match="alike"):
            used.response(2)


def test_long_streams_are_bounded_as_short_ones() -> None:
    """The scan in two levels against one in Python's own sums, over 5,000 periods."""
    used = IntegerFilter([[1500, 22], [3000, 15]], 20, [2000, 3000], [700, 900], [2**30, 2**29], [[2**20, 2**22]] * 2)
    theta = used.decay_rates.tolist()
    for u in (0, 1999, 2000, 4998, 4999):
        run = 0 if u < 2000 else 1
        entries = [float(used.direct[run])] + [
            sum(float(b) * f**m for b, f in zip(used.carried[run], theta, strict=True)) for m in range(4999 - u)
        ]
        rows = [700.0 if t < 2000 else 900.0 for t in range(u, 5000)]
        exact = math.fsum((r * x) ** 2 for r, x in zip(rows, entries, strict=True))
        assert math.isclose(used._columns()[u], exact, rel_tol=1e-12)
    off = [
        1 + r / 2**20 * sum((1 - f ** max(t - 1, 0)) / (1 - f) for f in theta) for t, r in ((4999, 900), (1500, 700))
    ]
    np.testing.assert_allclose(used.rounding()[[4999, 1500]], off, rtol=1e-7)


def test_states_that_are_let_in_keep_to_their_bits() -> None:
    """The largest counts that pass, in Python's integers. Mutants: a bound without the floor's own part, or rows."""
    near = 0
    for e, g, shift, row, c, b in (
        (4095, 20, 40, 2047, 2**61, 2**55),
        (2048, 17, 60, 2**14 - 1, 2**61, 1),
        (1, 9, 9, 9, 9, 9),
    ):
        used = IntegerFilter([[e, g]], shift, [4000], [row], [c], [[b]])
        most = 2**36
        while not passes(used, most):
            most //= 2
        assert most < 2**36 or c == 9
        state = 0
        for _ in range(used.periods):
            near = max(near, row * (c * most + state) / 2**102, state / 2**90)
            state += b * most - (state * e >> g)
    assert 0.2 < near < 1


def test_a_state_that_hardly_decays_adds_up_over_all_periods() -> None:
    used = IntegerFilter([[1, 53]], 0, [2**20], [1], [1], [[2**62 - 1]])
    assert passes(used, 2**8)
    assert not passes(used, 2**8 + 1)
    # (1 + b most) 2^20 is 2^90 - 2^20 here, to the last digit: mutant, 2 + b most
    most = 7 * (2**23 - 1)
    full = IntegerFilter([[1, 53]], 0, [2**20], [1], [1], [[2 * (2**69 - 1) // most]])
    assert passes(full, most)
    assert not passes(full, most + 1)


def passes(used: IntegerFilter, most: int) -> bool:
    try:
        used.check_count(most)
    except PlanError:
        return False
    return True


def test_the_largest_count_is_one_that_two_limbs_multiply() -> None:
    used = drawn(np.random.default_rng(9))
    for bad in (0, -1, MOST_COUNT + 1, 1.0, True):
        with pytest.raises(PlanError, match="largest count"):
            used.check_count(bad)


@pytest.mark.parametrize(
    "changed",
    [
        {"decays": [[0, 4]]},
        {"decays": [[4096, 20]]},
        {"decays": [[17, 4]]},
        {"decays": [[1, 54]]},
        {"decays": np.zeros((0, 2), dtype=np.int64), "carried": np.zeros((2, 0), dtype=np.int64)},
        {"shift": -1},
        {"shift": 101},
        {"shift": True},
        {"runs": [0, 3]},
        {"runs": [2**20, 1]},
        {"rows": [0, 1]},
        {"rows": [2**14, 1]},
        {"direct": [0, 1]},
        {"direct": [2**62, 1]},
        {"carried": [[-1], [1]]},
        {"carried": [[1.0], [1.0]]},
        {"carried": [[1, 1], [1, 1]]},
    ],
)
def test_a_filter_refuses_what_it_cannot_hold(changed: dict) -> None:
    good = {"decays": [[1, 4]], "shift": 2, "runs": [2, 3], "rows": [3, 4], "direct": [5, 6], "carried": [[1], [0]]}
    assert IntegerFilter(**good).periods == 5
    with pytest.raises(PlanError):
        IntegerFilter(**good | changed)


def test_golden_integers() -> None:
    """What the filter makes of a fixed stream, to the bit, with states of both signs. Mutant: any other rounding."""
    used = IntegerFilter([[3, 5], [11, 9]], 7, [3, 4], [100, 77], [900, 1000], [[37, 210], [41, 190]])
    counts = np.array([[3, -1], [0, 7], [-5, 2], [1, 1], [0, 0], [4, -9], [-2, 0]])
    wanted = [list(GOLDEN[i : i + 2]) for i in range(0, 14, 2)]
    assert filtered(used, counts).tolist() == on_limbs(used, counts).tolist() == wanted


GOLDEN = (2109, -704, 578, 4728, -2955, 2571, 277, 1766, -174, 1267, 2239, -4186, -809, -61)
