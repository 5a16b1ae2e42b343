"""Public integer maps from records with keys to a short table: what is measured of a universe too large to list.

Each map is linear, sends a record to a column of small integers that its key decides, and says exactly how large
the columns and their differences can be whatever the coefficients of its hash are: privacy never rests on a hash.
`at` reads a query off the table: the answer is `at(elements, weights) @ table`.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import storable
from sfumato.errors import WorkloadError

Words = NDArray[np.uint64]

PRIME = 2**61 - 1  # the largest Mersenne prime below 64 bits: reduced by shifts, with three bits to spare
_P = np.uint64(PRIME)
# halves of 61 bits, so that their products fit 64
_LOW31, _LOW30 = np.uint64(2**31 - 1), np.uint64(2**30 - 1)
# and the shifts that go with them
_S30, _S31, _S61 = np.uint64(30), np.uint64(31), np.uint64(61)
_DIGIT_BYTES = 7  # 56 bits: below the prime


def draw_coefficients(*shape: int) -> Words:
    """Uniform field elements from the operating system. Public randomness: no privacy rests on it."""
    count = int(np.prod(shape))
    return np.array([secrets.randbelow(PRIME) for _ in range(count)], dtype=np.uint64).reshape(shape)


def multiply_field(a: Words, b: Words) -> Words:
    """a b mod p for field elements a, b < p, element by element with broadcasting; exact.

    With a = a1 2^31 + a0 and b likewise, a1 b1 2^62 = 2 a1 b1, and the middle sum is split at its 30th bit because
    2^31 times its high part is again a multiple of 2^61. No partial sum reaches 2^63.
    """
    a1, a0 = a >> _S31, a & _LOW31
    b1, b0 = b >> _S31, b & _LOW31
    middle = a1 * b0 + a0 * b1
    total = ((a1 * b1) << np.uint64(1)) + (middle >> _S30) + ((middle & _LOW30) << _S31)
    return _reduce_modulo_prime(_reduce_once(total) + _reduce_once(a0 * b0))


def evaluate_polynomial(coefficients: Words, points: Words) -> Words:
    """Values at the points (n,) of the polynomials with coefficients (..., r), highest first: shape (..., n)."""
    out = np.broadcast_to(coefficients[..., :1], (*coefficients.shape[:-1], points.size))
    for j in range(1, coefficients.shape[-1]):
        out = _reduce_modulo_prime(multiply_field(out, points) + coefficients[..., j : j + 1])
    return out


def hash_texts(texts: Sequence[bytes], point: int) -> Words:
    """A field element per text: the polynomial whose digits are its length and its bytes, seven to a digit, at `point`.

    Two texts of at most b bytes collide for at most b / 7 + 2 of the p points [CW79], so for N texts and a uniform
    point any two collide with probability below N^2 (b / 7 + 2) / 2^62.
    """
    lengths = np.array([len(t) for t in texts], dtype=np.uint64)
    out = lengths % _P
    at = np.array([point], dtype=np.uint64)
    for start in range(0, int(lengths.max(initial=0)), _DIGIT_BYTES):
        going = np.flatnonzero(lengths > start)
        parts = b"".join(texts[i][start : start + _DIGIT_BYTES].ljust(8, b"\0") for i in going.tolist())
        digits = np.frombuffer(parts, dtype="<u8").astype(np.uint64)
        out[going] = _reduce_modulo_prime(multiply_field(out[going], at) + digits)
    return out


def _reduce_once(x: Words) -> Words:
    """x modulo p up to one multiple, below 2^61 + 7."""
    return (x & _P) + (x >> _S61)


def _reduce_modulo_prime(x: Words) -> Words:
    """x modulo p, for any word x."""
    x = _reduce_once(x)
    return np.where(x >= _P, x - _P, x)


Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
N = TypeVar("N", np.int64, np.float64)

MAX_ROWS = 2**26  # of a map, and so of its noisy values: 512 MB
_BLOCK = 60  # signs that one polynomial gives: one per bit, of which the top one is left out
_CHUNK = 2**13  # keys hashed at once: their signs stay in a cache; any near would do


class KeyMap(ABC):
    """A linear map from counts by key to `rows` integers."""

    __slots__ = ()

    @property
    @abstractmethod
    def rows(self) -> int:
        """How many integers are measured."""

    @abstractmethod
    def largest(self, power: int) -> int:
        """The largest sum of |entry|^power of a column: what one record can add."""

    @abstractmethod
    def farthest(self, power: int) -> int:
        """The largest sum of |difference|^power of two columns, or a bound of it: what a replaced record changes."""

    @abstractmethod
    def apply(self, elements: Words, counts: Integers) -> Integers:
        """The exact table (rows,) of counts by key, the elements distinct. int64 that wraps, raises nothing."""

    @abstractmethod
    def at(self, elements: Words, weights: Floats) -> tuple[NDArray[np.intp], Floats]:
        """The rows that a query reads, without repetition, and the weight of each."""

    @property
    def shrinkage(self) -> int:
        """What divides the squared norm of other records in the variance of an answer; 0 where they do not enter."""
        return self.rows

    @abstractmethod
    def squared_weights(self) -> float:
        """The expected sum of squared weights that `at` gives for a single key of weight 1."""


@storable
@dataclass(frozen=True, slots=True, eq=False)
class Buckets(KeyMap):
    """CountSketch with one row of buckets [CCF04]: record x adds sign(x) to bucket(x).

    Both come from one polynomial: `coefficients` (r,), r >= 4, make answers unbiased with the variance of `predict`.
    `width` is a power of two.
    """

    width: int
    coefficients: Words = field(repr=False)

    def __post_init__(self) -> None:
        if type(self.width) is not int or not 1 <= self.width <= MAX_ROWS or self.width & (self.width - 1):
            raise WorkloadError(f"the number of buckets is a power of two up to 2^26, not {self.width!r}")
        object.__setattr__(self, "coefficients", _read_hash_coefficients(self.coefficients, 1))

    @classmethod
    def draw(cls, width: int, independence: int = 4) -> Buckets:
        """With a fresh public hash."""
        return cls(width, draw_coefficients(independence))

    @property
    def rows(self) -> int:
        """One per bucket."""
        return self.width

    def largest(self, power: int) -> int:
        """A record changes one bucket by one."""
        return 1

    def farthest(self, power: int) -> int:
        """At worst both records share a bucket with opposite signs: (2)^power."""
        return 2**power

    def _places(self, elements: Words) -> tuple[NDArray[np.intp], Integers]:
        hashed = evaluate_polynomial(self.coefficients, elements)
        signs = 2 * (hashed >> np.uint64(59) & np.uint64(1)).view(np.int64) - 1
        return (hashed & np.uint64(self.width - 1)).astype(np.intp), signs

    def apply(self, elements: Words, counts: Integers) -> Integers:
        """The signed sums of the buckets."""
        buckets, signs = self._places(elements)
        out = np.zeros(self.width, dtype=np.int64)
        np.add.at(out, buckets, signs * counts)
        return out

    def at(self, elements: Words, weights: Floats) -> tuple[NDArray[np.intp], Floats]:
        """The keys' buckets; weights of keys that share one are added with their signs."""
        buckets, signs = self._places(elements)
        rows, place = np.unique(buckets, return_inverse=True)
        summed = np.zeros(len(rows))
        np.add.at(summed, place, signs * weights)
        return rows, summed

    def squared_weights(self) -> float:
        """One bucket with weight 1 or -1."""
        return 1.0


@storable
@dataclass(frozen=True, slots=True, eq=False)
class Signs(KeyMap):
    """SparseProject's random projection [BR11] on the integer lattice: record x adds a sign to each of `size` sums.

    Row 60 b + t takes bit t of polynomial b: `coefficients` (ceil(size / 60), r), so signs are r-wise independent over
    keys. The factor 1 / sqrt(size) of the paper is applied to what comes out: an answer is the scaled product of the
    table with the query's own projection.
    """

    size: int
    coefficients: Words = field(repr=False)

    def __post_init__(self) -> None:
        if type(self.size) is not int or not 1 <= self.size <= 2**22:
            raise WorkloadError(f"the dimension of a projection is a whole number from 1 to 2^22, not {self.size!r}")
        object.__setattr__(self, "coefficients", _read_hash_coefficients(self.coefficients, 2))
        if len(self.coefficients) != -(-self.size // _BLOCK):
            raise WorkloadError(f"a projection to {self.size:,} signs needs one polynomial for each {_BLOCK} of them")

    @classmethod
    def draw(cls, size: int, independence: int = 4) -> Signs:
        """With a fresh public hash."""
        return cls(size, draw_coefficients(-(-size // _BLOCK), independence))

    @property
    def rows(self) -> int:
        """One per sign."""
        return self.size

    def largest(self, power: int) -> int:
        """Every entry is 1 or -1."""
        return self.size

    def farthest(self, power: int) -> int:
        """At worst all signs differ, by 2 each: a bound, reached only by keys with opposite columns."""
        return self.size * 2**power

    def _signs(self, elements: Words, block: int) -> NDArray[np.int8]:
        """(len(elements), 60) signs of one block."""
        hashed = evaluate_polynomial(self.coefficients[block], elements).astype("<u8")
        bits = np.unpackbits(hashed.view(np.uint8).reshape(-1, 8), axis=1, bitorder="little", count=_BLOCK)
        return 2 * bits.view(np.int8) - 1

    def _sums(self, elements: Words, weights: NDArray[N]) -> NDArray[N]:
        """Signed sums in the weights' own arithmetic: floating-point, or 64-bit words that wrap."""
        out = np.zeros((len(self.coefficients), _BLOCK), dtype=weights.dtype)
        for start in range(0, len(elements), _CHUNK):
            part, w = elements[start : start + _CHUNK], weights[start : start + _CHUNK]
            for block in range(len(self.coefficients)):
                out[block] += w @ self._signs(part, block).astype(w.dtype)
        return out.reshape(-1)[: self.size]

    def apply(self, elements: Words, counts: Integers) -> Integers:
        """The signed sums."""
        return self._sums(elements, counts)

    def at(self, elements: Words, weights: Floats) -> tuple[NDArray[np.intp], Floats]:
        """Every row, with the query's own projection over `size`."""
        return np.arange(self.size), self._sums(elements, weights) / self.size

    def squared_weights(self) -> float:
        """`size` weights of 1 / size."""
        return 1 / self.size


@storable
@dataclass(frozen=True, slots=True, eq=False)
class Listed(KeyMap):
    """Counts of listed keys: the union of the supports of known queries. `elements` are sorted and distinct."""

    elements: Words = field(repr=False)

    def __post_init__(self) -> None:
        e = self.elements
        if not isinstance(e, np.ndarray) or e.dtype != np.uint64 or e.ndim != 1 or not 1 <= e.size <= MAX_ROWS:
            raise WorkloadError(f"a histogram needs 1 to {MAX_ROWS:,} keys")
        if (e[1:] <= e[:-1]).any():
            raise WorkloadError("the keys of a histogram are sorted, each once")
        object.__setattr__(self, "elements", e.copy())
        self.elements.flags.writeable = False

    @property
    def rows(self) -> int:
        """One per key."""
        return len(self.elements)

    def largest(self, power: int) -> int:
        """A record is counted at most once."""
        return 1

    def farthest(self, power: int) -> int:
        """One count falls and another rises."""
        return min(2, self.rows)

    def apply(self, elements: Words, counts: Integers) -> Integers:
        """The counts of the listed keys."""
        place = np.minimum(np.searchsorted(self.elements, elements), self.rows - 1)
        known = self.elements[place] == elements
        out = np.zeros(self.rows, dtype=np.int64)
        out[place[known]] = counts[known]
        return out

    def at(self, elements: Words, weights: Floats) -> tuple[NDArray[np.intp], Floats]:
        """The keys themselves. Raises WorkloadError where one is not listed."""
        place = np.minimum(np.searchsorted(self.elements, elements), self.rows - 1)
        unknown = int((self.elements[place] != elements).sum())
        if unknown:
            raise WorkloadError(
                f"{unknown} keys of the query were not among those of the planned queries; a count-sketch or hybrid "
                "answers queries not known in advance"
            )
        return place, weights

    @property
    def shrinkage(self) -> int:
        """No other record enters an answer."""
        return 0

    def squared_weights(self) -> float:
        """One count."""
        return 1.0


def _read_hash_coefficients(given: object, dimensions: int) -> Words:
    """Read-only field elements."""
    if not isinstance(given, np.ndarray) or given.dtype != np.uint64 or given.ndim != dimensions:
        raise WorkloadError("the coefficients of a hash are 64-bit field elements; draw them with .draw()")
    if not 1 <= given.shape[-1] <= 1024 or (given >= PRIME).any():
        raise WorkloadError("a hash has 1 to 1,024 coefficients below 2^61 - 1")
    out = given.copy()
    out.flags.writeable = False
    return out
