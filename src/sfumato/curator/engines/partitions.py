"""Engines that count where the rows lie, part by part. What they say is checked, before the debit and after.

An engine encodes every row once and keeps the result; then it counts, pass after pass, of bounded width, and gives sums
over all parts. A row counted twice doubles the sensitivity, so nothing is believed of what a cluster may lose, repeat
or change: rows are counted by the engine too, every part comes exactly once, and each pass counted the very bytes that
were there before the debit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Timer
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.cells import Grid
from sfumato.curator.engines.kernel import RECEIPT, PartitionRow
from sfumato.curator.rows.counting import Cluster, PackedCounts, Packing, counting_passes
from sfumato.curator.rows.encoding import Column, Truncation, check_type
from sfumato.curator.rows.readers import MAX_ROWS, DuckDBSession, OpenedTable, missing_column
from sfumato.errors import InvalidInput, SourceError

Jobs = Callable[[str, int, int], None]
"""Called with what is done ("encoding" or "counting"), the jobs of it that are done, and how many there are."""

_hears: ContextVar[Jobs | None] = ContextVar("hears", default=None)


@contextmanager
def report_jobs_to(jobs: Jobs | None) -> Generator[None]:
    """While it lasts, engines tell `jobs` how far they are."""
    before = _hears.set(jobs)
    try:
        yield
    finally:
        _hears.reset(before)


def report_job_progress(what: str, done: int, of: int) -> None:
    """Tell whoever hears; what fails there must not fail what is paid for."""
    if jobs := _hears.get():
        with suppress(Exception):
            jobs(what, done, of)


def end_what_comes(end: Callable[[], object], times: int = 240) -> None:
    """End an engine's jobs, and go on ending them for a minute without being waited for.

    An engine begins what it was just asked to do though nobody waits for it any more.
    """
    with suppress(Exception):
        end()
    later = Timer(0.25, end_what_comes, (end, times - 1))
    later.daemon = True
    if times > 1:
        later.start()


@dataclass(frozen=True, slots=True)
class PassCheck:
    """What the wall holds against every pass: the records, and of every chunk its part, its number and its digest.

    `cut` is the number of persons who had more rows than are kept.
    """

    rows: int = field(repr=False)
    digests: tuple[bytes, ...] = field(repr=False)
    cut: int = field(default=0, repr=False)


class Engine(ABC):
    """A table at an engine that counts. Made of what names it; raises InvalidInput, and shows no address.

    label: what messages call the table. table: what two addresses have in common that may mean one table.
    """

    label: str
    table: tuple[str, ...]
    notation: tuple[str, str] = (".", "")
    """Decimal mark and separator of thousands in texts."""

    @abstractmethod
    def __init__(self, source: object) -> None: ...

    @abstractmethod
    def columns(self) -> Mapping[str, str]:
        """The DuckDB type of every column, or what the engine calls it where it is not read. Raises SourceError."""

    @abstractmethod
    def encode(self, grid: Grid, person: str | None, truncation: Truncation) -> PassCheck:
        """Encode every row, once, and keep the result for `tally`. Raises SourceError."""

    @abstractmethod
    def tally(self, parts: Sequence[Cluster]) -> tuple[NDArray[np.int64], list[bytes]]:
        """The tables that the blocks answer, flat, answer by answer, summed over all chunks; and the chunks counted."""

    @abstractmethod
    def close(self) -> None:
        """Give up what was kept; more than once is fine."""

    def counts(self, grid: Grid, person: str | None, truncation: Truncation, packing: Packing) -> PartCounts:
        """The table, encoded and checked. Raises SourceError, or what `Engine.encode` raises."""
        found = self.columns()
        asked = [(n, rule) for names, rule in zip(grid.columns, grid.rules, strict=True) for n in names]
        for name, rule in [*asked, *([] if person is None else [(person, None)])]:
            if name not in found:
                raise missing_column(self.label, name)
            check_type(name, rule, Column("", found[name]))
        check = self.encode(grid, person, truncation)
        return PartCounts(grid, check.rows, check, self, packing=packing, cut=check.cut)

    def opened(self, needed: Sequence[str]) -> OpenedTable:
        """The names of its columns; rows are not handed over."""
        if needed:
            what = "keys are not, nor persons over periods (plan with promised=True), and no sample is shown"
            raise InvalidInput(f"{self.label} is counted where it lies: {what}")
        return OpenedTable(
            DuckDBSession(), self.label, "", {name: Column("NULL", kind) for name, kind in self.columns().items()}
        )

    def __repr__(self) -> str:
        return f"<{self.label}>"


@dataclass(frozen=True, slots=True, eq=False)
class PartCounts(PackedCounts):
    """Counts of a table that is encoded at an engine."""

    # One packing whatever the number of records: how many passes there are tells nothing of it.
    _SIZES: ClassVar[tuple[int, ...]] = (2**20,)
    check: PassCheck = field(repr=False)
    engine: Engine = field(repr=False)

    def _passes(self, packed: Sequence[Cluster]) -> Iterator[tuple[Cluster, NDArray[np.int64]]]:
        todo = list(counting_passes(packed, self._PASS_CELLS))
        for done, parts in enumerate(todo):
            report_job_progress("counting", done, len(todo))
            yield from self._pass(parts)

    def _pass(self, parts: list[Cluster]) -> Iterator[tuple[Cluster, NDArray[np.int64]]]:
        yield from ((part, np.full((len(part.blocks), 1), self.rows)) for part in parts if not part.sizes)
        sized = [part for part in parts if part.sizes]
        if not sized:
            return
        flat, digests = self.engine.tally(sized)
        if sorted(digests) != sorted(self.check.digests):
            raise SourceError(f"{self.engine.label} changed after it was encoded, or a part of it was lost or doubled")
        start = 0
        for part in sized:
            for column, (family, kept) in enumerate(part.answers):
                sizes = tuple(part.sizes[axis] for axis in kept)
                found = flat[start : (start := start + len(part.blocks) * int(np.prod(sizes)))]
                alone = (family, tuple(range(len(kept))))
                answer = Cluster(part.blocks[:, list(kept)], sizes, (alone,), part.positions[:, [column]])
                yield answer, found.reshape(len(part.blocks), -1)


def check_encoded_parts(
    label: str, grid: Grid, found: Sequence[PartitionRow], came: int, buckets: int | None
) -> PassCheck:
    """What came of encoding, believed only where it holds together. Raises SourceError.

    found: every row that the parts gave, without data. came: rows that the engine counts by itself. buckets: of
    persons, where persons are named.
    """
    chunks = [p for p in found if p.chunk != RECEIPT]
    receipts = [p for p in found if p.chunk == RECEIPT]
    whole = _is_numbered_densely((p.part, p.chunk) for p in chunks)
    whole &= buckets is None or _are_buckets_whole(receipts, buckets)
    if not whole or sum(p.seen for p in found) != came:
        raise SourceError(f"{label} did not hand on each of its rows once: it changed meanwhile, or a part was lost")
    rows = sum(p.rows for p in chunks)
    # the largest code of every attribute, after how many persons are cut who have their first row here
    notes = [np.frombuffer(p.note[32:], dtype="<i8") for p in chunks]
    cuts, tops = [int(n[0]) for n in notes], [n[1:] for n in notes]
    if max(rows, came) > MAX_ROWS:
        raise SourceError(f"{label} has more than {MAX_ROWS:,} rows")
    fits = all(len(top) == len(grid.shape) and (top >= 0).all() and (top < grid.states).all() for top in tops)
    if not fits or not all(0 <= cut <= p.rows for cut, p in zip(cuts, chunks, strict=True)):
        raise SourceError(f"{label} was not encoded as declared; please report this as an error of the library")
    digests = tuple(np.array([p.part, p.chunk], dtype="<i4").tobytes() + p.note[:32] for p in chunks)
    return PassCheck(rows, digests, sum(cuts))


def check_joined_parts(
    label: str, grid: Grid, found: Sequence[PartitionRow], came: Sequence[int], buckets: int
) -> PassCheck:
    """Likewise of records that are made of several tables. Raises SourceError."""
    _check_joined_receipts(label, found, came, buckets)
    return check_encoded_parts(label, grid, [p for p in found if p.chunk != RECEIPT], 0, None)


def check_lines(label: str, found: Sequence[PartitionRow], came: Sequence[int], buckets: int) -> list[PartitionRow]:
    """The chunks of lines that were made of tables and came here, each of them once. Raises SourceError."""
    _check_joined_receipts(label, found, came, buckets)
    chunks = [p for p in found if p.chunk != RECEIPT]
    whole = _is_numbered_densely((p.part, p.chunk) for p in chunks)
    made: dict[int, int] = {}
    for part in chunks:
        made[part.part] = made.get(part.part, 0) + part.rows
    if not whole or any(int(p.note) != made[p.part] for p in chunks):
        raise SourceError(f"{label} did not hand on each of its lines once: a part was lost or doubled")
    return chunks


def _check_joined_receipts(label: str, found: Sequence[PartitionRow], came: Sequence[int], buckets: int) -> None:
    """Whether all that tells of one person met in one part: each receipt ends with the number of its table.

    came: rows of each table that the engine counts by itself.
    """
    receipts = [(int(p.note.split()[2]), p) for p in found if p.chunk == RECEIPT]
    places = {tuple(p.note.split()[:2]) for _, p in receipts}
    whole = len(places) == (buckets if receipts else 0)
    for table, rows in enumerate(came):
        sent = [p._replace(note=b" ".join(p.note.split()[:2])) for number, p in receipts if number == table]
        # parts of all tables are numbered in one row
        order = {part: i for i, part in enumerate(sorted({p.part for p in sent}))}
        whole &= _are_buckets_whole([p._replace(part=order[p.part]) for p in sent], buckets)
        whole &= sum(p.seen for p in sent) == rows
    if not whole or {number for number, _ in receipts} - set(range(len(came))):
        raise SourceError(f"{label} was not made of each row once: a table changed meanwhile, or a part was lost")
    if max(came) > MAX_ROWS:
        raise SourceError(f"a table of {label} has more than {MAX_ROWS:,} rows")


def _are_buckets_whole(receipts: Sequence[PartitionRow], buckets: int) -> bool:
    """Whether of every part each bucket of persons came once, and each bucket to one place."""
    sent = [(p.part, *map(int, p.note.split())) for p in receipts]
    where = {(bucket, at) for _, bucket, at in sent}
    pairs = [(part, bucket) for part, bucket, _ in sent]
    whole = len(where) == (buckets if sent else 0) and _is_numbered_densely(pairs)
    return whole and len(pairs) == buckets * len({part for part, _ in pairs})


def _is_numbered_densely(pairs: Iterable[tuple[int, int]]) -> bool:
    """Whether the first numbers are 0, 1, ..., and the second ones of each of them too, each pair once."""
    found: dict[int, list[int]] = {}
    for part, number in pairs:
        found.setdefault(part, []).append(number)
    return all(sorted(some) == list(range(len(some))) for some in (list(found), *found.values()))
