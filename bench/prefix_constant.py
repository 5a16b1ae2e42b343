"""The constant of prefix sums: the least error of n of them less ln n / pi, bracketed (docs/prefix-constant.md).

    OPENBLAS_NUM_THREADS=1 python bench/prefix_constant.py [LARGEST POWER OF TWO]

Per n: the sum of singular values over n; the root of the mean square of g, below which no error lies; the error of the
explicit factorization that reaches it up to E; E, with what rounding may have taken from it. Each less ln n / pi but E.
"""

from __future__ import annotations

import math
import sys

import numpy as np
from flint import arb
from scipy import fft

from sfumato.strategies.toeplitz import prefix_bound, prefix_diagonal

LEAF = 32  # cells up to which the sums over pairs are written out
# relative, in the 2-norm, of a product of three transforms of length N, over log2 N [Higham 2002, theorem 24.2]
TRANSFORM = 25 * 2.0**-53


def limit() -> arb:
    """(Euler's constant + ln(16 / pi)) / pi, in ball arithmetic."""
    return (arb.const_euler() + (16 / arb.pi()).log()) / arb.pi()


def gaps(n: int, orders: np.ndarray) -> np.ndarray:
    """(csc((m - 1/2) f) - csc((m + 1/2) f)) / (2n + 1), f = pi / (2n + 1), where 1 <= m < 2n; elsewhere 0."""
    step, inside = math.pi / (2 * n + 1), (orders >= 1) & (orders < 2 * n)
    m = np.where(inside, orders, 1)
    low, high = np.sin((m - 0.5) * step), np.sin((m + 0.5) * step)
    # the difference of sines as a product, which keeps its digits
    return np.where(inside, 2 * np.cos(m * step) * math.sin(step / 2) / (low * high) / (2 * n + 1), 0.0)


def convolved(kernels: np.ndarray, values: np.ndarray, start: int, count: int) -> np.ndarray:
    """Of the convolutions along the last axis, `count` entries from `start` on."""
    size = fft.next_fast_len(kernels.shape[-1] + values.shape[-1] - 1, real=True)
    found = fft.irfft(fft.rfft(kernels, size) * fft.rfft(values, size), size)
    return found[..., start : start + count]


def sums_before(n: int, values: np.ndarray) -> np.ndarray:
    """(rows, n): for every j the sum over i < j of |P_ij| values_i, P = (FᵀF)^(-1/2).

    |P_ij| = gap(j - i) + gap(i + j - 1), cells counted from 1. The first part is a convolution; the second is one for
    every half of a block of cells beside the other half, blocks being halved.
    """
    out = convolved(gaps(n, np.arange(n)), values, 0, n)
    full = LEAF << max(0, math.ceil(math.log2(n / LEAF)))
    padded = np.zeros((len(values), full))
    padded[:, :n] = values
    more = np.zeros_like(padded)
    half = full // 2
    while half >= LEAF:
        blocks = padded.reshape(len(values), -1, 2, half)
        first = 2 * half * np.arange(blocks.shape[1])
        # cells counted from 0: i = first + a, j = first + half + b, so i + j + 1 = 2 first + half + 1 + a + b
        kernels = gaps(n, 2 * first[:, None] + half + 1 + np.arange(2 * half - 1))
        found = convolved(kernels, blocks[:, :, 0, ::-1], half - 1, half)
        more.reshape(blocks.shape)[:, :, 1] += found
        half //= 2
    cells = np.arange(full).reshape(-1, LEAF)
    near = gaps(n, cells[:, :, None] + cells[:, None, :] + 1) * np.tri(LEAF, k=-1)
    more += np.einsum("bji,rbi->rbj", near, padded.reshape(len(values), -1, LEAF)).reshape(padded.shape)
    return out + more[:, :n]


def excess(n: int) -> tuple[float, float]:
    """E, the mean over cells of sum over i < j of W_jj |P_ij| (sqrt g_i - sqrt g_j)^2, and a bound on its rounding."""
    root = np.sqrt(prefix_diagonal(n))
    # about their middle: the squares of differences lose fewer digits
    root = root - root.mean()
    held = np.arange(n, 0, -1) / n
    terms = np.stack([root**2, root, np.ones(n)])
    factors = held * np.stack([np.ones(n), -2 * root, root**2])
    found = float((factors * sums_before(n, terms)).sum())
    kernel = gaps(n, np.arange(1, n))
    levels = math.log2(n) + 2
    each = np.linalg.norm(terms, axis=1) * (
        np.linalg.norm(kernel) * np.abs(factors).sum(axis=1) + kernel.sum() * np.linalg.norm(factors, axis=1)
    )
    return found, float(each.sum()) * TRANSFORM * levels * levels


def bracket(n: int) -> tuple[float, float]:
    """What the least error of n prefix sums lies between."""
    low = prefix_bound(n) / math.sqrt(n)
    found, rounding = excess(n)
    return low, math.sqrt(low**2 + found + rounding) * (1 + 4 * n * 2.0**-53)


def main() -> None:
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print(f"limit {limit().str(12)}")
    print(f"{'n':>10}{'singular values':>18}{'below':>10}{'above':>10}{'E':>10}{'rounding':>11}")
    for n in (2**i for i in range(6, most + 1, 2)):
        angle = (2 * np.arange(1, n + 1) - 1) * (math.pi / (4 * n + 2))
        mean, grown = float((0.5 / np.sin(angle)).sum()) / n, math.log(n) / math.pi
        (low, high), (found, rounding) = bracket(n), excess(n)
        shown = f"{mean - grown:18.5f}{low - grown:10.5f}{high - grown:10.5f}{found:10.5f}{rounding:11.1e}"
        print(f"{n:10,}{shown}", flush=True)


if __name__ == "__main__":
    main()
