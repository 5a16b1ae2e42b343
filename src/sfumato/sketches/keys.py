"""Keys of records: whole numbers below 2^60, or texts, told apart by field elements."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato._util.bundles import check_text
from sfumato._util.codec import storable
from sfumato.cells import whole_text
from sfumato.errors import DomainError, WorkloadError
from sfumato.sketches.maps import PRIME, Words, hash_texts

UNIVERSE = 2**60
"""Keys that are numbers are below this."""
MAX_TEXT = 1024
"""Keys that are texts have at most this many bytes of UTF-8."""

_KINDS = ("integer", "text")


@storable
@dataclass(frozen=True, slots=True)
class Keys:
    """What a record's key may be, and in which column it stands.

    A record whose key is missing or anything else is not counted: a rule about each record by itself. A text that
    writes a whole number with zero decimals, "7.0", is that number, "7". Texts are told apart by a public random hash
    of 61 bits; two of a million texts share one with a probability below 1e-4.

    Args:
        column: The name of the column.
        kind: "integer", whole numbers from 0 to 2^60 - 1, or "text", texts of 1 to 1,024 bytes.
        point: Where the hash of texts is evaluated; drawn at random, unless it is given. Of integer keys None.

    Raises:
        DomainError: The column, the kind or the point is not allowed.

    >>> print(sf.Keys("item").describe())
    column 'item', whole numbers from 0 to 2^60 - 1; records with any other key are not counted
    >>> print(sf.Keys("page", kind="text").describe())
    column 'page', texts of 1 to 1,024 bytes; records with any other key are not counted
    """

    column: str = "key"
    kind: str = "integer"
    point: int | None = None

    def __post_init__(self) -> None:
        check_text(self.column, "the name of the column of keys")
        if self.kind not in _KINDS:
            raise DomainError(f"keys are of kind 'integer' or 'text', not {self.kind!r}")
        if self.kind == "text" and self.point is None:
            object.__setattr__(self, "point", secrets.randbelow(PRIME))
        wanted = int if self.kind == "text" else type(None)
        if type(self.point) is not wanted or not 0 <= (self.point or 0) < PRIME:
            raise DomainError("point is where the hash of texts is evaluated; leave it out")

    def elements(self, keys: object) -> tuple[Words, NDArray[np.intp]]:
        """The field elements of those keys that are in the universe; no key raises an error.

        Args:
            keys: A one-dimensional array of whole numbers, or a list or array of texts.

        Returns:
            The field elements of the keys that are in the universe, and their positions among `keys`.

        Raises:
            DomainError: `keys` is no array of whole numbers, or no list of texts.
        """
        if self.kind == "text":
            return self._texts(keys)
        array = np.asarray(keys)
        if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
            raise DomainError("integer keys are a one-dimensional array of whole numbers; convert other columns first")
        if array.size == 0:
            return np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.intp)
        within = array >= 0
        if array.dtype.itemsize == 8:
            within &= array < UNIVERSE
        found = np.flatnonzero(within)
        return array[found].astype(np.uint64), found

    def _texts(self, keys: object) -> tuple[Words, NDArray[np.intp]]:
        given: Any = keys.tolist() if isinstance(keys, np.ndarray) else keys
        if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
            raise DomainError("text keys are a list or array of texts; convert other columns first")
        found: list[int] = []
        texts: list[bytes] = []
        for i, key in enumerate(given):
            # surrogates that UTF-8 lacks are kept apart by their own bytes
            text = whole_text(key).encode("utf-8", "surrogatepass") if isinstance(key, str) else b""
            if 0 < len(text) <= MAX_TEXT:
                found.append(i)
                texts.append(text)
        return hash_texts(texts, self.point or 0), np.array(found, dtype=np.intp)

    def query(self, keys: ArrayLike | Iterable[str], weights: ArrayLike | None) -> tuple[Words, NDArray[np.float64]]:
        """A query's keys as field elements, sorted, with their weights.

        Args:
            keys: The keys of the query, each once.
            weights: One finite number per key, at most 1e100 in size; None for 1 each.

        Returns:
            The distinct field elements in increasing order, and their weights.

        Raises:
            WorkloadError: A key is outside the universe or given twice, or the weights are not one finite number per
                key.
        """
        given: Any = list(keys) if self.kind == "text" and not isinstance(keys, (str, bytes)) else keys  # type: ignore[arg-type]
        try:
            elements, found = self.elements(given)
        except DomainError as error:
            raise WorkloadError(f"a query names its keys: {error}") from None
        size = len(np.asarray(given, dtype=object))
        if len(found) != size:
            allowed = "from 0 to 2^60 - 1" if self.kind == "integer" else f"texts of 1 to {MAX_TEXT:,} bytes"
            raise WorkloadError(f"{size - len(found)} keys of the query are outside the universe; keys are {allowed}")
        w = np.ones(size) if weights is None else _read_key_weights(weights, size)
        order = np.argsort(elements, kind="stable")
        elements, w = elements[order], w[order]
        if (elements[1:] == elements[:-1]).any():
            raise WorkloadError("a query names a key twice; give each key once, with the sum of its weights")
        return elements, w

    def queries(self, lists: Iterable[ArrayLike | Iterable[str]]) -> KeyQueries:
        """Queries that are known now, which `sf.plan` takes.

        Args:
            lists: For each query the list of its keys.

        Returns:
            The queries, in order.

        Raises:
            WorkloadError: It is not a list of lists of keys, no query has a key, or a key is outside the universe or
                given twice.
        """
        if isinstance(lists, (str, bytes)) or not isinstance(lists, Iterable):
            raise WorkloadError("queries is a list of queries, each a list of its keys")
        supports: list[Words] = []
        for keys in lists:
            if isinstance(keys, (str, bytes)) or not isinstance(keys, Iterable):
                raise WorkloadError("queries is a list of queries, each a list of its keys")
            supports.append(self.query(keys, None)[0])
        return KeyQueries(self, tuple(supports))

    def describe(self) -> str:
        """The declaration in one line for people.

        Returns:
            The column, its allowed keys, and what happens to others.
        """
        what = "whole numbers from 0 to 2^60 - 1" if self.kind == "integer" else f"texts of 1 to {MAX_TEXT:,} bytes"
        return f"column {self.column!r}, {what}; records with any other key are not counted"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeyQueries:
    """Queries about keys that are known now, for `sf.plan`. `Keys.queries` makes them.

    Args:
        keys: Which keys there are.
        supports: For each query the field elements of its keys.

    Raises:
        WorkloadError: No query has a key.
    """

    keys: Keys
    supports: tuple[Words, ...]

    def __post_init__(self) -> None:
        if not any(map(len, self.supports)):
            raise WorkloadError("the queries name no keys; plan sf.Keys where queries are not known yet")

    def __len__(self) -> int:
        return len(self.supports)

    def __repr__(self) -> str:
        return f"<KeyQueries: {len(self):,} over {self.keys.describe()}>"


def _read_key_weights(weights: ArrayLike, size: int) -> NDArray[np.float64]:
    try:
        w = np.asarray(weights)
    except ValueError:  # ragged
        w = np.asarray(None)
    if w.dtype.kind not in "biuf" or w.shape != (size,) or not np.isfinite(w).all() or (abs(w) > 1e100).any():
        raise WorkloadError(f"a query of {size} keys needs {size} finite weights, one per key (or none: each counts 1)")
    return w.astype(np.float64)
