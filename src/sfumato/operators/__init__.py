"""Structured linear algebra, usable alone: numpy and, for sparse matrices, scipy."""

from sfumato.operators.base import Identity, LinearOperator, Residual, Total
from sfumato.operators.compose import Compose, Grouping, Kronecker, Padded, Scaled, Stack, Sum
from sfumato.operators.explicit import Dense, Sparse
from sfumato.operators.marginal import Block, Combination, Family, OnMarginal
from sfumato.operators.structured import AllRange, Prefix, Toeplitz, Tree, Window

__all__ = [
    "AllRange",
    "Block",
    "Combination",
    "Compose",
    "Dense",
    "Family",
    "Grouping",
    "Identity",
    "Kronecker",
    "LinearOperator",
    "OnMarginal",
    "Padded",
    "Prefix",
    "Residual",
    "Scaled",
    "Sparse",
    "Stack",
    "Sum",
    "Toeplitz",
    "Total",
    "Tree",
    "Window",
]
