"""The samplers: exact by enumeration where that is possible, and by goodness of fit over all.

Every statistical check here has a false alarm of at most ALPHA; there are fewer than 60, 6e-10 in all.
"""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2, norm
from tests.support.insecure_bits import InsecureTestBits, ScriptedTestBits

from sfumato.errors import InvalidInput
from sfumato.plans.predictions import noise_cdf, noise_quantile
from sfumato.privacy.amounts import exp_bounds, normal_cdf_bounds
from sfumato.privacy.noise import (
    LINE_BITS,
    ROUND,
    DiscreteGaussian,
    DiscreteLaplace,
    NoiseLaw,
    RoundedGaussian,
    Sampler,
    SystemBits,
    sampler,
)
from support.moments import excess_kurtosis

ALPHA = 1e-11
ONES = (1 << 64) - 1
LAWS = (RoundedGaussian, DiscreteGaussian, DiscreteLaplace)
SCALES = (Fraction(1, 2), Fraction(3), Fraction(10), Fraction(1000), Fraction(2**24), Fraction(2**40))
WIDE = (RoundedGaussian(300), RoundedGaussian(Fraction(2**24) / 3), DiscreteGaussian(1000), DiscreteLaplace(2**24))
WIDEST = (RoundedGaussian(2**55), DiscreteLaplace(2**55))


def p_value(draws: NDArray[np.int64], law: NoiseLaw) -> float:
    """Of the chi-square statistic over up to 70 bins, thinner outwards, each with 50 draws or more expected."""
    n = draws.size
    thin = [50 / n * 4**i for i in range(4)]
    inner = np.linspace(2 * thin[-1], 1 - 2 * thin[-1], 60).tolist()
    cuts: list[float] = []
    reached = [0.0]
    for cut in sorted({noise_quantile(law, p) for p in (*thin, *inner, *(1 - p for p in thin))}):
        below = noise_cdf(law, cut)
        if min(below - reached[-1], 1 - below) * n >= 50:
            cuts.append(cut)
            reached.append(below)
    expected = np.diff([*reached, 1]) * n
    counts = np.bincount(np.searchsorted(cuts, draws, side="left"), minlength=expected.size)
    return float(chi2.sf((((counts - expected) ** 2) / expected).sum(), expected.size - 1))


def mass_bounds(law: NoiseLaw, k: int) -> tuple[Fraction, Fraction]:
    """Bounds of the law's weight, by rational arithmetic of its own."""
    if isinstance(law, RoundedGaussian):
        outer, inner = (normal_cdf_bounds(Fraction(-2 * abs(k) + side, 2) / law.sigma, 300) for side in (-1, 1))
        return 2 * (inner[0] - outer[1]), 2 * (inner[1] - outer[0])
    if isinstance(law, DiscreteGaussian):
        return exp_bounds(-Fraction(k * k, 2) / law.sigma**2, 300)
    assert isinstance(law, DiscreteLaplace)
    return exp_bounds(-Fraction(abs(k)) / law.scale, 300)


def floor_mass(law: NoiseLaw, k: int, factor: Fraction) -> int:
    """floor(factor * weight(k)), certain."""
    low, high = ((factor * bound).__floor__() for bound in mass_bounds(law, k))
    assert low == high
    return low


def one_draw(table: Sampler, script: list[int], rest: int) -> tuple[int | None, int]:
    """What one proposal gives (None when refused), and the number of words beyond the script."""
    out = np.zeros(1, dtype=np.int64)
    source = ScriptedTestBits(script, rest)
    kept = table._fill(out, source)
    return (int(out[0]) if kept else None), source.overdrawn


# -- goodness of fit ------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", SCALES, ids=str)
@pytest.mark.parametrize("kind", LAWS)
def test_a_million_draws_fit(kind: type[NoiseLaw], scale: Fraction) -> None:
    """Mutants: sigma for variance; numpy's normal; the block's word reused for the offset."""
    law = kind(scale)
    draws = law.sample(1_000_000)
    assert p_value(draws, law) > ALPHA
    if scale >= 1000:
        low_bits = np.bincount(draws & 63, minlength=64)
        assert chi2.sf(((low_bits - 15625) ** 2 / 15625).sum(), 63) > ALPHA
    assert p_value(draws, kind(scale * 21 / 20)) < 1e-30


@pytest.mark.parametrize("law", [RoundedGaussian(3), DiscreteLaplace(5), *WIDE], ids=repr)
def test_forced_slow_path_fits(law: NoiseLaw) -> None:
    """Every proposal is resolved bit by bit, and the law stays. Mutant: it compares with the block's maximum."""
    table = sampler(law, guard=1 << (LINE_BITS if sampler(law).shift else 64))
    assert (table.lines[0, :-1] < 0).all() if table.shift else not table.decided.any()
    assert (table.lines[2] > 1 << LINE_BITS).all()
    draws = table.draw(20_000, SystemBits())
    assert p_value(draws, law) > ALPHA


@pytest.mark.parametrize(
    ("law", "bits"),
    [
        (RoundedGaussian(8), 8),
        (DiscreteGaussian(Fraction(25, 3)), 9),
        (DiscreteLaplace(2), 8),
        (DiscreteLaplace(300), 13),
    ],
    ids=repr,
)
def test_coarse_words_fit(law: NoiseLaw, bits: int) -> None:
    """Short words make the tail and the undecided cells common.

    Mutants: a tail with one sign; tail steps of another probability; an accept rule that forgets the sign's
    factor 2 or the height of the tail; the exact comparison off by one.
    """
    draws = sampler(law, bits=bits).draw(60_000, SystemBits())
    table = sampler(law, bits=bits)
    assert (np.abs(draws) > table.half << table.shift).sum() > 100
    assert p_value(draws, law) > ALPHA


def test_acceptance_inside_blocks() -> None:
    """The inner half of a block is likelier by 1 in 250. Mutant: offsets accepted without a comparison."""
    law = DiscreteLaplace(2**24)
    half_width = 1 << sampler(law).shift - 1
    inner = 0
    for _ in range(10):
        draws = law.sample(4_000_000)
        inner += int(((draws ^ (draws >> 63)) & half_width == 0).sum())
    probability = 1 / (1 + np.exp(-half_width / 2**24))
    z = (inner - 4e7 * probability) / np.sqrt(4e7 * probability * (1 - probability))
    assert abs(z) < -norm.ppf(ALPHA / 2)


def spread_matches(draws: NDArray[np.int64], law: NoiseLaw) -> bool:
    """Whether the sample variance is the law's, at a false alarm of 1e-11, for 20,000 draws."""
    ratio = float((draws.astype(float) ** 2).mean()) / law.variance
    width = 7.5 * np.sqrt((excess_kurtosis(law) + 2) / draws.size)
    return bool(abs(ratio - 1) < width)


@pytest.mark.parametrize("kind", LAWS)
@pytest.mark.parametrize("scale", [10, 2**24])
def test_variance_is_two_sided(kind: type[NoiseLaw], scale: int) -> None:
    """Mutant: a scale off by a factor 0.7 or 1.3."""
    law = kind(scale)
    assert spread_matches(law.sample(20_000), law)
    for factor in (Fraction(7, 10), Fraction(13, 10)):
        assert not spread_matches(kind(factor * scale).sample(20_000), law)


@pytest.mark.parametrize("law", [RoundedGaussian(10), RoundedGaussian(2**24)], ids=repr)
def test_draws_are_independent(law: NoiseLaw) -> None:
    """Mutants: words reused between rounds; one offset word for two draws."""
    raw = law.sample(8 * ROUND)
    draws = raw / np.sqrt(law.variance)
    low_bit = (raw & 1) - 0.5
    for lag in (1, 2, ROUND):
        for values in (draws, draws**2 - 1, low_bit):
            z = (values[lag:] * values[:-lag]).mean() / (values**2).mean() * np.sqrt(draws.size - lag)
            assert abs(z) < 8


# -- exactness, by enumeration --------------------------------------------------------------------


@pytest.mark.parametrize("law", [RoundedGaussian(10), DiscreteGaussian(3), DiscreteLaplace(Fraction(5, 2))], ids=repr)
def test_every_word_of_a_14_bit_table(law: NoiseLaw) -> None:
    """Each value is decided by exactly floor(unit * weight) words; one more needs bits and can go either way.

    Mutants: the table rounded up instead of down; rounded to nearest; refused draws replaced by earlier ones.
    """
    table = sampler(law, bits=14)
    words = range(0, 1 << 64, 1 << 50)
    counts: dict[int, tuple[int, int]] = {}
    for rest in (1, ONES):  # further bits that accept (nearly) always, and never
        out = np.zeros(1 << 14, dtype=np.int64)
        kept = table._fill(out, ScriptedTestBits(words, rest))
        values, times = np.unique(out[:kept], return_counts=True)
        for k, count in zip(values.tolist(), times.tolist(), strict=True):
            low, high = counts.get(k, (0, 0))
            counts[k] = (count, high) if rest == ONES else (low, count)
    body = range(-table.half, table.half)
    for k in body:
        expected = floor_mass(law, k, table.unit)
        assert counts.get(k, (0, 0)) == (expected, expected + 1)
    # with these bits all of the tail's words give one value
    tail = {k: count for k, count in counts.items() if k not in body}
    assert tail == {~table.half: (0, table.height(2 * table.half))}
    assert sum(high for _, high in counts.values()) == 1 << 14


@pytest.mark.parametrize("law", [RoundedGaussian(10), DiscreteLaplace(100), RoundedGaussian(3)], ids=repr)
def test_words_at_every_boundary(law: NoiseLaw) -> None:
    """Mutants: the table searched as float64, where 64-bit boundaries are off by up to 2^11; guide cells that
    straddle a boundary."""
    table = sampler(law)
    starts = [int(start) for start in table.starts[:-1]]
    script: list[int] = []
    for i, start in enumerate(starts):
        decided = floor_mass(law, i - table.half, table.unit)
        assert table.height(i) == decided + 1
        script += [start, start + decided - 1]
        assert one_draw(table, [start + decided], ONES)[0] is None
        assert one_draw(table, [start + decided], 0)[0] == i - table.half
    out = np.zeros(len(script), dtype=np.int64)
    source = ScriptedTestBits(script)
    assert table._fill(out, source) == len(script)
    assert source.overdrawn == 0
    assert out.tolist() == [i // 2 - table.half for i in range(len(script))]


@pytest.mark.parametrize("law", [*WIDE, *WIDEST], ids=repr)
def test_acceptance_is_exact_in_blocks(law: NoiseLaw) -> None:
    """The acceptance number is compared with the true probability to the last bit, and at once when not close.

    Mutants: lines without slack; low bits shared by offset and acceptance; a height below the block's maximum;
    the density for the integral; slopes of the wrong sign for negative blocks.
    """
    table = sampler(law)
    width = 1 << table.shift
    known = 64 - table.shift
    for b in (0, -1, 1, -2, 40, -41, table.half // 3, table.half - 1, -table.half):
        first = int(table.starts[b + table.half])
        factor = table.unit * width / table.height(b + table.half) * (1 << known)
        for offset in sorted({0, 1, width // 3, width // 2, width - 1}):
            k = b * width + offset
            threshold = floor_mass(law, k, factor)
            assert threshold < 1 << known
            cases = [(threshold - 1, ONES, k), (threshold, ONES, None), (threshold, 0, k), (threshold + 1, 0, None)]
            for prefix, rest, expected in cases:
                if prefix < 1 << known:
                    assert one_draw(table, [first, prefix << table.shift | offset], rest)[0] == expected
            clear = (1 << known) // 500 + 2
            assert one_draw(table, [first, max(0, threshold - clear) << table.shift | offset], ONES) == (k, 0)
            if threshold + clear < 1 << known:
                assert one_draw(table, [first, threshold + clear << table.shift | offset], 0) == (None, 0)


@pytest.mark.parametrize("law", WIDE, ids=repr)
def test_lines_enclose_the_acceptance_probability(law: NoiseLaw) -> None:
    """Mutants: the sag below the chord forgotten; the upper line taken below it."""
    table = sampler(law)
    width = 1 << table.shift
    for i in range(0, 2 * table.half, max(1, table.half // 25)):
        factor = table.unit * width / table.height(i) * (1 << 60)
        for offset in {width * part // 16 for part in range(16)} | {width - 1}:
            low, low_slope, high, high_slope = (int(entry) for entry in table.lines[:, i])
            least, most = (factor * bound for bound in mass_bounds(law, (i - table.half) * width + offset))
            place = (offset << 16) >> table.shift
            assert low + low_slope * place <= least <= most <= high + high_slope * place
            assert high + high_slope * place - low - low_slope * place < 2**60 // 1000 * 2


# -- support, sources, processes ------------------------------------------------------------------


@pytest.mark.parametrize("law", [kind(scale) for kind in LAWS for scale in (3, 1000, 2**40)], ids=repr)
@pytest.mark.parametrize("step", [0, 70, 200])
@pytest.mark.parametrize("sign", [0, 1])
def test_support_has_no_end(law: NoiseLaw, step: int, sign: int) -> None:
    """The tail reaches past 12 sigma on both sides. Mutant: draws beyond the table are redrawn."""
    table = sampler(law)
    geometric = [0] * (step // 64) + [1 << step % 64]
    body = [ONES, 0] if table.shift else [ONES]
    value, _ = one_draw(table, [*body, *geometric, sign, 1 << 63], 0)
    reached = (table.half << table.shift) + (step << table.tail_shift) + ((1 << table.tail_shift) >> 1)
    assert value == (~reached if sign else reached)
    if step:
        assert reached > 12 * np.sqrt(law.variance)
    assert one_draw(table, [*body, *geometric, sign, 1 << 63], ONES)[0] is None


def test_values_beyond_int64_wrap() -> None:
    """Mutant: an OverflowError, which would tell the analyst something about the noise."""
    table = sampler(DiscreteLaplace(2**55))
    value, _ = one_draw(table, [ONES, 0, *([0] * 7), 1 << 60, 0, 0], 0)
    exact = (table.half << table.shift) + ((7 * 64 + 60) << table.tail_shift)
    assert exact >= 1 << 63
    assert value == (exact + (1 << 63)) % (1 << 64) - (1 << 63)


@pytest.mark.parametrize("law", [RoundedGaussian(10), DiscreteLaplace(1000)], ids=repr)
def test_all_randomness_comes_from_the_source(law: NoiseLaw) -> None:
    """Mutants: numpy noise; a fixed seed for the system's bits."""
    first, again, other = (law.sample(1000, InsecureTestBits(seed)) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()
    assert (law.sample(1000) != law.sample(1000)).any()


def test_too_few_bits_are_refused() -> None:
    """Mutant: a table whose heights wrap."""
    with pytest.raises(InvalidInput, match="too few"):
        sampler(RoundedGaussian(100), bits=6)


FORK = """
import os
from sfumato.privacy.noise import RoundedGaussian
law = RoundedGaussian(2**30)
law.sample(10)
read, write = os.pipe()
child = os.fork()
if child == 0:
    os.write(write, law.sample(100).tobytes())
    os._exit(0)
mine = law.sample(100).tobytes()
os.waitpid(child, 0)
theirs = os.read(read, 1 << 16)
assert len(theirs) == len(mine) == 800
values = [{data[i : i + 8] for i in range(0, 800, 8)} for data in (mine, theirs)]
assert len(values[0] & values[1]) < 3, "parent and child drew the same noise"
"""


def test_fork_separates_parent_and_child() -> None:
    """Mutant: a generator or a buffer of words shared across fork."""
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
