"""Streams: the same tables period after period, under one budget debited at the opening.

The order inside `append`: a period that was published before is returned without a look; else its table is opened, one
turn is taken, in which the state is read, the filter run, noise drawn, the new state and what is published are written;
what was written down for good is returned.
"""

from __future__ import annotations

import math
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from sfumato._util.bundles import check_text
from sfumato._util.codec import value_fingerprint
from sfumato.curator.curator import CuratedTable, Curator, check_plan_hash, curator_holding, rebuild_values
from sfumato.curator.places import check_place, check_same_opening, check_unopened, pay_for_file
from sfumato.curator.rows.counting import Counts, check_countable
from sfumato.curator.rows.sources import Histogram, open_source
from sfumato.curator.streams.measuring import (
    first_cells,
    measure_period,
    measure_persons,
    split_states,
    state_shapes,
)
from sfumato.curator.streams.state import (
    FORMAT,
    NAMES,
    FileStates,
    MemoryStates,
    People,
    States,
    StreamOpening,
    StreamProgress,
    StreamState,
    open_people,
    period_line,
    read_stream_lines,
    receipt_line,
    stream_first_line,
)
from sfumato.errors import BudgetError, LedgerCorrupted, LedgerError, NotWritten, PlanError, SfumatoError, SourceError
from sfumato.maps import Map, check_price
from sfumato.privacy.accounting import Event
from sfumato.privacy.chain import Chain, FileChain, MemoryChain, Turn
from sfumato.privacy.debits import Debits, Receipt
from sfumato.privacy.files import is_nonempty_file
from sfumato.privacy.stream_price import Published, StreamTerms
from sfumato.privacy.unit import PrivacyUnit

ROOM = 1_000_000
"""People for whom a file of state has room, unless another number is declared: 32 MB."""


class _PeriodFailed(Exception):
    """A period could not be measured; its turn is undone."""


class PublicStream:
    """Noisy values of period after period; made by `stream` and `resume_stream`. All it shows is public.

    `terms` say what was paid for, and are a copy of what is measured by; `about` is what was given at the opening. It
    belongs to one process, and can be neither copied nor pickled.
    """

    __slots__ = ("_chain", "_held", "_process", "_starts", "_states", "_terms", "about", "terms")

    def __init__(self, held: CuratedTable, chain: Chain[StreamProgress], states: States) -> None:
        self._held, self._chain, self._states = held, chain, states
        self._process = os.getpid()
        opening = chain.read().state.opening
        self._terms, (self.terms, self.about) = opening.terms, rebuild_values((opening.terms, opening.about))
        self._starts = first_cells(self._terms, held.grid.shape)

    @property
    def published(self) -> tuple[Published, ...]:
        """All periods so far."""
        return self._chain.read().state.published

    @property
    def paid(self) -> tuple[int, str]:
        """The entry of the ledger that paid, and the anchor it had then."""
        found = self._chain.read().state.paid
        assert found is not None
        return found

    @property
    def anchor(self) -> str | None:
        """Kept elsewhere, it finds a store that was put back; None for a stream in memory."""
        return self._chain.read().anchor if isinstance(self._chain, FileChain) else None

    def append(self, source: Any, label: str) -> Published:
        """The next period, measured and published under a label of its own.

        A label that was published before gives what was published then, and `source` is not looked at. Raises
        DomainError for a text that is no label, BudgetError after the last period and in another process;
        SourceError, for the custodian, where the table cannot be loaded, or has more records than the stream was
        planned for where their number is public; LedgerError where the store cannot be written, NotWritten where
        measuring failed: nothing was published then, and the period may be appended again.
        """
        if os.getpid() != self._process:
            raise BudgetError("this stream belongs to the process that opened it; resume it from its store here")
        label = "".join((check_text(label, "the label of a period"),))
        standing = self._chain.read().state
        known = standing.find(label)
        if known is not None:
            return known
        _check_periods_left(standing)
        given = self._open(source, standing)
        found: Published | None = None
        with suppress(_PeriodFailed), self._chain.turn(write=True) as turn:
            found = turn.state.find(label)  # another process may have been faster
            if found is None:
                _check_periods_left(turn.state)
                found = self._measured(turn, given, label)
        if found is None:
            raise NotWritten(
                "measuring failed, for want of memory or because the table is gone; nothing was published, and the "
                "period may be appended again"
            )
        # in a turn of its own: the file that is needed no more is the one that another process writes next
        with suppress(SfumatoError), self._chain.turn(write=True) as turn:
            self._states.forget(len(turn.state.published))
        return found

    def _open(self, source: Any, standing: StreamProgress) -> Counts | People:
        """The table of a period. Raises SourceError."""
        held = self._held
        if self._terms.enforced:
            rule = standing.opening.names
            return open_people(source, held.grid, held.unit, held.packing, standing.key, as_written=not rule)
        # where nothing is enforced, that a histogram counts few records of a person is promised too
        unit = PrivacyUnit(held.unit.neighbours) if isinstance(source, Histogram) else held.unit
        counts = open_source(
            source,
            held.grid,
            person=unit.person,
            rows_per_person=unit.rows_per_person,
            once_per=unit.once_per,
            rows_per_group=unit.rows_per_group,
            packing=held.packing,
        )
        if held.unit.total_is_public and counts.rows > self._terms.most:
            raise SourceError(f"a period of this stream has at most {self._terms.most:,} records; plan for more")
        return counts

    def _measured(self, turn: Turn[StreamProgress], given: Counts | People, label: str) -> Published:
        """Measure a period in its turn, and write it down."""
        standing, held, terms = turn.state, self._held, self._terms
        done = len(standing.published)
        state = self._states.read(done, standing.digest)
        found: Published | None = None
        with suppress(Exception):  # what failed, and its text, may depend on the data
            public, people, left = held.unit.total_is_public, state.people, 0
            if isinstance(given, People):
                given, left, people = given.admit(people, done, terms.participations, terms.apart)
            state = StreamState(state.sums, people)
            states = split_states(state.sums, state_shapes(terms, held.grid.shape))
            values = measure_period(terms, done, given, self._starts, states, cut=terms.cuts(held.unit), bits=held.bits)
            if terms.cut:
                values.append(measure_persons(terms, done, left, states[0], held.bits))
            found = Published(label, tuple(values), int(given.rows) if public else None)
        if found is None:
            raise _PeriodFailed
        turn.append(period_line(found, self._states.write(done + 1, state)))
        return found

    def __reduce__(self) -> NoReturn:
        raise BudgetError("a stream holds sums of past tables: it can be neither copied nor pickled; keep its release")

    def __repr__(self) -> str:
        return f"<PublicStream: {len(self.published):,} of {self._terms.filter.periods:,} periods>"


def open_public_stream(
    curator: Curator,
    terms: StreamTerms,
    price: Event,
    *,
    name: str,
    plan_hash: str,
    store: Path | None = None,
    about: Any = None,
    people: int = ROOM,
) -> tuple[PublicStream, Receipt]:
    """Open a stream whose whole price is debited now, before any table; `append` takes each period's.

    `about` is any public storable value, kept with the stream. With `store`, a path at which nothing is, it is kept
    there and in two files beside it, private to the custodian, that many processes may `resume_stream`. Where it is
    enforced how often a person is counted, these have room for as many `people` as was declared, so that their size
    tells nothing; a period that would bring more is refused, and the stream resumed with more room.

    Guarantee: all it ever publishes satisfies together the definition that `price` states, for the curator's neighbour
    relation, where nobody is in more periods than the terms say, nor in nearer ones; also if the table of a period is
    chosen after what was published before (`privacy.stream_price`).

    Refused before anything is spent: PlanError for terms that cost more than `price`, for a table that could not be
    counted, and for a store under a ledger that is none; InvalidInput for a place where no file can be, nor one whose
    opening for the same was cut short; NameTaken, BudgetExceeded or LedgerError for what the ledger would not pay.
    NotWritten: spent, but the store is not complete; the same call goes on with it.
    """
    held = curator_holding(curator, grouped=True)
    terms, price, about = rebuild_values((terms, price, about))
    _check_stream_terms(held, terms, price)
    check_plan_hash(plan_hash)
    ledger = held.ledger
    if not isinstance(ledger, Debits):
        raise PlanError("a stream is paid from a ledger")
    holder = value_fingerprint((held.grid, held.unit))
    opening = StreamOpening(terms, held.unit, price, about, holder, ledger.ledger_id, name, plan_hash, NAMES, people)
    first = stream_first_line(secrets.token_bytes(32), opening)
    if store is None:
        held.expect(price, name, plan_hash)
        receipt = held.debit(price, name, plan_hash)
        chain: Chain[StreamProgress] = MemoryChain(FORMAT, read_stream_lines, first)
        _write_receipt(chain, receipt)
        return PublicStream(held, chain, MemoryStates(_state_size(held, terms))), receipt
    if not ledger.durable or held.bits is not None:
        raise PlanError("a stream that is kept in a store is paid from a ledger that is kept in one")
    path = check_place(store, "stream", FORMAT)
    if is_nonempty_file(path):
        chain = FileChain(path, FORMAT, read_stream_lines)
        check_same_opening(path, chain.read().state.opening, opening)
        _check_stream_paid(chain, ledger)
    else:
        for side in ("even", "odd"):
            check_place(f"{path}.{side}", "stream")
        ledger.expect(name, f"{plan_hash}:{'0' * 32}", price, held.unit, held.table)
        chain = FileChain.create(path, FORMAT, read_stream_lines, first)
    bought = (name, _stream_plan_hash(chain), price, held.unit, held.table)
    receipt = pay_for_file(ledger, bought, (path, chain.remove), lambda receipt: _write_receipt(chain, receipt))
    return PublicStream(held, chain, _stream_states(held, chain, people)), receipt


def resume_stream(
    curator: Curator, store: Path, *, anchor: str | None = None, people: int | None = None
) -> PublicStream:
    """The stream kept in a store, to go on with; no budget is spent. `anchor` finds a store that was put back.

    With `people`, a number that follows from no table, its files have room for so many from now on.

    Raises LedgerError or LedgerCorrupted for a store that the curator's ledger did not pay for, that is not complete,
    that was changed or is open to others; PlanError for another domain or unit.
    """
    held, chain = curator_holding(curator, grouped=True), FileChain(store, FORMAT, read_stream_lines)
    if anchor is not None:
        chain.check(anchor)
    standing = chain.read().state
    opening, ledger = standing.opening, held.ledger
    if not isinstance(ledger, Debits) or ledger.ledger_id != opening.ledger_id:
        raise LedgerError(f"{store} was paid for by another ledger; resume it under that one")
    entry, receipt = ledger.find(opening.name), ledger.paid(opening.name, _stream_plan_hash(chain))
    if entry is None or receipt is None:
        raise LedgerError(
            f"{store} was never paid for: its opening ended before the debit, and nothing was spent. Open it again as "
            "it was opened, or remove the file"
        )
    _check_stream_paid(chain, ledger)
    sequence, paid_at = standing.paid or (receipt.sequence, receipt.anchor)
    ledger.check(paid_at)
    if entry.sequence != sequence or entry.event != opening.price:
        raise LedgerCorrupted(f"{store} and its ledger do not agree on what was paid; restore them")
    if value_fingerprint((held.grid, held.unit)) != opening.holder:
        raise PlanError(f"{store} is a stream over another domain or privacy unit; resume it with its own")
    _check_stream_terms(held, opening.terms, opening.price)
    _write_receipt(chain, receipt)  # where its opening ended before it was written down, and nothing was published
    states = _stream_states(held, chain, people or 0)
    while True:
        try:
            states.read(len(standing.published), standing.digest)  # one that is missing or was put back is told now
        except LedgerError:
            before, standing = standing, chain.read().state
            if len(standing.published) == len(before.published):
                raise
        else:  # nobody appended a period between the two looks, after which the state of before is gone
            return PublicStream(held, chain, states)


def _check_stream_terms(held: CuratedTable, terms: StreamTerms, price: Event) -> None:
    """Refuse, from public facts alone, what costs more than its price or could not be measured."""
    if type(terms) is not StreamTerms:
        raise PlanError(f"a stream is opened on its terms, not on a {type(terms).__name__}")
    if terms.enforced and held.unit.person is None:
        raise PlanError("how often a person is counted is enforced where a column says whose record a row is")
    if any(f.names != held.grid.names for f in terms.families):
        raise PlanError("a family of tables numbers the attributes of the curator's domain")
    check_countable(held.grid, [f.sets for f in terms.families])
    for family in terms.families:
        family.check(held.grid.sizes())
        for factor in family.factors:
            if isinstance(factor, Map):
                check_price(factor)
        for group in family.alike():
            # a dry run: what refuses does so now
            shape = [held.grid.shape[i] for i in family.sets[group[0]].tolist()]
            family.apply(group[:1], np.zeros((1, *shape), dtype=np.int64))
    if not terms.fits(price, held.grid.sizes(), held.unit):
        raise PlanError("the stream costs more than the price it states; it is refused")


def _check_periods_left(standing: StreamProgress) -> None:
    periods = standing.opening.terms.filter.periods
    if len(standing.published) >= periods:
        raise BudgetError(
            f"all {periods:,} periods that were paid for are published; open another stream, whose totals add to these"
        )


def _stream_states(held: CuratedTable, chain: FileChain[StreamProgress], people: int) -> FileStates:
    standing = chain.read().state
    opening = standing.opening
    # files of before had as much room as there were people: they have what is usual from now on
    room = max(opening.people or ROOM, people) if opening.terms.enforced else 0
    return FileStates(chain.path, _state_size(held, opening.terms), standing.key, room)


def _state_size(held: CuratedTable, terms: StreamTerms) -> int:
    return sum(map(math.prod, state_shapes(terms, held.grid.shape)))


def _check_stream_paid(chain: FileChain[StreamProgress], ledger: Debits) -> None:
    standing = chain.read().state
    if standing.paid is None:
        check_unopened(chain.path, ledger, standing.opening.name)


def _write_receipt(chain: Chain[StreamProgress], receipt: Receipt) -> None:
    """Write the receipt down, unless that was done."""
    if chain.read().state.paid is None:
        with chain.turn(write=True) as turn:
            if turn.state.paid is None:
                turn.append(receipt_line(receipt.sequence, receipt.anchor))


def _stream_plan_hash(chain: Chain[StreamProgress]) -> str:
    """What the ledger's entry bears: the plan paid for, and this very store."""
    found = chain.read()
    return f"{found.state.opening.plan_hash}:{found.hashes[0][:32]}"
