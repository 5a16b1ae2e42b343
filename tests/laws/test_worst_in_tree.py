"""The largest error of a range that a tree answers: proved from above, and by all ranges where they can be listed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.operators import AllRange, Tree
from sfumato.strategies import range_bounds as worst_in_tree
from sfumato.strategies import trees
from sfumato.strategies.range_bounds import largest_in_tree
from sfumato.strategies.trees import TreeSums


def listed(factor: TreeSums, n: int, *, known: bool) -> tuple[float, np.ndarray | None]:
    """The largest variance of all ranges of the first n cells, by every one of them."""
    query = AllRange(n)
    first, last = query.spans()
    powers = factor.span_powers(first, last, 2)
    if not known:
        return float(powers.max()), None
    ones = factor.spread_ones()
    share = np.append(0.0, np.cumsum(ones)) / np.sqrt(ones.sum())
    return float((powers - (share[last] - share[first]) ** 2).max()), ones


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 90), part=st.floats(0.01, 1), branching=st.integers(2, 12), root=st.booleans(), known=st.booleans()
)
def test_what_is_proved_is_the_largest(n: int, part: float, branching: int, root: bool, known: bool) -> None:
    """With many bins it is the largest, whatever the search found; with few, and where sums between two children are
    not tried one by one, it is above.

    Mutants: the node over all cells not known; a range that ends in the last child left out, or the node with fewer
    children; one child fewer between two; the variance of a parent for that of its estimate from below; the covariance
    of brothers forgotten; cells by themselves left out.
    """
    factor = TreeSums(Tree(n, branching, root=root))
    count = n if part > 0.5 else max(1, int(n * part * 2))
    largest, ones = listed(factor, count, known=known)
    total_known = ones is not None
    if largest > 1e-12:
        proved = largest_in_tree(factor._levels, branching, count, largest * 0.5, total_known=total_known)
        assert proved == pytest.approx(largest, rel=2e-3)
        assert proved >= largest
        assert factor.range_errors(AllRange(count), ones)[1] == pytest.approx(largest, rel=2e-3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worst_in_tree, "_BINS", (2,))
        patch.setattr(worst_in_tree, "_LISTED", 0)
        assert largest_in_tree(factor._levels, branching, count, 0.0, total_known=total_known) >= largest


def test_near_what_is_found_where_none_can_be_listed() -> None:
    """What the search finds lies within two thousandths of what is proved."""
    factor = TreeSums(Tree(100_000, 16))
    seen: list[float] = []

    def search(*given: Any, **known: bool) -> float:
        seen.append(given[-1])
        return largest_in_tree(*given, **known)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trees, "largest_in_tree", search)
        proved = factor.range_errors(AllRange(100_000))[1]
    assert seen[0] <= proved <= seen[0] * 1.002
