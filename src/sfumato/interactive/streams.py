"""Streams: tables appended period after period, answered over time."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any, overload

from sfumato._util.description import Description
from sfumato._util.frames import Frame
from sfumato.curator import Curator
from sfumato.curator.streams import ROOM, PublicStream, open_public_stream, resume_stream
from sfumato.curator.streams.stored import StoredStream, read_stream
from sfumato.errors import InvalidInput, PlanError
from sfumato.interactive.session import Session, mark_kept, mark_opened
from sfumato.plans.packing import pack_tables
from sfumato.plans.streams import StreamPlan
from sfumato.privacy.files import is_nonempty_file
from sfumato.privacy.ledger import Ledger, Receipt
from sfumato.releases.answers import Answer
from sfumato.releases.released import Provenance, Versions, make_provenance, one_shot_account, package_versions
from sfumato.releases.streams import History, StreamAnswer, StreamRelease
from sfumato.workloads import Workload

_MOST_PEOPLE = 10**9  # 32 GB a file: a disk


class Stream(Session):
    """Tables that go on, period after period, under one budget that was debited at the opening.

    `sf.open` of a plan with periods makes a stream.

    Args:
        plan: The plan.
        public: What was published, and how further periods are measured.
        made: When, by which versions and from which ledger it was opened.

    Raises:
        PlanError: The stream was opened on other terms than the plan states.

    Guarantee:
        Everything that it ever publishes satisfies, together, the plan's budget for the plan's privacy unit, where
        nobody is counted in more periods than the plan says, nor in nearer ones; also where the table of a period
        depends on what was published before.
    """

    __slots__ = ("_history", "_plan", "_provenance", "_public")

    def __init__(self, plan: StreamPlan, public: PublicStream, made: Provenance) -> None:
        if public.terms.filter.periods != plan.periods.count:
            raise PlanError("this stream was opened on other terms than its plan states")
        self._plan, self._public, self._provenance = plan, public, made
        self._history = History(plan)

    @property
    def plan(self) -> StreamPlan:
        return self._plan

    @property
    def anchor(self) -> str | None:
        return self._public.anchor

    @property
    def periods(self) -> tuple[str, ...]:
        """The labels of all periods so far, in order."""
        return tuple(p.label for p in self._public.published)

    def append(self, source: Any, period: str) -> StreamAnswer:
        """Publish the next period, and return its answers.

        Records that come late count in the period in which they come.

        Args:
            source: The table of the period, as for `sf.release`.
            period: The label of the period. A label that was published before gives what was published then: the source
                is not looked at.

        Returns:
            The answers of the period, as a release of one look gives them.

        Raises:
            SourceError: The table cannot be read. Nothing is published.
            BudgetError: All periods that were paid for are published.
            LedgerError: The store cannot be written. Nothing is published.
            NotWritten: Measuring failed. Nothing is published.
        """
        self.publish(source, period)
        return self.between(period, period)

    def publish(self, source: Any, period: str) -> None:
        """Publish the next period without its answers: for a process that feeds the stream and asks nothing.

        Args:
            source: The table of the period, as for `sf.release`.
            period: The label of the period, as for `append`.

        Raises:
            SourceError: The table cannot be read. Nothing is published.
            BudgetError: All periods that were paid for are published.
            LedgerError: The store cannot be written. Nothing is published.
            NotWritten: Measuring failed. Nothing is published.
        """
        self._public.append(source, period)

    @property
    def totals(self) -> StreamAnswer:
        """The sum of all periods so far."""
        return self.release().totals

    @property
    def increments(self) -> StreamAnswer:
        """The last period."""
        return self.release().increments

    def between(self, first: str, last: str) -> StreamAnswer:
        """The sum of the periods from one to another.

        Args:
            first: The label of the first period.
            last: The label of the last period; the same label for one period.

        Returns:
            Answers, as a release of one look gives them.

        Raises:
            NotAnswerable: A period is not published, or the last comes before the first.
        """
        return self.release().between(first, last)

    def last(self, count: int) -> StreamAnswer:
        """The sum of the last periods.

        Args:
            count: How many periods, from 1 to the number of published ones.

        Returns:
            Answers, as a release of one look gives them.

        Raises:
            NotAnswerable: Not as many periods are published.
        """
        return self.release().last(count)

    def decayed(self, rate: str | float) -> StreamAnswer:
        """All periods so far, each counted `rate` times as much as the one after it: recent ones count most.

        Args:
            rate: A number strictly between 0 and 1, such as "0.99".

        Returns:
            Answers, as a release of one look gives them.

        Raises:
            PlanError: The rate is no such number.
            NotAnswerable: No period is published, or the number of records is public.
        """
        return self.release().decayed(rate)

    def over_time(
        self,
        predicate: str | None = None,
        *,
        increments: bool = False,
        confidence: float = 0.95,
        simultaneous: bool = False,
        most: int | None = None,
    ) -> Frame:
        """One query after every period; see `StreamRelease.over_time`.

        Args:
            predicate: The query, as a predicate; None asks the number of records.
            increments: Whether it is asked of the period itself; otherwise of the total of all periods so far.
            confidence: The probability, strictly between 0 and 1, with which an interval holds.
            simultaneous: Whether the intervals of all periods so far hold together with that confidence; otherwise each
                one does.
            most: At most so many periods are answered, evenly spread, with the last among them; None answers all.

        Returns:
            One row per period: its label, value, standard_error, low, high, and `missing` where that is measured.

        Raises:
            NotAnswerable: The query was not measured.
            WorkloadError: The predicate cannot be read.
        """
        return self.release().over_time(
            predicate, increments=increments, confidence=confidence, simultaneous=simultaneous, most=most
        )

    def plot(
        self,
        question: str = "total",
        *,
        increments: bool = False,
        confidence: float = 0.95,
        simultaneous: bool = False,
    ) -> Any:
        """An Altair chart of one query after every period with its band (extra: plots).

        Args:
            question: A predicate, or "total", the number of records.
            increments: Whether it is asked of the period itself; otherwise of the total of all periods so far.
            confidence: The probability, strictly between 0 and 1, with which an interval holds.
            simultaneous: Whether all intervals hold together with that confidence; otherwise each one does.

        Returns:
            The chart.

        Raises:
            MissingExtra: Altair is not installed.
            NotAnswerable: The query was not measured.
        """
        return self.release().plot(question, increments=increments, confidence=confidence, simultaneous=simultaneous)

    @overload
    def ask(self, question: str, confidence: float = 0.95) -> Answer: ...
    @overload
    def ask(self, question: Workload, confidence: float = 0.95) -> Frame: ...
    def ask(self, question: str | Workload, confidence: float = 0.95) -> Answer | Frame:
        """A further question about the totals so far, as `Release.ask` answers it.

        Args:
            question: A predicate such as "age >= 65", or a workload.
            confidence: The probability, strictly between 0 and 1, with which an interval holds.

        Returns:
            An Answer to a predicate, a Frame of one row per query for a workload.

        Raises:
            NotAnswerable: No period is published, or the question lies outside the span of what was measured.
        """
        return self.totals.ask(question, confidence)

    def release(self) -> StreamRelease:
        """All that the stream has published, to be saved and loaded.

        Returns:
            The release.
        """
        published = self._public.published
        self._history.follow(published)
        found = StreamRelease(self._plan, published, self._provenance)
        object.__setattr__(found, "history", self._history)  # what was decoded stays decoded
        return found

    def status(self) -> dict[str, Any]:
        return _stream_status(self._plan, self.periods)

    def _headline(self) -> str:
        return self.release().describe().headline

    def describe(self) -> Description:
        return self.release().describe()

    def brief(self) -> str:
        return self.release().brief()


def open_stream(
    plan: StreamPlan,
    account: Ledger | None,
    name: str,
    store: Path | None,
    table: str | None,
    anchor: str | None,
    people: int | None = None,
) -> Stream:
    """Debit the whole price of a stream and begin it, or go on with the one that is kept.

    Raises InvalidInput for a store that keeps another, PlanError for a plan that does not hold together, and as the
    doors of the wall.
    """
    plan.check()
    if people is not None and (store is None or not plan.terms.enforced or not 0 < people <= _MOST_PEOPLE):
        raise InvalidInput(
            f"people= is for a stream with a store that enforces how often a person is counted: 1 to {_MOST_PEOPLE:,}, "
            "the people for whom its files have room; leave it out elsewhere"
        )
    if store is not None and store.exists() and is_nonempty_file(store):
        found = read_stream(store, anchor)
        kept = _stored_stream_plan(found.about, store)
        if kept.fingerprint != plan.fingerprint or found.name != name:
            raise InvalidInput(
                f"{store} keeps the stream {found.name!r}{'' if found.name != name else ' of another plan'}; choose "
                f"another path, or go on with it by sf.load({str(store)!r}, ledger=...)"
            )
        if account is None or account.find(name) is not None:
            return resume_stored(store, account, anchor, people)
    elif anchor is not None:
        raise InvalidInput(f"anchor= is of a stream that is kept, and at {store} there is none; leave it out")
    if not plan.honest:
        raise PlanError(f"the plan's price is above the budget that it states, {plan.budget}; plan again")
    paying = one_shot_account(plan.price, plan.budget) if account is None else account
    curator = Curator(None, plan.workload.domain, plan.unit, paying, table=table, packing=pack_tables)
    about = {"plan": plan, "created": _utc_now(), "versions": package_versions(), "table": table}
    public, receipt = open_public_stream(
        curator,
        plan.terms,
        plan.price,
        name=name,
        plan_hash=plan.fingerprint,
        store=store,
        about=about,
        people=people or ROOM,
    )
    if store is not None:
        mark_kept(paying, receipt, plan.fingerprint, f"the stream is paid for and kept in {store}")
    return Stream(plan, public, _stream_provenance(public.about, receipt, paying))


def resume_stored(store: Path, account: Ledger | None, anchor: str | None = None, people: int | None = None) -> Stream:
    """Go on with the stream that is kept in a store; nothing is spent. Raises as `resume_stream`."""
    if account is None:
        raise InvalidInput(
            f"which ledger paid for {store}? Name it with ledger=: a store is not believed about who paid"
        )
    found = read_stream(store, anchor)
    plan = _stored_stream_plan(found.about, store)
    curator = Curator(None, plan.workload.domain, plan.unit, account, packing=pack_tables)
    public = resume_stream(curator, store, anchor=anchor, people=people)
    mark_opened(account, found.name, plan.fingerprint)
    sequence, paid = public.paid
    entry = account.find(found.name)
    assert entry is not None  # the door found it
    receipt = Receipt(sequence, paid, account.ledger_id, found.name, entry.price, account.currency)
    return Stream(plan, public, _stream_provenance(found.about, receipt, account))


def stored_release(store: Path, anchor: str | None = None) -> StreamRelease:
    """All that is public of the stream that is kept in a store; neither its ledger nor its state is looked at.

    Raises InvalidInput, LedgerError or LedgerCorrupted for what is no stream, incomplete or changed.
    """
    return _stored_stream_release(read_stream(store, anchor), store)


def _stored_stream_release(found: StoredStream, store: Path) -> StreamRelease:
    plan = _stored_stream_plan(found.about, store)
    if found.paid is None:
        raise InvalidInput(f"the opening of {store} did not come to its end; open it again by the same command")
    sequence, anchor = found.paid
    created, made_by, table = _stream_origin(found.about)
    ours = (found.name, found.ledger_id, sequence, anchor, False)
    return StreamRelease(plan, found.published, Provenance(*ours, created, made_by, None, table))


def read_status(store: Path, anchor: str | None = None) -> dict[str, Any]:
    """How the stream that is kept in a store stands; all of it is public. Raises as `stored_release`."""
    found = read_stream(store, anchor)
    release = _stored_stream_release(found, store)
    plan: StreamPlan = release.plan
    return {
        "name": found.name,
        **_stream_status(plan, release.periods),
        "guarantee": str(plan.budget),
        "ledger": found.ledger_id,
        "anchor": found.anchor,
    }


def _stream_status(plan: StreamPlan, done: tuple[str, ...]) -> dict[str, Any]:
    return {
        "mechanism": plan.mechanism,
        "periods": len(done),
        "periods_left": plan.periods.count - len(done),
        "last": done[-1] if done else None,
    }


def _utc_now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _stream_origin(about: Any) -> tuple[str, Versions, str | None]:
    """When a stream was opened, by what, on which table; the first that were kept do not say."""
    return about.get("created", ""), tuple(about.get("versions", ())), about.get("table")


def _stream_provenance(about: Any, receipt: Receipt, account: Ledger) -> Provenance:
    created, made_by, table = _stream_origin(about)
    return make_provenance(receipt, account, made_by, created=created, table=table)


def _stored_stream_plan(about: Any, store: Path) -> StreamPlan:
    plan = about.get("plan") if isinstance(about, dict) else None
    if not isinstance(plan, StreamPlan):
        raise InvalidInput(
            f"{store} is a stream that was opened without a plan; go on with it by sfumato.curator.streams"
        )
    return plan
