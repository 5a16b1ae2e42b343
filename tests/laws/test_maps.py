"""The closed set of measured maps against matrices written out, in Python integers."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sfumato._util.codec import rebuild
from sfumato.errors import PlanError, SfumatoError, WorkloadError
from sfumato.maps import (
    AlikeMap,
    BlockMap,
    DenseMap,
    FamilyMap,
    Map,
    MergedMap,
    MultipleMap,
    TotalMap,
    base,
    check_price,
)
from sfumato.maps.structured import KroneckerMap, RangesMap, SparseMap, StackMap
from sfumato.maps.toeplitz import ToeplitzMap
from sfumato.operators import (
    AllRange,
    Block,
    Dense,
    Family,
    Identity,
    LinearOperator,
    Padded,
    Residual,
    Scaled,
    Stack,
    Sum,
)
from support.golden.classes import stored_classes
from support.operators import children, operators, written_out

laws = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])


def modular(values: Any) -> Any:
    """Python integers modulo 2^64, as int64 holds them."""
    return ((values + 2**63) % 2**64 - 2**63).astype(np.int64)


def fits(operator: LinearOperator) -> bool:
    """Whether its entries do, and those of all the parts that are lowered with it: they are refused by themselves."""
    parts = () if isinstance(operator, Scaled) and operator.factor == 0 else children(operator)
    return operator.max_abs < 2**63 and all(map(fits, parts))


def lowered(operator: LinearOperator) -> Map | None:
    """Its map, or None where its entries might not fit; nothing else may be refused."""
    if fits(operator):
        return operator.lowered()
    try:
        return operator.lowered()
    except WorkloadError:
        return None


def agrees(found: Map, matrix: Any, vectors: Any) -> None:
    """Everything a map states of itself, against its matrix in Python integers."""
    assert found.shape == matrix.shape
    assert np.array_equal(found.apply(vectors), modular(matrix @ vectors.astype(object)))
    if found.max_abs < 2**63:
        assert np.array_equal(found.columns().astype(object), matrix)
        with pytest.MonkeyPatch.context() as few:
            few.setattr(base, "_UNITS", 2 * matrix.shape[1])
            assert np.array_equal(Map.entries(found).astype(object), matrix)
    else:
        with pytest.raises(WorkloadError, match="too large"):
            found.columns()
    for power in (1, 2):
        assert found.column_sums(power).tolist() == (abs(matrix) ** power).sum(axis=0).tolist()
    assert np.array_equal(found.gram().astype(object), matrix.T @ matrix)
    assert found.max_abs >= abs(matrix).max()
    assert not found.binary or ((matrix == 0) | (matrix == 1)).all()
    assert not found.nonnegative or (matrix >= 0).all()
    if found.exchangeable:
        same = matrix.T @ matrix
        assert len(set(np.diagonal(same))) <= 1
        assert len({same[i, j] for i, j in itertools.permutations(range(len(same)), 2)}) <= 1
    if isinstance(found, AlikeMap | TotalMap):
        counted = Counter((int(row[0]), int(row[-1])) for row in matrix[:, :2])
        stated = Counter(dict.fromkeys(((a, b) for _, a, b in found.pairs()), 0))
        for count, a, b in found.pairs():
            stated[a, b] += count
        assert {k: n for k, n in counted.items() if k != (0, 0)} == {
            k: n for k, n in stated.items() if k != (0, 0) and n
        }
    check_price(found)


def test_cells_in_none_stand_beside_integers_that_do_not_fit() -> None:
    """Mutant: a zero of numpy's for such a cell, to which no integer of 2^63 or more can be added."""
    huge = np.diag([0, 0, 3_037_000_500])
    operator = Stack((Padded(Dense(huge), 1), Dense(np.diag([0, 0, 0, 3_037_000_500]))))
    found = lowered(operator)
    assert found is not None
    agrees(found, written_out(operator).astype(object), np.eye(4, dtype=np.int64))


@laws
@given(st.data())
def test_lowered_operators_are_their_matrices(data: st.DataObject) -> None:
    """Mutants: a column sum by rows; rounding or saturation instead of arithmetic modulo 2^64; a merged cell in the
    wrong place; cells in none counted; the last row of a Toeplitz map without its zeros; a negative multiple whose
    largest entry stays the largest."""
    n = data.draw(st.integers(1, 5))
    operator = data.draw(operators(n, 2, real=False, huge=data.draw(st.booleans())))
    found = lowered(operator)
    if found is None:
        return
    cell = st.integers(-(2**63), 2**63 - 1) if data.draw(st.booleans()) else st.integers(0, 9)
    vectors = np.array(data.draw(st.lists(cell, min_size=2 * n, max_size=2 * n)), dtype=np.int64).reshape(n, 2)
    agrees(found, written_out(operator).astype(object), vectors)
    assert np.array_equal(rebuild(found).apply(vectors), operator.matvec(vectors))


def test_each_map_of_the_set_is_met() -> None:
    """One of each, so that no map of the set is left out of the comparison above."""
    c, m = np.array([3, -1, 2]), np.array([1, 2, 0])
    sparse = SparseMap(np.array([2, -5, 7]), np.array([0, 2, 1]), np.array([0, 2, 2, 3]), 3)
    ranges = RangesMap(np.array([0, 1, 0]), np.array([3, 2, 1]), 3)
    dense = DenseMap(np.array([[2**62, -(2**62), 1], [0, 1, 2]]))
    toeplitz = ToeplitzMap(c, m)
    merged = MergedMap(dense, np.array([2, -1, 0, 0, 1]))
    cases: list[tuple[Map, list[list[int]]]] = [
        (AlikeMap(2), [[1, 0], [0, 1]]),
        (AlikeMap(3, 2**31 - 1, -5), [[2**31 - 6, -5, -5], [-5, 2**31 - 6, -5], [-5, -5, 2**31 - 6]]),
        (AlikeMap(1), [[1]]),
        (TotalMap(3), [[1, 1, 1]]),
        (AlikeMap(3, 3, -1), [[2, -1, -1], [-1, 2, -1], [-1, -1, 2]]),
        (AlikeMap(1, 1, -1), [[0]]),
        (ranges, [[1, 1, 1], [0, 1, 0], [1, 0, 0]]),
        (sparse, [[2, 0, -5], [0, 0, 0], [0, 7, 0]]),
        (dense, [[2**62, -(2**62), 1], [0, 1, 2]]),
        (toeplitz, [[3, 0, 0], [-2, 6, 0], [0, 0, 0]]),
        (ToeplitzMap(c, m, np.array([5, 2**40, 0])), [[15, 0, 0], [-10, 6 * 2**40, 0], [0, 0, 0]]),
        # its columns are written out some at a time
        (ToeplitzMap(c, np.array([1, 2, 4]), np.array([5, 1, 7])), [[15, 0, 0], [-10, 6, 0], [40, -4, 84]]),
        (merged, [[1, 0, 2**62, 2**62, -(2**62)], [2, 0, 0, 0, 1]]),
        (MultipleMap(dense, -(2**70)), [[-(2**132), 2**132, -(2**70)], [0, -(2**70), -(2**71)]]),
        (MultipleMap(DenseMap(np.zeros((1, 2), dtype=np.int64)), 2**80), [[0, 0]]),
        (StackMap((TotalMap(3), sparse)), [[1, 1, 1], [2, 0, -5], [0, 0, 0], [0, 7, 0]]),
        (KroneckerMap((TotalMap(2), AlikeMap(2, 2, -1))), [[1, -1, 1, -1], [-1, 1, -1, 1]]),
        (MergedMap(AlikeMap(2), np.array([-1, -1])), [[0, 0], [0, 0]]),
    ]
    for found, rows in cases:
        matrix = np.array(rows, dtype=object)
        agrees(found, matrix, np.arange(1, 1 + matrix.shape[1])[:, None])


def test_maps_that_do_not_hold_together_are_refused() -> None:
    """Mutants: each check of a constructor left out."""
    ones, two = np.ones(2, dtype=np.int64), np.array([0, 1, 2])
    wrong: list[Any] = [
        lambda: AlikeMap(0),
        lambda: AlikeMap(2, 2**31),
        lambda: AlikeMap(2, 1, 0.5),
        lambda: TotalMap(True),
        lambda: RangesMap(ones, ones, 3),
        lambda: RangesMap(ones, 3 * ones, 2),
        lambda: RangesMap(-ones, ones, 2),
        lambda: SparseMap(ones, ones, two, 1),
        lambda: SparseMap(ones, np.array([1, 0]), np.array([0, 2]), 2),
        lambda: SparseMap(ones, np.array([0, 1]), np.array([0, 3]), 2),
        lambda: DenseMap(np.ones((2, 2))),
        lambda: DenseMap(np.array([[-(2**63)]])),
        lambda: ToeplitzMap(ones, -ones),
        lambda: ToeplitzMap(ones * 2**31, ones * 2**31),
        lambda: ToeplitzMap(ones, ones, -ones),
        lambda: ToeplitzMap(ones, ones, np.ones(3, dtype=np.int64)),
        lambda: ToeplitzMap(ones, ones, np.ones(2)),
        lambda: StackMap((TotalMap(2), TotalMap(3))),
        lambda: StackMap((Residual(2),)),
        lambda: MultipleMap(TotalMap(2), True),
        lambda: MultipleMap(TotalMap(2), 0.5),
        lambda: KroneckerMap(()),
        lambda: MergedMap(TotalMap(2), np.array([0, 2])),
        lambda: MergedMap(TotalMap(2), np.array([-2, 0])),
        lambda: BlockMap((("a",),), (Identity(2),)),
        lambda: FamilyMap(("a",), (Identity(2),), np.array([[0]])),
        lambda: Block((("a",),), (AlikeMap(2),)),
        lambda: Family(("a",), (AlikeMap(2),), np.array([[0]])),
    ]
    for make in wrong:
        with pytest.raises(SfumatoError):
            make()


def test_what_is_no_integer_map_is_not_lowered() -> None:
    for operator in (Dense([[0.5, 1.0]]), Scaled(Identity(2), 0.5), Sum((Identity(2), Dense([[0.5, 0], [0, 1]])))):
        with pytest.raises(PlanError, match="quantise"):
            operator.lowered()
    with pytest.raises(WorkloadError, match="above the limit"):
        Sum((AllRange(3_000), Scaled(AllRange(3_000), -1))).lowered()


class Misstated(MultipleMap):
    """A map whose structure says less than its columns hold."""

    def column_sums(self, power: int) -> Any:
        return self.map.column_sums(power)


def test_unit_vectors_find_a_wrong_structure() -> None:
    """Mutant: column sums believed without a look at the columns."""
    with pytest.raises(WorkloadError, match="misstates"):
        check_price(Misstated(AlikeMap(3), 2))


class Misplaced(DenseMap):
    """A map that counts the last cell in the place of the first."""

    def apply(self, vectors: Any) -> Any:
        return DenseMap.apply(self, np.roll(vectors, 1, axis=0))


@pytest.mark.parametrize(
    "wrong", [Misstated(DenseMap(np.arange(2_000).reshape(2, -1)), 2), Misplaced(np.eye(1, 700, dtype=np.int64))]
)
def test_maps_of_many_cells_are_held_against_their_columns(wrong: Map) -> None:
    """Mutants: of many cells the columns alone, or what is applied alone, held against nothing."""
    with pytest.raises(WorkloadError, match="misstates"):
        check_price(wrong)
    check_price(DenseMap(np.arange(200_000).reshape(2, -1)))


def test_a_block_and_a_family_apply_their_factors() -> None:
    """Mutants: an axis swapped; multiples forgotten. 2 x 3 x 2 cells, counted up."""
    table = np.arange(12).reshape(2, 3, 2)
    rows = np.array([[1, 0, 2, 1, 0, 0], [0, 1, 0, 3, 0, -1]])
    block = BlockMap((("a", "b"), ("c",)), (DenseMap(rows), AlikeMap(2, 2, -1)))
    wanted = np.kron(rows, [[1, -1], [-1, 1]]) @ table.reshape(-1)
    assert np.array_equal(block.apply(table), wanted)
    sets, factors = np.array([[0, 2], [0, 1]]), (Identity(2), Residual(3), Residual(2))
    family = Family(("a", "b", "c"), factors, sets, np.array([5, 7])).lowered()
    assert type(family) is FamilyMap
    found = family.apply(np.array([1]), table.sum(axis=2)[None])
    assert np.array_equal(found[0], 7 * np.kron(np.eye(2), 3 * np.eye(3) - 1) @ table.sum(axis=2).reshape(-1))


def test_every_map_of_the_set_is_trusted_code() -> None:
    """Mutant: a class outside the folder that derives from a map, and would be measured as one."""

    def below(cls: type) -> set[type]:
        return {cls}.union(*(below(c) for c in cls.__subclasses__()))

    stored_classes()
    ours = {c.__module__ for c in below(Map) if c.__module__.startswith("sfumato.")}
    assert ours == {f"sfumato.maps.{name}" for name in ("base", "composite", "explicit", "structured", "toeplitz")}
