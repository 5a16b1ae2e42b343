"""The doors for universes of keys: a noisy map, a histogram that draws noise lazily, and conversations.

The order of steps is that of `curator`: price, ledger, table, debit, look. What is shown of the keys is sorted, so
neither the order of records nor of memory comes out.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sfumato._util.bundles import check_text
from sfumato._util.codec import rebuild
from sfumato.curator.conversations.curator import Conversation, converse_with, resume_with
from sfumato.curator.curator import check_plan_hash
from sfumato.curator.keys.counts import KeyAccess, KeyTable, open_keys
from sfumato.curator.keys.lazy_histogram import LazyHistogram, MemoryCache
from sfumato.curator.keys.store import FORMAT, HistogramOpening, KeyStore
from sfumato.curator.places import check_place, check_same_opening, pay_for_file
from sfumato.errors import DomainError, InvalidInput, LedgerError, NotWritten, PlanError, SourceError
from sfumato.privacy.accounting import Event
from sfumato.privacy.conversation_price import Terms
from sfumato.privacy.debits import Debits, Receipt
from sfumato.privacy.files import is_nonempty_file
from sfumato.privacy.keyed import KeyMeasurement, KeyQuestion, Stability, costs_at_most, histogram_sensitivity
from sfumato.privacy.noise import BitSource, NoiseLaw
from sfumato.privacy.sensitivity import noise_fits_price, sensitivity_power
from sfumato.privacy.unit import PrivacyUnit
from sfumato.sketches import KeyMap, Keys
from sfumato.sketches.maps import Words

Integers = np.ndarray[tuple[int], np.dtype[np.int64]]


class KeyCurator:
    """Holds records by key under one ledger. The source is read once, by the first measurement that can be paid for.

    `table` is its public name, as for `Curator`.
    """

    __slots__ = ("_keys", "_ledger", "_name", "_source", "_table", "_unit")

    def __init__(self, source: Any, keys: Keys, unit: PrivacyUnit, ledger: Debits, *, table: str | None = None) -> None:
        self._keys, self._unit = _rebuild_as(keys, Keys), _rebuild_as(unit, PrivacyUnit)
        self._unit.refuse_groups("keys")
        self._ledger, self._source, self._name = ledger, source, table
        self._table: KeyTable | None = None

    def measure(
        self, key_map: KeyMap, noise: NoiseLaw, price: Event, stability: Stability | None, *, name: str, plan_hash: str
    ) -> tuple[KeyMeasurement, Receipt]:
        """The map of the counts with noise in exact integers, after `price` was debited under `name`.

        With `stability`, first the keys whose noisy count reaches its threshold are shown; the map is then applied to
        the counts less those shown.

        Guarantee: what comes out satisfies the definition that `price` states for this curator's neighbour relation.

        Refused before the source is touched: with PlanError what costs more than `price`; with NameTaken,
        BudgetExceeded or LedgerError what the ledger would not pay. SourceError or InvalidInput (for the custodian):
        the source cannot be loaded; nothing is spent. NotWritten: spent, but measuring failed.
        """
        key_map, noise, price = _rebuild_as(key_map, KeyMap), _rebuild_as(noise, NoiseLaw), _rebuild_as(price, Event)
        stability = None if stability is None else _rebuild_as(stability, Stability)
        if not costs_at_most(key_map, noise, stability, self._unit, price):
            raise PlanError("the measurement costs more than the price it states; it is refused")
        check_plan_hash(plan_hash)
        nothing = np.zeros(0, dtype=np.int64)
        key_map.apply(nothing.view(np.uint64), nothing)
        self._ledger.expect(name, plan_hash, price, self._unit, self._name)
        table = self._open(named=stability is not None)
        try:
            values = np.zeros(key_map.rows, dtype=np.int64)
        except MemoryError:
            raise InvalidInput(f"there is no room for {key_map.rows:,} noisy values") from None
        receipt = self._ledger.debit(name, plan_hash, price, self._unit, self._name)
        measured: KeyMeasurement | None = None
        with suppress(Exception):  # what failed, and its text, may depend on the data
            heavy, shown, texts = _heavy_hitters(table, stability)
            values += key_map.apply(*_counts_without_shown(table, heavy, shown))
            values += noise.sample(len(values))
            measured = KeyMeasurement(key_map, values, noise, heavy, shown, texts)
        if measured is None:
            raise NotWritten(
                f"the budget is spent (entry {receipt.sequence}) but measuring failed, for want of memory. "
                "The ledger lists it as unreleased; there is no refund once noise may be drawn"
            )
        return measured, receipt

    def histogram(
        self,
        noise: NoiseLaw,
        price: Event,
        *,
        name: str,
        plan_hash: str,
        store: Path | None = None,
        about: Any = None,
    ) -> tuple[LazyHistogram, Receipt]:
        """Noisy counts of any keys, asked for one after the other without end; the whole price is debited now.

        Each key has its noise drawn once, when it is first asked for, whether it occurs or not. With `store`, a new
        file that other processes may resume, it is there before it is shown; `about` is a public value kept with it.

        Guarantee: all that ever comes out satisfies the definition that `price` states for this curator's neighbour
        relation: it is read off one noisy histogram of the whole universe. Refusals are those of `measure`.
        """
        noise, price, about = _rebuild_as(noise, NoiseLaw), _rebuild_as(price, Event), _rebuild_as(about, object)
        self._afford(noise, price)
        check_plan_hash(plan_hash)
        if store is None:
            self._ledger.expect(name, plan_hash, price, self._unit, self._name)
            table = self._open()
            receipt = self._ledger.debit(name, plan_hash, price, self._unit, self._name)
            return LazyHistogram(table, noise, MemoryCache()), receipt
        if not self._ledger.durable:
            raise PlanError("a histogram that is kept in a file is paid from a ledger that is kept in one")
        path = check_place(store, "histogram", FORMAT)
        begun = KeyStore(path) if is_nonempty_file(path) else None
        if begun is None:
            self._ledger.expect(name, f"{plan_hash}:{'0' * 32}", price, self._unit, self._name)
        table, salt = self._open(), secrets.token_hex(32) if begun is None else begun.opening.salt
        bought = (table.digest(salt), self._ledger.ledger_id, name, plan_hash)
        opening = HistogramOpening(self._keys, self._unit, noise, price, about, salt, *bought)
        if begun is not None:
            check_same_opening(path, begun.opening, opening)
        cache = begun or KeyStore.create(path, opening)
        # the debit names this very file, so no other can be resumed on it
        terms = (name, cache.plan_hash, price, self._unit, self._name)
        receipt = pay_for_file(self._ledger, terms, (path, cache.remove), lambda _: None)
        return LazyHistogram(table, noise, cache), receipt

    def resume_histogram(self, store: Path, anchor: str | None = None) -> LazyHistogram:
        """The histogram kept in a file, for the same keys, unit, ledger and table. Nothing is debited.

        Refused before the table is touched: with PlanError what was opened for other keys or another unit or costs
        more than was paid; LedgerError what this ledger did not pay for; LedgerCorrupted a file that was changed, or
        does not continue from `anchor`. SourceError (for the custodian): the table cannot be loaded, or is another one.
        """
        cache = KeyStore(Path(store))
        if anchor is not None:
            cache.check(anchor)
        opening = cache.opening
        if opening.keys != self._keys or opening.unit != self._unit:
            raise PlanError("the histogram was opened for other keys or another privacy unit; give the same")
        self._afford(opening.noise, opening.price)
        entry = self._ledger.find(opening.name)
        paid = entry is not None and (entry.plan_hash, entry.event) == (cache.plan_hash, opening.price)
        if not paid or self._ledger.ledger_id != opening.ledger_id:
            raise LedgerError(
                f"this ledger did not pay for {store}; give the ledger that did. If there is none, opening it ended "
                "before the debit: open it again as it was opened, or remove the file"
            )
        table = self._open()
        if table.digest(opening.salt) != opening.digest:
            raise SourceError(
                "the table is not the one that the histogram was opened on; an answer would mix two tables. "
                "Restore it, or open another histogram"
            )
        return LazyHistogram(table, opening.noise, cache)

    def converse(
        self, terms: Terms, price: Event, *, name: str, plan_hash: str, store: Path | None = None, about: Any = None
    ) -> tuple[Conversation, Receipt]:
        """Questions one by one, each chosen after earlier replies: `open_conversation`, of `KeyQuestion`s."""
        terms, price, about = _rebuild_as(terms, Terms), _rebuild_as(price, Event), _rebuild_as(about, object)
        return converse_with(
            self._access(),
            terms,
            price,
            ledger=self._ledger,
            unit=self._unit,
            table=self._name,
            name=name,
            plan_hash=plan_hash,
            store=store,
            about=about,
        )

    def resume(self, store: Path, *, anchor: str | None = None) -> Conversation:
        """The conversation kept in a file, to go on with: `resume_conversation`."""
        return resume_with(self._access(), store, ledger=self._ledger, anchor=anchor)

    def _access(self) -> KeyAccess:
        return KeyAccess(self._keys, self._unit, self._open, partial(_rebuild_as, kind=KeyQuestion))

    def _afford(self, noise: NoiseLaw, price: Event) -> None:
        if not noise_fits_price(histogram_sensitivity(self._unit, sensitivity_power(noise)), noise, price):
            raise PlanError("the histogram costs more than the price it states; it is refused")

    def _open(self, *, named: bool = False) -> KeyTable:
        if self._table is None:
            self._table = open_keys(self._source, self._keys, self._unit, named=named)
            self._source = None
        return self._table

    def __repr__(self) -> str:
        return f"<KeyCurator of column {self._keys.column!r}>"


def _heavy_hitters(
    table: KeyTable, stability: Stability | None, source: BitSource | None = None
) -> tuple[Words, Integers, tuple[str, ...]]:
    """Keys whose noisy count reaches the threshold, sorted, that count, at most 2^62, and the texts that they are.

    Only keys that occur can be shown. No noisy count wraps before it is compared: what is shown is the exact one,
    clipped, and so post-processing of it. Of texts each is counted by itself, not by its hash: so which text stands for
    a hash tells nothing of others that share it. Of those shown that do, the one with the larger count is named.
    """
    if stability is None:
        return np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64), ()
    held = table if table.named is None else table.named
    noisy = held.counts + stability.noise.saturated(len(held.counts), source)
    shown = noisy >= stability.threshold
    elements, counts = held.elements[shown], np.minimum(noisy[shown], 2**62)
    if table.named is None:
        return elements, counts, ()
    order = np.lexsort((-counts, elements))
    elements, counts, texts = elements[order], counts[order], table.named.texts[shown][order]
    heavy, first = np.unique(elements, return_index=True)
    summed = np.add.reduceat(counts, first) if len(first) else counts
    return heavy, np.minimum(summed, 2**62), tuple(map(_shown_text, texts[first].tolist()))


def _shown_text(text: str) -> str:
    """A text that was shown, "" for one that people could not tell from others."""
    try:
        return check_text(text, "a key")
    except DomainError:
        return ""


def _counts_without_shown(table: KeyTable, heavy: Words, shown: Integers) -> tuple[Words, Integers]:
    """The counts less those shown, by key. `heavy` are keys of the table."""
    rest = table.counts.copy()
    rest[np.searchsorted(table.elements, heavy)] -= shown
    return table.elements, rest


def _rebuild_as(value: Any, kind: Any) -> Any:
    """The same value built anew by the library's own constructors; foreign classes are refused."""
    try:
        built = rebuild(value)
    except InvalidInput as error:
        raise PlanError(f"only the library's own keys, maps, noise laws and prices are measured: {error}") from None
    if not isinstance(built, kind):
        raise PlanError(f"a {type(built).__name__} stands where another part of a plan belongs; plan again")
    return built
