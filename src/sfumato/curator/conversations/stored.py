"""What a conversation's file shows without the table. All of it is public."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato.curator.conversations.transcript import FORMAT, FileTranscript
from sfumato.privacy.conversation_price import Step, Terms
from sfumato.privacy.unit import is_file_of_kind


@dataclass(frozen=True, slots=True)
class StoredTranscript:
    """What a conversation's file shows without the table. All of it is public."""

    terms: Terms
    about: Any
    steps: tuple[Step, ...]
    remaining: int
    anchor: str
    ledger_id: str
    name: str


def is_conversation(path: Path) -> bool:
    """Whether a file says of itself that it is the file of a conversation; nothing else is checked."""
    return is_file_of_kind(path, FORMAT)


def read_transcript(
    store: str | os.PathLike[str], anchor: str | None = None, *, begun: bool = False
) -> StoredTranscript:
    """Read the file of a conversation; nothing can be asked by it.

    Raises LedgerError for one whose opening did not come to its end, unless it need only be `begun`, LedgerCorrupted
    for one that was changed.
    """
    transcript = FileTranscript(store)
    if anchor is not None:
        transcript.check(anchor)
    standing, opening = None if begun and transcript.paid is None else transcript.standing(), transcript.opening
    return StoredTranscript(
        opening.terms,
        opening.about,
        () if standing is None else standing.steps,
        opening.terms.epochs.count if standing is None else standing.vector.remaining,
        transcript.anchor,
        opening.ledger_id,
        opening.name,
    )
