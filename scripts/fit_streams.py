"""Writes the small sizes of the tables of buffered_toeplitz.py and what is for streams without an end: two CPU-minutes.

To be run after fit_buffers.py, from whose parameters it starts.

python scripts/fit_streams.py
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from fit_buffers import TARGET, lines, write

import sfumato as sf
from sfumato.strategies.buffered_toeplitz import (
    BUFFERS,
    Asked,
    BufferParameters,
    interpolate_parameters,
    parameter_table,
    row_scale,
)
from sfumato.strategies.periods import parse_question
from sfumato.strategies.time_errors import Curves, EveryPeriod, column_lengths, errors_of_filter
from sfumato.strategies.time_shapes import Goal, fit_time_parameters, quantise_time_shape, shape_for
from sfumato.strategies.toeplitz import partial_fraction_residues

UNENDING = Path(__file__).parents[1] / "src" / "sfumato" / "strategies" / "time_shapes.py"
STEPS = 300  # each ends before by its tolerance
MOST = 20  # binary logarithm of the most periods of a stream
SIZES: dict[Asked, tuple[str, range]] = {
    "ranges": ("mean ranges", range(8, 12)),
    "largest": ("worst totals", range(8, MOST + 1)),
}
"""What it is of a stream, and the binary logarithms of the sizes at which rows of wider scales err less."""


def fitted(asked: Asked) -> dict[int, BufferParameters]:
    """Parameters by the binary logarithm of the number of periods, each found from those of twice as many: so they lie
    on one road, and between two of them too errors are small. Larger sizes stay as they are."""
    name, few = SIZES[asked]
    worst, question = name.split()
    found = {int(row[0]): BufferParameters.of(row[1:]) for row in parameter_table(asked) if row[0] > few[-1]}
    last = interpolate_parameters(2**MOST, asked)
    for k in range(MOST, few[0] - 1, -1):
        goal = Goal(2**k, ((parse_question(question, 2**k), 1.0),), worst == "worst")
        last = fit_time_parameters(goal, last, STEPS)
        if k in few:
            found[k] = last
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
    n = 2**MOST
    ends = np.unique(np.rint(2 ** np.arange(0, MOST + 0.5, 0.5)))
    used = [quantise_time_shape(shape_for(sf.periods(int(t)))) for t in ends]
    best = [errors_of_filter(f).totals.max() * f.response() / 4.0**f.shift for f in used]
    goal = Goal(n, ((parse_question("totals", n), 1.0),))
    against = np.interp(np.log(goal.blocks.middles + 1), np.log(ends), best)
    return fit_time_parameters(replace(goal, against=against), interpolate_parameters(n, "largest"), 3 * STEPS)


if __name__ == "__main__":
    start = time.process_time()
    # what is found for ends that are known is what an unknown one is held against
    write(TARGET, {f'"{asked}":': lines(fitted(asked)) for asked in SIZES})
    numbers = [f"{v:.4f}" for v in unending().vector]
    rows = "\n  ".join(" ".join(numbers[i : i + BUFFERS]) for i in range(0, len(numbers), BUFFERS))
    write(UNENDING, {"_UNENDING =": rows})
    print(f"{time.process_time() - start:.0f} CPU-s")
