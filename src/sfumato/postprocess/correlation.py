"""Projection onto the correlation relaxation: the problem, its solvers, and a proof of how near the solution is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from sfumato._util.display import Progress
from sfumato.errors import InvalidInput
from sfumato.operators.base import FloatArray, real_array, single_thread


def pair_coordinates(matrix: FloatArray) -> FloatArray:
    """(pairs, 3) the entries (0i, 0j, ij) of every pair i < j of attributes, row 0 being no attribute."""
    first, second = np.triu_indices(len(matrix) - 1, 1)
    return np.stack([matrix[0, first + 1], matrix[0, second + 1], matrix[first + 1, second + 1]], axis=1)


def scatter_pairs(size: int, values: FloatArray) -> FloatArray:
    """The transpose: a symmetric matrix whose entries add up the coordinates they are. No pairs: zeros."""
    out = np.zeros((size, size))
    if len(values):
        first, second = np.triu_indices(size - 1, 1)
        out[first + 1, second + 1] = values[:, 2]
        out[0, 1:] = np.bincount(first, values[:, 0], size - 1) + np.bincount(second, values[:, 1], size - 1)
    return out + out.T


def tetrahedron_support(normals: FloatArray) -> FloatArray:
    """(pairs,) the largest product of a normal (pairs, 3) with a vertex (s, t, st) of the tetrahedron."""
    a, b, c = normals.T
    return np.maximum(np.abs(a + b) + c, np.abs(a - b) - c)


def pair_tables(points: FloatArray) -> FloatArray:
    """(pairs, 4) the tables of pairs as shares, given (pairs, 3) parities: cells (+, +), (+, -), (-, +), (-, -)."""
    a, b, c = points.T
    return 0.25 * np.stack([1 + a + b + c, 1 + a - b - c, 1 - a + b - c, 1 - a - b + c], axis=1)


def nearest_tetrahedra(points: FloatArray) -> FloatArray:
    """(pairs, 3) the nearest points whose pair tables are nonnegative.

    Parities are twice an orthogonal map of the table, so the nearest point is that of the nearest table whose four
    shares are nonnegative and add up to 1.
    """
    shares = pair_tables(points)
    falling = -np.sort(-shares, axis=1)
    level = (np.cumsum(falling, axis=1) - 1) / np.arange(1, 5)
    kept = np.count_nonzero(falling > level, axis=1)
    chosen = np.take_along_axis(level, kept[:, None] - 1, axis=1)
    p, q, r, s = np.maximum(shares - chosen, 0).T
    return np.stack([p + q - r - s, p - q + r - s, p - q - r + s], axis=1)


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
class CorrelationProblem:
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
            reached, total = tetrahedron_support(normals), scatter_pairs(len(matrix), normals)
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


def feasible_correlation(covariance: FloatArray, local: bool) -> FloatArray:
    """A correlation matrix near a positive semidefinite one; with `local`, one whose pair tables are nonnegative.

    Raising a diagonal keeps a matrix positive semidefinite and so does scaling; mixed with the identity, the
    uniform table, every pair table becomes nonnegative.
    """
    root = 1 / np.sqrt(np.maximum(np.diag(covariance), 1.0))
    out = 0.5 * (covariance + covariance.T) * np.multiply.outer(root, root)
    np.fill_diagonal(out, 1.0)
    least = float(pair_tables(pair_coordinates(out)).min()) if local else 0.0
    if least < 0:
        out *= 0.25 / (0.25 - least)
        np.fill_diagonal(out, 1.0)
    return out


_ENTRIES = 2**24  # 128 MB for each of the two kinds of vectors remembered
_RIDGE = 1e-10  # relative: far above rounding of the products (1e-16), far below what a step changes
_GROWTH = 2.0  # steps of the plain method do not grow: one of twice the shortest seen says that the memory misleads


class Anderson:
    """From a point v and its step f, the next point: v + f, less what the last steps say is superfluous [And65].

    The last moves and the changes of the steps they made are kept, at most `memory` of them; the combination of
    them that best explains f is taken away. A step twice as long as the shortest seen makes it start afresh.
    """

    def __init__(self, size: int, memory: int) -> None:
        self._memory = max(2, min(memory, _ENTRIES // size))
        self._changes = np.zeros((self._memory, size))
        self._moves = np.zeros((self._memory, size))
        self._products = np.zeros((self._memory, self._memory))
        self._told = np.zeros(self._memory)
        self._count = 0
        self._shortest = np.inf
        self._last: tuple[FloatArray, FloatArray] | None = None

    def next(self, point: FloatArray, step: FloatArray) -> FloatArray:
        """The point to evaluate after `point`, whose step is `step`: both (size,)."""
        length = float(np.linalg.norm(step))
        if length > _GROWTH * self._shortest:
            self._count, self._last, self._shortest = 0, None, length
        self._shortest = min(self._shortest, length)
        if self._last is not None:
            self._remember(point - self._last[0], step - self._last[1], step)
        self._last = (point, step)
        kept = min(self._count, self._memory)
        out = point + step
        if kept:
            products = self._products[:kept, :kept]
            ridge = _RIDGE * float(np.trace(products)) * np.eye(kept)
            if ridge[0, 0] > 0:
                out -= np.linalg.solve(products + ridge, self._told[:kept]) @ self._moves[:kept]
        return out

    def _remember(self, move: FloatArray, change: FloatArray, step: FloatArray) -> None:
        """Keep one more, in the place of the oldest.

        What the kept changes say of the step follows from what they said of the last one: a pass over all of them less.
        """
        place = self._count % self._memory
        self._changes[place] = change
        np.add(move, change, out=self._moves[place])
        kept = min(self._count + 1, self._memory)
        found = self._changes[:kept] @ change
        self._products[place, :kept] = self._products[:kept, place] = found
        self._told[:kept] += found
        self._told[place] = float(change @ step)
        self._count += 1


_ALIKE = 1e-9  # relative: products of logarithms and exponentials round some 1e-15 off
_FLOOR = 1e-3  # of the largest: a norm whose scales differ by more than a thousand is badly conditioned
_POWERS = 30  # a fixed point that only scales a norm: any positive scale is right, a near one is fast


def product_scale(weight: FloatArray) -> tuple[FloatArray, bool]:
    """(D,) positive s with weight_ij about s_i s_j, and whether that is all there is to the weights."""
    size = len(weight)
    off = ~np.eye(size, dtype=bool)
    if weight[off].min() > 0:
        if size == 2:
            return np.sqrt(weight.max(axis=0)), True
        logs = np.log(np.where(off, weight, 1.0))
        rows = logs.sum(axis=1)
        scale = np.exp((rows - rows.sum() / (2 * size - 2)) / (size - 2))
        if np.abs(np.multiply.outer(scale, scale)[off] / weight[off] - 1).max() < _ALIKE:
            return scale, True
    vector = np.sqrt(weight.mean(axis=1))
    for _ in range(_POWERS):
        # the rank-one part of the weights, whose diagonal is free
        vector = np.sqrt(vector * (weight @ vector) / float(vector @ vector))
    return np.maximum(vector, _FLOOR * float(vector.max())), False


_MAX_ITERATIONS = 60  # Newton converges quadratically in the end; what ends here says its gap
_MAX_CONJUGATE = 100  # an inexact step is a step of descent still; more products cost more than another step
_MAX_HALVINGS = 30  # 2^-30 of a step: below, rounding of the height hides any descent
_ARMIJO = 1e-4  # the usual small share of the promised descent; any below 1/2 keeps full steps near the end


def newton_correlation(problem: CorrelationProblem) -> NearestCorrelation:
    """The projection where weight_ij = scale_i scale_j, to the tolerance, or as near as rounding lets it come.

    Scaled by the roots on both sides the problem is: the nearest positive semidefinite matrix X with diagonal b =
    scale to C. Its dual is the unconstrained minimum of theta(y) = |(C + Diag y)_+|^2 / 2 - <b, y>, whose gradient
    is diag (C + Diag y)_+ - b and is strongly semismooth: the steps converge quadratically.
    """
    root = np.sqrt(problem.scale)
    goal, target = problem.scale, problem.given * np.multiply.outer(root, root)
    dual = np.zeros(len(goal))
    values, vectors = np.linalg.eigh(target)
    best: NearestCorrelation | None = None
    for iteration in range(1, _MAX_ITERATIONS + 1):
        part, gradient, height = _dual_point(values, vectors, goal, dual)
        state = problem.proof(feasible_correlation(part / np.multiply.outer(root, root), local=False), iteration)
        if best is None or state.gap < best.gap:
            best = state
        if state.certified:
            break
        step = _newton_direction(values, vectors, gradient)
        slope = float(gradient @ step)
        length = 1.0
        for _ in range(_MAX_HALVINGS):
            values, vectors = np.linalg.eigh(target + np.diag(dual + length * step))
            new = 0.5 * float(np.sum(np.maximum(values, 0) ** 2)) - float(goal @ (dual + length * step))
            if new <= height + _ARMIJO * length * slope + 1e-14 * abs(height):
                break
            length *= 0.5
        else:
            break
        dual = dual + length * step
    assert best is not None
    return best


def _dual_point(
    values: FloatArray, vectors: FloatArray, goal: FloatArray, dual: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """The positive part, the gradient and the value of the dual."""
    positive = np.maximum(values, 0)
    kept = vectors[:, positive > 0]
    part = (kept * positive[positive > 0]) @ kept.T
    part = 0.5 * (part + part.T)
    return part, np.diag(part) - goal, 0.5 * float(positive @ positive) - float(goal @ dual)


def _newton_direction(values: FloatArray, vectors: FloatArray, gradient: FloatArray) -> FloatArray:
    """The Newton step: conjugate gradients on diag(P (Omega * (P^T Diag(h) P)) P^T) = -gradient.

    Omega is the matrix of divided differences of the positive part. It is 1 among positive eigenvalues and 0 among
    the others, so the products run over the smaller side of the two.
    """
    positive = values > 0
    inside, outside = vectors[:, positive], vectors[:, ~positive]
    share = values[positive][:, None] / (values[positive][:, None] - values[~positive][None, :])
    few = inside.shape[1] <= outside.shape[1]

    def curvature(h: FloatArray) -> FloatArray:
        # where the positive side is the larger, the complement of Omega is used: diag(P 1 P^T) = h
        side = inside if few else outside
        other = outside if few else inside
        middle = side.T @ (h[:, None] * other)
        middle *= share if few else (1 - share).T
        own = side.T @ (h[:, None] * side)
        total = np.einsum("ij,ij->i", side @ own + 2 * (other @ middle.T), side)
        return total if few else h - total

    squares = vectors**2
    omega = np.ones((len(values), len(values)))
    omega[np.ix_(~positive, ~positive)] = 0
    omega[np.ix_(positive, ~positive)] = share
    omega[np.ix_(~positive, positive)] = share.T
    diagonal = np.maximum(np.einsum("ij,ij->i", squares @ omega, squares), 1e-12)
    return _conjugate_gradients(curvature, diagonal, gradient)


def _conjugate_gradients(
    curvature: Callable[[FloatArray], FloatArray], diagonal: FloatArray, gradient: FloatArray
) -> FloatArray:
    """Conjugate gradients, preconditioned by the diagonal, as exactly as the gradient is small."""
    norm = float(np.linalg.norm(gradient))
    ridge, stop = min(1e-3, 0.1 * norm) * 1e-3, min(0.1, norm) * norm * 1e-1
    out, rest = np.zeros_like(gradient), -gradient
    scaled = rest / diagonal
    way, old = scaled, float(rest @ scaled)
    for _ in range(_MAX_CONJUGATE):
        pushed = curvature(way) + ridge * way
        bend = float(way @ pushed)
        if bend <= 0:
            break
        out = out + (old / bend) * way
        rest = rest - (old / bend) * pushed
        if float(np.linalg.norm(rest)) <= stop:
            break
        scaled = rest / diagonal
        new = float(rest @ scaled)
        way, old = scaled + (new / old) * way, new
    return out if out.any() else -gradient


_MAX_ITERATIONS_TETRAHEDRA = 3000  # what ends here still has its proved gap
_CHECK = 10  # a proof costs about what an iteration does: a tenth more
_RELAX = 1.6  # alternating directions converge for all of (0, 2), and over-relaxed ones as a rule sooner
_MEMORY = 10  # a small system to solve at each step; Anderson's acceleration is used with some 5 to 10


@dataclass(frozen=True, slots=True)
class _Copies:
    """The two kinds of copies in the units of the method: of the whole matrix, and of each pair's three entries.

    Scaled so that a copy of an entry with weight w_i w_j has the penalty w_i w_j.
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


def split_correlation(problem: CorrelationProblem, local: bool, start: NearestCorrelation | None) -> NearestCorrelation:
    """The projection by copies, one positive semidefinite and one possible for each pair (alternating directions
    [BPCPE11], in its form of one vector [EB92], with Anderson acceleration).

    Returns the best matrix found, whose gap says how good it is: at the tolerance, or after 3,000 iterations.
    """
    size, heavy = len(problem.given), np.multiply.outer(problem.scale, problem.scale)
    per_pair = np.zeros((0, 1))
    if local:
        per_pair = pair_coordinates(heavy)[:, 2:]
    copies = _Copies(np.sqrt(heavy), np.sqrt(2 * per_pair))
    penalty = heavy + scatter_pairs(size, np.broadcast_to(per_pair, (len(per_pair), 3)))
    vector = _splitting_start(problem, copies, heavy, local, start)
    accelerated = Anderson(len(vector), _MEMORY)
    best: NearestCorrelation | None = None
    for iteration in range(1, _MAX_ITERATIONS_TETRAHEDRA + 1):
        whole, pairs = copies.apart(vector)
        possible = _nearest_semidefinite(whole * copies.root) / copies.root
        inside = nearest_tetrahedra(pairs)
        if iteration % _CHECK == 0:
            normals = per_pair * (pairs - inside) if local else None
            proof = problem.proof(feasible_correlation(possible, local), iteration, normals)
            best = proof if best is None or proof.gap < best.gap else best
            if best.certified:
                break
        pull = heavy * (2 * possible - whole) + scatter_pairs(size, per_pair * (2 * inside - pairs))
        joint = (problem.weight * problem.given + pull) / (problem.weight + penalty)
        np.fill_diagonal(joint, 1.0)
        seen = pair_coordinates(joint) if local else inside
        vector = accelerated.next(vector, _RELAX * copies.flat(joint - possible, seen - inside))
    assert best is not None
    return best


def _splitting_start(
    problem: CorrelationProblem, copies: _Copies, heavy: FloatArray, local: bool, start: NearestCorrelation | None
) -> FloatArray:
    """The fixed point, were the projection onto the elliptope alone at `start` that onto both."""
    matrix = problem.given if start is None else start.matrix
    slope = problem.weight * (problem.given - matrix)
    np.fill_diagonal(slope, -np.einsum("ij,ji->i", slope, matrix))
    return copies.flat(matrix + slope / heavy, pair_coordinates(matrix) if local else np.zeros((0, 3)))


def _nearest_semidefinite(matrix: FloatArray) -> FloatArray:
    """The nearest positive semidefinite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    kept = vectors[:, values > 0]
    return np.asarray((kept * values[values > 0]) @ kept.T, dtype=np.float64)


_MAX_SIZE = 3000  # 72 MB a matrix, and an eigendecomposition of it at every step: n^3 takes many seconds there


def nearest_correlation(
    matrix: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    local: bool = False,
    tolerance: float = 1e-3,
    progress: Progress | None = None,
) -> NearestCorrelation:
    """The correlation matrix Y nearest to a symmetric (D, D) matrix A in the sum over i < j of weight (Y - A)^2.

    Diagonals are ignored: that of a correlation matrix is 1. weights: (D, D) symmetric and nonnegative, 0 where
    nothing is known (A may be NaN there, and Y is then one completion of several); equal if not given. With `local`
    the table of every two attributes is nonnegative too: 1 + s Y_0i + t Y_0j + s t Y_ij >= 0 for all signs s and t,
    where row 0 holds the means of single attributes.

    The distance from the result to the true projection is proved to be at most `tolerance` times the distance
    moved (or 1e-7 per entry, which is no distance), or `certified` is False. Weights of the form w_i w_j (equal
    ones, or one weight for the row of the means and one for the rest) take some Newton steps on the dual [QS06];
    other weights and `local` an accelerated splitting method. `progress` is called with the iteration and the gap
    proved by it. Raises InvalidInput.
    """
    given, weight = _check_correlation_input(matrix, weights)
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not 0 < tolerance < 1:
        raise InvalidInput(f"tolerance is a share of the distance moved, between 0 and 1, not {tolerance!r}")
    unit = float(weight[weight > 0].mean())
    weight /= unit
    scale, product = product_scale(weight)
    problem = CorrelationProblem(given, weight, scale, float(tolerance), progress)
    with single_thread():
        found = _solve_correlation(problem, local and len(given) > 2, product)
    return replace(found, gap=found.gap * unit, target=found.target * unit, moved=found.moved * float(np.sqrt(unit)))


def _solve_correlation(problem: CorrelationProblem, local: bool, product: bool) -> NearestCorrelation:
    if _is_in_body(problem.given, local):
        return problem.proof(problem.given, 0)
    start = newton_correlation(problem) if product else None
    if start is not None and (not local or _is_in_body(start.matrix, local)):
        # nearest among more matrices, and one of the fewer
        return start
    return split_correlation(problem, local, start)


def _is_in_body(matrix: FloatArray, local: bool) -> bool:
    """Whether a matrix is in the body up to rounding."""
    if float(np.linalg.eigvalsh(matrix)[0]) < -len(matrix) * EPS * float(np.linalg.norm(matrix)):
        return False
    return not local or float(pair_tables(pair_coordinates(matrix)).min()) >= -4 * EPS


def _check_correlation_input(matrix: ArrayLike, weights: ArrayLike | None) -> tuple[FloatArray, FloatArray]:
    given = _read_square_matrix(matrix, "the matrix of parities")
    size = len(given)
    if weights is None:
        weight = np.ones((size, size))
    else:
        weight = _read_square_matrix(weights, "weights")
        if len(weight) != size:
            raise InvalidInput(f"weights are of shape {weight.shape}; the matrix is of shape {given.shape}")
        if not (np.isfinite(weight).all() and weight.min() >= 0):
            raise InvalidInput("weights are finite and not negative: one over the variance of an entry, 0 if unknown")
    np.fill_diagonal(weight, 0.0)
    if not weight.any():
        raise InvalidInput("every weight is 0; give a positive one wherever an entry is known")
    # what has no weight is only a hint where to start
    given = np.where((weight > 0) | (np.abs(given) <= 1), given, 0.0)
    np.fill_diagonal(given, 1.0)
    if not np.isfinite(given).all():
        raise InvalidInput("the matrix has entries that are not finite; give them weight 0 to leave them out")
    if float(np.abs(given).max()) > 1e100:
        raise InvalidInput("the matrix has entries above 1e100; parities are given as shares of the total")
    return given, weight


def _read_square_matrix(given: ArrayLike, what: str) -> FloatArray:
    array = real_array(given, what).astype(np.float64)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or not 2 <= len(array) <= _MAX_SIZE:
        raise InvalidInput(f"{what} must be square, of 2 to {_MAX_SIZE:,} rows, not of shape {array.shape}")
    off = ~np.eye(len(array), dtype=bool)
    if not np.allclose(array[off], array.T[off], rtol=1e-9, atol=0, equal_nan=True):
        raise InvalidInput(f"{what} must be symmetric; give (A + A.T) / 2 of what is not")
    return 0.5 * (array + array.T)
