"""A release from a Postgres server, on every road; and nothing of a row in what fails on the way."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.curator.curator import Curator
from sfumato.curator.engines.postgres import Snapshot
from sfumato.errors import BudgetExceeded, InvalidInput, SourceError, SpecError
from support.postgres import Server
from support.typed import SPEC, Run, refused, release

SECRET = "Zebra77"
OTHER = {"outside": "other", "missing": "other"}
DOMAIN = sf.Domain(
    {"age": sf.Integers(0, 99, width=10, **OTHER), "sex": sf.Categories({"1": "female", "2": "male"}, **OTHER)}
)


@pytest.fixture(scope="module")
def people(postgres: Server) -> Server:
    """The table of support.typed, with a secret in every column that can hold one."""
    postgres.run(
        "DROP TABLE IF EXISTS people CASCADE",
        "CREATE TABLE people (age int, sex text, note text, who text)",
        "INSERT INTO people SELECT i % 97, (1 + i % 2)::text, 'Zebra77', 'p' || i % 50 FROM generate_series(0, 499) i",
        "INSERT INTO people VALUES (7777777, 'Zebra77', 'Zebra77', 'Zebra77')",
        "DROP TABLE IF EXISTS mock",
        "CREATE TABLE mock (age int, sex text)",
        "INSERT INTO mock VALUES (5, 'female'), (200, '1'), (NULL, '2')",
    )
    return postgres


def spec_of(people: Server, table: str = "people") -> str:
    Path("spec.toml").write_text(SPEC.replace("people.csv", people.address(table)), encoding="utf-8")
    return "spec.toml"


def test_a_table_on_a_server_is_described(people: Server, tmp_path: Path) -> None:
    """Its names and types are those of the catalogue; each look is a snapshot of its own."""
    found = sf.describe(people.address("people"), sf.approx(40, "1e-6", thresholds="5e-7"), ledger=None)
    told = found.columns
    assert found.plan.types == ("integer", "", "", "")
    assert (told["age"].kind, told["sex"].kind, told["note"].kind) == ("number", "number", "text")
    assert [t for t, _ in told["note"].labels] == ["Zebra77"]
    assert abs(float(told["age"].quartiles[1].value) - 48) < 4
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(1))
    with pytest.raises(SourceError, match="no column called"):
        sf.describe(people.address("people"), sf.gdp(1), ledger=ledger, columns=["nobody"])
    assert ledger.spent == 0


def test_a_release_is_made_by_address_in_python(people: Server, tmp_path: Path) -> None:
    """The counts are those of the table; the second release of the name asks no server."""
    plan = sf.plan(sf.marginals(DOMAIN, upto=2), sf.gdp(10**6), neighbours="add-remove")
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(10**7))
    done = sf.release(plan, people.address("people"), ledger=ledger, name="first", out=tmp_path / "first")
    exact = np.zeros(DOMAIN.shape)
    for i in range(500):
        exact[i % 97 // 10, i % 2] += 1
    exact[-1, -1] += 1
    np.testing.assert_allclose(done.answers, sf.marginals(DOMAIN, upto=2).answer(exact), atol=0.5)
    nowhere = "postgresql://nowhere.invalid/d?table=t"
    again = sf.release(plan, nowhere, ledger=ledger, name="first", out=tmp_path / "first")
    assert (again.answers == done.answers).all()
    one = sf.plan(sf.total(DOMAIN), sf.gdp(10**6), neighbours="add-remove", person="who", rows_per_person=2)
    few = sf.release(one, people.address("people"), ledger=None)
    assert abs(few.answers[0] - 101) < 0.5
    assert abs(few.cut_persons().value - 50) < 0.5


def test_what_cannot_be_paid_for_asks_no_server(tmp_path: Path) -> None:
    """Mutant: a server connected to before the ledger was asked."""
    plan = sf.plan(sf.total(DOMAIN), sf.gdp(2), neighbours="add-remove")
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(1))
    with pytest.raises(BudgetExceeded):
        sf.release(plan, "postgresql://nowhere.invalid/d?table=t", ledger=ledger)


def test_the_command_line_takes_addresses(run: Run, people: Server) -> None:
    address = people.address("people")
    assert run("init", address, "-o", "new.toml").code == 0
    text = Path("new.toml").read_text(encoding="utf-8")
    assert f'source = "{address}"' in text
    assert "[schema.note]" in text
    assert SECRET not in text
    spec = spec_of(people)
    assert run("plan", spec, "-o", "plan.json").code == 0
    first = release(run)
    assert (first.code, first.err) == (0, "")
    second = run("release", "plan.json", "--source", address, "--ledger", "budget.db", "--name", "2", "-o", "out/2")
    assert (second.code, second.err) == (0, "")
    assert SECRET not in first.out + second.out
    shown = run("check", spec, "--sample", people.address("mock"), "--public")
    assert (shown.code, shown.err) == (0, "")
    assert "3 rows, 3 counted" in shown.out
    assert "'female' is the label of '1'" in shown.out
    other = address.replace("postgresql://postgres@", "postgres://")
    for name in (address, other, people.address("public.people"), people.address('"public"."people"')):
        refused(run("check", spec, "--sample", name, "--public"), "the table to be protected", "nothing was read")


@pytest.mark.parametrize(
    "address", ["postgresql://u:Zebra77@h/d?table=people", "postgresql://h/d?table=t&password=Zebra77"]
)
def test_a_password_is_in_nothing_that_is_written(run: Run, people: Server, address: str) -> None:
    """In a spec it is refused before a plan, on the command line before a ledger is asked. Mutant: it is shown."""
    Path("spec.toml").write_text(SPEC.replace("people.csv", address), encoding="utf-8")
    with pytest.raises(SpecError, match=r"line 2.*pgpass"):
        sf.read_spec("spec.toml")
    spec_of(people)
    plain = Path("spec.toml").read_text(encoding="utf-8")
    for arguments in (
        ("plan", "bad.toml"),
        ("init", address, "-o", "new.toml"),
        ("check", "spec.toml", "--sample", address, "--public"),
        ("release", "spec.toml", "--source", address, "--ledger", "budget.db", "--name", "x", "-o", "out/x"),
    ):
        Path("bad.toml").write_text(SPEC.replace("people.csv", address), encoding="utf-8")
        ended = run(*arguments)
        refused(ended, "pgpass")
        assert SECRET not in ended.err
    Path("bad.toml").unlink()
    assert plain == Path("spec.toml").read_text(encoding="utf-8")
    assert not found(SECRET, Path())


def found(secret: str, folder: Path) -> list[Path]:
    """Files below a folder that hold it."""
    return [p for p in folder.rglob("*") if p.is_file() and secret.encode() in p.read_bytes()]


TRAPS = {
    "cast": "SELECT (note || age)::int AS age, sex, who, note FROM people",
    "raised": "SELECT shout(note) AS age, sex, who, note FROM people",
    "late": "SELECT CASE WHEN age = 7777777 THEN note::int ELSE age END AS age, sex, who, note FROM people",
    "money": "SELECT age::money AS age, sex, who, note FROM people",
}


@pytest.mark.parametrize("trap", TRAPS)
def test_a_planted_value_is_nowhere_to_be_found(people: Server, tmp_path: Path, trap: str) -> None:
    """In a process of its own: not on the terminal, in the ledger, in a file; nothing is spent.

    Mutants: the text of an exception of the server's passed on; the debit before the table was read.
    """
    body = "BEGIN RAISE WARNING '% %', v, v; RAISE EXCEPTION '%', v USING DETAIL = v; END"
    people.run(
        f"CREATE OR REPLACE FUNCTION shout(v text) RETURNS int LANGUAGE plpgsql AS $${body}$$",
        f"CREATE OR REPLACE VIEW trap_of_{trap} AS {TRAPS[trap]}",
    )
    text = SPEC.replace("people.csv", people.address(f"trap_of_{trap}"))
    (tmp_path / "spec.toml").write_text(text.replace("[[queries]]", 'person = "who"\n[[queries]]', 1))
    ledger = sf.Ledger.create(tmp_path / "budget.db", total=sf.approx(2, "1e-6"))
    before = ledger.remaining
    command = ["release", "spec.toml", "--ledger", "budget.db", "--name", "x", "-o", "out/x"]
    done = subprocess.run(
        [sys.executable, "-c", "from sfumato.cli import main; main()", *command],
        cwd=tmp_path,
        capture_output=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 2
    assert done.stdout == b""
    assert 0 < len(done.stderr.splitlines()) <= 4
    assert b"Zebra" not in done.stderr
    assert not found(SECRET, tmp_path)
    assert sf.Ledger(tmp_path / "budget.db").remaining == before
    assert not (tmp_path / "out" / "x").exists()


def test_the_log_of_a_server_that_writes_down_everything_holds_no_planted_value(people: Server) -> None:
    """What is asked of a server holds no value, and a server that does not fail quotes none. Mutant: a value in SQL."""
    people.run(
        "ALTER DATABASE postgres SET log_min_messages = debug1", "ALTER DATABASE postgres SET log_statement = 'all'"
    )
    log = people.folder / "log"
    before = log.stat().st_size
    try:
        plan = sf.plan(sf.marginals(DOMAIN, upto=2), sf.gdp(1), neighbours="add-remove", person="who")
        sf.release(plan, people.address("people"), ledger=None)
    finally:
        people.run("ALTER DATABASE postgres RESET ALL")
    said = log.read_bytes()[before:].decode()
    assert "REPEATABLE READ" in said
    assert SECRET not in said


def test_what_is_released_holds_no_planted_value(people: Server, tmp_path: Path) -> None:
    plan = sf.plan(sf.marginals(DOMAIN, upto=2), sf.gdp(1), neighbours="add-remove", person="who")
    sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(1))
    sf.release(plan, people.address("people"), ledger=tmp_path / "l.db", out=tmp_path / "out")
    assert not found(SECRET, tmp_path)
    assert people.connections() == 0


def test_a_table_that_is_gone_after_the_debit_changes_nothing(people: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are here by then: the server may go, as a file may."""
    people.run("DROP TABLE IF EXISTS going", "CREATE TABLE going AS SELECT age, sex FROM people")
    own = Curator._look

    def gone(self: Curator, *arguments: Any) -> Any:
        assert people.connections() == 0
        people.run("DROP TABLE going")
        return own(self, *arguments)

    monkeypatch.setattr(Curator, "_look", gone)
    plan = sf.plan(sf.total(DOMAIN), sf.gdp(10**6), neighbours="add-remove")
    assert abs(sf.release(plan, people.address("going"), ledger=None).answers[0] - 501) < 0.5


def test_a_connection_cut_while_it_reads_spends_nothing(
    people: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own: Callable[..., Iterator[Any]] = Snapshot._all

    def cut(self: Snapshot, reader: Any, expected: int) -> Iterator[Any]:
        people.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sfumato'")
        return own(self, reader, expected)

    people.run("CREATE OR REPLACE VIEW wide AS SELECT age, sex FROM people, generate_series(1, 4000)")
    monkeypatch.setattr(Snapshot, "_all", cut)
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(1))
    plan = sf.plan(sf.total(DOMAIN), sf.gdp(1), neighbours="add-remove")
    with pytest.raises(SourceError, match="cut short"):
        sf.release(plan, people.address("wide"), ledger=ledger)
    assert ledger.remaining == 1


def test_looks_sessions_and_keys_read_from_a_server(people: Server, tmp_path: Path) -> None:
    """Several looks, questions one by one, resumed by the address they were opened by, and keys."""
    address = people.address("people")
    course = sf.plan(sf.marginals(DOMAIN, order=2), sf.gdp(100), neighbours="add-remove", mechanism="mwem", records=500)
    assert sf.release(course, address, ledger=None).answers.sum() == pytest.approx(500, abs=60)
    questions = sf.plan(DOMAIN, sf.approx(50, "1e-6"), neighbours="add-remove", records=500, mechanism="histogram")
    with_store = {"ledger": tmp_path / "l.db", "store": tmp_path / "s", "name": "talk"}
    sf.Ledger.create(tmp_path / "l.db", total=sf.approx(60, "1e-6"))
    session = sf.open(questions, address, **with_store)
    assert abs(float(session.ask("sex == '1'").value) - 250) < 40
    keys = sf.plan(
        sf.Keys("who", kind="text"), sf.approx(50, "1e-6"), neighbours="add-remove", mechanism="count-sketch"
    )
    assert sf.release(keys, address, ledger=None) is not None


def test_a_stream_reads_from_a_server(people: Server, tmp_path: Path) -> None:
    """Also where it sees to it itself that nobody is counted too often. Mutant: the periods of a person not kept."""
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(10**8))
    plan = sf.plan(
        sf.total(DOMAIN), sf.gdp(10**4), neighbours="add-remove", person="who", periods=sf.periods(3, per_person=1)
    )
    stream = sf.open(plan, ledger=ledger, name="s", store=tmp_path / "s")
    for period in ("w1", "w2"):
        stream.append(people.address("people"), period=period)
    assert [round(float(stream.between(p, p).answers[0])) for p in ("w1", "w2")] == [51, 0]


def test_addresses_that_are_none_are_refused_in_specs(run: Run) -> None:
    Path("spec.toml").write_text(SPEC.replace("people.csv", "postgresql://h/d?table=a.b.c"), encoding="utf-8")
    refused(run("plan", "spec.toml"), "line 2", "postgresql://user@host:port/database?table=schema.name")
    with pytest.raises(InvalidInput):
        sf.read_spec("spec.toml")
