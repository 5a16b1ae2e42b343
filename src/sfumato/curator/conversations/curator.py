"""Conversations: questions one by one, each chosen after earlier replies, under one budget debited at the opening.

The order inside `ask`: take the turn, have the question formed from the steps so far, refuse what was not paid for, and
only then look, draw the noise and write the step down; what was written down for good is returned.
"""

from __future__ import annotations

import hmac
import os
import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, Protocol

from sfumato.curator.conversations.transcript import FORMAT, FileTranscript, MemoryTranscript, Opening, Transcript
from sfumato.curator.curator import check_plan_hash
from sfumato.curator.places import check_place, check_same_opening, check_unopened, pay_for_file
from sfumato.errors import BudgetError, LedgerCorrupted, LedgerError, NotWritten, PlanError, SourceError
from sfumato.privacy.accounting import Event
from sfumato.privacy.conversation_price import ConversationQuestion, SparseVector, Step, Terms
from sfumato.privacy.debits import Debits, Receipt
from sfumato.privacy.files import is_nonempty_file
from sfumato.privacy.noise import BitSource
from sfumato.privacy.reserved_budget import ReservedBudget
from sfumato.privacy.unit import PrivacyUnit


class Access(Protocol):
    """What a conversation needs of the data: exact answers to the questions that it admitted."""

    def open(self) -> None:
        """Read the table, if that was not done before. Raises SourceError."""
        ...

    def admit(self, question: object, terms: Terms) -> tuple[ConversationQuestion, Any]:
        """The question built anew, to be written down, and as it is asked: what `exact` takes.

        After checks without a look that score and answer of the second move as little as was paid for.

        Raises PlanError or WorkloadError.
        """
        ...

    def exact(self, question: Any) -> int:
        """The exact answer to a question as it was admitted. Private."""
        ...

    @property
    def fingerprint(self) -> str:
        """A hash of what is declared: domain and privacy unit."""
        ...

    def digest(self, key: bytes) -> str:
        """A hash, keyed, of the opened table, by which one that changed is told. Private."""
        ...


class _NoQuestion(Exception):
    """No question came; the turn is undone."""


class Conversation:
    """Questions one by one, under a budget debited when it was opened; made by `converse`.

    Steps, `remaining`, `terms` and `about` are public. The object belongs to one process: a forked copy refuses, and it
    can be neither copied nor pickled, for two copies would answer twice with one noise.
    """

    __slots__ = ("_access", "_asking", "_bits", "_process", "_transcript")

    def __init__(self, transcript: Transcript, access: Access, bits: BitSource | None) -> None:
        self._transcript, self._access, self._bits = transcript, access, bits
        self._process, self._asking = os.getpid(), threading.local()

    @property
    def terms(self) -> Terms:
        """What was paid for."""
        return self._transcript.terms

    @property
    def about(self) -> Any:
        """What was given at the opening, to be kept with the conversation."""
        return self._transcript.about

    @property
    def steps(self) -> tuple[Step, ...]:
        """All questions and replies so far."""
        return self._transcript.standing().steps

    @property
    def asked(self) -> int:
        """How many questions were answered."""
        return len(self.steps)

    @property
    def remaining(self) -> int:
        """Positive answers left."""
        return self._transcript.standing().vector.remaining

    @property
    def anchor(self) -> str | None:
        """Kept elsewhere, it finds a file that was rolled back; None for a conversation in memory."""
        return self._transcript.anchor

    def ask(self, form: Callable[[Sequence[Step]], Any]) -> Step:
        """The reply to the question that `form` makes of all steps so far, while nobody else can ask.

        Refused without a look, and the conversation goes on: whatever `form` raises; PlanError or WorkloadError for
        more than one query, for what could not be counted and for what moves further than was paid for;
        BudgetExceeded, before `form` is called, once the last positive was given; BudgetError in another process.
        LedgerError: the step could not be kept, so it was not given. NotWritten: answering failed, and the
        conversation is closed for good.
        """
        self._alone()
        if getattr(self._asking, "now", False):
            raise BudgetError("a question is being formed; another cannot be asked before it is answered")
        self._asking.now = True
        try:
            step = self._turn(form)
        finally:
            self._asking.now = False
        if step is None:
            raise NotWritten(
                "answering failed, for want of memory or because the table is gone; the conversation is closed for good"
            )
        return step

    def _turn(self, form: Callable[[Sequence[Step]], Any]) -> Step | None:
        step: Step | None = None
        raised: Exception | None = None
        with suppress(_NoQuestion), self._transcript.turn() as turn:
            vector = turn.standing.vector
            vector.check_open()
            try:
                formed = form(turn.standing.steps)
            except Exception as error:
                # passed on as it is, and not read as an error of the file
                raised = error
                raise _NoQuestion from None
            question, asked = self._access.admit(formed, self.terms)
            self._alone()  # `form` may have forked
            with suppress(Exception):  # what failed, and its text, may depend on the data
                exact = self._access.exact(asked)
                (score,) = question.scores([exact])
                (above, answer), vector = vector.ask(score, exact, self._bits)
                step = Step(question, answer, above)
            if step is None:
                turn.close()
            else:
                turn.write(step, vector)
        if raised is not None:
            raise raised
        return step

    def _alone(self) -> None:
        if os.getpid() != self._process:
            raise BudgetError("this conversation belongs to the process that opened it; a copy would spend twice")

    def __reduce__(self) -> NoReturn:
        raise BudgetError("a conversation holds secret noise: it can be neither copied nor pickled; keep its steps")

    def __repr__(self) -> str:
        return f"<Conversation: {self.remaining} of {self.terms.epochs.count} positive answers left>"


def converse_with(
    access: Access,
    terms: Terms,
    price: Event,
    *,
    ledger: Debits | ReservedBudget,
    unit: PrivacyUnit,
    table: str | None,
    name: str,
    plan_hash: str,
    store: Path | None,
    about: Any,
    bits: BitSource | None = None,
) -> tuple[Conversation, Receipt]:
    """Open a conversation whose whole price is debited now; values are the wall's own, built anew by the caller.

    Refused before the table is touched: PlanError for terms that cost more than `price`, and for a file under a ledger
    that is none; InvalidInput for a place where no new file can be, nor one whose opening for the same was cut short;
    NameTaken, BudgetExceeded or LedgerError for what
    the ledger would not pay. SourceError: the table cannot be loaded; nothing is spent. NotWritten: spent, but the
    file could not be completed.
    """
    if not isinstance(terms, Terms) or not terms.fits(price):
        raise PlanError("the conversation costs more than the price it states; it is refused")
    check_plan_hash(plan_hash)
    if store is None:
        ledger.expect(name, plan_hash, price, unit, table)
        access.open()
        receipt = ledger.debit(name, plan_hash, price, unit, table)
        return Conversation(MemoryTranscript(SparseVector.begin(terms, bits), about), access, bits), receipt
    if not isinstance(ledger, Debits) or not ledger.durable or bits is not None:
        raise PlanError("a conversation that is kept in a file is paid from a ledger that is kept in one")
    path = check_place(store, "conversation", FORMAT)
    begun = FileTranscript(path) if is_nonempty_file(path) else None
    if begun is None:
        ledger.expect(name, f"{plan_hash}:{'0' * 32}", price, unit, table)
    access.open()
    key = secrets.token_bytes(32) if begun is None else begun.key
    opening = Opening(terms, price, about, access.fingerprint, access.digest(key), ledger.ledger_id, name, plan_hash)
    if begun is not None:
        check_same_opening(path, begun.opening, opening)
        _check_conversation_paid(begun, path, ledger)
    transcript = begun or FileTranscript.create(path, opening, key)
    bought = (name, transcript.plan_hash, price, unit, table)
    receipt = pay_for_file(ledger, bought, (path, transcript.remove), transcript.pay)
    return Conversation(transcript, access, None), receipt


def resume_with(
    access: Access, store: Path, *, ledger: Debits | ReservedBudget, anchor: str | None = None
) -> Conversation:
    """The conversation kept in a file, to go on with: same ledger, same domain and unit, same table.

    With an `anchor` kept from earlier, also a file that was put back to a state before it is refused.

    Raises LedgerError for a file that was not paid for by this ledger, LedgerCorrupted for one that was changed,
    PlanError for another domain or unit, SourceError (for the custodian) for a table that cannot be loaded or changed.
    """
    transcript = FileTranscript(store)
    if anchor is not None:
        transcript.check(anchor)
    opening = transcript.opening
    if not isinstance(ledger, Debits) or ledger.ledger_id != opening.ledger_id:
        raise LedgerError(f"{store} was paid for by another ledger; resume it under that one")
    entry, receipt = ledger.find(opening.name), ledger.paid(opening.name, transcript.plan_hash)
    if entry is None or receipt is None:
        raise LedgerError(
            f"{store} was never paid for: its opening ended before the debit, and nothing was spent. Open it again as "
            "it was opened, or remove the file"
        )
    _check_conversation_paid(transcript, store, ledger)
    sequence, paid_at = transcript.paid or (receipt.sequence, receipt.anchor)
    ledger.check(paid_at)
    if entry.sequence != sequence or entry.event != opening.price or not opening.terms.fits(opening.price):
        raise LedgerCorrupted(f"{store} and its ledger do not agree on what was paid; restore them")
    if access.fingerprint != opening.holder:
        raise PlanError(f"{store} is a conversation over another domain or privacy unit; resume it with its own")
    access.open()
    key, digest = transcript.key, opening.digest
    if not hmac.compare_digest(access.digest(key), digest):
        raise SourceError("the table is not the one that the conversation was opened on; its answers would not agree")
    transcript.pay(receipt)  # where its opening ended before it was written down, and nothing was asked
    return Conversation(transcript, access, None)


def _check_conversation_paid(transcript: FileTranscript, path: Path, ledger: Debits) -> None:
    if transcript.paid is None:
        check_unopened(path, ledger, transcript.opening.name)
