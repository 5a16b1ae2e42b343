"""What every session is: questions, how it stands, and words about both."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self, overload

import numpy as np
from numpy.typing import ArrayLike

from sfumato.domain import Domain
from sfumato.errors import WorkloadError
from sfumato.ground.telling import Told
from sfumato.operators import Block, Dense
from sfumato.plans.covariances import check_domain
from sfumato.plans.planned import Planned
from sfumato.sessions.answers import SessionAnswer
from sfumato.sessions.keyplans import HistogramPlan, SparsePlan
from sfumato.workloads import RECORDS, Workload, predicates

__all__ = ["Asked", "KeySession", "QuerySession", "Session", "rows_of"]

Asked = ArrayLike | Iterable[str]
"""Keys, as whole numbers or as texts."""

_MOST_ROWS = 100_000  # each is a question of its own, kept in the transcript: minutes


class Session(Told):
    """Questions one by one under one budget, paid in full when the session was opened. Also a context manager.

    Leaving the `with` block ends nothing: a session that is kept in a store goes on by the same call of `sf.open`.

    >>> made = sf.plan(sf.Keys(), sf.pure(1), neighbours="add-remove", mechanism="histogram")
    >>> with sf.open(made, sf.KeyCounts([3, 3, 7]), ledger=None) as asked:
    ...     asked.plan.mechanism, asked.ask([3, 8]).how
    ('histogram', 'histogram')
    """

    __slots__ = ()

    @property
    @abstractmethod
    def plan(self) -> Planned:
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
    def ask(self, *question: Any, **options: Any) -> Any:
        """The answer to a question."""

    def appended(self) -> Iterator[str]:
        yield self.plan.explain()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class QuerySession(Session):
    """Questions over a declared domain: predicates and workloads."""

    __slots__ = ()
    # whether coefficients must be whole numbers
    whole = True

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """The declared domain."""

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
        several = isinstance(query, Workload)
        work = query if several else predicates(self.domain, [query])
        asked = rows_of(self.domain, work, whole=self.whole or not several)
        for block, _ in asked:
            self._check(block)
        answers = tuple(self._ask(block, label) for block, label in asked)
        return answers if several else answers[0]

    @abstractmethod
    def _check(self, block: Block) -> None:
        """Refuse with WorkloadError what this session cannot answer."""


class KeySession(Session):
    """Questions over a universe of keys: a set of keys, with weights where the mechanism takes them."""

    __slots__ = ()

    @property
    @abstractmethod
    def plan(self) -> HistogramPlan | SparsePlan: ...

    @abstractmethod
    def ask(self, keys: Asked, weights: ArrayLike | None = None) -> SessionAnswer:
        """The sum of weights times counts of the keys (each once; weight 1 by default), in records."""


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
