"""Specs begun from tables and from other tools' schemas."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from support.typed import Run, refused, release


def blanks_refuse(run: Run, spec: str, *names: str) -> None:
    text = Path(spec).read_text(encoding="utf-8")
    for name in names:
        assert name in text
    refused(run("plan", spec), "line ", "fill in")


@pytest.mark.parametrize(
    "table", ["people.csv", "semi.csv", "people.parquet", "people.json", "duckdb:///people.duckdb?table=people"]
)
def test_init_reads_the_names_of_columns_and_nothing_else(run: Run, table: str) -> None:
    Path("semi.csv").write_text("age;sex;note\n1;777;secret\n", encoding="utf-8-sig")
    with duckdb.connect("people.duckdb") as connection:
        connection.execute("CREATE TABLE people AS SELECT 1 AS age, 777 AS sex, 'secret' AS note")
        connection.execute("COPY people TO 'people.parquet'")
    Path("people.json").write_text('[{"age": 1, "sex": 777, "note": "secret"}]', encoding="utf-8")
    assert run("init", table, "-o", "new.toml").code == 0
    text = Path("new.toml").read_text(encoding="utf-8")
    assert "secret" not in text
    assert "777" not in text
    assert f'source = "{table}"' in text
    blanks_refuse(run, "new.toml", "[schema.age]", "[schema.sex]", "[schema.note]")
    refused(run("init", table, "-o", "new.toml"), "new.toml exists")
    assert Path("new.toml").read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("header", "odd"),
    [("67,male,1.5,2024-05-01", 3), ("age,sex,pay,born", 0), ("2019,2020,name,x1", 2), ("1e5,nan,a,b", 2)],
)
def test_init_doubts_names_that_look_like_values(run: Run, header: str, odd: int) -> None:
    """In one line of stderr, without the values."""
    Path("some.csv").write_text(f"{header}\n3,f,2,2024-05-02\n", encoding="utf-8")
    ended = run("init", "some.csv", "-o", "new.toml")
    assert ended.code == 0
    assert (f"{odd} of the 4 names look like numbers or dates" in ended.err) == (odd > 0)
    assert not any(name in ended.err for name in ("67", "2024", "2019", "1.5"))


def test_init_writes_the_source_as_seen_from_the_spec(run: Run) -> None:
    Path("specs").mkdir()
    assert run("init", "people.csv", "-o", "specs/new.toml").code == 0
    assert 'source = "../people.csv"' in Path("specs/new.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(("content", "word"), [("", "no column"), ("\xff\xfe", "UTF-8"), ("[]", "not a source")])
def test_init_refuses_what_is_no_table(run: Run, content: str, word: str) -> None:
    name = "bad.txt" if content == "[]" else "bad.csv"
    Path(name).write_bytes(content.encode("latin-1"))
    refused(run("init", name, "-o", "new.toml"), word)
    assert not Path("new.toml").exists()


def test_init_refuses_json_without_records(run: Run) -> None:
    for text in ("[]", "[1]", "{", "[" * 100_000):
        Path("bad.json").write_text(text, encoding="utf-8")
        refused(run("init", "bad.json", "-o", "new.toml"), "no column")
    refused(run("init", "missing.json", "-o", "new.toml"), "'missing.json' cannot be found")
    Path("folder.csv").mkdir()
    refused(run("init", "folder.csv", "-o", "new.toml"), "not a regular file")


def test_schema_import(run: Run) -> None:
    Path("domain.json").write_text('{"age": 85, "sex": 2}', encoding="utf-8")
    assert run("schema", "import", "domain.json", "-o", "new.toml").code == 0
    blanks_refuse(run, "new.toml", "[schema.age]", "max = 84")
    refused(run("schema", "import", "spec.toml", "-o", "other.toml"), "not JSON")


def test_a_filled_in_spec_runs(run: Run) -> None:
    assert run("init", "people.csv", "-o", "new.toml").code == 0
    text = Path("new.toml").read_text(encoding="utf-8")
    kept = text.replace('[schema.note]\ntype = ""\n', "")
    for name, value in (("outside", '"drop"'), ("missing", '"drop"'), ("epsilon", "1"), ("delta", "1e-6")):
        kept = kept.replace(f'{name} = ""', f"{name} = {value}")
    kept = kept.replace('neighbours = ""', 'neighbours = "add-remove"').replace('marginals = ""', "marginals = 1")
    kept = kept.replace('[schema.age]\ntype = ""', '[schema.age]\ntype = "integer"\nmin = 0\nmax = 99')
    kept = kept.replace('[schema.sex]\ntype = ""', '[schema.sex]\ntype = "category"\nvalues = ["1", "2"]')
    Path("new.toml").write_text(kept, encoding="utf-8")
    assert run("plan", "new.toml").code == 0
    assert release(run, "first", "new.toml").code == 0
