"""Mock rows, and where the rows of a public sample go: never those of the table to be protected."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import sfumato as sf
from sfumato._util.checks import same_table
from sfumato.curator.rows.samples import place_sample
from sfumato.curator.rows.sources import open_source
from sfumato.domain.mock import mock_columns
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from support.typed import SPEC, Run, refused

DOMAIN = sf.Domain(
    {
        "age": sf.Integers(-5, 94, width=10, outside="clamp", missing="other"),
        "pay": sf.Bins([0, 0.25, 10, 1e6], outside="other", missing="other"),
        "sex": sf.Categories({"1": "female", "2": "male"}, outside="drop", missing="other"),
        "works": sf.Booleans(outside="other", missing="drop"),
        "place": sf.Hierarchy({"06": ["06001"], "41": ["41001", "41003"]}, ["s", "c"], outside="other", missing="drop"),
    }
)
UNIT = PrivacyUnit(Neighbours.ADD_REMOVE, None, 1)


def csv_file(path: Path, columns: dict[str, list[str]]) -> Path:
    lines = [",".join(columns), *(",".join(row) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_every_mock_row_lies_in_a_declared_cell(tmp_path: Path) -> None:
    """By the rules of the curator, 3,000 rows of seed 4. Mutant: upper edges drawn too."""
    columns = mock_columns(DOMAIN, 3000, 4)
    assert columns == mock_columns(DOMAIN, 3000, 4) != mock_columns(DOMAIN, 3000, 5)
    found = place_sample(csv_file(tmp_path / "mock.csv", columns), DOMAIN, UNIT)
    assert found.rows == found.counted == 3000
    for placed in found.attributes:
        assert placed.inside == 3000
        assert placed.used == DOMAIN[placed.attribute].declared_size
    for rows, seed in ((0, 0), (10**7, 0), (5, -1)):
        with pytest.raises(sf.errors.DomainError):
            mock_columns(DOMAIN, rows, seed)


def test_a_sample_is_placed_as_the_curator_places_it(tmp_path: Path) -> None:
    """Random rows, seed 6, against the counts that a release would be measured from: cells, (other) and dropped."""
    rng = np.random.default_rng(6)
    texts = {
        "age": ["", "3", "3.5", "-6", "200", "abc", "94"],
        "pay": ["0.1", "5", "-1", "2e6", "", "n/a"],
        "sex": ["1", "2", "1.0", "female", "3", ""],
        "works": ["yes", "no", "maybe", "", " "],
        "place": ["06001", "06", "", "41003"],
    }
    columns = {n: [str(rng.choice(v)) for _ in range(400)] for n, v in texts.items()}
    path = csv_file(tmp_path / "odd.csv", columns)
    found = place_sample(path, DOMAIN, UNIT)
    assert found.counted == open_source(path, DOMAIN).rows < found.rows == 400
    for placed in found.attributes:
        assert placed.inside + placed.outside.rows + placed.missing == 400
        alone = sf.Domain({placed.attribute: DOMAIN[placed.attribute]})
        counts = open_source(path, alone).count([(placed.attribute,)])[(placed.attribute,)]
        attribute = DOMAIN[placed.attribute]
        other = (placed.outside.rows if attribute.outside == "other" else 0) + (
            placed.missing if attribute.missing == "other" else 0
        )
        clamped = placed.outside.rows if attribute.outside == "clamp" else 0
        assert counts[: attribute.declared_size].sum() == placed.inside + clamped
        if attribute.has_other:
            assert counts[-1] == other
    by = {p.attribute: p for p in found.attributes}
    assert {v.text for v in by["sex"].outside.values} == {"female", "3"}
    assert next(v.hint for v in by["sex"].outside.values if v.text == "female").startswith("the label of '1'")
    assert {v.text for v in by["age"].unread.values} == {"abc"}
    assert {v.text for v in by["age"].outside.values} == {"3.5", "-6", "200"}


def test_check_says_where_rows_go(run: Run) -> None:
    Path("public.csv").write_text("sex,age\nfemale,5\nFemale,7\n1,200\n2,abc\n2,\n", encoding="utf-8")
    shown = run("check", "spec.toml", "--sample", "public.csv", "--public")
    assert shown.code == 0
    assert shown.err == ""
    assert "5 rows, 5 counted" in shown.out
    assert "'female' is the label of '1'" in shown.out
    assert "age: 1 rows are no number, so missing: 'abc' (1)" in shown.out
    assert "age: 1 rows are outside the range: '200' (1)" in shown.out
    facts = json.loads(run("check", "spec.toml", "--sample", "public.csv", "--public", "--json").out)
    (sex,) = (a for a in facts["attributes"] if a["attribute"] == "sex")
    assert (sex["inside"], sex["used"], sex["outside"]["rows"], sex["missing"]) == (3, 2, 2, 0)
    plain = SPEC.replace('{ "1" = "female", "2" = "male" }', '["female", "male"]')
    Path("plain.toml").write_text(plain, encoding="utf-8")
    told = run("check", "plain.toml", "--sample", "public.csv", "--public").out
    assert "'Female' is declared as 'female': capitals and blanks count" in told


def test_the_table_itself_is_refused(run: Run) -> None:
    """However it is called. Mutants: compared as texts alone; links not followed; the flag asked first, which then
    suggests it for the very table."""
    os.symlink("people.csv", "link.csv")
    os.link("people.csv", "hard.csv")
    Path("folder").mkdir()
    for name in ("people.csv", "./people.csv", "folder/../people.csv", str(Path("people.csv").resolve()), "link.csv"):
        for more in (["--public"], []):
            refused(run("check", "spec.toml", "--sample", name, *more), "the table to be protected", "nothing was read")
    refused(run("check", "spec.toml", "--sample", "hard.csv", "--public"), "the table to be protected")
    database = SPEC.replace("people.csv", "duckdb:///people.csv?table=people")
    Path("database.toml").write_text(database, encoding="utf-8")
    refused(run("check", "database.toml", "--sample", "people.csv", "--public"), "the table to be protected")


def test_a_table_that_may_be_the_source_is_refused(run: Run) -> None:
    """Where an address leaves a part to the client, or a catalogue takes two names for one.

    Mutants: an empty database (PGDATABASE) that matches itself alone; capitals of Spark that count; a table without its
    database taken for another; a service that is not left open.
    """
    full = "postgresql://db/shop?table=public.people"
    same = (
        (full, "postgresql://db/?table=people"),
        (full, "postgres://other:5432/shop?table=people"),
        ("postgresql:///?service=shop&table=people", full),
        ("spark:///?table=Shop.People", "spark://h:1/?table=people"),
        ("spark:///?table=spark_catalog.shop.people", "spark:///?table=SHOP.people"),
    )
    other = (
        (full, "postgresql://db/other?table=people"),
        (full, "postgresql://db/?table=private.people"),
        ("spark:///?table=a.people", "spark:///?table=b.people"),
        ("spark:///?table=people", full),
        (full, "people.csv"),
    )
    for expected, pairs in ((True, same), (False, other)):
        for one, two in pairs:
            assert same_table(one, two) is same_table(two, one) is expected, (one, two)
    for source, sample in (*same, *((b, a) for a, b in same)):
        Path("served.toml").write_text(SPEC.replace("people.csv", source), encoding="utf-8")
        refused(run("check", "served.toml", "--sample", sample, "--public"), "the table to be protected")


def test_values_are_not_taken_from_the_source(run: Run) -> None:
    """By path, by link, by address. Mutant: `mock` that draws from the protected table and says that it does not."""
    Path("codes.csv").write_text("code,label\n1,female\n2,male\n", encoding="utf-8")
    os.link("codes.csv", "hard.csv")
    os.symlink("codes.csv", "link.csv")
    Path("folder").mkdir()
    declared = SPEC.replace('values = { "1" = "female", "2" = "male" }', 'values_from = "codes.csv"')
    assert declared != SPEC
    for source in ("codes.csv", "folder/../codes.csv", "hard.csv", "link.csv", "duckdb:///codes.csv?table=t"):
        Path("own.toml").write_text(declared.replace("people.csv", source), encoding="utf-8")
        refused(run("mock", "own.toml"), "values_from", "the table to be protected", "public list")
    Path("own.toml").write_text(declared, encoding="utf-8")
    assert run("mock", "own.toml").code == 0


def test_a_sample_must_be_stated_to_be_public(run: Run) -> None:
    Path("public.csv").write_text("sex,age\nsecret,5\n", encoding="utf-8")
    ended = run("check", "spec.toml", "--sample", "public.csv")
    refused(ended, "--public", "never for the table to be protected", "Nothing was read")
    assert "secret" not in ended.err
    refused(run("check", "spec.toml", "--sample", "none.csv", "--public"), "none.csv")
    refused(run("check", "spec.toml", "--sample", "public.txt", "--public"), "not a source")


def test_mock_rows_are_written(run: Run) -> None:
    shown = run("mock", "spec.toml", "-n", "3")
    assert shown.code == 0
    assert shown.out.splitlines()[0] == "age,sex"
    assert len(shown.out.splitlines()) == 4
    assert run("mock", "spec.toml", "-n", "3", "-o", "mock.csv").code == 0
    assert Path("mock.csv").read_text(encoding="utf-8") == shown.out
    refused(run("mock", "spec.toml", "-o", "mock.csv"), "mock.csv exists")
    refused(run("mock", "spec.toml", "-n", "0"), "mock rows")
    assert "Every value lies in a declared cell." in run("check", "spec.toml", "--sample", "mock.csv", "--public").out
    person = SPEC.replace("[privacy]\n", '[privacy]\nperson = "id"\nrows_per_person = 2\n')
    Path("person.toml").write_text(person, encoding="utf-8")
    assert run("mock", "person.toml", "-n", "3").out.splitlines()[3].startswith("p2,")


def test_mock_rows_take_the_columns_alone(run: Run) -> None:
    """A spec that init began, its columns filled in and nothing else. Mutant: the whole spec is read."""
    Path("few.csv").write_text("age,sex\n1,f\n", encoding="utf-8")
    assert run("init", "few.csv", "-o", "new.toml").code == 0
    refused(run("mock", "new.toml"), "fill in", "schema.age.type")
    text = Path("new.toml").read_text(encoding="utf-8")
    for kind in ('"integer"\nmin = 0\nmax = 9', '"boolean"'):
        text = text.replace('type = ""', f"type = {kind}", 1)
    for policy in ("outside", "missing"):
        text = text.replace(f'{policy} = ""', f'{policy} = "other"', 1)
    Path("new.toml").write_text(text, encoding="utf-8")
    refused(run("plan", "new.toml"), "fill in", "privacy.epsilon")
    ended = run("mock", "new.toml", "-n", "3")
    assert (ended.code, ended.out.splitlines()[0]) == (0, "age,sex")
