"""Projection onto the elliptope: 1- and 2-way parities of binary attributes, against the bound and the exact body.

    OPENBLAS_NUM_THREADS=1 python bench/projection_sdp.py [widths]

CPU seconds of one process (time.process_time), means over seeds 0 to 4. Rows are x = sign(L z + e), L a random d x 5
matrix of normals, z and e normal; "sparse": independent, each true with a probability from .01 to .1; "tree": each
attribute another one's, flipped with a probability from .05 to .3. Noise is Gaussian, of the deviation that the
plan of the same workload gives (replace-one). "widths": Gaussian widths of the bodies that `sf.width` has.
"""

from __future__ import annotations

import math
import sys
import time

import numpy as np
from numpy.typing import NDArray

import sfumato as sf
from sfumato.operators import Dense
from sfumato.postprocess.cones import project_onto_hull
from sfumato.postprocess.correlation import NearestCorrelation, nearest_correlation, product_scale
from sfumato.postprocess.parities import parity_answers, parity_matrix

Floats = NDArray[np.float64]

SEEDS = range(5)
BUDGET = sf.approx(1, 1e-6)


def domain(d: int) -> sf.Domain:
    return sf.Domain({f"a{i}": sf.Booleans() for i in range(d)})


def parity_workload(d: int) -> sf.Workload:
    whole = domain(d)
    asked = dict.fromkeys(whole.names, np.array([[-1, 1]]))
    return sf.marginals(whole, order=1, factors=asked) + sf.marginals(whole, order=2, factors=asked)


def parities(law: str, d: int, n: int, rng: np.random.Generator) -> Floats:
    """(D, D) the parities of n records."""
    if law == "normal":
        x = np.sign(rng.standard_normal((n, 5)) @ rng.standard_normal((d, 5)).T + rng.standard_normal((n, d)))
    elif law == "sparse":
        x = np.where(rng.random((n, d)) < rng.uniform(0.01, 0.1, d), 1.0, -1.0)
    else:
        x = np.where(rng.random((n, d)) < 0.5, 1.0, -1.0)
        for i in range(1, d):
            x[:, i] = x[:, rng.integers(i)] * np.where(rng.random(n) < rng.uniform(0.05, 0.3), -1.0, 1.0)
    y = np.concatenate([np.ones((n, 1)), x], axis=1)
    return y.T @ y / n


def noised(truth: Floats, deviation: Floats | float, rng: np.random.Generator) -> Floats:
    noise = np.triu(deviation * rng.standard_normal(truth.shape), 1)
    return truth + noise + noise.T


def bound(size: int, sigma: float) -> float:
    """A bound on the rmse of projected parities, in shares: the expected squared error is at most E max over Y of
    <noise, Y> [NTZ13], for D = `size` at most sigma D^1.5 (`width`) over all pairs."""
    return min(sigma, math.sqrt(2 * sigma * math.sqrt(size) / (size - 1)))


def width(deviations: Floats) -> float:
    """A bound on E max over correlation matrices Y of sum over i < j of z_ij Y_ij, z_ij of these deviations > 0.

    Where they are s_i s_j the sum is half the trace of G S Y S, at most half the largest eigenvalue of a standard
    Gaussian matrix G, at most 2 sqrt(D) in expectation, times sum s_i^2. Others are raised to that form, as more
    noise makes no smaller maximum.
    """
    off = np.where(np.eye(len(deviations), dtype=bool), 0.0, deviations)
    scale, product = product_scale(off / off.max())
    if not product:
        scale = scale * math.sqrt(float((off / off.max() / np.multiply.outer(scale, scale)).max()))
    return math.sqrt(len(off)) * float(scale @ scale) * float(off.max())


def rmse(first: Floats, second: Floats) -> float:
    return float(np.sqrt(np.mean((first - second)[np.triu_indices(len(first), 1)] ** 2)))


def timed(matrix: Floats, weights: Floats | None = None, *, local: bool = False) -> tuple[NearestCorrelation, float]:
    start = time.process_time()
    found = nearest_correlation(matrix, weights, local=local)
    return found, time.process_time() - start


def flagship(d: int, price: float) -> None:
    """All 1- and 2-way parities."""
    print(f"\nAll {d * (d + 1) // 2:,} parities, d = {d}, (1, 1e-6); error of one record {price:.1f} records")
    print("     n     raw    zero   bound     sdp  +local   gap/moved^2      CPU   CPU local (certified)")
    for n in (1000, 5000, 20_000):
        rows = []
        for seed in SEEDS:
            rng = np.random.default_rng(seed)
            truth = parities("normal", d, n, rng)
            noisy = noised(truth, price / n, rng)
            one, cpu = timed(noisy)
            both, cpu_both = timed(noisy, local=True)
            errors = [rmse(m, truth) for m in (noisy, np.eye(d + 1), one.matrix, both.matrix)]
            gaps = [f.gap / f.moved**2 for f in (one, both)]
            rows.append([*errors, *gaps, cpu, cpu_both, one.certified + both.certified])
        raw, zero, alone, local, gap, gap_local, cpu, cpu_local, good = np.mean(rows, axis=0)
        print(
            f"{n:6} {raw:7.4f} {zero:7.4f} {bound(d + 1, price / n):7.4f} {alone:7.5f} {local:7.5f} "
            f"{gap:.1e} {gap_local:.1e} {cpu:7.3f} {cpu_local:7.2f} {good / 2:.0%}"
        )


def tables(d: int) -> None:
    """All 2-way tables, measured by their residuals, projected in the norm of their noise and in that of the cells."""
    work = sf.marginals(domain(d), order=2)
    plan = sf.plan(work, BUDGET, neighbours="replace-one", mechanism="marginals", objective="cells")
    names, half = work.domain.names, np.array([[-1, 1]])
    single = sf.marginals(work.domain, sets=[names[:1]], factors={names[0]: half})
    double = sf.marginals(work.domain, sets=[names[:2]], factors=dict.fromkeys(names[:2], half))
    first, second = (math.sqrt(float(plan.covariance(q)[0, 0])) for q in (single, double))
    print(f"\nAll 2-way tables, d = {d}: plan {plan.rmse:.1f} a cell; parities {first:.1f} and {second:.1f}")
    print("law         n     raw  bound  noise's norm  cells' norm  local, noise's norm      CPU  (local)")
    deviation = np.full((d + 1, d + 1), second)
    deviation[0, 1:] = deviation[1:, 0] = first
    for law in ("normal", "sparse"):
        for n in (1000, 5000):
            rows = []
            for seed in SEEDS:
                rng = np.random.default_rng(seed)
                truth = parities(law, d, n, rng)
                noisy = noised(truth, deviation / n, rng)
                answers = parity_answers(work, truth, n)
                cells, weight = parity_matrix(work, parity_answers(work, noisy, n), n)
                own, cpu = timed(noisy, 1 / deviation**2)
                other, _ = timed(cells, weight)
                both, cpu_both = timed(noisy, 1 / deviation**2, local=True)
                found = [noisy, own.matrix, other.matrix, both.matrix]
                errors = [float(np.sqrt(np.mean((parity_answers(work, m, n) - answers) ** 2))) / n for m in found]
                rows.append([*errors, cpu, cpu_both])
            # the noise of a table's cells, spread over parities: what one of a parity is worth, times its deviation
            most = math.sqrt(width(weight / n * deviation) / work.shape[0]) / n
            raw, *errors, cpu, cpu_both = np.mean(rows, axis=0)
            print(f"{law:7} {n:5} {raw:7.4f} {most:6.4f} " + " ".join(f"{e:12.4f}" for e in errors), end="")
            print(f" {cpu:12.3f} {cpu_both:7.2f}")


def exact(matrix: Floats) -> Floats:
    """The projection onto the cut polytope, every corner listed."""
    d = len(matrix) - 1
    y = np.where((np.arange(2**d)[:, None] >> np.arange(d)) & 1, 1.0, -1.0)
    y = np.concatenate([np.ones((2**d, 1)), y], axis=1)
    pairs = np.triu_indices(d + 1, 1)
    found = project_onto_hull(Dense(y[:, pairs[0]].T * y[:, pairs[1]].T), matrix[pairs], 1.0, tolerance=1e-6)
    return (y.T * found.cells) @ y


def small() -> None:
    """d = 10 and 14: what the larger bodies leave over the exact one."""
    print("\n d     n    rho  law     sigma   noisy    clip     sdp  +local   exact")
    for d, n, rho, law in (
        (10, 100, 0.05, "tree"),
        (10, 500, 0.005, "sparse"),
        (10, 2000, 0.005, "sparse"),
        (14, 100, 0.05, "tree"),
        (14, 500, 0.005, "sparse"),
        (14, 2000, 0.005, "sparse"),
    ):
        size = d + 1
        sigma = math.sqrt((size**2 - size % 2) / (2 * rho)) / n
        rows = []
        for seed in SEEDS:
            rng = np.random.default_rng(seed)
            truth = parities(law, d, n, rng)
            noisy = noised(truth, sigma, rng)
            bodies = (
                noisy,
                np.clip(noisy, -1, 1),
                nearest_correlation(noisy).matrix,
                nearest_correlation(noisy, local=True).matrix,
            )
            rows.append([rmse(m, truth) for m in (*bodies, exact(noisy))])
        print(f"{d:2} {n:5} {rho:6} {law:7} {sigma:6.3f} " + " ".join(f"{v:7.4f}" for v in np.mean(rows, axis=0)))


def widths() -> None:
    """Of every body that holds all pairs of five yes-no attributes: the mean of the same 200 directions."""
    asked = sf.marginals(domain(5), order=2)
    for body in ("hull", "sdp+local", "local", "sdp"):
        print(f"{body:10} {sf.width(asked, body, draws=200)}")


def main() -> None:
    if "widths" in sys.argv[1:]:
        widths()
        return
    small()
    tables(200)
    plan = sf.plan(parity_workload(200), BUDGET, neighbours="replace-one", mechanism="marginals", objective="cells")
    flagship(200, plan.rmse)


if __name__ == "__main__":
    main()
