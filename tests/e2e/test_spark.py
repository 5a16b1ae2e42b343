"""A release from Spark, on every road; nothing of a row in what fails on the way, and no row lost with an executor."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.curator.engines.spark import Spark
from sfumato.errors import BudgetExceeded, InvalidInput, NotWritten, SourceError
from support.spark import SETTINGS, Running
from support.typed import SPEC, Run, refused, release

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")

SECRET = "Zebra77"
OTHER = {"outside": "other", "missing": "other"}
DOMAIN = sf.Domain(
    {"age": sf.Integers(0, 99, width=10, **OTHER), "sex": sf.Categories({"1": "female", "2": "male"}, **OTHER)}
)


@pytest.fixture
def people(spark: Running) -> Running:
    """The table of support.typed, with a secret in every column that can hold one."""
    rows = "SELECT CAST(id % 97 AS INT) AS age, CAST(1 + id % 2 AS STRING) AS sex, 'Zebra77' AS note"
    rows += ", concat('p', id % 50) AS who FROM range(0, 500, 1, 2)"
    spark.view("people", f"{rows} UNION ALL SELECT 7777777, 'Zebra77', 'Zebra77', 'Zebra77'")
    return spark


def found(secret: str, folder: Path) -> list[Path]:
    """Files below a folder that hold it."""
    return [p for p in folder.rglob("*") if p.is_file() and secret.encode() in p.read_bytes()]


def exact() -> Any:
    table = np.zeros(DOMAIN.shape)
    for i in range(500):
        table[i % 97 // 10, i % 2] += 1
    table[-1, -1] += 1
    return table


@pytest.mark.parametrize("person", [None, "who"])
def test_a_table_is_described_where_it_lies(people: Running, person: str | None) -> None:
    """Labels that many have come here; the rare one stays there."""
    frame = people.frame("SELECT *, concat('s', sex) AS sort FROM people")
    budget = sf.approx(60, "1e-6", thresholds="5e-7")
    more = {} if person is None else {"person": person, "rows_per_person": 10}
    plan = sf.plan_profile(frame, budget, columns=["age", "sort"], **more)
    assert not plan.unlabelled
    told = sf.describe(frame, budget, ledger=None, columns=["age", "sort"], **more).columns
    assert (told["age"].kind, told["sort"].kind) == ("number", "text")
    assert {label for label, _ in told["sort"].labels} == {"s1", "s2"}
    assert abs(float(told["age"].quartiles[1].value) - 48) < 6


def test_labels_are_found_there_and_counted(people: Running, tmp_path: Path) -> None:
    """Nothing of who has a rare one is in the ledger, the release or the engine's log."""
    domain = sf.Domain({"sex": sf.Categories(discover=0.3, missing="other")})
    budget = sf.approx(30, "1e-6", thresholds="5e-7")
    ledger = sf.Ledger.create(tmp_path / "l.db", total=budget)
    plan = sf.plan(sf.marginals(domain, order=1), budget, neighbours="add-remove", person="who", rows_per_person=10)
    done = sf.release(plan, people.session.table("people"), ledger=ledger, name="first", out=tmp_path / "first")
    table = done.table("sex")
    assert table.labels == (("1", "2", "(other)"),)
    assert abs(table.values - [250, 250, 1]).max() < 6 * table.standard_errors.max()
    assert not found(SECRET, tmp_path)
    assert SECRET not in people.log.read_text(errors="replace")


def test_a_release_is_made_from_a_frame(people: Running, tmp_path: Path) -> None:
    """The counts are those of the table; nothing planted is in the ledger, the release or the engine's log."""
    frame = people.session.table("people")
    plan = sf.plan(sf.marginals(DOMAIN, upto=2), sf.gdp(10**6), neighbours="add-remove")
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(10**7))
    done = sf.release(plan, frame, ledger=ledger, name="first", out=tmp_path / "first")
    np.testing.assert_allclose(done.answers, sf.marginals(DOMAIN, upto=2).answer(exact()), atol=0.5)
    one = sf.plan(sf.total(DOMAIN), sf.gdp(10**6), neighbours="add-remove", person="who", rows_per_person=2)
    few = sf.release(one, frame, ledger=None)
    assert abs(few.answers[0] - 101) < 0.5
    assert abs(few.cut_persons().value - 50) < 0.5
    assert not found(SECRET, tmp_path)
    assert SECRET not in people.log.read_text(errors="replace")


def test_what_cannot_be_paid_for_asks_no_spark(tmp_path: Path) -> None:
    """Mutant: a session started before the ledger was asked."""
    plan = sf.plan(sf.total(DOMAIN), sf.gdp(2), neighbours="add-remove")
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(1))
    with pytest.raises(BudgetExceeded):
        sf.release(plan, "spark://nowhere.invalid:1?table=t", ledger=ledger)


def test_the_command_line_takes_addresses(run: Run, people: Running) -> None:
    address = "spark://?table=people"
    assert run("init", address, "-o", "new.toml").code == 0
    text = Path("new.toml").read_text(encoding="utf-8")
    assert f'source = "{address}"' in text
    assert "[schema.note]" in text
    Path("spec.toml").write_text(SPEC.replace("people.csv", address), encoding="utf-8")
    first = release(run)
    assert (first.code, first.err) == (0, "")
    other = people.view("others", "SELECT * FROM people")
    refused(run("check", "spec.toml", "--sample", other, "--public"), "no sample is shown")
    for same in (address, "spark://?table=PEOPLE"):  # Spark knows no capitals
        refused(run("check", "spec.toml", "--sample", same, "--public"), "the table to be protected")
    Path("spec.toml").write_text(SPEC.replace("people.csv", "spark://h:1?table=a..b"), encoding="utf-8")
    refused(run("plan", "spec.toml"), "line 2", "spark://host:port?table=catalog.database.table")


def test_a_failure_before_the_debit_spends_nothing(
    people: Running, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(1))
    plan = sf.plan(sf.total(DOMAIN), sf.gdp(1), neighbours="add-remove")
    frame = people.frame("SELECT CAST(note AS INT) AS age, sex FROM people")
    with pytest.raises(SourceError):
        sf.release(plan, frame, ledger=ledger, out=tmp_path / "out")
    assert ledger.remaining == 1
    assert capfd.readouterr() == ("", "")
    assert not found(SECRET, tmp_path)
    people.session.sparkContext.setLogLevel("OFF")


@pytest.mark.parametrize("how", ["gone", "changed"])
def test_a_table_that_fails_after_the_debit_is_spent_and_not_written(
    people: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """As with a local file that vanishes. Mutants: a failure that says why; a budget given back."""
    own = Spark.tally

    def fail(self: Spark, *given: Any) -> Any:
        if how == "gone":
            raise RuntimeError(SECRET)
        flat, digests = own(self, *given)
        return flat, digests[1:]

    monkeypatch.setattr(Spark, "tally", fail)
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(1))
    plan = sf.plan(sf.marginals(DOMAIN, upto=1), sf.gdp(1), neighbours="add-remove")
    with pytest.raises(NotWritten, match="the budget is spent") as caught:
        sf.release(plan, people.session.table("people"), ledger=ledger)
    assert SECRET not in repr((caught.value, caught.value.__context__, caught.value.__cause__))
    assert ledger.remaining == 0


def test_looks_and_sessions_count_there_and_keys_say_that_they_do_not(people: Running, tmp_path: Path) -> None:
    frame = people.session.table("people")
    course = sf.plan(sf.marginals(DOMAIN, order=2), sf.gdp(100), neighbours="add-remove", mechanism="mwem", records=500)
    assert sf.release(course, frame, ledger=None).answers.sum() == pytest.approx(500, abs=60)
    questions = sf.plan(DOMAIN, sf.approx(50, "1e-6"), neighbours="add-remove", records=500, mechanism="histogram")
    sf.Ledger.create(tmp_path / "l.db", total=sf.approx(60, "1e-6"))
    session = sf.open(questions, "spark://?table=people", ledger=tmp_path / "l.db", store=tmp_path / "s", name="talk")
    assert abs(float(session.ask("sex == '1'").value) - 250) < 40
    keys = sf.plan(
        sf.Keys("who", kind="text"), sf.approx(50, "1e-6"), neighbours="add-remove", mechanism="count-sketch"
    )
    with pytest.raises(InvalidInput, match="keys are not"):
        sf.release(keys, frame, ledger=None)


def test_a_stream_counts_there_where_participation_is_promised(people: Running, tmp_path: Path) -> None:
    """A frame and an address; where nobody promises, the names would have to come here, and that is said.

    Mutants: one period counted as two; a refused period that is taken.
    """
    frame = people.frame("SELECT age, sex, concat(who, age, sex) AS who FROM people")  # nobody has more than one row
    frame.createOrReplaceTempView("apart")
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(10**8))
    work, paid = sf.marginals(DOMAIN, upto=1), sf.gdp(10**6)
    given: dict[str, Any] = {"neighbours": "add-remove", "person": "who", "rows_per_person": 6}
    periods = sf.periods(3, per_person=2, promised=True)
    stream = sf.open(sf.plan(work, paid, periods=periods, **given), ledger=ledger, name="s", store=tmp_path / "s")
    for period, source in (("w1", frame), ("w2", "spark://?table=apart")):
        stream.append(source, period=period)
    np.testing.assert_allclose(stream.totals.answers, 2 * work.answer(exact()), atol=0.5)
    held = sf.plan(work, paid, periods=sf.periods(3), **given)
    seen_to = sf.open(held, ledger=ledger, name="t", store=tmp_path / "t")
    with pytest.raises(InvalidInput, match="promised=True"):
        seen_to.append(frame, period="w1")
    (tmp_path / "one.csv").write_text("age,sex,who\n5,1,a\n", encoding="utf-8")
    seen_to.append(tmp_path / "one.csv", period="w1")
    assert abs(seen_to.totals.answers[0] - 1) < 0.5


class Heard:
    """Who is told how far an engine is, and does something at one of its jobs."""

    def __init__(self, at: str = "", action: Callable[[], object] = bool) -> None:
        self.said: list[tuple[str, int, int]] = []
        self._at, self._action = at, action

    def __call__(self, steps: int, gap: float) -> None: ...

    def jobs(self, what: str, done: int, of: int) -> None:
        self.said.append((what, done, of))
        if what == self._at:
            self._action()


def test_jobs_that_are_done_are_told_and_hang_on_no_row(people: Running) -> None:
    """Mutants: more or other jobs for more rows; a listener who fails what is paid for."""
    plan = sf.plan(sf.marginals(DOMAIN, upto=2), sf.gdp(1), neighbours="add-remove")
    for sql in ("SELECT * FROM people", "SELECT age, sex FROM people WHERE age < 0"):
        heard = Heard("counting", lambda: 1 / 0)
        sf.release(plan, people.frame(sql), ledger=None, progress=heard)
        assert heard.said == [("encoding", 0, 2), ("encoding", 1, 2), ("counting", 0, 1)]


@pytest.mark.parametrize(
    ("at", "wait", "left"), [("encoding", "begun", 1), ("encoding", "asked", 1), ("counting", "", 0)]
)
def test_an_interrupt_ends_what_runs_there(people: Running, tmp_path: Path, at: str, wait: str, left: int) -> None:
    """As with a file: before the debit nothing is spent, after it all is, which is said, and nothing is written.

    Mutants: jobs that run on without anybody; those that Java has been asked for and begins later; a budget given back.
    """
    context = people.session.sparkContext
    running = at == "encoding"  # in the midst of a job that would take longer than is waited for, or at one's start
    made = people.session.range(0, 4, 1, 2).mapInArrow(slowly(30 if running else 0), "age int, sex string")
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(1))
    plan = sf.plan(sf.marginals(DOMAIN, upto=1), sf.gdp(1), neighbours="add-remove")

    def when_it_runs() -> None:
        end = time.monotonic() + 60
        while wait == "begun" and not context.statusTracker().getActiveJobsIds() and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(1 if wait == "begun" else 0.005)
        os.kill(os.getpid(), signal.SIGINT)

    interrupt = threading.Thread(target=when_it_runs, daemon=True).start
    heard = Heard(at, interrupt if running else lambda: os.kill(os.getpid(), signal.SIGINT))
    of_spark = signal.signal(signal.SIGINT, signal.default_int_handler)  # which classic sessions have, others not
    try:
        with pytest.raises(KeyboardInterrupt if left else NotWritten) as caught:
            sf.release(plan, made, ledger=ledger, out=tmp_path / "out", progress=heard)
    finally:
        signal.signal(signal.SIGINT, of_spark)
    assert ledger.remaining == left
    assert left or ("entry 1" in str(caught.value) and "it was interrupted" in str(caught.value))
    assert not (tmp_path / "out").exists()
    end, seen = time.monotonic() + 20, time.monotonic()
    while time.monotonic() < seen + 2:  # what was asked for may begin in this time
        assert time.monotonic() < end
        seen = time.monotonic() if context.statusTracker().getActiveJobsIds() else seen
        time.sleep(0.1)
    context.setLogLevel("OFF")
    assert sf.release(plan, people.frame("SELECT * FROM people"), ledger=None).answers.size == 15


def slowly(seconds: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Rows that take their time."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import time

        import pyarrow

        for batch in batches:
            time.sleep(seconds)
            rows = batch.num_rows
            yield pyarrow.RecordBatch.from_pydict({"age": pyarrow.array([1] * rows, "int32"), "sex": ["1"] * rows})

    return run


CONNECT = """
import os, sys
import sfumato as sf
from sfumato.curator.engines.spark import _spark_session

(folder,) = sys.argv[1:]
domain = sf.Domain({"age": sf.Integers(0, 99, width=10, outside="other", missing="other"),
                    "sex": sf.Categories({"1": "female", "2": "male"}, outside="other", missing="other")})
session = _spark_session(None)  # as for an address, where SPARK_REMOTE says who is asked
assert not hasattr(session, "_jvm")
rows = ("SELECT CAST(id % 97 AS INT) AS age, CAST(1 + id % 2 AS STRING) AS sex, concat('Okapi88', id) AS note, "
        "concat('p', id % 50) AS who FROM range(0, 500, 1, 2)")
session.sql(rows).createOrReplaceTempView("people")
ledger = sf.Ledger.create(os.path.join(folder, "l.db"), total=sf.gdp(10**7))
work = sf.marginals(domain, upto=1)
plan = sf.plan(work, sf.gdp(10**6), neighbours="add-remove")
one = sf.release(plan, session.table("people"), ledger=ledger, name="frame")
two = sf.release(plan, "spark://?table=people", ledger=ledger, name="address")
print(*one.answers.round().astype(int), *two.answers.round().astype(int))
few = sf.plan(sf.total(domain), sf.gdp(10**6), neighbours="add-remove", person="who", rows_per_person=2)
print(*sf.release(few, session.table("people"), ledger=None).answers.round().astype(int))
before = ledger.remaining
for source in (session.sql("SELECT CAST(note AS INT) AS age, sex FROM people"), "spark://h:1?table=people"):
    try:
        sf.release(plan, source, ledger=ledger, name="failed")
    except sf.errors.SourceError as error:
        print(error, error.__cause__, error.__context__)
print(before == ledger.remaining)

import time
import pyspark.sql.functions as f
from pyspark.sql.connect.client.retries import DefaultPolicy
from pyspark.sql.connect.session import SparkSession


class Cut:
    def __init__(self, at):
        self.at = at

    def jobs(self, what, done, of):
        if (what, done) == self.at:
            open(os.path.join(folder, what), "w").close()
            while what == "counting" and os.path.exists(os.path.join(folder, what)):
                time.sleep(0.1)  # until the connection is cut; encoding is in the midst of a job then


slow = f.udf(lambda x: (__import__("time").sleep(0.02), x)[1], "int")
for what, done in (("encoding", 0), ("counting", 0)):
    while os.path.exists(os.path.join(folder, "encoding")):
        time.sleep(0.1)  # the server is started again
    session = SparkSession.builder.remote(os.environ["SPARK_REMOTE"]).create()
    session.range(1).count()  # a channel that was refused while the server was away remembers it for a second
    session.client.set_retry_policies([DefaultPolicy(max_retries=1)])  # its own are ten minutes of them
    frame = session.range(0, 400, 1, 2).select((f.col("id") % 97).cast("int").alias("age"), f.lit("1").alias("sex"))
    frame = frame.filter(slow("age") > -1) if what == "encoding" else frame
    try:
        sf.release(plan, frame, ledger=ledger, name=what, progress=Cut((what, done)))
    except sf.errors.SfumatoError as error:
        print(type(error).__name__, before == ledger.remaining, error.__cause__, error.__context__)
sys.stdout.flush()
os._exit(0)  # else the first session asks for ten minutes to be ended
"""


@pytest.mark.usefixtures("connect")
def test_spark_connect_counts_alike(people: Running, tmp_path: Path) -> None:
    """A program without Java of its own, that talks to a server, which at last is gone in the midst of a job before the
    debit, and of a pass after it.

    Mutants: what only classic sessions have asked for (their context, their Java); the server's text passed on, or
    logged by its client; a budget given back.
    """
    service = people.session._jvm.org.apache.spark.sql.connect.service.SparkConnectService
    java = people.session.sparkContext._jsc.sc()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    java.conf().set("spark.connect.grpc.binding.port", port)
    service.start(java)  # ends with its Java
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    env["SPARK_REMOTE"] = f"sc://127.0.0.1:{port}"
    command = [sys.executable, "-W", "ignore", "-c", CONNECT, str(tmp_path)]
    none = people.session._jvm.scala.Option.empty()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=env
    ) as run:
        try:
            for what in ("encoding", "counting"):
                said = tmp_path / what
                while not said.exists() and run.poll() is None:
                    time.sleep(0.1)
                time.sleep(1)
                service.stop(none, none)
                if what == "encoding":
                    service.start(java)
                said.unlink(missing_ok=True)
            out, err = run.communicate(timeout=300)
        finally:
            run.kill()
    assert "Okapi88" not in out + err  # the log of a server is its own
    lines = out.splitlines()
    expected = sf.marginals(DOMAIN, upto=1).answer(exact() - np.pad([[1]], ((10, 0), (2, 0)))).astype(int)
    assert lines[0] == " ".join(map(str, [*expected, *expected])), err[-2000:]
    assert lines[1] == "100"
    assert "Spark refused or broke off" in lines[2]
    assert lines[2].endswith("None None")
    assert "another Spark" in lines[3]
    assert lines[4:] == ["True", "SourceError True None None", "NotWritten False None None"]
    assert err == ""


CLUSTER = """
import itertools, os, signal, subprocess, sys, time, warnings
warnings.simplefilter("ignore")
from pyspark.sql import SparkSession
from sfumato.domain import Categories, Domain, Integers
from sfumato.errors import NotWritten, SourceError
from sfumato.curator.engines.spark import Spark
from sfumato.curator.rows.sources import open_source

builder = SparkSession.builder.master("local-cluster[2,1,1024]")
for key, value in SETTINGS.items():
    builder = builder.config(key, value)
session = builder.getOrCreate()
session.sparkContext.setLogLevel("OFF")
other = dict(outside="other", missing="other")
domain = Domain({"x": Integers(0, 9, **other), "y": Categories(["a", "b"], **other)})
frame = session.sql("SELECT CAST(id % 11 AS INT) AS x, IF(id % 3 = 0, 'a', 'b') AS y, concat('p', id % 700) AS who "
                    "FROM range(0, 60000, 1, 4)")
own = Spark._told

def executors():
    listed = subprocess.run(["ps", "-ww", "-eo", "pid,ppid,args"], capture_output=True, text=True).stdout.splitlines()
    rows = [line.split(None, 2) for line in listed[1:]]
    above = {int(p): int(q) for p, q, _ in rows}
    def mine(p):
        while p in above:
            if p == os.getpid():
                return True
            p = above[p]
        return False
    return [int(p) for p, _, what in rows
            if what.split()[0].endswith("java") and "CoarseGrainedExecutorBackend" in what and mine(int(p))]

def told(self, action, batch=None):
    if batch == 16:  # a pass: an executor dies with what it had kept
        living = executors()
        while not living:  # the one that was killed before has its follower within seconds
            time.sleep(0.2)
            living = executors()
        os.kill(living[0], signal.SIGKILL)
    return own(self, action, batch)

for person in (None, "who"):
    counts = open_source(frame, domain, person=person, rows_per_person=5)
    Spark._told = told
    found = counts.count([("x", "y"), ("x",)])
    Spark._told = own
    print(counts.rows, *found[("x", "y")].reshape(-1).tolist())

import sfumato as sf

class Cut:
    def jobs(self, what, done, of):
        if what == "counting":
            os.kill(session.sparkContext._gateway.proc.pid, signal.SIGKILL)

ledger = sf.Ledger.create("l.db", total=sf.gdp(2))
plan = sf.plan(sf.marginals(domain, upto=1), sf.gdp(1), neighbours="add-remove")
for name in ("cut", "gone"):
    try:
        sf.release(plan, frame, ledger=ledger, name=name, progress=Cut())
    except (NotWritten, SourceError) as error:
        print(type(error).__name__, ledger.remaining, error.__cause__, error.__context__)
"""


@pytest.mark.usefixtures("java")
def test_a_cluster_that_dies_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """On a cluster of two executors, one of them killed with the records that it had kept, before each pass.

    At last the driver is killed after a debit: what was paid is spent, as for a file that vanishes, and a release
    from what is left of it spends nothing. Neither says why.

    Mutants: round robin, by which a partition that is made again holds other rows; partitions merged in a pass, where
    one that is made again would be another's number.
    """
    import pyspark

    script = f"SETTINGS = {SETTINGS!r}\n{CLUSTER}"
    paths = [str(Path(__file__).parents[2] / "src"), os.environ.get("PYTHONPATH", "")]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
    }
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=env,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=900)
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)  # what it started, should it not have ended
            except ProcessLookupError:
                warnings.resetwarnings()
    said = out.decode().splitlines()
    assert len(said) == 4, (process.returncode, err.decode()[-2000:])
    assert said[2:] == ["NotWritten 3 None None", "SourceError 3 None None"]
    lines = [list(map(int, line.split())) for line in said[:2]]
    plain = np.zeros((11, 3), dtype=int)
    for i in range(60000):
        plain[min(i % 11, 10), 0 if i % 3 == 0 else 1] += 1
    assert lines[0] == [60000, *plain.reshape(-1).tolist()]
    assert lines[1][0] == 3500
    assert sum(lines[1][1:]) == 3500
