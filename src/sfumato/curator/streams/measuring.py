"""One period of a stream, measured: its tables through the filter and the integer maps, and noise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sfumato.curator.rows.counting import Counts
from sfumato.errors import SourceError
from sfumato.privacy.noise import BitSource
from sfumato.privacy.stream_price import IntegerFilter, StreamTerms, WindowFilter, family_multiples

Integers = NDArray[np.int64]
# Two limbs hold 96 bits of a state; half limbs multiply a count below 2^36 within 63 bits.
_LIMB, _HALF = 48, 24
_MASK, _HALF_MASK = 2**_LIMB - 1, 2**_HALF - 1


def _limb_product(counts: Integers, factor: Integers) -> tuple[Integers, Integers]:
    """The limbs of counts up to 2^36 in size, times factors from 0 to below 2^62."""
    middle = counts * ((factor >> _HALF) & _HALF_MASK)
    low = ((middle & _HALF_MASK) << _HALF) + counts * (factor & _HALF_MASK)
    high = counts * (factor >> _LIMB) + (middle >> _HALF) + (low >> _LIMB)
    return high, low & _MASK


def _scaled_limbs(high: Integers, low: Integers, factor: int, shift: int) -> tuple[Integers, Integers]:
    """The limbs of floor(number * factor / 2^shift), for a factor below 2^14 and a product below 2^102."""
    low = low * factor
    high = high * factor + (low >> _LIMB)
    low &= _MASK
    if shift >= _LIMB:
        whole = high >> (shift - _LIMB)
        return whole >> _LIMB, whole & _MASK
    return high >> shift, ((high & ((1 << shift) - 1)) << (_LIMB - shift)) | (low >> shift)


def filter_period(
    high: Integers,
    low: Integers,
    counts: Integers,
    factors: Integers,
    decays: Sequence[tuple[int, int]],
    row: int,
    shift: int,
) -> Integers:
    """y of one period for some cells, modulo 2^64; the states (d, cells) become those of the next in place.

    counts: (cells,); factors: (1 + d, cells), c and every b_i; decays: (e, g) of every state.
    """
    total, rest = _limb_product(counts, factors[0])
    total += high.sum(axis=0)
    rest += low.sum(axis=0)
    total += rest >> _LIMB
    above, below = _scaled_limbs(total, rest & _MASK, row, shift)
    for i, (e, g) in enumerate(decays):
        lost, lost_rest = _scaled_limbs(high[i], low[i], e, g)
        gained, gained_rest = _limb_product(counts, factors[1 + i])
        rest = low[i] - lost_rest + gained_rest
        high[i] += gained - lost + (rest >> _LIMB)
        low[i] = rest & _MASK
    return (above << _LIMB) + below


_CHUNK = 2**13  # cells whose limbs stay in the caches; half or twice as many are a tenth slower


def first_cells(terms: StreamTerms, shape: Sequence[int]) -> list[Integers]:
    """Per family the first cell of every table among the cells that go through one filter, and where the last ends."""
    out: list[Integers] = []
    begin = 0
    for family in terms.families:
        sizes, own = [math.prod(shape[a] for a in axes) for axes in family.sets.tolist()], terms.is_own(family)
        out.append(begin * (not own) + np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64))
        begin = begin if own else int(out[-1][-1])
    return out


def state_shapes(terms: StreamTerms, shape: Sequence[int]) -> list[tuple[int, ...]]:
    """(limbs, numbers, cells) that are kept between two periods: of all cells that go through the filter, last the one
    of those who are left out, and of a total that has its own."""
    ends = [int(e[-1]) for e, f in zip(first_cells(terms, shape), terms.families, strict=True) if not terms.is_own(f)]
    own = [] if terms.total is None else [(*terms.total.kept, 1)]
    return [(*terms.filter.kept, ends[-1] + bool(terms.cut)), *own]


def split_states(sums: Integers, shapes: Sequence[tuple[int, ...]]) -> list[Integers]:
    """Flat sums in these shapes, to be changed where they lie."""
    ends = np.cumsum([math.prod(s) for s in shapes])[:-1]
    return [part.reshape(s) for part, s in zip(np.split(sums, ends), shapes, strict=True)]


def measure_period(
    terms: StreamTerms,
    period: int,
    counts: Counts,
    starts: Sequence[Integers],
    states: Sequence[Integers],
    *,
    cut: bool,
    bits: BitSource | None,
) -> list[Integers]:
    """The noisy values of every family; `states`, as `state_shapes` has them, become those of the next period.

    With `cut` counts above the largest stand for it. int64 throughout: what does not fit wraps around, which is
    post-processing; nothing rounds, saturates or raises on the data.
    """
    values = [np.zeros(f.rows, dtype=np.int64) for f in terms.families]
    missing = sum(f.rows for f in terms.families)
    for f, chosen, tables in counts.stream([family.sets for family in terms.families]):
        family, used = replace(terms.families[f], multiples=None), terms.filter_of(terms.families[f])
        here = states[terms.is_own(family)]
        for group in family.alike(chosen):
            sets, given = chosen[group], tables[group]
            kept = np.minimum(given, terms.most) if cut else given
            factors = used.coefficients(period, family_multiples(terms.families[f])[sets].tolist(), terms.grain)
            filtered = _filter_tables(used, period, factors, kept.reshape(len(sets), -1), starts[f][sets], here)
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
    return _filter_tables(beside.filter, period, factors, count, place, states) + terms.noise.sample(1, bits)


def _filter_tables(
    used: IntegerFilter | WindowFilter,
    period: int,
    factors: Integers,
    counts: Integers,
    starts: Integers,
    states: Integers,
) -> Integers:
    """What the filter makes of some tables (tables, cells) of a family, whose states begin at `starts` (tables,)."""
    tables, cells = counts.shape
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
            made = filter_period(*here, given.reshape(-1), each, used.decays.tolist(), used.row(period), used.shift)
        out[some, part] = made.reshape(given.shape)
        if step > 1:
            states[:, :, where] = here
    return out.reshape(-1)
