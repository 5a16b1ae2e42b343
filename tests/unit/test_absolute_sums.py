"""Sums of absolute entries and of squares of large integers, which set sensitivities, are exact."""

import numpy as np
import pytest

from sfumato.maps.base import absolute_sums


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("top", [2**31, 2**32 - 1, 2**32, 2**48 - 1, 2**48, 2**63 - 1])
def test_sums_of_large_entries_are_those_of_python_integers(top: int, power: int):
    """Mutant: one limb of 16 bits too few, so that the leading digits are dropped and a sensitivity is understated."""
    matrix = np.array([[top, 3], [-top, -top], [top, 1 - top]], dtype=np.int64).repeat(64 if top < 2**60 else 1, axis=0)
    expected = [sum(abs(int(x)) ** power for x in column) for column in matrix.T]
    assert [int(x) for x in absolute_sums(matrix, power)] == expected


@pytest.mark.parametrize("top", [2**31 - 1, 2**31, 3_037_000_499, 3_037_000_500, 2**40])
def test_one_large_entry_among_many_small_ones_is_squared_exactly(top: int):
    """Columns whose squares fit although as many of their largest entry would not, and the first that do not.

    Mutant: a bound of the sums that leaves no room for rounding, so that they wrap around.
    """
    matrix = np.array([[top, 1], *([[1, -3]] * 63)], dtype=np.int64)
    expected = [top**2 + 63, 1 + 9 * 63]
    assert [int(x) for x in absolute_sums(matrix, 2)] == expected
