"""What costs, or looks: carrying a plan out, opening a session, the next period, the next question.

What is paid is the plan that the window saw: a spec that changed meanwhile is refused. The ledger decides between
windows, and between this and other programs; here it is only kept that one payment at a time is made, in a thread of
its own while the pages look on. A period or a question is of a window that saw how its stream or session stands.
"""

from __future__ import annotations

import re
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from decimal import ROUND_DOWN, ROUND_UP, Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from sfumato._util.frames import safe_text
from sfumato.curator.streams.stored import is_stream
from sfumato.errors import InvalidInput, LedgerError, LedgerMismatch, NameTaken, NotWritten, SfumatoError
from sfumato.interactive.plan import SessionPlan
from sfumato.interactive.session import QuerySession
from sfumato.interactive.streams import resume_stored
from sfumato.planner.opening import open_plan
from sfumato.plans.streams import StreamPlan
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger import Ledger, words
from sfumato.releases.publication import Publication
from sfumato.releasing import release
from sfumato.studio import conversations
from sfumato.studio.workspace import AnyPlan, Workspace, checked_name

_LARGEST = Decimal(10**9)  # above, no budget is
_OPEN = 2  # sessions that are asked at a time; each holds what it counts of its table
_PRIVATE = 0o700  # stores hold secret noise


@dataclass(slots=True)
class Job:
    """One payment, or a look that was paid for: what it is of, how far it is, and how it ended."""

    name: str = ""
    state: str = "none"
    step: str = ""
    text: str = ""


@dataclass(slots=True)
class Payments:
    """The payment that is being made, or was last; and the sessions that are asked."""

    desk: Workspace
    _job: Job = field(default_factory=Job)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _asking: threading.Lock = field(default_factory=threading.Lock)
    _sessions: dict[str, QuerySession] = field(default_factory=dict)

    def status(self) -> dict[str, Any]:
        """How far it is."""
        return asdict(self._job)

    def begin(self, version: object, fingerprint: object, name: object, what: object) -> dict[str, Any]:
        """Start to pay for the plan that a window saw. Raises SfumatoError; nothing is spent then."""
        text, called = self.desk.seen(version), checked_name(name)
        if what not in conversations.WAYS:
            raise InvalidInput(f"what is paid for is one of {', '.join(conversations.WAYS)}")
        spec, plan = self.desk.spec(text), self.desk.plan(text, str(what))
        if spec.margins and what == conversations.RELEASE:
            raise InvalidInput(
                "the spec states margins, which a release from its budget would ignore: sfumato plan --margins plans "
                "by them; or take the margins out"
            )
        if plan.fingerprint != fingerprint:
            raise NameTaken("this is not the plan that this window shows; load the page again")
        if spec.source is None and not isinstance(plan, StreamPlan):
            raise InvalidInput("say on the first page where the table is")
        if self.desk.ledger() is None:
            raise InvalidInput("there is no ledger yet; make one above")
        if not isinstance(plan, StreamPlan) and (absent := self.desk.absent(spec)):
            more = "; it says whose a row is" if spec.person in absent else ""
            raise InvalidInput(f"the table has no column called {', '.join(map(repr, absent))}{more}")
        own, other = self._places(plan, called)
        if other.exists():
            raise NameTaken(f"{called} is the name of {'a session' if own.parent != other.parent else 'another'} here")
        self._turn(called, "opening the table")
        self._start(lambda: self._carried(plan, spec.source, spec.table, called, spec.publication), _LOST)
        return self.status()

    def append(self, version: object, name: object, seen: object, period: object) -> dict[str, Any]:
        """Start to publish a stream's next period: the table is the spec's, the stream as a window saw it."""
        spec, place = self.desk.spec(self.desk.seen(version)), self.desk.stored(name)
        source, account = spec.source, self.desk.ledger()
        if not isinstance(period, str) or not period.strip():
            raise InvalidInput("name the period: its label is public, such as 2026-W01")
        if source is None:
            raise InvalidInput("say where the period's table is")
        if account is None:
            raise InvalidInput(
                "the ledger that paid for this stream is not here; put it back, and nothing is paid again"
            )
        if not place.is_file() or not is_stream(place):
            raise InvalidInput("a period is added to the store of a stream, and this is none")
        if conversations.store_anchor(place) != seen:
            raise NameTaken(_MOVED)
        label = period.strip()
        self._turn(place.name, f"reading and publishing {label}")

        def carried() -> str:
            opened = resume_stored(place, account, str(seen))
            if opened.anchor != seen:  # while this one waited for its turn
                raise NameTaken(_MOVED)
            before = opened.periods
            opened.publish(source, label)
            if label in before:
                return f"{label} was published before: nothing was read or changed."
            done = len(opened.periods)
            return f"{label} is published: {done:,} of {opened.plan.periods.count:,} periods."

        self._start(carried, "The period could not be measured. Nothing was published; add it again.")
        return self.status()

    def ask(self, name: object, seen: object, question: object) -> dict[str, Any]:
        """The answer to the next question of a session, one at a time, and how it stands then. Raises SfumatoError."""
        place = self.desk.stored(name)
        with self._asking:
            session = self._sessions.get(place.name)
            if session is None:
                session = conversations.resume_from_file(place, self.desk.ledger(), seen)
                while len(self._sessions) >= _OPEN:
                    self._sessions.pop(next(iter(self._sessions)))
                self._sessions[place.name] = session
            try:
                found = conversations.put_question(session, seen, question)
            except (LedgerError, NotWritten):
                self._sessions.pop(place.name, None)  # its file is another by now, or is closed
                raise
            return {"answer": found, "standing": conversations.conversation_status(place)}

    def _places(self, plan: AnyPlan, name: str) -> tuple[Path, Path]:
        """Where a plan's result is put, and the place of the other kind, which must not have the same name."""
        release, store = self.desk.place(name), self.desk.store(name)
        return (store, release) if isinstance(plan, (SessionPlan, StreamPlan)) else (release, store)

    def _turn(self, name: str, step: str) -> None:
        """Take the turn. Raises NameTaken while another has it."""
        with self._lock:
            if self._job.state == "paying":
                whose = "this very name" if self._job.name == name else f"the name {self._job.name}"
                raise NameTaken(f"another window is paying under {whose} right now; nothing was spent twice")
            self._job = Job(name, "paying", step)

    def _start(self, work: Callable[[], str], lost: str) -> None:
        threading.Thread(target=self._ended, args=(work, lost), daemon=False).start()

    def _carried(
        self, plan: AnyPlan, source: Any, table: str | None, name: str, publication: Publication | None = None
    ) -> str:
        """Pay and carry out; what came of it, in words."""
        job, ledger = self._job, self.desk.places.ledger
        place, _ = self._places(plan, name)

        def progress(steps: int, gap: float) -> None:
            del gap  # where it stops can hang on the noisy answers; how many steps is enough
            job.step = f"projecting, step {steps:,}"

        if isinstance(plan, (SessionPlan, StreamPlan)):
            there = place.exists()
            place.parent.mkdir(parents=True, exist_ok=True, mode=_PRIVATE)
            job.step = "opening the table, paying, writing"
            if isinstance(plan, StreamPlan):
                open_plan(plan, ledger=ledger, name=name, store=place, table=table)
            else:
                open_plan(plan, source, ledger=ledger, name=name, store=place, table=table)
            return "It was opened and paid for before; nothing was spent." if there else "Paid and opened."
        there = (place / "release.json").exists()
        job.step = "paying, counting, adding noise, writing"
        place.parent.mkdir(parents=True, exist_ok=True)
        about: Any = {"table": table, "publication": publication}
        release(plan, source, ledger=ledger, name=name, out=place, progress=progress, **about)
        if there:
            return "It was paid for before: nothing was measured or spent, and the table was not read."
        return "Paid, measured, written."

    def _ended(self, work: Callable[[], str], lost: str) -> None:
        """Do the work of a turn, and keep how it ended; `lost` is said where it could not be written."""
        job = self._job
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # numerical warnings could depend on the data
                job.text = work()
            job.state = "done"
        except NotWritten as error:
            _tell_custodian(error)
            job.text, job.state = lost, "lost"
        except SfumatoError as error:
            _tell_custodian(error)
            text = self.desk.said(error)
            job.text = text if "nothing was spent" in text else f"{text}. Nothing was spent."
            job.state = "refused"
        except Exception as error:
            _tell_custodian(type(error)())
            job.text = (
                "Something failed that should not; look at the ledger, whether it was paid. Please report it as a bug."
            )
            job.state = "failed"


_MOVED = "another window or program added a period meanwhile; load this page again. Nothing was read"
_LOST = (
    "The budget is spent, but what it paid for could not be stored; the reason is shown where sfumato studio was "
    "started. There is no refund once noise was drawn: the ledger lists it as unreleased."
)


def _tell_custodian(error: Exception) -> None:
    """To the custodian's terminal, not to the page."""
    sys.stderr.write(f"sfumato studio: {type(error).__name__}: {safe_text(str(error))}\n")


def open_ledger(path: Path, budget: Budget, table: str | None) -> None:
    """Make the ledger. Raises SfumatoError where there is one."""
    try:
        Ledger.create(path, total=budget, table=table)
    except LedgerMismatch as error:
        raise InvalidInput(str(error)) from error


def ledger_proposal(kept: Mapping[str, Any]) -> dict[str, str]:
    """What a new ledger may hold in all: twice of what the spec's budget says, as texts of the fields, and why.

    Of mu twice is four times as much, since it adds up in squares. Nothing where the spec has no budget yet.
    """
    found: dict[str, str] = {}
    for key in ("epsilon", "rho", "mu", "delta"):
        try:
            given = Decimal(str(kept[key]))
        except (KeyError, InvalidOperation):
            continue
        if given.is_finite() and 0 < given < _LARGEST:
            found[key] = f"{(2 * given).normalize():{'' if key == 'delta' else 'f'}}"
    if not found:
        return {}
    more = "three more of its size" if "mu" in found else "one more of its size"
    return found | {
        "why": f"Proposed is twice the budget of this release, which leaves room for {more}: a later state of the "
        "table, or questions that nobody thought of. Whatever is asked of these people later is paid out of this too."
    }


_LONG = re.compile(r"\d+\.\d{7,}")  # what nobody reads: six decimals are a millionth of a unit
_CALL = re.compile(r"sf\.(approx|pure|zcdp|gdp)\('([^']+)'(?:, '([^']+)')?\)")
_LETTERS = {"approx": "epsilon", "pure": "epsilon", "zcdp": "rho", "gdp": "mu"}
_DIGITS = 5  # of an amount on a page


def _short_facts(described: dict[str, Any]) -> tuple[dict[str, Any], list[list[str]]]:
    """A ledger's description with amounts of a few digits and budgets in words, and the rows that had more digits.

    What is spent is rounded up, everything else down: nobody reads of more than there is.
    """
    exact: list[list[str]] = []

    def shorten_row(row: list[Any]) -> list[Any]:
        name, text = str(row[0]), str(row[1])
        rounding = ROUND_UP if name.lower() == "spent" else ROUND_DOWN
        short = _LONG.sub(lambda found: _few_digits(found[0], rounding), text)
        if short != text:
            exact.append([name, text])
        return [row[0], _CALL.sub(_budget_in_words, short), *row[2:]]

    blocks = [
        b | {"rows": [shorten_row(row) for row in b["rows"]]} if b["type"] == "facts" else b
        for b in described["blocks"]
    ]
    return described | {"blocks": blocks}, exact


def _few_digits(number: str, rounding: str) -> str:
    found = Decimal(number)
    step = Decimal(1).scaleb(found.adjusted() + 1 - _DIGITS) if found else Decimal(1)
    return f"{found.quantize(step, rounding=rounding).normalize():f}"


def _budget_in_words(call: re.Match[str]) -> str:
    return f"{_LETTERS[call[1]]} {call[2]}" + (f" at delta {call[3]}" if call[3] else "")


def ledger_account(ledger: Ledger, plan: AnyPlan | None) -> dict[str, Any]:
    """A ledger for the page: how it describes itself, shares for a bar, and what this plan would take."""
    state = ledger.state()
    spends = words.spend_entries(state)
    total = float(state.total)
    share = float(state.spent) / total if total else 1.0
    waiting = [safe_text(e.name) for e in spends if not e.released]
    described, exact = _short_facts(ledger.describe().to_dict())
    out: dict[str, Any] = {"described": described, "exact": exact, "spent_share": share, "unreleased": waiting}
    if plan is not None:
        try:
            quote = ledger.quote(plan)
        except SfumatoError as error:
            return out | {"fits": False, "quote": str(error), "plan_share": 0.0}
        out |= {"fits": quote.fits, "quote": str(quote), "plan_share": float(quote.price) / total if total else 1.0}
        same = [e.name for e in spends if e.plan_hash == plan.fingerprint and e.released]
        out["released"] = safe_text(same[-1]) if same else None
        out["paid"] = words.spend_in_epsilon(plan.price, words.granted_budget(state))
    return out
