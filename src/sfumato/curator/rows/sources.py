"""What a source is: counts already tabulated, or a table that is read once and encoded before a budget is charged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.cells import Grid
from sfumato.curator.rows.counting import Counts, Packing, TensorCounts, one_block_per_set
from sfumato.errors import InvalidInput

if TYPE_CHECKING:
    from sfumato.curator.rows.sums import AskedSums

_MAX_RECORDS = 2**53  # sums of doubles are exact below, so that none is overlooked


@dataclass(frozen=True, slots=True, eq=False, init=False, repr=False)
class Histogram:
    """Counts already tabulated over a domain, one per cell; no message and no repr shows a count.

    Args:
        counts: Non-negative whole numbers of records, of shape (domain.size,) or `domain.shape`. They are copied.

    Raises:
        InvalidInput: A count is fractional, negative, missing or no number, or they sum to 2^53 or more.

    >>> sf.Histogram([[3, 4], [0, 2]])
    Histogram(4 cells)
    >>> sf.Histogram([1.5, 2.0])
    Traceback (most recent call last):
        ...
    sfumato.errors.InvalidInput: a histogram counts records: no entry may be negative, fractional or missing
    """

    counts: NDArray[np.int64]

    def __init__(self, counts: ArrayLike) -> None:
        object.__setattr__(self, "counts", _whole_cell_counts(counts))

    def __repr__(self) -> str:
        return f"Histogram({self.counts.size:,} cells)"


def _whole_cell_counts(counts: ArrayLike) -> NDArray[np.int64]:
    if isinstance(counts, np.ma.MaskedArray):
        raise InvalidInput("a histogram has a count for every cell; a masked array may lack some: fill it first")
    try:
        given = np.asarray(counts)
    except ValueError:  # ragged
        given = np.asarray(None)
    if given.dtype.kind not in "iuf" or given.ndim == 0 or given.size == 0:
        raise InvalidInput("a histogram is an array of whole numbers, one per cell; convert other objects first")
    if (given < 0).any() or (given != np.floor(given)).any():
        raise InvalidInput("a histogram counts records: no entry may be negative, fractional or missing")
    if given.sum(dtype=np.float64) >= _MAX_RECORDS:
        raise InvalidInput("a histogram may count fewer than 2^53 records")
    copied = given.astype(np.int64)
    copied.flags.writeable = False
    return copied


def open_source(
    source: object,
    domain: object,
    *,
    person: str | None = None,
    rows_per_person: int = 1,
    once_per: Sequence[str] = (),
    rows_per_group: int = 1,
    packing: Packing = one_block_per_set,
    asked: AskedSums | None = None,
) -> Counts:
    """Read a source once, encode its records over the grid of a domain, and keep them for counting.

    `asked`: where nothing but these sums of measures will be asked, records are not kept.

    `person` names the column that tells whose record it is: of each person at most `rows_per_person`
    rows are kept, after rows that are declared to be dropped. Rows that name no person are not counted. With `once_per`
    at most `rows_per_group` rows are kept of each joint cell of these attributes.
    Columns that neither the domain nor `person` names are ignored. `packing` proposes which tables are counted.

    Guarantee: every record is encoded by itself, and a person's rows are chosen by themselves, so adding
    or removing one person's rows changes the counts of every set by at most `rows_per_person` in L1, and the number of
    persons who were cut by at most 1.

    Raises InvalidInput before anything is read: for what is no source, for an attribute without
    `outside` or `missing` (DomainError), and for a histogram of another shape. Raises SourceError for a
    table that cannot be loaded; the message holds names of columns and files, never a value.
    """
    if isinstance(rows_per_person, bool) or not isinstance(rows_per_person, int) or rows_per_person < 1:
        raise InvalidInput(f"rows_per_person must be a whole number of at least 1, not {rows_per_person!r}")
    if person is not None and (not isinstance(person, str) or not person):
        raise InvalidInput(f"person must be the name of a column, not {person!r}")
    if type(rows_per_group) is not int or rows_per_group < 1 or (once_per and person is None):
        raise InvalidInput("once_per needs person=, and rows_per_group is a whole number of at least 1")
    grid = Grid.of(domain)
    groups = [grid.axis(a) for a in once_per]
    if isinstance(source, Histogram):
        return _histogram_counts(source, grid, person)
    from sfumato.curator.rows.loading import open_rows  # noqa: PLC0415

    return open_rows(source, grid, person, (rows_per_person, tuple(groups), rows_per_group), packing, asked)


def _histogram_counts(source: Histogram, grid: Grid, person: str | None) -> Counts:
    if person is not None:
        raise InvalidInput(
            f"a histogram has no column {person!r}: tabulate at most rows_per_person records of each person "
            "and leave person out"
        )
    if grid.measures:
        raise InvalidInput(f"a histogram counts cells; measures ({', '.join(grid.measures)}) need a table of rows")
    shape = grid.shape
    if source.counts.shape not in (shape, (grid.size,)):
        raise InvalidInput(
            f"the histogram has shape {source.counts.shape}, the domain {shape} with {grid.size:,} cells: "
            "give one count per cell, flat in C order or in that shape"
        )
    # what lies in a cell goes to another as its records would
    return TensorCounts(grid, int(source.counts.sum()), grid.mended(source.counts.reshape(shape)))
