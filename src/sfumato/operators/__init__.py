"""Structured linear algebra, usable alone: numpy and, for sparse matrices, scipy."""

from sfumato.operators.base import LinearOperator
from sfumato.operators.basic import Identity, Residual, Total
from sfumato.operators.combination import Combination
from sfumato.operators.compose import Compose, Kronecker, Scaled, Stack, Sum
from sfumato.operators.explicit import Dense, Sparse
from sfumato.operators.family import Family
from sfumato.operators.grouping import Grouping, Padded
from sfumato.operators.marginal import Block, OnMarginal
from sfumato.operators.ordered import AllRange, Prefix, Window
from sfumato.operators.toeplitz import Toeplitz
from sfumato.operators.tree import Tree

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
