"""One table under one ledger: what every door of the wall holds, opens once and pays from. No door itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sfumato.cells import Grid
from sfumato.errors import InvalidInput, PlanError
from sfumato.ground.codec import rebuild
from sfumato.maps import BlockMap, CombinationMap, FamilyMap, Map
from sfumato.privacy.accountant import Event
from sfumato.privacy.debits import Debits, Receipt
from sfumato.privacy.prepaid import Prepaid
from sfumato.privacy.sampling import BitSource
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.wall.rows.clusters import Packing, alone
from sfumato.wall.rows.counting import Counts
from sfumato.wall.rows.sources import open_source

__all__ = ["MAX_VALUES", "Holding", "check_plan_hash", "lowered", "own"]

MAX_VALUES = 500_000_000  # of a measurement: 4 GB, in files where memory is short


class Holding:
    """A table over the grid of a domain, whose privacy is protected, and who pays; read once, when a door first asks.

    `declared` is the domain as it was given: for names of files alone, nothing private rests on it.

    Raises PlanError where the domain and the neighbour relation do not go together.
    """

    __slots__ = ("_source", "bits", "counts", "declared", "grid", "ledger", "packing", "table", "unit")

    def __init__(
        self,
        source: Any,
        domain: object,
        unit: PrivacyUnit,
        ledger: Debits | Prepaid,
        table: str | None,
        bits: BitSource | None,
        packing: Packing = alone,
    ) -> None:
        grid, self.unit = own((getattr(domain, "grid", None), unit))
        if type(grid) is not Grid or type(self.unit) is not PrivacyUnit:
            raise PlanError("a table is held over a domain, for a privacy unit")
        self.declared, self.grid = domain, grid
        if self.unit.neighbours is Neighbours.REPLACE_ONE and grid.drops:
            raise PlanError("replace-one needs every record to be counted; an attribute of this domain drops rows")
        if bits is not None and ledger.durable:
            raise PlanError("reproducible bits are for tests; a durable ledger refuses them")
        self.ledger, self.table, self.bits, self.packing = ledger, table, bits, packing
        self._source: Any = source
        self.counts: Counts | None = None

    def expect(self, price: Event, name: str, plan_hash: str) -> None:
        """Raise what `debit` would raise now, before the table is opened."""
        check_plan_hash(plan_hash)
        self.ledger.expect(name, plan_hash, price, self.unit, self.table)

    def open(self) -> Counts:
        """The exact counts, for a door that will pay before it looks. Raises SourceError."""
        if self.counts is None:
            unit = self.unit
            self.counts = open_source(
                self._source, self.grid, person=unit.person, rows_per_person=unit.rows_per_person, packing=self.packing
            )
            self._source = None
        return self.counts

    def debit(self, price: Event, name: str, plan_hash: str) -> Receipt:
        """Have the ledger debit the price durably; only after it returns may a door look."""
        return self.ledger.debit(name, plan_hash, price, self.unit, self.table)

    def __repr__(self) -> str:
        return "<Holding>"


def check_plan_hash(plan_hash: object) -> None:
    """What the debit of a door bears; a file's is followed by ':' and the file's own hash, so no caller states a ':'.

    Otherwise a debit without a file could pay for one that an opening cut short left behind. Raises InvalidInput.
    """
    if isinstance(plan_hash, str) and str.find(plan_hash, ":") >= 0:
        raise InvalidInput("a plan_hash given to the curator has no ':'; what follows one names a file of the curator")


def lowered(blocks: Sequence[Any], most: int = MAX_VALUES) -> tuple[Any, ...]:
    """The maps of the closed set that are priced and measured, built anew; what lowers to them is not trusted."""
    if not blocks or not all(isinstance(b, (BlockMap, FamilyMap, CombinationMap)) for b in blocks):
        raise PlanError("a measurement needs at least one block, and blocks alone")
    rows = sum(b.rows for b in blocks)
    if rows > most:
        raise PlanError(f"{rows:,} values would be measured, above {most:,}; choose a mechanism with fewer")
    maps = own(tuple(b.lowered() for b in blocks))
    inside = [p for b in maps for p in (b.blocks if type(b) is CombinationMap else (b,))]
    if not all(type(b) in (BlockMap, FamilyMap) and all(isinstance(f, Map) for f in b.factors) for b in inside):
        raise PlanError("internal error: what is measured was not lowered to the closed set of maps")
    return maps


def own(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same values built anew by the library's own constructors; foreign classes are refused.

    Privacy rests on what operators, laws and units say of themselves, so nobody else's are believed.
    """
    try:
        return rebuild(values)
    except InvalidInput as error:
        raise PlanError(
            f"only the library's own operators, noise laws, prices and domains are measured: {error}"
        ) from None
