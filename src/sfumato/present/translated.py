"""A finished page in its reader's language: every text that a catalogue has, by itself or as a pattern.

Sections are written once, in English, by what plans, releases and projections say of themselves. Here their texts are
said anew. What stays English of the facts about a plan (names of strategies, remarks of a planner) is left out of pages
in other languages, which say where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sfumato._util.catalogue import ENGLISH, local_number, page_language, say_text, say_words
from sfumato._util.description import (
    Bars,
    Chart,
    Description,
    DescriptionBlock,
    Facts,
    Figures,
    Sentences,
    TitledTable,
    Warnings,
)
from sfumato._util.frames import Frame, format_cell

_ELSEWHERE = "More of it, in English, is in the report that sfumato report --language en writes."
_TRANSLATED = ("Type", "Unit", "unit", "Table or family", "Note", "note")
"""Columns whose cells are words of ours, or names beside which few of these stand."""


_GROUPED = 1_000  # from which on numbers have a mark between thousands


def translated_page(page: Description) -> Description:
    """The page in the language that is spoken; in English the same."""
    if page_language() == "en":
        return page
    return _description(page, headline=False)


def _description(found: Description, *, headline: bool = True) -> Description:
    blocks = [b for block in found.blocks for b in _translated(block)]
    told = say_text(found.headline) if headline else found.headline
    return replace(found, headline=told, menu=say_text(found.menu), blocks=blocks)


def _translated(block: DescriptionBlock) -> Sequence[DescriptionBlock]:
    match block:
        case Description():
            return [_description(block)]
        case Facts():
            rows = [(say_text(name), say_text(text)) for name, text in block.rows]
            kept = [row for row in rows if not any(map(ENGLISH.search, row))]
            more = [] if len(kept) == len(rows) else [Sentences([say_words(_ELSEWHERE)], quiet=True)]
            return [Facts(kept, say_text(block.title)), *more]
        case Figures():
            return [Figures([(say_text(n), v, say_text(small)) for n, v, small in block.rows])]
        case Sentences():
            told = [say_text(t) for t in block.texts]
            if block.quiet:  # beside: what is not told there is missed least
                told = [t for t in told if not ENGLISH.search(t)]
            return [replace(block, texts=told, title=say_text(block.title))]
        case Warnings():
            return [
                Warnings(
                    [say_text(t) for t in block.texts],
                    say_text(block.title),
                    say_text(block.before),
                    say_text(block.after),
                )
            ]
        case TitledTable():
            return [_table(block)]
        case Bars():
            rows = [(row, say_text(row.name), say_text(row.note)) for row in block.rows]
            # names of strategies are the planner's, and English
            return [Bars([replace(row, name=n, note="" if note == row.note else note) for row, n, note in rows])]
        case Chart():
            spec = _spec(block.spec)
            return [replace(block, title=say_text(block.title), caption=say_text(block.caption), spec=spec)]
        case _:
            return [block]


def _table(block: TitledTable) -> TitledTable:
    heads = {name: say_text(name.replace("_", " ")) for name in block.frame.columns}
    columns: dict[str, Sequence[Any]] = {}
    numbers = [heads[name] for name in block.numbers]
    for name, values in block.frame.columns.items():
        head = heads[name] if heads[name] not in columns else name
        columns[head] = [say_text(v) if name in _TRANSLATED and isinstance(v, str) else v for v in values]
        if any(isinstance(v, float) or (isinstance(v, int) and abs(v) >= _GROUPED) for v in values):
            # 2.178 is two thousand in German
            columns[head] = [v if isinstance(v, str) else local_number(format_cell(v)) for v in values]
            numbers.append(head)
    return replace(
        block, title=say_text(block.title), label=say_text(block.label), frame=Frame(columns), numbers=numbers
    )


def _spec(spec: Any) -> Any:
    """A chart with its titles said anew."""
    if isinstance(spec, dict):
        return {k: say_text(v) if k == "title" and isinstance(v, str) else _spec(v) for k, v in spec.items()}
    return [_spec(v) for v in spec] if isinstance(spec, list) else spec
