"""A histogram over a universe of keys that draws each key's noise when the key is first asked for, once and for ever.

The noisy count of a key is on stable storage before it is shown to anyone, so a crash loses what nobody saw and never
gives a key a second draw. What must not happen is that two copies of a store go on by themselves.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.curator.keys.counts import KeyTable
from sfumato.errors import BudgetError, NotWritten, WorkloadError
from sfumato.privacy.noise import NoiseLaw
from sfumato.sketches.maps import PRIME, Words

Integers = NDArray[np.int64]
Draw = Callable[[Words], Integers]

_NO_KEYS: Words = np.zeros(0, dtype=np.uint64)
_NO_COUNTS: Integers = np.zeros(0, dtype=np.int64)
MOST_KEYS = 2**22
"""Keys of one question."""


class NoisyCounts:
    """Keys as sorted field elements, each once, with their noisy counts. Public, and never changed."""

    __slots__ = ("elements", "values")

    def __init__(self, elements: Words = _NO_KEYS, values: Integers = _NO_COUNTS) -> None:
        self.elements, self.values = elements, values

    def find(self, elements: Words) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Where the elements are, and which of them are there."""
        place = np.searchsorted(self.elements, elements)
        inside = place < self.elements.size
        inside[inside] = self.elements[place[inside]] == elements[inside]
        return place, inside

    def with_more(self, elements: Words, values: Integers) -> NoisyCounts:
        """These and some keys that are not there yet, sorted."""
        place = np.searchsorted(self.elements, elements)
        return NoisyCounts(np.insert(self.elements, place, elements), np.insert(self.values, place, values))


class NoisyCache(Protocol):
    """Where noisy counts are kept."""

    known: NoisyCounts

    @property
    def anchor(self) -> str | None:
        """By which a file that was put back is found; None in memory."""
        ...

    def extend(self, elements: Words, draw: Draw) -> None:
        """Have the counts of sorted distinct keys in `known`, on stable storage; `draw` those that nobody has drawn.

        Serialised: of all processes that ask for a key, one draws it.
        """
        ...


class MemoryCache:
    """Noisy counts of one process."""

    __slots__ = ("known",)

    anchor: str | None = None

    def __init__(self) -> None:
        self.known = NoisyCounts()

    def extend(self, elements: Words, draw: Draw) -> None:
        """See `NoisyCache`."""
        fresh = elements[~self.known.find(elements)[1]]
        self.known = self.known.with_more(fresh, draw(fresh))


class LazyHistogram:
    """Counts of any keys, with noise drawn once for each; made by `KeyCurator.histogram` and `resume_histogram`.

    Guarantee: all it ever gives out satisfies the definition that the price debited at its opening states, for any
    number of questions, chosen one by one after earlier answers (`privacy.keyed`).
    """

    __slots__ = ("_cache", "_lock", "_noise", "_process", "_table")

    def __init__(self, table: KeyTable, noise: NoiseLaw, cache: NoisyCache) -> None:
        self._table, self._noise, self._cache = table, noise, cache
        self._lock, self._process = threading.Lock(), os.getpid()

    @property
    def noise(self) -> NoiseLaw:
        """What was paid for."""
        return self._noise

    def counts(self, elements: Words) -> Integers:
        """Noisy counts of some keys, field elements (n,): (n,) int64, the same for a key whenever it is asked.

        Raises WorkloadError for more than 2^22 keys, BudgetError in a forked copy; LedgerError where the store cannot
        be written, NotWritten where memory is short: nothing new was shown then, and the question may be asked again.
        """
        own = np.array(elements, dtype=np.uint64)
        if own.ndim != 1 or own.size > MOST_KEYS or (own > PRIME).any():
            raise WorkloadError(f"a question is at most {MOST_KEYS:,} keys as field elements; ask in parts")
        if os.getpid() != self._process:  # before any lock, which a fork may have left closed
            raise BudgetError("this histogram belongs to the process that opened it; resume it from its file here")
        with self._lock:
            known = self._cache.known
            place, inside = known.find(own)
            if not inside.all():
                self._cache.extend(np.unique(own[~inside]), self._draw)
                known = self._cache.known
                place, inside = known.find(own)
            if not inside.all():
                raise NotWritten("some keys were not counted; please report this as an error of the library")
            return known.values[place]

    @property
    def anchor(self) -> str | None:
        """Kept elsewhere, it finds a file that was put back; None for a histogram in memory."""
        return self._cache.anchor

    @property
    def shown(self) -> tuple[Words, Integers]:
        """Every key shown so far, sorted, and its noisy count. Public."""
        with self._lock:
            known = self._cache.known
            return known.elements, known.values

    def _draw(self, elements: Words) -> Integers:
        """Count and noise of keys that have none yet, whether they occur or not."""
        drawn: Integers | None = None
        with suppress(Exception):  # what failed, and its text, may depend on the data
            drawn = self._table.counts_of(elements) + self._noise.sample(len(elements))
        if drawn is None:
            raise NotWritten("answering failed, for want of memory; nothing was shown, and the keys may be asked again")
        return drawn

    def __reduce__(self) -> NoReturn:
        raise BudgetError("a histogram that still draws noise is neither copied nor pickled; keep it in a file")

    def __repr__(self) -> str:
        return f"<LazyHistogram: {self._cache.known.elements.size:,} keys shown>"
