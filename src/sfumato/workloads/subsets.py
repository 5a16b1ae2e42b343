"""Queries about every subset of some binary attributes: disjunctions, conjunctions, parities."""

from __future__ import annotations

import functools
import itertools
import operator

import numpy as np

from sfumato.domain import Booleans, Domain
from sfumato.errors import WorkloadError
from sfumato.operators import Block, Dense, Kronecker, LinearOperator, Scaled, Sum
from sfumato.workloads.core import QueryBlock, Workload

__all__ = ["conjunctions", "disjunctions", "parities"]

_MAX_PRODUCT = 30  # 2^30 queries, as Kronecker products
_MAX_JOINT = 14  # 2^28 entries: these are no product of factors, so their errors are had row by row


def disjunctions(d: int) -> Workload:
    """For every set of d binary attributes x1, ..., xd, the number of records with at least one of them true.

    2^d queries over 2^d cells. Bit by bit, x1 first, the number of a query says which attributes are in its set; so
    query 0 is the empty set, whose answer is 0. Raises WorkloadError unless d is a whole number from 1 to 14.
    """
    domain = _domain(d, _MAX_JOINT)
    every = Kronecker((Dense(np.ones((2, 2), dtype=np.int64)),) * d)
    none = Kronecker((Dense(np.array([[1, 1], [1, 0]])),) * d)
    sets = itertools.product((False, True), repeat=d)
    labels = tuple(" or ".join(itertools.compress(domain.names, chosen)) or "nothing" for chosen in sets)
    matrix: LinearOperator = Sum((every, Scaled(none, -1)))
    block = Block((domain.names,), (matrix,))
    return Workload(domain, (QueryBlock("disjunctions", block, labels=(labels,)),))


def conjunctions(d: int) -> Workload:
    """For every set of d binary attributes x1, ..., xd, the number of records with all of them true.

    2^d queries over 2^d cells, numbered as in `disjunctions`; query 0 is the total. They are a Kronecker product of
    one factor per attribute. Raises WorkloadError unless d is a whole number from 1 to 30.
    """
    return _product(d, "conjunctions", np.array([[1, 1], [0, 1]]))


def parities(d: int) -> Workload:
    """For every set S of d binary attributes, the sum over the records of -1 to the power of how many in S are true.

    2^d queries over 2^d cells, numbered as in `disjunctions`; query 0 is the total. They are a Kronecker product of
    one factor per attribute. Raises WorkloadError unless d is a whole number from 1 to 30.
    """
    return _product(d, "parities", np.array([[1, 1], [1, -1]]))


def _product(d: int, part: str, factor: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> Workload:
    domain = _domain(d, _MAX_PRODUCT)
    single = (
        Workload(domain, (QueryBlock(part, Block(((name,),), (Dense(factor),)), labels=(("", name),)),))
        for name in domain.names
    )
    return functools.reduce(operator.mul, single)


def _domain(d: int, most: int) -> Domain:
    if isinstance(d, bool) or not isinstance(d, int) or not 1 <= d <= most:
        raise WorkloadError(f"d is the number of binary attributes, a whole number from 1 to {most}, not {d!r}")
    return Domain({f"x{i + 1}": Booleans() for i in range(d)})
