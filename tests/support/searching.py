"""What the searches of one mechanism propose, all of them run, whatever is proved of the first."""

from __future__ import annotations

from sfumato.errors import PlanError
from sfumato.mechanisms.searches import Found, labelled, run
from sfumato.strategies.design import Design, Problem

__all__ = ["designs", "everything"]


def everything(problem: Problem, label: str) -> Found:
    """What all searches of a label find, and why others do not apply."""
    return run(problem, labelled(label), everything=Found(problem))


def designs(problem: Problem, label: str) -> list[Design]:
    """The designs alone, at least one. Raises PlanError, with the reasons, where there is none."""
    found = everything(problem, label)
    listed = [design for each in found.of.values() for design in each]
    if not listed:
        raise PlanError("; ".join(c.note for c in found.refused))
    return listed
