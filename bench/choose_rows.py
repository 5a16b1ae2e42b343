"""How near `sf.choose_rows` comes to the best number of rows of a person, known in hindsight.

    OPENBLAS_NUM_THREADS=1 python bench/choose_rows.py [looks, 20 by default] [seed, 162 by default, or foreign]
    OPENBLAS_NUM_THREADS=1 python bench/choose_rows.py floor [seed]
    OPENBLAS_NUM_THREADS=1 python bench/choose_rows.py tables [looks, 4 by default] [seed, 218 by default]

Three drawn tables at three budgets: visits (gamma mixtures, 6 a person on average), purchases (Pareto numbers up to
2,000, most of them in few of 40 cells), diaries (7 a person at most). The mean squared error of the tables asked, noise
and rows left out together, with what the look leaves of the budget, over that of the best fixed number with the whole
budget; and the same for numbers that somebody might have taken without looking. foreign: purchases at CDNOW by month,
and by how many discs, and of another shop by month (files of the package lifetimes; pip install it, or put its wheel
unpacked on the path).

floor: what no look can do. Two tables that differ by j persons are j mu-GDP apart for whatever look mu-GDP pays for. Of
such pairs (all who have more than some number of rows taken out; persons with as many rows as are compared put in) the
one where the larger of both mean ratios is at least most, by the best test and the best numbers to answer it with.

tables: thirty-six tables by nine laws, of 300 to 60,000 persons, 2 to 200 cells, even and uneven, at most 4 to 128
rows, at the same three budgets; beside each its floor. Cells where all rows that may be counted are best say nothing
of the choice, and are left out.
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


def errors(
    frame: pd.DataFrame, work: sf.Workload, budget: sf.Budget, rng: np.random.Generator, most: int = MOST
) -> np.ndarray:
    """(most,) the mean squared error of every number of rows, from 1: noise, and what is left out."""
    mixed = frame.sample(frac=1, random_state=rng.integers(2**32))
    rank = mixed.groupby("who").cumcount().to_numpy()
    size = work.shape[0]
    left = np.array([np.bincount(mixed["cell"][rank >= r], minlength=size) for r in range(1, most + 1)])
    plan = sf.plan(work, budget, neighbours="add-remove", person="who", rows_per_person=most)
    noise = plan.rmse**2 * (np.arange(1, most + 1) / most) ** 2
    return noise + np.square(left).mean(axis=1)


def ratios_of(numbers: np.ndarray, noise: np.ndarray, spread: float) -> np.ndarray:
    """(most,) squared errors over the least, by how many rows are counted of persons who have these numbers."""
    persons = np.bincount(numbers)
    left = np.maximum(np.arange(len(persons)) - np.arange(1, len(noise) + 1)[:, None], 0) @ persons.astype(float)
    loss = noise + spread * left**2
    return loss / loss.min()


def least_ratio(one: np.ndarray, other: np.ndarray, apart: float) -> float:
    """The least that the larger of two tables' mean ratios can be, by numbers of rows of persons; see `floor`."""
    # in steps so small that the third digit stays
    edges = np.concatenate([[-np.inf], np.linspace(-3, apart + 3, 400), [np.inf]])
    one_has, other_has = (np.diff(norm.cdf(edges - shift))[:, None] for shift in (0, apart))
    # any weights of both tables give a bound, by the number that is best at each value of the statistic
    return max(
        float((w * one_has * one + (1 - w) * other_has * other).min(axis=1).sum()) for w in np.linspace(0.01, 0.99, 99)
    )


def least_of_pairs(numbers: np.ndarray, noise: np.ndarray, spread: float, rho: float) -> tuple[float, str]:
    """The bound of a table, and of what pair it is."""
    mu, most = np.sqrt(2 * rho * 0.05), len(noise)
    own, found = ratios_of(numbers, noise, spread), [(1.0, "none")]
    for end in (2, 4, 7, 10, 15, 20, 25, 30, 40, 50, 64, 100, 200):
        gone = int((numbers > end).sum())
        if 0 < gone * mu < 6:
            other = ratios_of(numbers[numbers <= end], noise, spread)
            found.append((least_ratio(other, own, gone * mu), f"without the {gone} who have more than {end}"))
    for more in (j for j in (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192) if j * mu < 6):
        other = ratios_of(np.append(numbers, np.full(more, most)), noise, spread)
        found.append((least_ratio(own, other, more * mu), f"with {more} more who have {most}"))
    return max(found)


def floor(seed: str = "162") -> None:
    """Print a line for each table and budget: the bound, and the pair that has it."""
    rng = np.random.default_rng(int(seed))
    for name, frame, work in drawn(rng):
        numbers = frame.groupby("who").size().to_numpy()
        spread = float(np.mean(np.square(np.bincount(frame["cell"], minlength=work.shape[0]) / len(frame))))
        for rho in (0.005, 0.05, 0.5):
            plan = sf.plan(work, sf.zcdp(rho), neighbours="add-remove", person="who", rows_per_person=MOST)
            noise = plan.rmse**2 * (np.arange(1, MOST + 1) / MOST) ** 2
            bound, pair = least_of_pairs(numbers, noise, spread, rho)
            print(f"{name:9} rho {rho:5}: at least {bound:.3f}, {pair}", flush=True)


def many(rng: np.random.Generator) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray, int]]:
    """Tables: a law, rows of each person, shares of cells, those of persons with many rows, rows compared."""
    for k in range(36):
        n, mean = int(np.exp(rng.uniform(np.log(300), np.log(60_000)))), np.exp(rng.uniform(np.log(1.5), np.log(12)))
        shape = rng.uniform(0.5, 4)
        name, numbers = [
            ("gamma mixture", rng.poisson(rng.gamma(shape, mean / shape, n))),
            ("Poisson", rng.poisson(mean, n)),
            ("geometric", rng.geometric(1 / mean, n)),
            ("Pareto", np.minimum((rng.pareto(rng.uniform(1.1, 3), n) + 1) * max(1, mean / 3), 5_000)),
            ("log-normal", np.minimum(np.exp(rng.normal(np.log(mean), rng.uniform(0.4, 1.5), n)), 5_000)),
            ("binomial", rng.binomial(rng.integers(3, 20), rng.uniform(0.2, 0.9), n)),
            ("uniform", rng.integers(0, rng.integers(3, 26), n)),
            ("constant", np.full(n, rng.integers(1, 13))),
            ("some of many", np.where(rng.random(n) < 0.02, rng.binomial(45, 0.8, n), rng.poisson(2, n))),
        ][k % 9]
        size = int(np.exp(rng.uniform(np.log(2), np.log(200))))
        shares = 1 / np.arange(1, size + 1) ** (rng.uniform(0, 1.5) * (rng.random() < 0.5))
        others = shares / shares.sum() if rng.random() < 0.6 else rng.dirichlet(np.ones(size))
        most = int(rng.choice([4, 8, 16, 24, 40, 64, 100, 128]))
        yield name, numbers.astype(int), shares / shares.sum(), (shares / shares.sum() + others) / 2, most


def tables(looks: str = "4", seed: str = "218") -> None:
    """Print a line for each of many tables and budget, and at the end how ratios are distributed."""
    rng, ratios, means = np.random.default_rng(int(seed)), [], []
    for name, numbers, shares, of_many, most in many(rng):
        who = np.repeat(np.arange(len(numbers)), numbers)
        has_many = (numbers > 3 * max(1, numbers.mean()))[who]
        cell = np.where(
            has_many, rng.choice(len(shares), len(who), p=of_many), rng.choice(len(shares), len(who), p=shares)
        )
        frame = pd.DataFrame({"who": who, "cell": cell})
        work = sf.marginals(
            sf.Domain({"cell": sf.Integers(0, len(shares) - 1, outside="clamp", missing="other")}), order=1
        )
        size, seen = work.shape[0], rng.integers(2**32)
        for rho in ("0.005", "0.05", "0.5"):
            whole = sf.zcdp(rho)
            rest, best = (
                errors(frame, work, b, np.random.default_rng(seen), most) for b in (sf.zcdp(float(rho) * 0.95), whole)
            )
            if best.argmin() + 1 == most:
                continue
            plan = sf.plan(work, whole, neighbours="add-remove", person="who", rows_per_person=most)
            chosen = [sf.choose_rows(plan, frame, ledger=None).unit.rows_per_person for _ in range(int(looks))]
            found = rest[np.array(chosen) - 1] / best.min()
            noise = plan.rmse**2 * (np.arange(1, most + 1) / most) ** 2
            spread = float(np.mean(np.square(np.bincount(cell, minlength=size) / max(1, len(cell)))))
            bound, _ = least_of_pairs(numbers, noise, spread, float(rho))
            ratios.extend(found)
            means.append(found.mean())
            print(
                f"{name:13} {len(numbers):6,} persons {size:3} cells rho {rho:5}: of {most:3} best "
                f"{best.argmin() + 1:3}, chosen {min(chosen):3} to {max(chosen):3}, {found.mean():.3f}, "
                f"worst {found.max():.2f}, floor {bound:.3f}",
                flush=True,
            )
    each, found = np.array(means), np.array(ratios)
    print(
        f"{len(each)} cells of {looks} looks: mean {found.mean():.3f}, 90 % {np.quantile(found, 0.9):.2f}, 99 % "
        f"{np.quantile(found, 0.99):.2f}, worst {found.max():.2f}; cells within 1.1: {np.sum(each <= 1.1)}"
    )


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
    wanted = {"floor": floor, "tables": tables}.get("".join(sys.argv[1:2]))
    wanted(*sys.argv[2:]) if wanted else main(*sys.argv[1:])
