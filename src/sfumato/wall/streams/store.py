"""The store of a stream: what it was opened for, its receipt, and for every period what was published.

Lines form a chain of keyed hashes, so that an anchor that is shown tells nothing; the secret state lies beside it, and
a line bears its keyed hash. A period's line says all that came out of it and comes into being with it, or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InvalidInput
from sfumato.ground.bundles import pack, unpack
from sfumato.ground.codec import storable
from sfumato.ground.later import later
from sfumato.privacy.accountant import Event
from sfumato.privacy.chain import Format
from sfumato.privacy.continual import Published, StreamTerms
from sfumato.privacy.files import Wording
from sfumato.privacy.unit import PrivacyUnit

__all__ = ["FORMAT", "NAMES", "Standing", "StreamOpening", "advance", "first_line", "period_line", "receipt_line"]

_NOTICE = (
    "Private to the custodian: with the files of state beside it, this store holds sums of past tables. Keep them "
    "unreadable for others, and keep one copy: two copies that both go on would draw noise twice for one period."
)


NAMES = 1
"""The rule by which persons of new streams are told apart: the text "1.0" is the name 1."""
FORMAT = Format(
    words=Wording(
        noun="stream",
        mode=0o600,
        make="open one with sf.open of a plan with periods",
        undone="no period was published",
        advice="no period was published: make room or access, and append it again",
    ),
    application_id=0x53464D53,
    label="sfumato stream",
    keyed=True,
)


@storable
@dataclass(frozen=True, slots=True, repr=False)
class StreamOpening:
    """What a stream was opened for. `holder` tells domain and unit, `name` the debit; there is room for `people`.

    names: by which rule persons are told apart, `NAMES`; 0 is that of 0.2, whose digests no other finds again.
    """

    terms: StreamTerms
    unit: PrivacyUnit
    price: Event
    about: Any
    holder: str
    ledger_id: str
    name: str
    plan_hash: str
    names: int = later(0)
    people: int = later(0)

    def __post_init__(self) -> None:
        texts = (self.holder, self.ledger_id, self.name, self.plan_hash)
        if type(self.names) is not int or not 0 <= self.names <= NAMES:
            raise InvalidInput("persons of this stream are told apart by a rule that this version does not know")
        kinds = {"people": int, "terms": StreamTerms, "unit": PrivacyUnit, "price": Event}
        if {*map(type, texts)} != {str} or not all(isinstance(getattr(self, n), k) for n, k in kinds.items()):
            raise InvalidInput("this is no opening of a stream")


@dataclass(frozen=True, slots=True, repr=False)
class Standing:
    """All lines so far. `key` and `digest`, that of the state in force, are secret."""

    key: bytes
    opening: StreamOpening
    paid: tuple[int, str] | None = None
    published: tuple[Published, ...] = ()
    digest: str = ""

    def find(self, label: str) -> Published | None:
        """The period of that label, if it was published."""
        return next((p for p in self.published if p.label == label), None)


def first_line(key: bytes, opening: StreamOpening) -> bytes:
    """Line 0."""
    return b"\n".join([_NOTICE.encode(), key.hex().encode(), pack(opening)])


def receipt_line(sequence: int, anchor: str) -> bytes:
    """The line after it: who paid."""
    return pack((sequence, anchor))


def period_line(published: Published, digest: str) -> bytes:
    """A period's line: as long for any values of theirs, which are no smaller when they are packed."""
    header = pack((published.label, published.total))
    raw = (v.astype("<i8", copy=False).tobytes() for v in published.values)
    return b"\n".join([digest.encode(), b"%d" % len(header), header + b"".join(raw)])


def _published(size: bytes, rest: bytes, ends: NDArray[np.int64]) -> Published:
    """What a period's line holds behind its digest, families that end there. Raises ValueError."""
    label, total = _read(rest[: int(size)], tuple)
    values = np.frombuffer(rest[int(size) :], dtype="<i8").astype(np.int64, copy=False)
    if len(values) != ends[-1]:
        raise ValueError("a period has other values than the stream measures")
    return Published(label, tuple(np.split(values, ends[:-1])), total)


def advance(standing: Standing | None, bodies: Sequence[bytes]) -> Standing:
    """What some more lines say after those before; ValueError where they do not follow."""
    if standing is None:
        standing = Standing(FORMAT.key(bodies[0]), _read(bodies[0].split(b"\n", 2)[2], StreamOpening))
        bodies = bodies[1:]
    more, digest, labels = list[Published](), standing.digest, {p.label for p in standing.published}
    terms = standing.opening.terms
    ends = np.cumsum(terms.rows)
    for body in bodies:
        if standing.paid is None:
            standing = replace(standing, paid=_read(body, tuple))
            continue
        mark, size, rest = body.split(b"\n", 2)
        found, digest = _published(size, rest, ends), mark.decode("ascii")
        if found.label in labels or len(labels) == terms.filter.periods:
            raise ValueError("a period stands there twice, or after the last")
        labels.add(found.label)
        more.append(found)
    return replace(standing, published=(*standing.published, *more), digest=digest)


def _read(body: bytes, kind: type) -> Any:
    found = unpack(body)
    if not isinstance(found, kind):
        raise ValueError(f"a {type(found).__name__} stands where a {kind.__name__} belongs")
    return found
