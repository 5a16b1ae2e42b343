"""Covariances between answers, part by part: never a matrix over all cells or over all that is measured.

Answers R_1 y and R_2 y to blocks W_1 and W_2 have the covariance R_1 R_2ᵀ times the variance of the noise. For
residuals, whose way back from set S is ⊗_S P ⊗_rest t, that is

    sum_S u_S W_1 (⊗_S P Pᵀ ⊗_rest t tᵀ) W_2ᵀ,

over the sets S of attributes that both blocks hold, u_S the variance of the noise on S. An attribute that only one
block holds meets its t. Marginal tables of attributes without tilts have P Pᵀ = I - J/n and t = 1/n: then only
agreement counts, and two tables have 2^(number of common attributes) covariances. [XZK23]
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from sfumato.errors import PlanError
from sfumato.operators import Block, Identity, Sparse
from sfumato.operators.base import DENSE_LIMIT, FloatArray, LinearOperator

if TYPE_CHECKING:
    from sfumato.strategies.residuals import Residuals
    from sfumato.strategies.strategy import Strategy

_MAX_CONDITION = 1e8  # half of the digits of a double are then left to the inverse
# the square of 1e-13, some hundreds of roundings: queries that do not vary with the tilt have exactly zero
_SQUARED_ZERO = 1e-26


@dataclass(frozen=True, slots=True)
class Lift:
    """The way back from the integer contrasts B of one attribute: [1ᵀ; B]^-1 = [t | P / scale].

    `scale` is the length of B's longest column, so that the contrasts B / scale have unit price. t: (n,);
    P: (n, n - 1). Without a lift the contrasts are n I - J, t is 1/n and P the centring, scale n.
    """

    tilt: FloatArray
    spread: FloatArray
    scale: float

    @classmethod
    def of(cls, contrast: LinearOperator) -> Lift:
        """Raises PlanError where the contrasts and the total do not determine the cells."""
        rows, n = contrast.shape
        if rows != n - 1 or not contrast.integral:
            raise PlanError(f"{n} cells need {n - 1} integer contrasts, not {contrast!r}")
        dense = np.asarray(contrast.dense(), dtype=np.float64)
        scale = math.sqrt(float((dense**2).sum(axis=0).max()))
        # the row of ones at the scale of the rest
        square = np.concatenate([np.ones((1, n)), dense / max(scale, 1.0)])
        try:
            inverse = np.asarray(np.linalg.inv(square), dtype=np.float64)
        except np.linalg.LinAlgError:
            inverse = np.full((n, n), np.inf)
        # the first is never below the condition, which takes singular values
        if float(np.linalg.norm(square) * np.linalg.norm(inverse)) > _MAX_CONDITION and (
            not np.isfinite(inverse).all() or np.linalg.cond(square) > _MAX_CONDITION
        ):
            raise PlanError("the contrasts and the total do not determine the cells well enough")
        return cls(inverse[:, 0], inverse[:, 1:], max(scale, 1.0))


def component_powers(
    factor: LinearOperator, sizes: Sequence[int], power: int, lifts: Sequence[Lift | None] | None = None
) -> dict[tuple[int, ...], FloatArray]:
    """For every subset T of a factor's attributes: sums of |entry|^power (2 or 4) of each row's component on T.

    The component on T of a row w is w (⊗_T P ⊗_rest t), over the contrasts of T. (rows,) or (1,) arrays.
    """
    lifts = (None,) * len(sizes) if lifts is None else lifts
    if isinstance(factor, Identity):
        own = [unit_powers(n, lift, power) for n, lift in zip(sizes, lifts, strict=True)]
        alike = all(len(v) == 1 for pair in own for v in pair)
        out: dict[tuple[int, ...], FloatArray] = {}
        for t in _index_subsets(len(sizes)):
            chosen = [pair[i in t] for i, pair in enumerate(own)]
            if not alike:
                chosen = [np.broadcast_to(v, (n,)) for v, n in zip(chosen, sizes, strict=True)]
            out[t] = reduce(np.multiply.outer, chosen, np.ones(())).reshape(-1)
        return out
    if len(sizes) == 1:
        return _single_powers(factor, sizes[0], power, lifts[0])
    return _joint_component_powers(factor, sizes, power, lifts)


def unit_powers(n: int, lift: Lift | None, power: int) -> tuple[FloatArray, FloatArray]:
    """Of every cell's unit vector: the power of its mean, and of its contrasts."""
    if lift is not None:
        return np.abs(lift.tilt) ** power, (np.abs(lift.spread) ** power).sum(axis=1)
    mean = float(n) ** -power
    return np.array([mean]), np.array([(1 - 1 / n) ** power + (n - 1) * mean])


def _single_powers(factor: LinearOperator, n: int, power: int, lift: Lift | None) -> dict[tuple[int, ...], FloatArray]:
    mean = factor.row_sums(1) / n
    second = factor.row_sums(2)
    variation = second - n * mean**2
    if lift is not None:
        tilted = np.asarray(factor.matvec(lift.tilt), dtype=np.float64)
        tilted[tilted**2 <= _SQUARED_ZERO * second * float(lift.tilt @ lift.tilt)] = 0.0
        contrast = np.empty(len(second))
        if power == 2:
            contrast = np.maximum(factor.row_forms(lift.spread @ lift.spread.T), 0.0)
        else:
            for a, b in factor.row_chunks():
                contrast[a:b] = ((factor.rows(a, b) @ lift.spread) ** power).sum(axis=1)
        # a row has no contrasts where it is constant, whatever the tilt
        return {(): tilted**power, (0,): np.where(variation <= 1e-13 * second, 0.0, contrast)}
    contrast = variation
    if power == 4:
        third, fourth = factor.row_sums(3), factor.row_sums(4)
        contrast = fourth - 4 * mean * third + 6 * mean**2 * second - 3 * n * mean**4
    noise = 1e-13 * (second if power == 2 else second**2)
    return {(): mean**power, (0,): np.where(contrast <= noise, 0.0, contrast)}


def _joint_component_powers(
    factor: LinearOperator, sizes: Sequence[int], power: int, lifts: Sequence[Lift | None]
) -> dict[tuple[int, ...], FloatArray]:
    out = {t: np.empty(factor.shape[0]) for t in _index_subsets(len(sizes))}
    for a, b in factor.row_chunks():
        table = factor.rows(a, b).reshape(b - a, *sizes)
        largest = np.abs(table).reshape(b - a, -1).max(axis=1)
        for t in out:
            part = table
            for axis, lift in enumerate(lifts):
                part = table_component(part, axis + 1, lift, contrast=axis in t)
            flat = np.abs(part.reshape(b - a, -1))
            powers = (flat**power).sum(axis=1)
            powers[flat.max(axis=1) <= 1e-12 * largest] = 0.0
            out[t][a:b] = powers
    return out


def table_component(table: FloatArray, axis: int, lift: Lift | None, *, contrast: bool) -> FloatArray:
    if lift is None:
        mean = table.mean(axis=axis, keepdims=True)
        return table - mean if contrast else mean
    return apply_along_axis(table, axis, lift.spread.T if contrast else lift.tilt[None, :])


def apply_along_axis(table: FloatArray, axis: int, matrix: FloatArray) -> FloatArray:
    """A matrix applied along one axis."""
    return np.moveaxis(np.tensordot(matrix, table, axes=(1, axis)), 0, axis)


def _index_subsets(count: int) -> Iterator[tuple[int, ...]]:
    return itertools.chain.from_iterable(itertools.combinations(range(count), r) for r in range(count + 1))


Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class FactorPart:
    """Some factors of the first block and some of the second, by number, and terms (rows, rows) over these."""

    first: tuple[int, ...]
    second: tuple[int, ...]
    terms: Iterable[FloatArray]


def check_covariance_size(first: int, second: int) -> None:
    """Refuse more covariances of so many answers with so many others than fit."""
    if first * second > DENSE_LIMIT:
        raise PlanError(
            f"the covariances of {first:,} answers with {second:,} are above the limit of {DENSE_LIMIT:,} numbers; "
            "ask for fewer answers, or take table_covariances, which says those of two marginal tables in a few rows"
        )


def bilinear_form(first: LinearOperator, second: LinearOperator, run: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """first · G · secondᵀ, where `run` maps rows (c, columns of second) to rows times Gᵀ, (c, columns of first).

    The rows of `second` are made dense, some at a time.
    """
    out = np.empty((first.shape[0], second.shape[0]))
    step = max(1, DENSE_LIMIT // max(8 * first.shape[1], 8 * second.shape[1], second.shape[0]))
    for a in range(0, second.shape[0], step):
        b = min(a + step, second.shape[0])
        out[:, a:b] = first.matvec(np.ascontiguousarray(run(second.rows(a, b)).T))
    return out


def combine_kronecker_terms(
    weights: FloatArray, parts: Sequence[FactorPart], first: Block, second: Block
) -> FloatArray:
    """The sum over terms of `weights` (one axis per part) times the Kronecker product of the parts' terms.

    (rows of first, rows of second)
    """
    out = weights
    axes: list[tuple[int, int]] = []
    shape: list[int] = []
    for part in parts:
        # one term at a time: a large part has many
        out = reduce(operator.iadd, (np.multiply.outer(w, t) for w, t in zip(out, part.terms, strict=True)))
        axes += [(0, j) for j in part.first] + [(1, j) for j in part.second]
        shape += [first.factors[j].shape[0] for j in part.first] + [second.factors[j].shape[0] for j in part.second]
    order = sorted(range(len(axes)), key=axes.__getitem__)
    return out.reshape(shape).transpose(order).reshape(first.rows, second.rows)


def residual_covariance(residuals: Residuals, first: Block, second: Block) -> FloatArray:
    """Residuals.covariance, for blocks that can be answered."""
    lifts = dict(zip(residuals.names, residuals.lifts, strict=True))
    sizes = dict(zip(residuals.names, residuals.shape, strict=True))
    parts: list[FactorPart] = []
    common: list[tuple[str, ...]] = []
    for ours, theirs in _connected_factors(first, second):
        a, b = _block_of_factors(first, ours), _block_of_factors(second, theirs)
        shared = tuple(n for n in a.attributes if n in b.attributes)
        common.append(shared)
        terms = map(partial(_covariance_term, a, b, lifts, sizes), _member_subsets(shared))
        parts.append(FactorPart(ours, theirs, terms))
    places = {n: i for i, n in enumerate(residuals.names)}
    held = [places[n] for shared in common for n in shared]
    variances = np.array([residuals.set_variance(s) for s in _member_subsets(held)])
    return combine_kronecker_terms(variances.reshape([2 ** len(shared) for shared in common]), parts, first, second)


def _connected_factors(first: Block, second: Block) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The factors of two blocks by number, as far apart as no attribute joins them."""
    parts: list[tuple[set[str], list[tuple[int, int]]]] = []
    for side, block in enumerate((first, second)):
        for j, group in enumerate(block.groups):
            names, members = set(group), [(side, j)]
            for part in [p for p in parts if p[0] & names]:
                parts.remove(part)
                names |= part[0]
                members += part[1]
            parts.append((names, members))
    return [
        (tuple(sorted(j for side, j in m if side == 0)), tuple(sorted(j for side, j in m if side == 1)))
        for _, m in parts
    ]


def _block_of_factors(block: Block, chosen: Sequence[int]) -> Block:
    return Block(tuple(block.groups[j] for j in chosen), tuple(block.factors[j] for j in chosen))


def _member_subsets(members: Sequence[Item]) -> list[tuple[Item, ...]]:
    """All subsets, in the order of (2, ..., 2) arrays with one axis per member."""
    choices = itertools.product((False, True), repeat=len(members))
    return [tuple(itertools.compress(members, c)) for c in choices]


def _covariance_term(
    first: Block, second: Block, lifts: Mapping[str, Lift | None], sizes: Mapping[str, int], inside: Sequence[str]
) -> FloatArray:
    """W_1 (⊗_inside P Pᵀ ⊗_rest t tᵀ) W_2ᵀ."""
    if second.rows > first.rows:
        return _covariance_term(second, first, lifts, sizes, inside).T
    kept = [1 + second.attributes.index(n) for n in first.attributes if n in inside]
    order = [0, *kept, *(i for i in range(1, 1 + len(second.attributes)) if i not in kept)]

    def run(rows: FloatArray) -> FloatArray:
        table = rows.reshape(len(rows), *(sizes[n] for n in second.attributes))
        for axis, n in enumerate(second.attributes, 1):
            lift = lifts[n]
            table = table_component(table, axis, lift, contrast=n in inside)
            if n in inside and lift is not None:
                table = apply_along_axis(table, axis, lift.spread)
        # all axes but those inside have length 1 by now
        table = table.transpose(order).reshape(len(rows), *(sizes[n] if n in inside else 1 for n in first.attributes))
        for axis, n in enumerate(first.attributes, 1):
            if n not in inside:
                lift, place = lifts[n], [1] * table.ndim
                place[axis] = sizes[n]
                tilt = np.full(sizes[n], 1 / sizes[n]) if lift is None else lift.tilt
                table = table * tilt.reshape(place)
        return table.reshape(len(rows), -1)

    return bilinear_form(first.operator, second.operator, run)


def centred_cross_product(first: Block, second: Block, sizes: Mapping[str, int], inside: Sequence[str]) -> FloatArray:
    """W_1 (⊗_inside (I - J / n) ⊗_rest J / n²) W_2ᵀ, `inside` among what both blocks hold: (rows, rows)."""
    return _covariance_term(first, second, dict.fromkeys(sizes), sizes, inside)


def agreement_levels(first: Block, second: Block) -> tuple[int, ...]:
    """For every attribute that two tables have in common: whether cells may differ (2) or not (1)."""
    pairs = zip(first.attributes, first.factors, strict=True)
    return tuple(min(2, f.shape[1]) for name, f in pairs if name in second.attributes)


def residual_agreement(residuals: Residuals, first: Block, second: Block) -> FloatArray:
    """Residuals.table_covariance, of attributes without tilts: sum_S u_S, each attribute that both tables hold times
    [same] - 1/n in S and 1/n^2 outside, each other one times 1/n."""
    sizes = dict(zip(residuals.names, residuals.shape, strict=True))
    common = [n for n in first.attributes if n in second.attributes]
    held = [residuals.names.index(n) for n in common]
    out = np.array([residuals.set_variance(s) for s in _member_subsets(held)]).reshape((2,) * len(held))
    for name in common:
        n = sizes[name]
        ways = np.array([[n**-2, n**-2], [1 - 1 / n, -1 / n]])[:, : min(2, n)]
        # the first axis goes last, so that after all of them the order is as before
        out = np.tensordot(out, ways, axes=(0, 0))
    rest = math.prod(sizes[n] for n in (*first.attributes, *second.attributes) if n not in common)
    return out / rest


def by_agreement(strategy: Strategy, first: Block, second: Block) -> FloatArray:
    """Strategy.table_covariance of a strategy to which all cells of either table are alike."""
    common = [n for n in first.attributes if n in second.attributes]

    def cells(block: Block, wanted: int) -> Block:
        picked: list[LinearOperator] = []
        for name, factor in zip(block.attributes, block.factors, strict=True):
            n = factor.shape[1]
            count = min(wanted, n) if name in common else 1
            picked.append(Sparse.from_cells([[c] for c in range(count)], n))
        return Block(block.groups, tuple(picked))

    one, few = cells(first, 1), cells(second, 2)
    found = strategy.covariance(one, few).reshape([f.shape[0] for f in few.factors])
    held = [second.attributes.index(n) for n in common]
    rest = [i for i in range(found.ndim) if i not in held]
    found = found.transpose([*held, *rest])
    return found.reshape(found.shape[: len(held)])
