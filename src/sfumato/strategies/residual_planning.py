"""Residual marginals: the optimal noise for marginal tables in closed form, and tilted ones for unions. [XZK23]"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.errors import PlanError
from sfumato.operators import LinearOperator
from sfumato.operators.base import FloatArray, real_array
from sfumato.privacy.unit import Neighbours
from sfumato.strategies.attribute_sets import Sets, downward_closure
from sfumato.strategies.covariance import Lift, component_powers
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.grouped_residuals import allocate_grouped_residuals
from sfumato.strategies.residual_allocation import Effect, max_objective, sum_objective
from sfumato.strategies.residual_tables import ResidualAllocation, allocate_residuals, extreme_rows
from sfumato.strategies.residuals import Residuals
from sfumato.strategies.stacked import planned_jointly
from sfumato.strategies.strategy import Known
from sfumato.strategies.tilted import (
    Product,
    TiltedUnion,
    TiltShape,
    Union,
    integer_contrast,
    is_plain,
    optimise_shapes,
)
from sfumato.strategies.tilted_bounds import LargestErrorUnion, optimise_largest, union_bound
from sfumato.workloads import QueryFamily

_MAX_SETS = 400_000  # sets below the asked ones, with some arrays each: they are held in memory one by one
_TOLERANCE = 1e-4  # of the largest variance, where other factors than cells make no optimum anyway
_LEAST_BITS, _BITS = 6, 13  # of the least multiple: rounded by a 128th at the worst, by a 16,000th where there is room
# where records are replaced, some changes cost most together and the price is that of the one rounding favoured least:
# a millionth is no more than the search leaves
_FINE_BITS = 20
_RECORDS_WANTED = 2.0**30  # a thousand million records: counts of theirs, times the multiples, fit 62 bits
# powers of the weights of the cells that prove a bound: those of the best shapes are the best ones where all attributes
# have shapes of their own, and too uneven by about this much where plain ones go with them
_EVENED = (1.0, 0.75)
_MOST_FACTOR_BITS, _LEAST_FACTOR_BITS = 12, 4  # of a contrast: one factor alone, and of many that share the room


def design_residual_marginals(problem: Problem) -> list[Design]:
    """Every attribute set below the asked ones, with the noise that minimises the weighted error.

    Cells are compared with their mean, which is the best for marginal tables alone.
    """
    if problem.is_marginal:
        return _design_marginal_tables(problem)
    asked = {q.attributes for q in problem.workload.blocks}
    if sum(2 ** len(a) for a in asked) > _MAX_SETS:
        raise PlanError("too many attribute sets for residuals in memory")
    return [replace(_design_with_contrasts(problem, {}), bound=tables_bound(problem))]


def tilted_jointly(problem: Problem) -> Design:
    """With the best contrasts of every attribute: for unions of prefixes, ranges and other matrices, Gaussian noise.

    Attributes that a query joins are one. Raises PlanError where that does not apply.
    """
    return planned_jointly(problem, tilted_design)


def tilted_design(problem: Problem) -> Design:
    """The same over single attributes."""
    products = _tiltable_products(problem)
    if products is None:
        raise PlanError("tilts are for several tables with other factors than cells, under Gaussian noise")
    return _design_tilted(problem, products)


def _design_marginal_tables(problem: Problem) -> list[Design]:
    """For marginal tables alone: arrays throughout, and the optimum.

    Where records are replaced and the changes of one are too many to be gone through, the price is a bound, better
    the nearer shares of noise are to products over attributes. Those of the other relation are nearer than the best
    ones and may end up cheaper, so they are priced too.
    """
    if problem.unit.once_per:
        return _design_grouped_tables(problem)
    found = [_allocate_marginals(problem)]
    if not found[0].priced:
        found.append(_allocate_marginals(problem, replaced=False))
    replaced = problem.unit.neighbours is Neighbours.REPLACE_ONE and problem.power == 2
    bits, none_cut = (_FINE_BITS, problem.largest) if replaced else (_BITS, False)
    each = [residual_design(problem, f.sets, f.precision, bits=bits, none_cut=none_cut) for f in found]
    return [replace(design, bound=found[0].bound) for design in each]


def _design_grouped_tables(problem: Problem) -> list[Design]:
    """The same for persons whose rows are counted once per group: the optimum under Gaussian noise.

    Beside it stands the noise that is best for rows anywhere: it is all there is for other noise, and where the
    attributes are too many. Under Laplace noise nothing moves: r rows cost r times one in every measured table.
    """
    replaced = problem.unit.neighbours is Neighbours.REPLACE_ONE and problem.power == 2
    anywhere = [_allocate_marginals(problem, replaced=way) for way in ((False, True) if replaced else (False,))]
    bits = _FINE_BITS if replaced else _BITS
    found = [replace(residual_design(problem, f.sets, f.precision, bits=bits), bound=None) for f in anywhere]
    if problem.power == 2:
        domain = problem.workload.domain
        objective = "max" if problem.largest else "mean"
        with contextlib.suppress(PlanError):
            best = allocate_grouped_residuals(
                _asked_tables(problem), domain.names, domain.shape, problem.unit, objective
            )
            made = [
                residual_design(problem, b.sets, b.precision, bits=_FINE_BITS, none_cut=problem.largest) for b in best
            ]
            found += [replace(d, bound=b.bound or None, grouped=True) for d, b in zip(made, best, strict=True)]
    return found


def _asked_tables(problem: Problem) -> list[tuple[Sets, FloatArray]]:
    """The marginal tables among the queries, as sets of attributes with their weights."""
    names = problem.workload.domain.names
    tables: list[tuple[Sets, FloatArray]] = []
    for item in problem.workload.items:
        if not item.is_marginal:
            continue
        if isinstance(item, QueryFamily):
            sets = item.family.sets
        else:
            axes = sorted(names.index(a) for a in item.attributes)
            sets = np.array([axes], dtype=np.int32).reshape(1, len(axes))
        tables.append((sets, problem.table_weights(item)))
    return tables


def _allocate_marginals(problem: Problem, *, replaced: bool = True) -> ResidualAllocation:
    """The best noise for the marginal tables among the queries."""
    return allocate_residuals(
        _asked_tables(problem),
        problem.workload.domain.shape,
        objective="max" if problem.largest else "mean",
        power=problem.power,
        free_total=problem.unit.total_is_public,
        known=_known_sets(problem),
        replaced=replaced and problem.unit.neighbours is Neighbours.REPLACE_ONE,
    )


def _design_with_contrasts(problem: Problem, contrasts: Mapping[str, LinearOperator]) -> Design:
    """Residuals with the contrasts of some attributes, best for a record more or less."""
    sizes = problem.sizes
    free_total = problem.unit.total_is_public
    lifts = {a: Lift.of(c) for a, c in contrasts.items()}
    effects = [e for e in _residual_effects(problem, free_total, lifts) if e.sets]
    if not effects:
        raise PlanError("all that is asked is public; it needs no measurement")
    power = problem.power
    # contrasts of an attribute's own are scaled to unit price
    single = {a: 1.0 if a in lifts else (3 - power) * (n - 1) / n for a, n in sizes.items()}
    if problem.largest:
        precision, _ = max_objective(extreme_rows(effects), single, power, _TOLERANCE)
    else:
        precision = sum_objective(_sum_effects(effects), single, power)
    names = problem.workload.domain.names
    place = {a: i for i, a in enumerate(names)}
    by_order: dict[int, list[tuple[tuple[int, ...], float]]] = {}
    for held, value in precision.items():
        axes = tuple(sorted(place[a] for a in held))
        by_order.setdefault(len(axes), []).append((axes, value))
    sets, values = [], []
    for order in range(max(by_order) + 1):
        rows = sorted(by_order.get(order, []))
        sets.append(np.array([axes for axes, _ in rows], dtype=np.int32).reshape(len(rows), order))
        values.append(np.array([v for _, v in rows]))
    own = tuple(contrasts.get(a) for a in names) if contrasts else ()
    return residual_design(problem, sets, values, own)


def residual_design(
    problem: Problem,
    sets: Sequence[NDArray[np.int32]],
    precision: Sequence[FloatArray],
    contrasts: tuple[LinearOperator | None, ...] = (),
    *,
    bits: int = _BITS,
    none_cut: bool = False,
) -> Design:
    """Residuals of the sets (per order, lexicographic) whose noise deviations are 1 / precision at unit price.

    The least multiple has so many `bits` where there is room. Multiples are rounded to the nearest integer, or up with
    `none_cut`: the largest error is that of the multiple cut most, while what others gain is paid for on average.
    """
    names = problem.workload.domain.names
    shape = problem.workload.domain.shape
    lifts = [None if c is None else Lift.of(c) for c in contrasts] or [None] * len(names)
    own = np.array([float(n) if lift is None else lift.scale for lift, n in zip(lifts, shape, strict=True)])
    units = [own[s].prod(axis=1) for s in sets]

    # what is public is part of the tables but not of the measurement; totals of groups are for trees alone
    known, tables = _known_sets(problem), tuple(k for k in problem.known if isinstance(k, Known))
    rounded = np.ceil if none_cut else np.rint

    def build(s: float) -> Residuals:
        multiples = [np.maximum(1, rounded(s * p / u)).astype(np.int64) for p, u in zip(precision, units, strict=True)]
        held = list(sets)
        for order, extra in enumerate(known):
            if order == len(held):
                held.append(np.empty((0, order), dtype=np.int32))
                multiples.append(np.empty(0, dtype=np.int64))
            joined = np.concatenate([held[order], extra])
            first = np.lexsort(joined.T[::-1]) if order else np.arange(len(joined))
            held[order] = joined[first]
            multiples[order] = np.concatenate([multiples[order], np.zeros(len(extra), dtype=np.int64)])[first]
        return Residuals(names, shape, tuple(held), tuple(multiples), contrasts, tables)

    coarsest = max(float((u / p).max()) for p, u in zip(precision, units, strict=True) if len(p))
    # the largest entry of every attribute's contrasts, relative to their scale
    peak = np.array(
        [1.0 if c is None else c.max_abs / u for c, u in zip(contrasts or [None] * len(names), own, strict=True)]
    )
    largest = max(float((p * peak[s].prod(axis=1)).max()) for p, s in zip(precision, sets, strict=True) if len(p))
    # finer multiples leave less room for large counts in 62 bits, one of which the noise's power of two may take;
    # give up fineness before room
    while bits > _LEAST_BITS and 2.0**61 / (2.0**bits * coarsest * largest) < _RECORDS_WANTED:
        bits -= 1
    return Design("marginals", build, 2.0**bits * coarsest, notes=_public_table_notes(problem))


def _public_table_notes(problem: Problem) -> tuple[str, ...]:
    """What is taken as exact from elsewhere."""
    names = problem.workload.domain.names
    tables = [", ".join(names[a] for a in k.axes) or "the total" for k in problem.known]
    return tuple(f"taken as exact from elsewhere, and not measured: the table of {t}" for t in tables)


def _known_sets(problem: Problem) -> tuple[Sets, ...]:
    """Per order the sets whose residuals are public."""
    given = [np.array([k.axes], dtype=np.int32).reshape(1, -1) for k in problem.known]
    if problem.unit.total_is_public:
        given.append(np.empty((1, 0), dtype=np.int32))
    return downward_closure(given, len(problem.workload.domain.names))


def _tiltable_products(problem: Problem) -> list[Product] | None:
    """The blocks as products over attributes, where tilts may pay: other factors than cells, and several blocks.

    One block alone has a product strategy of least mean error, but none of least largest error; several have none, of
    the same attributes too.
    """
    blocks = problem.workload.blocks
    several = len(blocks) > 1 and len({a for q in blocks for a in q.attributes}) > 1
    if problem.noise == "laplace" or not (several or problem.largest):
        return None
    products = problem.products
    if products is None:
        return None
    ordered = any(problem.sizes[a] > 2 and not is_plain(f) for _, factors in products for a, f in factors.items())
    return list[Product](products) if ordered else None


def _design_tilted(problem: Problem, products: list[Product]) -> Design:
    """Residuals with the best contrasts of every attribute, and the proved bound that their search knows of."""
    union, shapes = _optimal_shapes(problem, products)
    order = max(sum(union.names[i] in factors for i in union.tilted) for _, factors in products)
    # several factors share the room that large counts leave
    scale = 2.0 ** max(_MOST_FACTOR_BITS - 2 * (order - 1), _LEAST_FACTOR_BITS)
    design = _design_with_contrasts(
        problem, {union.names[i]: integer_contrast(shape, scale) for i, shape in shapes.items()}
    )
    if problem.known:
        return design
    witnesses, weights = union.witness(shapes)
    public = problem.unit.total_is_public
    evened = [{a: v**p for a, v in weights.items()} for p in _EVENED[: 1 if public else None]]
    proved = [union_bound(witnesses, problem.sizes, weights=w, replaced=public) for w in evened]
    bound = max((b for b in proved if b is not None), default=None)
    if bound is not None and problem.largest and isinstance(union, Union):
        bound /= math.sqrt(len(problem.workload))  # the largest is at least the mean
    return replace(design, bound=bound)


def _optimal_shapes(problem: Problem, products: list[Product]) -> tuple[TiltedUnion, dict[int, TiltShape]]:
    free_total = problem.unit.total_is_public
    if problem.largest:
        with contextlib.suppress(PlanError):  # too many rows to go through; the best for the mean is not far off
            largest = LargestErrorUnion(products, problem.sizes, free_total=free_total)
            return largest, optimise_largest(largest)
    union = Union(products, problem.sizes, free_total=free_total)
    return union, optimise_shapes(union)


def _residual_effects(problem: Problem, free_total: bool, lifts: Mapping[str, Lift]) -> list[Effect]:
    """Per block what a unit of variance on each residual set does to the weighted variances of its queries."""
    out: list[Effect] = []
    sizes = problem.sizes
    known: dict[tuple[tuple[str, ...], int], dict[tuple[int, ...], FloatArray]] = {}
    for q in problem.workload.blocks:
        parts: list[dict[tuple[int, ...], FloatArray]] = []
        for g, f in zip(q.block.groups, q.block.factors, strict=True):
            if (g, id(f)) not in known:
                chosen = tuple(lifts.get(a) for a in g)
                known[g, id(f)] = component_powers(f, tuple(sizes[a] for a in g), 2, chosen)
            parts.append({t: v for t, v in known[g, id(f)].items() if v.any()})
        sets: dict[frozenset[str], tuple[FloatArray, ...]] = {}
        for choice in itertools.product(*parts):
            sums = tuple(p[t] for p, t in zip(parts, choice, strict=True))
            names = frozenset(g[i] for g, t in zip(q.block.groups, choice, strict=True) for i in t)
            noisy = (names or not free_total) and not problem.is_known(names)
            if noisy and all(sizes[a] > 1 for a in names):
                sets[names] = sums
        out.append(Effect(problem.objective_weight(q), tuple(f.shape[0] for f in q.block.factors), sets))
    return out


def _sum_effects(effects: list[Effect]) -> dict[frozenset[str], float]:
    """Per residual set the sum over all queries of the weighted variance that a unit of its variance causes."""
    out: dict[frozenset[str], float] = {}
    # sets share the sums of their factors, which the effects hold
    mean: dict[int, float] = {}
    for effect in effects:
        for names, sums in effect.sets.items():
            means = 1.0
            for v, n in zip(sums, effect.rows, strict=True):
                if id(v) not in mean:
                    mean[id(v)] = float(v.mean())
                means *= mean[id(v)] * n
            out[names] = out.get(names, 0.0) + effect.weight * means
    return out


def tables_bound(problem: Problem) -> float | None:
    """A proved bound on the sum objective at multiplier 1 from the marginal tables among the queries."""
    if problem.largest or problem.known or not any(i.is_marginal for i in problem.workload.items):
        return None
    try:
        return _allocate_marginals(problem).bound
    except PlanError:
        return None  # the only table is the public total


_MOST_CELLS = 20_000  # possible or not, of attributes that predicates tie: a linear program of a second
_APART = 1e-6  # of the records: what a linear program leaves
_TOLERANCE_PUBLIC = 1e-9  # relative: public counts that sums of doubles tell apart by more do not agree


def read_public(domain: Domain, public: Mapping[Any, Any] | None) -> tuple[Known, ...]:
    """Tables by their attributes: {("state",): counts, ("state", "sex"): counts}, one count per cell.

    The guarantee does not depend on them, as they are said to be public whatever the table holds. Tables
    that were computed from the sensitive table itself must not be given: to publish those exactly is a
    release without noise, which no budget covers. Raises PlanError for tables that contradict each other, or what
    the domain declares impossible.
    """
    if public is None:
        return ()
    if not isinstance(public, Mapping):
        raise PlanError(f"public= maps sets of attributes to tables of counts, not {type(public).__name__}")
    tables: dict[tuple[int, ...], FloatArray] = {}
    for names, counts in public.items():
        asked = (names,) if isinstance(names, str) else tuple(names)
        levels = [n for n in asked if n in domain.levels]
        if levels:
            raise PlanError(
                f"{levels[0]} is a level of {domain.owner(levels[0])}: totals of its groups are public only where "
                f"records are replaced within these, neighbours='replace-one within {levels[0]}'. Otherwise public= "
                "takes tables over the cells of attributes, known from elsewhere"
            )
        given = domain.check_names(asked)
        axes = tuple(sorted(domain.axis(a) for a in given))
        if axes in tables:
            raise PlanError(f"public= holds the table of {', '.join(given) or 'the total'} twice")
        tables[axes] = _read_public_table(domain, given, counts)
        _check_cells_possible(domain, axes, tables[axes])
    for (a, first), (b, second) in itertools.combinations(tables.items(), 2):
        _check_tables_agree(domain, a, first, b, second)
    # a table inside a larger one says nothing more
    largest = [a for a in tables if not any(set(a) < set(b) for b in tables)]
    _check_jointly_possible(domain, {a: tables[a] for a in largest})
    return tuple(Known(a, tables[a]) for a in largest)


def _read_public_table(domain: Domain, given: tuple[str, ...], counts: Any) -> FloatArray:
    what = f"the public table of {', '.join(given) or 'the total'}"
    array = real_array(counts, what).astype(np.float64)
    shape = domain.sizes(given)
    if array.shape not in (shape, (array.size,)) or array.size != np.prod(shape, dtype=object):
        raise PlanError(f"{what} must have shape {shape}, not {array.shape}")
    if not np.all(np.isfinite(array)) or np.any(array < 0):
        raise PlanError(f"{what} must hold counts: finite numbers that are not negative")
    return np.asarray(array.reshape(shape).transpose(np.argsort([domain.axis(a) for a in given])), order="C")


def _check_cells_possible(domain: Domain, axes: tuple[int, ...], table: FloatArray) -> None:
    names = [domain.names[i] for i in axes]
    possible = domain.possible(names)
    if possible is not None and table[~possible].any():
        at = np.argwhere(~possible & (table > 0))[0]
        cell = ", ".join(f"{n} = {domain[n].labels[i]}" for n, i in zip(names, at.tolist(), strict=True))
        raise PlanError(
            f"the public table of {', '.join(names)} counts {table[tuple(at)]:,.6g} where {cell}, and the domain "
            "declares that impossible: one of them is wrong"
        )


def _check_jointly_possible(domain: Domain, tables: Mapping[tuple[int, ...], FloatArray]) -> None:
    """Refuse tables that each by itself, but not all together, are of records in possible cells."""
    for group in domain.tied:
        told: dict[tuple[str, ...], FloatArray] = {}
        for axes, table in tables.items():
            held = tuple(domain.names[i] for i in axes if domain.names[i] in group.attributes)
            rest = tuple(k for k, i in enumerate(axes) if domain.names[i] not in held)
            told[held] = table.sum(axis=rest)
        names = domain.ordered({n for held in told for n in held})
        if len([held for held in told if held]) < 2 or np.prod(domain.sizes(names), dtype=object) > _MOST_CELLS:
            continue
        possible = domain.possible(names)
        if possible is not None and _least_record_changes(names, np.argwhere(possible), told) > _APART * max(
            1.0, max(float(t.sum()) for t in told.values())
        ):
            listed = "; ".join(", ".join(held) for held in told if held)
            raise PlanError(
                f"no records in cells that the domain declares possible have the public tables of {listed} together: "
                "one of them, or of the predicates, is wrong"
            )


def _least_record_changes(
    names: tuple[str, ...], cells: NDArray[np.intp], told: Mapping[tuple[str, ...], FloatArray]
) -> float:
    """By how many records tables must be changed at least, in all, to be those of counts of these cells."""
    from scipy import sparse  # noqa: PLC0415  (heavy)
    from scipy.optimize import linprog  # noqa: PLC0415  (heavy)

    maps: list[Any] = []
    for held, table in told.items():
        at = (
            np.ravel_multi_index(tuple(cells[:, names.index(n)] for n in held), table.shape)
            if held
            else 0 * cells[:, 0]
        )
        maps.append(
            sparse.csr_array((np.ones(len(cells)), (at, np.arange(len(cells)))), shape=(table.size, len(cells)))
        )
    counted = sparse.vstack(maps)
    wanted = np.concatenate([t.reshape(-1) for t in told.values()])
    scale = max(1.0, float(wanted.max()))
    change = sparse.eye_array(len(wanted))
    cost = np.concatenate([np.zeros(len(cells)), np.ones(2 * len(wanted))])
    equal: Any = sparse.hstack([counted, change, -change])
    found = linprog(cost, A_eq=equal, b_eq=wanted / scale, method="highs")
    return 0.0 if found.fun is None else float(found.fun) * scale


def _check_tables_agree(
    domain: Domain, a: tuple[int, ...], first: FloatArray, b: tuple[int, ...], second: FloatArray
) -> None:
    common = set(a) & set(b)
    sums = [
        t.sum(axis=tuple(i for i, axis in enumerate(axes) if axis not in common))
        for axes, t in ((a, first), (b, second))
    ]
    if np.abs(sums[0] - sums[1]).max() > _TOLERANCE_PUBLIC * max(1.0, float(np.abs(sums[0]).max())):
        names = [", ".join(domain.names[i] for i in axes) or "the total" for axes in (a, b)]
        shared = ", ".join(domain.names[i] for i in sorted(common)) or "the number of records"
        raise PlanError(f"the public tables of {names[0]} and of {names[1]} disagree on {shared}")
