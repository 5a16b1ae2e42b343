"""Small named columns that print themselves and turn into anybody's data frame."""

from __future__ import annotations

import html
import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from sfumato.errors import InvalidInput, MissingExtra, how_to_install

SHOWN_ROWS = 40
"""Rows of a table that are shown where nobody says how many: about a screen."""
_WIDE = 160  # pixels of an error bar: what is left beside a few columns
_LONG = 24  # characters of a cell from which its column gets room: a phone shows two such columns


def _interval_bar(ends: tuple[float, float, float] | None, least: float, most: float) -> str:
    """A line from low to high with a dot at the value, on one scale with the other rows."""
    if ends is None or not all(map(math.isfinite, ends)):
        return ""
    value, low, high = (4 + (_WIDE - 8) * (v - least) / (most - least) for v in ends)
    return (
        f'<svg width="{_WIDE}" height="14" role="img" aria-hidden="true" style="color:inherit">'
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="7" y2="7" stroke="currentColor" stroke-width="1.5"/>'
        f'<circle cx="{value:.1f}" cy="7" r="3" fill="currentColor"/></svg>'
    )


# blanks within numbers and equations, which Python takes for unprintable
_UNBROKEN = "\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}"


def printable(text: str) -> str:
    """A text that no terminal takes for a command."""
    return "".join(c if c.isprintable() or c in _UNBROKEN else "\N{REPLACEMENT CHARACTER}" for c in text)


def safe_text(text: str) -> str:
    """A text that no spreadsheet takes for a formula and no terminal for a command."""
    clean = printable(text)
    return f"'{clean}" if clean[:1] in ("=", "+", "-", "@", "\t") and not _is_number(clean) else clean


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class FrameConvertible(ABC):
    """What is rows of columns, and so turns into anybody's data frame."""

    __slots__ = ()

    @abstractmethod
    def frame(self) -> Frame:
        """The rows as a frame of columns.

        Returns:
            The frame.
        """

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame.

        Returns:
            The DataFrame.

        Raises:
            MissingExtra: pandas is not installed.
        """
        return optional_package("pandas").DataFrame(dict(self.frame().columns))

    def to_polars(self) -> Any:
        """The rows as a polars DataFrame.

        Returns:
            The DataFrame.

        Raises:
            MissingExtra: polars is not installed.
        """
        return optional_package("polars").DataFrame(dict(self.frame().columns))

    def to_arrow(self) -> Any:
        """The rows as a pyarrow Table.

        Returns:
            The Table.

        Raises:
            MissingExtra: pyarrow is not installed.
        """
        return optional_package("pyarrow").table(dict(self.frame().columns))


@dataclass(frozen=True, slots=True)
class Frame(FrameConvertible):
    """Columns of equal length by name.

    Args:
        columns: The values of each column.

    Raises:
        InvalidInput: The columns have unequal lengths.
    """

    columns: Mapping[str, Sequence[Any]]

    def __post_init__(self) -> None:
        if len({len(c) for c in self.columns.values()}) > 1:
            raise InvalidInput("the columns of a frame must have equal lengths")

    @classmethod
    def of(cls, kind: type, values: Iterable[Any]) -> Frame:
        """A frame of the fields of values of one dataclass.

        Args:
            kind: The dataclass.
            values: Its values.

        Returns:
            One row per value, one column per field.
        """
        listed = tuple(values)
        return cls({f.name: [getattr(v, f.name) for v in listed] for f in fields(kind)})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, name: str) -> Sequence[Any]:
        return self.columns[name]

    def rows(self) -> list[dict[str, Any]]:
        """The rows as dicts.

        Returns:
            One dict per row.
        """
        return [dict(zip(self.columns, row, strict=True)) for row in zip(*self.columns.values(), strict=True)]

    def frame(self) -> Frame:
        """The frame itself.

        Returns:
            The frame.
        """
        return self

    def cells(
        self, most: int = SHOWN_ROWS, numbers: Sequence[str] = ()
    ) -> tuple[list[str], list[list[str]], list[bool]]:
        """The first rows as texts.

        Args:
            most: How many rows.
            numbers: Columns whose texts are numbers.

        Returns:
            The names of the columns, but for notes where there is nothing to say; a text for every cell; and which
            columns hold numbers.
        """
        shown = self.rows()[:most]
        # a column of notes is left out where there is nothing to say
        names = [name for name in self.columns if not shown or any(row[name] != "" for row in shown)]
        right = [
            n in numbers or all(isinstance(row[n], (int, float)) or row[n] is None for row in shown) for n in names
        ]
        return [printable(n) for n in names], [[format_cell(row[n]) for n in names] for row in shown], right

    def to_text(self, most: int = SHOWN_ROWS) -> str:
        """The first rows for a terminal, in aligned columns.

        Args:
            most: How many rows.

        Returns:
            Lines of text, the last of which says how many rows are left.
        """
        head, body, numeric = self.cells(most)
        widths = [max(len(r[i]) for r in [head, *body]) for i in range(len(head))]

        def line(cells: list[str]) -> str:
            padded = (c.rjust(w) if n else c.ljust(w) for c, w, n in zip(cells, widths, numeric, strict=True))
            return "  ".join(padded).rstrip()

        more = [f"… {len(self) - len(body):,} more rows"] if len(self) > len(body) else []
        return "\n".join([line(head), *map(line, body), *more])

    def __str__(self) -> str:
        return self.to_text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.to_html()

    def to_html(
        self, caption: str = "", *, most: int = SHOWN_ROWS, numbers: Sequence[str] = (), page: bool = False
    ) -> str:
        """The first rows as an HTML table, escaped; answers with the ends of an interval have a bar.

        Args:
            caption: What stands above it.
            most: How many rows.
            numbers: Columns whose texts are numbers, which stand to the right.
            page: Whether a style sheet aligns cells by their classes; else they hold their own styles, and bars.

        Returns:
            One table element.
        """
        head, body, numeric = self.cells(most, numbers)
        bars = None if page else self._bars(most)
        head = [name.replace("_", " ") for name in head] if page else head  # words wrap, one of three words does not
        ends = [v for bar in bars or () if bar for v in bar if math.isfinite(v)]
        drawn = bars if bars and ends and max(ends) > min(ends) else None

        def cell(tag: str, text: str, *, right: bool) -> str:
            aligned = f' style="text-align:{"right" if right else "left"}"'
            if page:
                aligned = ' class="n"' if right else ' class="t"' if tag == "td" and len(text) > _LONG else ""
            return f"<{tag}{aligned}>{text}</{tag}>"

        top = "".join(cell("th", html.escape(c), right=n) for c, n in zip(head, numeric, strict=True))
        top += cell("th", "interval", right=False) if drawn else ""
        lines: list[str] = []
        for i, row in enumerate(body):
            cells = "".join(cell("td", html.escape(c), right=n) for c, n in zip(row, numeric, strict=True))
            cells += cell("td", _interval_bar(drawn[i], min(ends), max(ends)), right=False) if drawn else ""
            lines.append(f"<tr>{cells}</tr>")
        left = len(self) - len(body)
        told = f"{caption} (… {left:,} more rows)" if left > 0 else caption
        title = f"<caption>{html.escape(printable(told.strip()))}</caption>" if told.strip() else ""
        return f"<table>{title}<thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table>"

    def _bars(self, most: int) -> list[tuple[float, float, float] | None] | None:
        """(value, low, high) of the rows shown, where the columns before "low" and "high" are numbers."""
        names = list(self.columns)
        if "low" not in names or "high" not in names:
            return None
        known = [n for n in ("answer", "share", "quantile", "difference") if n in names]
        known += [n for n in names if n.startswith("mean ")]
        if not known:
            return None
        rows = zip(*(self.columns[c][:most] for c in (known[0], "low", "high")), strict=True)
        return [None if None in row else row for row in rows]


def format_cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else safe_text(str(value))


def optional_package(name: str, extra: str | None = None) -> Any:
    """An optional package; MissingExtra says how to install it where it is not there."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        how = how_to_install(extra) if extra else f"install it with: pip install {name}"
        raise MissingExtra(f"{name} is not installed; {how}") from error
