"""The file of a lazy histogram: what it was opened for, and a chain of lines, each with the keys first shown by it.

It belongs to the custodian: besides public noisy counts it holds a salted digest of the exact table, by which a table
that changed is refused. Every change to it is found, as in a ledger; a file that was put back to an earlier state is
found by an anchor kept elsewhere, and must not go on, for it would draw noise anew for keys already shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sfumato._util.bundles import pack_value, unpack_value
from sfumato._util.codec import storable
from sfumato.curator.keys.lazy_histogram import Draw, Integers, NoisyCounts
from sfumato.errors import InvalidInput
from sfumato.privacy.accounting import Event
from sfumato.privacy.chain import FileChain, Format
from sfumato.privacy.files import Wording
from sfumato.privacy.noise import NoiseLaw
from sfumato.privacy.unit import PrivacyUnit
from sfumato.sketches import Keys
from sfumato.sketches.maps import Words

FORMAT = Format(
    words=Wording(
        noun="histogram",
        mode=0o600,
        make="open one with a session over keys",
        undone="no key was shown",
        advice="no key was shown: make room or access, and ask again",
    ),
    application_id=0x53464D4B,
    label="sfumato histogram",
)


@storable
@dataclass(frozen=True, slots=True, repr=False)
class HistogramOpening:
    """What a histogram was opened for; `digest` is that of its table under `salt`, `name` that of the debit."""

    keys: Keys
    unit: PrivacyUnit
    noise: NoiseLaw
    price: Event
    about: Any
    salt: str
    digest: str
    ledger_id: str
    name: str
    plan_hash: str

    def __post_init__(self) -> None:
        kinds = {"keys": Keys, "unit": PrivacyUnit, "noise": NoiseLaw, "price": Event}
        texts = dict.fromkeys(("salt", "digest", "ledger_id", "name", "plan_hash"), str)
        if not all(isinstance(getattr(self, field), kind) for field, kind in (kinds | texts).items()):
            raise InvalidInput("this is no opening of a histogram")


@dataclass(frozen=True, slots=True, repr=False)
class _ShownCounts:
    """All lines so far: what it was opened for, and the noisy counts of every key shown."""

    opening: HistogramOpening
    known: NoisyCounts


class KeyStore:
    """Noisy counts in a file that threads and processes share; `known` is what this object has read of it.

    Raises LedgerError for another file, LedgerCorrupted for one that was changed.
    """

    __slots__ = ("_chain", "_head", "known", "opening")

    def __init__(self, path: Path | FileChain[_ShownCounts]) -> None:
        self._chain = path if isinstance(path, FileChain) else FileChain(path, FORMAT, _read_shown_lines)
        found = self._chain.read()
        self._head, self.opening, self.known = found.hashes[0], found.state.opening, found.state.known

    @classmethod
    def create(cls, path: Path, opening: HistogramOpening) -> KeyStore:
        """Make the file, unpaid. Raises LedgerError where it exists or cannot be made."""
        return cls(FileChain.create(path, FORMAT, _read_shown_lines, pack_value(opening)))

    def remove(self) -> None:
        """Take an unpaid file away."""
        self._chain.remove()

    @property
    def plan_hash(self) -> str:
        """What the ledger's entry bears: the plan paid for, and this very file."""
        return f"{self.opening.plan_hash}:{self._head[:32]}"

    @property
    def anchor(self) -> str:
        """The number of the last line and the hash over all of them: kept elsewhere, it finds a file put back."""
        return self._chain.known.anchor

    def check(self, anchor: str) -> None:
        """Raise LedgerCorrupted unless the file goes on from an anchor, InvalidInput for a text that is no anchor."""
        self._chain.check(anchor)

    def extend(self, elements: Words, draw: Draw) -> None:
        """Have the counts of sorted distinct keys known, drawing those that nobody has drawn, in one transaction."""
        with self._chain.turn(write=True) as turn:
            fresh = elements[~turn.state.known.find(elements)[1]]
            if fresh.size:
                # as long as the keys are many, whatever the counts are: whether there is room does not depend on them
                turn.append(fresh.astype("<u8").tobytes() + draw(fresh).astype("<i8").tobytes())
        # only now is it there for good
        self.known = turn.state.known


def _read_shown_lines(shown: _ShownCounts | None, bodies: Sequence[bytes]) -> _ShownCounts:
    """What some more lines show besides those before; ValueError where they cannot be read."""
    if shown is None:
        opening = unpack_value(bodies[0])
        if type(opening) is not HistogramOpening:
            raise ValueError("its first line is of another kind")
        shown, bodies = _ShownCounts(opening, NoisyCounts()), bodies[1:]
    if not bodies:
        return shown
    elements, values = list[Words](), list[Integers]()
    for body in bodies:
        if len(body) % 16:
            raise ValueError("a line has not one count for each key")
        half = len(body) // 2
        elements.append(np.frombuffer(body[:half], dtype="<u8"))
        values.append(np.frombuffer(body[half:], dtype="<i8"))
    found = np.concatenate(elements).astype(np.uint64)
    order = np.argsort(found)
    return _ShownCounts(
        shown.opening, shown.known.with_more(found[order], np.concatenate(values).astype(np.int64)[order])
    )
