"""One period of a stream, measured: its tables through the filter and the integer maps, and noise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sfumato.errors import SourceError
from sfumato.privacy.continual import StreamTerms, multiples_of
from sfumato.privacy.filters import WindowFilter
from sfumato.privacy.sampling import BitSource
from sfumato.wall.rows.counting import Counts
from sfumato.wall.streams.filtering import Integers, advance

__all__ = ["cells_of", "measure", "measure_persons"]

_CHUNK = 2**13  # cells whose limbs stay in the caches; half or twice as many are a tenth slower


def cells_of(terms: StreamTerms, shape: Sequence[int]) -> list[Integers]:
    """Per family the first cell of every table among the cells of all, and where the last ends."""
    out: list[Integers] = []
    begin = 0
    for family in terms.families:
        sizes = [math.prod(shape[a] for a in axes) for axes in family.sets.tolist()]
        out.append(begin + np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64))
        begin = int(out[-1][-1])
    return out


def measure(
    terms: StreamTerms,
    period: int,
    counts: Counts,
    starts: Sequence[Integers],
    states: Integers,
    *,
    cut: bool,
    bits: BitSource | None,
) -> list[Integers]:
    """The noisy values of every family; `states` (2, d, cells), high limbs and low, become those of the next period.

    With `cut` counts above the largest stand for it. int64 throughout: what does not fit wraps around, which is
    post-processing; nothing rounds, saturates or raises on the data.
    """
    values = [np.zeros(f.rows, dtype=np.int64) for f in terms.families]
    missing = sum(f.rows for f in terms.families)
    for f, chosen, tables in counts.stream([family.sets for family in terms.families]):
        family = replace(terms.families[f], multiples=None)
        for group in family.alike(chosen):
            sets, given = chosen[group], tables[group]
            kept = np.minimum(given, terms.most) if cut else given
            factors = terms.filter.coefficients(period, multiples_of(terms.families[f])[sets].tolist(), terms.grain)
            filtered = _filtered(terms, period, factors, kept.reshape(len(sets), -1), starts[f][sets], states)
            exact = family.apply(sets, filtered.reshape(given.shape))
            noisy = exact + terms.noise.sample(exact.size, bits).reshape(exact.shape)
            family.place(sets, noisy, values[f])
            missing -= exact.size
    if missing:
        raise SourceError("some tables were not counted")
    return values


def measure_persons(
    terms: StreamTerms, period: int, persons: int, states: Integers, bits: BitSource | None
) -> Integers:
    """The noisy value (1,) of the cell that counts who is left out for the first time; its state is the last."""
    beside = terms.beside
    factors = beside.filter.coefficients(period, [terms.cut], terms.grain)
    count, place = np.array([[min(persons, terms.most)]]), np.array([states.shape[-1] - 1])
    return _filtered(beside, period, factors, count, place, states) + terms.noise.sample(1, bits)


def _filtered(
    terms: StreamTerms, period: int, factors: Integers, counts: Integers, starts: Integers, states: Integers
) -> Integers:
    """What the filter makes of some tables (tables, cells) of a family, whose states begin at `starts` (tables,)."""
    used, (tables, cells) = terms.filter, counts.shape
    out, step = np.empty_like(counts), max(1, _CHUNK // cells)
    for i, j in itertools.product(range(0, tables, step), range(0, cells, _CHUNK)):
        some, part = slice(i, i + step), slice(j, j + _CHUNK)
        place = (starts[some][:, None] + np.arange(j, min(j + _CHUNK, cells))).reshape(-1)
        # of one table they lie in a row, and are changed where they lie
        where = slice(place[0], place[-1] + 1) if step == 1 else place
        here, given = states[:, :, where], counts[some, part]
        each = factors[:, some] if step == 1 else factors[:, some].repeat(cells, axis=1)
        if isinstance(used, WindowFilter):
            recent = np.concatenate([given.reshape(1, -1), here[0]])
            made, here[0] = (each * recent).sum(axis=0), recent[:-1]
        else:
            made = advance(*here, given.reshape(-1), each, used.decays.tolist(), used.row(period), used.shift)
        out[some, part] = made.reshape(given.shape)
        if step > 1:
            states[:, :, where] = here
    return out.reshape(-1)
