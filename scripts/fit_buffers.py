"""Writes the tables of src/sfumato/strategies/buffered_toeplitz.py: a CPU-minute.

python scripts/fit_buffers.py
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sfumato.operators.base import FloatArray
from sfumato.strategies.buffered_toeplitz import BUFFERS, SHAPES, Asked, BufferParameters, geometric_blocks, row_scale
from sfumato.strategies.toeplitz import partial_fraction_residues

TARGET = Path(__file__).parents[1] / "src" / "sfumato" / "strategies" / "buffered_toeplitz.py"
ROADS = ((20, 18, 16, 14, 12, 10), (20, 22, 24))
"""Binary logarithms of numbers of cells; each fit starts from the one before."""

ASKED: tuple[Asked, ...] = ("prefixes", "ranges", "largest")


PEAK = 40.0  # the power mean that stands for the largest: within 3 % of it, and smooth
# what squared coefficients and squared differences of gaps cost, so that of parameters that err alike to a part in
# 10^5 the same are found at every n, and lie between those of near ones
SMOOTH, EVEN = 1e-4, 1e-5
WIDEST = 0.3  # of a shape's coefficient: more gains 1e-4 at most, and blocks no longer tell what they average over
STEP = 1e-5  # of central differences: their errors are 1e-10 relative, below what is asked of the optimum
STEPS = 400  # of the search: it ends before by its tolerance


class BlockFilter(NamedTuple):
    """sum_k rate^(t - k) x_k over blocks, for several rates at once: (blocks, ..., rates)."""

    power: FloatArray  # rate^length
    sums: FloatArray  # 1 + rate + ... + rate^(length - 1)
    mean: FloatArray  # sums / length
    rest: FloatArray  # (1 - rate), inverted
    rate: FloatArray

    @classmethod
    def of(cls, logs: FloatArray, lengths: FloatArray) -> BlockFilter:
        long = lengths.reshape(-1, *(1,) * logs.ndim)
        sums = np.expm1(long * logs) / np.expm1(logs)
        return cls(np.exp(long * logs), sums, sums / long, -1 / np.expm1(logs), np.exp(logs))

    def forward(self, values: FloatArray) -> FloatArray:
        """Means over blocks of y_t = sum_(k <= t) rate^(t - k) x_k for x constant on blocks (blocks, ...)."""
        carried = np.zeros_like(self.rate)
        own = self.rate * self.mean
        out = np.empty_like(self.mean)
        for b, x in enumerate(values[..., None]):
            out[b] = x * (1 - own[b]) * self.rest + own[b] * carried
            carried = x * self.sums[b] + self.power[b] * carried
        return out

    def backward(self, values: FloatArray) -> FloatArray:
        """Means over blocks of y_t = sum_(k > t) rate^(k - t - 1) x_k."""
        carried = np.zeros_like(self.rate)
        out = np.empty_like(self.mean)
        for b in range(len(values) - 1, -1, -1):
            x = values[b][..., None]
            out[b] = x * (1 - self.mean[b]) * self.rest + self.mean[b] * carried
            carried = x * self.sums[b] + self.power[b] * carried
        return out


class GeometricBlocks(NamedTuple):
    """n cells in geometric blocks, on which errors of a strategy are read whatever n is."""

    n: int

    def variances(self, given: BufferParameters) -> tuple[FloatArray, FloatArray]:
        """Variances of prefixes, and sums over k of (sum_t g_t(k))^2 / r_k^2, by block: (blocks, ...) each.

        `given` may hold several parameters in rows.
        """
        lengths, middles = geometric_blocks(self.n)
        poles, zeros = given.decays
        first, second = np.triu_indices(poles.shape[-1])
        double = np.where(first == second, 1.0, 2.0)
        outputs, returns = partial_fraction_residues(poles, zeros), -partial_fraction_residues(zeros, poles)
        squares = row_scale(self.n, given.shape, middles) ** 2
        slow, fast = np.log1p(-poles), np.log1p(-zeros)
        pairs = BlockFilter.of(slow[..., first] + slow[..., second], lengths).backward(squares)
        columns = squares + (outputs[..., first] * outputs[..., second] * double * pairs).sum(axis=-1)
        cells = np.sqrt(columns)
        single = BlockFilter.of(fast, lengths)
        ahead = returns * single.backward(cells)
        base = cells - ahead.sum(axis=-1)
        left = (self.n - middles).reshape(-1, *(1,) * (cells.ndim - 1)) * cells
        every = left - (returns * single.backward(left)).sum(axis=-1)
        noise = 1 / squares
        long = lengths.reshape(-1, *(1,) * (cells.ndim - 1))
        steady = noise * base**2
        out = np.cumsum(long * steady, axis=0) - steady * (long - 1) / 2
        out += 2 * (ahead * single.forward(noise * base)).sum(axis=-1)
        pairs = BlockFilter.of(fast[..., first] + fast[..., second], lengths).forward(noise)
        out += (ahead[..., first] * ahead[..., second] * double * pairs).sum(axis=-1)
        return out, noise * every**2

    def error(self, given: BufferParameters, asked: Asked) -> FloatArray:
        """The standard error at unit noise and columns of length 1 of what is asked, about: shape (...)."""
        n, lengths = self.n, geometric_blocks(self.n)[0]
        variances, sums = self.variances(given)
        if asked == "prefixes":
            return np.sqrt(lengths @ variances / n)
        if asked == "ranges":
            return np.sqrt(((n + 1) * (lengths @ variances) - lengths @ sums) / (n * (n + 1) / 2))
        share = (lengths / n + 1 / len(lengths)) / 2
        top = variances.max(axis=0)
        return np.sqrt(top * (share @ (variances / top) ** PEAK) ** (1 / PEAK))


def fit_buffer_parameters(
    n: int, asked: Asked, buffers: int = 8, start: BufferParameters | None = None
) -> BufferParameters:
    """Parameters of least error for n cells: some CPU-seconds, whatever n is. `start` is what is known of a near n."""
    from scipy.optimize import minimize

    geometric = GeometricBlocks(n)
    if start is None:
        gap = np.log((np.log(n) + 2) / (2 * buffers))
        start = BufferParameters(np.append(-np.log(n), np.full(2 * buffers - 1, gap)), np.zeros(SHAPES))
    size = len(start.vector)
    around = np.concatenate([np.zeros((1, size)), STEP * np.eye(size), -STEP * np.eye(size)])

    def value(vector: FloatArray) -> tuple[float, FloatArray]:
        with np.errstate(all="ignore"):
            tried = BufferParameters.of(vector + around)
            found = np.log(geometric.error(tried, asked)) + SMOOTH * (tried.shape**2).sum(axis=-1)
            found += EVEN * (np.diff(tried.gaps[..., 1:]) ** 2).sum(axis=-1)
        if not np.isfinite(found).all():
            return 1e3, np.zeros(size)
        return float(found[0]), (found[1 : size + 1] - found[size + 1 :]) / (2 * STEP)

    done = minimize(
        value,
        start.vector,
        jac=True,
        method="L-BFGS-B",
        bounds=[(None, None)] * (size - SHAPES) + [(-WIDEST, WIDEST)] * SHAPES,
        options={"maxiter": STEPS, "maxcor": 30, "ftol": 1e-11},
    )
    return BufferParameters.of(np.asarray(done.x))


def fitted(asked: Asked) -> dict[int, BufferParameters]:
    """Parameters by the binary logarithm of the number of cells."""
    found: dict[int, BufferParameters] = {}
    for road in ROADS:
        last: BufferParameters | None = None
        for k in road:
            if k not in found:
                found[k] = fit_buffer_parameters(2**k, asked, BUFFERS, last)
            last = found[k]
    return dict(sorted(found.items()))


def lines(found: Mapping[int, BufferParameters]) -> str:
    """Those of a table: per size its binary logarithm, the numbers of buffers, and those of rows."""
    out: list[str] = []
    for k, parameters in found.items():
        numbers = [f"{v:.4f}" for v in parameters.vector]
        out += [" ".join([f"{k}", *numbers[:BUFFERS]]), "  " + " ".join(numbers[BUFFERS:])]
    return "\n".join(out)


def write(target: Path, tables: Mapping[str, str]) -> None:
    """Put tables into a file under their names, each in place of the one that is there."""
    text = target.read_text(encoding="utf-8")
    for name, table in tables.items():
        text, count = re.subn(rf'{name} """.*?"""', f'{name} """\n{table}\n"""', text, flags=re.DOTALL)
        assert count == 1
    target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    start = time.process_time()
    write(TARGET, {f'"{asked}":': lines(fitted(asked)) for asked in ASKED})
    print(f"{time.process_time() - start:.0f} CPU-s")
