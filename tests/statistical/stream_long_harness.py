"""A long stream through the command line, killed and resumed at random, beside one that was never killed.

Run as `python stream_long_harness.py long '{"weeks": 520, "side": 100}'` for 10,000 cells: a process of one thread, so
that forking is safe. Each command is a child that is forked with everything imported, so that what is counted is the
command's own work. It prints its figures as JSON; a test judges a small one.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import duckdb  # noqa: F401  (with flint and pydantic: every command would import them anew)
import flint  # noqa: F401
import numpy as np
import pydantic  # noqa: F401

# Run as a script, this folder is on the path, and the one above is not.
sys.path.append(str(Path(__file__).parents[1]))

from ledger_harness import child, statuses

import sfumato as sf
from sfumato import cli
from sfumato.interactive.streams import stored_release
from sfumato.planner import opening  # noqa: F401  (what the commands import)
from support.experiments import carry_out

Figures = dict[str, Any]


def spec(side: int, weeks: int) -> str:
    """Two attributes of as many cells, every table of them, every week."""
    one = f'type = "integer"\nmin = 0\nmax = {side - 1}\noutside = "drop"\nmissing = "drop"\n'
    return (
        f'[schema.age]\n{one}[schema.place]\n{one}[privacy]\nmu = 1\nneighbours = "add-remove"\n[[queries]]\nupto = 2\n'
        f"[stream]\nperiods = {weeks}\n"
    )


def week(side: int, t: int, rows: int) -> str:
    """A week's records, the same whenever they are asked for."""
    rng = np.random.default_rng(t)
    age, place = rng.integers(0, side, size=rows), (rng.integers(0, side, size=rows) * rng.random(rows)).astype(int)
    return "age,place\n" + "".join(f"{a},{p}\n" for a, p in zip(age.tolist(), place.tolist(), strict=True))


def typed(*words: object) -> int:
    """The process of a command."""

    def run() -> None:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        sys.argv = ["sfumato", *map(str, words)]
        try:
            cli.main()
        except SystemExit as ended:
            if ended.code:
                raise

    return child(run)


def append(folder: Path, name: str, t: int) -> int:
    table, ledger = folder / f"{t}.csv", folder / "l.db"
    return typed("stream", "append", folder / name, table, "--period", label(t), "--ledger", ledger)


def label(t: int) -> str:
    return f"W{t + 1:03}"


def opened(folder: Path, name: str) -> None:
    words = ("--ledger", folder / "l.db", "--name", name, "--store", folder / name)
    assert statuses([typed("stream", "open", folder / "spec.toml", *words)]) == [0]


def long(folder: Path, weeks: int = 520, side: int = 100, rows: int = 20_000, share: float = 0.25) -> Figures:
    """Two streams of the same tables: one by commands, that share of which is killed at a random moment, and one by a
    process that nothing happens to."""
    random.seed(weeks)
    (folder / "spec.toml").write_text(spec(side, weeks))
    sf.Ledger.create(folder / "l.db", total=sf.gdp(3))
    for name in ("killed", "whole"):
        opened(folder, name)
    figures: Figures = {"kills": 0, "commands": 0, "again": 0}
    go_on(folder, 0, weeks, side, rows, share, figures)
    publish(folder, weeks, side, rows)
    return figures | judged(folder, weeks) | spent()


def publish(folder: Path, weeks: int, side: int, rows: int) -> None:
    """The weeks that are left of the stream that is never killed."""
    whole = sf.load(folder / "whole", ledger=folder / "l.db")
    for t in range(len(whole.periods), weeks):
        (folder / f"{t}.csv").write_text(week(side, t, rows))
        whole.publish(str(folder / f"{t}.csv"), label(t))
        (folder / f"{t}.csv").unlink()


def go_on(folder: Path, begin: int, weeks: int, side: int, rows: int, share: float, figures: Figures) -> None:
    """The weeks from one on of the other stream."""
    took = 0.5
    for t in range(begin, weeks):
        (folder / f"{t}.csv").write_text(week(side, t, rows))
        while True:
            begun, pid = time.monotonic(), append(folder, "killed", t)
            figures["commands"] += 1
            if random.random() >= share:
                assert statuses([pid]) == [0]
                took = time.monotonic() - begun
                break
            time.sleep(random.random() * took)
            os.kill(pid, signal.SIGKILL)
            figures["kills"] += statuses([pid]) != [0]
            # the same command again, whatever became of it
        if random.random() < share / 2:  # a period that is there: its table is gone, and nobody looks
            figures["again"] += statuses([append(folder, "killed", random.randrange(max(t, 1)))]) == [0]
        (folder / f"{t}.csv").unlink()


def judged(folder: Path, weeks: int) -> Figures:
    """What differs between the two: 0, all but the noise."""
    killed, whole = (stored_release(folder / name) for name in ("killed", "whole"))
    errors = np.sqrt(2) * np.asarray(killed.totals.standard_errors())
    off = np.abs(killed.totals.answers - whole.totals.answers) / errors
    side = "even" if weeks % 2 == 0 else "odd"
    states = [(folder / f"{name}.{side}").read_bytes() for name in ("killed", "whole")]
    sizes = [sum(v.size for p in r.published for v in p.values) for r in (killed, whole)]
    facts = [r.plan.facts() for r in (killed, whole)]
    return {
        "periods": len(killed.published),
        "other_labels": int(killed.periods != whole.periods or len(killed.periods) != weeks),
        "other_plan": int(facts[0] != facts[1] or killed.plan.fingerprint != whole.plan.fingerprint),
        "other_values": int(sizes[0] != sizes[1]),
        "other_state": int(states[0] != states[1]),
        "same_noise": sum(
            np.array_equal(np.concatenate(a.values), np.concatenate(b.values))
            for a, b in zip(killed.published, whole.published, strict=True)
        ),
        "debits": len([e for e in sf.Ledger(folder / "l.db").entries() if e.kind == "spend"]),
        "rms": float(np.sqrt((off**2).mean())),
        "worst": float(off.max()),
        "store_bytes": (folder / "killed").stat().st_size,
        "state_bytes": len(states[0]),
    }


def spent() -> Figures:
    """CPU-seconds of all commands, and the most memory that one of them took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"cpu": round(used.ru_utime + used.ru_stime, 1), "most_mb": used.ru_maxrss // 1024}


EXPERIMENTS = {"long": long}


if __name__ == "__main__":
    carry_out(EXPERIMENTS)
