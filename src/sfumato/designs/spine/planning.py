"""Tables at every level of a tree: the best precision of every residual at every level, measured in integers."""

from __future__ import annotations

import math

import numpy as np

from sfumato.designs.design import Design, Problem
from sfumato.designs.known import KnownGroups
from sfumato.designs.spine.allocation import Allocation, allocate
from sfumato.designs.spine.asked import Asked, Sets, place_of, subsets
from sfumato.designs.spine.bound import bound
from sfumato.designs.spine.strategy import Spine
from sfumato.errors import PlanError
from sfumato.privacy.unit import Neighbours

__all__ = ["designs", "tall"]

_TALL = 1_500  # cells, above which nobody looks for symmetries (designs/unions/reduced.py); with 2,000 all others took
# 50 CPU-s and 3.5 GB to end in noise on every query
_MOST_SETS = 2**13  # sets below the asked tables, at every level: each is gone through by itself, in seconds
_MOST_BITS, _LEAST_BITS = 20, 6  # of the least multiple: rounding then moves prices by less than a millionth
_RECORDS_WANTED = 2.0**30  # a thousand million records: counts of theirs, times the multiples, fit 62 bits
_NEGATIVE = 1e-7  # of all that is spent: a weight of a table that the search leaves below zero by so little is none
_NONE = 1e-7  # of the largest multiple's square: what is spent on such a table or residual is not worth its line


def tall(problem: Problem) -> bool:
    """Whether tables are asked at levels of one attribute with so many cells that other designs fall back to noise on
    every query, after minutes. None could err less by more than this one is above its bound."""
    place = place_of(problem.workload)
    return place is not None and problem.workload.domain.shape[place] > _TALL


def designs(problem: Problem) -> list[Design]:
    """Whole tables where the best precisions are theirs, else residuals; none for what is not of this kind.

    For the mean error under Gaussian noise of tables of cells at levels of one attribute that lie in each other.
    Raises PlanError where nothing is left to be measured.
    """
    if problem.noise == "laplace" or problem.largest or place_of(problem.workload) is None:
        return []
    if sum(2**item.order * len(item.rows_each) for item in problem.workload.items) > _MOST_SETS:
        return []
    try:
        asked = Asked.of(problem)
    except PlanError:
        return []
    tree = asked.tree.merged()
    public = problem.unit.total_is_public
    replaced = problem.unit.neighbours is Neighbours.REPLACE_ONE
    found = allocate(asked, tree, replaced=replaced, public=public)
    tables = _tables(asked, found)
    proved = None if replaced else bound(asked, tree, found)
    chosen = {k: math.sqrt(v) for k, v in (_residuals(asked, found) if tables is None else tables).items()}
    return [_design(problem, asked, chosen, proved, residual=tables is None)]


def _design(
    problem: Problem, asked: Asked, multiples: dict[tuple[int, Sets], float], proved: float | None, *, residual: bool
) -> Design:
    keys = sorted(multiples, key=lambda k: (k[0], len(k[1]), k[1]))
    real = np.array([multiples[k] for k in keys])
    at, sets = tuple(level for level, _ in keys), tuple(s for _, s in keys)
    domain = problem.workload.domain

    def build(s: float) -> Spine:
        whole = tuple(int(m) for m in np.maximum(1, np.rint(s * real)))
        return Spine(
            domain.names,
            domain.shape,
            asked.place,
            asked.levels,
            at,
            sets,
            whole,
            residual,
            problem.unit.total_is_public,
            tuple(k for k in problem.known if isinstance(k, KnownGroups)),
        )

    entries = [m * math.prod(domain.shape[i] - 1 if residual else 1 for i in s) for (_, s), m in multiples.items()]
    bits, spread = _MOST_BITS, max(entries) / float(real.min())
    while bits > _LEAST_BITS and 2.0**61 / (2.0**bits * spread) < _RECORDS_WANTED:
        bits -= 1
    within = problem.unit.within
    notes = (f"the totals of {within.name} are public: exact, not measured, not protected",) if within else ()
    return Design("marginals", build, 2.0**bits / float(real.min()), proved, notes)


def _residuals(asked: Asked, found: Allocation) -> dict[tuple[int, Sets], float]:
    """Per residual and level the square of its multiple: n I - J has prod n^2 times the precision."""
    out: dict[tuple[int, Sets], float] = {}
    for s, each in found.precisions.items():
        deepest = int(np.flatnonzero(each).max())
        out |= {
            (level, s): float(a) / asked.cells(s) ** 2
            for level, a in enumerate(each)
            if math.isfinite(a) and (a > 0 or level == deepest)
        }
    return out


def _tables(asked: Asked, found: Allocation) -> dict[tuple[int, Sets], float] | None:
    """Per table and level the square of its multiple, where whole tables have these precisions; else None.

    Residuals never err more than tables: these are measured where nothing is lost, as they can be read by anybody.
    """
    out: dict[tuple[int, Sets], float] = {}
    negative = 0.0
    for level in range(asked.tree.depth + 1):
        left: dict[Sets, float] = {
            s: float(each[level]) for s, each in found.precisions.items() if math.isfinite(each[level])
        }
        for s in sorted(left, key=lambda s: -len(s)):
            square = left[s]
            for inside in subsets(s):
                if inside in left:
                    left[inside] -= square * asked.cells(inside) / asked.cells(s)
            negative -= min(square, 0.0)
            out[level, s] = max(square, 0.0)
    spent = math.fsum(out.values())
    if negative > _NEGATIVE * spent:
        return None
    top = max(out.values())
    kept = {k: v for k, v in out.items() if v > _NONE * top}
    for s, each in found.precisions.items():
        deepest = int(np.flatnonzero(each).max())
        if not any(level == deepest and set(s) <= set(held) for level, held in kept):
            return None
    return kept
