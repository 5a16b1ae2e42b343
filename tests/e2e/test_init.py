"""Specs begun from tables and from other tools' schemas."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pandas as pd
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
def test_init_reads_names_and_types_of_columns_and_nothing_else(run: Run, table: str) -> None:
    """Where there are types, numbers are proposed as measures. Mutant: a range of them from the rows."""
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
    numbers = "measures" if "duckdb" in table or "parquet" in table else "schema"
    blanks_refuse(run, "new.toml", f"[{numbers}.age]", f"[{numbers}.sex]", "[schema.note]")
    assert text.count('min = ""') == text.count('max = ""') == 2 * (numbers == "measures")
    refused(run("init", table, "-o", "new.toml"), "new.toml exists")
    assert Path("new.toml").read_text(encoding="utf-8") == text


def test_what_init_proposes_hangs_on_no_missing_number(run: Run) -> None:
    """With pandas a missing one turns whole numbers into doubles. Mutant: whole numbers proposed as attributes."""
    texts: list[str] = []
    for values in ([1, 2], [1, None]):
        pd.DataFrame({"age": values, "name": ["a", "b"]}).to_parquet("t.parquet")
        assert run("init", "t.parquet", "-o", f"new{len(texts)}.toml").code == 0
        texts.append(Path(f"new{len(texts)}.toml").read_text(encoding="utf-8"))
    assert texts[0] == texts[1]
    assert "[measures.age]" in texts[0]


def test_a_measure_is_named_where_there_are_no_types(run: Run) -> None:
    """And the spec runs once it is filled in. Mutants: a name that no column has; one table for both uses."""
    Path("stays.csv").write_text("ward,cost of it\na,900\nb,200\n", encoding="utf-8")
    refused(run("init", "stays.csv", "-o", "new.toml", "--measure", "Cost of it"), "names no column", "nothing was")
    assert not Path("new.toml").exists()
    assert run("init", "stays.csv", "-o", "new.toml", "--measure", "cost of it").code == 0
    blanks_refuse(run, "new.toml", "[schema.ward]", '[measures."cost of it"]', 'means = "cost of it"')
    text = Path("new.toml").read_text(encoding="utf-8")
    assert '[schema."cost of it"]' not in text
    filled = {"outside": '"other"', "missing": '"other"', "type": '"category"\nvalues = ["a", "b"]', "min": "0"}
    filled |= {"max": "1000", "epsilon": "1", "delta": "1e-6", "neighbours": '"add-remove"', "marginals": "1"}
    for key, value in filled.items():
        text = text.replace(f'\n{key} = ""', f"\n{key} = {value}")
    Path("new.toml").write_text(text, encoding="utf-8")
    shown = run("plan", "new.toml")
    assert shown.code == 0
    assert "means of cost of it" in shown.out


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
