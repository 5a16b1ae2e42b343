"""Any weights, and nonnegative pair tables: an accelerated splitting method for the elliptope."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato.estimate.elliptope.anderson import Anderson
from sfumato.estimate.elliptope.certificate import NearestCorrelation, Problem, feasible
from sfumato.estimate.elliptope.pairs import coordinates, nearest_tetrahedra, spread
from sfumato.operators.base import FloatArray

__all__ = ["split"]

_MAX_ITERATIONS = 3000  # what ends here still has its proved gap
_CHECK = 10  # a proof costs about what an iteration does: a tenth more
_RELAX = 1.6  # alternating directions converge for all of (0, 2), and over-relaxed ones as a rule sooner
_MEMORY = 10  # a small system to solve at each step; Anderson's acceleration is used with some 5 to 10


@dataclass(frozen=True, slots=True)
class _Copies:
    """The two kinds of copies in the units of the method: of the whole matrix, and of each pair's three entries.

    Scaled so that a copy of an entry with weight w_i w_j is as stiff as that entry is heavy.
    """

    root: FloatArray
    pair: FloatArray

    def flat(self, whole: FloatArray, pairs: FloatArray) -> FloatArray:
        """Both as one vector whose squared length counts every pair of entries twice, as the matrix does."""
        return np.concatenate([(whole * self.root).reshape(-1), (pairs * self.pair).reshape(-1)])

    def apart(self, vector: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The matrix, symmetric again where rounding broke it, and the (pairs, 3) entries of such a vector."""
        size = len(self.root)
        whole = vector[: size * size].reshape(size, size)
        return 0.5 * (whole + whole.T) / self.root, vector[size * size :].reshape(-1, 3) / self.pair


def split(problem: Problem, local: bool, start: NearestCorrelation | None) -> NearestCorrelation:
    """The projection by copies, one positive semidefinite and one possible for each pair (alternating directions
    [BPCPE11], in its form of one vector [EB92], with Anderson acceleration).

    Returns the best matrix found, whose gap says how good it is: at the tolerance, or after 3,000 iterations.
    """
    size, heavy = len(problem.given), np.multiply.outer(problem.scale, problem.scale)
    per_pair = np.zeros((0, 1))
    if local:
        per_pair = coordinates(heavy)[:, 2:]
    copies = _Copies(np.sqrt(heavy), np.sqrt(2 * per_pair))
    stiff = heavy + spread(size, np.broadcast_to(per_pair, (len(per_pair), 3)))
    vector = _start(problem, copies, heavy, local, start)
    accelerated = Anderson(len(vector), _MEMORY)
    best: NearestCorrelation | None = None
    for iteration in range(1, _MAX_ITERATIONS + 1):
        whole, pairs = copies.apart(vector)
        possible = _positive(whole * copies.root) / copies.root
        inside = nearest_tetrahedra(pairs)
        if iteration % _CHECK == 0:
            normals = per_pair * (pairs - inside) if local else None
            proof = problem.proof(feasible(possible, local), iteration, normals)
            best = proof if best is None or proof.gap < best.gap else best
            if best.certified:
                break
        pull = heavy * (2 * possible - whole) + spread(size, per_pair * (2 * inside - pairs))
        joint = (problem.weight * problem.given + pull) / (problem.weight + stiff)
        np.fill_diagonal(joint, 1.0)
        seen = coordinates(joint) if local else inside
        vector = accelerated.next(vector, _RELAX * copies.flat(joint - possible, seen - inside))
    assert best is not None
    return best


def _start(
    problem: Problem, copies: _Copies, heavy: FloatArray, local: bool, start: NearestCorrelation | None
) -> FloatArray:
    """The fixed point, were the projection onto the elliptope alone at `start` that onto both."""
    matrix = problem.given if start is None else start.matrix
    slope = problem.weight * (problem.given - matrix)
    np.fill_diagonal(slope, -np.einsum("ij,ji->i", slope, matrix))
    return copies.flat(matrix + slope / heavy, coordinates(matrix) if local else np.zeros((0, 3)))


def _positive(matrix: FloatArray) -> FloatArray:
    """The nearest positive semidefinite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    kept = vectors[:, values > 0]
    return np.asarray((kept * values[values > 0]) @ kept.T, dtype=np.float64)
