"""Where denoised pairs err more than pairs that merely agree: few attributes, many records.

The people of docs/adaptive.md: three kinds, five attributes of 4 to 8 cells, delta 1e-9, add-remove; mean L1 error of a
pair over n, mean of three draws of people and noise. `python bench/adaptive_agreeing.py`
"""

from __future__ import annotations

import numpy as np

import sfumato as sf

SIZES = {"age": 8, "work": 6, "school": 7, "home": 5, "trips": 4}
DOMAIN = sf.Domain({name: sf.Integers(0, m - 1) for name, m in SIZES.items()})
WORK = sf.marginals(DOMAIN, order=2)


def people(n: int, rng: np.random.Generator) -> np.ndarray:
    """The joint table of n persons."""
    kinds = np.bincount(rng.integers(0, 3, n), minlength=3)
    cells = [np.array([rng.dirichlet(np.full(m, 0.4)) for _ in kinds]) for m in SIZES.values()]
    table = np.zeros(DOMAIN.shape, dtype=np.int64)
    for kind, count in enumerate(kinds):
        drawn = tuple(rng.choice(len(p[kind]), size=count, p=p[kind]) for p in cells)
        np.add.at(table, drawn, 1)
    return table


def measure(n: int, epsilon: str) -> None:
    """One line."""
    errors = []
    for seed in range(3):
        table = people(n, np.random.default_rng(seed))
        exact = WORK.answer(table)
        denoised, plain = (
            sf.release(
                sf.plan(WORK, sf.approx(epsilon, "1e-9"), neighbours="add-remove", mechanism=name, records=n),
                sf.Histogram(table),
                ledger=None,
            )
            for name in ("adaptive", "marginals")
        )
        answers = [denoised.answers, plain.answers, plain.project("local").answers, plain.project("mixtures").answers]
        errors.append([np.abs(a - exact).sum() / n / 10 for a in answers])
    print(f"| {n:,}, {epsilon} | " + " | ".join(f"{e:.3g}" for e in np.mean(errors, axis=0)) + " |", flush=True)


def main() -> None:
    """Print the table."""
    print("| records, epsilon | adaptive | plain pairs | agreeing | plain pairs, denoised afterwards |")
    print("|---|---|---|---|---|")
    for n in (20_000, 1_400_000):
        for epsilon in ("0.1", "1", "10"):
            measure(n, epsilon)


if __name__ == "__main__":
    main()
