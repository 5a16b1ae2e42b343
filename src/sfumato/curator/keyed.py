"""The door for universes of keys: a stability histogram of heavy keys, if planned, and one noisy map of the rest.

The order of steps is that of `curator`: price, ledger, table, debit, look. What is shown of the keys is sorted, so
neither the order of records nor of memory comes out.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from sfumato.codec import decode, encode
from sfumato.curator.keys import KeyTable, open_keys
from sfumato.errors import InvalidInput, NotWritten, PlanError
from sfumato.keyplans import KeyMeasurement
from sfumato.privacy.accountant import Event
from sfumato.privacy.keyed import Stability, check_key_unit, costs_at_most
from sfumato.privacy.ledger import Ledger, Receipt
from sfumato.privacy.noise import NoiseLaw
from sfumato.privacy.unit import PrivacyUnit
from sfumato.sketches import KeyMap, Keys
from sfumato.sketches.field import Words

__all__ = ["KeyCurator"]

Integers = np.ndarray[tuple[int], np.dtype[np.int64]]


class KeyCurator:
    """Holds records by key under one ledger. The source is read once, by the first measurement that can be paid for.

    Raises PlanError for a unit that is not a single record.
    """

    __slots__ = ("_keys", "_ledger", "_source", "_table", "_unit")

    def __init__(self, source: Any, keys: Keys, unit: PrivacyUnit, ledger: Ledger) -> None:
        self._keys, self._unit = _own(keys, Keys), _own(unit, PrivacyUnit)
        check_key_unit(self._unit)
        self._ledger, self._source = ledger, source
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
        key_map, noise, price = _own(key_map, KeyMap), _own(noise, NoiseLaw), _own(price, Event)
        stability = None if stability is None else _own(stability, Stability)
        if not costs_at_most(key_map, noise, stability, self._unit, price):
            raise PlanError("the measurement costs more than the price it states; it is refused")
        nothing = np.zeros(0, dtype=np.int64)
        key_map.apply(nothing.view(np.uint64), nothing)
        self._ledger.expect(name, plan_hash, price)
        table = self._open()
        try:
            values = np.zeros(key_map.rows, dtype=np.int64)
        except MemoryError:
            raise InvalidInput(f"there is no room for {key_map.rows:,} noisy values") from None
        receipt = self._ledger.debit(name, plan_hash, price)
        measured: KeyMeasurement | None = None
        with suppress(Exception):  # what failed, and its text, may depend on the data
            heavy, shown = _heavy(table, stability)
            values += key_map.apply(*_rest(table, heavy, shown))
            values += noise.sample(len(values))
            measured = KeyMeasurement(key_map, values, noise, heavy, shown)
        if measured is None:
            raise NotWritten(
                f"the budget is spent (entry {receipt.sequence}) but measuring failed, for want of memory. "
                "The ledger lists it as unreleased; there is no refund once noise may be drawn"
            )
        return measured, receipt

    def _open(self) -> KeyTable:
        if self._table is None:
            self._table = open_keys(self._source, self._keys)
            self._source = None
        return self._table

    def __repr__(self) -> str:
        return f"<KeyCurator of column {self._keys.column!r}>"


def _heavy(table: KeyTable, stability: Stability | None) -> tuple[Words, Integers]:
    """Keys whose noisy count reaches the threshold, sorted, and that count. Only keys that occur can be shown."""
    if stability is None:
        return np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64)
    noisy = table.counts + stability.noise.sample(len(table.counts))
    shown = noisy >= stability.threshold
    return table.elements[shown], noisy[shown]


def _rest(table: KeyTable, heavy: Words, shown: Integers) -> tuple[Words, Integers]:
    """The counts less those shown, by key. `heavy` are keys of the table."""
    rest = table.counts.copy()
    rest[np.searchsorted(table.elements, heavy)] -= shown
    return table.elements, rest


def _own(value: Any, kind: Any) -> Any:
    """The same value built anew by the library's own constructors; foreign classes are refused."""
    try:
        built = decode(*encode(value))
    except InvalidInput as error:
        raise PlanError(f"only the library's own keys, maps, noise laws and prices are measured: {error}") from None
    if not isinstance(built, kind):
        raise PlanError(f"a {type(built).__name__} stands where another part of a plan belongs; plan again")
    return built
