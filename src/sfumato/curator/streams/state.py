"""The secret state of a stream between two periods, sums and people: in memory, or in two files in turn.

A file is written while the other is in force, and comes into force by a line of the store, which bears its keyed hash;
so a crash leaves the one that the store names. States are weighted sums of past counts: as secret as the tables.

Whoever lists a folder sees how long its files are. So a file has room for as many people as was declared, taken up by
random digests where there are fewer, and is as long for any tables.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato._util.bundles import pack_value, unpack_value
from sfumato._util.codec import deferred_field, storable
from sfumato._util.files import sync_folder
from sfumato.cells import Grid
from sfumato.curator.rows.counting import Counts, Packing
from sfumato.curator.rows.encoding import Column, Truncation, check_declared, check_type, encoding_statements
from sfumato.curator.rows.loading import collect_encoded
from sfumato.curator.rows.readers import OpenedTable, attempt, open_persons
from sfumato.curator.rows.sources import Histogram
from sfumato.curator.streams.measuring import Integers
from sfumato.errors import InvalidInput, LedgerCorrupted, LedgerError
from sfumato.privacy.accounting import Event
from sfumato.privacy.chain import Format
from sfumato.privacy.files import Wording
from sfumato.privacy.stream_price import Published, StreamTerms
from sfumato.privacy.unit import PrivacyUnit

FIELDS = 4
"""Numbers kept of a person: two with 128 bits of a digest, in how many periods the person was counted, to which 2^32 is
added once the person was left out, and the last of them."""
_LEFT = 2**32  # more than there are periods
_BLOCK = 64  # bytes that SHA-256 takes at once, to which HMAC pads its key
_WHO = "who\0"  # beside the columns of a table, none of which can be called so
_GIVEN = "CREATE TEMP TABLE given AS SELECT *, {who} AS who FROM (SELECT {raw} FROM {source})"
_CALLED = (
    "CREATE TEMP TABLE called AS SELECT who, CAST('0x' || h[1:16] AS UBIGINT) AS high, "
    "CAST('0x' || h[17:32] AS UBIGINT) AS low FROM "
    "(SELECT who, sha256(unhex(?) || unhex(sha256(unhex(?) || encode(who)))) AS h FROM "
    "(SELECT DISTINCT who FROM given WHERE who IS NOT NULL))"
)
_ADMITTED = (
    "CREATE TEMP TABLE admitted AS SELECT called.*, coalesce(times, 0) + 1 AS times FROM called LEFT JOIN known "
    "USING (high, low) WHERE times IS NULL OR (times % {left} < {times} AND last + {apart} <= {period})"
)
_FIRST = (
    "CREATE TEMP TABLE first_left AS SELECT high, low FROM known SEMI JOIN called USING (high, low) "
    "ANTI JOIN admitted USING (high, low) WHERE times < {left}"
)
_AFTER = (
    "SELECT high, low, times, CAST({period} AS BIGINT) AS last FROM admitted UNION ALL "
    "SELECT high, low, times + {left}, last FROM known SEMI JOIN first_left USING (high, low) UNION ALL "
    "SELECT high, low, times, last FROM known ANTI JOIN admitted USING (high, low) "
    "ANTI JOIN first_left USING (high, low) ORDER BY high, low"
)


@dataclass(frozen=True, slots=True, repr=False)
class People:
    """The records of a period as they are given, beside digests of whose they are."""

    opened: OpenedTable
    grid: Grid
    unit: PrivacyUnit
    packing: Packing

    def admit(
        self, known: NDArray[np.int64], period: int, times: int, apart: int
    ) -> tuple[Counts, int, NDArray[np.int64]]:
        """Counts of those who may be counted in this period, how many others are left out for the first time, and what
        is known after it: (people, 4), as before it."""
        connection = self.opened.session.connection
        told = {"times": times, "apart": apart, "period": period, "left": _LEFT}
        columns = zip(("high", "low", "times", "last"), known.T.copy(), strict=True)
        connection.register("known", {n: c.view(np.uint64) if n in ("high", "low") else c for n, c in columns})
        connection.execute(_ADMITTED.format(**told))
        connection.execute(_FIRST.format(**told))
        (first,), *_ = self.opened.session.rows("SELECT count(*) FROM first_left")
        after = connection.execute(_AFTER.format(**told)).fetchnumpy()
        source, unit = "(SELECT * FROM given SEMI JOIN admitted USING (who))", self.unit
        groups = tuple(self.grid.axis(a) for a in unit.once_per)
        rows = Truncation(unit.rows_per_person, groups, unit.rows_per_group)
        for statement in encoding_statements(self.grid, self.opened.columns, source, _WHO, rows):
            connection.execute(*statement)
        kept = np.column_stack([np.asarray(after[n]).view(np.int64) for n in ("high", "low", "times", "last")])
        return collect_encoded(self.opened, self.grid, self.packing, persons=True), int(first), kept


def open_people(
    source: Any, grid: Grid, unit: PrivacyUnit, packing: Packing, key: bytes, *, as_written: bool = False
) -> People:
    """Read a table once, with the digest of every name in it, or of every text of one. Raises as `open_source`."""
    person = unit.person
    assert person is not None
    if isinstance(source, Histogram):
        raise InvalidInput(
            f"a histogram has no column {person!r}, by which this stream sees to it that nobody is counted too often; "
            "give the records, or plan with sf.periods(..., promised=True)"
        )
    check_declared(grid)
    needed = list(dict.fromkeys([*grid.read_columns, person]))
    opened = open_persons(source, needed, person)
    try:
        check_type(person, None, opened.columns[person])
        columns = {n: replace(opened.columns[n], sql=f"k{i}") for i, n in enumerate(needed)}
        raw = ", ".join(f"{opened.columns[n].sql} AS {columns[n].sql}" for n in needed)
        called = columns[person]
        who = (called.written if as_written else called.name)(called.sql)
        # Whose rows few are counted of is who is admitted: by the rule of 0.2 "1.0" and 1 are two, which a mark at the
        # end keeps apart.
        columns[_WHO] = Column("(who || '.')" if as_written else "who", "VARCHAR")
        pad = key.ljust(_BLOCK, b"\0")
        given = _GIVEN.format(who=who, raw=raw, source=opened.sql)
        pads = [bytes(b ^ x for b in pad).hex() for x in (0x5C, 0x36)]
        message = f"{opened.label} could not be read: it is damaged or was cut short, or memory or disk ran out"
        run = opened.session.connection.execute
        attempt(message, lambda: (run(given), run(_CALLED, pads)))
        return People(OpenedTable(opened.session, opened.label, "given", columns, opened.records), grid, unit, packing)
    except BaseException:
        opened.session.close()
        raise


_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)  # Windows has no such flag, and no such links for most accounts
_PRIVATE = 0o600  # read and written by its owner alone


class StreamState(NamedTuple):
    """The numbers kept of all filtered cells (size,), and who was counted when (people, 4); ours to change."""

    sums: Integers
    people: Integers

    @classmethod
    def zero(cls, size: int) -> StreamState:
        """That of no periods."""
        return cls(np.zeros(size, dtype=np.int64), np.zeros((0, FIELDS), dtype=np.int64))


class States(Protocol):
    """The state after every number of periods; that of none is zero."""

    def read(self, periods: int, digest: str) -> StreamState:
        """The state after so many periods, arrays of the caller's own."""
        ...

    def write(self, periods: int, state: StreamState) -> str:
        """Have the state after so many periods on stable storage, beside the one before: its digest."""
        ...

    def forget(self, periods: int) -> None:
        """The state before that of so many periods is needed no more."""
        ...


class MemoryStates:
    """States of one process; the last two, for the last may not come into force."""

    __slots__ = ("_kept", "_size")

    def __init__(self, size: int) -> None:
        self._size, self._kept = size, dict[int, StreamState]()

    def read(self, periods: int, digest: str) -> StreamState:
        """See `States`."""
        del digest
        return StreamState(*(a.copy() for a in self._kept[periods])) if periods else StreamState.zero(self._size)

    def write(self, periods: int, state: StreamState) -> str:
        """See `States`."""
        self._kept[periods] = state
        return ""

    def forget(self, periods: int) -> None:
        """See `States`."""
        self._kept.pop(periods - 1, None)


class FileStates:
    """States in files STORE.even and STORE.odd, by the number of periods. Raises LedgerError, LedgerCorrupted.

    There is `room` for so many people, or as many as there was in the file before. What was written last is held too,
    and is the state to go on from if it is the one in force, by its digest.
    """

    __slots__ = ("_key", "_last", "_path", "_room", "_size")

    def __init__(self, store: Path, size: int, key: bytes, room: int) -> None:
        self._path, self._size, self._key, self._room = store, size, key, room
        self._last: tuple[str, StreamState] | None = None

    def _file(self, periods: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{'odd' if periods % 2 else 'even'}")

    def _digest(self, state: StreamState) -> str:
        keyed = hmac.new(self._key, b"state\n", "sha256")
        for part in state:
            keyed.update(np.ascontiguousarray(part).data)
        return keyed.hexdigest()

    def read(self, periods: int, digest: str) -> StreamState:
        """See `States`."""
        if not periods:
            return StreamState.zero(self._size)
        last, self._last = self._last, None  # it will be changed, also for a period that fails
        if last is not None and hmac.compare_digest(last[0], digest):
            return last[1]
        file = self._file(periods)
        try:
            handle = os.open(file, os.O_RDONLY | _NOFOLLOW)
            with os.fdopen(handle, "rb") as opened:
                found = np.fromfile(opened, dtype="<i8").astype(np.int64, copy=False)
        except OSError as error:
            raise LedgerError(f"{file}: the state of the stream cannot be read ({error.strerror})") from error
        size = self._size
        whole = found.size >= size and (found.size - size) % FIELDS == 0
        state = None
        if whole:
            rows = found[size:].reshape(-1, FIELDS)
            self._room = max(self._room, len(rows))
            # whoever was counted was so in one period at least: other rows only take up room
            state = StreamState(found[:size], rows[rows[:, 2] > 0])
        if state is None or not hmac.compare_digest(self._digest(state), digest):
            raise LedgerCorrupted(f"{file}: the state of the stream was changed or put back; restore it with its store")
        return state

    def write(self, periods: int, state: StreamState) -> str:
        """See `States`."""
        file, missing = self._file(periods), self._room - len(state.people)
        if missing < 0:
            raise LedgerError(
                f"{self._path} has room for {self._room:,} people, who are more by now; nothing was shown. Open the "
                "stream again with people= (append it with --people), a number that they will never reach"
            )
        rest = np.zeros((missing, FIELDS), dtype="<i8")
        rest[:, :2] = np.frombuffer(secrets.token_bytes(16 * missing), dtype="<i8").reshape(-1, 2)
        try:
            handle = os.open(file, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | _NOFOLLOW, _PRIVATE)
            with os.fdopen(handle, "wb") as opened:
                if hasattr(os, "fchmod"):
                    os.fchmod(handle, _PRIVATE)
                for part in (*state, rest):
                    opened.write(np.ascontiguousarray(part, dtype="<i8").data)
                opened.flush()
                os.fsync(handle)
            sync_folder(file.parent)
        except OSError as error:
            raise LedgerError(
                f"{file}: the state of the stream cannot be written ({error.strerror}); nothing was shown: make room "
                "or access, and append the period again"
            ) from error
        digest = self._digest(state)
        self._last = digest, state
        return digest

    def forget(self, periods: int) -> None:
        """See `States`. What cannot be removed now is written over in the next period."""
        with suppress(OSError):
            self._file(periods - 1).unlink(missing_ok=True)


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
    names: int = deferred_field(0)
    people: int = deferred_field(0)

    def __post_init__(self) -> None:
        texts = (self.holder, self.ledger_id, self.name, self.plan_hash)
        if type(self.names) is not int or not 0 <= self.names <= NAMES:
            raise InvalidInput("persons of this stream are told apart by a rule that this version does not know")
        kinds = {"people": int, "terms": StreamTerms, "unit": PrivacyUnit, "price": Event}
        if {*map(type, texts)} != {str} or not all(isinstance(getattr(self, n), k) for n, k in kinds.items()):
            raise InvalidInput("this is no opening of a stream")


@dataclass(frozen=True, slots=True, repr=False)
class StreamProgress:
    """All lines so far. `key` and `digest`, that of the state in force, are secret."""

    key: bytes
    opening: StreamOpening
    paid: tuple[int, str] | None = None
    published: tuple[Published, ...] = ()
    digest: str = ""

    def find(self, label: str) -> Published | None:
        """The period of that label, if it was published."""
        return next((p for p in self.published if p.label == label), None)


def stream_first_line(key: bytes, opening: StreamOpening) -> bytes:
    """Line 0."""
    return b"\n".join([_NOTICE.encode(), key.hex().encode(), pack_value(opening)])


def receipt_line(sequence: int, anchor: str) -> bytes:
    """The line after it: who paid."""
    return pack_value((sequence, anchor))


def period_line(published: Published, digest: str) -> bytes:
    """A period's line: as long for any values of theirs, which are no smaller when they are packed."""
    header = pack_value((published.label, published.total))
    raw = (v.astype("<i8", copy=False).tobytes() for v in published.values)
    return b"\n".join([digest.encode(), b"%d" % len(header), header + b"".join(raw)])


def _read_published(size: bytes, rest: bytes, ends: NDArray[np.int64]) -> Published:
    """What a period's line holds behind its digest, families that end there. Raises ValueError."""
    label, total = _unpack_stream_part(rest[: int(size)], tuple)
    values = np.frombuffer(rest[int(size) :], dtype="<i8").astype(np.int64, copy=False)
    if len(values) != ends[-1]:
        raise ValueError("a period has other values than the stream measures")
    return Published(label, tuple(np.split(values, ends[:-1])), total)


def read_stream_lines(standing: StreamProgress | None, bodies: Sequence[bytes]) -> StreamProgress:
    """What some more lines say after those before; ValueError where they do not follow."""
    if standing is None:
        standing = StreamProgress(
            FORMAT.key(bodies[0]), _unpack_stream_part(bodies[0].split(b"\n", 2)[2], StreamOpening)
        )
        bodies = bodies[1:]
    more, digest, labels = list[Published](), standing.digest, {p.label for p in standing.published}
    terms = standing.opening.terms
    ends = np.cumsum(terms.rows)
    for body in bodies:
        if standing.paid is None:
            standing = replace(standing, paid=_unpack_stream_part(body, tuple))
            continue
        mark, size, rest = body.split(b"\n", 2)
        found, digest = _read_published(size, rest, ends), mark.decode("ascii")
        if found.label in labels or len(labels) == terms.filter.periods:
            raise ValueError("a period stands there twice, or after the last")
        labels.add(found.label)
        more.append(found)
    return replace(standing, published=(*standing.published, *more), digest=digest)


def _unpack_stream_part(body: bytes, kind: type) -> Any:
    found = unpack_value(body)
    if not isinstance(found, kind):
        raise ValueError(f"a {type(found).__name__} stands where a {kind.__name__} belongs")
    return found
