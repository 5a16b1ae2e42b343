"""The projection onto the elliptope as a problem, and the proof of how near a possible matrix is to its solution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato.estimate.elliptope.pairs import coordinates, pair_tables, spread, support
from sfumato.ground.progress import Progress
from sfumato.operators.base import FloatArray

__all__ = ["EPS", "NearestCorrelation", "Problem", "feasible"]


EPS = float(np.finfo(np.float64).eps)
# a distance between entries that is taken for none
_ROUNDING = 1e-7


@dataclass(frozen=True, slots=True, eq=False)
class NearestCorrelation:
    """A possible matrix near the given one. Distances are sqrt(sum over i < j of weight times difference squared).

    matrix: (D, D) symmetric, unit diagonal exactly, positive semidefinite up to rounding; with `local` every pair
    table is nonnegative up to rounding too. gap: the squared distance between `matrix` and the true projection is
    at most this, proved by a dual point. moved: the distance from what was given to `matrix`. target: the gap that
    was asked for. iterations: of the solver.
    """

    matrix: FloatArray
    gap: float
    moved: float
    target: float
    iterations: int

    @property
    def certified(self) -> bool:
        """Whether the gap is as small as was asked for."""
        return self.gap <= self.target


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Minimise sum over i < j of weight (Y - given)^2 over correlation matrices Y.

    given: (D, D) symmetric with unit diagonal. weight: (D, D) symmetric, 0 on the diagonal. scale: (D,) positive,
    weight being about scale_i scale_j; eigenvalues are those of matrices scaled by its root on both sides.
    """

    given: FloatArray
    weight: FloatArray
    scale: FloatArray
    tolerance: float
    progress: Progress | None

    def proof(self, matrix: FloatArray, iterations: int, normals: FloatArray | None = None) -> NearestCorrelation:
        """A possible matrix with the proof of how near it is to the projection.

        Let M = weight (given - Y), the way from Y to what was given. For the true projection Y*,
        |Y - Y*|^2 <= <M, Y* - Y> <= h(M) - <M, Y>, h the support function of the body. Any split of M into R and a
        vector N_ij per tetrahedron has h(M) <= h_L(R) + sum h_T(N_ij), and 2 h_L(R) <= sum y for every y with
        Diag(y) - R positive semidefinite. y = diag(R Y) is the optimal one where Y is the projection; elsewhere it
        is raised by what its least eigenvalue lacks. `normals` are the N_ij, (pairs, 3).
        """
        slope, excess = self.weight * (self.given - matrix), 0.0
        if normals is not None:
            reached, total = support(normals), spread(len(matrix), normals)
            excess = float(reached.sum() - 0.5 * np.sum(total * matrix))
            excess = max(0.0, excess + len(matrix) * EPS * float(np.abs(normals).sum()))
            slope = slope - total
        slack = np.diag(np.einsum("ij,ji->i", slope, matrix)) - slope
        slack /= np.sqrt(np.multiply.outer(self.scale, self.scale))
        size = float(np.linalg.norm(slack))
        lacks = max(0.0, len(matrix) * EPS * size - float(np.linalg.eigvalsh(slack)[0])) if size else 0.0
        gap = 0.5 * lacks * float(self.scale.sum()) + excess
        moved = float(np.sqrt(0.5 * np.sum(self.weight * (matrix - self.given) ** 2)))
        target = max(self.tolerance * moved, _ROUNDING * float(np.sqrt(self.weight.sum()))) ** 2
        if self.progress is not None:
            self.progress(iterations, gap)
        return NearestCorrelation(matrix, gap, moved, target, iterations)


def feasible(covariance: FloatArray, local: bool) -> FloatArray:
    """A correlation matrix near a positive semidefinite one; with `local`, one whose pair tables are nonnegative.

    Raising a diagonal keeps a matrix positive semidefinite and so does scaling; mixed with the identity, the
    uniform table, every pair table becomes nonnegative.
    """
    root = 1 / np.sqrt(np.maximum(np.diag(covariance), 1.0))
    out = 0.5 * (covariance + covariance.T) * np.multiply.outer(root, root)
    np.fill_diagonal(out, 1.0)
    least = float(pair_tables(coordinates(out)).min()) if local else 0.0
    if least < 0:
        out *= 0.25 / (0.25 - least)
        np.fill_diagonal(out, 1.0)
    return out
