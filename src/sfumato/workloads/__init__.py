"""What is asked."""

from sfumato.workloads.builders import (
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
from sfumato.workloads.core import RECORDS, QueryBlock, Workload

__all__ = [
    "RECORDS",
    "QueryBlock",
    "Workload",
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
