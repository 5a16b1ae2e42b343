"""The trusted curator of the data: the one object that sees exact counts, and its door, `measure`.

`prepaid` pays for several accesses at once; the doors of `selecting`, `talk` and `keys` stand beside, and keep
this order. Inside each door: re-derive the price from the integer maps, ask the ledger whether it would pay, open
the table, have the ledger debit the price durably, and only then look and draw the noise. Nothing before the
debit depends on the data but errors of loading; nothing after it does but the noisy values.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import rebuild
from sfumato._util.files import allocate_zeros, release_pages
from sfumato.cells import Grid
from sfumato.curator.rows.counting import Counts, Packing, check_countable, one_block_per_set
from sfumato.curator.rows.sources import open_source
from sfumato.errors import InvalidInput, NotWritten, PlanError, SourceError
from sfumato.maps import BlockMap, CombinationMap, FamilyMap, Map, check_price
from sfumato.measurements import Measurement
from sfumato.privacy.accounting import Account, Event
from sfumato.privacy.debits import Debits, Receipt
from sfumato.privacy.noise import BitSource, NoiseLaw
from sfumato.privacy.reserved_budget import ReservedBudget
from sfumato.privacy.sensitivity import Sensitivity, certified_bound, noise_fits_price, sensitivity_power
from sfumato.privacy.unit import Neighbours, PrivacyUnit

if TYPE_CHECKING:
    from sfumato.curator.rows.sums import AskedSums
    from sfumato.privacy.replaced import Certificate

MAX_VALUES = 500_000_000  # of a measurement: 4 GB, in files where memory is short


class CuratedTable:
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
        ledger: Debits | ReservedBudget,
        table: str | None,
        bits: BitSource | None,
        packing: Packing = one_block_per_set,
        *,
        measures: bool = False,
    ) -> None:
        grid, self.unit = rebuild_values((getattr(domain, "grid", None), unit))
        if type(grid) is not Grid or type(self.unit) is not PrivacyUnit:
            raise PlanError("a table is held over a domain, for a privacy unit")
        if not measures:
            _refuse_measures(grid)
        self.declared, self.grid = domain, grid
        if self.unit.neighbours is Neighbours.REPLACE_ONE and grid.drops:
            raise PlanError("replace-one needs every record to be counted; an attribute of this domain drops rows")
        _check_groups(self.unit, grid)
        if bits is not None and ledger.durable:
            raise PlanError("reproducible bits are for tests; a durable ledger refuses them")
        self.ledger, self.table, self.bits, self.packing = ledger, table, bits, packing
        self._source: Any = source
        self.counts: Counts | None = None

    def expect(self, price: Event, name: str, plan_hash: str) -> None:
        """Raise what `debit` would raise now, before the table is opened."""
        check_plan_hash(plan_hash)
        self.ledger.expect(name, plan_hash, price, self.unit, self.table)

    def open(self, asked: AskedSums | None = None) -> Counts:
        """The exact counts, for a door that will pay before it looks. Raises SourceError.

        asked: the sums of measures that this look takes, where it takes nothing else. What is opened for them alone is
        not kept, and the source is read again by the next look.
        """
        if self.counts is None:
            unit = self.unit
            found = open_source(
                self._source,
                self.grid,
                person=unit.person,
                rows_per_person=unit.rows_per_person,
                once_per=unit.once_per,
                rows_per_group=unit.rows_per_group,
                packing=self.packing,
                asked=asked,
            )
            if not found.kept:
                return found
            self.counts, self._source = found, None
        return self.counts

    def debit(self, price: Event, name: str, plan_hash: str) -> Receipt:
        """Have the ledger debit the price durably; only after it returns may a door look."""
        return self.ledger.debit(name, plan_hash, price, self.unit, self.table)

    def __repr__(self) -> str:
        return "<CuratedTable>"


def _refuse_measures(grid: Grid) -> None:
    """Refuse a domain with measures, for doors that price what one record adds to a cell as at most 1."""
    if grid.measures:
        raise PlanError(
            f"measures ({', '.join(grid.measures)}) are summed by plans of one look alone; declare a domain without "
            "them for streams, conversations and mechanisms that choose by the data"
        )


def _check_groups(unit: PrivacyUnit, grid: Grid) -> None:
    """Refuse groups, of a person's rows or of records that are replaced, that are not of the cells they count in."""
    if (own := unit.within) is not None:
        axis = grid.axis(own.attribute)
        held = own.codes is not None and len(own.codes) == grid.shape[axis] and own.is_over(grid.rules[axis])
        if not held or not grid.keeps_groups(axis, own.codes):  # pyright: ignore[reportArgumentType]
            raise PlanError(
                f"records are replaced within groups of other cells than {own.attribute} has here, or are moved out of "
                "theirs (a plan of 0.2 does not say of which cells); plan again"
            )
    axes = [grid.axis(a) for a in unit.once_per]
    if any(grid.names[a] in grid.measures for a in axes):
        raise PlanError("once_per= groups rows by cells, and a measure has none; name other attributes")
    if axes and grid.moves:
        # a record is moved after its person's rows are chosen: two of one group could come of two groups
        raise PlanError(
            "once_per= does not go with cells that are declared impossible, whose records are moved to others; leave "
            "out one of them"
        )


def check_plan_hash(plan_hash: object) -> None:
    """What the debit of a door bears; a file's is followed by ':' and the file's own hash, so no caller states a ':'.

    Otherwise a debit without a file could pay for one that an opening cut short left behind. Raises InvalidInput.
    """
    if isinstance(plan_hash, str) and str.find(plan_hash, ":") >= 0:
        raise InvalidInput("a plan_hash given to the curator has no ':'; what follows one names a file of the curator")


def lower_blocks(blocks: Sequence[Any], most: int = MAX_VALUES) -> tuple[Any, ...]:
    """The maps of the closed set that are priced and measured, built anew; what lowers to them is not trusted."""
    if not blocks or not all(isinstance(b, (BlockMap, FamilyMap, CombinationMap)) for b in blocks):
        raise PlanError("a measurement needs at least one block, and blocks alone")
    rows = sum(b.rows for b in blocks)
    if rows > most:
        raise PlanError(f"{rows:,} values would be measured, above {most:,}; choose a mechanism with fewer")
    maps = rebuild_values(tuple(b.lowered() for b in blocks))
    inside = [p for b in maps for p in (b.blocks if type(b) is CombinationMap else (b,))]
    if not all(type(b) in (BlockMap, FamilyMap) and all(isinstance(f, Map) for f in b.factors) for b in inside):
        raise PlanError("internal error: what is measured was not lowered to the closed set of maps")
    return maps


def rebuild_values(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same values built anew by the library's own constructors; foreign classes are refused.

    Privacy rests on what operators, laws and units say of themselves, so nobody else's are believed.
    """
    try:
        return rebuild(values)
    except InvalidInput as error:
        raise PlanError(
            f"only the library's own operators, noise laws, prices and domains are measured: {error}"
        ) from None


Measured = BlockMap | FamilyMap | CombinationMap

_KEPT = 2**23  # values written to files that may stay in memory


class Curator:
    """Holds one table under one ledger. The table is read once, by the first measurement that can be paid for, and
    again after one that took sums of measures alone, of which no record is kept.

    `table` is its public name, which the ledger records with the unit at its first spend and from then on requires.
    `packing` proposes which tables are counted, so that those asked follow by summing: how long it takes, nothing else.
    Raises PlanError where the domain and the neighbour relation do not go together.
    """

    __slots__ = ("_holding",)
    _MOST: ClassVar[int] = MAX_VALUES

    def __init__(
        self,
        source: Any,
        domain: object,
        unit: PrivacyUnit,
        ledger: Debits | ReservedBudget,
        *,
        table: str | None = None,
        packing: Packing = one_block_per_set,
        insecure_bits: BitSource | None = None,
    ) -> None:
        self._holding = CuratedTable(source, domain, unit, ledger, table, insecure_bits, packing, measures=True)

    @property
    def unit(self) -> PrivacyUnit:
        """Whose privacy is protected."""
        return self._holding.unit

    def measure(
        self,
        blocks: Sequence[Measured],
        noise: NoiseLaw,
        price: Event,
        *,
        name: str,
        plan_hash: str,
        stated: Sensitivity | None = None,
        certificate: Certificate | None = None,
        folder: Path | None = None,
        cut: int = 0,
    ) -> tuple[Measurement, Receipt]:
        """B x + z in exact integers for all blocks together, after `price` was debited under `name`.

        With `cut`, of a unit that names persons, also how many persons had more rows than are counted, times `cut`,
        plus a draw of the noise: one person changes that by at most `cut`, whatever the neighbour relation.
        Values that are too many for memory go to files in `folder` as they are drawn, or to nameless files.
        What is measured and priced is what the blocks are lowered to, integer maps of the closed set (see maps). Where
        a row is replaced, `certificate` says how their price is proved; without one a simple bound is all there is.

        Guarantee: the values satisfy the definition that `price` states (mu-GDP, epsilon-DP or rho-zCDP)
        for this curator's neighbour relation.

        Refused before the table is touched: with PlanError or WorkloadError what cannot be measured, costs
        more than `price` or has a larger sensitivity than `stated`; with NameTaken, BudgetExceeded or
        LedgerError what the ledger would not pay. SourceError (for the custodian): the table cannot be
        loaded; nothing is spent. NotWritten: spent, but measuring failed.
        """
        held = self._holding
        blocks, noise, price, stated, certificate, cut = rebuild_values(
            (tuple(blocks), noise, price, stated, certificate, cut)
        )
        maps = lower_blocks(blocks, self._MOST)
        self._check(maps, noise, price, stated, certificate, cut)
        held.expect(price, name, plan_hash)
        counts = held.open(self._asked_sums(maps))
        values = self._rooms(counts, maps, folder)
        try:
            receipt = held.debit(price, name, plan_hash)
        except BaseException:
            _remove_files(values)
            raise
        measured: Measurement | None = None
        with suppress(Exception):  # what failed, and its text, may depend on the data
            measured = self._look(counts, maps, noise, values, blocks)
            if cut:
                measured = replace(measured, cut=cut * counts.cut + int(noise.sample(1, held.bits)[0]))
        if measured is None:
            raise NotWritten(
                f"the budget is spent (entry {receipt.sequence}) but measuring failed, for want of memory or because "
                "the table is gone. The ledger lists it as unreleased; there is no refund once noise may be drawn"
            )
        return measured, receipt

    def prepaid(self, price: Event, *, name: str, plan_hash: str) -> tuple[Curator, Receipt]:
        """A curator of the same table whose accesses are paid from `price`, which is debited now and as a whole.

        For mechanisms that look several times. Its account lives in memory, in one process, and refuses what goes
        beyond the price; what is left in it at the end is not given back. A crash leaves one unreleased entry.

        Guarantee: all that comes out of the curator returned satisfies together the definition that `price`, a
        PureEvent, ZcdpEvent or GaussianEvent, states. Refusals are those of `measure`; BudgetError for other prices.
        """
        (price,) = rebuild_values((price,))
        Account(price)  # refuses what does not add up
        held = self._holding
        held.expect(price, name, plan_hash)
        counts = held.open()
        receipt = held.debit(price, name, plan_hash)
        made = Curator(None, held.declared, held.unit, ReservedBudget(price, receipt), insecure_bits=held.bits)
        made._holding.counts = counts
        return made, receipt

    def _check(
        self,
        maps: Sequence[Measured],
        noise: NoiseLaw,
        price: Event,
        stated: Sensitivity | None,
        certificate: Certificate | None,
        cut: int,
    ) -> None:
        """Refuse, from public facts alone, what costs more than its price or could not be measured."""
        families = [b for b in maps if isinstance(b, FamilyMap)]
        if any(f.names != self._holding.grid.names for f in families):
            raise PlanError("a family of blocks numbers the attributes of the curator's domain")
        grid = self._holding.grid
        families_sum = any(grid.names[i] in grid.measures for f in families for i in f.used.tolist())
        if families_sum or (self._summed(maps) and any(type(b) is CombinationMap for b in maps)):
            raise PlanError("measures are summed by blocks, not by families or combinations of these")
        check_countable(grid, self._asked(maps), measures=True)
        power = sensitivity_power(noise)
        if type(cut) is not int or cut < 0 or (cut and self._holding.unit.person is None):
            raise PlanError("how many persons were cut is measured a whole number of times, where a column names them")
        # whoever changes the tables most may be one who is cut
        found = certified_bound(maps, grid.sizes(), self._holding.unit, power, certificate, grid.measures) + cut**power
        if stated is not None and (stated.power != power or stated.value < found):
            raise PlanError("the plan states another sensitivity than its integer maps have; plan again")
        if not noise_fits_price(Sensitivity(power, found, exact=False), noise, price):
            raise PlanError("the measurement costs more than the price it states; it is refused")
        for factor in {id(f): f for b in maps for f in b.factors}.values():
            if isinstance(factor, Map):
                check_price(factor)
        # a dry run: a map that refuses does so now, not when its price is spent
        for block in maps:
            if isinstance(block, CombinationMap):
                block.apply(np.zeros(block.matrix.shape[1], dtype=np.int64))
        for block in self._single(maps):
            block.apply(np.zeros(block.cells, dtype=np.int64))
        for block in families:
            for group in block.alike():
                shape = [block.factors[i].shape[1] for i in block.sets[group[0]].tolist()]
                block.apply(group[:1], np.zeros((1, *shape), dtype=np.int64))

    def _look(
        self,
        counts: Counts,
        maps: Sequence[Measured],
        noise: NoiseLaw,
        values: Sequence[NDArray[np.int64]],
        blocks: Sequence[Measured],
    ) -> Measurement:
        """Fill `values` with exact answers and noise, a few tables at a time.

        int64 throughout: what does not fit wraps around, which is post-processing of the integer mechanism;
        nothing rounds, saturates or raises on the data.
        """
        families = [(b, v) for b, v in zip(maps, values, strict=True) if isinstance(b, FamilyMap)]
        grid = self._holding.grid
        sets = self._asked(maps, measures=False)
        # beside sums of measures, in which a record is so many, it is so many in every table
        summed = self._summed(maps)
        whole = _record_shares() if summed else 1
        # what is combined stays here until noise is added
        combined = {i: b for i, b in enumerate(maps) if isinstance(b, CombinationMap)}
        sums = {i: np.zeros(b.matrix.shape[1], dtype=np.int64) for i, b in combined.items()}
        wanting: dict[tuple[int, ...], list[tuple[BlockMap, NDArray[np.int64], bool]]] = {}
        for i, block in enumerate(maps):
            end = 0
            for part in self._single([block]):
                into = sums.get(i, values[i])[end : (end := end + part.rows)]
                wanting.setdefault(self._axes(part), []).append((part, into, i not in sums))

        def look(axes: tuple[int, ...], table: NDArray[np.int64]) -> int:
            done = 0
            for block, into, noisy in wanting[axes]:
                given = [axes.index(grid.axis(a)) for a in block.attributes]
                exact = block.apply(np.ascontiguousarray(table.transpose(given)))
                np.add(exact, noise.sample(len(exact), self._holding.bits) if noisy else 0, out=into)
                done += len(exact)
            return done

        drawn, missing = 0, sum(b.rows for b, _ in families) + sum(b.rows for b in self._single(maps))
        for f, chosen, tables in counts.stream(sets):
            if f < len(families):
                family, into = families[f]
                for group in family.alike(chosen):
                    exact = family.apply(chosen[group], tables[group])
                    noisy = noise.sample(exact.size, self._holding.bits).reshape(exact.shape)
                    noisy += exact * whole if whole > 1 else exact
                    family.place(chosen[group], noisy, into)
                    drawn += exact.size
                    missing -= exact.size
                if drawn > _KEPT:
                    drawn = 0
                    release_pages(into)
                continue
            for i, table in zip(chosen.tolist(), tables, strict=True):
                missing -= look(tuple(sets[f][i].tolist()), table * whole)
        for axes, table in counts.shared(summed) if summed else ():
            missing -= look(axes, table)
        if missing:
            raise SourceError("some tables were not counted")
        for i, block in combined.items():
            values[i][:] = block.apply(sums[i]) + noise.sample(block.rows, self._holding.bits)
        total = int(counts.rows) if self._holding.unit.total_is_public else None
        # named by what the planner called them: reconstruction is not the wall's
        return Measurement(tuple(blocks), tuple(values), noise, total)  # pyright: ignore[reportArgumentType]

    def _axes(self, block: BlockMap) -> tuple[int, ...]:
        return tuple(sorted(self._holding.grid.axis(a) for a in block.attributes))

    def _single(self, maps: Sequence[Measured]) -> list[BlockMap]:
        """Blocks by themselves, and those of combinations."""
        given = [b.blocks if isinstance(b, CombinationMap) else (b,) for b in maps]
        return [b for some in given for b in some if isinstance(b, BlockMap)]

    def _summed(self, maps: Sequence[Measured]) -> list[tuple[int, ...]]:
        """The sets with measures whose tables are needed."""
        grid = self._holding.grid
        found = dict.fromkeys(map(self._axes, self._single(maps)))
        return [axes for axes in found if any(grid.names[a] in grid.measures for a in axes)]

    def _asked_sums(self, maps: Sequence[Measured]) -> AskedSums | None:
        if not self._summed(maps):
            return None
        from sfumato.curator.rows.sums import asked_sums  # noqa: PLC0415

        return asked_sums(self._holding.grid, maps)

    def _asked(self, maps: Sequence[Measured], *, measures: bool = True) -> list[NDArray[np.int32]]:
        """The sets whose tables are needed, with measures or without: those of every family, then those of single
        blocks, by order."""
        by_order: dict[int, set[tuple[int, ...]]] = {}
        summed = () if measures else self._summed(maps)
        for axes in map(self._axes, self._single(maps)):
            if axes not in summed:
                by_order.setdefault(len(axes), set()).add(axes)
        single = [np.array(sorted(s), dtype=np.int32).reshape(len(s), k) for k, s in sorted(by_order.items())]
        return [b.sets for b in maps if isinstance(b, FamilyMap)] + single

    def _rooms(self, counts: Counts, maps: Sequence[Measured], folder: Path | None) -> list[NDArray[np.int64]]:
        """Where the noisy values will go, made before the debit. Raises InvalidInput where there is no room."""
        del counts  # what can be counted is for others to say
        values: list[NDArray[np.int64]] = []
        try:
            for i, block in enumerate(maps):
                values.append(allocate_zeros(block.rows, None if folder is None else folder / f"values-{i}.npy"))
        except (MemoryError, OSError) as error:
            _remove_files(values)
            raise InvalidInput(f"there is no room for {sum(b.rows for b in maps):,} noisy values: {error}") from error
        return values

    def __repr__(self) -> str:
        return f"<Curator of a table over {', '.join(self._holding.grid.names)}>"


def _record_shares() -> int:
    """The whole of a record beside sums of measures."""
    from sfumato.curator.rows.shares import SHARES  # noqa: PLC0415

    return SHARES


def curator_holding(curator: Curator, *, grouped: bool = False) -> CuratedTable:
    """What a curator holds, for the other doors of the wall; the import contract keeps it from everybody else.

    `grouped`: whether the door has a price for persons whose rows are counted once per group.
    """
    if type(curator) is not Curator:
        raise PlanError(f"a door of a table is opened by its Curator, not by a {type(curator).__name__}")
    _refuse_measures(curator._holding.grid)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    if not grouped:
        curator.unit.refuse_groups("conversations and mechanisms that choose by the data")
    return curator._holding  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _remove_files(values: Sequence[NDArray[np.int64]]) -> None:
    """The files made for values that will not come."""
    for array in values:
        name = getattr(array, "filename", None)
        if name is not None:
            Path(name).unlink(missing_ok=True)
