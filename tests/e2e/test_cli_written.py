"""A European file, and a spreadsheet, from the spec to a release by the command line: right at the first try."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import sfumato as sf
from sfumato.curator.rows.sources import open_source
from support.typed import Run, refused

openpyxl = pytest.importorskip("openpyxl")

TOWNS = ["Köln", "Zürich", "Lyon", "Groß-Gerau"]
ROWS = [(1500.5 * (k % 40) + 0.25, TOWNS[k % 4], k % 90, str(float(k // 3)).replace(".", ",")) for k in range(600)]


def european(number: float) -> str:
    return f"{number:,.2f}".replace(",", " ").replace(".", ",").replace(" ", ".")


def filled(path: str) -> None:
    """What a person fills in."""
    text = Path(path).read_text(encoding="utf-8")
    head, _, _ = text.partition("# Each column is declared")
    Path(path).write_text(
        head
        + """
[schema_defaults]
outside = "other"
missing = "other"
[schema.einkommen]
type = "number"
edges = [0, 10_000.5, 30_000, 60_000.25]
[schema.ort]
type = "category"
values = ["Köln", "Zürich", "Lyon", "Groß-Gerau"]
[schema."größe"]
type = "integer"
min = 0
max = 99
width = 10
[privacy]
epsilon = 8
delta = 1e-6
neighbours = "add-remove"
person = "nummer"
rows_per_person = 3
[[queries]]
marginals = 1
""",
        encoding="utf-8",
    )


@pytest.mark.parametrize("kind", ["csv", "tsv.gz", "xlsx"])
def test_a_european_table_is_right_at_the_first_try(run: Run, kind: str) -> None:
    """Nothing is in (other) that the declaration could place. Mutant: a notation that some command drops."""
    header = ["einkommen", "ort", "größe", "nummer"]
    table = f"leute.{kind}"
    options: list[str] = []
    if kind == "xlsx":
        book = openpyxl.Workbook()
        book.active.append(["nothing"])
        page = book.create_sheet("Leute")
        for row in (header, *ROWS):
            page.append(list(row))
        book.save(table)
        options = ["--sheet", "Leute", "--decimal", ","]
    else:
        mark = ";" if kind == "csv" else "\t"
        lines = [header, *([european(pay), town, str(size), who] for pay, town, size, who in ROWS)]
        data = "".join(mark.join(line) + "\r\n" for line in lines)
        written = data.encode("cp1252" if kind == "csv" else "iso8859-2")
        Path(table).write_bytes(gzip.compress(written) if kind.endswith("gz") else written)
        encoding = "cp1252" if kind == "csv" else "latin2"
        options = ["--decimal", ",", "--thousands", ".", "--encoding", encoding]
    ended = run("init", table, "-o", "leute.toml", *options)
    assert ended.code == 0, ended.err
    filled("leute.toml")
    spec = sf.read_spec("leute.toml")
    assert isinstance(spec.source, sf.Source)
    counts = open_source(spec.source, spec.domain, person="nummer", rows_per_person=3)
    assert counts.rows == 600
    found = counts.count([(n,) for n in spec.domain.names])
    assert {name: int(table[-1]) for name, table in found.items()} == dict.fromkeys(found, 0)
    assert run("ledger", "create", "b.db", "--epsilon", "9", "--delta", "1e-5").code == 0
    made = run("release", "leute.toml", "--ledger", "b.db", "--name", "one", "-o", "out", "--json")
    assert made.code == 0, made.err
    release = sf.load("out")
    for name in spec.domain.names:
        assert abs(release.table(name).values - found[(name,)]).max() < 25
    # rows drawn from the declaration are written as the table is
    if kind == "csv":
        assert run("mock", "leute.toml", "-n", "50", "-o", "mock.csv").code == 0
        assert "," in Path("mock.csv").read_text(encoding="cp1252")
        checked = run("check", "leute.toml", "--sample", "mock.csv", "--public", "--json")
        assert all(a["outside"]["rows"] == a["missing"] == 0 for a in json.loads(checked.out)["attributes"])


def test_options_of_a_command_stand_above_those_of_the_spec_and_go_with_a_plan(run: Run) -> None:
    """Mutants: a plan's table read plainly; --source read otherwise than the spec says."""
    Path("a.csv").write_text("x;y\n1,5;a\n2,5;b\n", encoding="utf-8")
    Path("b.csv").write_text("x;y\n1.5;a\n2.5;b\n2.5;b\n", encoding="utf-8")
    Path("s.toml").write_text(
        "[data]\nsource = 'a.csv'\ndecimal = ','\n[schema.x]\ntype = 'number'\nedges = [0, 2, 4]\noutside = 'other'\n"
        "missing = 'other'\n[privacy]\nepsilon = 50\nneighbours = 'add-remove'\n[[queries]]\nidentity = ['x']\n",
        encoding="utf-8",
    )
    assert run("ledger", "create", "b.db", "--epsilon", "400").code == 0
    assert run("plan", "s.toml", "-o", "s.plan").code == 0
    for number, (what, options, expected) in enumerate(
        (
            ("s.toml", [], [1, 1, 0]),
            ("s.toml", ["--source", "b.csv", "--decimal", "."], [1, 2, 0]),
            ("s.toml", ["--source", "b.csv"], [0, 0, 3]),
            ("s.plan", ["--source", "a.csv", "--decimal", ",", "--delimiter", ";"], [1, 1, 0]),
        )
    ):
        ended = run("release", what, "--ledger", "b.db", "--name", f"r{number}", "-o", f"r{number}", *options)
        assert ended.code == 0, ended.err
        assert sf.load(f"r{number}").answers.round().tolist() == expected
    bad = run(
        "release", "s.plan", "--ledger", "b.db", "--name", "z", "-o", "z", "--source", "a.csv", "--encoding", "utf-16"
    )
    refused(bad, "--encoding utf-16 is not read")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("decimal = ';'", "line 3: data.decimal: decimal=';' is not allowed"),
        ("decimal = ','\nthousands = ','", "line 4: data.thousands: decimal and thousands are both ','"),
        ("encoding = 'utf-16'", "line 3: data.encoding: encoding='utf-16' is not read"),
        ("decimals = ','", "there is no such key here"),
        ("sheet = 3", "line 3"),
    ],
)
def test_a_spec_is_refused_at_the_line_of_its_notation(run: Run, line: str, said: str) -> None:
    Path("s.toml").write_text(
        f"[data]\nsource = 'a.csv'\n{line}\n[schema.x]\ntype = 'boolean'\noutside = 'other'\nmissing = 'other'\n"
        "[privacy]\nepsilon = 1\nneighbours = 'add-remove'\n[[queries]]\ntotal = true\n",
        encoding="utf-8",
    )
    refused(run("plan", "s.toml"), said)


def test_a_stream_takes_its_periods_as_they_are_written(run: Run) -> None:
    Path("s.toml").write_text(
        "[schema.x]\ntype = 'number'\nedges = [0, 2, 4]\noutside = 'other'\nmissing = 'other'\n"
        "[privacy]\nmu = 50\nneighbours = 'add-remove'\n[[queries]]\nidentity = ['x']\n[stream]\nperiods = 4\n",
        encoding="utf-8",
    )
    Path("w.csv").write_text("x\n" + '"1,5"\n' * 300, encoding="utf-8")
    assert run("ledger", "create", "b.db", "--mu", "60").code == 0
    assert run("stream", "open", "s.toml", "--ledger", "b.db", "--name", "w", "--store", "w.stream").code == 0
    ended = run("stream", "append", "w.stream", "w.csv", "--period", "1", "--ledger", "b.db", "--decimal", ",")
    assert ended.code == 0, ended.err
    shown = run("stream", "show", "w.stream", "--ask", "x < 2", "--json")
    assert abs(json.loads(shown.out)["rows"][0]["answer"] - 300) < 10


def test_a_session_goes_on_with_its_table_as_it_is_written(run: Run) -> None:
    """Mutant: a store that keeps the path alone."""
    Path("a.csv").write_text("x;y\n" + "1,5;a\n" * 300, encoding="utf-8")
    Path("s.toml").write_text(
        "[data]\nsource = 'a.csv'\ndecimal = ','\n[schema.x]\ntype = 'number'\nedges = [0, 2, 4]\noutside = 'other'\n"
        "missing = 'other'\n[privacy]\nepsilon = 5\ndelta = 1e-6\nneighbours = 'add-remove'\n[[queries]]\n"
        "identity = ['x']\n"
        "[plan]\nrecords = 300\n",
        encoding="utf-8",
    )
    assert run("ledger", "create", "b.db", "--epsilon", "6", "--delta", "1e-5").code == 0
    assert run("session", "open", "s.toml", "--ledger", "b.db", "--name", "d", "-o", "d.session").code == 0
    ended = run("session", "ask", "d.session", "x < 2", "--ledger", "b.db", "--json")
    assert abs(json.loads(ended.out)["answer"] - 300) < 60
    assert "a.csv" in json.loads(run("session", "status", "d.session", "--json").out)["source"]
