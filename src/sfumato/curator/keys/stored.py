"""What a histogram's file shows without the table. All of it is public."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato.curator.keys.lazy_histogram import NoisyCounts
from sfumato.curator.keys.store import FORMAT, KeyStore
from sfumato.privacy.unit import is_file_of_kind


@dataclass(frozen=True, slots=True)
class StoredHistogram:
    """What a histogram's file shows without the table. All of it is public."""

    about: Any
    shown: NoisyCounts
    anchor: str
    ledger_id: str
    name: str


def read_histogram(store: Path, anchor: str | None = None) -> StoredHistogram:
    """Read the file of a histogram; nothing new can be asked by it. Raises what `KeyStore` does."""
    found = KeyStore(store)
    if anchor is not None:
        found.check(anchor)
    return StoredHistogram(found.opening.about, found.known, found.anchor, found.opening.ledger_id, found.opening.name)


def is_histogram(path: Path) -> bool:
    """Whether a file says of itself that it is the file of a histogram; nothing else is checked."""
    return is_file_of_kind(path, FORMAT)
