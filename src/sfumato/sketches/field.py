"""Hashing of limited independence over the Mersenne field of p = 2^61 - 1 [CW79, WC81].

A polynomial with r uniform coefficients gives r-wise independent uniform values at distinct points. Sums and
products stay in 64-bit words and are exact: 2^61 = 1 in the field, so what overflows is folded back.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["PRIME", "Words", "draw_coefficients", "hash_texts", "multiply", "polynomial"]

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


def multiply(a: Words, b: Words) -> Words:
    """a b mod p for field elements a, b < p, element by element with broadcasting; exact.

    With a = a1 2^31 + a0 and b likewise, a1 b1 2^62 = 2 a1 b1, and the middle sum is split at its 30th bit because
    2^31 times its high part is again a multiple of 2^61. No partial sum reaches 2^63.
    """
    a1, a0 = a >> _S31, a & _LOW31
    b1, b0 = b >> _S31, b & _LOW31
    middle = a1 * b0 + a0 * b1
    total = ((a1 * b1) << np.uint64(1)) + (middle >> _S30) + ((middle & _LOW30) << _S31)
    return _fold(_halve(total) + _halve(a0 * b0))


def polynomial(coefficients: Words, points: Words) -> Words:
    """Values at the points (n,) of the polynomials with coefficients (..., r), highest first: shape (..., n)."""
    out = np.broadcast_to(coefficients[..., :1], (*coefficients.shape[:-1], points.size))
    for j in range(1, coefficients.shape[-1]):
        out = _fold(multiply(out, points) + coefficients[..., j : j + 1])
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
        out[going] = _fold(multiply(out[going], at) + digits)
    return out


def _halve(x: Words) -> Words:
    """x modulo p up to one multiple, below 2^61 + 7."""
    return (x & _P) + (x >> _S61)


def _fold(x: Words) -> Words:
    """x modulo p, for any word x."""
    x = _halve(x)
    return np.where(x >= _P, x - _P, x)
