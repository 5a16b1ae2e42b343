"""What a declared domain comes down to where records are read: names, and rules that say which value has which cell.

A `Domain` has labels, levels and hierarchies besides; whoever reads records needs none of them. `docs/data.md` says
what each rule makes of every value; the SQL of it is `curator.rows.encoding`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import deferred_field, rebuild, storable
from sfumato._util.text import date_format_fields
from sfumato.errors import DomainError

MAX_CELLS = 10_000_000  # 80 MB of counts of one attribute; by mistake such a domain is an identifier, which is sf.Keys
EDITION = 2
"""Of the rules. In 1, that of 0.2, texts are compared as they are stored, a fraction is no value of whole numbers, and
the last of the bins does not hold its upper edge. Plans that were stored then keep these rules."""
_EXACT = 2**53  # whole numbers below are doubles
MOST_COLUMNS = 4
"""Whose texts are read together: of more, hardly any combination is common."""
BETWEEN = " | "
"""What stands between the texts of columns that are read together. A text with such a line is part of none."""
POINTS = 2**30
"""Equal steps of the range of a measure. A number counts as the nearest end of a step, from 0 to so many."""
MAX_KNOTS = 30
"""Of one measure: from 1 to 10^9 they may double. Each adds two cells, and nine corners to what is priced."""
_NEAREST_KNOTS = 2**10  # steps: a number is known to half a step, which is then little of its piece
_MOVED = 2**20  # records that are moved at once: some tens of megabytes beside the columns
MAX_MEASURES = 3
"""Of one table, which sums them jointly."""
WHOLE = "(?:(-?[1-9][0-9]*)|-?(0))[.]0+"
"""A whole number written with zero decimals, of any length; what comes before them is one of its groups."""
_WHOLE = re.compile(WHOLE)


def whole_text(text: str) -> str:
    """A text as names, codes and keys are told apart by it: "1.0" is 1, for ids become floats where one is missing."""
    found = _WHOLE.fullmatch(text)
    return text if found is None else found[1] or found[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The cells of one attribute: `declared` of them, and one more, the last, where something goes to "other".

    `outside` and `missing` are those of `Attribute`; None where nothing is declared. `edition` says which rules hold.
    Raises DomainError at birth.
    """

    numeric: ClassVar[bool] = False
    kind: str
    outside: str | None = None
    missing: str | None = None
    edition: int = deferred_field(EDITION, before=1)

    def __post_init__(self) -> None:
        outside = (None, "other", "drop", "clamp") if self.numeric else (None, "other", "drop")
        if type(self.kind) is not str or self.outside not in outside or self.missing not in (None, "other", "drop"):
            raise DomainError("a rule of cells has a kind, and policies that its attribute can have")
        if type(self.edition) is not int or not 1 <= self.edition <= EDITION:
            raise DomainError(f"rules of cells are of edition 1 to {EDITION}")

    @property
    def declared(self) -> int:
        """Number of declared cells."""
        raise AttributeError

    @property
    def drops(self) -> bool:
        """Whether some rows may not be counted at all."""
        return "drop" in (self.outside, self.missing)

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.declared + ("other" in (self.outside, self.missing))

    @property
    def states(self) -> int:
        """In how many ways a record may be encoded: by the number of its cell, but for measures."""
        return self.size


@storable
@dataclass(frozen=True, slots=True, kw_only=True)
class Codes(Rule):
    """Texts, and the cell of each: each its own unless `cells` says otherwise.

    `trim` and `ignore_case` say how a text is read before it is looked up: `_util.text.comparable_text`. The codes are
    such texts themselves. A text that is no code counts in the cell, `prefix_cells`, of the longest of `prefixes` that
    it begins with. With `columns`, the text is that of these columns of a row together, parted by `BETWEEN`.
    """

    codes: tuple[str, ...]
    cells: tuple[int, ...] = deferred_field(())
    trim: bool = deferred_field(False)
    ignore_case: bool = deferred_field(False)
    prefixes: tuple[str, ...] = deferred_field(())
    prefix_cells: tuple[int, ...] = deferred_field(())
    columns: tuple[str, ...] = deferred_field(())

    def __post_init__(self) -> None:
        Rule.__post_init__(self)
        if self.columns != ():
            check_read_together(self.columns)
            if self.edition < 2:
                raise DomainError("texts of several columns are read by the rules of today")
        codes = self.codes
        if type(codes) is not tuple or not all(type(c) is str and c for c in codes) or not codes:
            raise DomainError("codes are texts, at least one, and none of them empty")
        if len(set(codes)) != len(codes):
            raise DomainError("a code stands for one cell")
        if self.cells != () and (len(self.cells) != len(codes) or set(self.cells) != set(range(self.declared))):
            raise DomainError("each code has a cell, and each cell a code")
        if not all(type(flag) is bool for flag in (self.trim, self.ignore_case)):
            raise DomainError("texts are read with or without blanks and capitals")
        if self.prefixes != () or self.prefix_cells != ():
            texts = type(self.prefixes) is tuple and all(type(text) is str and text for text in self.prefixes)
            right = texts and len(set(self.prefixes)) == len(self.prefixes) == len(self.prefix_cells)
            places = all(type(cell) is int and 0 <= cell < self.declared for cell in self.prefix_cells)
            if not right or not places or self.edition < 2:
                raise DomainError("each prefix is a text of its own and has a declared cell")

    @property
    def declared(self) -> int:
        return max(self.cells, default=len(self.codes) - 1) + 1


def check_read_together(columns: Sequence[str]) -> None:
    """Refuse what are no names of two to four different columns. Raises DomainError."""
    texts = isinstance(columns, tuple) and all(type(name) is str and name for name in columns)
    if not texts or not 2 <= len(columns) <= MOST_COLUMNS or len({*columns}) != len(columns):
        raise DomainError(f"columns that are read together are 2 to {MOST_COLUMNS} different ones, by name")


@storable
@dataclass(frozen=True, slots=True, kw_only=True)
class Truths(Rule):
    """False, then true."""

    @property
    def declared(self) -> int:
        return 2


@storable
@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds(Rule):
    """Numbers, then days, then what is neither: a value has exactly one of these kinds, or is missing.

    A number is what `Edges` reads as one, a day what `Days` does with the same `format`; of a column that has a type,
    its values are of the kind of the type.
    """

    format: str = deferred_field("")

    def __post_init__(self) -> None:
        Rule.__post_init__(self)
        date_format_fields(self.format)
        if self.missing == "drop":  # how many are missing is what is asked
            raise DomainError("kinds have a cell for what is missing")

    @property
    def declared(self) -> int:
        return 3


@storable
@dataclass(frozen=True, slots=True, kw_only=True)
class Wholes(Rule):
    """Whole numbers from `low` to `high`, `width` of them a cell; the last may be narrower.

    A fraction between `low` and `high` is in the cell of the whole number below it (in edition 1: outside).
    """

    numeric: ClassVar[bool] = True
    low: int
    high: int
    width: int

    def __post_init__(self) -> None:
        Rule.__post_init__(self)
        given = (self.low, self.high, self.width)
        if not all(type(n) is int and abs(n) < _EXACT for n in given) or self.high < self.low or self.width < 1:
            raise DomainError("whole numbers go from low to high, exact in doubles, in cells of width at least 1")

    @property
    def declared(self) -> int:
        return -(-(self.high - self.low + 1) // self.width)


@storable
@dataclass(frozen=True, slots=True, kw_only=True)
class Edges(Rule):
    """Half-open cells [edge, next edge), the last of which holds its upper edge too (in edition 1: it does not)."""

    numeric: ClassVar[bool] = True
    edges: tuple[int | float, ...]

    def __post_init__(self) -> None:
        Rule.__post_init__(self)
        edges = self.edges
        if type(edges) is not tuple or len(edges) < 2 or not all(type(e) in (int, float) for e in edges):
            raise DomainError("edges are at least two numbers")
        if not all(a < b for a, b in itertools.pairwise(edges)) or not all(map(math.isfinite, edges)):
            raise DomainError("edges are finite and increase")

    @property
    def declared(self) -> int:
        return len(self.edges) - 1


@storable
@dataclass(frozen=True, slots=True, kw_only=True)
class Days(Rule):
    """Days in cells [edge, next edge), each counted from 0001-01-01, which is 1, to 9999-12-31.

    `format` says how texts write a day besides year-month-day, in %d, %m and %Y; "" for not at all.
    """

    numeric: ClassVar[bool] = True
    edges: tuple[int, ...]
    format: str = ""

    def __post_init__(self) -> None:
        Rule.__post_init__(self)
        edges = self.edges
        if type(edges) is not tuple or len(edges) < 2 or not all(type(e) is int and 0 < e < 2**22 for e in edges):
            raise DomainError("edges of days are at least two of them, by number")
        if not all(a < b for a, b in itertools.pairwise(edges)):
            raise DomainError("edges increase")
        date_format_fields(self.format)

    @property
    def declared(self) -> int:
        return len(self.edges) - 1


@storable
@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts(Rule):
    """Numbers from `low` to `high` that are summed. A record lies in several cells, with shares that add up to 1.

    Knots cut the range into pieces. With u its place in its piece, from 0 to 1, a record has the shares (1 - u)^2,
    2 u (1 - u) and u^2 of the cells of the piece's lower end, middle and upper end: sums, and sums of squares, are sums
    over cells. Whoever has no number is in the last cell, which "other" declares, with a share of 1. The code of a
    record is the nearest of `POINTS` + 1 equal steps of the range, or the one after.
    """

    numeric: ClassVar[bool] = True
    low: float
    high: float
    knots: tuple[float, ...] = deferred_field(())
    column: str | None = deferred_field(None)

    def __post_init__(self) -> None:
        Rule.__post_init__(self)
        if self.column is not None and (type(self.column) is not str or not self.column):
            raise DomainError("the column that a measure reads has a name")
        if not all(type(n) is float and math.isfinite(n) for n in (self.low, self.high, *self.knots)):
            raise DomainError("a measure goes from one finite number to another")
        if not 1e-290 < self.high - self.low < math.inf or self.outside not in ("clamp", "other"):
            raise DomainError("a measure goes from low to a high above it, and drops no record")
        if self.missing != "other":  # whoever has no number has a cell, whose price is paid
            raise DomainError("a measure has a cell for records without a number")
        if type(self.knots) is not tuple or len(self.knots) > MAX_KNOTS or not self._apart():
            raise DomainError(f"up to {MAX_KNOTS} knots rise from low to high, each a millionth of the range apart")

    def _apart(self) -> bool:
        ends = self.ends
        return all(b - a >= _NEAREST_KNOTS for a, b in itertools.pairwise(ends))

    @property
    def declared(self) -> int:
        return 2 * len(self.knots) + 3

    @property
    def ends(self) -> tuple[int, ...]:
        """The steps at which the pieces end, from 0 to `POINTS`."""
        scale = POINTS / (self.high - self.low)
        inner = (math.floor((min(max(k, self.low), self.high) - self.low) * scale + 0.5) for k in self.knots)
        return 0, *inner, POINTS

    @property
    def states(self) -> int:
        return POINTS + 2


@storable
@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """Where the records of some attributes' cells are counted: of each joint cell, in C order, the cell it goes to.

    Any such map will do for privacy: it looks at one record. Raises DomainError at birth.
    """

    axes: tuple[int, ...]
    cells: NDArray[np.int64]

    def __post_init__(self) -> None:
        axes, cells = self.axes, self.cells
        named = type(axes) is tuple and axes != () and all(type(a) is int and a >= 0 for a in axes)
        if not named or cells.dtype.kind != "i" or cells.ndim != 1 or cells.min() < 0 or cells.max() >= len(cells):
            raise DomainError("cells of attributes, given by their positions, are moved to cells that are there")


@storable
@dataclass(frozen=True, slots=True)
class Grid:
    """The cells of a table: its attributes in order, by name, and the rule of each. Raises DomainError at birth."""

    names: tuple[str, ...]
    rules: tuple[Rule, ...]
    moves: tuple[Moves, ...] = deferred_field(())

    def __post_init__(self) -> None:
        if not self.names or len(self.names) != len(self.rules) or len(set(self.names)) != len(self.names):
            raise DomainError("cells have at least one attribute, and one rule for each name")
        if not all(type(n) is str for n in self.names) or not all(isinstance(r, Rule) for r in self.rules):
            raise DomainError("cells are declared by names and rules")
        if max(r.declared for r in self.rules) > MAX_CELLS:
            raise DomainError(f"an attribute has at most {MAX_CELLS:,} cells")
        full = [type(m) is Moves and len(m.cells) == math.prod(self.shape[a] for a in m.axes) for m in self.moves]
        moved = [a for m in self.moves for a in m.axes]
        if any(self.names[a] in self.measures for a in moved):
            raise DomainError("records are moved between cells, and a measure's are shared")
        if len(set(moved)) != len(moved) or not all(full):
            raise DomainError("records are moved once along each attribute, and from each of its cells")

    def keeps_groups(self, axis: int, codes: NDArray[np.int64]) -> bool:
        """Whether every record that is moved stays in its group of an attribute's cells; `codes` has that of each."""
        for move in (m for m in self.moves if axis in m.axes):
            sizes, at = [self.shape[a] for a in move.axes], move.axes.index(axis)
            before, after = (np.unravel_index(c, sizes)[at] for c in (np.arange(len(move.cells)), move.cells))
            if (codes[before] != codes[after]).any():
                return False
        return True

    @classmethod
    def of(cls, declared: object) -> Grid:
        """The grid of a domain, built anew by the constructors of this file. Raises InvalidInput for anything else."""
        if type(declared) is cls:
            return declared
        found = rebuild(getattr(declared, "grid", None))
        if type(found) is not cls:
            raise DomainError(f"a domain declares the cells of a table; a {type(declared).__name__} does not")
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of cells of each attribute."""
        return tuple(r.size for r in self.rules)

    @property
    def size(self) -> int:
        """Number of cells of the whole table, an exact integer."""
        return math.prod(self.shape)

    @property
    def states(self) -> tuple[int, ...]:
        """In how many ways a record may be encoded, by attribute."""
        return tuple(r.states for r in self.rules)

    @property
    def measures(self) -> tuple[str, ...]:
        """The names of the measures."""
        return tuple(n for n, r in zip(self.names, self.rules, strict=True) if type(r) is Amounts)

    @property
    def summed_axes(self) -> list[int]:
        """The positions of the measures."""
        return [i for i, name in enumerate(self.names) if name in self.measures]

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        """The columns of the table that each attribute reads: the one of its own name, unless its rule says others."""
        return tuple(
            getattr(r, "columns", ()) or (getattr(r, "column", None) or n,)
            for n, r in zip(self.names, self.rules, strict=True)
        )

    @property
    def read_columns(self) -> tuple[str, ...]:
        """All columns of the table that are read, each once."""
        return tuple(dict.fromkeys(c for columns in self.columns for c in columns))

    @property
    def drops(self) -> bool:
        """Whether some rows may not be counted at all."""
        return any(r.drops for r in self.rules)

    def sizes(self) -> dict[str, int]:
        """Number of cells by name."""
        return dict(zip(self.names, self.shape, strict=True))

    def axis(self, name: str) -> int:
        """Position of an attribute."""
        return self.names.index(self.check_names([name])[0])

    def check_names(self, names: Iterable[str]) -> tuple[str, ...]:
        """Names of attributes as a tuple, refused where unknown or repeated."""
        given = tuple(names)
        for name in given:
            if name not in self.names:
                raise DomainError(f"no attribute is called {name!r}; there are {', '.join(self.names)}")
        if len(set(given)) != len(given):
            raise DomainError(f"an attribute is named twice in {given}")
        return given

    def moved(self, columns: Mapping[int, NDArray[Any]]) -> dict[int, NDArray[Any]]:
        """Cells of records, by attribute, each record by itself moved to where it counts.

        columns: of each move all attributes or none.
        """
        found = dict(columns)
        for m in (m for m in self.moves if m.axes[0] in columns):
            given, sizes = [columns[a] for a in m.axes], [self.shape[a] for a in m.axes]
            made = [np.empty_like(c) for c in given]
            for some in (slice(i, i + _MOVED) for i in range(0, len(given[0]), _MOVED)):
                cells = m.cells[np.ravel_multi_index(tuple(c[some] for c in given), sizes)]
                for into, numbers in zip(made, np.unravel_index(cells, sizes), strict=True):
                    into[some] = numbers
            found.update(zip(m.axes, made, strict=True))
        return found

    def mended(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Counts of all cells, an axis for each attribute, where the records of each are counted."""
        for m in self.moves:
            turned = np.moveaxis(counts, m.axes, range(len(m.axes)))
            kept = np.zeros((len(m.cells), *turned.shape[len(m.axes) :]), dtype=np.int64)
            np.add.at(kept, m.cells, turned.reshape(kept.shape))
            counts = np.moveaxis(kept.reshape(turned.shape), range(len(m.axes)), m.axes)
        return counts
