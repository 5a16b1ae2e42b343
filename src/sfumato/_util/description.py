"""What a plan, a release, a stream, a session or a ledger says of itself, once, for every face.

A description is a headline and blocks of a closed set of kinds. Four functions at the end of this file render them: as
text for a terminal, as Markdown, as HTML for notebooks and pages, and as plain JSON values.
"""

from __future__ import annotations

import html
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from sfumato._util.catalogue import say_words
from sfumato._util.frames import SHOWN_ROWS, Frame, printable


@dataclass(frozen=True, slots=True)
class Facts:
    """Each with a word that says what it is about; with no word, a sentence."""

    rows: Sequence[tuple[str, str]]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Figures:
    """The numbers that are looked for first, each with its name and small print."""

    rows: Sequence[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class Sentences:
    """Paragraphs, or with `listed` the items of a list; `quiet` for what is said beside."""

    texts: Sequence[str]
    title: str = ""
    listed: bool = False
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class Warnings:
    """Reasons for doubt, which stand before all else; where there is room, with a title and sentences around them."""

    texts: Sequence[str]
    title: str = ""
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class TitledTable:
    """A titled table; columns of numbers that are texts already are named in `numbers`, for their alignment."""

    title: str
    frame: Frame
    numbers: Sequence[str] = ()
    label: str = ""
    most: int = SHOWN_ROWS


@dataclass(frozen=True, slots=True)
class Bar:
    """A line of a bar chart; `mark` is "chosen" or "bound", or nothing."""

    name: str
    note: str
    value: float
    shown: str
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Bars:
    """A bar chart of a few values."""

    rows: Sequence[Bar]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart as a Vega-Lite specification. Several with `beside` form two columns where there is room."""

    name: str
    title: str
    caption: str
    spec: dict[str, Any]
    beside: bool = False


@dataclass(frozen=True, slots=True)
class CodeLines:
    """Lines of a program or a shell."""

    text: str


@dataclass(frozen=True, slots=True)
class Description:
    """What something says of itself: a headline and blocks, some of which may be descriptions of parts.

    Args:
        headline: The first line.
        blocks: Facts, figures, sentences, warnings, tables, charts and descriptions of parts, in order; those that say
            nothing are left out.
        name: What a page calls the part in its address.
        menu: What a page calls it in its list of parts.
    """

    headline: str
    blocks: Sequence[DescriptionBlock]
    name: str = ""
    menu: str = ""

    def __post_init__(self) -> None:
        # what has nothing to say is not there
        kept = tuple(b for b in self.blocks if getattr(b, "texts", getattr(b, "rows", True)))
        object.__setattr__(self, "blocks", kept)

    def to_text(self) -> str:
        """The description for a terminal.

        Returns:
            Lines of text without control characters.
        """
        return "\n".join([printable(self.headline), *(line for b in self.blocks for line in _text(b))])

    def to_markdown(self, level: int = 1) -> str:
        """The description as Markdown, with pipe tables.

        Args:
            level: How many marks the headline has.

        Returns:
            Markdown in which every text of the data's declaration is escaped.
        """
        parts = [f"{'#' * level} {_escaped(self.headline)}", *(_markdown(b, level + 1) for b in self.blocks)]
        return "\n\n".join(p for p in parts if p)

    def to_html(self) -> str:
        """The description as a fragment of HTML that needs no style sheet, as notebooks show it.

        Returns:
            One element, in which every text is escaped.
        """
        head = f"<p><strong>{_html_text(self.headline)}</strong></p>"
        return f"<div>{head}{''.join(_html(b) for b in self.blocks)}</div>"

    def to_dict(self) -> dict[str, Any]:
        """The description as plain JSON values.

        Returns:
            `headline` and `blocks`; each block has its `type` and its fields, a table its `columns` and `rows`.
        """
        return {"type": "description", "headline": self.headline, "blocks": [_plain(b) for b in self.blocks]}

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return self.to_html()


DescriptionBlock = Facts | Figures | Sentences | Warnings | TitledTable | Bars | Chart | CodeLines | Description


class Describable(ABC):
    """What describes itself: `str`, `explain()` and notebooks render `describe()`; `repr` is a few words of it."""

    __slots__ = ()

    @abstractmethod
    def describe(self) -> Description:
        """All that there is to say.

        Returns:
            A description, which renders itself by `to_text`, `to_markdown`, `to_html` and `to_dict`.
        """

    @abstractmethod
    def brief(self) -> str:
        """The few words with which `repr` describes it.

        Returns:
            What stands after the name of the class.
        """

    def explain(self) -> str:
        """All of it in words.

        Returns:
            The text of `describe()`.
        """
        return self.describe().to_text()

    def __str__(self) -> str:
        return self.explain()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.brief()}>"

    def _repr_html_(self) -> str:
        return self.describe().to_html()


def _lines(text: str) -> str:
    """Lines of a program without control characters."""
    return "\n".join(map(printable, text.splitlines()))


def _plainer(rows: Sequence[tuple[str, str, str]]) -> Facts:
    """Figures as facts, for faces without a strip of figures."""
    return Facts([(name, f"{value} ({small})" if small else value) for name, value, small in rows])


# -- text ----------------------------------------------------------------------------------------------------

_NAME = 10  # characters that the words of facts have at least


def _text(block: DescriptionBlock) -> Iterator[str]:
    """The lines of a block on a terminal."""
    match block:
        case Warnings(texts):
            yield from (f"  {'caution':<{_NAME}} {printable(t)}" for t in texts)
        case Facts(rows, title):
            yield from ["", f"{printable(title)}:"] if title else []
            width = max([_NAME, *(len(name) for name, _ in rows)])
            for name, text in rows:
                yield f"  {printable(name):<{width}} {printable(text)}" if name else f"  {printable(text)}"
        case Figures(rows):
            yield from _text(_plainer(rows))
        case Sentences(texts, title):
            yield from ["", f"{printable(title)}:"] if title else []
            yield from (f"  {printable(t)}" for t in texts)
        case TitledTable(title, frame):
            yield from ["", *([f"{printable(title).rstrip('.')}:"] if title else []), frame.to_text(block.most)]
        case Bars(rows):
            width = max(len(r.name) for r in rows)
            yield from (
                f"  {printable(r.name):<{width}} {printable(r.shown)}  {printable(r.note)}".rstrip() for r in rows
            )
        case Chart(_, title, caption):
            yield from ["", f"{printable(title or 'Chart')}: {printable(caption)}"]
        case CodeLines(text):
            yield from ["", *(f"    {line}" for line in _lines(text).splitlines())]
        case Description():
            yield from ["", block.to_text()]


# -- Markdown ------------------------------------------------------------------------------------------------

_SPECIAL = re.compile(r"([\\`*_<>\[\]|~#&$])")


def _escaped(text: object) -> str:
    return _SPECIAL.sub(r"\\\1", printable(str(text).strip()))


def _markdown(block: DescriptionBlock, level: int) -> str:
    """A block as Markdown."""
    title = getattr(block, "title", "")
    head = [f"**{_escaped(title)}**"] if title else []
    match block:
        case Warnings(texts):
            return "\n".join(f"> **Caution:** {_escaped(t)}" for t in texts)
        case Facts(rows):
            lines = [f"- **{_escaped(n)}**: {_escaped(t)}" if n else f"- {_escaped(t)}" for n, t in rows]
            return "\n\n".join([*head, "\n".join(lines)])
        case Sentences(texts, listed=listed):
            said = [f"- {_escaped(t)}" for t in texts] if listed else [_escaped(t) for t in texts]
            return "\n\n".join([*head, "\n".join(said) if listed else "\n\n".join(said)])
        case TitledTable(_, frame, numbers):
            names, rows, right = frame.cells(block.most, numbers)
            rule = ["---:" if r else "---" for r in right]
            lines = [[_escaped(n) for n in names], rule, *([_escaped(c) for c in row] for row in rows)]
            left = [f"… {len(frame) - len(rows):,} more rows"] if len(frame) > len(rows) else []
            return "\n\n".join([*head, "\n".join(f"| {' | '.join(line)} |" for line in lines), *left])
        case Figures(rows):
            return _markdown(_plainer(rows), level)
        case Bars(rows):
            return "\n".join(f"- {_escaped(r.name)}: {_escaped(r.shown)} {_escaped(r.note)}".rstrip() for r in rows)
        case Chart(caption=caption):
            return "\n\n".join([*head, f"*{_escaped(caption)}*"])
        case CodeLines(text):
            return "\n".join(f"    {line}" for line in _lines(text).splitlines())
        case Description():
            return block.to_markdown(level)


# -- HTML ----------------------------------------------------------------------------------------------------


def _html_text(text: str) -> str:
    return html.escape(printable(text.strip()))


def _html(block: DescriptionBlock) -> str:
    """A block as HTML for notebooks, with styles in its elements."""
    left = 'style="text-align:left"'
    match block:
        case Warnings(texts):
            return _html(Facts([("caution", t) for t in texts]))
        case Facts(rows, title):
            said = [f"<tr><th {left}>{_html_text(a)}</th><td {left}>{_html_text(t)}</td></tr>" for a, t in rows]
            head = f"<caption>{_html_text(title)}</caption>" if title else ""
            return f"<table>{head}<tbody>{''.join(said)}</tbody></table>" if said else ""
        case Sentences(texts, title):
            head = f"<p><strong>{_html_text(title)}</strong></p>" if title else ""
            return head + "".join(f"<p>{_html_text(t)}</p>" for t in texts)
        case TitledTable(title, frame, numbers):
            return frame.to_html(title, most=block.most, numbers=numbers)
        case Figures(rows):
            return _html(_plainer(rows))
        case Bars(rows):
            return _html(Facts([(f"{r.name} {r.note}".strip(), r.shown) for r in rows]))
        case Chart(_, title, caption):
            return "".join(f"<p>{_html_text(t)}</p>" for t in (title, caption) if t)
        case CodeLines(text):
            return f"<pre><code>{html.escape(_lines(text))}</code></pre>"
        case Description():
            return block.to_html()


def drawn(blocks: Sequence[DescriptionBlock]) -> Iterator[Chart]:
    """Every chart among blocks and the blocks in them.

    Args:
        blocks: What a page says.

    Yields:
        Charts in their order.
    """
    for block in blocks:
        if isinstance(block, Chart):
            yield block
        elif isinstance(block, Description):
            yield from drawn(block.blocks)


def page_html(blocks: Sequence[DescriptionBlock]) -> str:
    """Blocks as HTML of a page that has `style.css` of `present` and draws the charts that are named.

    Args:
        blocks: What the page says, section by section.

    Returns:
        HTML in which every text is escaped, and no element has a style but the widths of bars.
    """
    out: list[str] = []
    for i, block in enumerate(blocks):
        cards = isinstance(block, Chart) and block.beside
        before, after = (_is_card(blocks[j]) if 0 <= j < len(blocks) else False for j in (i - 1, i + 1))
        out += ['<div class="cards">'] if cards and not before else []
        out += [_page_block(block), "</div>" if cards and not after else ""]
    return "".join(out)


def _is_card(block: DescriptionBlock) -> bool:
    return isinstance(block, Chart) and block.beside


def _page_block(block: DescriptionBlock) -> str:
    match block:
        case Warnings(texts, title, before, after):
            items = "".join(f"<li>{_html_text(t)}</li>" for t in texts)
            head = f"<p><strong>{_html_text(title)}</strong> {_html_text(before)}</p>" if title else ""
            end = f'<p class="quiet">{_html_text(after)}</p>' if after else ""
            return f'<div class="note" role="note">{head}<ul>{items}</ul>{end}</div>' if texts else ""
        case Facts(rows, title):
            said = "".join(f"<dt>{_html_text(a)}</dt><dd>{_html_text(t)}</dd>" for a, t in rows)
            return f'{_heading(title)}<dl class="facts">{said}</dl>' if rows else ""
        case Figures(rows):
            small = [f"<small>{_html_text(s)}</small>" if s else "" for _, _, s in rows]
            said = "".join(
                f"<div><dt>{_html_text(n)}</dt><dd>{_html_text(v)}{s}</dd></div>"
                for (n, v, _), s in zip(rows, small, strict=True)
            )
            return f'<dl class="figures">{said}</dl>\n'
        case Sentences(texts, title):
            kind = ' class="quiet"' if block.quiet else ""
            if block.listed:
                return f"{_heading(title)}<ul>{''.join(f'<li>{_html_text(t)}</li>' for t in texts)}</ul>"
            return _heading(title) + "".join(f"<p{kind}>{_html_text(t)}</p>" for t in texts)
        case TitledTable(title, frame, numbers):
            table = frame.to_html(title, most=block.most, numbers=numbers, page=True)
            label = html.escape(printable(block.label or title))
            return f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">{table}</div>'
        case Bars(rows):
            widest = max([1e-300, *(r.value for r in rows)])
            return f'<div class="bars">{"".join(_page_bar(r, 62 * max(0.0, r.value) / widest) for r in rows)}</div>'
        case Chart(name, title, caption):
            label = html.escape(printable(title or caption))
            place = f'<div class="chart" data-chart="{html.escape(name)}" role="img" aria-label="{label}"></div>'
            return f"<figure>{_heading(title)}<figcaption>{_html_text(caption)}</figcaption>{place}</figure>"
        case CodeLines(text):
            return f'<pre tabindex="0"><code>{html.escape(_lines(text))}</code></pre>'
        case Description(headline, inside, name):
            return f'<section id="{html.escape(name)}"><h2>{_html_text(headline)}</h2>{page_html(inside)}</section>\n'


def _heading(title: str) -> str:
    return f"<h3>{_html_text(title)}</h3>" if title else ""


def _page_bar(row: Bar, width: float) -> str:
    note = f"<small>{_html_text(row.note)}</small>" if row.note else ""
    kind, chosen = f" {row.mark}".rstrip(), row.mark == "chosen"
    end = f'<span class="quiet">{say_words("chosen")}</span>' if chosen else ""
    return (
        f'<div class="what{" chosen" if chosen else ""}">{_html_text(row.name)}{note}</div>'
        f'<div class="bar{kind}"><i style="width:{width:.2f}%"></i><b>{_html_text(row.shown)}</b>{end}</div>'
    )


# -- JSON ----------------------------------------------------------------------------------------------------


_KINDS: dict[type, str] = {
    Facts: "facts",
    Figures: "figures",
    Sentences: "sentences",
    Warnings: "warnings",
    TitledTable: "table",
    Bars: "bars",
    Chart: "chart",
    CodeLines: "code",
}


def _plain(block: DescriptionBlock) -> dict[str, Any]:
    """A block as plain JSON values."""
    if isinstance(block, Description):
        return block.to_dict()
    kind: dict[str, Any] = {"type": _KINDS[type(block)]}
    if isinstance(block, TitledTable):
        columns = block.frame.columns
        rows = zip(*columns.values(), strict=True)
        table = {"title": block.title, "columns": list(columns), "rows": [list(map(_json, r)) for r in rows]}
        return kind | table | {"numbers": list(block.numbers), "label": block.label}
    return kind | {f.name: _json(getattr(block, f.name)) for f in fields(block)}


def _json(value: Any) -> Any:
    """A value as JSON has it: what is not finite is null, and what is no text, number or list is its text."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Bar):
        return {f.name: _json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {str(k): _json(v) for k, v in value.items()}
    return [_json(v) for v in value] if isinstance(value, Iterable) else str(value)
