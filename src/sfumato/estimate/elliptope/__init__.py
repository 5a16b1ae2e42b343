"""Binary attributes: the nearest correlation matrix to the noisy parities of single attributes and of pairs.

Written as y = (1, x) in {-1, 1}^D, a record with D - 1 binary attributes has the one- and two-way parities y_i y_j,
and their means over a table are the entries of the average of y y^T. Every such matrix is positive semidefinite with
unit diagonal: a point of the elliptope, which holds the cut polytope (what tables can give) and, unlike it, can be
projected on in polynomial time.
"""

from sfumato.estimate.elliptope.certificate import NearestCorrelation
from sfumato.estimate.elliptope.nearest import elliptope
from sfumato.estimate.elliptope.parities import parity_adjoint, parity_answers, parity_matrix

__all__ = [
    "NearestCorrelation",
    "elliptope",
    "parity_adjoint",
    "parity_answers",
    "parity_matrix",
]
