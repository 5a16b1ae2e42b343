"""Random unions of products over three small attributes, and their dense matrices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from fractions import Fraction
from functools import reduce

import numpy as np

from sfumato.domain import Domain, Integers
from sfumato.operators import Block, Grouping, Identity, LinearOperator, Prefix, Sparse, Stack, Total
from sfumato.operators.base import FloatArray
from sfumato.privacy.budget import Budget
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies.design import Problem
from sfumato.strategies.strategy import marginalise
from sfumato.strategies.union import Product
from sfumato.workloads import QueryBlock, Workload

__all__ = [
    "DOMAIN",
    "SIZES",
    "UNIT",
    "beside_counts",
    "dense",
    "factor_of",
    "matrix_of",
    "named",
    "problem_of",
    "random_products",
    "some_products",
]

SIZES = {"a": 6, "b": 4, "c": 2}
DOMAIN = Domain({n: Integers(0, k - 1) for n, k in SIZES.items()})
UNIT = PrivacyUnit(Neighbours.ADD_REMOVE)


def factor_of(n: int, rng: np.random.Generator) -> LinearOperator:
    groups = max(1, n // 2)
    options: list[LinearOperator] = [
        Identity(n),
        Total(n),
        Grouping(np.arange(n) // 2, (n + 1) // 2),
        Grouping(rng.integers(0, groups, n), groups),
        Grouping(np.arange(n) % 2 - 1, 1),
        Sparse.from_cells([[0], list(range(n))], n),
        Stack((Grouping(np.arange(n) // 2, (n + 1) // 2), Identity(n))),
        Prefix(n),
    ]
    return options[rng.integers(len(options))]


def random_products(rng: np.random.Generator) -> list[Product]:
    """A few products over some of the attributes each, from few factors, so that they repeat themselves."""
    few = {a: [factor_of(n, rng) for _ in range(2)] for a, n in SIZES.items()}
    out: list[Product] = []
    for _ in range(rng.integers(2, 5)):
        names = [a for a in SIZES if rng.random() < 0.7] or ["a"]
        out.append((float(rng.integers(1, 5)), {a: few[a][rng.integers(2)] for a in names}))
    return out


def beside_counts(seed: int) -> list[Product]:
    """Tables of all pairs of attributes, and counts of random sets of cells that weigh more."""
    rng = np.random.default_rng(seed)
    out: list[Product] = [(1.0, {a: Identity(SIZES[a]) for a in pair}) for pair in itertools.combinations(SIZES, 2)]
    for _ in range(2):
        cells = {a: rng.choice(n, int(rng.integers(1, n)), replace=False) for a, n in SIZES.items()}
        out.append((100.0, {a: Sparse.from_cells([some], SIZES[a]) for a, some in cells.items()}))
    return out


def some_products(seed: int) -> list[Product]:
    return random_products(np.random.default_rng(seed)) if seed % 2 else beside_counts(seed)


def dense(products: list[Product], names: list[str]) -> FloatArray:
    def one(factors: Mapping[str, LinearOperator]) -> FloatArray:
        parts = [np.asarray((factors.get(a) or Total(SIZES[a])).dense(), dtype=np.float64) for a in names]
        return np.asarray(reduce(np.kron, parts), dtype=np.float64)

    return np.concatenate([math.sqrt(w) * one(f) for w, f in products])


def named(products: list[Product]) -> list[str]:
    return [a for a in SIZES if any(a in f for _, f in products)]


def problem_of(products: list[Product], unit: PrivacyUnit = UNIT) -> Problem:
    blocks = [
        QueryBlock(f"part {i}", Block(tuple((a,) for a in f), tuple(f.values())), weight=Fraction(w))
        for i, (w, f) in enumerate(products)
    ]
    return Problem(Workload(DOMAIN, tuple(blocks)), Budget.gdp(1), unit, "gaussian", "cells")


def matrix_of(block: Block, names: list[str]) -> FloatArray:
    """A block over all cells of the named attributes, (rows, cells), by feeding unit tables."""
    shape = [SIZES[a] for a in names]
    units = np.eye(math.prod(shape), dtype=np.int64)
    return np.stack([np.asarray(marginalise(u.reshape(shape), names, block), dtype=np.float64) for u in units], axis=1)
