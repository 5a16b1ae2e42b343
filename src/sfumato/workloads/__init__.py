"""Workloads: the linear queries that are asked, and the functions that build them."""

from sfumato.workloads.builders import (
    conjunctions,
    disjunctions,
    gaps,
    hierarchy,
    identity,
    means,
    moments,
    parities,
    predicates,
    prefix,
    queries,
    ranges,
    stack,
    sums,
    total,
    windows,
)
from sfumato.workloads.core import RECORDS, QueryBlock, QueryFamily, Workload
from sfumato.workloads.tables import marginals

__all__ = [
    "RECORDS",
    "QueryBlock",
    "QueryFamily",
    "Workload",
    "conjunctions",
    "disjunctions",
    "gaps",
    "hierarchy",
    "identity",
    "marginals",
    "means",
    "moments",
    "parities",
    "predicates",
    "prefix",
    "queries",
    "ranges",
    "stack",
    "sums",
    "total",
    "windows",
]
