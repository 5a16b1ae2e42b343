"""Multiplicative weights over public cells: what an adaptive mechanism believes of a table, moved answer by answer.

Nothing here is private: a hypothesis starts uniform and changes by what was released. In fractions p of the total,
one step p <- p exp(eta q) / Z for a query q with values in [0, 1], true answer a and gap g = a - <q, p> brings p nearer
to the table h: KL(h, p) falls by at least eta g - eta^2/8, by Hoeffding's lemma; for values in [-1, 1] by at least
eta g - eta^2/2 [HR10].
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.errors import InvalidInput, PlanError
from sfumato.operators.base import FloatArray, LinearOperator, real_array

_MAX_CELLS = 10**7  # 80 MB a vector, gone through at every update


class Hypothesis:
    """Cells over axes of the given sizes (C order), nonnegative, with a sum of `total`: uniform, until updated.

    Uniform over the cells of `possible` alone (shaped by the sizes; None: all), where some can hold no record: those
    stay 0, and as fewer cells are left, all that is proved of a uniform start holds.

    Kept as log weights, which only updates change; the cells follow from them, so the same updates in the same order
    give the same cells bit for bit, whatever was asked in between. Raises InvalidInput for more than 10^7 cells, and
    for a total that is not a finite number of at least 0.
    """

    __slots__ = ("_cells", "_logs", "sizes", "total")

    def __init__(self, sizes: Sequence[int], total: float, possible: NDArray[np.bool_] | None = None) -> None:
        self.sizes = tuple(int(s) for s in sizes)
        if not self.sizes or min(self.sizes) < 1 or math.prod(self.sizes) > _MAX_CELLS:
            raise InvalidInput(f"a hypothesis has from 1 to {_MAX_CELLS:,} cells, in axes of at least one; got {sizes}")
        self.total = float(total)
        if not 0 <= self.total < math.inf:
            raise InvalidInput(f"the total of a hypothesis is a finite number of at least 0, not {total!r}")
        self._logs = np.zeros(math.prod(self.sizes))
        if possible is not None:
            self._logs[~possible.reshape(-1)] = -math.inf
        self._cells: FloatArray | None = None

    @property
    def cells(self) -> FloatArray:
        """(m,) the cells, read-only."""
        if self._cells is not None:
            return self._cells
        cells = np.exp(self._logs - self._logs.max())
        cells *= self.total / cells.sum()
        cells.flags.writeable = False
        self._cells = cells
        return cells

    def table(self, axes: Sequence[int]) -> FloatArray:
        """The cells of some axes, in C order of the axes as given, all others summed out."""
        kept = self._axes(axes)
        if kept == tuple(range(len(self.sizes))):
            return self.cells
        rest = tuple(i for i in range(len(self.sizes)) if i not in kept)
        whole = self.cells.reshape(self.sizes)
        summed = np.asarray(whole.sum(axis=rest)) if rest else whole
        order = np.argsort(np.argsort(kept))
        return np.ascontiguousarray(summed.transpose(order)).reshape(-1)

    def answer(self, rows: ArrayLike | LinearOperator, axes: Sequence[int] | None = None) -> FloatArray:
        """(r,) answers to rows over the cells of `axes` (all of them by default): an (r, cells) array or an operator.

        The table of the axes is summed out first, so the cost is one pass over the cells and the rows on that table.
        Raises InvalidInput for rows of another length.
        """
        table = self.cells if axes is None else self.table(axes)
        if isinstance(rows, LinearOperator):
            return np.asarray(rows.matvec(table), dtype=np.float64)
        given = real_array(rows, "queries")
        if given.ndim != 2 or given.shape[1] != table.size:
            raise InvalidInput(f"queries have shape (rows, {table.size:,}), not {given.shape}")
        return np.asarray(given @ table, dtype=np.float64)

    def update(self, row: ArrayLike, step: float, axes: Sequence[int] | None = None) -> None:
        """p <- p exp(step row) / Z, for one row of values in [-1, 1] over the cells of `axes`, the same on all others.

        Raises InvalidInput for other values, another length or a step that is not finite; nothing has changed then.
        """
        kept = tuple(range(len(self.sizes))) if axes is None else self._axes(axes)
        given = real_array(row, "a query")
        shape = tuple(self.sizes[a] for a in kept)
        if given.shape != (math.prod(shape),):
            raise InvalidInput(f"a query over these axes has {math.prod(shape):,} values, not the shape {given.shape}")
        if not math.isfinite(step) or not (np.abs(given) <= 1).all():
            raise InvalidInput("an update needs a finite step and a query with values in [-1, 1]; rescale it")
        change = step * given.astype(np.float64)
        if kept == tuple(range(len(self.sizes))):
            self._logs += change
        else:
            spread = [n if i in kept else 1 for i, n in enumerate(self.sizes)]
            self._logs.reshape(self.sizes)[...] += change.reshape(shape).transpose(np.argsort(kept)).reshape(spread)
        self._cells = None

    def _axes(self, axes: Sequence[int]) -> tuple[int, ...]:
        kept = tuple(map(int, axes))
        if len(set(kept)) != len(kept) or not set(kept) <= set(range(len(self.sizes))):
            raise InvalidInput(f"axes are distinct numbers from 0 to {len(self.sizes) - 1}, not {axes}")
        return kept

    def __repr__(self) -> str:
        return f"<Hypothesis of {self._logs.size:,} cells with a total of {self.total:,.6g}>"


Words = NDArray[np.uint64]
_MOST = 2**40  # slots weigh 2^-41 and up, far above what doubles lose beside the 1/2 of "no key"


class SparseHypothesis:
    """A public guess of the counts by key of `total` records, over `slots` keys that are not named beforehand."""

    __slots__ = ("_elements", "_logs", "slots", "total")

    def __init__(self, slots: int, total: float) -> None:
        if type(slots) is not int or not 1 <= slots <= _MOST:
            raise PlanError(f"slots are a whole number from 1 to 2^40, not {slots!r}")
        if not 0 < total < math.inf:
            raise PlanError(f"total is a positive number of records, not {total!r}")
        self.slots, self.total = slots, float(total)
        self._elements: Words = np.zeros(0, dtype=np.uint64)
        self._logs: NDArray[np.float64] = np.zeros(0)

    @property
    def bound(self) -> int:
        """Keys that updates have named."""
        return self._elements.size

    def answer(self, elements: Words) -> float:
        """The hypothetical number of records with one of these distinct keys."""
        place, inside = self._find(elements)
        # a key without a slot weighs as much as a slot without a key
        free = elements.size - int(inside.sum())
        with np.errstate(divide="ignore"):
            asked = np.append(self._logs[place[inside]], np.log(float(free)))
        return self.total * math.exp(_log_sum(asked) - math.log(2 * self.slots) - self._log_total())

    def update(self, elements: Words, step: float) -> None:
        """Multiply the weights of these distinct keys by exp(step). Raises PlanError where the slots do not suffice."""
        place, inside = self._find(elements)
        if self.bound + elements.size - int(inside.sum()) > self.slots:
            raise PlanError(f"updates name more keys than the {self.slots:,} that the hypothesis was made for")
        self._logs[place[inside]] += step
        fresh = np.sort(elements[~inside])
        at = np.searchsorted(self._elements, fresh)
        self._elements, self._logs = np.insert(self._elements, at, fresh), np.insert(self._logs, at, step)

    def _log_total(self) -> float:
        """log Z, Z = w0 (sum over named keys + slots without a key) + 1/2."""
        share = math.log1p(-self.bound / (2 * self.slots))
        return float(np.logaddexp(_log_sum(self._logs) - math.log(2 * self.slots), share))

    def _find(self, elements: Words) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        place = np.searchsorted(self._elements, elements)
        inside = place < self.bound
        inside[inside] = self._elements[place[inside]] == elements[inside]
        return place, inside


def _log_sum(logs: NDArray[np.float64]) -> float:
    if not logs.size:
        return -math.inf
    return float(np.logaddexp.reduce(logs))
