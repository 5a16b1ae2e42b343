"""The price of sums of measures against brute force: what records really add to what is measured."""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest

from sfumato import check_maps
from sfumato.cells import POINTS
from sfumato.curator.rows.shares import SHARES, shares
from sfumato.errors import PlanError
from sfumato.maps import BlockMap, DenseMap
from sfumato.privacy import measures as priced_measures
from sfumato.privacy.measures import PIECES, corners, over_hull
from sfumato.privacy.replaced import Certificate
from sfumato.privacy.sensitivity import certified_bound
from support.shares import REPLACE, errs


def test_no_record_changes_more_than_is_priced() -> None:
    """10,000 maps were drawn by bench/measures.py. Mutants: a corner left out; the rounding forgotten; tables without
    measures priced as if a record were 1 there; a record that is 2^24 priced as 2^18."""
    low, _ = errs(40, 0)
    assert low == 0


@pytest.mark.parametrize("mutant", ["corner", "whole"])
def test_mutants_of_the_price_are_found(monkeypatch: pytest.MonkeyPatch, mutant: str) -> None:
    """Whether the test above could fail: with a corner left out, and with the scale of a record forgotten."""
    if mutant == "corner":
        whole = corners

        def fewer(cells: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
            return np.delete(whole(cells), [0, PIECES // 2, PIECES + 1], axis=1)

        monkeypatch.setattr(priced_measures, "corners", fewer)
    else:
        monkeypatch.setattr(priced_measures, "WHOLE_BITS", 23)
    assert errs(40, 0, enough=1)[0] > 0


def test_each_feature_is_rounded_once() -> None:
    """1 is not, and t, t^2 and the products of one to three measures are off by half and a hair, priced as 17/32 of
    2^24. Mutants: `_OFF` of 0; products rounded down; a square of the rounded place."""
    off = Fraction(*priced_measures._OFF)  # pyright: ignore[reportPrivateUsage]
    rng = np.random.default_rng([187, 1])
    special = [0, 1, POINTS // 2, POINTS - 1, POINTS]
    codes = [np.concatenate([special, rng.integers(0, POINTS, 2_000)]).astype(np.uint32) for _ in range(3)]
    twice = np.array([[2, 2, 2], [0, 1, 2], [0, 0, 2]], dtype=object)  # 1, t and t^2 of shares
    for count in (1, 2, 3):
        own = codes[:count]
        counted = reduce(np.kron, [twice] * count) @ shares(own, (3,) * count).astype(object)
        places = [
            np.array([[2 * POINTS**2] * len(c), [2 * t * POINTS for t in c], [2 * t * t for t in c]])
            for c in ([int(t) for t in c] for c in own)
        ]
        exact = reduce(lambda p, q: (p[:, None] * q[None]).reshape(-1, p.shape[1]), [p.astype(object) for p in places])
        unit = 2**count * POINTS ** (2 * count) // SHARES
        worst = np.abs(counted * (POINTS ** (2 * count) // SHARES) - exact).max(axis=1)
        assert worst[0] == 0
        assert all(Fraction(49, 100) < Fraction(int(w), unit) <= off for w in worst[1:])


def test_the_curve_lies_in_its_hull() -> None:
    """Each point is a mean of the corners of its piece, exactly. Mutants: tangents' points shifted; pieces of the
    wrong ends."""
    c = corners(3).astype(object)
    for i, u in itertools.product(range(PIECES), (Fraction(k, 11) for k in range(12))):
        a, b = Fraction(i, PIECES), Fraction(i + 1, PIECES)
        t = a + (b - a) * u
        ends = [np.array([(1 - x) ** 2, 2 * x * (1 - x), x * x]) * PIECES**2 for x in (a, b)]
        middle = c[:, 1 + i]
        found = (1 - u) ** 2 * ends[0] + 2 * u * (1 - u) * middle + u * u * ends[1]
        assert found.tolist() == [(1 - t) ** 2 * PIECES**2, 2 * t * (1 - t) * PIECES**2, t * t * PIECES**2]
        # and the ends of pieces lie between the points around them
        if i > 0:
            assert (ends[0] * 2 == c[:, i] + c[:, 1 + i]).all()


def test_a_stranger_finds_the_same_corners() -> None:
    """The checker walks by products of ends. Mutant: its corners of other pieces."""
    for cells in (3, 4):
        ours = {tuple(map(int, col)) for col in corners(cells).T}
        assert ours == {tuple(map(int, row)) for row in check_maps.hull(cells)}


def test_a_measured_block_is_dearer_than_its_corners() -> None:
    """`over_hull` says how much longer rounding makes what one record adds. Mutant: 0."""
    _, _, more = over_hull([BlockMap((("m",),), (DenseMap(np.array([[300, 0, 0]])),))], {"m": 3}, ("m",), 2)
    assert 17 / 32 * 900 <= more <= 17 / 32 * 902 + 1  # of 300 (1 - 2 t + t^2)


def test_certificates_are_for_the_hull() -> None:
    """All pairs of corners are looked at where that is proposed. Mutant: pairs of cells in place of corners."""
    block = BlockMap((("m",),), (DenseMap(np.array([[0, 50, 100]])),))
    pairs = certified_bound([block], {"m": 3}, REPLACE, 2, Certificate("pairs"), ("m",))
    assert (100 * SHARES) ** 2 <= pairs < (100 * SHARES) ** 2 * 1.0001


@pytest.mark.parametrize("large", [1, 2**40, 2**56 + 1, 2**57 + 1])
def test_prices_of_large_coefficients_are_exact(large: int) -> None:
    """Coefficients over corners are those of exact integers, as large as they come. Mutant: multiplied in doubles."""
    row = [3, large, -5]
    found, _, _ = over_hull([BlockMap((("m",),), (DenseMap(np.array([row])),))], {"m": 3}, ("m",), 2)
    exact = [sum(a * int(b) for a, b in zip(row, column, strict=True)) for column in corners(3).T]
    (factor,) = found[0].factors
    unit = 2**18
    assert [int(v) ** 2 * unit**2 for v in exact] == [int(v) for v in factor.column_sums(2)]


def test_coefficients_beyond_whole_numbers_are_refused() -> None:
    """A corner's coefficient of 2^63 and more. Mutant: multiplied in 64 bits whatever the size."""
    for large in (2**58 + 1, 2**61, -(2**60)):
        with pytest.raises(PlanError, match="too large"):
            over_hull([BlockMap((("m",),), (DenseMap(np.array([[0, large, 0]])),))], {"m": 3}, ("m",), 2)
