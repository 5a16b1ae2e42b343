"""Who errs least over time: `python bench/streams_strategies.py [PYTHON]`, or `--chart` for that of docs/streams.md.

With `--persons`: people in several periods with several rows in each, beside what is proved.

Standard errors of totals in the worst period and in the mean, for noise of deviation 1 at sensitivity 1, and the
CPU-seconds of planning; then questions and people for whom bands are made, and totals that may be the last. PYTHON is
one that has jax-privacy, whose buffered Toeplitz matrix of as many periods is made there, in the same run.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from who_wins import chart

import sfumato as sf
from sfumato.privacy.stream_price import IntegerFilter, WindowFilter
from sfumato.strategies.participation_bounds import participation_bound
from sfumato.strategies.participation_shapes import lowered_filter
from sfumato.strategies.periods import Periods
from sfumato.strategies.time_errors import errors_of_filter
from sfumato.strategies.time_shapes import (
    MOST_DENSE,
    Goal,
    TimeShape,
    band_width_for,
    banded_filter,
    dense_bound,
    dense_filter,
    fit_time_parameters,
    initial_time_parameters,
    mean_bound,
    quantise_time_shape,
    shape_for,
)
from sfumato.strategies.toeplitz import inverse_series, prefix_bound, root_coefficients

THEIR_WORST = [(256, 2.8318), (1024, 3.2776), (4096, 3.7324)]
"""What jax-privacy 2.0.0 errs in the worst period, as it was found in the same run: 40 to 60 CPU-seconds each."""
SHOWN = ("tree, as taught", "square root", "jax-privacy", "scaled buffers", "bound (mean)")
SIZES = (2**8, 2**10, 2**16, 2**20)
THEIRS = """
import json, sys, time
start = time.process_time()
from jax_privacy.matrix_factorization import buffered_toeplitz as bt
n = int(sys.argv[1])
ready = time.process_time()
blt = bt.optimize(n=n)
done = time.process_time()
print(json.dumps([blt.buf_decay.tolist(), blt.output_scale.tolist(), done - ready, ready - start]))
"""


def line(name: str, worst: float, mean: float, kept: object, seconds: float | None = None) -> None:
    """One strategy."""
    spent = "" if seconds is None else f"{seconds:8.2f}"
    print(f"  {name:34} {worst:9.4f} {mean:9.4f} {kept!s:>7} {spent}", flush=True)


def judged(name: str, used: IntegerFilter | WindowFilter, given: Periods, seconds: float) -> None:
    """A strategy as its integers are, without what the rounding of their sums adds: 6e-5 at most."""
    over = errors_of_filter(used)
    scale = math.sqrt(used.response(given.per_person, given.apart)) / 2.0**used.shift
    worst, mean = (math.sqrt(v) * scale for v in (over.together(given.questions).max(), over.mean(given.questions)))
    line(name, worst, mean, used.kept[1], seconds)


def made(name: str, given: Periods) -> None:
    """Of few decaying sums."""
    start = time.process_time()
    used = quantise_time_shape(shape_for(given))
    judged(name, used, given, time.process_time() - start)


def totals(n: int, python: str | None) -> None:
    """Everything there is for totals of n periods."""
    given = sf.periods(n)
    bound = dense_bound(given.questions, n, 25) if n <= MOST_DENSE else mean_bound(given.questions, n)
    print(f"{n:,} periods: no mean is below {bound:.4f}{'' if n <= MOST_DENSE else ' (singular values)'}")
    levels, digits = n.bit_length(), np.array([t.bit_count() for t in range(1, n + 1)])
    line("tree as taught", math.sqrt(levels * digits.max()), math.sqrt(levels * digits.mean()), levels)
    squares = root_coefficients(n) ** 2
    shares = (n - np.arange(n)) / n
    line("square root", squares.sum(), math.sqrt(squares.sum() * (shares @ squares)), n)
    start = time.process_time()
    poles, zeros = fit_time_parameters(Goal(n, given.questions, alike=True), initial_time_parameters(n, 6), 100).decays
    used = quantise_time_shape(TimeShape(poles, zeros, np.ones(n), alike=True))
    judged("buffered Toeplitz", used, given, time.process_time() - start)
    made("with rows and columns scaled", given)
    made("the same, for the mean", sf.periods(n, objective="mean"))
    if n <= MOST_DENSE:
        start = time.process_time()
        best = sf.periods(n, objective="mean")
        judged("dense optimum, for the mean", dense_filter(best), best, time.process_time() - start)
    if python is not None:
        done = subprocess.run([python, "-c", THEIRS, str(n)], capture_output=True, text=True, check=False)
        if done.returncode:
            print("  jax-privacy:", done.stderr.strip().splitlines()[-1])
        else:
            decays, scales, seconds, loading = json.loads(done.stdout.splitlines()[-1])
            series = np.append(1.0, sum(s * d ** np.arange(n - 1.0) for d, s in zip(decays, scales, strict=True)))
            errors = np.cumsum(np.cumsum(inverse_series(series)) ** 2) * (series @ series)
            worst, mean = math.sqrt(errors[-1]), math.sqrt(errors.mean())
            line("jax-privacy, buffered Toeplitz", worst, mean, len(decays), seconds)
            print(f"    (and {loading:.2f} to import it)")


def others() -> None:
    """Questions besides totals, and people in several periods."""
    for ask in ("ranges", "decayed 0.99", ["totals", "ranges"], "last 12", ["totals", "last 12"]):
        given = sf.periods(1024, ask=ask, objective="mean")
        bound = dense_bound(given.questions, 1024, 25)
        print(f"{given.asked}, 1,024 periods: no mean is below {bound:.4f}")
        made("buffered", given)
        width = band_width_for(given)
        if width is not None:
            start = time.process_time()
            judged("banded", banded_filter(given, width), given, time.process_time() - start)
    for n, k, b in ((365, 12, 30), (1024, 8, 128)):
        given = sf.periods(n, per_person=k, apart=b, objective="mean")
        print(f"totals, {given.describe()}")
        made("buffered", given)
        start = time.process_time()
        judged("banded", banded_filter(given, b), given, time.process_time() - start)


LONG = 300  # steps of a bound that is looked for longer than plans do
SEED, DRAWN = 208, 24


def persons() -> None:
    """People in several periods with several rows in each, and what is proved of them."""
    domain = sf.Domain({"sex": 2, "age": 10, "department": 30})
    over = sf.periods(365, per_person=12, apart=30, objective="mean")
    shares = {"the total": 1.0, "all else in tables": 0.0}
    print(f"totals, {over.describe()}; no mean is below, as in plans and after {LONG} steps:")
    for name, share in shares.items():
        start = time.process_time()
        found = [participation_bound(over, share, *steps) for steps in ((), (LONG,))]
        few, many = (b.total if share else b.rest for b in found)
        print(f"  of {name}: {few:.4f}, {many:.4f}  ({time.process_time() - start:.0f} CPU-s)")
    for used, alike in ((lowered_filter(over), True), (banded_filter(over, 30), False)):
        error = float(errors_of_filter(used).mean(over.questions))
        print(f"  {used.kept[1]} counts kept: {math.sqrt(error * used.response(12, 30, alike=alike)):.4f}")
    asked = {
        "the total": sf.total(domain),
        "departments": sf.marginals(domain, sets=[("department",)]),
        "the total and one-way tables": sf.marginals(domain, upto=1),
        "all tables up to two": sf.marginals(domain, upto=2),
    }
    for objective in ("mean", "worst"):
        print(f"three rows a period: {objective}, bound of the plan, ratio")
        for name, work in asked.items():
            for some in ([], ["department"]):
                given = sf.periods(365, per_person=12, apart=30, objective=objective)
                person_plan(name + (", once per department" if some else ""), work, given, 3, some)
    ratios = list(drawn_persons(np.random.default_rng(SEED)))
    above = sum(r > 1.05 for r in ratios)
    print(f"drawn, seed {SEED}: {above} of {len(ratios)} above 1.05, {np.median(ratios):.4f}, most {max(ratios):.4f}")


def person_plan(name: str, work: sf.Workload, given: Periods, rows: int, once_per: list[str]) -> float:
    """What a plan errs beside its bound."""
    who: dict[str, Any] = {"neighbours": "add-remove", "person": "id", "rows_per_person": rows}
    plan = sf.plan(work, sf.gdp(1), once_per=once_per, periods=given, **who)
    ratio = plan.objective_value / plan.lower_bound
    own = "" if plan.terms.total is None else f"  ({plan.notes[0].split('err ')[1]} with one filter)"
    print(f"  {name:60} {plan.objective_value:9.4f} {plan.lower_bound:9.4f} {ratio:7.4f}{own}", flush=True)
    return ratio


def drawn_persons(rng: np.random.Generator) -> Iterator[float]:
    """Streams that nobody tuned for: periods, how often and how far apart a person comes, rows, tables."""
    for _ in range(DRAWN):
        n, k = int(rng.integers(60, 385)), int(rng.integers(2, 21))
        b = int(rng.integers(7, max(8, min(61, n // k) + 1)))
        k = min(k, (n - 1) // b + 1)
        rows = int(rng.integers(1, 9))
        sizes = {"sex": 2, "age": int(rng.integers(3, 20))}
        sizes |= {"department": int(rng.integers(5, 40)), "region": int(rng.integers(2, 10))}
        many = int(rng.integers(1, 5))
        chosen = [str(a) for a in rng.choice(list(sizes), many, replace=False)]
        upto = int(rng.integers(1, 3)) if many > 1 else 1
        once_per = [str(rng.choice(chosen))] if rng.integers(2) and rows > 1 else []
        given = sf.periods(n, per_person=k, apart=b, objective="mean")
        tables = ", ".join(f"{a} {sizes[a]}" for a in chosen)
        name = f"{n}, {k}, {b}, rows {rows}; {tables}, up to {upto}{f', once per {once_per[0]}' if once_per else ''}"
        yield person_plan(
            name, sf.marginals(sf.Domain({a: sizes[a] for a in chosen}), upto=upto), given, rows, once_per
        )


def unending() -> None:
    """Totals that may be the last, beside those of streams that were known to end there."""
    used = quantise_time_shape(shape_for(sf.periods(None)))
    found = np.sqrt(errors_of_filter(used).totals * used.response()) / 2.0**used.shift
    print("totals of as many periods as come, beside those of a known number")
    for n in (1, 2, 3, 5, 8, 16, 64, 256, 2**10, 2**13, 2**16, 2**18, 2**20):
        known = quantise_time_shape(shape_for(sf.periods(n)))
        best = math.sqrt(errors_of_filter(known).totals.max() * known.response()) / 2.0**known.shift
        print(f"  {n:12,} {found[n - 1]:9.4f} {best:9.4f} {found[n - 1] / best:9.4f}")


def drawn() -> str:
    """Standard errors of totals in the worst period, by the number of periods, and the proved bound of their mean."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for n in (2**i for i in range(2, 21)):
        used = quantise_time_shape(shape_for(sf.periods(n)))
        digits = max(t.bit_count() for t in range(max(1, n // 2), n + 1))
        errors = {
            "tree, as taught": math.sqrt(n.bit_length() * digits),
            "square root": float((root_coefficients(n) ** 2).sum()),
            "scaled buffers": math.sqrt(errors_of_filter(used).totals.max() * used.response()) / 2.0**used.shift,
            "bound (mean)": prefix_bound(n) / math.sqrt(n),
        }
        for name, error in errors.items():
            lines.setdefault(name, []).append((n, error))
    lines["jax-privacy"] = THEIR_WORST
    return chart({name: lines[name] for name in SHOWN}, "periods", "standard error of totals, worst period")


if __name__ == "__main__":
    if sys.argv[1:] == ["--persons"]:
        persons()
        sys.exit()
    if sys.argv[1:] == ["--chart"]:
        (Path(__file__).parents[1] / "docs" / "charts" / "streams.svg").write_text(drawn(), encoding="utf-8")
        sys.exit()
    print(f"  {'':34} {'worst':>9} {'mean':>9} {'kept':>7} {'CPU-s':>8}")
    for n in SIZES:
        totals(n, sys.argv[1] if len(sys.argv) > 1 else None)
    others()
    unending()
