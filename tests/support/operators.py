"""Arbitrary operators for tests, and what each of them is by definition: a matrix written out entry by entry."""

from __future__ import annotations

import itertools
import math
from functools import reduce
from typing import Any

import numpy as np
from hypothesis import strategies as st

from sfumato.operators import (
    AllRange,
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
    Toeplitz,
    Total,
    Tree,
    Window,
)

__all__ = ["children", "dense", "entries", "kinds", "operators", "simple", "written_out"]

SMALL = st.integers(-3, 3)
REAL = st.floats(-4, 4, width=16).map(lambda v: v if v == 0 or abs(v) > 1e-3 else 0.5)
HUGE = st.integers(-(2**62), 2**62) | st.integers(-(2**29), 2**29) | st.sampled_from([2**62, -(2**62), 2**31 + 1])
MAX_ROWS = 40
Matrix = Any  # (rows, columns) of Python integers, or floats


def entries(huge: bool, real: bool) -> st.SearchStrategy[Any]:
    """Entries of matrices: small integers, and on request such as leave int64 when they are multiplied, or floats."""
    return SMALL | (HUGE if huge else SMALL) | (REAL if real else SMALL)


@st.composite
def dense(draw: st.DrawFn, rows: int, columns: int, entry: st.SearchStrategy[Any]) -> Dense:
    cells = draw(st.lists(entry, min_size=rows * columns, max_size=rows * columns))
    kind = np.float64 if any(isinstance(v, float) for v in cells) else np.int64
    return Dense(np.array(cells, dtype=kind).reshape(rows, columns))


@st.composite
def sparse(draw: st.DrawFn, rows: int, columns: int, entry: st.SearchStrategy[Any]) -> Sparse:
    kept = [sorted(draw(st.sets(st.integers(0, columns - 1)))) for _ in range(rows)]
    indices = list(itertools.chain.from_iterable(kept))
    data = draw(st.lists(entry, min_size=len(indices), max_size=len(indices)))
    kind = np.float64 if any(isinstance(v, float) for v in data) else np.int64
    ends = np.cumsum([0, *map(len, kept)])
    return Sparse(np.array(data, dtype=kind), np.array(indices, dtype=np.int64), ends, columns)


@st.composite
def grouping(draw: st.DrawFn, rows: int, columns: int) -> Grouping:
    codes = draw(st.lists(st.integers(-1, rows - 1), min_size=columns, max_size=columns))
    return Grouping(np.array(codes), rows)


@st.composite
def toeplitz(draw: st.DrawFn, n: int) -> Toeplitz:
    coefficients = draw(st.lists(SMALL, min_size=n, max_size=n))
    multiples = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    columns = draw(st.none() | st.lists(st.integers(0, 3), min_size=n, max_size=n))
    return Toeplitz(np.array(coefficients), np.array(multiples), None if columns is None else np.array(columns))


@st.composite
def simple(draw: st.DrawFn, n: int, entry: st.SearchStrategy[Any]) -> LinearOperator:
    """An operator over n cells that is made of no other."""
    rows = draw(st.integers(1, 4))
    return draw(
        st.one_of(
            st.sampled_from([Identity(n), Total(n), Residual(n), Prefix(n), AllRange(n)]),
            st.builds(Window, st.just(n), st.integers(1, n)),
            st.builds(Tree, st.just(n), st.integers(2, 4), st.booleans()),
            dense(rows, n, entry),
            sparse(rows, n, entry),
            grouping(rows, n),
            toeplitz(n),
        )
    )


def divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


@st.composite
def operators(
    draw: st.DrawFn, columns: int | None = None, depth: int = 2, huge: bool = False, real: bool = True
) -> LinearOperator:
    """Nested operators of every class over at most 6 cells with at most 40 rows."""
    n = draw(st.sampled_from([1, 2, 3, 4, 6])) if columns is None else columns
    entry = entries(huge, real)
    made = draw(simple(n, entry))
    if depth == 0:
        return made

    def inner(cells: int) -> LinearOperator:
        return draw(operators(cells, depth - 1, huge, real))

    kind = draw(st.sampled_from(["simple", "product", "stack", "scaled", "compose", "sum", "padded", "marginal"]))
    if kind == "product":
        left = draw(st.sampled_from(divisors(n)))
        made = Kronecker((inner(left), inner(n // left)))
    elif kind == "stack":
        made = Stack(tuple(inner(n) for _ in range(draw(st.integers(1, 3)))))
    elif kind == "scaled":
        factor = st.integers(-(2**70), 2**70) if huge else SMALL
        made = Scaled(inner(n), draw(factor | REAL if real else factor))
    elif kind == "compose":
        right = inner(n)
        made = Compose(draw(simple(right.shape[0], entry)), right)
    elif kind == "sum":
        first = inner(n)
        made = Sum((first, draw(dense(*first.shape, entry)), Scaled(first, 2)))
    elif kind == "padded":
        extra = draw(st.integers(0, n - 1))
        made = Padded(inner(n - extra), extra)
    elif kind == "marginal":
        first = draw(st.sampled_from(divisors(n)))
        second = draw(st.sampled_from(divisors(n // first)))
        sizes = (first, second, n // first // second)
        axes = tuple(draw(st.lists(st.integers(0, 2), unique=True)))
        made = OnMarginal(sizes, axes, inner(math.prod(sizes[a] for a in axes)))
    return made if made.shape[0] <= MAX_ROWS else draw(simple(n, entry))


def children(operator: LinearOperator) -> tuple[LinearOperator, ...]:
    """The operators that one is made of."""
    match operator:
        case Kronecker():
            return operator.factors
        case Stack() | Sum():
            return operator.parts
        case Scaled() | Padded() | OnMarginal():
            return (operator.operator,)
        case Compose():
            return (operator.left, operator.right)
        case _:
            return ()


def kinds(operator: LinearOperator) -> set[type]:
    """The classes of an operator and of all that it is made of."""
    return {type(operator)}.union(*(kinds(c) for c in children(operator)))


def _array(rows: list[list[Any]]) -> Matrix:
    out = np.empty((len(rows), len(rows[0])), dtype=object)
    for i, row in enumerate(rows):
        out[i] = row
    return out


def _spans(operator: AllRange | Prefix | Window | Tree) -> list[range]:
    n = operator.n
    match operator:
        case Prefix():
            return [range(t + 1) for t in range(n)]
        case AllRange():
            return [range(s, t + 1) for s in range(n) for t in range(s, n)]
        case Window():
            return [range(t, t + operator.width) for t in range(n - operator.width + 1)]
        case Tree():
            rows: list[range] = []
            width = 1
            while True:
                level = [range(s, min(s + width, n)) for s in range(0, n, width)]
                # a block inside its own first child repeats it
                kept = [r for r in level if width == 1 or len(r) > width // operator.branching]
                if len(level) > 1 or operator.root or n == 1:
                    rows = kept + rows
                if len(level) == 1:
                    return rows
                width *= operator.branching


def written_out(operator: LinearOperator) -> Matrix:
    """The matrix by the definition of its class, in Python integers and floats."""
    match operator:
        case Identity(n=n):
            return _array([[int(i == j) for j in range(n)] for i in range(n)])
        case Total(n=n):
            return _array([[1] * n])
        case Residual(n=n):
            return _array([[n * (i == j) - 1 for j in range(n)] for i in range(n)])
        case AllRange() | Prefix() | Window() | Tree():
            return _array([[int(j in r) for j in range(operator.n)] for r in _spans(operator)])
        case Dense():
            return operator.matrix.astype(object)
        case Grouping():
            return _array([[int(c == i) for c in operator.codes.tolist()] for i in range(operator.groups)])
        case Toeplitz():
            c, d = operator.coefficients.tolist(), operator.multiples.tolist()
            w = [1] * len(c) if operator.columns is None else operator.columns.tolist()
            return _array([[d[i] * c[i - j] * w[j] if j <= i else 0 for j in range(len(c))] for i in range(len(c))])
        case Sparse():
            rows = [[0] * operator.columns for _ in range(operator.shape[0])]
            ends = operator.indptr.tolist()
            for i, (a, b) in enumerate(itertools.pairwise(ends)):
                for j, value in zip(operator.indices[a:b].tolist(), operator.data[a:b].tolist(), strict=True):
                    rows[i][j] += value
            return _array(rows)
        case Kronecker():
            return reduce(_kronecker, [written_out(f) for f in operator.factors])
        case Stack():
            return np.concatenate([written_out(p) for p in operator.parts])
        case Sum():
            return reduce(np.add, [written_out(p) for p in operator.parts])
        case Scaled():
            return written_out(operator.operator) * operator.factor
        case Compose():
            return written_out(operator.left) @ written_out(operator.right)
        case Padded():
            inner = written_out(operator.operator)
            return _array([[*row, *[0] * operator.extra] for row in inner.tolist()])
        case OnMarginal():
            inner = written_out(operator.operator)
            sizes = [operator.sizes[a] for a in operator.axes]
            columns: list[Any] = []
            for cell in itertools.product(*(range(s) for s in operator.sizes)):
                place = 0
                for size, axis in zip(sizes, operator.axes, strict=True):
                    place = place * size + cell[axis]
                columns.append(inner[:, place])
            return np.stack(columns, axis=1)
        case _:
            raise TypeError(f"{type(operator).__name__} has no definition here; add it, and generate it above")


def _kronecker(left: Matrix, right: Matrix) -> Matrix:
    return _array([[a * b for a in row for b in under] for row in left.tolist() for under in right.tolist()])
