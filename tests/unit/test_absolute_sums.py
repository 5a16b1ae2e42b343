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
