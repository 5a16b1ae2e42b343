"""How near `sf.choose_rows` comes to the best number of rows of a person, known in hindsight.

    OPENBLAS_NUM_THREADS=1 python bench/choose_rows.py [looks, 20 by default] [seed, 162 by default]

Three drawn tables at three budgets: visits (gamma mixtures, 6 a person on average), purchases (Pareto numbers up to
2,000, most of them in few of 40 cells), diaries (7 a person at most). The mean squared error of the tables asked, noise
and rows left out together, with what the look leaves of the budget, over that of the best fixed number with the whole
budget; and the same for numbers that somebody might have taken without looking.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pandas as pd

import sfumato as sf

MOST = 64


def drawn(rng: np.random.Generator) -> Iterator[tuple[str, pd.DataFrame, sf.Workload]]:
    """Tables of 20,000 persons, and what is asked of them."""
    persons = 20_000
    for name, numbers, cells in [
        ("visits", rng.poisson(rng.gamma(2, 3, persons)), np.full(24, 1 / 24)),
        ("purchases", np.minimum(rng.pareto(1.2, persons) + 1, 2_000).astype(int), 1 / np.arange(1, 41) ** 1.3),
        ("diaries", rng.binomial(7, 0.7, persons), np.full(10, 0.1)),
    ]:
        who = np.repeat(np.arange(persons), numbers)
        frame = pd.DataFrame({"who": who, "cell": rng.choice(len(cells), len(who), p=cells / cells.sum())})
        domain = sf.Domain({"cell": sf.Integers(0, len(cells) - 1, outside="other", missing="other")})
        yield name, frame, sf.marginals(domain, order=1)


def errors(frame: pd.DataFrame, work: sf.Workload, budget: sf.Budget, rng: np.random.Generator) -> np.ndarray:
    """(MOST,) the mean squared error of every number of rows, from 1: noise, and what is left out."""
    mixed = frame.sample(frac=1, random_state=rng.integers(2**32))
    rank = mixed.groupby("who").cumcount().to_numpy()
    size = work.shape[0]
    left = np.array([np.bincount(mixed["cell"][rank >= r], minlength=size) for r in range(1, MOST + 1)])
    plan = sf.plan(work, budget, neighbours="add-remove", person="who", rows_per_person=MOST)
    noise = plan.rmse**2 * (np.arange(1, MOST + 1) / MOST) ** 2
    return noise + np.square(left).mean(axis=1)


def main(looks: str = "20", seed: str = "162") -> None:
    """Print a line for each table and budget."""
    rng = np.random.default_rng(int(seed))
    ratios = []
    for name, frame, work in drawn(rng):
        for rho in ("0.005", "0.05", "0.5"):
            whole, rest = (sf.zcdp(rho), errors(frame, work, sf.zcdp(float(rho) * 0.95), rng))
            best = errors(frame, work, whole, rng)
            most = sf.plan(work, whole, neighbours="add-remove", person="who", rows_per_person=MOST)
            chosen = [sf.choose_rows(most, frame, ledger=None).unit.rows_per_person for _ in range(int(looks))]
            found = np.mean(rest[np.array(chosen) - 1]) / best.min()
            ratios.append(found)
            blind = ", ".join(f"{r}: {best[r - 1] / best.min():.2f}" for r in (1, 4, 16, 64))
            print(
                f"{name:9} rho {rho:5} best {best.argmin() + 1:2} rows, chosen {min(chosen)} to {max(chosen)}: squared "
                f"error {found:.3f} of that of the best; unseen {blind}",
                flush=True,
            )
    print(f"mean {np.mean(ratios):.3f}, worst {max(ratios):.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
