"""How things look in notebooks: aligned tables with error bars, escaped, in the notebook's own colours."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["card", "facts", "table"]

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
