"""When projecting helps: all 2-way tables of 20 x 12 x 2 cells, sparse and dense, by the number of records.

    OPENBLAS_NUM_THREADS=1 python bench/projection_helps.py [RELEASES]

(1, 1e-6), replace-one; cells drawn from Dirichlet(0.02) or (5). Root mean squared errors in records over the releases:
raw, projected in the norm of the answers and of the measurements; the share of the 95 % intervals that hold.
"""

from __future__ import annotations

import sys

import numpy as np

import sfumato as sf


def main() -> None:
    releases = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    domain = sf.Domain({"age": sf.Integers(0, 99, width=5), "place": 12, "sex": sf.Booleans()})
    work = sf.marginals(domain, order=2)
    plan = sf.plan(work, sf.approx(1, "1e-6"), neighbours="replace-one", objective="cells")
    rng = np.random.default_rng(0)
    print("alpha  records     raw  answers  measured   hold")
    for alpha in (0.02, 5.0):
        shares = rng.dirichlet(np.full(domain.size, alpha))
        for records in (300, 3_000, 30_000, 300_000):
            people = rng.multinomial(records, shares)
            truth = work.answer(people)
            found = np.zeros(4)
            for _ in range(releases):
                raw = sf.release(plan, sf.Histogram(people.reshape(domain.shape)), ledger=None)
                each = raw, raw.project(space="answers"), raw.project(space="measurements")
                ends = each[1].intervals()
                hold = float(((ends.low <= truth) & (truth <= ends.high)).mean())
                found += [*(float(np.mean((r.answers - truth) ** 2)) for r in each), hold]
            *errors, hold = found / releases
            print(
                f"{alpha:5} {records:8,} " + " ".join(f"{e**0.5:8.3f}" for e in errors) + f"  {hold:6.1%}", flush=True
            )


if __name__ == "__main__":
    main()
