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

__all__ = ["Frame", "Framed", "card", "facts", "package", "safe_text", "table"]


_ROWS = 40  # about a screen
_WIDE = 160  # pixels of an error bar: what is left beside a few columns


def table(
    head: Sequence[str], body: Sequence[Sequence[str]], numeric: Sequence[bool], caption: str = "", bars: Any = None
) -> str:
    """An HTML table, numbers to the right; `bars` are (value, low, high) of each row, or None, for a last column."""
    ends = [v for bar in bars or () if bar for v in bar if math.isfinite(v)]
    drawn = bool(ends) and max(ends) > min(ends)

    def cell(tag: str, text: str, right: bool) -> str:
        return f'<{tag} style="text-align:{"right" if right else "left"}">{text}</{tag}>'

    top = "".join(cell("th", html.escape(c), n) for c, n in zip(head, numeric, strict=True))
    lines: list[str] = []
    for i, row in enumerate(body):
        cells = "".join(cell("td", html.escape(c), n) for c, n in zip(row, numeric, strict=True))
        lines.append(f"<tr>{cells}{cell('td', _bar(bars[i], min(ends), max(ends)), False) if drawn else ''}</tr>")
    told = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    last = cell("th", "interval", False) if drawn else ""
    return f"<table>{told}<thead><tr>{top}{last}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _bar(ends: tuple[float, float, float] | None, least: float, most: float) -> str:
    """A line from low to high with a dot at the value, on one scale with the other rows."""
    if ends is None or not all(map(math.isfinite, ends)):
        return ""
    value, low, high = (4 + (_WIDE - 8) * (v - least) / (most - least) for v in ends)
    return (
        f'<svg width="{_WIDE}" height="14" role="img" aria-hidden="true" style="color:inherit">'
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="7" y2="7" stroke="currentColor" stroke-width="1.5"/>'
        f'<circle cx="{value:.1f}" cy="7" r="3" fill="currentColor"/></svg>'
    )


def facts(lines: Iterable[tuple[str, str]]) -> str:
    """Words about a thing, each line with what it is about."""
    left = 'style="text-align:left"'
    rows = [f"<tr><th {left}>{html.escape(a)}</th><td {left}>{html.escape(t)}</td></tr>" for a, t in lines]
    return f"<table><tbody>{''.join(rows)}</tbody></table>" if rows else ""


def card(headline: str, lines: Iterable[tuple[str, str]] = (), shown: Mapping[str, Any] | None = None) -> str:
    """A headline, facts, and frames under their captions."""
    frames = "".join(frame.to_html(caption) for caption, frame in (shown or {}).items())
    return f"<div><p><strong>{html.escape(headline)}</strong></p>{facts(lines)}{frames}</div>"


_SHOWN_ROWS = 40  # about what a terminal shows at once


def safe_text(text: str) -> str:
    """A text that no spreadsheet takes for a formula and no terminal for a command."""
    clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return f"'{clean}" if clean[:1] in ("=", "+", "-", "@", "\t") and not _is_number(clean) else clean


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class Framed(ABC):
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
        return package("pandas").DataFrame(dict(self.frame().columns))

    def to_polars(self) -> Any:
        """The rows as a polars DataFrame.

        Returns:
            The DataFrame.

        Raises:
            MissingExtra: polars is not installed.
        """
        return package("polars").DataFrame(dict(self.frame().columns))

    def to_arrow(self) -> Any:
        """The rows as a pyarrow Table.

        Returns:
            The Table.

        Raises:
            MissingExtra: pyarrow is not installed.
        """
        return package("pyarrow").table(dict(self.frame().columns))


@dataclass(frozen=True, slots=True)
class Frame(Framed):
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

    def _texts(self) -> tuple[list[str], list[list[str]]]:
        shown = self.rows()[:_SHOWN_ROWS]
        # a column of notes is left out where there is nothing to say
        names = [name for name in self.columns if not shown or any(row[name] != "" for row in shown)]
        return names, [[_cell(row[c]) for c in names] for row in shown]

    def __str__(self) -> str:
        head, body = self._texts()
        widths = [max(len(r[i]) for r in [head, *body]) for i in range(len(head))]
        numeric = [all(isinstance(v, (int, float)) or v is None for v in self.columns[c][:_SHOWN_ROWS]) for c in head]

        def line(cells: list[str]) -> str:
            padded = (c.rjust(w) if n else c.ljust(w) for c, w, n in zip(cells, widths, numeric, strict=True))
            return "  ".join(padded).rstrip()

        more = [f"… {len(self) - len(body):,} more rows"] if len(self) > len(body) else []
        return "\n".join([line(head), *map(line, body), *more])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.to_html()

    def to_html(self, caption: str = "") -> str:
        """The first rows as an HTML table, escaped; answers with the ends of an interval have a bar.

        Args:
            caption: The caption of the table; none, unless given.

        Returns:
            The HTML.
        """
        head, body = self._texts()
        numeric = [all(isinstance(v, (int, float)) or v is None for v in self.columns[c][:_SHOWN_ROWS]) for c in head]
        left = len(self) - len(body)
        told = caption + (f" (… {left:,} more rows)" if left > 0 else "")
        return table(head, body, numeric, told.strip(), self._bars())

    def _bars(self) -> list[tuple[float, float, float] | None] | None:
        """(value, low, high) of the rows shown, where the columns before "low" and "high" are numbers."""
        names = list(self.columns)
        if "low" not in names or "high" not in names:
            return None
        known = [n for n in ("answer", "share", "quantile", "difference") if n in names]
        known += [n for n in names if n.startswith("mean ")]
        if not known:
            return None
        rows = zip(*(self.columns[c][:_SHOWN_ROWS] for c in (known[0], "low", "high")), strict=True)
        return [None if None in row else row for row in rows]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else safe_text(str(value))


def package(name: str, extra: str | None = None) -> Any:
    """An optional package; MissingExtra says how to install it where it is not there."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        how = how_to_install(extra) if extra else f"install it with: pip install {name}"
        raise MissingExtra(f"{name} is not installed; {how}") from error
