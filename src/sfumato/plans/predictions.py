"""Predicted errors before they are spent, and how wide an interval must be.

Errors are kept per family of tables or block of queries, as compact as they are. The width of an interval is a quantile
of a weighted sum of independent draws of the actual noise. For Gaussian noise it is normal. For Laplace noise its
fourth cumulant says how far it is from normal; the symmetric variance-gamma law with that cumulant is exact for one
draw and for any number of equal ones, and has the normal limit.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import storable
from sfumato._util.frames import Frame
from sfumato.domain import Domain
from sfumato.errors import InvalidInput, PlanError
from sfumato.operators import Block, Identity
from sfumato.operators.base import FloatArray
from sfumato.privacy.noise import DiscreteGaussian, DiscreteLaplace, NoiseLaw, RoundedGaussian
from sfumato.strategies.covariance import check_covariance_size
from sfumato.strategies.strategy import Estimate, Strategy, row_shape
from sfumato.workloads import QueryBlock, QueryFamily, Workload, predicates
from sfumato.workloads.levels import family_names, names_asked, table_block

_LONG_TABLE = 256  # cells of a table: above, one assignment a table is faster than an index for every cell


@storable
@dataclass(frozen=True, slots=True)
class Alone:
    """What the tables of one part, order and unit would err if they had the whole budget; None where that is unknown.

    `rmse` is over them as the objective weighs them.
    """

    part: str
    order: int
    unit: str
    rmse: float | None


@dataclass(frozen=True, slots=True)
class ErrorEntry:
    """Queries with the sums of squares of their rows of the reconstruction.

    For a block one axis per factor, of length 1 where nothing changes; for a family of tables, all of whose
    cells are alike, one number per table. Where the queries are too many to list, `powers` is the largest of
    the sums and `mean` their mean. Where answers are biased on purpose, `bias` bounds that of each query, and `off`
    holds per cell the sum of squared biases if all records are in it.

    Args:
        item: The queries: a block, or a family of tables.
        powers: (…) the sums of squares, in units of the noise's variance.
        mean: Their mean, where the queries are too many to list; else None.
        bias: Like powers, the largest bias of each query; None where answers are unbiased.
        off: (cells,) the sum of squared biases if all records are in that cell; None where answers are unbiased.
    """

    item: QueryBlock | QueryFamily
    powers: FloatArray
    mean: float | None = None
    bias: FloatArray | None = None
    off: FloatArray | None = None

    @classmethod
    def of(cls, strategy: Strategy, query: QueryBlock) -> ErrorEntry:
        """The errors of a block of queries under a strategy.

        Args:
            strategy: What is measured.
            query: The queries.

        Returns:
            Their entry.
        """
        summed = strategy.row_errors(query.block)
        if summed is None:
            return cls(query, strategy.row_powers(query.block, 2), None, *entry_biases(strategy, query.block))
        mean, largest = summed
        return cls(query, np.full((1,) * len(query.block.factors), largest), mean)

    @property
    def order(self) -> int:
        """Number of attributes of every table."""
        return self.item.order

    def sum(self) -> float:
        """Sum over all queries.

        Returns:
            The sum of the powers, in units of the noise's variance.
        """
        if isinstance(self.item, QueryFamily):
            return float(self.powers @ self.item.family.rows_each)
        return (float(self.powers.mean()) if self.mean is None else self.mean) * self.item.rows

    def weighted(self, weights: FloatArray) -> float:
        """Weighted sum over all queries.

        Args:
            weights: (tables,) of each table; of a block the one weight.

        Returns:
            The sum, in units of the noise's variance.
        """
        if isinstance(self.item, QueryFamily):
            return float((weights * self.powers) @ self.item.family.rows_each)
        return float(weights[0]) * self.sum()

    def expand(self, values: FloatArray) -> FloatArray:
        """Numbers compact as the powers, spread to one per query.

        Args:
            values: Numbers shaped like the powers.

        Returns:
            (queries,) the same, one per query.

        Raises:
            PlanError: The queries are too many to list.
        """
        if self.mean is not None:
            raise PlanError(f"{self.item.rows:,} queries are too many to list; ask for those you need")
        if isinstance(self.item, QueryFamily):
            return np.repeat(values, self.item.family.rows_each)
        return expand_to_queries(values, self.item)

    def by_table(self, values: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Per table the mean and the largest of numbers compact as the powers.

        Args:
            values: Numbers shaped like the powers; the powers themselves unless given.

        Returns:
            (tables,) the means, and (tables,) the largest.
        """
        if self.mean is not None:
            largest = (self.powers if values is None else values).reshape(-1)
            return np.array([self.mean]) if values is None else largest, largest
        values = self.powers if values is None else values
        if isinstance(self.item, QueryFamily):
            return values, values
        return np.array([values.mean()]), np.array([values.max()])

    def names(self, domain: Domain) -> list[tuple[str, ...]]:
        """The attributes of every table, or the levels of theirs that are asked.

        Args:
            domain: The domain of the queries.

        Returns:
            The names, table by table.
        """
        if isinstance(self.item, QueryFamily):
            return family_names(domain, self.item.family)
        return [names_asked(domain, self.item.block)]

    def cells(self) -> NDArray[np.int64]:
        """Queries per table.

        Returns:
            (tables,) numbers of queries.
        """
        return self.item.rows_each


def answer_item(strategy: Strategy, estimate: Estimate, item: QueryBlock | QueryFamily, into: FloatArray) -> None:
    """The answers to a workload's item, written to (rows,) contiguous floats."""
    if isinstance(item, QueryBlock):
        into[:] = strategy.answer(estimate, item.block)
        return
    for chosen, rows in strategy.answer_family(estimate, item.family):
        item.family.place(chosen, rows, into)


def entry_biases(strategy: Strategy, block: Block) -> tuple[FloatArray | None, FloatArray | None]:
    """`bias` and `off` of an entry: of answers that are biased on purpose, else None."""
    off, records = strategy.deviations(block), strategy.records
    if off is None or records is None:
        return None, None
    return records * off.max(axis=1).reshape(row_shape(block)), float(records) ** 2 * (off**2).sum(axis=0)


def worst_bias(entries: Iterable[ErrorEntry], weights: Iterable[float] | None = None) -> float:
    """The largest (weighted) sum of squared biases of all queries: that of all records in one cell.

    The sum is convex in the counts, so no table of as many records has a larger one.
    """
    weighted = zip(itertools.repeat(1.0) if weights is None else weights, entries)  # noqa: B905  (endless)
    sums = [w * e.off for w, e in weighted if e.off is not None]
    return float(np.sum(sums, axis=0).max()) if sums else 0.0


def expand_entries(entries: Sequence[ErrorEntry], values: Iterable[FloatArray]) -> FloatArray:
    """(queries,) numbers compact as the powers of each entry, one per query, entry after entry. Raises PlanError."""
    spread = np.empty(sum(e.item.rows for e in entries))
    at = 0
    for e, compact in zip(entries, values, strict=True):
        rows = e.item.rows
        if isinstance(e.item, QueryFamily) and rows > _LONG_TABLE * len(compact):
            # one pass over what may be a gigabyte, where `expand` and a copy of it would be three
            for value, cells in zip(compact.tolist(), e.item.family.rows_each.tolist(), strict=True):
                spread[at : (at := at + cells)] = value
        else:
            spread[at : (at := at + rows)] = e.expand(compact)
    return spread


def expand_to_queries(values: FloatArray, query: QueryBlock) -> FloatArray:
    """A compact array of a block, spread to one value per query."""
    shape = tuple(f.shape[0] for f in query.block.factors)
    return np.broadcast_to(values, shape).reshape(-1)


def table_errors_frame(
    domain: Domain, entries: Sequence[ErrorEntry], noise: NoiseLaw, margins: Sequence[FloatArray]
) -> Frame:
    """One row per table or block of queries; where answers are biased, with the largest bound on it."""
    names = ("part", "attributes", "cells", "unit", "rmse", "worst_standard_error", "margin")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    largest: list[float] = []
    for e, margin in zip(entries, margins, strict=True):
        mean, worst = e.by_table()
        count = len(mean)
        largest += [0.0 if e.bias is None else float(e.bias.max())] * count
        mean = mean + worst_bias([e]) / e.item.rows / noise.variance
        found = (
            [e.item.part] * count,
            [", ".join(held) or "(total)" for held in e.names(domain)],
            e.cells().tolist(),
            [e.item.unit] * count,
            np.sqrt(mean * noise.variance).tolist(),
            np.sqrt(worst * noise.variance).tolist(),
            e.by_table(margin)[1].tolist(),
        )
        for column, values in zip(columns.values(), found, strict=True):
            column += values
    return Frame(columns | {"bias": largest} if any(largest) else columns)


def order_errors_frame(
    entries: Sequence[ErrorEntry], noise: NoiseLaw, margins: Sequence[FloatArray], weights: Sequence[FloatArray]
) -> Frame:
    """One row per part, unit and number of attributes; means over queries by their tables' weights, (tables,) each."""
    rows: dict[tuple[str, int, str], list[float]] = {}
    for e, margin, weight in zip(entries, margins, weights, strict=True):
        row = rows.setdefault((e.item.part, e.order, e.item.unit), [0.0] * 7)
        row[0] += len(e.cells())
        row[1] += e.item.rows
        row[2] += e.weighted(weight) + worst_bias([e], weight[:1]) / noise.variance
        row[6] += float(weight @ e.cells())
        row[3] = max(row[3], float(e.powers.max()))
        row[4] = max(row[4], float(margin.max()))
        row[5] = max(row[5], 0.0 if e.bias is None else float(e.bias.max()))
    columns: dict[str, list[Any]] = {
        "part": [part for part, _, _ in rows],
        "attributes": [order for _, order, _ in rows],
        "tables": [int(r[0]) for r in rows.values()],
        "queries": [int(r[1]) for r in rows.values()],
        "unit": [unit for _, _, unit in rows],
        "rmse": [float(np.sqrt(r[2] / r[6] * noise.variance)) for r in rows.values()],
        "worst_standard_error": [float(np.sqrt(r[3] * noise.variance)) for r in rows.values()],
        "margin": [r[4] for r in rows.values()],
    }
    whole = sum(r[2] for r in rows.values())
    columns["error_share"] = [r[2] / whole if 0 < whole < math.inf else None for r in rows.values()]
    largest = [r[5] for r in rows.values()]
    return Frame(columns | {"bias": largest} if any(largest) else columns)


def compare_with_alone(table: Frame, alone: Iterable[Alone]) -> Frame:
    """A table by order with what every line would err alone, and how many times that it errs."""
    known = {(a.part, a.order, a.unit): a.rmse for a in alone}
    keys = zip(table["part"], table["attributes"], table["unit"], strict=True)
    best = [known.get(key) for key in keys]
    ratios = [e / b if b else None for e, b in zip(table["rmse"], best, strict=True)]
    return Frame({name: table[name] for name in table.columns} | {"alone": best, "ratio": ratios})


Question = str | Sequence[str] | Workload
"""A predicate, the attributes of a marginal table, or a workload."""


def check_domain(domain: Domain, question: Workload) -> None:
    """Raise PlanError unless the attributes of a question are some of a domain's, as these are declared there."""
    given = question.domain.attributes
    strange = [n for n, a in given.items() if domain.attributes.get(n) != a]
    if strange:
        raise PlanError(f"the question is over another domain: {', '.join(strange)} is not declared, or not so, here")


def question_blocks(domain: Domain, question: Question) -> tuple[Block, ...]:
    """The blocks of a question. Raises PlanError for what is none, or over another domain."""
    if isinstance(question, Workload):
        check_domain(domain, question)
        return tuple(q.block for q in question.blocks)
    if isinstance(question, str):
        return (predicates(domain, [question]).blocks[0].block,)
    if not isinstance(question, Sequence):
        raise PlanError(f"a question is a predicate, a tuple of attribute names or a workload, not {question!r}")
    return (table_block(domain, question),)


def question_covariance(
    strategy: Strategy, domain: Domain, first: Question, second: Question | None, variance: float
) -> FloatArray:
    """(answers of first, answers of second) under noise of that variance; within the first where second is None."""
    ours = question_blocks(domain, first)
    theirs = ours if second is None else question_blocks(domain, second)
    rows, columns = (np.cumsum([0, *(b.rows for b in blocks)]) for blocks in (ours, theirs))
    check_covariance_size(int(rows[-1]), int(columns[-1]))
    sources = [strategy.source(b) for b in ours]
    others = sources if second is None else [strategy.source(b) for b in theirs]
    out = np.zeros((int(rows[-1]), int(columns[-1])))
    for (i, a), (j, b) in itertools.product(enumerate(ours), enumerate(theirs)):
        place = np.s_[rows[i] : rows[i + 1], columns[j] : columns[j + 1]]
        if second is None and j < i:
            out[place] = out[place[::-1]].T
        elif sources[i] is others[j]:  # the noise of different pieces is independent
            found = sources[i].covariance(a, b)
            # symmetric to the last bit, as solvers want it
            out[place] = (found + found.T) / 2 if second is None and i == j else found
    out *= variance
    return out


def table_covariance_frame(
    strategy: Strategy, domain: Domain, first: Sequence[str], second: Sequence[str], variance: float
) -> Frame:
    """Covariances of the cells of two tables under noise of that variance, by which common attributes agree.

    One row for each pattern: a column per common attribute that says "same" or "different", and "covariance".
    Raises PlanError where cells that agree alike have unlike covariances.
    """
    blocks: list[Block] = []
    for names in (first, second):
        if isinstance(names, str) or not isinstance(names, Sequence):
            raise PlanError(f"a table is a tuple of attribute names such as ('age', 'sex'), not {names!r}")
        blocks += question_blocks(domain, names)
    one, other = blocks
    for block in blocks:
        strategy.check(block)
    plain = all(isinstance(f, Identity) for b in blocks for f in b.factors)
    found = strategy.table_covariance(one, other) if plain else None
    if found is None:
        raise PlanError(
            "the covariances of these tables depend on the cells themselves, not only on which attributes agree; "
            "take covariance, which lists them all"
        )
    common = [name for name, a in zip(first, one.attributes, strict=True) if a in other.attributes]
    patterns = list(itertools.product(*(("same", "different")[:n] for n in found.shape)))
    columns: dict[str, list[str | float]] = {n: [p[i] for p in patterns] for i, n in enumerate(common)}
    return Frame(columns | {"covariance": (found.reshape(-1) * variance).tolist()})


_SUMMED = 64  # up to here the discrete Gaussian's distribution function is summed
_LEAST_BITS = 1100  # a double cannot express less mass than lies beyond


def noise_quantile(noise: NoiseLaw, probability: float) -> float:
    """The least integer k with P(noise <= k) >= probability.

    Raises InvalidInput unless 0 < probability < 1.
    """
    if not 0 < probability < 1:
        raise InvalidInput(f"a quantile needs a probability strictly between 0 and 1, got {probability!r}")
    high = noise.reach(_LEAST_BITS) + 1
    low = -high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if noise_cdf(noise, middle) >= probability else (middle, high)
    return float(high)


def noise_cdf(noise: NoiseLaw, k: float) -> float:
    """P(noise <= k)."""
    k = math.floor(k)
    match noise:
        case DiscreteLaplace(scale=scale):
            rate = 1 / float(scale)
            outside = math.exp(-rate * (k + 1 if k >= 0 else -k)) / (1 + math.exp(-rate))
            return 1 - outside if k >= 0 else outside
        case RoundedGaussian(sigma=sigma):
            return _normal_cdf((k + 0.5) / float(sigma))
        case DiscreteGaussian(sigma=sigma) if sigma < _SUMMED:
            below = _cumulative_masses(noise)
            return float(below[min(max(k + below.size // 2, 0), below.size - 1)])
        case DiscreteGaussian(sigma=sigma):
            z = (k + 0.5) / float(sigma)
            # the sum of a density to k is its integral to k + 1/2, less a 24th of its derivative there
            slope = z * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
            return _normal_cdf(z) + slope / (24 * float(sigma) * float(sigma))
        case _:
            raise InvalidInput(f"no distribution function is known of {noise!r}")


def _normal_cdf(z: float) -> float:
    return math.erfc(-z / math.sqrt(2)) / 2


def noise_masses(law: NoiseLaw) -> FloatArray:
    """Probabilities of 0, 1, 2, … as doubles, for small scales."""
    weights = np.array([float(law.weight(k)) for k in range(law.reach(160) + 3)])
    return weights / (2 * weights.sum() - weights[0])


@lru_cache(maxsize=16)
def _cumulative_masses(law: NoiseLaw) -> FloatArray:
    """P(noise <= k) for k from -K to K."""
    found = noise_masses(law)
    return np.concatenate([found[:0:-1], found]).cumsum().clip(0, 1)


_MOST_TOGETHER = 10**10  # to confidences of 1 - 1e-11, which floats still tell from 1
_NODES = np.linspace(0.0, 1.0, 17)  # of kurtosis, between which quantiles are nearly straight


def check_confidence(confidence: object) -> float:
    """A probability strictly between 0 and 1; 95 is refused."""
    if isinstance(confidence, bool) or not isinstance(confidence, (int, float)) or not 0 < confidence < 1:
        raise PlanError(f"confidence must lie strictly between 0 and 1, such as 0.95, not {confidence!r}")
    return float(confidence)


def simultaneous_confidence(confidence: float, count: int, noise: NoiseLaw, *, biased: bool = False) -> float:
    """The pointwise confidence at which `count` intervals hold together with `confidence`.

    Gaussian noise: Šidák's inequality, which holds for any correlation. Other laws, and answers off by a bias, for
    which that inequality fails: the union bound. Plans and releases take their half-widths at this level. Raises
    PlanError above 10^10 intervals, where levels so near 1 are no longer numbers of their own.
    """
    count = max(1, count)
    if count > _MOST_TOGETHER:
        raise PlanError(
            f"intervals that hold together are known for up to {_MOST_TOGETHER:,} answers, not {count:,}; ask for "
            "those of one part, or for pointwise ones"
        )
    if biased or isinstance(noise, DiscreteLaplace):
        return 1 - (1 - confidence) / count
    return math.exp(math.log(confidence) / count)


def interval_margins(
    confidence: float,
    second: FloatArray,
    fourth: FloatArray | None,
    noise: NoiseLaw,
    bias: FloatArray | None = None,
) -> FloatArray:
    """Half-widths of intervals for sums with the given sums of squared (and fourth-power) coefficients.

    Arrays broadcast, and so does the result: squares may be alike where fourth powers are not. `fourth` is needed for
    Laplace noise only; nan where it is not known, for which the widest of all is taken. With `bias`, which bounds what
    answers may be off by besides, the intervals hold for every bias within.
    """
    if bias is not None and bias.any():
        if noise.variance < 64.0 or isinstance(noise, DiscreteLaplace):
            return bias + interval_margins(confidence, second, fourth, noise)
        return _off_centre(confidence, np.sqrt(second * noise.variance), bias)
    deviation = np.sqrt(second * noise.variance)
    single = fourth is not None and np.allclose(fourth, second**2, rtol=1e-9, atol=0.0)
    if single or (fourth is None and noise.variance < 64.0):
        # one draw an answer, or a coarse lattice: the law's own quantile
        return np.sqrt(second) * noise_quantile(noise, (1 + confidence) / 2)
    if fourth is None or not isinstance(noise, DiscreteLaplace):
        return deviation * _normal_quantile(confidence)
    unknown = np.isnan(fourth)
    if unknown.any():
        return np.where(
            unknown,
            widest_margins(confidence, second, noise),
            interval_margins(confidence, second, np.nan_to_num(fourth), noise),
        )
    squared = np.broadcast_to(second**2, np.broadcast_shapes(second.shape, fourth.shape))
    share = np.divide(fourth, squared, out=np.ones(squared.shape), where=squared > 0)
    return deviation * np.interp(share, _NODES, _variance_gamma_quantiles(confidence))


def widest_margins(confidence: float, second: FloatArray, noise: NoiseLaw) -> FloatArray:
    """Half-widths that hold whatever the fourth powers are: the largest that `margins` gives for any."""
    if not isinstance(noise, DiscreteLaplace):
        return interval_margins(confidence, second, None, noise)
    shapes = [interval_margins(confidence, second, share * second**2, noise) for share in _NODES]
    return np.max(shapes, axis=0)


def widest_sum_margin(confidence: float, noise: NoiseLaw) -> float:
    """The widest half-width of any weighted sum of the noise, in units of its standard deviation.

    What is compared may average few or many draws, and A - p B anything between.
    """
    single = float(widest_margins(confidence, np.ones(1), noise)[0]) / math.sqrt(noise.variance)
    return max(single, _normal_quantile(confidence))


def _off_centre(confidence: float, deviation: FloatArray, bias: FloatArray) -> FloatArray:
    """h with P(|b + Z| <= h) >= confidence for normal Z and all |b| <= bias: it is least at b = bias."""
    from scipy.special import ndtr, ndtri  # noqa: PLC0415

    unit = np.maximum(deviation, 1e-300)
    off = np.minimum(bias / unit, 1e150)
    low, high = np.maximum(off + ndtri(confidence), 0.0), off + _normal_quantile(confidence)
    for _ in range(60):
        middle = (low + high) / 2
        enough = ndtr(middle - off) - ndtr(-middle - off) >= confidence
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(deviation > 0, high * unit, bias)


def _normal_quantile(confidence: float) -> float:
    from scipy.special import ndtri  # noqa: PLC0415

    return float(-ndtri((1 - confidence) / 2))


@functools.lru_cache(maxsize=64)
def _variance_gamma_quantiles(confidence: float) -> FloatArray:
    """Two-sided quantiles of the unit-variance law with kurtosis 3 + 3 s at the nodes s in [0, 1]."""
    from scipy.special import gammaln, kve  # noqa: PLC0415

    out = [_normal_quantile(confidence)]
    tail = (1 - confidence) / 2
    reach = 4.0 - 1.5 * math.log(tail)
    x = np.linspace(0.0, reach, 20_001)[1:]
    for node in _NODES[1:]:
        n = 1.0 / node
        z = x * math.sqrt(2 * n)
        order = n - 0.5
        log_density = (
            0.5 * math.log(2 * n)
            - 0.5 * math.log(math.pi)
            - gammaln(n)
            + order * np.log(z / 2)
            + np.log(kve(order, z))
            - z
        )
        density = np.exp(log_density)
        steps = (density[1:] + density[:-1]) / 2 * (x[1] - x[0])
        beyond = np.concatenate([np.cumsum(steps[::-1])[::-1], [0.0]])
        beyond += density[-1] / math.sqrt(2 * n)
        out.append(float(np.exp(np.interp(-math.log(tail), -np.log(beyond), np.log(x)))))
    return np.array(out)
