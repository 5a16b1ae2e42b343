"""The largest linear function over the elliptope, with or without nonnegative pair tables: splitting, and a proof."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato.estimate.elliptope.anderson import Anderson
from sfumato.estimate.elliptope.certificate import EPS, feasible
from sfumato.estimate.elliptope.pairs import coordinates, nearest_tetrahedra, spread, support
from sfumato.operators.base import FloatArray
from sfumato.operators.blas import single_thread

__all__ = ["Extreme", "most_correlated"]

_TOLERANCE = 1e-5  # of the sum of |pull|: the bound is proved whatever it is, so it is all that is lost
_MAX_ITERATIONS = 1000  # at each stiffness; what ends here still has its proved bound
# the pull's own length, then thrice it and a third: any converges, and which is fast hangs on the pull
_STIFF = (1.0, 3.0, 0.3)
_CHECK = 10  # a proof takes an eigendecomposition, as a step does: a tenth more
_RELAX = 1.6  # alternating directions converge for all of (0, 2), and over-relaxed ones as a rule sooner
_MEMORY = 10  # a small system to solve at each step; Anderson's acceleration is used with some 5 to 10


@dataclass(frozen=True, slots=True, eq=False)
class Extreme:
    """A possible matrix (D, D), its `value` sum over i < j of pull Y, and a proved `bound` on that of any."""

    matrix: FloatArray
    value: float
    bound: float


def most_correlated(pull: FloatArray, *, local: bool = False, tolerance: float = _TOLERANCE) -> Extreme:
    """The correlation matrix of largest sum over i < j of pull_ij Y_ij, for a symmetric (D, D) pull; see `elliptope`.

    Stops once bound - value is at most `tolerance` times the sum of |pull| over i < j (which no value exceeds), or
    after 1,000 iterations at each of three stiffnesses: the bound says how good the matrix is in any case.
    """
    given = 0.5 * (pull + pull.T)
    np.fill_diagonal(given, 0.0)
    most = 0.5 * float(np.abs(given).sum())
    best = Extreme(np.eye(len(given)), 0.0, most)
    with single_thread():
        for factor in _STIFF if most > 0 else ():
            best = _split(given, best, local and len(given) > 2, factor, tolerance * most)
            if best.bound - best.value <= tolerance * most:
                break
    return best


def _split(pull: FloatArray, best: Extreme, local: bool, factor: float, enough: float) -> Extreme:
    """Alternating directions on copies of the matrix and of each pair's three entries, as `tetrahedra.split` has them.

    All copies are about as stiff as the pull is long, so that a step moves entries by about their size. The best matrix
    and the least bound are kept, of all iterations and of `best`.
    """
    size = len(pull)
    pairs = (size - 1) * (size - 2) // 2 if local else 0
    stiff = factor * float(np.linalg.norm(pull)) / size
    count = 1.0 + spread(size, np.ones((pairs, 3)))
    vector = _flat(np.eye(size) + pull / stiff, coordinates(np.eye(size)) if local else np.zeros((0, 3)))
    accelerated = Anderson(len(vector), _MEMORY)
    for iteration in range(1, _MAX_ITERATIONS + 1):
        whole, held = _apart(vector, size)
        values, vectors = np.linalg.eigh(whole)
        kept = vectors[:, values > 0]
        possible = (kept * values[values > 0]) @ kept.T
        inside = nearest_tetrahedra(held)
        if iteration % _CHECK == 0:
            tried = (feasible(possible, local), _cut(pull, possible))
            matrix = max(tried, key=lambda m: _value(pull, m))
            bound = _bound(pull, matrix, stiff * (held - inside) if local else None)
            matrix = max(best.matrix, matrix, key=lambda m: _value(pull, m))
            value = _value(pull, matrix)
            best = Extreme(matrix, value, max(value, min(best.bound, bound)))
            if best.bound - best.value <= enough:
                break
        joint = (pull / stiff + 2 * possible - whole + spread(size, 2 * inside - held)) / count
        np.fill_diagonal(joint, 1.0)
        seen = coordinates(joint) if local else inside
        vector = accelerated.next(vector, _RELAX * _flat(joint - possible, seen - inside))
    return best


def _value(pull: FloatArray, matrix: FloatArray) -> float:
    return 0.5 * float(np.sum(pull * matrix))


def _cut(pull: FloatArray, matrix: FloatArray) -> FloatArray:
    """The best of the records whose signs are those of a row: a corner of what tables can give, so of both bodies."""
    signs = np.where(matrix >= 0, 1.0, -1.0)
    chosen = signs[int(np.einsum("ri,ij,rj->r", signs, pull, signs).argmax())]
    return np.multiply.outer(chosen, chosen)


def _bound(pull: FloatArray, matrix: FloatArray, normals: FloatArray | None) -> float:
    """What no matrix of the body exceeds, by `certificate.Problem.proof` with the pull for the way back.

    The closer `matrix` is to the best one, and `normals` (pairs, 3) to those of its pair tables, the closer the bound.
    """
    slope, excess = pull, 0.0
    if normals is not None:
        slope = pull - spread(len(pull), normals)
        excess = float(support(normals).sum()) + len(pull) * EPS * float(np.abs(normals).sum())
    dual = np.einsum("ij,ji->i", slope, matrix)
    slack = np.diag(dual) - slope
    lacks = max(0.0, len(pull) * EPS * float(np.linalg.norm(slack)) - float(np.linalg.eigvalsh(slack)[0]))
    return 0.5 * (float(dual.sum()) + lacks * len(pull)) + excess


def _flat(whole: FloatArray, pairs: FloatArray) -> FloatArray:
    """Both copies as one vector whose squared length counts every pair of entries twice, as the matrix does."""
    return np.concatenate([whole.reshape(-1), np.sqrt(2) * pairs.reshape(-1)])


def _apart(vector: FloatArray, size: int) -> tuple[FloatArray, FloatArray]:
    whole = vector[: size * size].reshape(size, size)
    return 0.5 * (whole + whole.T), vector[size * size :].reshape(-1, 3) / np.sqrt(2)
