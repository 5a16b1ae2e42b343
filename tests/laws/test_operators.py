"""The laws every operator keeps, nested in any way, against its matrix written out in Python numbers."""

from __future__ import annotations

import itertools
import math
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import sfumato.operators
from sfumato._util.codec import decode_value, encode_value, value_fingerprint
from sfumato.errors import WorkloadError
from sfumato.operators import (
    AllRange,
    Compose,
    Dense,
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
    Toeplitz,
    Total,
    Tree,
    Window,
)
from sfumato.operators.base import operator_norm
from support.operators import children, kinds, operators, written_out

WORD = 2**64
laws = settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.too_slow])
PUBLIC = [
    c
    for c in (getattr(sfumato.operators, name) for name in sfumato.operators.__all__)
    if issubclass(c, LinearOperator) and c is not LinearOperator
]


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


def test_every_public_operator_is_generated() -> None:
    """Mutant: an operator is added to the room and to no law."""
    seen: set[type] = set()

    class Complete(Exception):
        """All kinds were seen: drawing more would show nothing."""

    @settings(max_examples=1_000, deadline=None, database=None, phases=[Phase.generate])
    @given(operators())
    def collect(operator: LinearOperator) -> None:
        seen.update(kinds(operator))
        if seen >= set(PUBLIC):
            raise Complete

    with suppress(Complete):
        collect()
    assert seen >= set(PUBLIC)


@laws
@given(operators(), st.data())
def test_both_products_are_those_of_the_matrix(operator: LinearOperator, data: st.DataObject) -> None:
    """Mutant: a transpose that forgets the order of the factors, or a Kronecker product with rotated axes."""
    wanted = written_out(operator)
    rows, columns = operator.shape
    assert wanted.shape == (rows, columns)
    count = data.draw(st.integers(0, 3))
    for given_matrix, product, n in ((wanted, operator.matvec, columns), (wanted.T, operator.rmatvec, rows)):
        x = np.array(data.draw(st.lists(st.integers(-9, 9), min_size=n, max_size=n)))
        agrees(product(x), given_matrix @ x.astype(object), operator.integral)
        agrees(product(x / 4), given_matrix @ (x / 4), integral=False)
        many = np.stack([x * (i + 1) for i in range(count)], axis=1) if count else np.zeros((n, 0), dtype=np.int64)
        out = product(many)
        assert out.shape == (given_matrix.shape[0], count)
        agrees(out, given_matrix @ many.astype(object), operator.integral)


@laws
@given(operators(), st.data())
def test_linear_and_adjoint(operator: LinearOperator, data: st.DataObject) -> None:
    rows, columns = operator.shape
    small = st.integers(-5, 5)
    x, z = (np.array(data.draw(st.lists(small, min_size=columns, max_size=columns))) for _ in range(2))
    y = np.array(data.draw(st.lists(small, min_size=rows, max_size=rows)))
    agrees(operator.matvec(3 * x - z), 3 * operator.matvec(x) - operator.matvec(z), operator.integral)
    assert math.isclose(operator.matvec(x) @ y, x @ operator.rmatvec(y), rel_tol=1e-9, abs_tol=1e-9)


@laws
@given(operators(huge=True, real=False), st.data())
def test_integers_are_exact_modulo_the_word(operator: LinearOperator, data: st.DataObject) -> None:
    """Mutants: a float64 path for large entries, saturation, a scalar that overflows with a warning."""
    assert operator.integral
    wanted = written_out(operator)
    word = st.integers(-(2**63), 2**63 - 1)
    for matrix, product in ((wanted, operator.matvec), (wanted.T, operator.rmatvec)):
        n = matrix.shape[1]
        x = data.draw(st.lists(word, min_size=n, max_size=n))
        out = product(np.array(x, dtype=np.int64))
        assert out.dtype == np.int64
        assert out.tolist() == modular(matrix @ np.array(x, dtype=object)).tolist()


@laws
@given(operators(), st.data())
def test_dense_forms(operator: LinearOperator, data: st.DataObject) -> None:
    wanted = written_out(operator)
    agrees(operator.dense(), wanted, operator.integral)
    a, b = sorted(data.draw(st.integers(0, operator.shape[0])) for _ in range(2))
    part = operator.rows(a, b)
    assert part.shape == (b - a, operator.shape[1])
    assert part.dtype == np.float64
    agrees(part, wanted[a:b], integral=False)
    limit = data.draw(st.integers(1, 100))
    chunks = operator.row_chunks(limit)
    assert [i for c in chunks for i in range(*c)] == list(range(operator.shape[0]))
    gram = operator.gram()
    assert gram.shape == (operator.shape[1],) * 2
    agrees(gram.dense(), wanted.T @ wanted, operator.integral)


@laws
@given(operators(), st.data())
def test_sums(operator: LinearOperator, data: st.DataObject) -> None:
    """Mutants: sums over rows for sums over columns; |x| forgotten in columns, or taken in rows."""
    wanted = written_out(operator)
    for power in (1, 2):
        sums = operator.column_sums(power)
        assert sums.shape == (operator.shape[1],)
        if operator.integral:
            assert {type(v) for v in sums.tolist()} == {int}
        else:
            assert sums.dtype == np.float64
        columns = (abs(wanted) ** power).sum(axis=0)
        agrees(sums, columns, operator.integral)
        largest = float(max(columns)) ** (1 / power)
        assert math.isclose(operator_norm(operator, 1, power), largest, rel_tol=1e-12, abs_tol=1e-12)
    for power in (1, 2, 3, 4):
        agrees(operator.row_sums(power), (wanted**power).sum(axis=1), integral=False)
    n = operator.shape[1]
    root = np.array(data.draw(st.lists(st.integers(-3, 3), min_size=n * n, max_size=n * n))).reshape(n, n)
    form = (root + root.T).astype(np.float64)
    agrees(operator.row_forms(form), [row @ form @ row for row in floats(wanted)], integral=False)


def _has_scaled_columns(operator: LinearOperator) -> bool:
    own = isinstance(operator, Toeplitz) and operator.columns is not None
    return own or any(_has_scaled_columns(c) for c in children(operator))


@laws
@given(operators())
def test_flags_tell_the_truth(operator: LinearOperator) -> None:
    """Mutants: integral from the first part alone; exchangeable for a product; a bound below the largest entry."""
    wanted = written_out(operator)
    if operator.integral:
        assert {type(v) for v in wanted.reshape(-1).tolist()} == {int}
        assert isinstance(operator.max_abs, int)
    if operator.binary:
        assert operator.integral
        assert set(wanted.reshape(-1).tolist()) <= {0, 1}
    top = abs(wanted).max()
    if kinds(operator) & {Compose, Sum} or _has_scaled_columns(operator):
        assert operator.max_abs >= top * (1 - 1e-12)  # a bound is all that they promise
    else:
        assert math.isclose(operator.max_abs, top, rel_tol=1e-12)
    if operator.exchangeable and operator.shape[1] <= 4:
        rows = sorted(wanted.tolist())
        for order in itertools.permutations(range(operator.shape[1])):
            assert sorted(wanted[:, order].tolist()) == rows


def test_flags_are_not_needlessly_false() -> None:
    for plain in (Identity(3), Total(3), Prefix(3), AllRange(3), Window(3, 2), Tree(3)):
        for operator in (plain, Kronecker((plain, Total(2))), Stack((plain, plain)), Padded(plain)):
            assert operator.binary
            assert operator.integral
    assert OnMarginal((2, 3), (1,), Prefix(3)).binary
    assert Sparse.from_cells([[0, 2], []], 3).binary
    assert Dense([[1.0, 0.0]]).binary
    assert all(o.exchangeable for o in (Identity(3), Total(3), Residual(3), Scaled(Residual(3), 2)))
    composed = Compose(Total(3), Prefix(3))
    assert all(o.integral for o in (Residual(3), Scaled(Residual(3), -2), Dense([[1e10, 2.0]]), composed))


@laws
@given(operators(huge=True, real=False))
def test_huge_integers_are_exact_or_refused(operator: LinearOperator) -> None:
    """Mutants: int64 wrap in column sums, in the Gram, in distances; a rounded Gram that calls itself integral."""
    check_huge(operator)


MIDDLE = Dense([[2**28 + 1, 3 - 2**28], [1, 2**28 - 7]])
WIDE = Dense([[2**62, 1 - 2**62], [2**62, -(2**61)]])
POSITION = np.array([0, 1, 0])
SPARSE = Sparse(np.array([2**31 + 1, 2**31 + 3, -(2**32)]), POSITION, np.array([0, 2, 3]), 2)


@pytest.mark.parametrize(
    "operator",
    [
        MIDDLE,
        WIDE,
        SPARSE,
        *(k for o in (MIDDLE, WIDE, SPARSE) for k in (Kronecker((o, o)), Kronecker((o, Prefix(2))), Stack((o, o)))),
        *(Scaled(o, k) for o in (MIDDLE, WIDE, SPARSE) for k in (2**31 + 1, -(2**65) - 1)),
        *(Sum((o, o)) for o in (MIDDLE, WIDE, SPARSE)),
        *(Compose(o, p) for o in (MIDDLE, WIDE, SPARSE) for p in (Prefix(2), o)),
        Padded(WIDE, 2),
        Padded(Kronecker((MIDDLE, MIDDLE)), 1),
        OnMarginal((2, 2), (1,), WIDE),
    ],
)
def test_entries_at_the_edge_of_the_word(operator: LinearOperator) -> None:
    check_huge(operator)


@pytest.mark.parametrize("axes", [p for k in range(4) for p in itertools.permutations(range(3), k)], ids=str)
def test_marginals_with_their_axes_in_any_order(axes: tuple[int, ...]) -> None:
    """Mutant: an order of axes used where its inverse belongs; the two differ from three axes on."""
    sizes = (2, 3, 4)
    operator = OnMarginal(sizes, axes, Prefix(math.prod(sizes[a] for a in axes)))
    wanted = written_out(operator)
    agrees(operator.dense(), wanted, integral=True)
    agrees(operator.rmatvec(np.arange(operator.shape[0])), wanted.T @ np.arange(operator.shape[0]), integral=True)
    agrees(operator.matvec(np.arange(24)), wanted @ np.arange(24), integral=True)
    agrees(operator.column_sums(1), wanted.sum(axis=0), integral=True)


def check_huge(operator: LinearOperator) -> None:
    """Whatever an integral operator says in integers is exact; what does not fit is float64, or refused."""
    wanted = written_out(operator)
    top = abs(wanted).max()
    assert operator.max_abs >= top
    dense = operator.dense()
    assert (dense.dtype == np.int64) == (operator.max_abs < 2**63)
    if dense.dtype == np.int64:
        agrees(dense, wanted, integral=True)
    for power in (1, 2):
        try:
            sums = operator.column_sums(power)
        except WorkloadError:
            # only where parts are added up before anyone can know how large the sums are
            assert kinds(operator) & {Compose, Sum}
        else:
            agrees(sums, (abs(wanted) ** power).sum(axis=0), integral=True)
    gram = operator.gram()
    exact = wanted.T @ wanted
    if gram.integral and gram.max_abs < 2**63:
        agrees(gram.dense(), exact, integral=True)
    if not children(operator):
        assert gram.integral or max(np.diagonal(exact)) >= 2**63


def structure(operator: LinearOperator) -> Any:
    """What an operator consists of, without arrays."""
    own = {
        Dense: lambda o: (o.matrix.shape, o.matrix.dtype.str, o.matrix.tolist()),
        Sparse: lambda o: (o.data.dtype.str, o.data.tolist(), o.indices.tolist(), o.indptr.tolist(), o.columns),
        Scaled: lambda o: repr(o.factor),
        OnMarginal: lambda o: (o.sizes, o.axes),
        Padded: lambda o: o.extra,
        Tree: lambda o: (o.n, o.branching, o.root),
        Window: lambda o: (o.n, o.width),
        Toeplitz: lambda o: (
            o.coefficients.tolist(),
            o.multiples.tolist(),
            None if o.columns is None else o.columns.tolist(),
        ),
    }.get(type(operator), lambda o: o.shape)(operator)
    return type(operator).__name__, repr(own), [structure(c) for c in children(operator)]


@laws
@given(operators(huge=True), operators(huge=True))
def test_stored_and_read_back(operator: LinearOperator, other: LinearOperator) -> None:
    tree, arrays = encode_value(operator)
    back = decode_value(tree, {k: v.copy() for k, v in arrays.items()})
    assert structure(back) == structure(operator)
    assert value_fingerprint(back) == value_fingerprint(operator)
    assert (value_fingerprint(other) == value_fingerprint(operator)) == (structure(other) == structure(operator))
    assert value_fingerprint(Scaled(operator, 2)) != value_fingerprint(operator)


def test_fingerprints_see_what_matters() -> None:
    assert value_fingerprint(Dense([[1, 2]])) == value_fingerprint(Dense(np.array([[1.0, 2.0]], dtype=">f4")))
    assert value_fingerprint(Dense([[1, 2]])) != value_fingerprint(Dense([[1], [2]]))
    assert value_fingerprint(Dense([[1, 2]])) != value_fingerprint(Dense([[2, 1]]))
    # an explicit zero is no entry
    explicit = sp.csr_array((np.array([1.0, 0.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 2))
    assert value_fingerprint(Sparse.of(explicit)) == value_fingerprint(Sparse([1], [0], [0, 1], 2))


@laws
@given(operators(huge=True))
def test_results_are_the_callers_own(operator: LinearOperator) -> None:
    """Mutant: identity hands its input back, and noise added in place changes the counts."""
    for product, n in ((operator.matvec, operator.shape[1]), (operator.rmatvec, operator.shape[0])):
        for x in (np.ones(n, dtype=np.int64), np.ones((n, 2), dtype=np.int64), np.ones(n)):
            before = x.copy()
            out = product(x)
            out += 1
            assert np.array_equal(x, before)


@laws
@given(operators(), st.data())
def test_norms_are_reached_and_never_exceeded(operator: LinearOperator, data: st.DataObject) -> None:
    """||A v||_q <= ||A||_{p->q} ||v||_p for drawn v, and for the best corner or direction nearly equal.

    Mutants: rows for columns; the norm of a row for its dual.
    """
    wanted = floats(written_out(operator))
    v = np.array(data.draw(st.lists(st.integers(-3, 3), min_size=wanted.shape[1], max_size=wanted.shape[1])), float)
    for p, q in ((1, 1), (1, 2), (1, math.inf), (2, 2), (2, math.inf), (math.inf, math.inf)):
        found = operator_norm(operator, p, q)
        assert np.linalg.norm(wanted @ v, q) <= found * np.linalg.norm(v, p) * (1 + 1e-9) + 1e-9
        best = [np.linalg.norm(column, q) for column in wanted.T]  # corners of the ball of p = 1 are in every ball
        if p == 2:
            best.append(math.sqrt(max(0.0, np.linalg.eigvalsh(wanted.T @ wanted)[-1])) if q == 2 else 0.0)
            best += [np.linalg.norm(row) for row in wanted]
        if p == math.inf:
            best += [np.abs(row).sum() for row in wanted]
        assert math.isclose(found, max(best), rel_tol=1e-9, abs_tol=1e-9)
    for p, q in ((2, 1), (math.inf, 1), (3, 3), (0, 1)):
        with pytest.raises(WorkloadError, match="p <= q"):
            operator_norm(operator, p, q)
