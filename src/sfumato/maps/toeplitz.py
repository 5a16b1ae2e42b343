"""Lower-triangular Toeplitz maps, applied by convolutions of integers modulo 2^64.

The convolutions are exact: floating-point transforms whose error is proved below 1/4.

Let u = 2^-53 and N = 2^L the length of the transform. In the 2-norm a fast Fourier transform errs by at most
L eta relative, with eta = mu + 4 u (sqrt 2 + mu) / (1 - 4 u) for twiddle factors that err by mu [Hig02, Theorem
24.2]; a pass of radix 4 or 8 counts as the two or three passes of radix 2 that it joins. ETA = 16 u is more than
twice what correctly rounded twiddle factors need. For a kernel c whose computed transform is at most M' in size
let M = M' + L eta sqrt(N) |c|_2, which bounds the true transform too. The circular convolution of c and y then
errs in every entry by at most

    L eta M |y|_2        through the transform of y,
  + L eta |c|_2 |y|_2    through the transform of c (an inverse transform is at most the 1-norm over N),
  + L eta M |y|_2        in the inverse transform, and 5 u M |y|_2 in the products,

and by at most 1.01 times their sum with all terms of higher order. Both factors are cut into limbs, those of y
so short that this sum is at most 1/4 whatever y is; then each entry, rounded to the nearest integer, is exact.
N is at least twice the length of the operands, so nothing wraps around.

What is transformed is the kernel's differences c_k - c_(k-1); the integer sums of the result, taken modulo 2^64,
are those of the kernel itself. A slowly falling kernel has a large transform at low frequencies alone, which its
differences have not, so longer limbs do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sfumato._util.codec import deferred_field, storable
from sfumato.errors import WorkloadError
from sfumato.maps.base import INT64, FloatArray, IntArray, Map, Numbers, own_array

ETA = 16 * 2.0**-53  # of the roundings of one pass: derived in the docstring above, and more than it
_KERNEL_BITS = 18  # of a limb: any split is exact, as those of the values are made short enough by the proof above
_ERROR = 0.25  # what an entry may err by, half of what rounding to the nearest integer allows


def fft_length(n: int) -> int:
    return 1 << max(1, (2 * n - 1).bit_length())


@dataclass(frozen=True, slots=True)
class _Limb:
    """One limb of a kernel: its transform, its weight 2^shift, and M and |c|_2 of the proof."""

    transform: Numbers
    shift: int
    peak: float
    norm: float


def _kernel_limbs(kernel: Numbers, size: int) -> list[_Limb]:
    bits = max(1, int(np.abs(kernel).max(initial=0)).bit_length() + 1)
    count = -(-bits // _KERNEL_BITS)
    width = -(-bits // count)
    out: list[_Limb] = []
    for shift, values in enumerate(_balanced_digits(kernel, width, count + 1)):
        if not values.any():
            continue
        transform = np.fft.rfft(values, size)
        norm = math.sqrt(float(values @ values)) * (1 + 1e-9)
        peak = float(np.abs(transform).max()) * (1 + 1e-9)
        peak += (size.bit_length() - 1) * ETA * math.sqrt(size) * norm
        out.append(_Limb(transform, shift * width, peak, norm))
    return out


def _balanced_digits(values: Numbers, width: int, count: int) -> list[FloatArray]:
    """Signed digits in base 2^width, least first, each within 2^(width - 1); what is left after `count` is dropped.

    Modulo 2^64 nothing is lost where count * width >= 64; else nothing where values fit.
    """
    half, base = 1 << (width - 1), 1 << width
    rest = values
    out: list[FloatArray] = []
    for _ in range(count):
        digit = (rest & (base - 1)).astype(np.int64)
        digit[digit >= half] -= base
        out.append(digit.astype(np.float64))
        # rest - digit is a multiple of the base, so the shift is exact; it may wrap past 2^63 by one digit alone
        rest = (rest >> width) + (digit < 0)
    return out


def _largest_digit_width(limbs: list[_Limb], n: int, size: int) -> int:
    """The largest number of bits of a digit of y for which the proved error is at most 1/4."""
    levels = size.bit_length() - 1
    worst = max((levels * ETA * (2 * k.peak + k.norm) + 5 * 2.0**-53 * k.peak for k in limbs), default=0.0)
    room = _ERROR / max(1.01 * worst * math.sqrt(n), 2.0**-20)
    width = math.floor(math.log2(room)) + 1
    if width < 2:
        raise WorkloadError(f"an exact convolution of {n:,} numbers is beyond double precision")
    return min(width, 16)


def causal_exact(kernel: Numbers, vectors: Numbers, bits: int = 64) -> Numbers:
    """sum_j kernel_j vectors_(i-j) modulo 2^64 along the last axis, for i below its length n; int64 throughout.

    kernel (n,) below 2^62 in size; vectors (..., n) any int64, or of at most `bits` bits with sign where that is
    known in public. The work depends on shapes, the kernel and `bits` alone. Proof of exactness: see the module.
    """
    n = vectors.shape[-1]
    size = fft_length(n)
    limbs = _kernel_limbs(np.diff(kernel[:n], prepend=0), size)
    out = np.zeros(vectors.shape, dtype=np.int64)
    if not limbs:
        return out
    width = _largest_digit_width(limbs, n, size)
    count = -(-64 // width) if bits >= 64 else bits // width + 1
    for i, digits in enumerate(_balanced_digits(vectors, width, count)):
        transform = np.fft.rfft(digits, size, axis=-1)
        for limb in limbs:
            shift = i * width + limb.shift
            if shift < 64:
                part = np.fft.irfft(transform * limb.transform, size, axis=-1)[..., :n]
                out += np.rint(part).astype(np.int64) << shift
    return np.cumsum(out, axis=-1, dtype=np.int64)


@storable
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ToeplitzMap(Map):
    """Entry (i, j) is multiples_i coefficients_(i - j) columns_j for j <= i and 0 above: (n, n).

    Multiples of rows and of columns are not negative, and those of columns 1 where none are given. Raises WorkloadError
    where a column's sum of squares could reach 2^63 before its own multiple.
    """

    coefficients: IntArray
    multiples: IntArray
    column_multiples: IntArray | None = deferred_field(None)  # noqa: RUF009  (as dataclasses.field is)

    def __post_init__(self) -> None:
        for name in ("coefficients", "multiples", "column_multiples")[: 2 if self.column_multiples is None else 3]:
            object.__setattr__(self, name, own_array(getattr(self, name), name))
        c, m = self.coefficients, self.multiples
        w = m if self.column_multiples is None else self.column_multiples
        if c.ndim != 1 or not c.shape == m.shape == w.shape or not c.size or min(int(m.min()), int(w.min())) < 0:
            raise WorkloadError("a Toeplitz map has one coefficient and multiples of at least 0 per row and column")
        if int(np.abs(c).max()) ** 2 * len(c) >= INT64 or int((c**2).sum()) * int(m.max()) ** 2 >= INT64:
            raise WorkloadError("the entries of a Toeplitz map are too large for exact column sums")

    @property
    def shape(self) -> tuple[int, int]:
        return (len(self.multiples), len(self.multiples))

    @property
    def nonnegative(self) -> bool:
        return int(self.coefficients.min()) >= 0

    def apply(self, vectors: Numbers) -> Numbers:
        own = vectors if self.column_multiples is None else vectors * self.column_multiples[:, None]
        return np.ascontiguousarray((causal_exact(self.coefficients, own.T) * self.multiples).T)

    def entries(self) -> Numbers:
        back = np.arange(len(self.multiples))[:, None] - np.arange(len(self.multiples))
        own = np.where(back < 0, 0, self.coefficients[back]) * self.multiples[:, None]
        return own if self.column_multiples is None else own * self.column_multiples

    def column_sums(self, power: int) -> Numbers:
        # below 2^63 by construction, so exact modulo 2^64 is exact; L1 sums are below the squared ones; the columns'
        # own multiples are of Python's integers
        weights = (self.multiples**power)[::-1]
        bits = int(weights.max()).bit_length() + 1
        sums = causal_exact(np.abs(self.coefficients) ** power, weights, bits)[::-1].astype(object)
        return sums if self.column_multiples is None else sums * self.column_multiples.astype(object) ** power
