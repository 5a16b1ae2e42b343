"""What every session offers: questions, how it stands, and words about both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self, overload

import numpy as np

from sfumato.domain import Domain
from sfumato.errors import WorkloadError
from sfumato.operators import Block, Dense
from sfumato.plans.covariances import check_domain
from sfumato.sessions.answers import SessionAnswer
from sfumato.workloads import RECORDS, Workload, predicates

__all__ = ["Session", "rows_of"]

_MOST_ROWS = 100_000


class Session(ABC):
    """Questions one by one under one budget, paid in full when the session was opened. Also a context manager.

    Leaving the `with` block ends nothing: a session that is kept in a store goes on by the same call of `sf.open`.
    """

    __slots__ = ()
    # whether coefficients must be whole numbers
    whole = True

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """The declared domain."""

    @property
    @abstractmethod
    def plan(self) -> Any:
        """What was decided before any data."""

    @property
    def anchor(self) -> str | None:
        """How the store stands, in short: kept elsewhere and given to `sf.open` or `sf.load`, it finds one put back.

        None where nothing that changes is kept.
        """
        return None

    @abstractmethod
    def status(self) -> dict[str, Any]:
        """How the session stands, as plain values. All of it is public."""

    @abstractmethod
    def explain(self) -> str:
        """How the session stands and what it promises, in words."""

    @abstractmethod
    def _ask(self, block: Block, label: str) -> SessionAnswer:
        """The answer to a block of one row."""

    @overload
    def ask(self, query: str) -> SessionAnswer: ...
    @overload
    def ask(self, query: Workload) -> tuple[SessionAnswer, ...]: ...
    def ask(self, query: str | Workload) -> SessionAnswer | tuple[SessionAnswer, ...]:
        """The answer to a predicate, or one answer for each query of a workload, in order, each a question of its own.

        Raises WorkloadError, with nothing spent, for what is outside the domain and for coefficients that are no
        whole numbers or span more than the session was opened for. Then no question of the workload is asked.
        """
        if isinstance(query, Workload):
            asked = rows_of(self.domain, query, whole=self.whole)
            for block, _ in asked:
                self._check(block)
            return tuple(self._ask(block, label) for block, label in asked)
        ((block, label),) = rows_of(self.domain, predicates(self.domain, [query]), whole=True)
        self._check(block)
        return self._ask(block, label)

    @abstractmethod
    def _check(self, block: Block) -> None:
        """Refuse with WorkloadError what this session cannot answer."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def __str__(self) -> str:
        return self.explain()


def rows_of(domain: Domain, work: Workload, *, whole: bool) -> list[tuple[Block, str]]:
    """Every query of a workload as a block of one row with small factors, and its label.

    Raises WorkloadError for another domain, for more than 100,000 queries, and with `whole` for sums of other units and
    for coefficients that are not whole.
    """
    check_domain(domain, work)
    if len(work) > _MOST_ROWS:
        raise WorkloadError(f"a session takes up to {_MOST_ROWS:,} questions at once, not {len(work):,}")
    rows: list[tuple[Block, str]] = []
    for query in work.blocks:
        if whole and (query.unit != RECORDS or not query.block.operator.integral):
            raise WorkloadError(
                f"this session counts records: the queries of {query.part!r} are sums of values, or have fractions as "
                "coefficients. Ask with whole coefficients (sf.queries of values in whole units, with span=)"
            )
        factors = query.block.factors
        for place, label in zip(np.ndindex(*(f.shape[0] for f in factors)), work.block_labels(query), strict=True):
            picked = [Dense(f.rows(i, i + 1)) for f, i in zip(factors, place, strict=True)]
            rows.append((Block(query.block.groups, tuple(picked)), label))
    return rows
