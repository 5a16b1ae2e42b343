"""The price of sums of measures against brute force: what records really add to what is measured."""

from __future__ import annotations

import itertools
from fractions import Fraction

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


def test_rounding_alone_is_priced() -> None:
    """A map that sees nothing but how shares are rounded. Mutant: `_OFF` of 0."""
    codes = np.arange(2**14 + 1, dtype=np.uint32) * (POINTS // 2**14)
    codes = np.concatenate([codes, np.random.default_rng(0).integers(0, POINTS, 2**16)]).astype(np.uint32)
    exact = np.array(
        [[(POINTS - t) ** 2, 2 * t * (POINTS - t), t * t] for t in map(int, codes)], dtype=object
    )  # of POINTS^2
    off = shares([codes], [3]).T.astype(object) * (POINTS**2 // SHARES) - exact
    worst = Fraction(int(np.abs(off).max()), POINTS**2 // SHARES)
    assert Fraction(1, 2) < worst <= Fraction(9, 4)
    assert int(shares([codes], [3]).sum(axis=0).min()) == int(shares([codes], [3]).sum(axis=0).max()) == SHARES
    pairs = shares([codes[::7], codes[::7][::-1]], [3, 4]).astype(object)
    exact = np.stack([a * b for a in exact[::7].T for b in [*exact[::7][::-1].T, exact[::7][:, 0] * 0]])
    off = pairs * (POINTS**4 // SHARES) - exact
    assert Fraction(int(np.abs(off).max()), POINTS**4 // SHARES) <= Fraction(9, 4)


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
    _, _, more = over_hull([BlockMap((("m",),), (DenseMap(np.array([[1, 2, 3]])),))], {"m": 3}, ("m",), 2)
    assert more >= 2.25 * 6


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
