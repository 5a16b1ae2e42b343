"""Floors and caps of groups, from a spec to a projected release: read with their lines, and checked before any row."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import SpecError
from sfumato.studio.drafts import apply_changes
from support.typed import Run, refused, release

SPEC = """\
[data]
source = "homes.csv"
[schema_defaults]
outside = "other"
missing = "other"
[schema.place]
type = "hierarchy"
values_from = "codes.csv"
levels = ["state", "block"]
[schema.kind]
type = "category"
values = ["home", "ward"]
[schema.adult]
type = "boolean"
[privacy]
rho = "0.05"
neighbours = "add-remove"
[[queries]]
sets = [[], ["kind", "adult"]]
factors = { place = "levels" }
[[bounds]]
level = "state"
least = [30, 0, 0]
most = 60
[[bounds]]
level = "place"
where = "kind == 'ward'"
most = [0, 9, 0, 9, 0]
"""


@pytest.fixture
def homes(run: Run) -> Path:
    Path("codes.csv").write_text("state,block\nA,1\nA,2\nB,3\nB,4\n", encoding="utf-8")
    rows = [f"{1 + i % 4},{'ward' if i % 4 % 2 and i % 7 == 0 else 'home'},{i % 3 > 0}" for i in range(100)]
    Path("homes.csv").write_text("\n".join(["place,kind,adult", *rows]), encoding="utf-8")
    path = Path("homes.toml")
    path.write_text(SPEC, encoding="utf-8")
    return path


def test_bounds_of_a_spec_are_kept_by_the_projection(run: Run, homes: Path) -> None:
    assert release(run, spec="homes.toml").code == 0
    done = run("project", "out/first", "-o", "out/bounded", "--integer", "--bounds", "homes.toml", "--json")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["projection"]["body"] == "spine"
    found = sf.load("out/bounded")
    states, wards = found.table("state").values, found.table("place", "kind").values[:, 1]
    assert (states >= [30, 0, 0]).all()
    assert (states <= 60).all()
    assert (wards <= [0, 9, 0, 9, 0]).all()
    # what the spec says is what a call in Python takes
    spec = sf.read_spec(homes)
    again = sf.load("out/first").project(integer=True, bounds=spec.bounds)
    assert np.array_equal(again.answers, found.answers)
    # bounds that no noise meets by chance: there are 100 records
    homes.write_text(SPEC.replace("least = [30, 0, 0]", "least = [500, 0, 0]").replace("most = 60", "most = 600"))
    done = run("project", "out/first", "-o", "out/moved", "--integer", "--bounds", "homes.toml", "--json")
    assert (done.code, done.err) == (0, "")
    assert sf.load("out/moved").table("state").values[0] >= 500
    assert sf.load("out/first").project(integer=True).table("state").values[0] < 500


def test_a_spec_written_back_reads_the_same(homes: Path) -> None:
    before = sf.read_spec(homes).bounds
    assert before == {"state": ([30, 0, 0], 60), ("place", "kind == 'ward'"): (0, [0, 9, 0, 9, 0])}
    # what the page writes when something else is changed
    text = apply_changes(SPEC, [{"place": ["privacy", "rho"], "value": "0.1"}])
    homes.write_text(text, encoding="utf-8")
    spec = sf.read_spec(homes)
    assert spec.bounds == before
    assert spec.budget == sf.zcdp("0.1")


WRONG = [
    ("least = [30, 0, 0]", "least = [30, 0]", 'level = "state"', "one for each group"),
    ("least = [30, 0, 0]", "laest = [30, 0, 0]", "least = [30, 0, 0]", "laest"),
    ("least = [30, 0, 0]", "least = 'many'", "least = [30, 0, 0]", "must be a number"),
    ('level = "state"', 'level = "town"', 'level = "state"', "not of 'town'"),
    ('level = "state"', "", "[[bounds]]", "it names the level"),
    ('level = "place"', 'level = "kind"', "where = \"kind == 'ward'\"", "not of 'kind'"),
    ("kind == 'ward'", "kind == 'jail'", "where = \"kind == 'ward'\"", "jail"),
    ("kind == 'ward'", "state == 'A'", "where = \"kind == 'ward'\"", "asked within units"),
    ("most = [0, 9, 0, 9, 0]", "", 'level = "place"', "give least, most, or both"),
    ("most = 60", "most = 20", 'level = "state"', "no table is within these bounds: state 'A' has"),
    ('factors = { place = "levels" }', "", 'level = "state"', "tables at its levels"),
    ("where = \"kind == 'ward'\"\nmost", 'most = 9\n[[bounds]]\nlevel = "place"\nleast', 'level = "place"', "twice"),
    ("where = \"kind == 'ward'\"\nmost = [0, 9, 0, 9, 0]", "most = 9", "[[bounds]]", "no table is within these bounds"),
]


@pytest.mark.parametrize(("old", "new", "line", "words"), WRONG)
def test_wrong_bounds_are_refused_where_they_stand(
    run: Run, homes: Path, old: str, new: str, line: str, words: str
) -> None:
    """Before a plan is made, so before anything is paid."""
    text = SPEC.replace(old, new)
    assert text != SPEC
    homes.write_text(text, encoding="utf-8")
    lines = text.splitlines()
    at = lines.index(line.replace(old, new)) if words != "twice" else len(lines) - lines[::-1].index(line) - 1
    refused(run("plan", "homes.toml", "-o", "homes.plan"), words, f"line {at + 1}:")


def test_one_floor_for_all_groups_is_of_those_that_were_declared(run: Run, homes: Path) -> None:
    """Mutant: it holds for codes that the file does not have as well, and makes people who are nowhere."""
    homes.write_text(SPEC.replace("least = [30, 0, 0]", "least = 30"), encoding="utf-8")
    assert release(run, spec="homes.toml").code == 0
    assert run("project", "out/first", "-o", "out/bounded", "--integer", "--bounds", "homes.toml").code == 0
    found = sf.load("out/bounded").table("state").values
    assert found[:2].min() >= 30
    assert found[2] < 30
    # and public totals may say that nobody is there
    within = SPEC.replace('"add-remove"', '"replace-one within state"').replace("[30, 0, 0]", "30")
    homes.write_text(within + '[[public]]\ntable = ["state"]\ncounts = [50, 50, 0]\n', encoding="utf-8")
    assert sf.read_spec(homes).bounds


def test_public_totals_count_as_bounds(homes: Path) -> None:
    """Mutant: bounds that contradict the public totals found out only after the release was paid."""
    within = SPEC.replace('"add-remove"', '"replace-one within state"')
    given = '[[public]]\ntable = ["state"]\ncounts = [50, 50, 0]\n'
    homes.write_text(within + given, encoding="utf-8")
    assert sf.read_spec(homes).bounds
    homes.write_text(within + given.replace("[50, 50, 0]", "[20, 80, 0]"), encoding="utf-8")
    with pytest.raises(SpecError, match="no table is within these bounds"):
        sf.read_spec(homes)


def test_a_spec_without_bounds_or_of_another_table_is_refused(run: Run, homes: Path) -> None:
    assert release(run, spec="homes.toml").code == 0
    Path("none.toml").write_text(SPEC[: SPEC.index("[[bounds]]")], encoding="utf-8")
    Path("other.toml").write_text(SPEC.replace('"home", "ward"', '"home", "ward", "hotel"'), encoding="utf-8")
    for name, words in (("none.toml", "no tables [[bounds]]"), ("other.toml", "other attributes")):
        ended = run("project", "out/first", "-o", "out/bounded", "--bounds", name)
        refused(ended, words)
        assert not Path("out/bounded").exists()
    assert homes.is_file()
