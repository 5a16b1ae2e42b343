"""Sums of more measures than are planned jointly: parts of a workload, each planned by itself and priced apart.

Queries that join measures stay together. What a record changes of several parts is at most what it changes of each,
added up, so the roots of their errors add up too: fewer parts err less where measures are planned jointly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from sfumato.cells import MAX_MEASURES
from sfumato.errors import PlanError, SfumatoError
from sfumato.privacy.measures import corners
from sfumato.privacy.unit import Neighbours
from sfumato.strategies import moment_tables, moments
from sfumato.strategies.certificates import exact_sensitivity
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.stacked import StackedPiece, piece_at_unit_price, share_design, weighted_error
from sfumato.workloads import QueryBlock

# Combinations of corners of measures that queries join, directly or through others: a price looks at each of them, in
# seconds. Four measures without knots have 14,641
_MOST_JOINED = 2**16

Names = frozenset[str]


def moment_designs(problem: Problem) -> list[Design]:
    """Designs of all sums together, and of parts of them where these are more than three measures, have too many knots
    together, or are three under replaced records, whose joint price is a simple bound.

    Raises PlanError for a query that joins more than three, and for more than can be searched or priced.
    """
    measures = problem.measures
    asked = list(dict.fromkeys(_summed_by(problem, q) for q in problem.workload.blocks))
    for names in asked:
        if len(names) > MAX_MEASURES:
            raise PlanError(
                f"a query joins {len(names)} measures ({', '.join(sorted(names))}), and up to {MAX_MEASURES} are "
                "summed together: ask sf.moments of pairs of them, or sf.means of each"
            )
    largest = [s for s in asked if s and not any(s < other for other in asked)]
    replaced = problem.unit.neighbours is Neighbours.REPLACE_ONE
    several = len(measures) >= MAX_MEASURES + (not replaced)
    found: list[Design] = []
    reasons: list[SfumatoError] = []
    for way in dict.fromkeys(tuple(_merged(largest, most)) for most in (MAX_MEASURES, 0)):
        if found and not several:
            break
        try:
            if len(way) == 1:
                found += _joint_designs(problem)
            else:
                _check_priced(problem, asked)
                found.append(_apart(problem, way))
        except SfumatoError as reason:
            reasons.append(reason)
    if not found:
        raise reasons[0]
    return found


def _joint_designs(problem: Problem) -> list[Design]:
    by_residuals = moments.designs(problem)
    return [*by_residuals, *moment_tables.table_designs(problem)] if problem.noise == "laplace" else by_residuals


def _summed_by(problem: Problem, query: QueryBlock) -> Names:
    return frozenset(a for a in query.attributes if a in problem.measures)


def _merged(sets: Iterable[Names], most: int) -> list[Names]:
    """Sets of measures, each put to the first with which it has no more than `most` in all; the largest first."""
    out: list[Names] = []
    for names in sorted(sets, key=lambda s: -len(s)):
        home = next((i for i, other in enumerate(out) if len(other | names) <= most), None)
        if home is None:
            out.append(names)
        else:
            out[home] |= names
    return out


def _check_priced(problem: Problem, asked: Iterable[Names]) -> None:
    """Raise PlanError where the measures that queries join hang together beyond what is priced."""
    clusters: list[Names] = []
    for names in asked:
        own = [c for c in clusters if c & names]
        clusters = [*(c for c in clusters if not c & names), names.union(*own)]
    for names in clusters:
        if math.prod(corners(problem.sizes[m]).shape[1] for m in names) > _MOST_JOINED:
            raise PlanError(
                f"queries join {', '.join(sorted(names))} with each other, two or three at a time, and the price of "
                "all these together is not looked for: plan some of the pairs apart, or declare fewer knots"
            )


def _apart(problem: Problem, parts: Iterable[Names]) -> Design:
    """Parts, each with a share of the budget; counts that sum no measure go with the first."""
    asked: dict[Names, list[QueryBlock]] = {names: [] for names in parts}
    for query in problem.workload.blocks:
        own = _summed_by(problem, query)
        asked[next(names for names in asked if own <= names)].append(query)
    pieces: list[StackedPiece] = []
    bounds: list[float | None] = []
    proofs: list[moments.CurveProof | None] = []
    for items in asked.values():
        part = problem.part(items)
        found = _joint_designs(part)
        pieces.append(min((_piece(part, d) for d in found), key=lambda p: p.error))
        bounds.append(found[0].bound)
        proofs.append(None if found[0].bound is None else moments.curve_proof(part))
    # no part errs less than it would with the whole budget
    known = [b for b in bounds if b is not None]
    bound = math.hypot(*known) if len(known) == len(bounds) and not problem.largest else None
    apart = sum(map(len, asked)) == len(frozenset().union(*asked))
    told = [p for p in proofs if p is not None]
    if bound is not None and apart and problem.unit.neighbours is Neighbours.ADD_REMOVE and _merged_alike(told):
        bound = max(bound, moments.joint_curve_bound(told))
    title = f"sums of measures in {len(pieces)} parts, priced apart and added: " + "; ".join(
        ", ".join(m for m in problem.measures if m in names) for names in asked
    )
    return share_design("factorization", title, pieces, problem.power, bound, largest=problem.largest)


def _merged_alike(proofs: Iterable[moments.CurveProof]) -> bool:
    """Whether all parts tell the same cells of each attribute apart."""
    none = np.zeros(0, dtype=np.int64)
    cells: dict[str, NDArray[np.int64]] = {}
    named = [(a, p.merged.get(a, none)) for p in proofs for names in p.rows for a in names]
    return all(np.array_equal(cells.setdefault(a, codes), codes) for a, codes in named)


def _piece(part: Problem, design: Design) -> StackedPiece:
    """A design at unit price."""
    strategy = design.build(design.fine)
    power = part.power
    price = exact_sensitivity(strategy.blocks, part.sizes, part.unit, power, part.measures)
    length = float(price.value) ** (1 / power)
    error = weighted_error(part, strategy, range(len(part.workload.blocks))) * length**2
    norm = length / design.fine
    return piece_at_unit_price(design, error, norm)
