"""The longest difference of two columns where factors join attributes: the door's and the stranger's, by all pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sfumato import check_maps
from sfumato._util.codec import value_fingerprint
from sfumato.errors import PlanError
from sfumato.operators import Block, Compose, Dense, Grouping, Identity, Scaled
from sfumato.privacy.joined_pairs import longest_difference
from sfumato.privacy.replaced import Certificate
from sfumato.privacy.sensitivity import certified_bound
from sfumato.privacy.terms import MapTerms
from sfumato.privacy.unit import Neighbours, PrivacyUnit, Within
from support.joined import drawn_blocks, matrix_over
from support.seeded import draws
from support.stranger import as_stored

SWAP = PrivacyUnit(Neighbours.REPLACE_ONE)


def _by_all_pairs(sizes: dict[str, int], blocks: list[Block]) -> int:
    columns = matrix_over(sizes, blocks)
    gram = columns.T @ columns
    norms = np.diagonal(gram)
    return int((norms[:, None] + norms - 2 * gram).max())


def _by_a_stranger(sizes: dict[str, int], blocks: list[Block]) -> int | None:
    ops: dict[str, Any] = {}
    held = [b for own in blocks for b in check_maps.strategy_blocks(as_stored(own), dict(sizes), ops)]
    return check_maps.joined_change(held, {f: ops[f[1]] for _, fs in held for f in fs}, sizes)


@pytest.mark.parametrize("seed", range(draws(240)))
def test_the_longest_difference_is_that_of_all_pairs_of_cells(seed: int) -> None:
    """Of both.

    Mutants, each in the door's and in the stranger's: cells of one slice taken for one cell; <x, y> once, or only where
    both cells have one slice; norms of classes of another attribute; a cell that is counted nowhere in the first
    column; a pair of which the first kind is the larger never looked at; columns in the order of another group.
    """
    sizes, blocks = drawn_blocks(np.random.default_rng([205, seed]))
    wanted = _by_all_pairs(sizes, blocks)
    lowered = [b.lowered() for b in blocks]
    assert longest_difference(MapTerms.of(lowered, sizes, 2), sizes) == wanted
    assert certified_bound(lowered, sizes, SWAP, 2, Certificate("joined")) == wanted
    assert _by_a_stranger(sizes, blocks) == wanted


def test_numbers_whose_squares_doubles_do_not_hold() -> None:
    """Mutant, in both: their products in doubles."""
    held = 0
    for seed in range(40):
        sizes, blocks = drawn_blocks(np.random.default_rng([205, 1, seed]), 2**27 + 1)
        wanted = _by_all_pairs(sizes, blocks)
        try:
            found = longest_difference(MapTerms.of([b.lowered() for b in blocks], sizes, 2), sizes)
        except PlanError:
            assert _by_a_stranger(sizes, blocks) in (None, wanted)
            continue
        assert found == wanted == _by_a_stranger(sizes, blocks)
        held += wanted > 2**53
    assert held > 10


def test_what_cannot_be_looked_at_is_refused() -> None:
    """Mutants: sums that wrap; a multiple of nothing that does; groups taken for all records; L1 prices by squares."""
    sizes = {"a": 3, "b": 2}

    def joined(largest: int) -> list[Any]:
        matrix = np.array([[largest, 0, 1, 0, -largest, 0]])
        return [Block((("a", "b"),), (Compose(Dense(matrix), Grouping(np.arange(6), 6)),)).lowered()]

    assert longest_difference(MapTerms.of(joined(2**30), sizes, 2), sizes) == 2**62
    with pytest.raises(PlanError, match="too large"):
        longest_difference(MapTerms.of(joined(2**31), sizes, 2), sizes)
    none = Scaled(Compose(Dense(np.zeros((1, 6), dtype=int)), Grouping(np.arange(6), 6)), 2**40)
    beside = [*joined(1), Block((("a", "b"),), (none,)).lowered()]
    assert longest_difference(MapTerms.of(beside, sizes, 2), sizes) == 4
    codes = np.array([0, 0, 1])
    within = Within("g", "a", value_fingerprint(("a", codes)), codes)
    with pytest.raises(PlanError, match="any may stand in another's place"):
        longest_difference(MapTerms.of(joined(1), sizes, 2, within), sizes)
    with pytest.raises(PlanError, match="not 'joined' for this measurement"):
        certified_bound(joined(2), sizes, SWAP, 1, Certificate("joined"))
    wide = {"a": 1_200, "b": 2}
    with pytest.raises(PlanError, match="of few cells"):
        longest_difference(
            MapTerms.of([Block((("a",), ("b",)), (Identity(1_200), Identity(2))).lowered()], wide, 2), wide
        )
    many = {"a": 200, "b": 200}
    each = Compose(Dense(np.ones((1, 40_000), dtype=int)), Grouping(np.arange(40_000), 40_000))
    with pytest.raises(PlanError, match="too many classes"):
        longest_difference(MapTerms.of([Block((("a", "b"),), (each,)).lowered()], many, 2), many)
