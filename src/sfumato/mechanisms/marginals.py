"""Residual marginals: the optimal noise for marginal tables in closed form, and tilted ones for unions. [XZK23]"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace

from sfumato.errors import PlanError
from sfumato.operators import LinearOperator
from sfumato.operators.base import FloatArray
from sfumato.plans import Design, Problem
from sfumato.privacy.unit import Neighbours
from sfumato.strategies.allocation import Effect, max_objective, sum_objective
from sfumato.strategies.residuals import Lift, Residuals, closure, component_powers
from sfumato.strategies.tilted import Product, Union, contrast, is_plain, optimise
from sfumato.workloads import QueryBlock

__all__ = ["designs"]

_MAX_SETS = 400_000
_LEAST_BITS, _BITS = 6, 13
_RECORDS_WANTED = 2.0**30
_MOST_FACTOR_BITS, _LEAST_FACTOR_BITS = 12, 4


def designs(problem: Problem) -> list[Design]:
    """Every attribute set below the asked ones, with the noise that minimises the weighted error.

    The first design compares cells with their mean; the second, for unions of prefixes, ranges and other
    matrices under Gaussian noise, has the best contrasts of every attribute.
    """
    asked = {q.attributes for q in problem.workload.blocks}
    if sum(2 ** len(a) for a in asked) > _MAX_SETS:
        raise PlanError("too many attribute sets for residuals in memory")
    design, reached = _design(problem, {})
    out = [replace(design, bound=_bound(problem, reached))]
    products = _products(problem)
    if products is not None:
        try:
            out.append(_design(problem, _contrasts(problem, products))[0])
        except PlanError:
            return out
    return out


def _design(problem: Problem, contrasts: Mapping[str, LinearOperator]) -> tuple[Design, float | None]:
    """(design, proved bound on the largest deviation of such designs) for contrasts of some attributes."""
    domain, sizes = problem.workload.domain, problem.sizes
    asked = {q.attributes for q in problem.workload.blocks}
    names = domain.ordered({a for s in asked for a in s})
    free_total = problem.unit.total_is_public
    lifts = {a: Lift.of(c) for a, c in contrasts.items()}
    effects = [e for e in _effects(problem, free_total, lifts) if e.sets]
    if not effects:
        raise PlanError("only the public total is asked; it needs no measurement")
    power = 1 if problem.noise == "laplace" else 2
    # contrasts of an attribute's own are scaled to unit price
    single = {a: 1.0 if a in lifts else (3 - power) * (n - 1) / n for a, n in sizes.items()}
    if problem.objective == "max":
        precision, reached = max_objective(effects, single, power)
    else:
        precision, reached = sum_objective(_summed(effects), single, power), None
    weighted = precision
    sets = tuple(s for s in closure(asked, names) if frozenset(s) in weighted or (free_total and not s))
    units = {s: math.prod(lifts[a].scale if a in lifts else float(sizes[a]) for a in s) for s in sets}

    def build(s: float) -> Residuals:
        multiples = tuple(
            max(1, round(s * precision[frozenset(x)] / units[x])) if frozenset(x) in weighted else 0 for x in sets
        )
        own = tuple(contrasts.get(a) for a in names) if contrasts else ()
        return Residuals(names, tuple(sizes[a] for a in names), sets, multiples, own)

    coarsest = max(units[s] / precision[frozenset(s)] for s in sets if frozenset(s) in weighted)
    largest = max(precision.values())
    bits = _BITS
    # finer multiples leave less room for large counts in 62 bits; give up fineness before room
    while bits > _LEAST_BITS and 2.0**62 / (2.0**bits * coarsest * largest) < _RECORDS_WANTED:
        bits -= 1
    return Design("marginals", build, 2.0**bits * coarsest), reached


def _products(problem: Problem) -> list[Product] | None:
    """The blocks as products over attributes, where tilts may pay: several tables, and other factors than cells."""
    asked = {q.attributes for q in problem.workload.blocks}
    if problem.noise == "laplace" or len(asked) < 2 or len({a for s in asked for a in s}) < 2:
        return None
    products: list[Product] = []
    for q in problem.workload.blocks:
        factors = q.block.by_attribute()
        if factors is None:
            return None
        products.append((problem.objective_weight(q), factors))
    ordered = any(problem.sizes[a] > 2 and not is_plain(f) for _, factors in products for a, f in factors.items())
    return products if ordered else None


def _contrasts(problem: Problem, products: list[Product]) -> dict[str, LinearOperator]:
    union = Union(products, problem.sizes, free_total=problem.unit.total_is_public)
    shapes = optimise(union)
    order = max(sum(union.names[i] in factors for i in union.tilted) for _, factors in products)
    # several factors share the room that large counts leave
    scale = 2.0 ** max(_MOST_FACTOR_BITS - 2 * (order - 1), _LEAST_FACTOR_BITS)
    return {union.names[i]: contrast(shape, scale) for i, shape in shapes.items()}


def _effects(problem: Problem, free_total: bool, lifts: Mapping[str, Lift]) -> list[Effect]:
    """Per block what a unit of variance on each residual set does to the weighted variances of its queries."""
    out: list[Effect] = []
    sizes = problem.sizes
    for q in problem.workload.blocks:
        parts = [
            component_powers(f, tuple(sizes[a] for a in g), 2, tuple(lifts.get(a) for a in g))
            for g, f in zip(q.block.groups, q.block.factors, strict=True)
        ]
        sets: dict[frozenset[str], tuple[FloatArray, ...]] = {}
        for choice in itertools.product(*parts):
            sums = tuple(p[t] for p, t in zip(parts, choice, strict=True))
            names = frozenset(g[i] for g, t in zip(q.block.groups, choice, strict=True) for i in t)
            if all(v.any() for v in sums) and all(sizes[a] > 1 for a in names) and (names or not free_total):
                sets[names] = sums
        out.append(Effect(problem.objective_weight(q), tuple(f.shape[0] for f in q.block.factors), sets))
    return out


def _summed(effects: list[Effect]) -> dict[frozenset[str], float]:
    """Per residual set the sum over all queries of the weighted variance that a unit of its variance causes."""
    out: dict[frozenset[str], float] = {}
    for effect in effects:
        for names, sums in effect.sets.items():
            means = math.prod(float(v.mean()) * n for v, n in zip(sums, effect.rows, strict=True))
            out[names] = out.get(names, 0.0) + effect.weight * means
    return out


def _bound(problem: Problem, reached: float | None) -> float | None:
    """A proved bound on the objective at multiplier 1 from the marginal tables among the queries.

    Objective "max": the dual value `reached`, where all queries are marginal tables under add-remove.

    Add-remove: the closed form, which is the optimum for marginals. Replace-one: the pair bound with
    equal weights on all pairs, sqrt(2 / (m - 1)) times the nuclear norm of the centred workload.
    """
    tables = [q for q in problem.workload.blocks if q.is_marginal]
    if not tables:
        return None
    if problem.objective == "max":
        optimal = problem.unit.neighbours is Neighbours.ADD_REMOVE and len(tables) == len(problem.workload.blocks)
        return reached if optimal else None
    sizes = problem.sizes
    names = {a for q in tables for a in q.attributes}
    log_cells = math.fsum(math.log(sizes[a]) for a in names)
    nuclear = math.fsum(
        math.exp(0.5 * log_value + math.fsum(math.log(sizes[a] - 1) for a in s) - 0.5 * log_cells)
        for s, log_value in _log_eigenvalues(problem, tables, log_cells).items()
        if not (problem.unit.total_is_public and not s) and all(sizes[a] > 1 for a in s)
    )
    if not problem.unit.total_is_public:
        return nuclear if problem.unit.neighbours is Neighbours.ADD_REMOVE else None
    if nuclear == 0.0:
        return None  # the only table is the public total
    # nuclear norm of W C is nuclear * sqrt(m)
    ratio = math.exp(log_cells) / (math.exp(log_cells) - 1) if log_cells < 36 else 1.0
    return nuclear * math.sqrt(2 * ratio)


def _log_eigenvalues(problem: Problem, tables: list[QueryBlock], log_cells: float) -> dict[frozenset[str], float]:
    """log of the eigenvalue of the weighted Gram matrix on each residual space."""
    sums: dict[frozenset[str], float] = {}
    for q in tables:
        # relative to the number of cells, so that nothing overflows
        value = problem.objective_weight(q) / math.prod(problem.sizes[a] for a in q.attributes)
        for r in range(len(q.attributes) + 1):
            for s in itertools.combinations(q.attributes, r):
                sums[frozenset(s)] = sums.get(frozenset(s), 0.0) + value
    return {s: math.log(v) + log_cells for s, v in sums.items()}
