"""What has been said in a conversation, with the secret noise it goes on with: kept in memory, or in a file."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from sfumato._util.bundles import pack_value, unpack_value
from sfumato._util.codec import storable
from sfumato.errors import InvalidInput, LedgerError
from sfumato.privacy.accounting import Event
from sfumato.privacy.chain import FileChain, Format, Turn
from sfumato.privacy.conversation_price import SparseVector, Step, Terms
from sfumato.privacy.debits import Receipt
from sfumato.privacy.files import Wording


@dataclass(frozen=True, slots=True, repr=False)
class TranscriptState:
    """The steps so far, and the sparse vector that answers the next question. Its noise is secret."""

    steps: tuple[Step, ...]
    vector: SparseVector


class TranscriptTurn(Protocol):
    """The sole right to add one step to a transcript."""

    @property
    def standing(self) -> TranscriptState:
        """What was said before."""
        ...

    def write(self, step: Step, vector: SparseVector) -> None:
        """Add a step; it is kept for good once the turn has ended, and not at all if the turn fails."""
        ...

    def close(self) -> None:
        """End the conversation for good instead."""
        ...


class Transcript(Protocol):
    """Where a conversation is kept."""

    @property
    def terms(self) -> Terms: ...

    @property
    def about(self) -> Any: ...

    @property
    def anchor(self) -> str | None:
        """The number of the last line and a hash over all of them; None in memory."""
        ...

    def standing(self) -> TranscriptState:
        """What was said so far."""
        ...

    def turn(self) -> AbstractContextManager[TranscriptTurn]:
        """One turn at a time, of all threads and processes."""
        ...


class _MemoryTurn:
    __slots__ = ("next", "standing")

    def __init__(self, standing: TranscriptState) -> None:
        self.standing, self.next = standing, standing

    def write(self, step: Step, vector: SparseVector) -> None:
        self.next = TranscriptState((*self.standing.steps, step), vector)

    def close(self) -> None:
        self.next = replace(self.standing, vector=replace(self.standing.vector, remaining=0))


class MemoryTranscript:
    """A transcript that ends with this process."""

    __slots__ = ("_lock", "_standing", "about", "terms")

    anchor: str | None = None

    def __init__(self, vector: SparseVector, about: Any) -> None:
        self.terms, self.about = vector.terms, about
        self._standing, self._lock = TranscriptState((), vector), threading.Lock()

    def standing(self) -> TranscriptState:
        """What was said so far."""
        return self._standing

    @contextmanager
    def turn(self) -> Generator[TranscriptTurn]:
        """One turn at a time, of all threads."""
        with self._lock:
            made = _MemoryTurn(self._standing)
            yield made
            self._standing = made.next


_NOTICE = (
    "Private to the custodian: this file holds the secret noise of a running conversation. Keep it unreadable for "
    "others, and keep one copy: two copies that both go on would spend twice what was paid."
)
_WIDTH = 24  # a sign, 22 digits and one to spare: a line is as long for any number
_NUMBER = re.compile(r"[+-]\d{1,22} *", re.ASCII)


FORMAT = Format(
    words=Wording(
        noun="conversation",
        mode=0o600,
        make="open a conversation there",
        undone="nothing was answered",
        advice="nothing was answered: make room or access, and ask again",
    ),
    application_id=0x53464D43,
    label="sfumato conversation",
    keyed=True,
)


@storable
@dataclass(frozen=True, slots=True, repr=False)
class Opening:
    """What a conversation was opened for. `holder` tells domain and unit, `digest` the table, `name` the debit."""

    terms: Terms
    price: Event
    about: Any
    holder: str
    digest: str
    ledger_id: str
    name: str
    plan_hash: str

    def __post_init__(self) -> None:
        texts = (self.holder, self.digest, self.ledger_id, self.name, self.plan_hash)
        if not isinstance(self.terms, Terms) or not isinstance(self.price, Event) or {*map(type, texts)} != {str}:
            raise InvalidInput("this is no opening of a conversation")


@dataclass(frozen=True, slots=True, repr=False)
class _TranscriptLines:
    """All lines so far: the opening, the receipt, and how the conversation stands once that is there. Secret."""

    key: bytes
    opening: Opening
    paid: tuple[int, str] | None = None
    standing: TranscriptState | None = None


class FileTranscript:
    """A transcript in a file that threads and processes share, read on before every turn.

    Raises LedgerError for another file, LedgerCorrupted for one that was changed or put back to an earlier state.
    """

    __slots__ = ("_chain", "_first", "_head")

    def __init__(self, path: str | os.PathLike[str] | FileChain[_TranscriptLines]) -> None:
        self._chain = path if isinstance(path, FileChain) else FileChain(path, FORMAT, _read_transcript_lines)
        found = self._chain.read()
        self._first, self._head = found.state, found.hashes[0]

    @classmethod
    def create(cls, path: Path, opening: Opening, key: bytes) -> FileTranscript:
        """Make the file, unpaid. Raises LedgerError where it exists or cannot be made."""
        created = datetime.now(UTC).isoformat(timespec="seconds")
        first = b"\n".join([_NOTICE.encode(), key.hex().encode(), created.encode(), pack_value(opening)])
        return cls(FileChain.create(path, FORMAT, _read_transcript_lines, first))

    def remove(self) -> None:
        """Take an unpaid file away."""
        self._chain.remove()

    @property
    def key(self) -> bytes:
        """The key of its hashes and of the table's digest. Secret."""
        return self._first.key

    @property
    def opening(self) -> Opening:
        return self._first.opening

    @property
    def terms(self) -> Terms:
        return self.opening.terms

    @property
    def about(self) -> Any:
        return self.opening.about

    @property
    def plan_hash(self) -> str:
        """What the ledger's entry bears: the plan paid for, and this very file."""
        return f"{self.opening.plan_hash}:{self._head[:32]}"

    @property
    def paid(self) -> tuple[int, str] | None:
        """The receipt's line and anchor; None where the opening ended before it was written down."""
        return self._chain.read().state.paid

    @property
    def anchor(self) -> str:
        """The number of the last line and the hash over all of them."""
        return self._chain.read().anchor

    def check(self, anchor: str) -> None:
        """Raise LedgerCorrupted unless the file goes on from an anchor, InvalidInput for a text that is none."""
        self._chain.check(anchor)

    def pay(self, receipt: Receipt) -> None:
        """Write the receipt down, and the first threshold, unless that was done."""
        if self.paid is None:
            with self._chain.turn(write=True) as turn:
                if turn.state.paid is None:
                    drawn = SparseVector.begin(self.terms).threshold
                    turn.append(_transcript_line("paid", pack_value((receipt.sequence, receipt.anchor)), None, drawn))

    def standing(self) -> TranscriptState:
        """What was said so far. Raises LedgerError for a conversation that was not paid for."""
        return self._paid(self._chain.read().state)

    @contextmanager
    def turn(self) -> Generator[_FileTurn]:
        """One turn at a time, of all threads and processes; it is on stable storage when the block has ended."""
        with self._chain.turn(write=True) as turn:
            yield _FileTurn(turn, self._paid(turn.state))

    def _paid(self, found: _TranscriptLines) -> TranscriptState:
        if found.standing is None:
            raise LedgerError(
                f"{self._chain.path}: the opening of this conversation did not come to its end; open it again as it was"
            )
        return found.standing


class _FileTurn:
    __slots__ = ("_turn", "standing")

    def __init__(self, turn: Turn[_TranscriptLines], standing: TranscriptState) -> None:
        self._turn, self.standing = turn, standing

    def write(self, step: Step, vector: SparseVector) -> None:
        kind = "above" if step.above else "below"
        self._turn.append(_transcript_line(kind, pack_value(step.question), step.answer, vector.threshold))

    def close(self) -> None:
        self._turn.append(_transcript_line("ended", b"", None, self.standing.vector.threshold))


def _transcript_line(kind: str, body: bytes, answer: int | None, threshold: int) -> bytes:
    """A line: its kind, two numbers of fixed width, and what it is about."""
    texts = ("" if n is None else f"{n:+d}" for n in (answer, threshold))
    return b"\n".join([kind.encode(), *(text.ljust(_WIDTH).encode() for text in texts), body])


def _read_transcript_lines(said: _TranscriptLines | None, bodies: Sequence[bytes]) -> _TranscriptLines:
    """What some more lines say after those before; ValueError where they do not follow."""
    if said is None:
        said = _TranscriptLines(FORMAT.key(bodies[0]), _unpack_transcript_part(bodies[0].split(b"\n", 3)[3], Opening))
        bodies = bodies[1:]
    paid, standing, steps = said.paid, said.standing, list[Step]()
    for line in bodies:
        kind, *numbers, body = line.split(b"\n", 3)
        answer, threshold = numbers
        drawn = _read_fixed_number(threshold)
        if standing is None:
            _require_transcript(kind == b"paid", "it begins without a receipt")
            paid = _unpack_transcript_part(body, tuple)
            standing = TranscriptState((), SparseVector(said.opening.terms, drawn, said.opening.terms.epochs.count))
            continue
        vector = standing.vector
        _require_transcript(vector.remaining > 0 and kind in (b"above", b"below", b"ended"), "it goes on after its end")
        if kind == b"ended":
            standing = replace(standing, vector=replace(vector, remaining=0))
            continue
        above = kind == b"above"
        _require_transcript(above or drawn == vector.threshold, "a threshold changed within its epoch")
        found = _read_fixed_number(answer) if above and said.opening.terms.answer is not None else None
        steps.append(Step(_unpack_transcript_part(body, object), found, above))
        standing = replace(standing, vector=replace(vector, threshold=drawn, remaining=vector.remaining - above))
    if standing is not None and steps:
        standing = replace(standing, steps=(*standing.steps, *steps))
    return replace(said, paid=paid, standing=standing)


def _read_fixed_number(text: bytes) -> int:
    found = text.decode("ascii")
    _require_transcript(len(found) == _WIDTH and _NUMBER.fullmatch(found) is not None, "no number")
    return int(found)


def _unpack_transcript_part(body: bytes, kind: type) -> Any:
    found = unpack_value(body)
    _require_transcript(isinstance(found, kind), f"a {type(found).__name__} stands where a {kind.__name__} belongs")
    return found


def _require_transcript(holds: bool, problem: str) -> None:
    if not holds:
        raise ValueError(problem)
