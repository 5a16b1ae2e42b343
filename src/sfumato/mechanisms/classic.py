"""The mechanisms of the textbooks by name, as plans like any other: what every better one is compared with.

Noise on the queries or on the cells, the binary tree with sums of fewest nodes or with least squares, and the square
root of the prefix sums. [HRMS10, FHU23]
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sfumato.designs import direct
from sfumato.designs.design import Candidate, Design, Problem
from sfumato.designs.ordered import hierarchical as tree
from sfumato.designs.ordered import planning as ordered
from sfumato.designs.ordered.canonical import Canonical
from sfumato.designs.pieces import FINE
from sfumato.errors import PlanError, SfumatoError
from sfumato.operators import Tree
from sfumato.plans.plan import Plan, price_design

__all__ = ["NAMES", "compared", "named"]

NAMES = ("queries", "cells", "tree", "square-root", "normalised-square-root")
"""What `strategy=` accepts beside a matrix; "tree-4" and the like are trees of other branching than 2."""

_COMPARED: tuple[tuple[str, str], ...] = (
    ("queries", "least-squares"),
    ("cells", "least-squares"),
    ("cells", "canonical"),
    ("tree", "canonical"),
    ("tree", "least-squares"),
    ("tree-4", "least-squares"),
    ("tree-16", "least-squares"),
    ("square-root", "least-squares"),
    ("normalised-square-root", "least-squares"),
)
_RECONSTRUCTIONS = ("least-squares", "canonical")
_MOST_TABLES = 2_000  # above it pricing what is hardly ever chosen takes longer than planning the rest
_MOST_CELLS = 2**17  # of one attribute, for the same reason


def named(problem: Problem, strategy: str, reconstruction: object = None) -> Design:
    """The design of a name of NAMES; `reconstruction` is "least-squares" (the default) or "canonical".

    A canonical answer is the plain sum of as few measured values as possible, for cells and trees.
    Raises PlanError for other names, and where the workload is not one the strategy serves.
    """
    if problem.known:
        raise PlanError("makes no use of public tables")
    kind = "least-squares" if reconstruction is None else reconstruction
    if not isinstance(kind, str) or kind not in _RECONSTRUCTIONS:
        raise PlanError(f"reconstruction of a named strategy is 'least-squares' or 'canonical', not {kind!r}")
    found = re.fullmatch(r"tree(?:-([1-9][0-9]{0,6}))?", strategy)
    if strategy not in NAMES and found is None:
        raise PlanError(f"strategy is a matrix or one of {', '.join(NAMES)} and tree-4, tree-16 ..., not {strategy!r}")
    if found is not None:
        return _tree(problem, int(found[1] or 2), canonical=kind == "canonical")
    if strategy == "cells":
        return direct.on_cells(problem, plain=kind == "canonical")
    if kind == "canonical":
        raise PlanError(f"reconstruction='canonical' sums cells or the nodes of a tree; {strategy!r} has none")
    if strategy == "queries":
        return direct.on_queries(problem)
    if problem.unit_lattice:
        raise PlanError("real coefficients need the fine lattice")
    if not ordered.applies(problem, 0):
        raise PlanError("the square root serves ranges of one ordered attribute, under Gaussian noise")
    return ordered.square_root(problem, normalised=strategy == "normalised-square-root")


def _tree(problem: Problem, branching: int, *, canonical: bool) -> Design:
    if not canonical:
        return tree.designs(problem, branching)[0]
    asked = {a for i in problem.workload.items for a in i.attributes}
    if len(asked) != 1:
        raise PlanError("sums of fewest nodes serve ranges of one ordered attribute")
    (name,) = asked
    nodes = Tree(problem.sizes[name], branching, root=not problem.unit.total_is_public)
    for query in problem.workload.blocks:
        Canonical(name, nodes).check(query.block)
    return Design("tree", lambda s: Canonical(name, nodes, max(1, round(s))), FINE)


def compared(problem: Problem) -> Iterator[Plan | Candidate]:
    """The plan of every textbook mechanism, or a line with the reason why there is none."""
    for strategy, reconstruction in _COMPARED:
        if (strategy, reconstruction) == ("cells", "canonical") and not problem.unit.total_is_public:
            continue
        try:
            _affordable(problem)
            made = price_design(named(problem, strategy, reconstruction), problem)
            _ = made.rmse, made.max_standard_error
            yield made
        except SfumatoError as reason:
            what = strategy if reconstruction == "least-squares" else f"{strategy} ({reconstruction})"
            yield Candidate(what, "", None, None, str(reason))


def _affordable(problem: Problem) -> None:
    """Refuse what would take longer to compare than to plan well."""
    if problem.workload.tables > _MOST_TABLES:
        raise PlanError(f"not compared for more than {_MOST_TABLES:,} tables")
    largest = max((problem.sizes[a] for i in problem.workload.items for a in i.attributes), default=1)
    if largest > _MOST_CELLS:
        raise PlanError(f"not compared above {_MOST_CELLS:,} cells of an attribute; ask for it with strategy=")
