"""Synthetic records with about the parities of a correlation matrix."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.errors import InvalidInput
from sfumato.estimate.elliptope.certificate import EPS
from sfumato.operators.base import real_array

__all__ = ["sign_records"]


def sign_records(matrix: ArrayLike, records: int, rng: int | np.random.Generator | None = None) -> NDArray[np.bool_]:
    """(records, d) synthetic records with about these parities: signs of Gaussian vectors of that covariance [GW95].

    Biased: a parity Y becomes (2 / pi) arcsin Y in expectation, which is Y at -1, 0 and 1 alone. matrix: (D, D),
    positive semidefinite with unit diagonal, row 0 standing for no attribute. True is an attribute's second cell.
    Post-processing of what is public: `rng` seeds the draw. Raises InvalidInput.
    """
    given = real_array(matrix, "the matrix of parities").astype(np.float64)
    if given.ndim != 2 or given.shape[0] != given.shape[1] or len(given) < 2 or not np.isfinite(given).all():
        raise InvalidInput(f"the matrix of parities must be square and finite, not of shape {given.shape}")
    if isinstance(records, bool) or not isinstance(records, (int, np.integer)) or records < 0:
        raise InvalidInput(f"records is a whole number, not {records!r}")
    values, vectors = np.linalg.eigh(0.5 * (given + given.T))
    if values[0] < -1e-6 * max(values[-1], 1.0):
        raise InvalidInput(
            f"the matrix has the eigenvalue {values[0]:.3g}; project it first, so that it is positive semidefinite"
        )
    # what rounding made of eigenvalues 0 would break ties between attributes that are always alike
    values = np.where(values > len(given) * EPS * values[-1], values, 0.0)
    root = vectors * np.sqrt(values)
    drawn = np.random.default_rng(rng).standard_normal((int(records), len(given))) @ root.T
    return np.asarray((drawn[:, 1:] >= 0) == (drawn[:, :1] >= 0))
