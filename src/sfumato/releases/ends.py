"""Where intervals of answers end, and what is possible at all; what columns and cells of attributes are called."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sfumato._util.catalogue import called_cells, local_number, page_language, say_words
from sfumato._util.frames import safe_text
from sfumato.domain import OTHER, Booleans, Dates, Domain, Hierarchy
from sfumato.domain.attributes import NONE_FOUND, TO_BE_FOUND
from sfumato.domain.core import cell_texts
from sfumato.operators import Block
from sfumato.operators.base import FloatArray, LinearOperator
from sfumato.postprocess.denoising import AdaptedTables
from sfumato.strategies.strategy import row_shape

if TYPE_CHECKING:
    from sfumato.releases.release import Release

_COLUMNS = (
    *("answer", "unprojected", "standard_error", "low", "high", "share", "probability", "quantile"),
    *("share_standard_error", "share_low", "share_high", "relative_standard_error", "flag"),
)


def column_heading(attribute: str) -> str:
    """A column's name for an attribute, which may be called like one of our own columns."""
    return f"{attribute} (attribute)" if attribute.casefold() in _COLUMNS else attribute


def shown_cells(domain: Domain, name: str) -> list[str]:
    """One text for each cell, in the language that is spoken and as readers call it."""
    texts = cell_texts(domain, name)
    if page_language() != "en":
        texts = _spoken_cells(domain, name, texts)
    told = called_cells(name)
    return [safe_text(told.get(label, text)) for label, text in zip(domain[name].labels, texts, strict=True)]


def told_order(labels: Sequence[str], told: Iterable[str]) -> list[int]:
    """The places of labels in the order in which readers see them: as an office lists them, where it lists all.

    What was not declared comes last, unless it is listed too.
    """
    rank = {label: i for i, label in enumerate(told)}
    if not {*labels} - {OTHER} <= rank.keys():
        return list(range(len(labels)))
    return sorted(range(len(labels)), key=lambda i: rank.get(labels[i], len(rank)))


def shown_places(domain: Domain, names: Sequence[str]) -> list[int]:
    """The places of a table's cells, its last attribute running fastest, in the order in which readers see them."""
    orders = [told_order(domain[n].labels, called_cells(n)) for n in names]
    places = np.arange(math.prod(domain.sizes(names))).reshape(domain.sizes(names))
    return places[np.ix_(*orders)].reshape(-1).tolist()


def _spoken_cells(domain: Domain, name: str, texts: list[str]) -> list[str]:
    """Labels that are ours in the language that is spoken: ranges, periods, true, false, and what has no label.

    What people declared stays as it is.
    """
    attribute, owner = domain[name], domain[domain.owner(name)]
    declared = texts[: attribute.declared_size]
    if attribute.intervals is not None:
        declared = [_spoken_range(text) for text in declared]
    elif isinstance(attribute, Dates):
        declared = [_spoken_period(text) for text in declared]
    elif isinstance(attribute, Booleans):
        declared = [say_words(text) for text in declared]
    elif isinstance(owner, Hierarchy) and owner.beginnings:  # labels that were found, with a rest below each prefix
        rests = {f"{text} {OTHER}": f"{text} {say_words(OTHER)}" for text, _ in owner.beginnings}
        declared = [rests.get(text, text) for text in declared]
    elif len(declared) == 1:  # of labels that were to be found
        declared = [say_words(text) if text in (NONE_FOUND, TO_BE_FOUND) else text for text in declared]
    return declared + [say_words(OTHER)] * attribute.has_other


def _spoken_range(text: str) -> str:
    """A range of numbers, written as in English, in the language that is spoken."""
    for said in ("{low} to under {high}", "{low} to {high}"):
        low, between, high = text.partition(said.removeprefix("{low}").removesuffix("{high}"))
        if between:
            return say_words(said, low=local_number(low), high=local_number(high))
    return local_number(text)


_PERIOD = re.compile(r"(\d{4})-([QW])0?(\d+)")


def _spoken_period(label: str) -> str:
    """A quarter or a week in the language that is spoken; days, months and years are the same in all."""
    found = _PERIOD.fullmatch(label)
    if found is None:
        return label
    return say_words(f"{{n_year}}-{found[2]}{{n_number}}", n_year=found[1], n_number=found[3])


def answer_range(operator: LinearOperator, total: int | None) -> tuple[float, float]:
    """The least and the largest answer that nonnegative cells can give, of that total where it is known."""
    most = math.inf if total is None else total * operator.max_abs
    return (0.0 if operator.nonnegative else -most), most


def interval_ends(
    release: Release, block: Block, widths: FloatArray, level: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(answers, low, high), each (rows,), from half-widths of the unbiased answers at a pointwise confidence."""
    values = release.answer_block(block)
    if release.projection is None:
        return values, values - widths, values + widths
    least, most = _possible_range(release, block, level)
    if not np.isfinite(widths).all():
        return values, np.full(len(values), least), np.maximum(most, values)
    raw = release.raw.answer_block(block)
    low, high = np.clip(raw - widths, least, most), np.clip(raw + widths, least, most)
    return values, np.minimum(low, values), np.maximum(high, values)


def possible_answers(release: Release, level: float) -> tuple[FloatArray, FloatArray]:
    """(k,) the least and the largest answers that a table could have."""
    blocks = [q.block for i in release.workload.items for q in i.blocks()]
    found = [_possible_range(release, b, level) for b in blocks]
    rows = [b.rows for b in blocks]
    low = np.repeat([least for least, _ in found], rows)
    return low, np.concatenate([np.broadcast_to(most, n) for (_, most), n in zip(found, rows, strict=True)])


def _possible_range(release: Release, block: Block, level: float) -> tuple[float, FloatArray]:
    """The least answer, and the largest: beyond what was measured, as many as in the finest smaller table with noise.

    That table is chosen by its size, so before data, and its upper ends hold with the confidence asked.
    """
    least, most = answer_range(block.operator, release.measurement.total)
    held = None if release.projection is None else release.projection.possible
    if least < 0 or not isinstance(held, AdaptedTables) or np.isfinite(release.variances(block)).all():
        return least, np.array(most)
    shape = row_shape(block)
    every = range(len(shape))
    sets = [c for size in range(len(shape)) for c in itertools.combinations(every, size)]
    for kept in sorted(sets, key=lambda c: (-math.prod(shape[i] for i in c), c)):
        smaller = Block(tuple(block.groups[i] for i in kept), tuple(block.factors[i] for i in kept))
        if np.isfinite(release.variances(smaller)).all():
            break
    else:
        return least, np.array(most)
    across = tuple(shape[i] if i in kept else 1 for i in every)
    width = np.broadcast_to(release.margins(smaller, level), row_shape(smaller)).reshape(-1)
    top = width + release.raw.answer_block(smaller)
    top = top * math.prod(block.factors[i].max_abs for i in every if i not in kept)
    return least, np.minimum(np.broadcast_to(np.maximum(top, 0.0).reshape(across), shape).reshape(-1), most)
