"""Public questions about a record, and what answers to them by randomized response tell about linear queries.

Notation: m cells, N questions with g labels each; l_s(j) the true label of cell j for question s, asked with
probability p_s. With t = (e^epsilon - 1) / (e^epsilon + g - 1) a person tells the truth with probability t and says a
uniform label otherwise. A report (s, c) is read as the vector x_sc with entries 1[l_s(j) = c] - 1/g; then

    E x = t G e_j for a record in cell j,     G = sum_s p_s sum_c x_sc x_scᵀ,  G_ij = P(l_s(i) = l_s(j)) - 1/g.

Queries F (k, m) are answered by (1/t) R sum of x + beta n, with R G + beta 1ᵀ = F: unbiased for every table, and
whatever the questions are. As the number n of reports is public, beta is free; the R of least variance is F Q,

    Q = P - P 1 1ᵀ P / 1ᵀ P 1,   P = (G + 1 1ᵀ)^-1,      v_i = f_iᵀ Q f_i the variance of query i:

a record in cell j adds [t sum_s p_s (r_i x_{s, l_s(j)})^2 + (1 - t) v_i / g] / t^2 - (F_ij - beta_i)^2 to the
variance of answer i, exactly; for g = 2 the bracket is v_i / 2, the same for all cells.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import NotInRowSpace, PlanError
from sfumato.ground.codec import storable
from sfumato.operators.base import FloatArray
from sfumato.operators.blas import single_thread
from sfumato.privacy.local import MAX_LABELS

__all__ = ["Questions", "Reading", "contrasts", "features", "inverse", "truth_share"]

SLOTS = 2**16  # probabilities of questions are multiples of 1 / SLOTS
_CHUNK = 2**24  # 128 MB at a time
_TOLERANCE = 1e-7  # relative: half of a double's digits, as the design was solved for in doubles


@storable
@dataclass(frozen=True, eq=False, repr=False)
class Questions:
    """N questions about m cells: `table` (N, m) uint16 of true labels below `labels`; question s is asked with
    probability counts_s / 65,536. Raises PlanError for anything else.
    """

    table: NDArray[np.uint16]
    labels: int
    counts: NDArray[np.int64]

    def __post_init__(self) -> None:
        table: Any = self.table
        counts: Any = self.counts
        if type(self.labels) is not int or not 2 <= self.labels <= MAX_LABELS:
            raise PlanError(f"questions have 2 to {MAX_LABELS:,} labels, not {self.labels!r}")
        if not isinstance(table, np.ndarray) or table.dtype != np.uint16 or table.ndim != 2 or not table.size:
            raise PlanError("questions are a table of uint16, one row per question and one column per cell")
        if int(table.max()) >= self.labels:
            raise PlanError(f"the true label of a cell is below {self.labels}")
        if not isinstance(counts, np.ndarray) or counts.dtype != np.int64 or counts.shape != (len(table),):
            raise PlanError("every question has one int64 count")
        if counts.min() < 1 or counts.max() > SLOTS or counts.sum() != SLOTS:
            raise PlanError(f"counts of questions are at least 1 and sum to {SLOTS:,}")
        for name, value in (("table", table), ("counts", counts)):
            own = value.copy()
            own.flags.writeable = False
            object.__setattr__(self, name, own)

    @classmethod
    def of(cls, table: NDArray[Any], labels: int, weights: FloatArray) -> Questions:
        """Questions with probabilities near `weights`; what would get none of the 65,536 parts is left out."""
        order = np.argsort(-weights, kind="stable")[: SLOTS // 2]
        share = weights[order] / weights[order].sum() * SLOTS
        kept = share >= 0.5
        order, share = order[kept], share[kept] * (SLOTS / share[kept].sum())
        counts = np.maximum(np.floor(share), 1).astype(np.int64)
        # the parts left over, or taken too many, go by what rounding did
        spare = SLOTS - int(counts.sum())
        while spare:
            by = np.argsort(counts - share if spare > 0 else share - counts - SLOTS * (counts > 1), kind="stable")
            step = by[: min(abs(spare), len(by))]
            counts[step] += 1 if spare > 0 else -1
            spare = SLOTS - int(counts.sum())
        return cls(table[order].astype(np.uint16), labels, counts)

    @property
    def cells(self) -> int:
        """m."""
        return self.table.shape[1]

    @property
    def outcomes(self) -> int:
        """Number of different reports: questions times labels."""
        return len(self.table) * self.labels

    @property
    def weights(self) -> FloatArray:
        """(N,) probabilities."""
        return self.counts / SLOTS

    def moment(self) -> FloatArray:
        """G, (m, m)."""
        out = np.zeros((self.cells, self.cells))
        step = max(1, _CHUNK // (self.cells * self.labels))
        for a in range(0, len(self.table), step):
            rows = features(self.table[a : a + step], self.labels)
            rows *= np.repeat(np.sqrt(self.weights[a : a + step]), self.labels - 1)[:, None]
            out += rows.T @ rows
        return out

    def read(self, tally: NDArray[np.int64]) -> FloatArray:
        """Sum of x over reports, (m,), from the number of reports of every kind, (N, g)."""
        out = np.zeros(self.cells)
        step = max(1, _CHUNK // self.cells)
        for a in range(0, len(self.table), step):
            block = self.table[a : a + step].astype(np.intp)
            out += np.take_along_axis(tally[a : a + step], block, axis=1).sum(axis=0)
        return out - float(tally.sum()) / self.labels


def truth_share(epsilon: float, labels: int) -> float:
    """t = (e^epsilon - 1) / (e^epsilon + g - 1)."""
    lost = math.exp(-epsilon)
    return (1 - lost) / (1 + (labels - 1) * lost)


def contrasts(labels: int) -> FloatArray:
    """C, (g - 1, g), with Cᵀ C = I - 1 1ᵀ / g: rows orthonormal, each of sum 0."""
    out = np.zeros((labels - 1, labels))
    for i in range(1, labels):
        out[i - 1, :i] = 1.0
        out[i - 1, i] = -i
        out[i - 1] /= math.sqrt(i * (i + 1))
    return out


def features(table: NDArray[Any], labels: int) -> FloatArray:
    """(N (g - 1), m): of every question C with the columns of its labels; their products sum to those of the x."""
    picked = contrasts(labels)[:, table]
    return np.moveaxis(picked, 0, 1).reshape(-1, table.shape[1])


def inverse(moment: FloatArray, floor: float = 1e-11) -> FloatArray:
    """Q of the module's docstring; directions that no question sees are given no weight."""
    from scipy.linalg import LinAlgError, cho_solve, cholesky, eigh  # noqa: PLC0415  (slow to import)

    whole = moment + 1.0
    with single_thread():
        try:
            lower = cholesky(whole, lower=True)
            if lower.diagonal().min() < 1e-4 * lower.diagonal().max():
                raise LinAlgError
            found = np.asarray(cho_solve((lower, True), np.eye(len(whole))))
        except LinAlgError:
            values, vectors = eigh(whole)
            keep = values > values[-1] * floor
            scaled = vectors[:, keep] / np.sqrt(values[keep])
            found = scaled @ scaled.T
    ones = found.sum(axis=1)
    return found - np.outer(ones, ones) / ones.sum()


class Reading:
    """How answers to questions are turned into answers to the queries F (k, m), and the variance that has.

    Raises NotInRowSpace where the questions do not tell the queries.
    """

    def __init__(self, questions: Questions, queries: FloatArray, epsilon: float) -> None:
        self.questions, self.queries = questions, queries
        self.share = truth_share(epsilon, questions.labels)
        self.moment = questions.moment()
        self.rows = queries @ inverse(self.moment)
        missing = queries - self.rows @ self.moment
        self.offset = missing.mean(axis=1)
        off = float(np.abs(missing - self.offset[:, None]).max())
        if off > _TOLERANCE * max(1.0, float(np.abs(queries).max())):
            raise NotInRowSpace(f"the questions leave a residual of {off:.2g} in the queries; ask more of them", off)

    def answers(self, tally: NDArray[np.int64]) -> FloatArray:
        """(k,) unbiased answers, in records, from the number of reports of every kind (N, g)."""
        return self.rows @ self.questions.read(tally) / self.share + self.offset * float(tally.sum())

    def variances(self, start: int, stop: int) -> FloatArray:
        """(stop - start, m): what one record of each cell adds to the variances of these answers. Exact."""
        rows, queries, offset = self.rows[start:stop], self.queries[start:stop], self.offset[start:stop, None]
        g = self.questions.labels
        own = ((rows @ self.moment) * rows).sum(axis=1)[:, None]
        told = own / g if g == 2 else self._told(rows)
        return (self.share * told + (1 - self.share) * own / g) / self.share**2 - (queries - offset) ** 2

    def _told(self, rows: FloatArray) -> FloatArray:
        """sum_s p_s (r_i x_{s, l_s(j)})^2 for all i and j."""
        q = self.questions
        out = np.zeros((len(rows), q.cells))
        total = rows.sum(axis=1)[:, None] / q.labels
        for labels, p in zip(q.table, q.weights.tolist(), strict=True):
            hits = np.zeros((q.cells, q.labels))
            hits[np.arange(q.cells), labels] = 1.0
            out += p * np.take((rows @ hits - total) ** 2, labels.astype(np.intp), axis=1)
        return out

    def step(self) -> int:
        """Queries whose variances are taken at once."""
        return max(1, _CHUNK // self.questions.cells)
