"""Two neighbouring tables, one byte stream: nothing but the noisy values may tell them apart.

The road and the corpus of bad data are walked over both tables in processes of their own, with the measured
values held fixed (support/walk.py). Output, exit codes, warnings and every file, the ledger's too, must be equal to
the last byte. A second test compares real releases by the command line, noisy fields left out.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf

TESTS = Path(__file__).parents[1]
BASE = "x,y,who\n" + "".join(f"{i % 10},{'ab'[i % 2]},p{i % 7}\n" for i in range(60))
SECRET = "Zebra77"

# class T: a row that gets a cell, or none, as declared; its table is a neighbour of the table without it
ROWS = [
    *(
        "1,a,p1",
        "9,b,p9",
        "NaN,a,p1",
        "inf,b,p1",
        "-inf,b,p1",
        ",,",
        "NULL,NULL,NULL",
        "1e400,a,p2",
        "-1e400,a,",
        "12,,p3",
    ),
    *("1.5,c,p3", "-7,A,p3", "1_000,a,p4", "0x10, a,p4", "１２,ä,p4", "99999999999999999999999999,true,p4", "2.0,1,p5"),
    *('" 3 ","a,b",p5', '"4","a""b",""', '"5\n6",a,p6', "=cmd(),=cmd(),=cmd()", f"{SECRET},{SECRET},{SECRET}"),
    *("\x1b[31m,\x07,\x1b[0m", "-0.0,TRUE,p1", "1e-400,yes,p1", "2e0,F,p1"),
]
# class C: tables that cannot be loaded, in pairs of neighbours, each with a record that must not be quoted
BROKEN = [
    ("t.csv", f'x,y,who\n1,a,p\n2,"{SECRET},q\n', f'x,y,who\n2,"{SECRET},q\n'),
    ("t.csv", f'x,y,who\n1,a,p\n2,"{SECRET}\n7,"q,r\n', f'x,y,who\n2,"{SECRET}\n7,"q,r\n'),
    ("t.csv", f"{SECRET},y,who\n1,a,p\n", f"{SECRET},y,who\n"),
    ("t.json", f'[{{"x":1,"y":"a","who":"p"}},{{"x":{SECRET}', f'[{{"x":{SECRET}'),
]
# class T as well, bytes that stand in no text: each of these records is added to a table of its kind
RAW = [
    *(
        "2,a\x00,p1",
        "2,a,p1,5",
        "2",
        f"{SECRET}",
        '2,a"b,p2',
        '2,"a"b,p1',
        "2,\xe9,p1",
        "2,a,\xff",
        "2,a\r,p3",
        '"2","a"',
    ),
    *(f"{SECRET}," * 200, "#", "\xef\xbb\xbf2,b,p1", "\x00", "2,a,\x00p1"),
]
OBJECTS = [
    *(
        '{"x":1,"y":["a"],"who":"p1"}',
        '{"x":{},"who":[2]}',
        "null",
        "5",
        '{"x":01}',
        '{"x":2,"y":"\xe9"}',
        '{"x":"\x00"}',
    ),
    *(f'{{"{SECRET}":1}}', '{"x":2,"x":3}', '{"x":NaN,"y":"\\ud800"}', '{"x" 2}', "[[2],{}]", '{"who":"p1","y":"a"}'),
]


def cases() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The same list of cases over the left tables and over their neighbours."""
    left: list[dict[str, Any]] = []
    right: list[dict[str, Any]] = []

    def add(plan: str, file: str, one: str, other: str, out: bool = False) -> None:
        for side, content in ((left, one), (right, other)):
            side.append({"plan": plan, "file": file, "content": content, "out": out})

    replaced = BASE.replace("9,b,p2\n", f"9,{SECRET},p2\n", 1)
    assert replaced != BASE
    for plan in ("mixed", "dropping", "persons"):
        add(plan, "t.csv", BASE, f"{BASE}3,a,p8\n", out=True)
        add(plan, "t.csv", "x,y,who\n", "x,y,who\n,,\n")
    add("replaced", "t.csv", BASE, replaced, out=True)
    add("swapped", "t.csv", f"{BASE}4,a,p8\n4,b,\n", f"{BASE}4,a,\n4,b,\n")
    for number, row in enumerate(ROWS):
        text = row.encode("utf-8").decode("latin-1")
        add(("mixed", "dropping", "persons")[number % 3], "t.csv", BASE, f"{BASE}{text}\n")
    add("persons", "t.csv", BASE, BASE + "".join(f"{i % 12},a,one\n" for i in range(30)))
    for number, row in enumerate(RAW):
        add(("mixed", "dropping", "persons")[number % 3], "t.csv", BASE, f"{BASE}{row}\n")
    held = '{"x":3,"y":"b","who":"p2"}'
    for number, record in enumerate(OBJECTS):
        plan = ("mixed", "dropping", "persons")[number % 3]
        add(plan, "t.json", f"[{held}]", f"[{held},{record}]")
        add(plan, "t.ndjson", f"{held}\n", f"{record}\n{held}\n")
    add("persons", "t.ndjson", held, f'{held}\n{{"x":"2\n')
    for file, one, other in BROKEN:
        add("persons", file, one, other)
    return left, right


def walk(folder: Path, side: list[dict[str, Any]], *options: str, **environment: str) -> dict[str, bytes]:
    """Everything that a walk leaves: its output, its exit code and every file, by name."""
    (folder / "work").mkdir(parents=True)
    (folder / "cases.json").write_text(json.dumps(side), encoding="utf-8")
    call = [sys.executable, "-W", "error", *options, str(TESTS / "support/walk.py"), "../cases.json"]
    done = subprocess.run(
        call, cwd=folder / "work", env={**os.environ, **environment}, capture_output=True, check=False
    )
    files = {str(p.relative_to(folder)): p.read_bytes() for p in (folder / "work").rglob("*") if p.is_file()}
    return {"stdout": done.stdout, "stderr": done.stderr, "code": str(done.returncode).encode(), **files}


def assert_same(one: dict[str, bytes], other: dict[str, bytes]) -> None:
    assert (one["code"], one["stderr"]) == (b"0", b""), one["stderr"].decode()
    assert one["stdout"].splitlines() == other["stdout"].splitlines()
    assert one.keys() == other.keys()
    assert [name for name in one if one[name] != other[name]] == []


def test_all_bytes_are_equal_over_neighbouring_tables(tmp_path: Path) -> None:
    """Mutants: a log line about rows that were kept; a warning about an empty table; the number of records beside an
    add-remove release, or of persons; a field in an error's text."""
    left, right = cases()
    one, other = walk(tmp_path / "left", left), walk(tmp_path / "right", right)
    assert_same(one, other)
    assert SECRET.encode() not in b"".join(one.values())
    assert one["stdout"].count(b"SourceError") == len(BROKEN)
    assert b"LedgerMismatch" not in one["stdout"]
    assert {
        "work/mixed.db",
        "work/persons.db",
        "work/r0/release.json",
        "work/r0/answers.parquet",
        "work/r0/report.html",
    } <= one.keys()


def test_all_bytes_are_equal_under_other_interpreters_and_locales(tmp_path: Path) -> None:
    """Mutants: an assert that decides something; a file written in the locale's encoding."""
    left, _ = cases()
    odd = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONHASHSEED": "7", "PYTHONIOENCODING": "utf-8", "TZ": "Asia/Tokyo"}
    assert_same(
        walk(tmp_path / "plain", left[:7], PYTHONIOENCODING="utf-8"), walk(tmp_path / "odd", left[:7], "-O", **odd)
    )


# ---- real releases, by the command line --------------------------------------------------------------------

SPEC = """
[data]
source = "t.csv"
[schema_defaults]
outside = "{policy}"
missing = "{policy}"
[schema.x]
type = "integer"
min = 0
max = 9
[schema.y]
type = "category"
values = ["a", "b"]
[privacy]
rho = 0.5
neighbours = "{neighbours}"
[[queries]]
marginals = 2
[[queries]]
prefix = "x"
"""
MASKS = (r"\b\d+:[0-9a-f]{64}", r"\b[0-9a-f]{32}\b", r"\d{4}-\d\d-\d\dT[\d:+]+")
OWN = ("created", "ledger", "files")  # of each release: its time, its place in the ledger, hashes of noisy files
SHARES = r"(?<=in \(other\) ).*"  # of noisy counts; that they say no more is seen where all measured values are fixed


def command(folder: Path, *arguments: str) -> tuple[int, str, str]:
    call = [sys.executable, "-W", "error", "-c", "from sfumato.cli import main; main()", *arguments]
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True, check=False)
    shown = [done.stdout, done.stderr]
    for mask in (*MASKS, SHARES):
        shown = [re.sub(mask, "#", text) for text in shown]
    return done.returncode, *shown


@pytest.mark.parametrize(("neighbours", "policy"), [("add-remove", "drop"), ("replace-one", "other")])
def test_real_releases_differ_in_noisy_fields_alone(neighbours: str, policy: str, tmp_path: Path) -> None:
    """Mutant: the size of the table among the facts."""
    import duckdb

    changed = BASE.replace("3,b", f"{SECRET},b", 1) if neighbours == "replace-one" else f"{BASE}{SECRET},,\n"
    seen = []
    for side, table in (("left", BASE), ("right", changed)):
        folder = tmp_path / side
        folder.mkdir()
        (folder / "t.csv").write_text(table, encoding="utf-8")
        (folder / "s.toml").write_text(SPEC.format(neighbours=neighbours, policy=policy), encoding="utf-8")
        sf.Ledger.create(folder / "l.db", total=sf.zcdp("0.5"))
        shown = [command(folder, "release", "s.toml", "--ledger", "l.db", "--name", "n", "-o", "r")]
        shown.append(command(folder, "release", "s.toml", "--ledger", "l.db", "--name", "too much", "-o", "no"))
        shown.append(command(folder, "ledger", "status", "l.db", "--json"))
        assert [code for code, *_ in shown] == [0, 2, 0], shown
        facts = json.loads((folder / "r/release.json").read_text(encoding="utf-8"))
        public = {key: value for key, value in facts.items() if key not in OWN}
        with duckdb.connect() as own:
            rows = own.sql(f"SELECT * FROM '{folder}/r/answers.parquet'").fetchnumpy()
        fixed = [rows[key].tolist() for key in ("part", "label", "standard_error")]
        shares = sorted(share["attribute"] for share in public.pop("other"))
        widths = np.round(rows["high"] - rows["low"], 6).tolist()
        with np.load(folder / "r/measurements.npz", allow_pickle=False) as stored:
            shapes = {key: (str(a.dtype), a.shape) for key, a in stored.items()}
            total = stored["public_total"].tolist()
        names = sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))
        seen.append((shown, public, list(rows), fixed, widths, shapes, total, names, shares))
        assert SECRET not in "".join(p.read_bytes().decode("latin-1") for p in (folder / "r").rglob("*") if p.is_file())
    assert seen[0] == seen[1]
    assert seen[0][-1] == (["x", "y"] if policy == "other" else [])
    assert seen[0][6] == ([60] if neighbours == "replace-one" else [])
