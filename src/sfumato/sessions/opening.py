"""Opening a session from its plan, going on with one, and looking at one."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from sfumato.domain import Domain
from sfumato.errors import InvalidInput, PlanError
from sfumato.operators import Block
from sfumato.plans.packing import pack
from sfumato.privacy.accountant import Event, PureEvent
from sfumato.privacy.ledger import Ledger
from sfumato.privacy.noise import DiscreteLaplace
from sfumato.privacy.unit import PrivacyUnit
from sfumato.releases import Release, load_release
from sfumato.releases.accounts import opened
from sfumato.sessions.asking import describe_steps
from sfumato.sessions.core import Session
from sfumato.sessions.histogram import HistogramSession
from sfumato.sessions.keyed import describe_shown
from sfumato.sessions.keyopening import open_key_histogram, open_sparse, resume_histogram, resume_sparse
from sfumato.sessions.keyplans import HistogramPlan, SparsePlan
from sfumato.sessions.online import OnlineSession
from sfumato.sessions.plans import SessionPlan
from sfumato.sessions.requests import Opening, begun, settled
from sfumato.wall import Curator
from sfumato.wall.keys.stored import StoredHistogram, is_histogram, read_histogram
from sfumato.wall.talk import converse, resume
from sfumato.wall.talk.stored import StoredTranscript, is_conversation, read_transcript

__all__ = [
    "KEPT",
    "histogram_session",
    "keeps_session",
    "kept",
    "open_session",
    "public_records",
    "resume_session",
    "session_status",
]

Place = str | os.PathLike[str]

_LONGEST = 100  # what is left of a name when words are added to it


def open_session(asked: Opening) -> Session:
    """Debit the whole price of a session and begin it. Raises PlanError for a plan of another kind."""
    return KEPT[type(asked.plan)].open(asked)


def resume_session(
    store: Place, ledger: Place | Ledger | None, source: Any = None, *, anchor: str | None = None
) -> Session:
    """Go on with a session that was kept in a store; nothing is spent.

    `ledger` is the one that paid, and is required: a file cannot be believed about who paid for it. None is for the
    folder of a histogram over cells alone, which is public and looks at nothing more. `source` defaults to the path it
    was opened with. With an `anchor` kept from earlier, a file that was put back to a state before it is refused.

    Raises InvalidInput, LedgerError or LedgerCorrupted for a store or ledger that do not fit, SourceError for a table
    that cannot be loaded or that changed.
    """
    if Path(store).is_dir():
        if anchor is not None:
            raise InvalidInput(f"{store} is a release, which never changes, and has no anchor; leave anchor out")
        return histogram_session(load_release(store))
    account = opened(ledger)
    if account is None:
        raise InvalidInput(
            f"which ledger paid for {store}? Name it with ledger=: the file answers from your table, and is not "
            "believed about who paid, for whoever made it could name a ledger of their own"
        )
    # looked at twice, here and by the curator: with an anchor both are of one file
    found, about = kept(store, anchor, begun=True)
    table = about.get("source") if source is None else source
    if table is None:
        raise InvalidInput(f"{store} does not remember its table; name it")
    plan = about["plan"]
    opened_again = KEPT[type(plan)].resume(Path(store), table, account, plan, anchor)
    settled(account, found.name, plan.fingerprint)
    return opened_again


def session_status(store: Place) -> dict[str, Any]:
    """How a stored session stands; neither table nor ledger is touched. Raises LedgerError, InvalidInput."""
    if Path(store).is_dir():
        return histogram_session(load_release(store)).status()
    found, about = kept(store)
    own = {"name": found.name, "ledger_id": found.ledger_id, "anchor": found.anchor}
    plan = about["plan"]
    table = about.get("source")
    return KEPT[type(plan)].describe(plan, found) | own | {"source": None if table is None else str(table)}


def keeps_session(path: Path) -> bool:
    """Whether a file says of itself that it keeps a session; nothing else is checked."""
    return is_conversation(path) or is_histogram(path)


def kept(
    store: Place, anchor: str | None = None, *, begun: bool = False
) -> tuple[StoredTranscript | StoredHistogram, dict[str, Any]]:
    """What a stored session shows, and what it remembers of its opening, which need only be `begun`."""
    if is_histogram(Path(store)):
        found = read_histogram(Path(store), anchor)
    else:
        found = read_transcript(store, anchor, begun=begun)
    if not isinstance(found.about, dict) or type(found.about.get("plan")) not in KEPT:
        raise InvalidInput(f"{store} is a conversation, but no session of this kind")
    return found, found.about


def _resume_online(store: Path, source: Any, account: Ledger, plan: SessionPlan, anchor: str | None) -> Session:
    curator = Curator(source, plan.domain, plan.unit, account, packing=pack)
    return OnlineSession(plan, resume(curator, store, anchor=anchor))


def _open_online(asked: Opening) -> Session:
    """Check the public number of records where there is one, then debit and begin."""
    plan = asked.plan
    account = Ledger.in_memory(plan.budget) if asked.ledger is None else asked.ledger
    # what follows from public input and the ledger alone is refused before the table is read
    account.expect(asked.name, "0" * 64, plan.price, plan.unit, asked.table)
    curator = Curator(asked.source, plan.domain, plan.unit, account, table=asked.table, packing=pack)
    if plan.unit.total_is_public and not asked.counted:
        found = _public_total(curator, account, asked.name)
        if max(found, 1) != plan.records:
            raise PlanError(
                f"records= says {plan.records:,}, and the table has {found:,}, public under replace-one; plan with that"
            )
    return OnlineSession(plan, begun(asked, account, partial(converse, curator), plan.terms))


def public_records(
    source: Any, domain: Domain, unit: PrivacyUnit, account: Ledger, name: str, price: Event, table: str | None
) -> int:
    """The number of records that a session under replace-one is to be planned for; free, as it is public.

    Refuses before the table is read what the ledger would refuse of a session at that price.
    """
    account.expect(name, "0" * 64, price, unit, table)
    return _public_total(Curator(source, domain, unit, account, table=table, packing=pack), account, name)


def _public_total(curator: Curator, account: Ledger, name: str) -> int:
    """The number of records of a table under replace-one: the same for all neighbours, so that it costs nothing."""
    noise, free = DiscreteLaplace(Fraction(1)), PureEvent(Fraction(0))
    measured, receipt = curator.measure((Block((), ()),), noise, free, name=_unused(account, name), plan_hash="records")
    account.mark_released(receipt, "records")
    if measured.total is None:
        raise PlanError("the number of records is not public here")
    return measured.total


def _unused(account: Ledger, name: str) -> str:
    """A name beside the session's, for the entry of price 0 under which the number of records is read."""
    number = 1
    while account.find(free := f"{name[:_LONGEST].rstrip()} (records {number})") is not None:
        number += 1
    return free


def histogram_session(made: object) -> HistogramSession:
    """A session over a release that measured everything it will be asked. Raises InvalidInput for another kind."""
    if not isinstance(made, Release):
        raise InvalidInput("the folder holds a release of another kind than a histogram session")
    return HistogramSession(made)


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a session is opened; how one kept in a file goes on, from (file, source, ledger, plan, anchor), and how it
    stands, from what its file shows."""

    open: Callable[[Opening], Session]
    resume: Callable[[Path, Any, Ledger, Any, str | None], Session]
    describe: Callable[[Any, Any], dict[str, Any]]


KEPT: dict[type, _Kind] = {
    SessionPlan: _Kind(
        _open_online, _resume_online, lambda plan, found: describe_steps(plan, found.steps, found.remaining)
    ),
    SparsePlan: _Kind(
        open_sparse, resume_sparse, lambda plan, found: describe_steps(plan, found.steps, found.remaining)
    ),
    HistogramPlan: _Kind(
        open_key_histogram,
        resume_histogram,
        lambda plan, found: describe_shown(plan, found.shown.elements.size),
    ),
}
"""Sessions by their plans."""
