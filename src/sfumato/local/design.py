"""Which questions to ask: an experimental design of least variance for the queries. [Puk06]

For questions with features Psi_s the sum of the variances is proportional to tr F Q Fᵀ, Q from G = sum p_s Psi_sᵀ Psi_s
(`questions`): convex in p. The derivative tells where it can be lessened, d_s = tr Psi_s A Psi_sᵀ, A = Q FᵀF Q:
p is optimal among all questions if and only if no d_s exceeds sum p_s d_s.

With two labels the question with the largest d_s is a largest cut, and G lies in the cut polytope; the relaxation of
that to all correlation matrices is the factorization norm (`bound`), and the signs of random projections of its
optimum lose at most a factor pi/2 of the variance [Gro53, Nes98]. Search from there loses far less.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.local.questions import features, inverse
from sfumato.operators.base import FloatArray
from sfumato.operators.blas import single_thread

__all__ = ["Effort", "design", "distinct", "largest", "projected", "simplex_code", "weigh"]

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


def projected(strategy: FloatArray, labels: int, count: int, rng: np.random.Generator) -> Table:
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


def weigh(
    table: Table, labels: int, gram: FloatArray, rounds: int, start: FloatArray | None = None
) -> tuple[FloatArray, FloatArray, float]:
    """(p, A, value): p_s <- p_s sqrt(d_s) lessens tr F Q Fᵀ every time, to the best weights of these questions."""
    p = np.full(len(table), 1 / len(table)) if start is None else start
    rows, width = features(table, labels), labels - 1
    slope, value = gram, np.inf
    with single_thread():
        for _ in range(rounds):
            weighted = rows * np.repeat(p, width)[:, None]
            q = inverse(rows.T @ weighted)
            half = gram @ q
            slope, value = q @ half, float(np.trace(half))
            derivative = np.einsum("sj,sj->s", rows @ slope, rows).reshape(-1, width).sum(axis=1)
            p = p * np.sqrt(np.maximum(derivative, 0.0))
            p /= p.sum()
    return p, slope, value


def largest(slope: FloatArray, labels: int, count: int, rng: np.random.Generator) -> Table:
    """Labellings of large sum of A_ij over equally labelled pairs: each step moves the best cell of each."""
    m = len(slope)
    with single_thread():
        values, vectors = np.linalg.eigh(slope)
    half = (vectors * np.sqrt(np.maximum(values, 0.0))).T
    table = projected(half, labels, count, rng)
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


def design(
    gram: FloatArray, labels: int, strategy: FloatArray, extra: list[Table], rng: np.random.Generator, effort: Effort
) -> tuple[Table, FloatArray]:
    """Questions and their probabilities: weights, then new questions where the derivative is largest, and again."""
    m = len(gram)
    table = distinct(np.concatenate([projected(strategy, labels, effort.start * m, rng), *extra]), labels)
    p, slope, _ = weigh(table, labels, gram, effort.steps)
    for _ in range(effort.rounds):
        kept = p > p.max() * _RARE
        fresh = largest(slope, labels, max(16, min(2 * m, _BATCH // (m * labels))), rng)
        table, start = _joined(table[kept], p[kept], fresh, labels)
        p, slope, _ = weigh(table, labels, gram, effort.steps, start)
    kept = p > p.max() * _RARE
    return table[kept], weigh(table[kept], labels, gram, effort.last, p[kept] / p[kept].sum())[0]


def _joined(table: Table, p: FloatArray, fresh: Table, labels: int) -> tuple[Table, FloatArray]:
    """Old questions with seven eighths of the weight, new ones with the rest."""
    every = distinct(np.concatenate([table, fresh]), labels, kept=len(table))
    count = len(every) - len(table)
    return every, np.concatenate([p / p.sum() * (7 / 8 if count else 1), np.full(count, 1 / (8 * max(1, count)))])


def distinct(table: Table, labels: int, kept: int = 0) -> Table:
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
