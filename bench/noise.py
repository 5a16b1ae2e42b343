"""Speed and memory of the noise samplers: `python bench/noise.py`. One core, CPU seconds, best of five."""

from __future__ import annotations

import gc
import resource
import time
from fractions import Fraction

import numpy as np

from sfumato.privacy.noise import DiscreteGaussian, DiscreteLaplace, NoiseLaw, RoundedGaussian, SystemBits, sampler

DRAWS = 1 << 22
SCALES = (("1/2", Fraction(1, 2)), ("10", 10), ("1000", 1000), ("2^24", 1 << 24), ("2^40", 1 << 40), ("2^55", 1 << 55))


def seconds(work: NoiseLaw, repeat: int = 5) -> float:
    """Least CPU seconds of DRAWS draws."""
    best = float("inf")
    for _ in range(repeat):
        start = time.process_time()
        work.sample(DRAWS)
        best = min(best, time.process_time() - start)
    return best


def peak_megabytes() -> float:
    """Largest resident size so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Print a table of speeds and the memory of a hundred million draws."""
    law = RoundedGaussian(1 << 24)
    law.sample(1000)
    gc.collect()
    before = peak_megabytes()
    start = time.process_time()
    draws = law.sample(100_000_000)
    spent = time.process_time() - start
    above = peak_megabytes() - before - draws.nbytes / 2**20
    print(
        f"1e8 draws at sigma 2^24: {spent:.1f} CPU-s, {above:.0f} MB above the result's {draws.nbytes / 2**20:.0f} MB"
    )
    del draws
    source = SystemBits()
    start = time.process_time()
    for _ in range(64):
        source.words(1 << 16)
    print(f"random words: {(time.process_time() - start) / (1 << 22) * 1e9:.2f} ns each\n")
    print(f"{'law':<18}{'scale':>6}{'table, ms':>11}{'million draws / CPU-s':>24}{'undecided of 1e6':>18}")
    for kind in (RoundedGaussian, DiscreteGaussian, DiscreteLaplace):
        for label, scale in SCALES:
            law = kind(scale)
            sampler.cache_clear()
            start = time.process_time()
            table = sampler(law)
            setup = (time.process_time() - start) * 1e3
            waits = undecided(law) if table.shift else 0.0
            print(f"{kind.__name__:<18}{label:>6}{setup:>11.0f}{DRAWS / seconds(law) / 1e6:>24.0f}{waits:>18.1f}")


def undecided(law: NoiseLaw) -> float:
    """Draws per million that need further bits: the mean gap of the lines, weighted by block."""
    table = sampler(law)
    low, low_slope, high, high_slope = table.lines[:, :-1].astype(np.float64)
    gap = (high - low + (high_slope - low_slope) * 2.0**15) / 2.0**60
    return float((gap * np.diff(table.starts.astype(np.float64))).sum() / 2.0**64 * 1e6)


if __name__ == "__main__":
    main()
