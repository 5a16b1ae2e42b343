"""Operators as values: what they read, copy, refuse at birth, and never make dense unasked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import sfumato as sf
from sfumato.errors import PlanError, WorkloadError
from sfumato.operators import (
    AllRange,
    Block,
    Compose,
    Dense,
    Grouping,
    Identity,
    Kronecker,
    LinearOperator,
    OnMarginal,
    Padded,
    Prefix,
    Residual,
    Scaled,
    Sparse,
    Stack,
    Sum,
    Total,
    Tree,
    Window,
)
from sfumato.operators import base as base_module
from support.operators import written_out

WORD = 2**64


def modular(value: Any) -> Any:
    """A Python integer, or an array of them, as int64 arithmetic has it."""
    return (value + WORD // 2) % WORD - WORD // 2


def floats(matrix: Any) -> Any:
    return np.asarray(matrix, dtype=np.float64)


def agrees(got: Any, wanted: Any, integral: bool) -> None:
    """Equal as Python integers, or as floats up to what their sizes allow."""
    if integral:
        assert np.asarray(got).astype(object).tolist() == np.asarray(wanted).tolist()
    else:
        np.testing.assert_allclose(floats(got), floats(wanted), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("operator", [Identity(3), Total(3), Residual(3), Prefix(3), Tree(3), Dense([[1, 2, 3]])])
def test_every_numeric_type_is_read(operator: LinearOperator) -> None:
    """Mutant: a sum of int8 in int8."""
    wanted = written_out(operator)
    for dtype in (np.int8, np.uint8, np.int16, np.uint32):
        x = np.array([100, 120, 27], dtype=dtype)
        out = operator.matvec(x)
        assert out.dtype == np.int64
        assert out.tolist() == (wanted @ x.astype(object)).tolist()
    top = np.array([2**64 - 1, 2**63, 5], dtype=np.uint64)
    assert operator.matvec(top).tolist() == modular(wanted @ top.astype(object)).tolist()
    assert operator.matvec([True, False, True]).tolist() == (wanted @ np.array([1, 0, 1], dtype=object)).tolist()
    assert operator.matvec(np.array([0.5, 1, 2], dtype=np.float32)).dtype == np.float64


def test_real_factors_are_applied_to_real_numbers() -> None:
    """Mutant: an integer factor inside a real product wraps before the real one is reached."""
    for operator in (
        Kronecker((Prefix(3), Dense([[0.5]]))),
        Compose(Dense([[0.5, 0.25, 0.0]]), Prefix(3)),
        Scaled(Prefix(3), 0.5),
    ):
        x = np.full(3, 2**62, dtype=np.int64)
        agrees(operator.matvec(x), written_out(operator) @ x.astype(object), integral=False)


@pytest.mark.parametrize("operator", [Identity(3), Prefix(3), Residual(3), Dense([[1, 2, 3]]), Padded(Total(1), 2)])
def test_vectors_of_another_shape_or_kind_are_refused(operator: LinearOperator) -> None:
    for bad in (
        np.zeros(4),
        np.zeros((4, 1)),
        np.zeros((3, 1, 1)),
        np.array(3.0),
        [[1, 2], [3], [4]],
        [2**70, 1, 1],
        ["a", "b", "c"],
        np.array([1, 2, None], dtype=object),
        np.zeros(3, dtype=complex),
    ):
        with pytest.raises(WorkloadError):
            operator.matvec(bad)


@pytest.mark.parametrize(
    "bad",
    [
        [],
        [[]],
        np.zeros((0, 3)),
        np.zeros((3, 0)),
        np.zeros(3),
        np.zeros((1, 1, 1)),
        [[1, 2], [3]],
        [[1, "a"]],
        [[1, None]],
        np.array([[1, 2]], dtype=object),
        [[2**63]],
        [[-(2**63)]],
        [[2**70]],
        [[math.nan]],
        [[math.inf, 1]],
        [[1e300]],
        [[1e-300]],
        [[1j]],
        np.array([[1e400]], dtype=np.longdouble) if np.finfo(np.longdouble).max > 1e308 else [[math.inf]],
    ],
    ids=repr,
)
def test_matrices_that_cannot_be_meant_are_refused(bad: Any) -> None:
    with pytest.raises(WorkloadError):
        Dense(bad)


@pytest.mark.parametrize(
    ("data", "indices", "indptr", "columns"),
    [
        ([1], [0], [0], 2),
        ([1], [0], [], 2),
        ([1], [2], [0, 1], 2),
        ([1], [-1], [0, 1], 2),
        ([1, 1], [1, 0], [0, 2], 2),
        ([1, 1], [0, 0], [0, 2], 2),
        ([1], [0], [0, 2], 2),
        ([1], [0], [1, 1], 2),
        ([1, 1], [0, 1], [0, 2, 1, 2], 2),
        ([1], [0.5], [0, 1], 2),
        ([1, 1], [0], [0, 1], 2),
        ([math.nan], [0], [0, 1], 2),
        ([1], [0], [0, 1], 0),
        ([1], [0], [0, 1], True),
        ([[1]], [[0]], [0, 1], 2),
    ],
)
def test_sparse_matrices_that_are_none_are_refused(data: Any, indices: Any, indptr: Any, columns: Any) -> None:
    """Mutant: an index given twice, whose square is then counted as 1 + 1 and not as (1 + 1)^2."""
    with pytest.raises(WorkloadError):
        Sparse(np.array(data), np.array(indices), np.array(indptr), columns)


def test_sparse_from_scipy() -> None:
    """Mutants: the caller's matrix changes; entries given twice wrap in a narrow type."""
    twice = sp.coo_array((np.array([100, 100], dtype=np.int8), (np.array([0, 0]), np.array([1, 1]))), shape=(2, 3))
    operator = Sparse.of(twice)
    assert operator.dense().tolist() == [[0, 200, 0], [0, 0, 0]]
    assert operator.column_sums(2).tolist() == [0, 40000, 0]
    unsorted = sp.csr_array((np.array([1.5, 2.5]), np.array([2, 0]), np.array([0, 2])), shape=(1, 3))
    assert Sparse.of(unsorted).dense().tolist() == [[2.5, 0.0, 1.5]]
    assert unsorted.indices.tolist() == [2, 0]
    with pytest.raises(WorkloadError):
        Sparse.of(sp.coo_array(np.array([1, 2])))
    assert Sparse.of(sp.csr_array((2, 3))).integral


def test_matrices_do_not_follow_their_source() -> None:
    """Mutant: a read-only view of an array that its owner changes after the sensitivity was computed."""
    source = np.array([[1, 2], [3, 4]])
    view = source[:]
    view.flags.writeable = False
    data, indices, indptr = np.array([1, 2]), np.array([0, 1]), np.array([0, 2])
    frozen, sparse = Dense(view), Sparse(data, indices, indptr, 2)
    source[:] = 99
    data[:] = 99
    assert frozen.dense().tolist() == [[1, 2], [3, 4]]
    assert sparse.dense().tolist() == [[1, 2]]
    for array in (frozen.matrix, sparse.data, sparse.indices, sparse.indptr):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7


def bad_constructions() -> list[Any]:
    return [
        lambda: Identity(0),
        lambda: Total(-1),
        lambda: Residual(True),
        lambda: Prefix(2.0),  # type: ignore[arg-type]
        lambda: AllRange("3"),  # type: ignore[arg-type]
        lambda: Window(3, 4),
        lambda: Window(3, 0),
        lambda: Tree(0),
        lambda: Tree(3, 1),
        lambda: Tree(3, True),
        lambda: Tree(3, 2**70),
        lambda: Kronecker(()),
        lambda: Kronecker((Identity(2), 3)),  # type: ignore[arg-type]
        lambda: Stack(()),
        lambda: Stack((Identity(2), Identity(3))),
        lambda: Sum((Identity(2), Total(2))),
        lambda: Compose(Identity(2), Identity(3)),
        lambda: Compose(Identity(2), None),  # type: ignore[arg-type]
        lambda: Scaled(Identity(2), True),
        lambda: Scaled(Identity(2), math.nan),
        lambda: Scaled(Identity(2), math.inf),
        lambda: Scaled(Identity(2), 10**400),
        lambda: Scaled(Identity(2), "2"),  # type: ignore[arg-type]
        lambda: Scaled(2, Identity(2)),  # type: ignore[arg-type]
        lambda: Padded(Identity(2), -1),
        lambda: Padded(Identity(2), True),
        lambda: OnMarginal((2, 3), (0, 0), Identity(4)),
        lambda: OnMarginal((2, 3), (2,), Identity(3)),
        lambda: OnMarginal((2, 3), (-1,), Identity(3)),
        lambda: OnMarginal((2, 3), (0,), Identity(3)),
        lambda: OnMarginal((2, 0), (0,), Identity(2)),
        lambda: Block((("a",), ("a",)), (Identity(2), Identity(2))),
        lambda: Block((("a",),), ()),
        lambda: Block(("age",), (Identity(2),)),
        lambda: Block((("a",),), ("x",)),  # type: ignore[arg-type]
        lambda: Block((("a",),), (Identity(2),)).check({"a": 3}),
        lambda: Block((("a",),), (Identity(2),)).check({"b": 2}),
        lambda: Block(((),), (Identity(2),)).check({}),
    ]


@pytest.mark.parametrize("number", range(len(bad_constructions())))
def test_impossible_operators_are_refused_at_birth(number: int) -> None:
    with pytest.raises(WorkloadError):
        bad_constructions()[number]()


def test_rows_that_do_not_exist_are_refused() -> None:
    for operator in (Identity(3), Prefix(3), Dense([[1], [2], [3]]), Kronecker((Identity(3), Total(2)))):
        for a, b in ((-1, 2), (0, 4), (2, 1)):
            with pytest.raises(WorkloadError):
                operator.rows(a, b)


def test_nothing_large_is_made_dense_unasked() -> None:
    """Mutant: a Kronecker product, or the Gram of one row, that allocates before anyone counts."""
    n = 100_000
    large = (
        Identity(n),
        Total(n),
        Prefix(n),
        Kronecker((Prefix(1000), Prefix(1000))),
        OnMarginal((n, 2), (0,), Total(n)),
    )
    for operator in large:
        with pytest.raises(WorkloadError, match="dense"):
            operator.dense() if operator.shape[0] > 1 else operator.gram().dense()
    for operator in (
        Prefix(n),
        Total(n),
        Sparse([1], [0], [0, 1], n),
        Padded(Total(n)),
        Compose(Total(3), Dense(np.ones((3, n)))),
    ):
        with pytest.raises(WorkloadError, match="dense"):
            operator.gram()
    assert max(Kronecker((Prefix(1000), Residual(1000))).column_sums(2)) == 1000 * 1000 * 999
    assert Kronecker((Prefix(4000), Prefix(4000))).rows(7, 9).shape == (2, 16_000_000)
    assert base_module.DENSE_LIMIT == 2**25


def test_row_forms_and_rows_of_long_operators_stay_small() -> None:
    """Mutant: the default of `rows`, which forms a square of the number of rows, in place of an operator's own."""
    long = Kronecker((AllRange(200), Total(2)))
    assert long.rows(20_099, 20_100).tolist() == [[0.0] * 398 + [1.0, 1.0]]
    assert long.row_sums(3)[-3:].tolist() == [2.0, 4.0, 2.0]
    assert long.row_forms(np.eye(400))[-3:].tolist() == [2.0, 4.0, 2.0]
    assert Tree(4096).row_sums(1)[:3].tolist() == [4096.0, 2048.0, 2048.0]


def test_block_orders_and_describes() -> None:
    block = Block((("b",), (), ("c", "a")), (Prefix(3), Scaled(Identity(1), 2), Identity(4)))
    assert block.attributes == ("b", "c", "a")
    assert (block.rows, block.cells) == (12, 12)
    assert block.by_attribute() is None
    assert Block((), ()).operator.shape == (1, 1)
    assert Block((("a",), ()), (Prefix(3), Identity(1))).by_attribute() == {"a": Prefix(3)}


@pytest.mark.parametrize("codes", [[0], [-1], [0, 0, 1, 1, 1], [2, 0, 2, -1, 0, 2], [-1, -1, 3, 3], [1, 1, 1]], ids=str)
def test_a_grouping_is_its_matrix(codes: list[int]) -> None:
    """Mutants: row forms from the diagonal alone; a column of no group that counts; groups that must be sorted."""
    operator = Grouping(np.array(codes), 4)
    matrix = np.array([[int(c == g) for c in codes] for g in range(4)])
    n = len(codes)
    assert operator.shape == matrix.shape
    assert np.array_equal(operator.dense(), matrix)
    assert np.array_equal(operator.rows(1, 3), matrix[1:3])
    assert np.array_equal(operator.gram().dense(), matrix.T @ matrix)
    assert operator.column_sums(1).tolist() == operator.column_sums(2).tolist() == matrix.sum(axis=0).tolist()
    assert np.array_equal(operator.row_sums(3), matrix.sum(axis=1))
    form = np.arange(n * n).reshape(n, n) ** 2.0
    form = form + form.T
    assert np.array_equal(operator.row_forms(form), [r @ form @ r for r in matrix])
    assert operator == Grouping(np.array(codes, dtype=np.int8), 4)
    assert hash(operator) == hash(Grouping(codes, 4))  # type: ignore[arg-type]
    assert operator != Grouping(codes, 5)  # type: ignore[arg-type]
    assert operator != matrix.tolist()


@pytest.mark.parametrize(
    ("codes", "groups"),
    [([], 1), ([0, 1], 1), ([-2], 1), ([0.0], 1), ([[0]], 1), (["a"], 1), ([0], 0), ([0], True), ([0], 1.0), (None, 1)],
    ids=str,
)
def test_groups_that_are_none_are_refused(codes: Any, groups: Any) -> None:
    with pytest.raises(WorkloadError):
        Grouping(codes, groups)


def test_ranges_that_are_too_many_to_be_measured_are_refused_when_planned() -> None:
    """With what to do; the workload itself may have any number, and another strategy answers it."""
    work = sf.ranges(sf.Domain({"t": 5_793}), "t")
    with pytest.raises(PlanError, match=r"16,782,321 ranges are too many to be measured one by one.*a tree"):
        sf.plan(work, sf.gdp(1), neighbours="add-remove", strategy="queries")
    assert sf.plan(work, sf.gdp(1), neighbours="add-remove", strategy="tree").rmse < 20
