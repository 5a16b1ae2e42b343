"""kill -9 at file operations: before, halfway through and after each, and what the same command makes of what is left.

Run as `python kills.py EXPERIMENT JSON` by `struck`, with the library of kills.c preloaded: a process of one thread, so
that forking is safe. It prints, as JSON, how often each outcome came, by kind of outcome:

* "ended": the process was not killed, there are no more operations;
* "anew": nothing was paid, and the same command did all; "finished": it was paid, and the same command gave what was
  paid for; "said": it was paid and nothing was shown, and the same command says so;
* anything else is broken, and is told in words.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT))

MOMENTS = {"before": 0, "after": 1, "halfway": 2}
GOOD = ("anew", "finished", "said")


def able() -> bool:
    """Whether what a process does to files can be watched here."""
    return sys.platform == "linux" and shutil.which("cc") is not None


def struck(experiment: str, every: int = 1, first: int = 1) -> dict[str, Any]:
    """Counts of outcomes of one experiment, killed at every so many operations."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "kills.so"
        source = Path(__file__).with_suffix(".c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-w", "-o", library, source, "-ldl"], check=True)
        call = [sys.executable, __file__, experiment, json.dumps({"every": every, "first": first})]
        env = {**os.environ, "LD_PRELOAD": str(library), "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(call, env=env, capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@dataclass(frozen=True)
class Act:
    """What is killed, in a folder that `ready` prepared, and the same again; `debits` are those that it makes."""

    ready: Callable[[Path], object]
    act: Callable[[Path], object]
    debits: int


def _acts() -> dict[str, Act]:
    import sfumato as sf
    from sfumato.publishing import publish
    from support.wall import WORK, plan

    once, keys = plan(), sf.Keys("who", kind="text")
    sketch = sf.plan(keys, sf.approx(50, "1e-6"), neighbours="add-remove", mechanism="count-sketch")
    histogram = sf.plan(keys, sf.pure(1), neighbours="add-remove", mechanism="histogram")
    online = sf.plan(WORK.domain, sf.approx(1, "1e-6"), neighbours="replace-one", records=3, mechanism="pmw")
    periods = sf.plan(WORK, sf.gdp(1), neighbours="add-remove", periods=4)
    found = sf.Categories(discover=0.5, most=5, missing="other", prefixes={"chapter": 1, "group": 2})
    aside = sf.approx(100, "1e-6", thresholds="5e-7")
    nested = sf.plan(sf.marginals(sf.Domain({"code": found}), order=1), aside, neighbours="add-remove")
    for made in (once, sketch, histogram, online, periods, nested):
        _ = made.fingerprint

    def codes(place: Path) -> None:
        rows = "".join(f"{code}\n" for code in ("A0x", "A0y", "A1x", "B1y") for _ in range(9))
        (place / "t.csv").write_text(f"code\n{rows}", encoding="utf-8")
        sf.Ledger.create(place / "l.db", total=nested.budget)

    def ready(place: Path) -> None:
        (place / "t.csv").write_text("a,b,who\n1,x,u\n2,y,v\n3,x,u\n", encoding="utf-8")
        ledger(place)

    def ledger(place: Path) -> object:
        try:
            return sf.Ledger.create(place / "l.db", total=sf.gdp(100))
        except sf.errors.LedgerError as error:
            if "exists" not in str(error):
                raise
            return sf.Ledger(place / "l.db").remaining

    def released(made: Any) -> Callable[[Path], object]:
        return lambda place: sf.release(made, place / "t.csv", ledger=place / "l.db", name="n", out=place / "r")

    def opened(made: Any) -> Callable[[Path], object]:
        source = () if made is periods else ("t.csv",)
        return lambda place: sf.open(
            made, *(place / s for s in source), ledger=place / "l.db", name="n", store=place / "s"
        )

    def going(place: Path) -> None:
        ready(place)
        opened(periods)(place)

    def appended(place: Path) -> object:
        return sf.load(place / "s", ledger=place / "l.db").append(place / "t.csv", "2026-11")

    def to_publish(place: Path) -> None:
        ready(place)
        released(once)(place)

    return {
        "ledger": Act(lambda _: None, ledger, 0),
        "release": Act(ready, released(once), 1),
        "sketch": Act(ready, released(sketch), 1),
        "labels": Act(codes, released(nested), 1),
        "session": Act(ready, opened(online), 1),
        "histogram": Act(ready, opened(histogram), 1),
        "stream": Act(ready, opened(periods), 1),
        "append": Act(going, appended, 1),
        "publish": Act(to_publish, lambda place: publish(sf.load(place / "r"), place / "site"), 1),
    }


def _child(body: Callable[[], object]) -> tuple[int, str]:
    """The exit status of a fork that does something, and what it says."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        said = ""
        try:
            said = str(body() or "")
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(write, said[:4000].encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said


def _judged(act: Act, place: Path) -> str:
    """What the same command makes of what a kill has left."""
    import sfumato as sf
    from sfumato.privacy.files import is_nonempty_file

    def spends() -> int:
        if not is_nonempty_file(place / "l.db"):
            return 0
        return sum(e.kind == "spend" and e.price > 0 for e in sf.Ledger(place / "l.db").entries())

    before, outcome = spends(), "finished"
    try:
        act.act(place)
    except sf.errors.NameTaken as error:
        outcome = "said" if "nothing of it was shown" in str(error) else f"not said: {error}"
    after = spends()
    if after != act.debits:
        return f"{after} debits"
    left = sorted(p.name for p in place.iterdir() if p.name.startswith(".") or p.suffix == ".labels")
    if left and outcome == "finished":
        return f"left: {len(left)} {left[0].rsplit('.')[-1]}"
    return outcome if before == act.debits else "anew"


def kills(folder: Path, name: str, every: int, first: int) -> dict[str, Any]:
    """An experiment, killed at each operation in turn."""
    act, library = _acts()[name], ctypes.CDLL(None)
    counts: dict[str, Any] = {}
    for moment, how in MOMENTS.items():
        target = first
        while True:
            place = folder / f"{moment}{target}"
            place.mkdir()
            _, problem = _child(lambda place=place: act.ready(place) and "")
            assert not problem, problem

            def strike(place: Path = place, target: int = target, how: int = how) -> str:
                library.kills_at(str(place).encode(), target, how)
                act.act(place)
                return ""

            status, said = _child(strike)
            if status == 0:
                assert not said, said
                counts["ended"] = counts.get("ended", 0) + 1
                break
            found = _child(lambda place=place: _judged(act, place))[1]
            counts[found] = counts.get(found, 0) + 1
            shutil.rmtree(place)
            target += every
    return counts


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as where:
        sys.stdout.write(json.dumps(kills(Path(where), sys.argv[1], **json.loads(sys.argv[2]))))
