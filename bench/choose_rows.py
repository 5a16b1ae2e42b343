"""How near `sf.choose_rows` comes to the best number of rows of a person, known in hindsight.

    OPENBLAS_NUM_THREADS=1 python bench/choose_rows.py [looks, 20 by default] [seed, 162 by default, or foreign]
    OPENBLAS_NUM_THREADS=1 python bench/choose_rows.py floor [seed]

Three drawn tables at three budgets: visits (gamma mixtures, 6 a person on average), purchases (Pareto numbers up to
2,000, most of them in few of 40 cells), diaries (7 a person at most). The mean squared error of the tables asked, noise
and rows left out together, with what the look leaves of the budget, over that of the best fixed number with the whole
budget; and the same for numbers that somebody might have taken without looking. foreign: purchases at CDNOW by month,
and by how many discs, and of another shop by month (files of the package lifetimes; pip install it, or put its wheel
unpacked on the path).

floor: what no look can do. Two tables that differ by j persons are j mu-GDP apart for whatever look mu-GDP pays for. Of
such pairs (all who have more than some number of rows taken out; persons with as many rows as are compared put in) the
one where the larger of both mean ratios is at least most, by the best test and the best numbers to answer it with.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import norm

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


def foreign() -> Iterator[tuple[str, pd.DataFrame, sf.Workload]]:
    """Purchases of 23,570 customers in eighteen months, up to 217 of one; and of another shop's."""
    found = importlib.util.find_spec("lifetimes")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("pip install lifetimes")
    path = Path(found.submodule_search_locations[0]) / "datasets" / "CDNOW_master.txt"
    frame = pd.read_csv(path, sep=r"\s+", names=["who", "day", "discs", "paid"], skiprows=1, dtype={"day": str})
    months = (frame["day"].str[:4].astype(int) - 1997) * 12 + frame["day"].str[4:6].astype(int) - 1
    for name, cells, size in (("months", months, 18), ("discs", frame["discs"].clip(1, 12) - 1, 12)):
        domain = sf.Domain({"cell": sf.Integers(0, size - 1, outside="other", missing="other")})
        yield name, frame[["who"]].assign(cell=cells), sf.marginals(domain, order=1)
    frame = pd.read_csv(path.with_name("example_transactions.csv"), parse_dates=["date"])
    months = ((frame["date"].dt.year - 2014) * 12 + frame["date"].dt.month - 1).clip(0, 17)
    domain = sf.Domain({"cell": sf.Integers(0, 17, outside="other", missing="other")})
    yield "another", pd.DataFrame({"who": frame["id"], "cell": months}), sf.marginals(domain, order=1)


def errors(frame: pd.DataFrame, work: sf.Workload, budget: sf.Budget, rng: np.random.Generator) -> np.ndarray:
    """(MOST,) the mean squared error of every number of rows, from 1: noise, and what is left out."""
    mixed = frame.sample(frac=1, random_state=rng.integers(2**32))
    rank = mixed.groupby("who").cumcount().to_numpy()
    size = work.shape[0]
    left = np.array([np.bincount(mixed["cell"][rank >= r], minlength=size) for r in range(1, MOST + 1)])
    plan = sf.plan(work, budget, neighbours="add-remove", person="who", rows_per_person=MOST)
    noise = plan.rmse**2 * (np.arange(1, MOST + 1) / MOST) ** 2
    return noise + np.square(left).mean(axis=1)


def least_ratio(one: np.ndarray, other: np.ndarray, noise: np.ndarray, spread: float, apart: float) -> float:
    """The least that the larger of two tables' mean ratios can be, by numbers of rows of persons; see `floor`."""
    counted = np.arange(1, MOST + 1)[:, None]
    losses = [noise + spread * np.maximum(n - counted, 0).sum(axis=1, dtype=float) ** 2 for n in (one, other)]
    ratios = [loss / loss.min() for loss in losses]
    # in steps so small that the third digit stays
    edges = np.concatenate([[-np.inf], np.linspace(-3, apart + 3, 400), [np.inf]])
    one_has, other_has = (np.diff(norm.cdf(edges - shift))[:, None] for shift in (0, apart))
    # any weights of both tables give a bound, by the number that is best at each value of the statistic
    return max(
        float((w * one_has * ratios[0] + (1 - w) * other_has * ratios[1]).min(axis=1).sum())
        for w in np.linspace(0.01, 0.99, 99)
    )


def floor(seed: str = "162") -> None:
    """Print a line for each table and budget: the bound, and the pair that has it."""
    rng = np.random.default_rng(int(seed))
    for name, frame, work in drawn(rng):
        numbers = frame.groupby("who").size().to_numpy()
        spread = float(np.mean(np.square(np.bincount(frame["cell"], minlength=work.shape[0]) / len(frame))))
        for rho in (0.005, 0.05, 0.5):
            plan = sf.plan(work, sf.zcdp(rho), neighbours="add-remove", person="who", rows_per_person=MOST)
            noise, mu = plan.rmse**2 * (np.arange(1, MOST + 1) / MOST) ** 2, np.sqrt(2 * rho * 0.05)
            found: list[tuple[float, str]] = []
            for most in (7, 10, 15, 20, 25, 30, 40, 50, 64, 100, 200):
                if gone := int((numbers > most).sum()):
                    bound = least_ratio(numbers[numbers <= most], numbers, noise, spread, gone * mu)
                    found.append((bound, f"without the {gone} who have more than {most}"))
            for more in (j for j in (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192) if j * mu < 6):
                bound = least_ratio(numbers, np.append(numbers, np.full(more, MOST)), noise, spread, more * mu)
                found.append((bound, f"with {more} more who have {MOST}"))
            print(f"{name:9} rho {rho:5}: at least {max(found)[0]:.3f}, {max(found)[1]}", flush=True)


def main(looks: str = "20", seed: str = "162") -> None:
    """Print a line for each table and budget."""
    rng = np.random.default_rng(0 if seed == "foreign" else int(seed))
    ratios = []
    for name, frame, work in foreign() if seed == "foreign" else drawn(rng):
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
    floor(*sys.argv[2:]) if sys.argv[1:2] == ["floor"] else main(*sys.argv[1:])
