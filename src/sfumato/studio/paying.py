"""The one thing that costs: carrying a plan out, once, in a thread of its own, while the pages look on.

What is paid is the plan that the window saw: a spec that changed meanwhile is refused. The ledger decides between
windows, and between this and other programs; here it is only kept that one payment at a time is made.
"""

from __future__ import annotations

import sys
import threading
import time
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sfumato.errors import InvalidInput, LedgerMismatch, NameTaken, NotWritten, SfumatoError
from sfumato.ground.frames import safe_text
from sfumato.plans.iterative import IterativePlan
from sfumato.plans.plan import Plan
from sfumato.plans.streams import StreamPlan
from sfumato.privacy.amounts import readable
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger import Ledger, words
from sfumato.releasing import release
from sfumato.studio.desk import Desk, checked_name

__all__ = ["Payments", "account", "open_ledger"]

_SHOWN = 200  # entries on a page; the export has all


@dataclass(slots=True)
class Job:
    """One payment: what it is of, how far it is, and how it ended."""

    name: str = ""
    state: str = "none"
    step: str = ""
    text: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class Payments:
    """The payment that is being made, or was last."""

    desk: Desk
    _job: Job = field(default_factory=Job)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def status(self) -> dict[str, Any]:
        """How far it is."""
        return asdict(self._job)

    def begin(self, version: object, fingerprint: object, name: object) -> dict[str, Any]:
        """Start to pay for the plan that a window saw. Raises SfumatoError; nothing is spent then."""
        text, called = self.desk.seen(version), checked_name(name)
        spec, plan = self.desk.spec(text), self.desk.plan(text)
        if isinstance(plan, StreamPlan):
            raise InvalidInput("the tables of a stream come one by one: sfumato stream open SPEC opens it")
        if spec.margins:
            raise InvalidInput(
                "the spec states margins, which a release from its budget would ignore: sfumato plan --margins plans "
                "by them; or take the margins out"
            )
        if plan.fingerprint != fingerprint:
            raise NameTaken("this is not the plan that this window shows; load the page again")
        if spec.source is None:
            raise InvalidInput("say on the first page where the table is")
        if self.desk.ledger() is None:
            raise InvalidInput("there is no ledger yet; make one above")
        with self._lock:
            if self._job.state == "paying":
                whose = "this very name" if self._job.name == called else f"the name {self._job.name}"
                raise NameTaken(f"another window is paying under {whose} right now; nothing was spent twice")
            self._job = Job(called, "paying", "opening the table")
        thread = threading.Thread(target=self._pay, args=(plan, spec.source, spec.table, called), daemon=False)
        thread.start()
        return self.status()

    def _pay(self, plan: Plan | IterativePlan, source: str, table: str | None, name: str) -> None:
        job, began = self._job, time.monotonic()
        place = self.desk.place(name)
        there = (place / "release.json").exists()

        def progress(steps: int, gap: float) -> None:
            del gap  # where it stops can hang on the noisy answers; how many steps is enough
            job.step = f"projecting, step {steps:,}"

        try:
            job.step = "paying, counting, adding noise, writing"
            place.parent.mkdir(parents=True, exist_ok=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # numerical warnings could depend on the data
                release(
                    plan, source, ledger=self.desk.places.ledger, name=name, out=place, table=table, progress=progress
                )
            job.text = (
                "It was paid for before: nothing was measured or spent, and the table was not read."
                if there
                else "Paid, measured, written."
            )
            job.state = "done"
        except NotWritten as error:
            _aside(error)
            job.text = (
                "The budget is spent, but the release could not be stored; the reason is shown where sfumato studio "
                "was started. There is no refund once noise was drawn: the ledger lists it as unreleased."
            )
            job.state = "lost"
        except SfumatoError as error:
            _aside(error)
            text = self.desk.said(error)
            job.text = text if "nothing was spent" in text else f"{text}. Nothing was spent."
            job.state = "refused"
        except Exception as error:
            _aside(type(error)())
            job.text = (
                "Something failed that should not; look at the ledger, whether it was paid. Please report it as a bug."
            )
            job.state = "failed"
        finally:
            job.seconds = time.monotonic() - began


def _aside(error: Exception) -> None:
    """To the custodian's terminal, not to the page."""
    sys.stderr.write(f"sfumato studio: {type(error).__name__}: {safe_text(str(error))}\n")


def open_ledger(path: Path, budget: Budget, table: str | None) -> None:
    """Make the ledger. Raises SfumatoError where there is one."""
    try:
        Ledger.create(path, total=budget, table=table)
    except LedgerMismatch as error:
        raise InvalidInput(str(error)) from error


def account(ledger: Ledger, plan: Plan | IterativePlan | StreamPlan | None) -> dict[str, Any]:
    """A ledger for the page: what is spent, what this plan would take, what is left, in words; its lines."""
    state = ledger.state()
    spends = words.spends(state)
    total = float(state.total)
    protects, table = words.whom(state)
    out: dict[str, Any] = {
        "total": words.total(words.promised(state)),
        "left": words.left(state).partition("; a plan may")[0],
        "spent_share": float(state.spent) / total if total else 1.0,
        "spent": readable(state.spent),
        "remaining": readable(state.remaining),
        "of": readable(state.total),
        "currency": str(state.currency),
        "protects": protects,
        "table": table,
        "anchor": ledger.anchor,
        "id": state.ledger_id,
        "unreleased": [safe_text(e.name) for e in spends if not e.released],
        "why_unreleased": words.UNRELEASED,
        "more": max(0, len(spends) - _SHOWN),
        "entries": [
            {"line": e.sequence, "name": safe_text(e.name), "time": e.time, "stored": e.released}
            | {"paid": words.paid(e.event, words.promised(state)), "unit": words.unit(e)}
            | {"share": float(e.price) / total if total else 1.0}
            for e in spends[-_SHOWN:]
        ],
    }
    if plan is not None:
        try:
            quote = ledger.quote(plan)
        except SfumatoError as error:
            return out | {"fits": False, "quote": str(error), "plan_share": 0.0}
        out |= {"fits": quote.fits, "quote": str(quote), "plan_share": float(quote.price) / total if total else 1.0}
        same = [e.name for e in spends if e.plan_hash == plan.fingerprint and e.released]
        out["released"] = safe_text(same[-1]) if same else None
        out["paid"] = words.paid(plan.price, words.promised(state))
    return out
