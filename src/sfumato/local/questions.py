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

The least error that any locally private protocol can have, and the projection that its optimum asks to measure.

Let K(y | j) be any epsilon-LDP channel (what is asked may be random and reported in y), the same for all persons, and
let answers be unbiased sums of a vector for each report. Put weights q on the cells and D_y = sum_j q_j K(y | j).
All K(y | j) of one y lie between some a and e^epsilon a, so that

    sum_j q_j (K(y | j) - D_y)^2 <= (D_y - a)(e^epsilon a - D_y) <= D_y^2 (e^epsilon - 1)^2 / (4 e^epsilon).

Hence X = sum_y (K_y - D_y)(K_y - D_y)ᵀ / D_y has sum_j q_j X_jj <= 1 / c, c = 4 e^epsilon / (e^epsilon - 1)^2, and with
F_c = F - F q 1ᵀ least squares has variance tr F_c X^+ F_cᵀ >= c ||F_c diag(q)^(1/2)||_*^2 for records drawn from q;
for a table of n records with shares q that is less by what the cells themselves vary:

    sum of variances >= n (c ||F_c diag(q)^(1/2)||_*^2 - ||F_c diag(q)^(1/2)||_F^2).

The first norm at its largest over q is the factorization norm of F up to an offset, min over b of gamma(F + b 1ᵀ),
by the duality of [ENU20]; every q gives a valid bound.

Which questions to ask: an experimental design of least variance for the queries. [Puk06]

For questions with features Psi_s the sum of the variances is proportional to tr F Q Fᵀ, Q from G = sum p_s Psi_sᵀ Psi_s
(above): convex in p. The derivative tells where it can be lessened, d_s = tr Psi_s A Psi_sᵀ, A = Q FᵀF Q:
p is optimal among all questions if and only if no d_s exceeds sum p_s d_s.

With two labels the question with the largest d_s is a largest cut, and G lies in the cut polytope; the relaxation of
that to all correlation matrices is the factorization norm, and the signs of random projections of its
optimum lose at most a factor pi/2 of the variance [Gro53, Nes98]. Search from there loses far less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import storable
from sfumato.errors import NotInRowSpace, PlanError
from sfumato.operators.base import FloatArray, single_thread
from sfumato.privacy.local import MAX_LABELS

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
            rows = question_features(self.table[a : a + step], self.labels)
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


def label_contrasts(labels: int) -> FloatArray:
    """C, (g - 1, g), with Cᵀ C = I - 1 1ᵀ / g: rows orthonormal, each of sum 0."""
    out = np.zeros((labels - 1, labels))
    for i in range(1, labels):
        out[i - 1, :i] = 1.0
        out[i - 1, i] = -i
        out[i - 1] /= math.sqrt(i * (i + 1))
    return out


def question_features(table: NDArray[Any], labels: int) -> FloatArray:
    """(N (g - 1), m): of every question C with the columns of its labels; their products sum to those of the x."""
    picked = label_contrasts(labels)[:, table]
    return np.moveaxis(picked, 0, 1).reshape(-1, table.shape[1])


def invert_moment(moment: FloatArray, floor: float = 1e-11) -> FloatArray:
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


class LocalReconstruction:
    """How answers to questions are turned into answers to the queries F (k, m), and the variance that has.

    Raises NotInRowSpace where the questions do not tell the queries.
    """

    def __init__(self, questions: Questions, queries: FloatArray, epsilon: float) -> None:
        self.questions, self.queries = questions, queries
        self.share = truth_share(epsilon, questions.labels)
        self.moment = questions.moment()
        self.rows = queries @ invert_moment(self.moment)
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


Table = NDArray[np.intp]
_BATCH = 2**22  # 32 MB of slopes looked at at once
_RARE = 2e-3  # share of the largest weight below which a question is dropped between rounds


def simplex_code(cells: int, labels: int) -> Table:
    """Questions that treat all pairs of cells alike: l_a(j) = <a, digits of j> modulo the prime `labels`.

    Any two cells agree on the same share (g^(r-1) - 1) / (g^r - 1) of them, r digits; for g = 2 they are the rows of a
    Hadamard matrix, for g >= cells the one question which cell it is.
    """
    if labels >= cells:
        return np.arange(cells)[None, :]
    digits, top = [np.arange(cells)], labels
    while top < cells:
        digits.append(digits[-1] // labels)
        top *= labels
    place = np.array(digits) % labels
    codes = np.arange(1, top)
    every = (codes[:, None] // labels ** np.arange(len(place))) % labels
    # one of the multiples of each: its first nonzero coefficient is 1
    first = every[np.arange(len(every)), (every > 0).argmax(axis=1)]
    return (every[first == 1] @ place) % labels


def random_direction_labels(strategy: FloatArray, labels: int, count: int, rng: np.random.Generator) -> Table:
    """(count, m): which of some random directions a column of the strategy (l, m) leans to most.

    Directions come in orthonormal bases: they see every direction alike, which independent ones do only when many.
    """
    length, rows = len(strategy), count * (1 if labels == 2 else labels)
    with single_thread():
        bases = [np.linalg.qr(rng.standard_normal((length, length)))[0] for _ in range(-(-rows // length))]
        leaning = np.concatenate(bases)[:rows] @ strategy
    if labels == 2:
        return (leaning > 0).astype(np.intp)
    return np.argmax(leaning.reshape(count, labels, -1), axis=1)


def optimize_question_weights(
    table: Table, labels: int, gram: FloatArray, rounds: int, start: FloatArray | None = None
) -> tuple[FloatArray, FloatArray, float]:
    """(p, A, value): p_s <- p_s sqrt(d_s) lessens tr F Q Fᵀ every time, to the best weights of these questions."""
    p = np.full(len(table), 1 / len(table)) if start is None else start
    rows, width = question_features(table, labels), labels - 1
    slope, value = gram, np.inf
    with single_thread():
        for _ in range(rounds):
            weighted = rows * np.repeat(p, width)[:, None]
            q = invert_moment(rows.T @ weighted)
            half = gram @ q
            slope, value = q @ half, float(np.trace(half))
            derivative = np.einsum("sj,sj->s", rows @ slope, rows).reshape(-1, width).sum(axis=1)
            p = p * np.sqrt(np.maximum(derivative, 0.0))
            p /= p.sum()
    return p, slope, value


def best_labellings(slope: FloatArray, labels: int, count: int, rng: np.random.Generator) -> Table:
    """Labellings of large sum of A_ij over equally labelled pairs: each step moves the best cell of each."""
    m = len(slope)
    with single_thread():
        values, vectors = np.linalg.eigh(slope)
    half = (vectors * np.sqrt(np.maximum(values, 0.0))).T
    table = random_direction_labels(half, labels, count, rng)
    ids, diagonal = np.arange(count), slope.diagonal()
    pull = np.empty((count, labels, m))
    for c in range(labels):
        pull[:, c] = (table == c).astype(np.float64) @ slope
    for _ in range(3 * m):
        own = np.take_along_axis(pull, table[:, None], axis=1) - diagonal
        gain = (pull - own).reshape(count, -1)
        # staying is no move: its gain is the diagonal, cancelled here
        np.put_along_axis(gain, table * m + np.arange(m), 0.0, axis=1)
        best = gain.argmax(axis=1)
        moving = gain[ids, best] > 1e-9 * float(diagonal.max())
        if not moving.any():
            break
        who, cell, label = ids[moving], best[moving] % m, best[moving] // m
        pull[who, table[who, cell]] -= slope[cell]
        pull[who, label] += slope[cell]
        table[who, cell] = label
    return table


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to search: questions per cell to start from, steps of their weights, rounds of new questions, and
    steps of the weights at last."""

    start: int
    steps: int
    rounds: int
    last: int


def design_questions(
    gram: FloatArray, labels: int, strategy: FloatArray, extra: list[Table], rng: np.random.Generator, effort: Effort
) -> tuple[Table, FloatArray]:
    """Questions and their probabilities: weights, then new questions where the derivative is largest, and again."""
    m = len(gram)
    table = distinct_partitions(
        np.concatenate([random_direction_labels(strategy, labels, effort.start * m, rng), *extra]), labels
    )
    p, slope, _ = optimize_question_weights(table, labels, gram, effort.steps)
    for _ in range(effort.rounds):
        kept = p > p.max() * _RARE
        fresh = best_labellings(slope, labels, max(16, min(2 * m, _BATCH // (m * labels))), rng)
        table, start = _join_questions(table[kept], p[kept], fresh, labels)
        p, slope, _ = optimize_question_weights(table, labels, gram, effort.steps, start)
    kept = p > p.max() * _RARE
    return table[kept], optimize_question_weights(table[kept], labels, gram, effort.last, p[kept] / p[kept].sum())[0]


def _join_questions(table: Table, p: FloatArray, fresh: Table, labels: int) -> tuple[Table, FloatArray]:
    """Old questions with seven eighths of the weight, new ones with the rest."""
    every = distinct_partitions(np.concatenate([table, fresh]), labels, kept=len(table))
    count = len(every) - len(table)
    return every, np.concatenate([p / p.sum() * (7 / 8 if count else 1), np.full(count, 1 / (8 * max(1, count)))])


def distinct_partitions(table: Table, labels: int, kept: int = 0) -> Table:
    """Each partition once, constant ones left out; labels are numbered as they first occur. The first `kept` stay."""
    first = np.full((len(table), labels), table.shape[1])
    np.minimum.at(first, (np.arange(len(table))[:, None], table), np.arange(table.shape[1]))
    rank = first.argsort(axis=1, kind="stable").argsort(axis=1)
    named = np.take_along_axis(rank, table, axis=1)
    index = np.unique(named, axis=0, return_index=True)[1]
    useful = index[(named[index] != 0).any(axis=1)]
    return (
        named[np.sort(useful)] if not kept else np.concatenate([table[:kept], named[np.sort(useful[useful >= kept])]])
    )


_EPS = float(np.finfo(np.float64).eps)


def hard_constant(epsilon: float) -> float:
    """c = 4 e^epsilon / (e^epsilon - 1)^2 = 1 / sinh(epsilon / 2)^2."""
    return 1 / math.sinh(epsilon / 2) ** 2


@dataclass(frozen=True, slots=True)
class CentredOptimum:
    """The factorization norm of F up to an offset: `lower` <= it <= `upper`.

    `strategy` (l, m) attains `upper`, columns in the unit ball; `moved` is ||F_c diag(q)^(1/2)||_F^2 for the q of
    `lower`.
    """

    strategy: FloatArray
    lower: float
    upper: float
    moved: float

    def bound(self, epsilon: float) -> float:
        """The least sum of variances per record of any protocol, for the worst table."""
        return max(0.0, hard_constant(epsilon) * self.lower**2 - self.moved) * (1 - 1e-9)


def centred_optimum(gram: FloatArray, rounds: int = 60, tolerance: float = 1e-3) -> CentredOptimum:
    """From FᵀF, (m, m): q_j <- q_j (squared norm of column j), where every q gives both bounds; m^3 a round."""
    from scipy.linalg import eigh  # noqa: PLC0415  (slow to import)

    m = len(gram)
    q, best, low, moved = np.full(m, 1 / m), None, 0.0, 0.0
    high = math.inf
    for _ in range(rounds):
        half = gram @ q
        centred = gram - half[:, None] - half[None, :] + float(q @ half)
        root = np.sqrt(q)
        with single_thread():
            values, vectors = eigh(centred * root[:, None] * root[None, :])
        # what rounding may have added to an eigenvalue is taken off before its root is
        sure = np.sqrt(np.maximum(values - max(values[-1], 0.0) * m * 2 * _EPS, 0.0))
        if sure.sum() > low:
            low, moved = float(sure.sum()), float((centred.diagonal() * q).sum())
        keep = values > values[-1] * m * 1e-13
        roots = np.sqrt(values[keep])
        # M = S^(-1/2) Uᵀ F_c = S^(-3/2) Vᵀ diag(q)^(1/2) F_cᵀ F_c
        strategy = (vectors[:, keep] * roots**-1.5).T @ (root[:, None] * centred)
        norms = (strategy**2).sum(axis=0)
        value = math.sqrt(float(roots.sum()) * float(norms.max()))
        if value < high:
            high, best = value, strategy / math.sqrt(float(norms.max()))
        if high <= low * (1 + tolerance):
            break
        q = np.maximum(q * norms, 1e-12 / m)
        q /= q.sum()
    assert best is not None
    return CentredOptimum(best, low, high, moved)
