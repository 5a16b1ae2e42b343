"""A semismooth Newton method for the nearest correlation matrix with weights w_i w_j [QS06]."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sfumato.estimate.elliptope.certificate import NearestCorrelation, Problem, feasible
from sfumato.operators.base import FloatArray

__all__ = ["newton"]

_MAX_ITERATIONS = 60  # Newton converges quadratically in the end; what ends here says its gap
_MAX_CONJUGATE = 100  # an inexact step is a step of descent still; more products cost more than another step
_MAX_HALVINGS = 30  # 2^-30 of a step: below, rounding of the height hides any descent
_ARMIJO = 1e-4  # the usual small share of the promised descent; any below 1/2 keeps full steps near the end


def newton(problem: Problem) -> NearestCorrelation:
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
        part, gradient, height = _point(values, vectors, goal, dual)
        state = problem.proof(feasible(part / np.multiply.outer(root, root), local=False), iteration)
        if best is None or state.gap < best.gap:
            best = state
        if state.certified:
            break
        step = _direction(values, vectors, gradient)
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


def _point(
    values: FloatArray, vectors: FloatArray, goal: FloatArray, dual: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """The positive part, the gradient and the value of the dual."""
    positive = np.maximum(values, 0)
    kept = vectors[:, positive > 0]
    part = (kept * positive[positive > 0]) @ kept.T
    part = 0.5 * (part + part.T)
    return part, np.diag(part) - goal, 0.5 * float(positive @ positive) - float(goal @ dual)


def _direction(values: FloatArray, vectors: FloatArray, gradient: FloatArray) -> FloatArray:
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
    return _conjugate(curvature, diagonal, gradient)


def _conjugate(curvature: Callable[[FloatArray], FloatArray], diagonal: FloatArray, gradient: FloatArray) -> FloatArray:
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
