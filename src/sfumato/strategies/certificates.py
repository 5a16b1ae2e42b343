"""The search for exact integer sensitivities: proposals how to bound them, and the wall's own arithmetic on each.

What is searched here is checked at the wall by the same code, `privacy/sensitivity`, from the certificate alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import PlanError
from sfumato.maps.base import INT64
from sfumato.operators import Block, Combination, Family
from sfumato.operators.base import FloatArray, Numbers
from sfumato.privacy.certified_sums import Clique, Products, elementary_symmetric, product_extremes, scaled_ends
from sfumato.privacy.replaced import Certificate, ColumnPairs
from sfumato.privacy.sensitivity import Sensitivity, best_certified
from sfumato.privacy.sums import SumOfProducts
from sfumato.privacy.unit import PrivacyUnit

_MOST_ORDER = 8  # tables of more attributes have other mechanisms, and bounds of power sums grow loose
_BITS = 24  # of a unit: what a double can propose, with room for products
_MOST_FEATURES = 1_000  # the fit solves a system of so many
_WIDEST = 20.0  # logarithm of a unit: more is fit to noise
_MOST_BITS = 960  # of the largest number of a proposal, which must not leave float64


@dataclass(frozen=True, slots=True, eq=False)
class _OrderProducts:
    """Products of one order: their sets of features, logarithms of their weights, largest and least product."""

    sets: NDArray[np.intp]
    logs: FloatArray
    norms: Numbers
    least: Numbers


def fit_products(total: SumOfProducts) -> Products | None:
    """u, c per order and a shift with |weight| scale 2^shift about c prod u; None where products say nothing."""
    bundles = [b for b in total.bundles if b.sets.size]
    if not bundles or any((b.weights > 0).any() for b in bundles):
        return None
    try:
        scale, low, high = scaled_ends(total)
    except PlanError:
        return None
    count, top = len(scale), max(b.sets.shape[1] for b in bundles)
    weight, *bits = (
        int(abs(v).max()).bit_length() for v in (np.concatenate([b.weights for b in bundles]), scale, high)
    )
    unit = _BITS + math.ceil(2 * _WIDEST / math.log(2)) + count.bit_length()
    if count > _MOST_FEATURES or top > _MOST_ORDER or max(weight, top * unit) + top * sum(bits) >= _MOST_BITS:
        return None
    logs = np.log(scale.astype(np.float64))
    parts = [
        _OrderProducts(
            sets, np.log(np.maximum(abs(weights).astype(np.float64), 0.5)) + logs[sets].sum(axis=1), most, least
        )
        for sets, weights in bundles
        for most, least in [product_extremes(low, high, sets)]
    ]
    units = _fit_units(parts, np.log(high.astype(np.float64)), count, top)
    symmetric = elementary_symmetric(units * high, top)
    levels = [0.0] * (top + 1)
    for part in parts:
        order = part.sets.shape[1]
        levels[order] = _best_product_level(units, part, symmetric[order])
    if not any(levels):
        return None
    shift = max(0, _BITS + 8 - math.floor(math.log2(min(k for k in levels if k))))
    return Products(tuple(map(int, units)), tuple(int(Fraction(k) * 2**shift) for k in levels), shift)


def _fit_units(parts: list[_OrderProducts], high: FloatArray, count: int, top: int) -> Numbers:
    """Weights' logarithms as sums of one number per feature and one per order, by least squares; then whole numbers."""
    mass = [p.logs + high[p.sets].sum(axis=1) for p in parts]
    largest = max(float(m.max()) for m in mass)
    matrix = np.zeros((count + top + 1) ** 2)
    right = np.zeros(count + top + 1)
    for part, m in zip(parts, mass, strict=True):
        columns = [*part.sets.T, np.full(len(m), count + part.sets.shape[1])]
        share = np.exp(m - largest)
        for i in columns:
            right += np.bincount(i, share * part.logs, len(right))
            for j in columns:
                matrix += np.bincount(i * len(right) + j, share, len(matrix))
    found = np.linalg.lstsq(matrix.reshape(len(right), -1), right, rcond=1e-12)[0][:count]
    found = np.clip(found - np.median(found), -_WIDEST, _WIDEST)
    return np.array([round(v) for v in np.exp2(_BITS) * np.exp(found - found.min())], dtype=object)


def _best_product_level(units: Numbers, part: _OrderProducts, whole: int) -> float:
    """The c at which the deviations of the weights from c prod u cost least.

    A weight that is too small costs its whole deviation, one too large what the product can fall below 0.
    """
    product = np.log(units.astype(np.float64))[part.sets].sum(axis=1)
    mass = np.exp(product) * part.norms.astype(np.float64)
    fall = mass * -(part.least / part.norms).astype(np.float64)
    ratio = np.exp(part.logs - product)
    order = np.argsort(ratio)
    below = max(float(whole) - float(mass.sum()), 0.0) + np.cumsum(mass[order])
    above = float(fall.sum()) - np.cumsum(fall[order])
    return 0.0 if below[0] - mass[order[0]] >= fall.sum() else float(ratio[order[np.argmax(below >= above)]])


_MAX_PATTERNS = 2**22  # numbers of changed attributes that are looked at: half a second
MOST_PATTERNS = 2**28  # where nothing quicker proves as much: some two seconds
_FEW_CELLS = 400  # of which the wall looks at all pairs with Python's integers
_ROUNDS = 20  # of telling attributes apart: classes that need more are not small
_WORK = 28  # bits of the work of cliques: a quarter of a thousand million additions
_WIDTHS = (8, 18)  # attributes of one table at least, for thousands of blocks, and at most, for few
_MAX_TABLES = 5_000  # blocks: each is a table by itself

Variables = NDArray[np.intp]


def propose_certificates(pairs: ColumnPairs) -> Iterator[Certificate]:
    """The cheapest first. Where all cells of every attribute are alike, it is enough to say which attributes change."""
    alike = all(s.alike for s in pairs.terms.slots)
    if not alike:
        if not _cell_pairs_overflow(pairs):
            yield Certificate("cells")
        if pairs.squared:
            yield Certificate("pairs")
        if pairs.terms.power == 2 and any(len(group) > 1 for group in pairs.terms.groups):
            yield Certificate("joined")
    yield from propose_change_certificates(pairs.changes.sum)
    if alike and not pairs.squared:
        yield Certificate("cells")


def _cell_pairs_overflow(pairs: ColumnPairs) -> bool:
    """Whether looking at all pairs of cells would end, after long, with inner products that int64 does not hold."""
    terms = pairs.ends[0]
    alone = [f for s in terms.slots if len(s.inside) == 1 for _, f in s.inside]
    many = pairs.squared and len(terms.groups) == 1 and terms.cells[0] > _FEW_CELLS
    return many and any(int(max(f.column_sums(2))) >= INT64 for f in alone)


def propose_change_certificates(total: SumOfProducts) -> Iterator[Certificate]:
    """Those that say which attributes change."""
    yield Certificate("apart")
    used = np.array(total.scope(), dtype=np.intp)
    if not len(used):
        return
    alike = _refine_variable_classes(total, used)
    for classes in (alike, np.arange(len(used))):
        if classes is not None and _count_patterns(classes) <= _MAX_PATTERNS:
            yield _class_certificate(total, used, classes)
    cliques = _elimination_cliques(total)
    if cliques is not None:
        yield Certificate("cliques", cliques=cliques)
    if alike is not None and _MAX_PATTERNS < _count_patterns(alike) <= MOST_PATTERNS:
        yield _class_certificate(total, used, alike)
    fitted = fit_products(total)
    if fitted is not None:
        yield Certificate("products", products=fitted)


# ---- attributes that may be permuted ---------------------------------------------------------------------


def _class_certificate(total: SumOfProducts, used: Variables, classes: Variables) -> Certificate:
    # what no product holds is a class of its own
    every = np.full(len(total.states), int(classes.max()) + 1)
    every[used] = classes
    return Certificate("classes", tuple(every.tolist()))


def _count_patterns(classes: Variables) -> int:
    return math.prod(n + 1 for n in np.bincount(classes).tolist())


def _refine_variable_classes(total: SumOfProducts, used: Variables) -> Variables | None:
    """Classes of the used variables that look alike from the products around them; None where there are too many.

    A product is seen as its weight and the classes and values of its features; variables are told apart by the
    products they are in, until that makes no difference. Colours are numbers that may agree by accident.
    """
    known: dict[tuple[int, ...], int] = {}
    kind = np.array([known.setdefault(tuple(v.tolist()), len(known)) for _, v in total.features], dtype=np.uint64)
    # features that no product holds are coloured too, and counted nowhere
    place = np.searchsorted(used, [v for v, _ in total.features]).clip(max=len(used) - 1)
    marks = [_hash_weight_sizes(b.weights) for b in total.bundles]
    classes, found = np.zeros(len(used), dtype=np.intp), 1
    for _ in range(_ROUNDS):
        sums = np.zeros(len(used), dtype=np.uint64)
        colours = _mix_hash_bits(classes[place].astype(np.uint64) * np.uint64(len(known)) + kind + np.uint64(1))
        for (sets, _), mark in zip(total.bundles, marks, strict=True):
            block = _mix_hash_bits(colours[sets].sum(axis=1, dtype=np.uint64) + mark)
            for column in sets.T:
                np.add.at(sums, place[column], _mix_hash_bits(block ^ colours[column]))
        seen = np.stack([classes.astype(np.uint64), sums], axis=1)
        classes = np.unique(seen, axis=0, return_inverse=True)[1].reshape(-1)
        before, found = found, int(classes.max()) + 1
        if found == before:
            return classes
        if _count_patterns(classes) > MOST_PATTERNS:
            return None
    return None


def _hash_weight_sizes(weights: Numbers) -> NDArray[np.uint64]:
    """Numbers that are equal where the sizes of weights are, and differ where they differ but by accident."""
    sizes: Numbers = np.abs(weights)
    low = (sizes & (2**64 - 1)).astype(np.uint64)
    return low ^ (low >> np.uint64(29))


def _mix_hash_bits(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A fixed random-looking permutation of the numbers of 64 bits."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


# ---- one attribute after another -------------------------------------------------------------------------


def _elimination_cliques(total: SumOfProducts) -> tuple[Clique, ...] | None:
    """The variable with the fewest neighbours first; what is too wide is split. None for too many products."""
    count = sum(len(b.sets) for b in total.bundles if b.sets.shape[1])
    width = max(_WIDTHS[0], min(_WIDTHS[1], _WORK - count.bit_length()))
    if count > _MAX_TABLES or max(b.sets.shape[1] for b in total.bundles) > width:
        return None
    rows = [s for b in total.bundles for s in b.sets.tolist() if s]
    scopes: list[tuple[int, ...]] = [tuple(sorted(total.features[f][0] for f in row)) for row in rows]
    found: list[Clique] = []
    while scopes:
        chosen = _fewest_neighbours(scopes)
        mine = sorted((s for s in scopes if chosen in s), key=lambda s: (-len(s), s))
        scopes = [s for s in scopes if chosen not in s]
        buckets: list[set[int]] = []
        for scope in mine:
            fits = next((b for b in buckets if len(b.union(scope)) <= width + 1), None)
            if fits is None:
                buckets.append(set(scope))
            else:
                fits.update(scope)
        for bucket in buckets:
            rest = tuple(sorted(bucket - {chosen}))
            found.append((tuple(sorted(bucket)), rest))
            scopes += [rest] if rest else []
    return tuple(found)


def _fewest_neighbours(scopes: list[tuple[int, ...]]) -> int:
    """The variable with the fewest neighbours."""
    around: dict[int, set[int]] = {}
    for scope in scopes:
        for i in scope:
            around.setdefault(i, set()).update(scope)
    return min(around, key=lambda i: (len(around[i]), i))


Strategy = Sequence[Block | Family | Combination]


def exact_sensitivity(
    blocks: Strategy, sizes: Mapping[str, int], unit: PrivacyUnit, power: int, measures: Sequence[str] = ()
) -> Sensitivity:
    """The sensitivity of measuring all blocks together, in exact integers; `measures` are among the attributes.

    power 1: max ||B(x - x')||_1; power 2: max ||B(x - x')||_2^2; over neighbouring tables x, x'.
    Raises PlanError for another power or a strategy that is not integral, WorkloadError for factors that
    do not fit `sizes`.
    """
    return search_certificate(blocks, sizes, unit, power, measures)[0]


def find_certificate(
    blocks: Strategy, sizes: Mapping[str, int], unit: PrivacyUnit, power: int, measures: Sequence[str] = ()
) -> Certificate | None:
    """What the planner hands to the wall with a replace-one price: how to prove it. None where none is needed."""
    return search_certificate(blocks, sizes, unit, power, measures)[1]


def search_certificate(
    blocks: Strategy, sizes: Mapping[str, int], unit: PrivacyUnit, power: int, measures: Sequence[str] = ()
) -> tuple[Sensitivity, Certificate | None]:
    """Both at once."""
    return best_certified([b.lowered() for b in blocks], sizes, unit, power, propose_certificates, measures=measures)
