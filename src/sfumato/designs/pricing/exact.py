"""Exact sums over very many integers in int64 pieces, where Python integers one by one would be slow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.ground.rows import distinct
from sfumato.maps.linear import sum_objects
from sfumato.operators.base import INT64, FloatArray, Numbers

__all__ = ["IntArray", "Weights", "dot", "number_rows", "products", "row_keys", "split"]

IntArray = NDArray[np.int64]

_PIECE = 62  # bits of a piece of int64, a sign and a carry spared
_HALF = 31  # bits of a half of a multiple, whose products fit a piece


def dot(a: IntArray, b: IntArray) -> int:
    """The sum of a b; both (count,), int64 above -2^63."""
    if not len(a):
        return 0
    tops = [int(np.abs(x).max()) for x in (a, b)]
    if tops[0] * tops[1] * len(a) < INT64:
        return int(a @ b)
    if tops[0] < tops[1]:
        a, b, tops = b, a, tops[::-1]
    bits = (tops[0].bit_length() + 1) // 2
    return (dot(a >> bits, b) << bits) + dot(a & ((1 << bits) - 1), b)


def split(values: Numbers, bits: int) -> list[IntArray]:
    """Python integers as int64 pieces, lowest first: values = sum of piece[i] 2^(bits i).

    All pieces but the last are from 0 to 2^bits - 1; the last holds the sign.
    """
    pieces: list[IntArray] = []
    mask = (1 << bits) - 1
    while max((abs(v) for v in values.flat), default=0) > mask:
        pieces.append((values & mask).astype(np.int64))
        values = values >> bits
    return [*pieces, values.astype(np.int64)]


def products(values: Sequence[int], sets: NDArray[np.intp]) -> Numbers:
    """(count,) products of the values at the positions in every row of `sets`; int64 where all are below 2^62."""
    top = max((abs(v) for v in values), default=0)
    fits = max(top, 1) ** max(sets.shape[1], 1) < 2**_PIECE
    table = np.array(values, dtype=np.int64 if fits else object)
    out = np.ones(len(sets), dtype=table.dtype)
    for column in sets.T:
        out *= table[column]
    return out


def row_keys(rows: NDArray[np.intp], base: int) -> IntArray | None:
    """(count,) one number per row of entries in [0, base), equal where rows are; None where int64 is too short."""
    if max(base, 1) ** rows.shape[1] >= INT64:
        return None
    key = np.zeros(len(rows), dtype=np.int64)
    for column in rows.T:
        key = key * base + column
    return key


def number_rows(rows: NDArray[np.intp], base: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """(number of every row, one position of every number); equal rows of entries in [0, base) are numbered alike."""
    count, order = rows.shape
    key = row_keys(rows, base)
    if key is None or base**order > 4 * count + 1000:
        first, number = distinct(rows, base)
        return number, first
    place = np.full(base**order, -1, dtype=np.intp)
    place[key] = np.arange(count)
    first = place[place >= 0]
    place[place >= 0] = np.arange(len(first))
    return place[key], first


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """(count,) whole numbers of at least 0 and any size: the sum of piece 2^shift over `pieces`, int64 each."""

    pieces: tuple[tuple[int, IntArray], ...]

    @classmethod
    def powers(cls, multiples: IntArray, power: int) -> Weights:
        """multiples^power, power 1 or 2, of whole numbers from 0 to 2^62 - 1."""
        if power == 1:
            return cls(((0, multiples),))
        low, high = multiples & ((1 << _HALF) - 1), multiples >> _HALF
        return cls(((0, low * low), (_HALF + 1, low * high), (2 * _HALF, high * high)))

    @classmethod
    def of(cls, values: Sequence[int] | Numbers) -> Weights:
        """From Python integers."""
        table = np.empty(len(values), dtype=object)
        table[:] = values
        return cls(tuple((_PIECE * i, piece) for i, piece in enumerate(split(table, _PIECE))))

    def __len__(self) -> int:
        return len(self.pieces[0][1])

    def take(self, chosen: NDArray[np.intp] | slice) -> Weights:
        """The weights at some positions."""
        return Weights(tuple((shift, piece[chosen]) for shift, piece in self.pieces))

    def times(self, values: Numbers) -> Weights:
        """Each multiplied by a whole number of at least 0."""
        return Weights.of(self.objects() * values.astype(object))

    def dot(self, values: Numbers) -> int:
        """The sum of weight times value."""
        if values.dtype.kind == "O":
            return int((self.objects() * values).sum()) if len(values) else 0
        return sum(dot(piece, values) << shift for shift, piece in self.pieces)

    def objects(self) -> Numbers:
        """The weights as Python integers."""
        return sum_objects((shift, piece) for shift, piece in self.pieces)

    def real(self) -> FloatArray:
        """The weights in float64."""
        out = np.zeros(len(self))
        for shift, piece in self.pieces:
            out += piece * math.ldexp(1.0, shift)
        return out

    def alike(self, other: NDArray[np.intp]) -> bool:
        """Whether every weight equals the one at the position given for it."""
        return all(np.array_equal(piece, piece[other]) for _, piece in self.pieces)

    def marks(self) -> NDArray[np.uint64]:
        """Numbers that are equal where the weights are, and differ where they differ but by accident."""
        out = np.zeros(len(self), dtype=np.uint64)
        for _, piece in self.pieces:
            out = (out * np.uint64(0x9E3779B97F4A7C15)) ^ piece.astype(np.uint64)
            out ^= out >> np.uint64(29)
        return out
