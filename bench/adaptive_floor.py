"""How near one look can come to one-way tables alone where attributes are independent, and what a mixture then loses.

    OPENBLAS_NUM_THREADS=1 python bench/adaptive_floor.py [draws]

The tables and budgets of adaptive_regimes.py, epsilon .1. Where it is known that attributes are independent, all that a
look tells of an attribute's shares u_i is its own table and, as pair (i, j) is u_i u_j', |u_j|^2 times the precision of
each pair: the information is w_i + sum_j W_ij |u_j|^2, and no estimate without bias errs less than Gaussian noise of
that precision. "floor": what such shares err on all pairs, and on all triples where these are asked (none is measured
there), over one-way tables with the whole budget, by the share of the budget that attributes get; nobody who must find
out that attributes are independent does better. "mixture": what adaptive errs on pairs of a mixture with these sizes,
records and budget, so with the same share, over the best of raw, projected and denoised. The bars are 1.10 and 1.05.
"""

from __future__ import annotations

import functools
import itertools
import sys
from unittest import mock

import numpy as np
from adaptive_regimes import Case, Floats, held_of

from sfumato.mechanisms import denoised_pairs as dividing
from sfumato.postprocess.cones import project_onto_simplex
from sfumato.releases.comparing import noisy_pairs, strategy_noise

EPSILON, DRAWS, SHARES = "0.1", 400, (0.32, 0.4, 0.5, 0.6, 0.7, 0.8)


def products(shares: list[Floats], sets: list[tuple[int, ...]]) -> list[Floats]:
    return [functools.reduce(np.multiply.outer, [shares[i] for i in axes]) for axes in sets]


def floors(order: int) -> list[float]:
    held = held_of("independent")
    assert held is not None
    case = Case(held, order, EPSILON)
    noisy = noisy_pairs(case.released(case.adaptive, 0))
    sizes = noisy.stack.sizes.tolist()
    exact = [np.bincount(v, minlength=n) / case.n for v, n in zip(held.values(), sizes, strict=True)]
    squares = np.array([float(((u - 1 / n) ** 2).sum()) for u, n in zip(exact, sizes, strict=True)])
    part = 1 - 1 / np.array(sizes)
    one, pair = noisy.one, noisy.pair
    spent = float(one @ part), float(part @ pair @ part) / 2
    plan = case.plan(1, "marginals")
    alone = case.n**2 / strategy_noise(plan.strategy, plan.noise.variance, range(len(sizes))).variances[1]
    wanted = [alone]
    for share in SHARES:
        a, b = share * sum(spent) / spent[0], (1 - share) * sum(spent) / spent[1]
        wanted.append(a * one + b * pair @ squares)
    random, sets = np.random.default_rng(83), list(itertools.combinations(range(len(sizes)), order))
    # of the drawn records, which are not quite independent
    truth, errors = [t / case.n for t in case.truth], np.zeros(len(wanted))
    for _ in range(DRAWS):
        draws = [random.standard_normal(n) for n in sizes]
        for k, precision in enumerate(wanted):
            found = [
                project_onto_simplex(u + (z - z.mean()) / np.sqrt(w), 1.0)
                for u, z, w in zip(exact, draws, precision.tolist(), strict=True)
            ]
            errors[k] += np.mean([np.abs(a - b).sum() for a, b in zip(products(found, sets), truth, strict=True)])
    return (errors[1:] / errors[0]).tolist()


def lost(share: float, draws: int) -> float:
    held = held_of("mixture")
    assert held is not None
    with mock.patch.object(dividing, "_share_of_ones", return_value=share):
        case = Case(held, 2, EPSILON)
        runs = [case.once(draw, peers=True, records=False, looks=1) for draw in range(draws)]
    means = {k: float(np.mean([r[k] for r in runs])) for k in runs[0]}
    return means["adaptive"] / min(means[k] for k in ("raw", "projected", "denoised"))


def main(draws: int) -> None:
    for share, pairs, triples in zip(SHARES, floors(2), floors(3), strict=True):
        told = f"floor {pairs:.3f}, of triples {triples:.3f}"
        print(f"attributes' share {share:.2f}: {told}; mixture {lost(share, draws):.3f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4)
