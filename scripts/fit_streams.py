"""Writes the tables of src/sfumato/strategies/time_fitting.py: two CPU-minutes.

python scripts/fit_streams.py
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from fit_buffers import lines, write

import sfumato as sf
from sfumato.strategies.buffered_toeplitz import Asked, BufferParameters, row_scale
from sfumato.strategies.buffered_toeplitz import interpolate_parameters as ordered
from sfumato.strategies.periods import parse_question
from sfumato.strategies.time_errors import Curves, EveryPeriod, column_lengths, errors_of_filter
from sfumato.strategies.time_fitting import BUFFERS, LISTED, Goal, fit_time_parameters
from sfumato.strategies.time_shapes import quantise_time_shape, shape_for
from sfumato.strategies.toeplitz import partial_fraction_residues

TARGET = Path(__file__).parents[1] / "src" / "sfumato" / "designs" / "continual" / "fitted.py"
STEPS = 300  # each ends before by its tolerance
STARTS: dict[str, Asked] = {"worst totals": "largest", "mean totals": "prefixes", "mean ranges": "ranges"}


def fitted(name: str) -> dict[int, BufferParameters]:
    """Parameters by the binary logarithm of the number of periods, each found from those of twice as many: so they lie
    on one road, and between two of them too errors are small."""
    worst, asked = name.split()
    found: dict[int, BufferParameters] = {}
    last = ordered(2 ** LISTED[-1], STARTS[name])
    for k in reversed(LISTED):
        goal = Goal(2**k, ((parse_question(asked, 2**k), 1.0),), worst == "worst")
        found[k] = last = fit_time_parameters(goal, last, STEPS)
        print(name, k, f"{exact(goal, last):.5f}", flush=True)
    return dict(sorted(found.items()))


def exact(goal: Goal, found: BufferParameters) -> float:
    """The error that is asked for, period by period."""
    (poles, zeros), n = found.decays, goal.periods
    rows = row_scale(n, found.shape)
    gains = -partial_fraction_residues(zeros, poles)
    curves = Curves(
        EveryPeriod(n), list(1 - zeros), list(gains), column_lengths(poles, zeros, rows, EveryPeriod(n)), 1 / rows**2
    )
    ((asked, _),) = goal.asked
    variances = curves.of(asked)
    ends = np.arange(1, n + 1) * 2 / (n + 1) if asked.ranges else 1.0
    return float(np.sqrt(variances.max() if goal.worst else (variances * ends).mean()))


def unending() -> BufferParameters:
    """Of totals that may be the last: each beside the worst of a stream that was known to end there."""
    n = 2 ** LISTED[-1]
    ends = np.unique(np.rint(2 ** np.arange(0, LISTED[-1] + 0.5, 0.5)))
    used = [quantise_time_shape(shape_for(sf.periods(int(t)))) for t in ends]
    best = [errors_of_filter(f).totals.max() * f.response() / 4.0**f.shift for f in used]
    goal = Goal(n, ((parse_question("totals", n), 1.0),))
    against = np.interp(np.log(goal.blocks.middles + 1), np.log(ends), best)
    return fit_time_parameters(replace(goal, against=against), ordered(n, "largest"), 3 * STEPS)


if __name__ == "__main__":
    start = time.process_time()
    # what is found for ends that are known is what an unknown one is held against
    write(TARGET, {f'"{name}":': lines(fitted(name)) for name in STARTS})
    numbers = [f"{v:.4f}" for v in unending().vector]
    rows = "\n  ".join(" ".join(numbers[i : i + BUFFERS]) for i in range(0, len(numbers), BUFFERS))
    write(TARGET, {"_UNENDING =": rows})
    print(f"{time.process_time() - start:.0f} CPU-s")
