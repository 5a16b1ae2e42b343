"""What a stream's store shows without a ledger. All of it is public."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato.curator.streams.state import FORMAT, read_stream_lines
from sfumato.privacy.chain import FileChain
from sfumato.privacy.stream_price import Published
from sfumato.privacy.unit import is_file_of_kind


@dataclass(frozen=True, slots=True)
class StoredStream:
    """What a stream's store shows without a ledger. All of it is public."""

    about: Any
    published: tuple[Published, ...]
    anchor: str
    ledger_id: str
    name: str
    paid: tuple[int, str] | None


def is_stream(path: Path) -> bool:
    """Whether a file says of itself that it is the store of a stream; nothing else is checked."""
    return is_file_of_kind(path, FORMAT)


def read_stream(store: Path, anchor: str | None = None) -> StoredStream:
    """Read the store of a stream; nothing can be appended by it. Raises LedgerError, LedgerCorrupted."""
    chain = FileChain(store, FORMAT, read_stream_lines)
    found = chain.read() if anchor is None else chain.check(anchor)
    opening = found.state.opening
    kept = found.state
    return StoredStream(opening.about, kept.published, found.anchor, opening.ledger_id, opening.name, kept.paid)
