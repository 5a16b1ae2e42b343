"""What a conversation's file shows without the table. All of it is public."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato.privacy.conversing import Step, Terms
from sfumato.privacy.kinds import says_it_is
from sfumato.wall.talk.filed import FORMAT, FileTranscript

__all__ = ["StoredTranscript", "is_conversation", "read_transcript"]


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
    return says_it_is(path, FORMAT)


def read_transcript(store: str | os.PathLike[str], anchor: str | None = None) -> StoredTranscript:
    """Read the file of a conversation; nothing can be asked by it.

    Raises LedgerError for one that was never opened, LedgerCorrupted for one that was changed.
    """
    transcript = FileTranscript(store)
    if anchor is not None:
        transcript.check(anchor)
    standing, opening = transcript.standing(), transcript.opening
    return StoredTranscript(
        opening.terms,
        opening.about,
        standing.steps,
        standing.vector.remaining,
        transcript.anchor,
        opening.ledger_id,
        opening.name,
    )
