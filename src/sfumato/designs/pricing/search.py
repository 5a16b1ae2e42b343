"""The largest sum of products over all choices of one pattern per group, decided in exact integers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.operators.base import INT64, FloatArray, Numbers

__all__ = ["MAX_WORK", "Patterns", "largest_combination"]

MAX_WORK = 1_000_000_000  # products of a pass over all choices: some seconds
_MAX_TIES = 1_000_000  # choices that are nearly the largest
_MAX_OBJECTS = 50_000_000  # Python integers multiplied: some seconds
_CHUNK = 2**21  # values at a time, which stay in memory

Found = tuple[int, bool]


@dataclass(frozen=True, slots=True)
class Patterns:
    """What one group can contribute: exact integers, for every kind of factor that blocks have there.

    `values` (patterns, kinds, parts) is int64, or holds Python integers; `kind` (blocks,) is the kind of each block.
    """

    values: Numbers
    kind: NDArray[np.intp]

    @classmethod
    def of(cls, rows: Sequence[Sequence[Sequence[int]]], kind: NDArray[np.intp]) -> Patterns:
        """From nested lists, in int64 where all numbers fit."""
        values = np.array(rows, dtype=object)
        fits = max(abs(v) for v in values.flat) < INT64
        return cls(values.astype(np.int64) if fits else values, kind)

    def __len__(self) -> int:
        return len(self.values)

    def tops(self) -> Numbers:
        """(blocks, parts) largest sizes, Python integers."""
        return np.abs(self.values).max(axis=0).astype(object)[self.kind]

    def real(self, chosen: NDArray[np.intp] | slice = slice(None)) -> FloatArray:
        """(chosen, blocks, parts) values in float64."""
        return self.values[chosen].astype(np.float64)[:, self.kind]

    def at(self, chosen: NDArray[np.intp], dtype: type) -> Numbers:
        """(chosen, blocks, parts) values: Python integers, or modulo 2^64 if dtype is np.int64."""
        values = _modular(self.values) if dtype is np.int64 else self.values.astype(object)
        return values[chosen][:, self.kind]


def _modular(values: Numbers) -> NDArray[np.int64]:
    if values.dtype.kind == "O":
        values = (values + INT64) % (2 * INT64) - INT64
    return values.astype(np.int64)


def largest_combination(patterns: list[Patterns], scale: Sequence[int], signs: tuple[int, ...]) -> Found | None:
    """max over choices c of sum_b scale_b sum_k signs_k prod_g patterns_g[c_g, b, k], and whether it is attained.

    A float64 pass over all choices leaves those within its own proved error of the largest; these are
    compared in integers modulo 2^64, and the best is computed in Python integers. None where there are
    too many choices; False with an upper bound where too many are left. The largest value must not be negative.
    """
    sizes = [len(p) for p in patterns]
    parts = len(signs)
    if math.prod(sizes) * len(scale) * parts > MAX_WORK:
        return None
    common = math.gcd(*scale) or 1
    weights = [s // common for s in scale]
    tops = [p.tops() for p in patterns]
    # no partial sum of any choice is larger
    size = sum(
        w * abs(s) * math.prod(t[b, k] for t in tops) for b, w in enumerate(weights) for k, s in enumerate(signs)
    )
    if size.bit_length() > 900:
        return size * common, False
    # rounding errors: 2 len(patterns) + 1 in each product, and one for each product when they are added;
    # the slack is twice what these can come to
    exact = size < 2**53
    slack = 0.0 if exact else float(size) * (parts * len(scale) + 2 * len(patterns) + 8) * 2.0**-52
    largest, ties = _float_pass(patterns, np.array(weights, dtype=np.float64), signs, slack)
    if exact:
        return int(largest) * common, True
    # differences between the values left are below 4 slack
    dtype = np.int64 if 8 * slack < INT64 else object
    if ties is None or (dtype is object and len(ties) * len(weights) * parts * len(sizes) > _MAX_OBJECTS):
        return (math.ceil(largest + 2 * slack) + 1) * common, False
    where = np.unravel_index(_best(patterns, weights, signs, ties, dtype), sizes) if sizes else ()
    value = 0
    for b, weight in enumerate(weights):
        columns = [p.values[int(i), p.kind[b]].tolist() for p, i in zip(patterns, where, strict=True)]
        value += weight * sum(s * math.prod(c[k] for c in columns) for k, s in enumerate(signs))
    return value * common, True


def _float_pass(
    patterns: list[Patterns], weights: FloatArray, signs: tuple[int, ...], slack: float
) -> tuple[float, NDArray[np.intp] | None]:
    """The largest value in float64 and the numbers of all choices within 2 slack of it; None if they are too many."""
    largest, first, count = -math.inf, 0, 0
    found: list[tuple[NDArray[np.intp], FloatArray]] = []
    for values in _float_values(patterns, weights[:, None] * np.array(signs, dtype=np.float64)):
        largest = max(largest, float(values.max()))
        if slack and count <= _MAX_TIES:
            near = np.flatnonzero(values >= largest - 2 * slack)
            found.append((near + first, values[near]))
            count += len(near)
            if count > _MAX_TIES:
                found = [(n[v >= largest - 2 * slack], v[v >= largest - 2 * slack]) for n, v in found]
                count = sum(len(n) for n, _ in found)
        first += len(values)
    if count > _MAX_TIES or not found:
        return largest, None
    return largest, np.concatenate([n[v >= largest - 2 * slack] for n, v in found])


def _float_values(patterns: list[Patterns], signed: FloatArray) -> Iterator[FloatArray]:
    """Values of all choices in C order: products over the first groups times products over the last ones."""
    blocks, parts = signed.shape
    left, right = list(patterns), np.ones((1, blocks, parts))
    while left and len(left[-1]) * right.size <= _CHUNK and (len(right) == 1 or len(left[-1]) * len(right) <= 1024):
        right = (left.pop().real()[:, None] * right[None]).reshape(-1, blocks, parts)
    across = right.reshape(len(right), -1).T
    sizes = tuple(len(p) for p in left)
    count = math.prod(sizes)
    step = max(1, _CHUNK // max(blocks * parts, len(right)))
    for start in range(0, count, step):
        index = np.unravel_index(np.arange(start, min(start + step, count)), sizes) if sizes else ()
        product = signed[None]
        for p, i in zip(left, index, strict=True):
            product = product * p.real(i)
        yield (product.reshape(len(product), -1) @ across).reshape(-1)


def _best(
    patterns: list[Patterns], weights: list[int], signs: tuple[int, ...], ties: NDArray[np.intp], dtype: type
) -> int:
    """Which of the choices is largest. With np.int64 their differences must fit into it, their values need not."""
    signed = np.array([w * s for w in weights for s in signs], dtype=object)
    signed = _modular(signed) if dtype is np.int64 else signed
    values = np.empty(len(ties), dtype=dtype)
    step = max(1, _CHUNK // len(signed))
    for start in range(0, len(ties), step):
        part = ties[start : start + step]
        index = np.unravel_index(part, tuple(len(p) for p in patterns)) if patterns else ()
        product = np.ones((len(part), len(weights), len(signs)), dtype=dtype)
        for p, i in zip(patterns, index, strict=True):
            product = product * p.at(i, dtype)
        values[start : start + step] = product.reshape(len(part), -1) @ signed
    return int(ties[np.argmax(values - values[0])])
