"""The trusted holder of the data: the one object that sees exact counts, with three doors.

`measure` answers with noise, `select` chooses among candidates, `converse` answers questions one by one. `prepaid` pays
for several knocks at once.
Order inside each door: re-derive the price from the integer maps, ask the ledger whether it would pay, open
the table, have the ledger debit the price durably, and only then look and draw the noise. Nothing before the
debit depends on the data but errors of loading; nothing after it does but the noisy values.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.errors import InvalidInput, NotWritten, PlanError, SourceError
from sfumato.ground.codec import rebuild
from sfumato.ground.spool import forget, room
from sfumato.measurements import Measurement
from sfumato.operators import Block, Family
from sfumato.privacy.accountant import Account, Event
from sfumato.privacy.conversing import Terms
from sfumato.privacy.exponential import exponential
from sfumato.privacy.ledger import Ledger, Receipt
from sfumato.privacy.misses import Misses
from sfumato.privacy.noise import NoiseLaw
from sfumato.privacy.prepaid import Prepaid
from sfumato.privacy.pricing import fits, power_of
from sfumato.privacy.sampling import BitSource
from sfumato.privacy.selection import Candidates, score_sensitivity, selection_rate
from sfumato.privacy.sensitivity import Sensitivity, sensitivity
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.wall.rows.counting import Counts, check_countable
from sfumato.wall.rows.sources import open_source
from sfumato.wall.selecting import TableHolder, answers, check_candidates
from sfumato.wall.talk.conversing import Conversation, converse, resume
from sfumato.wall.talk.filed import check_plan_hash

__all__ = ["Curator"]

MAX_VALUES = 500_000_000
_KEPT = 2**23  # values written to files that may stay in memory


class Curator:
    """Holds one table under one ledger. The table is read once, by the first measurement that can be paid for.

    `table` is its public name, which the ledger records with the unit at its first spend and from then on requires.
    Raises PlanError where the domain and the neighbour relation do not go together.
    """

    __slots__ = ("_bits", "_counts", "_domain", "_ledger", "_source", "_table", "_unit")

    def __init__(
        self,
        source: Any,
        domain: Domain,
        unit: PrivacyUnit,
        ledger: Ledger | Prepaid,
        *,
        table: str | None = None,
        insecure_bits: BitSource | None = None,
    ) -> None:
        domain, unit = _own((domain, unit))
        if unit.neighbours is Neighbours.REPLACE_ONE and domain.drops:
            raise PlanError("replace-one needs every record to be counted; an attribute of this domain drops rows")
        if insecure_bits is not None and ledger.durable:
            raise PlanError("reproducible bits are for tests; a durable ledger refuses them")
        self._domain, self._unit, self._ledger, self._bits = domain, unit, ledger, insecure_bits
        self._source: Any = source
        self._table = table
        self._counts: Counts | None = None

    @property
    def unit(self) -> PrivacyUnit:
        """Whose privacy is protected."""
        return self._unit

    def measure(
        self,
        blocks: Sequence[Block | Family],
        noise: NoiseLaw,
        price: Event,
        *,
        name: str,
        plan_hash: str,
        stated: Sensitivity | None = None,
        folder: Path | None = None,
    ) -> tuple[Measurement, Receipt]:
        """B x + z in exact integers for all blocks together, after `price` was debited under `name`.

        Values that are too many for memory go to files in `folder` as they are drawn, or to nameless files.

        Guarantee: the values satisfy the definition that `price` states (mu-GDP, epsilon-DP or rho-zCDP)
        for this curator's neighbour relation.

        Refused before the table is touched: with PlanError or WorkloadError what cannot be measured, costs
        more than `price` or has another sensitivity than `stated`; with NameTaken, BudgetExceeded or
        LedgerError what the ledger would not pay. SourceError (for the custodian): the table cannot be
        loaded; nothing is spent. NotWritten: spent, but measuring failed.
        """
        blocks, noise, price = _own((tuple(blocks), noise, price))
        self._check(blocks, noise, price, stated)
        check_plan_hash(plan_hash)
        self._ledger.expect(name, plan_hash, price, self._unit, self._table)
        counts = self._open()
        values = _rooms(blocks, folder)
        try:
            receipt = self._ledger.debit(name, plan_hash, price, self._unit, self._table)
        except BaseException:
            _remove(values)
            raise
        measured: Measurement | None = None
        with suppress(Exception):  # what failed, and its text, may depend on the data
            measured = self._look(counts, blocks, noise, values)
        if measured is None:
            raise NotWritten(
                f"the budget is spent (entry {receipt.sequence}) but measuring failed, for want of memory or because "
                "the table is gone. The ledger lists it as unreleased; there is no refund once noise may be drawn"
            )
        return measured, receipt

    def select(
        self, candidates: Candidates | Misses, price: Event, *, name: str, plan_hash: str
    ) -> tuple[int, Receipt]:
        """The number of one candidate, those of high score more likely; nothing else comes out.

        Scores are how far one estimate of each query is off, w |q(table) - e| - p, or for Misses how far several are.

        Guarantee: the exponential mechanism at the epsilon of `price`, a BoundedRangeEvent, with the sensitivity
        of the scores derived here, for this curator's neighbour relation: epsilon-DP and epsilon^2/8-zCDP [CR21].
        Refusals are those of `measure`, before the table is touched. NotWritten: spent, but selecting failed.
        """
        candidates, (price,) = self._scored(candidates), _own((price,))
        rate = selection_rate(score_sensitivity(candidates, self._sizes(), self._unit), price)
        check_plan_hash(plan_hash)
        self._ledger.expect(name, plan_hash, price, self._unit, self._table)
        counts = self._open()
        receipt = self._ledger.debit(name, plan_hash, price, self._unit, self._table)
        chosen: int | None = None
        with suppress(Exception):  # what failed, and its text, may depend on the data
            chosen = exponential(candidates.lags(answers(counts, candidates)), rate, self._bits)
        if chosen is None:
            raise NotWritten(f"the budget is spent (entry {receipt.sequence}) but selecting failed; there is no refund")
        return chosen, receipt

    def converse(
        self,
        terms: Terms,
        price: Event,
        *,
        name: str,
        plan_hash: str,
        store: Path | None = None,
        about: Any = None,
    ) -> tuple[Conversation, Receipt]:
        """Questions one by one, each chosen after earlier replies; the whole price is debited now, used up or not.

        A question is `Candidates` of one row; it is positive if its score, with noise, is at least a noisy zero: its
        penalty is the threshold. `about` is any public storable value, kept with the conversation. With `store`, a
        path at which nothing is, it is kept in a file, private to the custodian, that many processes may `resume`.

        Guarantee: all replies it ever gives satisfy together the definition that `price` states, for this curator's
        neighbour relation, and beside anything else the ledger pays for. Refusals are those of `measure`; InvalidInput
        or LedgerError for a place where no file can be made.
        """
        terms, price, about = _own((terms, price, about))
        return converse(
            self._holder(),
            terms,
            price,
            ledger=self._ledger,
            unit=self._unit,
            table=self._table,
            name=name,
            plan_hash=plan_hash,
            store=store,
            about=about,
            bits=self._bits,
        )

    def prepaid(self, price: Event, *, name: str, plan_hash: str) -> tuple[Curator, Receipt]:
        """A curator of the same table whose knocks are paid from `price`, which is debited now and as a whole.

        For mechanisms that look several times. Its account lives in memory, in one process, and refuses what goes
        beyond the price; what is left in it at the end is not given back. A crash leaves one unreleased entry.

        Guarantee: all that comes out of the curator returned satisfies together the definition that `price`, a
        PureEvent, ZcdpEvent or GaussianEvent, states. Refusals are those of `measure`; BudgetError for other prices.
        """
        (price,) = _own((price,))
        Account(price)  # refuses what does not add up
        check_plan_hash(plan_hash)
        self._ledger.expect(name, plan_hash, price, self._unit, self._table)
        counts = self._open()
        receipt = self._ledger.debit(name, plan_hash, price, self._unit, self._table)
        made = Curator(None, self._domain, self._unit, Prepaid(price, receipt), insecure_bits=self._bits)
        made._counts = counts
        return made, receipt

    def resume(self, store: Path, *, anchor: str | None = None) -> Conversation:
        """The conversation kept in a file, to go on with; no budget is spent. `anchor` finds a file put back.

        Raises LedgerError or LedgerCorrupted for a file that this ledger did not pay for, that is not complete, that
        was changed or is open to others; PlanError for another domain or unit; SourceError (for the custodian) for a
        table that cannot be loaded or that is another.
        """
        return resume(self._holder(), store, ledger=self._ledger, anchor=anchor)

    def _holder(self) -> TableHolder:
        return TableHolder(self._domain, self._unit, self._open, self._candidates)

    def _candidates(self, given: Candidates) -> Candidates:
        own = self._scored(given)
        if not isinstance(own, Candidates):
            raise PlanError(f"candidates are needed, not {type(given).__name__}")
        return own

    def _scored(self, given: Candidates | Misses) -> Candidates | Misses:
        (own,) = _own((given,))
        if not isinstance(own, (Candidates, Misses)):
            raise PlanError(f"candidates are needed to choose from, not a {type(given).__name__}")
        for block in own.blocks:
            block.check(self._sizes())
        check_candidates(self._domain, own.blocks)
        return own

    def _sizes(self) -> dict[str, int]:
        return {n: a.size for n, a in self._domain.attributes.items()}

    def _check(
        self, blocks: Sequence[Block | Family], noise: NoiseLaw, price: Event, stated: Sensitivity | None
    ) -> None:
        """Refuse, from public facts alone, what costs more than its price or could not be measured."""
        if not blocks or not all(isinstance(b, (Block, Family)) for b in blocks):
            raise PlanError("a measurement needs at least one block, and blocks alone")
        families = [b for b in blocks if isinstance(b, Family)]
        if any(f.names != self._domain.names for f in families):
            raise PlanError("a family of blocks numbers the attributes of the curator's domain")
        check_countable(self._domain, _asked(self._domain, blocks))
        rows = sum(b.rows for b in blocks)
        if rows > MAX_VALUES:
            raise PlanError(f"{rows:,} values would be measured, above {MAX_VALUES:,}; choose a mechanism with fewer")
        found = sensitivity(blocks, self._sizes(), self._unit, power_of(noise))
        if stated is not None and stated != found:
            raise PlanError("the plan states another sensitivity than its integer maps have; plan again")
        if not fits(found, noise, price):
            raise PlanError("the measurement costs more than the price it states; it is refused")
        # a dry run: an operator that refuses does so now, not when its price is spent
        for block in blocks:
            if isinstance(block, Block):
                block.operator.matvec(np.zeros(block.cells, dtype=np.int64))
                continue
            for group in block.alike():
                shape = [block.factors[i].shape[1] for i in block.sets[group[0]].tolist()]
                block.apply(group[:1], np.zeros((1, *shape), dtype=np.int64))

    def _open(self) -> Counts:
        if self._counts is None:
            unit = self._unit
            self._counts = open_source(
                self._source, self._domain, person=unit.person, rows_per_person=unit.rows_per_person
            )
            self._source = None
        return self._counts

    def _look(
        self, counts: Counts, blocks: Sequence[Block | Family], noise: NoiseLaw, values: Sequence[NDArray[np.int64]]
    ) -> Measurement:
        """Fill `values` with exact answers and noise, a few tables at a time.

        int64 throughout: what does not fit wraps around, which is post-processing of the integer mechanism;
        nothing rounds, saturates or raises on the data.
        """
        families = [(b, v) for b, v in zip(blocks, values, strict=True) if isinstance(b, Family)]
        single = [(b, v) for b, v in zip(blocks, values, strict=True) if isinstance(b, Block)]
        sets = _asked(self._domain, blocks)
        wanting: dict[tuple[int, ...], list[tuple[Block, NDArray[np.int64]]]] = {}
        for block, into in single:
            wanting.setdefault(self._axes(block), []).append((block, into))
        drawn, missing = 0, sum(b.rows for b in blocks)
        for f, chosen, tables in counts.stream(sets):
            if f < len(families):
                family, into = families[f]
                for group in family.alike(chosen):
                    exact = family.apply(chosen[group], tables[group])
                    noisy = exact + noise.sample(exact.size, self._bits).reshape(exact.shape)
                    family.place(chosen[group], noisy, into)
                    drawn += exact.size
                    missing -= exact.size
                if drawn > _KEPT:
                    drawn = 0
                    forget(into)
                continue
            for i, table in zip(chosen.tolist(), tables, strict=True):
                axes = tuple(sets[f][i].tolist())
                for block, into in wanting[axes]:
                    given = [axes.index(self._domain.axis(a)) for a in block.attributes]
                    exact = block.operator.matvec(np.ascontiguousarray(table.transpose(given)).reshape(-1))
                    into[:] = exact + noise.sample(len(exact), self._bits)
                    missing -= len(exact)
        if missing:
            raise SourceError("some tables were not counted")
        total = int(counts.rows) if self._unit.total_is_public else None
        return Measurement(tuple(blocks), tuple(values), noise, total)

    def _axes(self, block: Block) -> tuple[int, ...]:
        return tuple(sorted(self._domain.axis(a) for a in block.attributes))

    def __repr__(self) -> str:
        return f"<Curator of a table over {', '.join(self._domain.names)}>"


def _asked(domain: Domain, blocks: Sequence[Block | Family]) -> list[NDArray[np.int32]]:
    """The sets whose tables are needed: those of every family, then those of single blocks, by order."""
    by_order: dict[int, set[tuple[int, ...]]] = {}
    for block in blocks:
        if isinstance(block, Block):
            axes = tuple(sorted(domain.axis(a) for a in block.attributes))
            by_order.setdefault(len(axes), set()).add(axes)
    single = [np.array(sorted(s), dtype=np.int32).reshape(len(s), k) for k, s in sorted(by_order.items())]
    return [b.sets for b in blocks if isinstance(b, Family)] + single


def _rooms(blocks: Sequence[Block | Family], folder: Path | None) -> list[NDArray[np.int64]]:
    """Where the noisy values will go, made before the debit. Raises InvalidInput where there is no room."""
    values: list[NDArray[np.int64]] = []
    try:
        for i, block in enumerate(blocks):
            values.append(room(block.rows, None if folder is None else folder / f"values-{i}.npy"))
    except (MemoryError, OSError) as error:
        _remove(values)
        raise InvalidInput(f"there is no room for {sum(b.rows for b in blocks):,} noisy values: {error}") from error
    return values


def _remove(values: Sequence[NDArray[np.int64]]) -> None:
    """The files made for values that will not come."""
    for array in values:
        name = getattr(array, "filename", None)
        if name is not None:
            Path(name).unlink(missing_ok=True)


def _own(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same values built anew by the library's own constructors; foreign classes are refused.

    Privacy rests on what operators, laws and units say of themselves, so nobody else's are believed.
    """
    try:
        return rebuild(values)
    except InvalidInput as error:
        raise PlanError(
            f"only the library's own operators, noise laws, prices and domains are measured: {error}"
        ) from None
