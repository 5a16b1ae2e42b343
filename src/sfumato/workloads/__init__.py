"""What is asked."""

from sfumato.workloads.builders import (
    hierarchy,
    identity,
    marginals,
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

__all__ = [
    "RECORDS",
    "QueryBlock",
    "QueryFamily",
    "Workload",
    "hierarchy",
    "identity",
    "marginals",
    "predicates",
    "prefix",
    "queries",
    "ranges",
    "stack",
    "sums",
    "total",
    "windows",
]
