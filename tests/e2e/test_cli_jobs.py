"""A job each month: paid once, refused before the first debit, gone on with after any end, and silent about rows."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from sfumato._util.files import lock_folder
from sfumato.errors import InvalidInput, LedgerMismatch, NotWritten, SfumatoError
from sfumato.jobs import declared_folder, read_job, run_job
from sfumato.privacy.ledger import Ledger
from support.typed import ROWS, SPEC, Run, refused

JOB = """\
[job]
ledger = "budget.db"
out = "published"

[[tables]]
name = "first"
spec = "spec.toml"
source = "people-{period}.csv"
project = true
formats = ["px"]
languages = ["en", "de"]

[[tables]]
name = "second"
spec = "spec.toml"
"""
EXAMPLE = Path(__file__).parents[2] / "examples" / "monthly"
LATER = "2026-12"


@pytest.fixture(autouse=True)
def office(run: Run) -> None:
    Path("spec.toml").write_text(SPEC.replace('source = "people.csv"', 'source = "people.csv"\ntable = "people"'))
    Path("office.toml").write_text(JOB)
    Path("people-2026-11.csv").write_text(ROWS)
    Path("budget.db").unlink()
    assert run("ledger", "create", "budget.db", "--epsilon", "3", "--delta", "1e-6").code == 0


def spends() -> list[str]:
    return [row["name"] for row in Ledger("budget.db").export()]


def typed(run: Run, *more: str, period: str = "2026-11") -> Any:
    return run("run", "office.toml", "--period", period, *more)


def test_a_run_publishes_and_a_second_one_does_nothing(run: Run) -> None:
    """Mutants: a release that is paid for again; a dry run that pays."""
    assert "nothing was read, spent or written" in typed(run, "--dry-run").out
    assert spends() == []
    assert not Path("published").exists()
    assert typed(run).code == 0
    assert spends() == ["first-2026-11", "second-2026-11"]
    folder = Path("published/2026-11")
    made = {p.relative_to(folder).as_posix() for p in folder.rglob("*")}
    assert made >= {"job.json", "first/release/release.json", "first/projected/release.json", "first/files/px"}
    assert made >= {"first/report-de.html", "first/site-en/index.html", "second/site/index.html"}
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file()}
    again = typed(run, "--json")
    assert again.code == 0
    assert json.loads(again.out)["done"] == json.loads(again.out)["paid"] == []
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file()} == before
    assert spends() == ["first-2026-11", "second-2026-11"]
    # what was removed is made again, free
    shutil.rmtree(folder / "first" / "site-de")
    assert json.loads(typed(run, "--json").out)["done"] == ["first: site-de"]


def test_a_run_that_cannot_be_paid_for_as_a_whole_pays_for_nothing(run: Run) -> None:
    """Mutants: each table asked by itself; tables that are there counted again."""
    assert typed(run).code == 0
    Path("people-2026-12.csv").write_text(ROWS)
    Path("spec.toml").write_text(Path("spec.toml").read_text().replace("epsilon = 1", "epsilon = 2.5"))
    found = typed(run, period=LATER)
    assert found.code == 2
    assert "cannot pay for first-2026-12, second-2026-12 together" in found.err
    assert '"-epsilon = 1"' in found.err.replace("\\", "")
    assert len(spends()) == 2
    assert typed(run).code == 0  # what is there needs no budget


def test_whatever_can_be_refused_is_refused_before_the_first_debit(run: Run) -> None:
    """Mutants: tables looked at one after another; units compared by the ledger alone."""
    job = Path("office.toml")
    spec = Path("spec.toml").read_text()
    refused_by = {
        "cannot be found or read": (JOB.replace("people-{period}", "none-{period}"), spec),
        "table second: line": (JOB, spec),
        "several: one record": (JOB, spec),
        "names several": (JOB, spec),
    }
    others = {
        "table second: line": spec + "[[queries]]\nwhere = ['age >']\n",
        "several: one record": spec.replace("add-remove", "replace-one"),
        "names several": spec.replace('table = "people"', 'table = "others"'),
    }
    for words, (text, _) in refused_by.items():
        job.write_text(text.replace('name = "second"\nspec = "spec.toml"', 'name = "second"\nspec = "other.toml"'))
        Path("other.toml").write_text(others.get(words, spec))
        found = typed(run)
        assert found.code == 2, words
        assert words in found.err
        assert spends() == []
        assert not Path("published").exists()


def test_sums_that_cannot_be_projected_are_refused_before_the_first_debit(run: Run) -> None:
    """They were paid for, and each run after that ended with the same refusal. Mutant: not looked at before."""
    names = [f"w{i}" for i in range(5)]
    declared = "".join(f"[measures.{n}]\nmin = 0\nmax = 9\n" for n in names)
    asked = "".join(f'[[queries]]\nmeans = "{n}"\nby = ["sex"]\n' for n in names)
    Path("spec.toml").write_text(Path("spec.toml").read_text().replace("[privacy]", f"{declared}[privacy]") + asked)
    Path("people-2026-11.csv").write_text(f"age,sex,note,{','.join(names)}\n" + "30,1,x,1,2,3,4,5\n" * 9)
    found = typed(run)
    assert found.code == 2
    assert "table first: projecting takes records by" in found.err
    assert spends() == []


def test_a_run_that_ends_anywhere_is_gone_on_with(run: Run) -> None:
    """Mutant: a step that is taken for done because its folder is there."""
    job, events = read_job("office.toml"), list[str]()
    for stop in range(5, 15):

        def log(_level: str, event: str, _facts: dict[str, Any], *, stop: int = stop) -> None:
            events.append(event)
            if len(events) > stop:
                raise KeyboardInterrupt

        events.clear()
        try:
            run_job(job, "2026-11", log=log)
            break
        except KeyboardInterrupt:
            pass
    done = run_job(job, "2026-11")
    assert done.spent == []
    assert spends() == ["first-2026-11", "second-2026-11"]
    assert json.loads(Path("published/2026-11/job.json").read_text())["tables"][1]["there"]


def test_what_is_spent_and_not_complete_says_so(run: Run) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sfumato.jobs.publish", full)
        found = typed(run)
    assert found.code == 3
    assert "Paid for in this run: first-2026-11" in found.err
    assert typed(run).code == 0
    assert spends() == ["first-2026-11", "second-2026-11"]


def test_two_runs_at_once_pay_once(run: Run) -> None:
    job = read_job("office.toml")

    def attempt(_: int) -> str:
        try:
            run_job(job, "2026-11")
        except SfumatoError as error:
            return type(error).__name__
        return "done"

    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(attempt, range(2)))
    assert "done" in ended
    assert set(ended) <= {"done", "NotWritten"}, ended
    assert sorted(spends()) == ["first-2026-11", "second-2026-11"]


def test_a_run_beside_another_says_so_and_does_nothing(run: Run) -> None:
    """Mutants: a lock of the whole folder, so that another month has to wait; none at all."""
    Path(f"people-{LATER}.csv").write_text(ROWS)
    with lock_folder(Path("published/2026-11")):
        ended = typed(run)
        assert ended.code == 3
        assert "another run of this job is at work on 2026-11; this one did nothing" in ended.err
        assert spends() == []
        run_job(read_job("office.toml"), LATER)
    assert typed(run).code == 0


def test_logs_say_nothing_about_rows(run: Run) -> None:
    """Mutant: the number of rows, or an answer, among the facts of an event."""
    logs = list[str]()
    for rows in (ROWS, ROWS.splitlines()[0] + "\n" + "77,2,secret\n" * 9):
        for place in ("published", "budget.db", "budget.db.declared"):
            shutil.rmtree(place, ignore_errors=True) if Path(place).is_dir() else Path(place).unlink(missing_ok=True)
        assert run("ledger", "create", "budget.db", "--epsilon", "3", "--delta", "1e-6").code == 0
        for name in ("people.csv", "people-2026-11.csv"):
            Path(name).write_text(rows)
        ended = typed(run, "--log-json")
        lines = [json.loads(line) for line in ended.err.splitlines()]
        logs.append(json.dumps([{k: v for k, v in line.items() if k != "time"} for line in lines]) + ended.out)
        assert {"begin", "planned", "ledger", "released", "end"} <= {line["event"] for line in lines}
    assert logs[0] == logs[1]
    plain = typed(run).err
    assert re.search(r"^\S+Z info begin period=2026-11 tables=2$", plain, re.M)


def test_a_declaration_is_compared_with_the_period_before(run: Run) -> None:
    job = read_job("office.toml")
    assert run_job(job, "2026-11").changed == {}
    Path("people-2026-12.csv").write_text(ROWS)
    assert run_job(job, LATER, dry_run=True).changed == {}
    spec = Path("spec.toml")
    spec.write_text(spec.read_text().replace("width = 10", "width = 5"))
    found = run_job(job, LATER, dry_run=True).changed
    assert found["first"] == ["--- 2026-11", "+++ 2026-12", "@@ -13 +13 @@", "-width = 10", "+width = 5"]
    assert sorted(p.name for p in declared_folder(job).iterdir()) == ["first-2026-11.toml", "second-2026-11.toml"]
    # a copy of the spec would tell readers where the table is
    assert not list(Path("published").rglob("spec.toml"))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "second"', 'name = "first"', "two tables are called"),
        ('name = "second"', 'name = "../x"', "letters, digits"),
        ("project = true", 'project = "yes"', "must be true or false"),
        ('"px"', '"doc"', "must be some of"),
        ('"de"', '"tlh"', "no words in 'tlh'"),
        ("[job]", "[job]\nevery = 'hour'", "must be one of year"),
        ("[job]", "[job]\nfolder = 'x'", "folder"),
        ('ledger = "budget.db"\n', "", "ledger"),
    ],
)
def test_what_is_no_job_is_refused(run: Run, old: str, new: str, words: str) -> None:
    Path("office.toml").write_text(JOB.replace(old, new, 1))
    refused(typed(run), words)


def test_periods_are_those_of_a_day(run: Run) -> None:
    job = read_job("office.toml")
    assert job.period(date(2026, 11, 28)) == "2026-11"
    told = {"year": "2026", "quarter": "2026-Q4", "week": "2026-W48", "day": "2026-11-28"}
    for every, period in told.items():
        Path("office.toml").write_text(JOB.replace("[job]", f"[job]\nevery = '{every}'"))
        assert read_job("office.toml").period(date(2026, 11, 28)) == period
    with pytest.raises(InvalidInput, match="a period is a name"):
        run_job(job, "../x")
    assert issubclass(LedgerMismatch, SfumatoError)
    assert issubclass(NotWritten, SfumatoError)


def commands_of_actions() -> list[str]:
    lines = (EXAMPLE / "github-actions.yml").read_text(encoding="utf-8").splitlines()
    return [found[1] for line in lines if (found := re.fullmatch(r"\s+run: (sfumato .*)", line))]


def commands_of_airflow() -> list[str]:
    """Those of the DAG, by a stand-in of Airflow that keeps what it is told, in its order."""
    made, order = dict[str, Any](), list[str]()

    class Operator:
        def __init__(self, *, task_id: str, cwd: str, bash_command: str) -> None:
            self.task = task_id
            made[task_id] = bash_command
            assert cwd

        def __rshift__(self, other: Operator) -> Operator:
            order.extend(t for t in (self.task, other.task) if t not in order)
            return other

    class Dag:
        def __init__(self, **options: object) -> None:
            assert options["max_active_runs"] == 1

        def __enter__(self) -> Dag:
            return self

        def __exit__(self, *_: object) -> None: ...

    airflow, bash = types.ModuleType("airflow"), types.ModuleType("airflow.operators.bash")
    airflow.DAG, bash.BashOperator = Dag, Operator  # type: ignore[attr-defined]
    modules = {
        "airflow": airflow,
        "airflow.operators": types.ModuleType("airflow.operators"),
        "airflow.operators.bash": bash,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, module in modules.items():
            patch.setitem(sys.modules, name, module)
        spec = importlib.util.spec_from_file_location("airflow_dag", EXAMPLE / "airflow_dag.py")
        assert spec is not None
        assert spec.loader is not None
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    return [made[task] for task in order]


@pytest.mark.parametrize("commands", [commands_of_actions, commands_of_airflow])
def test_the_examples_run(run: Run, commands: Any) -> None:
    for name in ("office.toml", "residents.toml"):
        shutil.copy(EXAMPLE / name, name)
    Path("budget.db").unlink()
    create = re.search(r"# (sfumato ledger create .*)", Path("office.toml").read_text())
    assert create is not None
    assert run(*shlex.split(create[1])[1:]).code == 0
    when = read_job("office.toml").period()
    assert run("mock", "residents.toml", "-n", "900", "-o", f"residents-{when}.csv").code == 0
    asked = commands()
    assert len(asked) == 3
    for command in asked:
        assert run(*shlex.split(command)[1:]).code == 0
    assert spends() == [f"age-and-sex-{when}"]
    assert (Path("published") / when / "age-and-sex" / "site-de" / "index.html").is_file()


def test_a_period_in_the_source_of_a_spec_is_told_where_it_belongs(run: Run) -> None:
    """Mutants: a file that "cannot be found", with braces in its name."""
    spec = Path("spec.toml")
    spec.write_text(spec.read_text().replace('source = "people.csv"', 'source = "people-{period}.csv"'))
    Path("office.toml").write_text(JOB.replace('source = "people-{period}.csv"\n', ""))
    found = typed(run)
    assert found.code == 2
    assert "filled in where the job names the source" in found.err
    assert spends() == []
