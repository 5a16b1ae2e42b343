"""Covariances between what may be asked of a plan: tables by their attributes, predicates, whole workloads."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from sfumato.designs.covariance import check_size
from sfumato.designs.strategy import Strategy
from sfumato.domain import Domain
from sfumato.errors import PlanError
from sfumato.ground.frames import Frame
from sfumato.operators import Block, Identity
from sfumato.operators.base import FloatArray
from sfumato.workloads import Workload, predicates
from sfumato.workloads.levels import table_block

__all__ = ["Question", "asked", "check_domain", "covariance", "table_covariances"]

Question = str | Sequence[str] | Workload
"""A predicate, the attributes of a marginal table, or a workload."""


def check_domain(domain: Domain, question: Workload) -> None:
    """Raise PlanError unless the attributes of a question are some of a domain's, as these are declared there."""
    given = question.domain.attributes
    strange = [n for n, a in given.items() if domain.attributes.get(n) != a]
    if strange:
        raise PlanError(f"the question is over another domain: {', '.join(strange)} is not declared, or not so, here")


def asked(domain: Domain, question: Question) -> tuple[Block, ...]:
    """The blocks of a question. Raises PlanError for what is none, or over another domain."""
    if isinstance(question, Workload):
        check_domain(domain, question)
        return tuple(q.block for q in question.blocks)
    if isinstance(question, str):
        return (predicates(domain, [question]).blocks[0].block,)
    if not isinstance(question, Sequence):
        raise PlanError(f"a question is a predicate, a tuple of attribute names or a workload, not {question!r}")
    return (table_block(domain, question),)


def covariance(
    strategy: Strategy, domain: Domain, first: Question, second: Question | None, variance: float
) -> FloatArray:
    """(answers of first, answers of second) under noise of that variance; within the first where second is None."""
    ours = asked(domain, first)
    theirs = ours if second is None else asked(domain, second)
    rows, columns = (np.cumsum([0, *(b.rows for b in blocks)]) for blocks in (ours, theirs))
    check_size(int(rows[-1]), int(columns[-1]))
    sources = [strategy.source(b) for b in ours]
    others = sources if second is None else [strategy.source(b) for b in theirs]
    out = np.zeros((int(rows[-1]), int(columns[-1])))
    for (i, a), (j, b) in itertools.product(enumerate(ours), enumerate(theirs)):
        place = np.s_[rows[i] : rows[i + 1], columns[j] : columns[j + 1]]
        if second is None and j < i:
            out[place] = out[place[::-1]].T
        elif sources[i] is others[j]:  # the noise of different pieces is independent
            found = sources[i].covariance(a, b)
            # symmetric to the last bit, as solvers want it
            out[place] = (found + found.T) / 2 if second is None and i == j else found
    out *= variance
    return out


def table_covariances(
    strategy: Strategy, domain: Domain, first: Sequence[str], second: Sequence[str], variance: float
) -> Frame:
    """Covariances of the cells of two tables under noise of that variance, by which common attributes agree.

    One row for each pattern: a column per common attribute that says "same" or "different", and "covariance".
    Raises PlanError where cells that agree alike have unlike covariances.
    """
    blocks: list[Block] = []
    for names in (first, second):
        if isinstance(names, str) or not isinstance(names, Sequence):
            raise PlanError(f"a table is a tuple of attribute names such as ('age', 'sex'), not {names!r}")
        blocks += asked(domain, names)
    one, other = blocks
    for block in blocks:
        strategy.check(block)
    plain = all(isinstance(f, Identity) for b in blocks for f in b.factors)
    found = strategy.table_covariance(one, other) if plain else None
    if found is None:
        raise PlanError(
            "the covariances of these tables depend on the cells themselves, not only on which attributes agree; "
            "take covariance, which lists them all"
        )
    common = [name for name, a in zip(first, one.attributes, strict=True) if a in other.attributes]
    patterns = list(itertools.product(*(("same", "different")[:n] for n in found.shape)))
    columns: dict[str, list[str | float]] = {n: [p[i] for p in patterns] for i, n in enumerate(common)}
    return Frame(columns | {"covariance": (found.reshape(-1) * variance).tolist()})
