"""What is asked of an ordered attribute, and the errors of all its ranges together without listing them."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable

import numpy as np

from sfumato.errors import NotAnswerable
from sfumato.operators import AllRange, Identity, LinearOperator, Padded, Prefix, Total, Window
from sfumato.operators.base import DENSE_LIMIT, FloatArray, Numbers
from sfumato.operators.structured import Contiguous
from sfumato.strategies.factors import StrategyFactor

__all__ = ["OrderedStrategy", "as_contiguous_ranges"]


_GRID = 16  # a start for steps that climb; all ranges among some thirty ends are five hundred


def as_contiguous_ranges(operator: LinearOperator) -> Contiguous | None:
    """The ranges of cells that the rows are, where they are; cells that no row counts may follow."""
    inner = operator.operator if isinstance(operator, Padded) else operator
    if isinstance(inner, (Identity, Total)):
        return Window(inner.n, 1 if isinstance(inner, Identity) else inner.n)
    return inner if isinstance(inner, Contiguous) else None


class OrderedStrategy(StrategyFactor):
    """A strategy over an ordered attribute that answers every query about it."""

    @abstractmethod
    def span_powers(self, first: Numbers, last: Numbers, power: int) -> FloatArray:
        """Sums of |entry|^power over the rows of R for the ranges of cells first[i] to last[i] - 1."""

    @abstractmethod
    def prefix_powers(self, count: int, power: int) -> FloatArray:
        """(count,) the same for the first `count` prefixes."""

    def check(self, query: LinearOperator, what: str) -> None:
        return None

    def row_powers(self, query: LinearOperator, power: int) -> FloatArray:
        inner = as_contiguous_ranges(query)
        if isinstance(inner, Prefix):
            return self.prefix_powers(inner.n, power)
        if inner is not None and 2 * inner.shape[0] <= DENSE_LIMIT:
            return self.span_powers(*inner.spans(), power)
        out = np.empty(query.shape[0])
        for a, b in query.row_chunks():
            out[a:b] = self._row_sums(query.rows(a, b), power)
        return out

    def _row_sums(self, rows: FloatArray, power: int) -> FloatArray:
        return (self.spread(rows) ** power).sum(axis=1)

    def range_errors(self, query: LinearOperator, ones: FloatArray | None = None) -> tuple[float, float]:
        """(mean, largest) sum of squares of the rows of R over all ranges of the first n cells.

        With P_t the answer to prefix t and v_t its variance, the variances of P_t - P_s over all pairs t > s of
        n + 1 prefixes, the empty one among them, sum to (n + 1) sum_t v_t - Var(sum_t P_t): exact. Of the largest
        see `range_bound`.
        `ones` (AᵀA)^-1 1 says that the total is known: it takes the square of what each row has of it.
        """
        inner = as_contiguous_ranges(query)
        if not isinstance(inner, AllRange):
            raise NotAnswerable("only all ranges of an attribute are summed up without listing them")
        n, cells = inner.n, self.measured.shape[1]
        row = np.maximum(n - np.arange(cells), 0).astype(np.float64)
        variances, whole = self.prefix_powers(n, 2), float(self._row_sums(row[None], 2)[0])
        known = np.zeros(cells + 1)
        if ones is not None:
            known[1:] = np.cumsum(ones) / np.sqrt(ones.sum())
            variances = variances - known[1 : n + 1] ** 2
            whole -= float(known[1 : n + 1].sum()) ** 2

        def errors(first: Numbers, last: Numbers) -> FloatArray:
            return self.span_powers(first, last, 2) - (known[last] - known[first]) ** 2

        mean = ((n + 1) * float(variances.sum()) - whole) / (n * (n + 1) / 2)
        return mean, self.range_bound(known[: n + 1], _largest_range_error(n, np.append(0.0, variances), errors))

    @abstractmethod
    def range_bound(self, known: FloatArray, found: float) -> float:
        """The largest error of a range of the first n cells, proved from above, at least `found`.

        `found` is the largest that a search over both ends came upon, of which it may miss a few percent;
        `known` (n + 1,) is as in `range_errors`, for the prefixes from the empty one on.
        """


def _largest_range_error(n: int, variances: FloatArray, errors: Callable[[Numbers, Numbers], FloatArray]) -> float:
    """The largest error over ranges, from the prefixes' variances (n + 1,): all ranges of a few ends, then steps.

    The ends lie closer together at the ends of the domain; with them the worst prefix of every part of it.
    """
    half = np.unique(np.rint(np.geomspace(1, max(1, n // 2), _GRID // 2)).astype(np.int64)) - 1
    cut = np.unique(np.linspace(0, n + 1, _GRID + 1).astype(np.int64))
    worst = np.array([a + int(variances[a:b].argmax()) for a, b in itertools.pairwise(cut.tolist())])
    ends = np.unique(np.concatenate([half, n - half, worst]))
    i, j = np.triu_indices(len(ends), 1)
    first, last = ends[i], ends[j]
    found = errors(first, last)
    best = int(found.argmax())
    value, s, t = float(found[best]), int(first[best]), int(last[best])
    step = max(1, n // 8)
    while True:
        near = [(s + a * step, t + b * step) for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b]
        near = [(a, b) for a, b in near if 0 <= a < b <= n]
        tried = errors(np.array([a for a, _ in near]), np.array([b for _, b in near])) if near else np.zeros(0)
        if len(tried) and tried.max() > value:
            value, (s, t) = float(tried.max()), near[int(tried.argmax())]
        elif step == 1:
            return value
        else:
            step //= 2
