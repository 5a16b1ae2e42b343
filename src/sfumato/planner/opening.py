"""`sf.open`: questions one by one under a plan, and the same call again to go on with them.

`sf.load`: anything that was stored, as it was.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Required, TypedDict, TypeVar, Unpack, overload

from sfumato._util.documents import read_document
from sfumato.curator.streams.stored import is_stream
from sfumato.errors import InvalidInput, PlanError
from sfumato.interactive.key_plans import HistogramPlan, SparsePlan
from sfumato.interactive.opening import (
    KEPT,
    histogram_session,
    keeps_session,
    open_session,
    public_records,
    read_kept_session,
    resume_session,
)
from sfumato.interactive.plan import SessionPlan
from sfumato.interactive.session import KeySession, QuerySession, Session, SessionOpening
from sfumato.interactive.streams import Stream, open_stream, resume_stored
from sfumato.local.collecting import LocalRelease
from sfumato.local.plan import LocalPlan
from sfumato.mechanisms import carry_out
from sfumato.mechanisms.registry import Mechanism, plan_with_mechanism
from sfumato.planner.planning import make_request
from sfumato.plans.iterative import IterativePlan
from sfumato.plans.keys import KeyPlan
from sfumato.plans.labels import LabelPlan
from sfumato.plans.plan import Plan
from sfumato.plans.profiles import ProfilePlan
from sfumato.plans.streams import StreamPlan
from sfumato.privacy.budget import Budget
from sfumato.privacy.files import is_nonempty_file
from sfumato.privacy.ledger import Ledger
from sfumato.privacy.ledger.ledger import FORMAT
from sfumato.privacy.unit import is_file_of_kind
from sfumato.releases.files import load_release
from sfumato.releases.profiles import PROFILE, Profile, load_profile
from sfumato.releases.released import as_ledger
from sfumato.releases.sketches import SketchRelease
from sfumato.releases.streams import StreamRelease

Place = str | os.PathLike[str]


class _OpenTerms(TypedDict, total=False):
    """What `sf.open` takes by name."""

    ledger: Required[Place | Ledger | None]
    name: str
    store: Place | None
    table: str | None
    anchor: str | None
    people: int | None


@overload
def open_plan(plan: SessionPlan | Plan, source: Any = None, **terms: Unpack[_OpenTerms]) -> QuerySession: ...
@overload
def open_plan(plan: StreamPlan, **terms: Unpack[_OpenTerms]) -> Stream: ...
@overload
def open_plan(plan: HistogramPlan | SparsePlan, source: Any = None, **terms: Unpack[_OpenTerms]) -> KeySession: ...
def open_plan(
    plan: SessionPlan | Plan | HistogramPlan | SparsePlan | StreamPlan,
    source: Any = None,
    *,
    ledger: Place | Ledger | None,
    name: str = "session",
    store: Place | None = None,
    table: str | None = None,
    anchor: str | None = None,
    people: int | None = None,
) -> Session:
    """Open a session for questions that are not known in advance; the whole price of the plan is debited now.

    A plan with periods opens a stream, whose `append` takes the table of every period. A plan of tables is measured
    now, and every question that its measurements span is free.

    Args:
        plan: A plan for questions to come: `sf.plan` of a domain or of sf.Keys, or with mechanism "pmw" of a workload;
            a plan with periods; or a plan of tables.
        source: The table, as for `sf.release`; None for a stream, and for a stored session whose table is a file.
        ledger: The ledger that pays, or its path; None for an explicit one-shot account.
        name: The name under which the price is debited.
        store: Where the session is kept. At a path at which nothing is, a new session begins. Where a session is, it
            goes on, from any process, and nothing is spent. The file of a conversation holds secret noise and is for
            the custodian alone.
        table: The public name of the table, which the ledger fixes, with the privacy unit, at its first spend.
        anchor: The anchor of an earlier moment: a file that was put back to a state before it is refused.
        people: For a stream with a store that enforces how often a person is counted: a number that the persons will
            never reach. As many have room in its files, so that their size tells nothing (1,000,000, 32 MB, unless
            given).

    Returns:
        The session or the stream, which is a context manager.

    Raises:
        PlanError: The plan is not of a kind that is opened, or cannot be carried out. Nothing is spent.
        InvalidInput: An argument does not apply, or the store keeps another session. Nothing is spent.
        SourceError: The table cannot be read. Nothing is spent.
        BudgetExceeded: The price is above what is left in the ledger, which is untouched.
        LedgerMismatch: The ledger is of another unit or table, and is untouched.
        LedgerError: The ledger cannot be used. Nothing is spent.
        NameTaken: The name was paid for before; the ledger is untouched.
        NotWritten: The price is spent, but the session could not be stored.

    Guarantee:
        Everything that the session ever gives out satisfies, together, the plan's budget for the plan's privacy unit.

    >>> made = sf.plan(sf.Keys(), sf.pure(1), neighbours="add-remove", mechanism="histogram")
    >>> with sf.open(made, sf.KeyCounts([3, 3, 7]), ledger=None) as asked:
    ...     answer = asked.ask([3, 8])
    >>> answer.how
    'histogram'
    """
    account, place = as_ledger(ledger), None if store is None else Path(store)
    if isinstance(plan, StreamPlan):
        if source is not None:
            raise InvalidInput("a stream takes its tables one by one: stream.append(table, period='2026-11')")
        return open_stream(plan, account, name, place, table, anchor, people)
    if people is not None:
        raise InvalidInput("people= is of a stream that enforces how often a person is counted; leave it out")
    if type(plan) not in KEPT:
        if not isinstance(plan, Plan):
            raise PlanError(
                "open needs a plan for questions to come, sf.plan of a domain or of sf.Keys, or a plan of tables; "
                f"a {type(plan).__name__} is released by sf.release"
            )
        if anchor is not None:
            raise InvalidInput("a release never changes, and has no anchor; leave anchor out")
        return histogram_session(carry_out.carry_out(plan, source, ledger=account, name=name, out=place, table=table))
    if place is not None and is_nonempty_file(place):
        return _resume_kept(SessionOpening(plan, source, account, name, place, table), place, anchor)
    if anchor is not None:
        raise InvalidInput(f"anchor= is of a session that is kept, and at {store} there is none; leave it out")
    if source is None:
        raise InvalidInput("which table is asked? give it as the second argument")
    return open_session(SessionOpening(plan, source, account, name, place, table))


def plan_and_open(
    source: Any,
    what: Any,
    budget: Budget,
    *,
    mechanism: Mechanism[Any],
    records: int | None,
    ledger: Place | Ledger | None,
    name: str,
    store: Place | None,
    table: str | None,
    **unit: Any,
) -> Session:
    """A session planned and opened at once: the number of records, where it is public, may be read from the table.

    `unit` is `neighbours`, `person` and `rows_per_person`. Raises as `sf.plan` and `sf.open`; what follows from public
    input and the ledger alone is refused before the table is read.
    """
    account = as_ledger(ledger)
    asked = make_request(what, budget, records=records, **unit)
    counted = records is None and mechanism.needs_records and asked.unit.total_is_public
    if counted and store is not None and Path(store).is_file() and is_nonempty_file(Path(store)):
        # what is kept there was planned for the number that was counted then
        asked, counted = (
            replace(asked, records=getattr(read_kept_session(store, begun=True)[1]["plan"], "records", 1)),
            False,
        )
    if counted:
        account = Ledger.in_memory(budget) if account is None else account
        trial = plan_with_mechanism(mechanism, replace(asked, records=1))
        found = public_records(source, what, asked.unit, account, name, trial.price, table)
        asked = replace(asked, records=max(found, 1))
    plan = plan_with_mechanism(mechanism, asked)
    if counted:
        return open_session(
            SessionOpening(plan, source, account, name, None if store is None else Path(store), table, True)
        )
    return open_plan(plan, source, ledger=account, name=name, store=store, table=table)


def _resume_kept(asked: SessionOpening, store: Path, anchor: str | None) -> Session:
    """The session that is kept, if it is this one; one whose opening ended before the debit is paid for now."""
    found, about = read_kept_session(store, anchor, begun=True)
    other = ""
    if about["plan"].fingerprint != asked.plan.fingerprint:
        other = "a session of another plan"
    elif found.name != asked.name:
        other = f"the session {found.name!r}, not {asked.name!r}"
    if other:
        raise InvalidInput(
            f"{store} keeps {other}; choose another path, or go on with it by sf.load({str(store)!r}, ledger=...)"
        )
    account, source = asked.ledger, about.get("source") if asked.source is None else asked.source
    if account is not None and account.find(asked.name) is None and source is not None:
        return open_session(replace(asked, source=source))
    return resume_session(store, account, asked.source, anchor=anchor)


T = TypeVar("T")

DOCUMENTS = (
    Plan,
    IterativePlan,
    LabelPlan,
    ProfilePlan,
    Profile,
    StreamPlan,
    StreamRelease,
    KeyPlan,
    LocalPlan,
    SessionPlan,
    HistogramPlan,
    SparsePlan,
    SketchRelease,
    LocalRelease,
)
"""What one file holds; a release of tables is a folder, sessions and ledgers are databases."""


def load(
    path: str | os.PathLike[str],
    *,
    ledger: str | os.PathLike[str] | Ledger | None = None,
    source: Any = None,
    anchor: str | None = None,
) -> Any:
    """Read anything that was stored: a plan, a release, a ledger, or a session, which goes on.

    Args:
        path: The file; of a release of tables, or of a description, its folder.
        ledger: For a session or a stream, the ledger that paid for it: a file cannot be believed about who paid.
        source: For a session, its table; by default the path that it was opened on.
        anchor: For a session or a stream, its anchor of an earlier moment: a file that was put back to a state before
            it is refused.

    Returns:
        The plan, release, ledger, session or stream.

    Raises:
        InvalidInput: Nothing that sfumato wrote is there, it was changed since, or an argument does not apply.
        LedgerError: The ledger does not fit.
        LedgerCorrupted: The ledger or the session's file was changed or put back.
        SourceError: The table cannot be loaded, or is not the one of the session.

    >>> found = sf.plan(sf.identity(sf.Domain({"age": 4})), sf.pure(1), neighbours="add-remove")
    >>> found.save("ages.plan")
    >>> sf.load("ages.plan").fingerprint == found.fingerprint
    True
    """
    try:
        place = Path(path)
        folder, there = place.is_dir(), place.exists()
    except (OSError, TypeError, ValueError) as error:
        raise InvalidInput(f"{path!r} is no path: {error}") from error
    if not there:
        raise InvalidInput(f"nothing is at {place}")
    # databases are told by SQLite alone: to open and close one otherwise gives up the locks of this process
    if not folder and keeps_session(place):
        return resume_session(place, ledger, source, anchor=anchor)
    if not folder and is_stream(place):
        if source is not None:
            raise InvalidInput(f"{place} keeps a stream, which takes its tables by append; leave source out")
        return resume_stored(place, as_ledger(ledger), anchor)
    given = [name for name, value in (("ledger", ledger), ("source", source), ("anchor", anchor)) if value is not None]
    if given:
        raise InvalidInput(f"{', '.join(given)} belong to a session, and {place} holds none; leave them out")
    if folder:
        return load_profile(place) if (place / PROFILE).exists() else load_release(place)
    return Ledger(place) if is_file_of_kind(place, FORMAT) else read_document(place, DOCUMENTS)


def read_stored(path: str | os.PathLike[str], *kinds: type[T]) -> T:
    """What was stored at a path, if it is of one of these kinds. Raises InvalidInput, and as `load`."""
    found = load(path)
    if not isinstance(found, kinds):
        wanted = " or ".join(_CALLED.get(kind.__name__, f"a {kind.__name__}") for kind in kinds)
        name = type(found).__name__
        raise InvalidInput(f"{path} holds {_CALLED.get(name, f'a {name}')}; asked for is {wanted}{_NEXT.get(name, '')}")
    return found


_CALLED = {
    "Plan": "a plan for tables",
    "IterativePlan": "a plan for tables in several looks",
    "LabelPlan": "a plan for tables over labels that are to be found",
    "ProfilePlan": "a plan to describe a table",
    "Profile": "a description of a table",
    "StreamPlan": "a plan for a stream",
    "StreamRelease": "what a stream published",
    "KeyPlan": "a plan for keys",
    "LocalPlan": "a plan for reports",
    "SessionPlan": "a plan for a session",
    "HistogramPlan": "a plan for a session over keys",
    "SparsePlan": "a plan for a session over keys",
    "SketchRelease": "a sketch of keys",
    "LocalRelease": "a release of reports",
    "Release": "a release of tables",
    "ModelRelease": "a release of tables",
    "Ledger": "a ledger",
}
_NEXT = {
    "KeyPlan": ": it is measured first, by sfumato keys sketch or sf.release",
    "SketchRelease": ": it is asked by sfumato keys ask or sf.load(...).ask",
    "Release": ": it is asked by sfumato ask or sf.load(...).ask",
    "ModelRelease": ": it is asked by sfumato ask or sf.load(...).ask",
    "ProfilePlan": ": it is carried out by sf.release",
    "Profile": ": it is read by sfumato show",
    "StreamRelease": ": it is read by sfumato stream show",
    "Ledger": ": it is read by sfumato ledger status",
}
