"""Unions of Kronecker products over a few named attributes, as strategies of them are tested."""

from __future__ import annotations

import numpy as np

import sfumato as sf
from sfumato.operators import Block, LinearOperator
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies.design import Problem
from sfumato.workloads import QueryBlock, Workload
from sfumato.workloads.core import block_on_domain

UNIT = PrivacyUnit(Neighbours.ADD_REMOVE)


def union_of(products: list[dict[str, LinearOperator]], sizes: dict[str, int]) -> Workload:
    """A workload of products, each by its factors on some attributes."""
    domain = sf.Domain({n: sf.Categories([str(j) for j in range(k)]) for n, k in sizes.items()})
    blocks = [QueryBlock("part", Block(tuple((n,) for n in f), tuple(f.values()))) for f in products]
    return Workload(domain, tuple(blocks))


def mean_problem(work: Workload) -> Problem:
    """Its mean squared error under Gaussian noise, of a record more or less."""
    return Problem(work, sf.gdp(1), UNIT, "gaussian", "cells")


def on_domain(work: Workload, block: Block) -> np.ndarray:
    """A block as a matrix over all joint cells."""
    return np.asarray(block_on_domain(work.domain, block).dense(), dtype=np.float64)
