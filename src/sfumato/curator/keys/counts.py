"""Sources of keyed records: counts by key already tabulated, or one column of a table, grouped once by its keys."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato._util.codec import value_fingerprint
from sfumato.cells import whole_text
from sfumato.curator.rows.encoding import Column, Truncation, check_type, element_texts, truncation_sql
from sfumato.curator.rows.readers import (
    DuckDBSession,
    OpenedTable,
    attempt,
    close_on_failure,
    open_persons,
    register_columns,
)
from sfumato.errors import InvalidInput, PlanError, SourceError
from sfumato.privacy.conversation_price import Terms
from sfumato.privacy.keyed import KeyQuestion
from sfumato.privacy.unit import PrivacyUnit
from sfumato.sketches import Keys
from sfumato.sketches.keys import MAX_TEXT, UNIVERSE
from sfumato.sketches.maps import Words

_MAX_RECORDS = 2**53  # sums of doubles are exact below, so that none is overlooked
_COUNTS = "counts\0"  # no name that a column of keys can have


@dataclass(frozen=True, slots=True, eq=False, init=False, repr=False)
class KeyCounts:
    """Records by their keys; no message and no repr shows a key or a count.

    Each key is read by itself, by the rules for the fields of a table: 7, "7" and 7.0 are one key, and what is no key
    (None, NaN, a list, a number too large) is a record that is not counted. Keys may repeat; their counts add up.

    Args:
        keys: One key per record, or one per distinct key with `counts`: a list, array or column. They are copied.
        counts: Non-negative whole numbers of records, one per key; None counts 1 each.

    Raises:
        InvalidInput: The keys are no list, the counts are not such numbers, or they sum to 2^53 or more.

    >>> sf.KeyCounts([3, 5, 3], counts=[10, 2, 1])
    KeyCounts(...)
    >>> sf.KeyCounts(["a", "b", "a"])
    KeyCounts(...)
    >>> sf.KeyCounts([3, 5], counts=[1, -1])
    Traceback (most recent call last):
        ...
    sfumato.errors.InvalidInput: counts are numbers of records: none may be negative, fractional or missing
    """

    keys: NDArray[Any] = field(repr=False)
    counts: NDArray[np.int64] = field(repr=False)

    def __init__(self, keys: ArrayLike, counts: ArrayLike | None = None) -> None:
        if isinstance(keys, np.ma.MaskedArray) or isinstance(counts, np.ma.MaskedArray):
            raise InvalidInput("keys and counts are plain arrays; leave masked entries out first")
        given = _key_array(keys)
        object.__setattr__(self, "keys", given)
        object.__setattr__(self, "counts", _whole_key_counts(counts, len(given)))
        for array in (self.keys, self.counts):
            array.flags.writeable = False

    def __repr__(self) -> str:
        return "KeyCounts(...)"


def _key_array(keys: Any) -> NDArray[Any]:
    """Whole numbers as numpy holds them, or the text of every element; numpy never chooses a type for the elements."""
    if isinstance(keys, np.ndarray) and keys.ndim != 1:
        raise InvalidInput("keys are a list or a one-dimensional array, one key per record")
    if isinstance(keys, np.ndarray) and keys.dtype.kind in "iu":
        return np.array(keys, dtype=keys.dtype.newbyteorder("="))
    if isinstance(keys, (str, bytes, Mapping)) or not isinstance(keys, Iterable):
        raise InvalidInput("keys are a list or a one-dimensional array, one key per record")
    # columns of arrow give wrapped scalars one by one
    whole: Any = keys
    elements = whole.to_pylist() if hasattr(whole, "to_pylist") else list(keys)
    if elements and all(type(k) is int and 0 <= k < UNIVERSE for k in elements):
        return np.array(elements, dtype=np.int64)
    return element_texts(elements)


def _whole_key_counts(counts: ArrayLike | None, size: int) -> NDArray[np.int64]:
    if counts is None:
        return np.ones(size, dtype=np.int64)
    try:
        given = np.asarray(counts)
    except (OverflowError, ValueError):
        given = np.asarray(None)
    if given.shape != (size,) or (given.dtype.kind not in "iuf" and given.size):
        raise InvalidInput("counts are whole numbers, one per key")
    if (given < 0).any() or (given != np.floor(given)).any():
        raise InvalidInput("counts are numbers of records: none may be negative, fractional or missing")
    if given.sum(dtype=np.float64) >= _MAX_RECORDS:
        raise InvalidInput("fewer than 2^53 records can be counted")
    return given.astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NamedKeys:
    """The texts that occur, each once, with the field element and the count of each. Private."""

    texts: NDArray[Any]
    elements: Words
    counts: NDArray[np.int64]

    def __repr__(self) -> str:
        return "<NamedKeys>"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeyTable:
    """The keys that occur, as sorted distinct field elements, and their counts, all positive. Private.

    `named` has the keys as texts, where they are texts that may be shown.
    """

    elements: Words
    counts: NDArray[np.int64]
    named: NamedKeys | None = None

    def __repr__(self) -> str:
        return "<KeyTable>"

    @classmethod
    def of(cls, elements: Words, counts: NDArray[np.int64], named: NamedKeys | None = None) -> KeyTable:
        """Equal keys are counted together. Raises SourceError from 2^53 records."""
        if counts.sum(dtype=np.float64) >= _MAX_RECORDS:
            raise SourceError("fewer than 2^53 records can be counted")
        distinct, place = np.unique(elements, return_inverse=True)
        summed = np.zeros(len(distinct), dtype=np.int64)
        np.add.at(summed, place, counts)
        occur = summed > 0
        return cls(distinct[occur], summed[occur], named)

    def counts_of(self, elements: Words) -> NDArray[np.int64]:
        """The counts of some keys, 0 for those that do not occur."""
        place = np.searchsorted(self.elements, elements)
        inside = place < self.elements.size
        inside[inside] = self.elements[place[inside]] == elements[inside]
        out = np.zeros(len(elements), dtype=np.int64)
        out[inside] = self.counts[place[inside]]
        return out

    def digest(self, salt: str) -> str:
        """SHA-256 of the salt and the whole table. Private: it confirms a guess of the table."""
        found = hashlib.sha256(salt.encode())
        found.update(self.elements.astype("<u8").data)
        found.update(self.counts.astype("<i8").data)
        return found.hexdigest()


def open_keys(source: object, keys: Keys, unit: PrivacyUnit, *, named: bool = False) -> KeyTable:
    """Read a source once and count its records by key; records without a key in the universe are not counted.

    A number's text may have a plus sign and zero decimals, and blanks around it; a text is taken as it is. Of each
    person whom the unit names, at most its `rows_per_person` of the records that have a key are counted, and records
    that name no person are not.

    Keys that are texts are kept as such beside their hashes if they are to be `named`.

    Guarantee: what a record counts for depends on that record alone, or on those of its person alone.

    Raises InvalidInput for what is no source of keys, SourceError for a table that cannot be loaded; messages
    name columns and files, never a key.
    """
    if isinstance(source, KeyCounts):
        if unit.person is not None:
            raise InvalidInput(f"key counts have no column {unit.person!r}; give a table, or count persons beforehand")
        if keys.kind == "integer" and source.keys.dtype.kind != "O":
            elements, found = keys.elements(source.keys)
            return KeyTable.of(elements, source.counts[found])
        held = {keys.column: (source.keys, None), _COUNTS: (source.counts, None)}
        opened = close_on_failure(
            DuckDBSession(), lambda s: OpenedTable(s, "the list of keys", "source", register_columns(s, held))
        )
        records = _COUNTS
    else:
        needed = [keys.column] if unit.person in (None, keys.column) else [keys.column, unit.person]
        opened = open_persons(source, needed, unit.person)
        records = None
    try:
        column = opened.columns[keys.column]
        readable = {"text", "whole", "exact", "decimal", "float", "double"}
        if column.family not in (readable if keys.kind == "integer" else readable | {"boolean", "label"}):
            kind = column.type.partition("(")[0].removesuffix("[]")
            raise SourceError(f"column {keys.column!r} is of type {kind}, which holds no keys; convert the column")
        grouped = _grouped_keys_sql(opened, column, keys.kind, unit, records)
        message = (
            f"{opened.label} could not be read for its column {keys.column!r}: "
            "it is damaged or was cut short, or memory or disk ran out"
        )

        def fetch() -> dict[str, Any]:
            return opened.session.connection.execute(grouped).fetchnumpy()

        fetched = attempt(message, fetch)
        return attempt(message, lambda: _key_table(fetched, keys, named))
    finally:
        opened.session.close()


def _grouped_keys_sql(opened: OpenedTable, column: Column, kind: str, unit: PrivacyUnit, records: str | None) -> str:
    """SQL of every key that is counted and its number of records: of rows, or as the column `records` says."""
    if unit.person is None:
        size = "1" if records is None else opened.columns[records].sql
        kept = f"SELECT {_key_sql(column, kind)} AS k, n FROM (SELECT {column.sql} AS r, {size} AS n FROM {opened.sql})"
        size = "count(*)" if records is None else "CAST(sum(n) AS BIGINT)"
        return f"SELECT k, {size} AS n FROM ({kept}) WHERE k IS NOT NULL GROUP BY k"
    who = opened.columns[unit.person]
    check_type(unit.person, None, who)
    raw = f"SELECT {column.sql} AS r, {who.sql} AS p FROM {opened.sql}"
    named = f"SELECT {_key_sql(column, kind)} AS k, {who.name('p')} AS person FROM ({raw})"
    kept = f"SELECT *, count(*) AS n FROM ({named}) WHERE k IS NOT NULL AND person IS NOT NULL GROUP BY ALL"
    kept = truncation_sql("k", kept, Truncation(unit.rows_per_person))
    return f"SELECT k, count(*) AS n FROM ({kept}) GROUP BY k"


def _key_sql(column: Column, kind: str) -> str:
    """SQL of a record's key, NULL where it is not counted."""
    text = column.name("r")
    if kind == "text":
        return f"CASE WHEN strlen({text}) BETWEEN 1 AND {MAX_TEXT} THEN {text} END"
    # a number is read from its text: doubles would merge keys above 2^53, and casts round fractions
    digits = f"regexp_extract(trim({text}), '^[+]?([0-9]{{1,38}})([.]0*)?$', 1)"
    number = f"TRY_CAST({digits} AS HUGEINT)"
    return f"CASE WHEN {number} < {UNIVERSE} THEN CAST({number} AS UBIGINT) END"


def _key_table(fetched: dict[str, Any], keys: Keys, named: bool) -> KeyTable:
    counts = np.asarray(fetched["n"]).astype(np.int64)
    given = np.asarray(fetched["k"])
    elements, found = keys.elements(given.astype(np.uint64) if keys.kind == "integer" else given)
    if keys.kind == "integer" or not named:
        return KeyTable.of(elements, counts[found])
    texts, first, place = np.unique(
        np.array([whole_text(t) for t in given[found].tolist()], dtype=object), return_index=True, return_inverse=True
    )
    summed = np.zeros(len(texts), dtype=np.int64)
    np.add.at(summed, place, counts[found])
    occur = summed > 0
    own = NamedKeys(texts[occur], elements[first][occur], summed[occur])
    return KeyTable.of(elements, counts[found], own)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeyAccess:
    """Records by key, for conversations: questions are `KeyQuestion`s."""

    keys: Keys
    unit: PrivacyUnit
    table: Callable[[], KeyTable]
    own: Callable[[object], KeyQuestion]

    def open(self) -> None:
        """Read the table, if that was not done before."""
        self.table()

    def admit(self, question: object, terms: Terms) -> tuple[KeyQuestion, KeyQuestion]:
        """The question built anew, twice. Raises PlanError where it moves further than was paid for."""
        found, moves = self.own(question), self.unit.rows_per_person
        if moves > terms.epochs.sensitivity or (terms.answer is not None and moves > terms.move):
            raise PlanError(
                f"score and answer move by up to {moves} between neighbours; the conversation paid for less"
            )
        return found, found

    def exact(self, question: KeyQuestion) -> int:
        """How many records have one of the keys."""
        return int(self.table().counts_of(question.elements).sum())

    @property
    def fingerprint(self) -> str:
        """A hash of keys and privacy unit."""
        return value_fingerprint((self.keys, self.unit))

    def digest(self, key: bytes) -> str:
        """A keyed hash of the whole table."""
        return self.table().digest(key.hex())
