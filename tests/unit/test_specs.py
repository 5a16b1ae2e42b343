"""Spec files: what they declare, exactly as written, and every refusal with its line."""

from __future__ import annotations

import dataclasses
import os
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from sfumato._util.codec import value_fingerprint
from sfumato.errors import InvalidInput, SpecError
from sfumato.privacy.budget import Budget
from sfumato.privacy.unit import Neighbours
from sfumato.specs import Spec, read_spec
from sfumato.workloads import identity, marginals, predicates, prefix, ranges, stack, sums, total, windows
from sfumato.workloads.schema import import_schema, spec_template

SCHEMA = """\
[schema_defaults]
outside = "other"
missing = "other"
[schema.age]
type = "integer"
min = 0
max = 99
width = 5
outside = "clamp"
[schema.sex]
type = "category"
values = ["female", "male"]
[schema.wages]
type = "number"
edges = [0, 10000, 25000]
"""
PRIVACY = '[privacy]\nepsilon = 0.1\ndelta = 1e-6\nneighbours = "add-remove"\n'
TOTAL = "[[queries]]\ntotal = true\n"


@pytest.fixture
def read(tmp_path):
    def read_text(text: str) -> Spec:
        path = tmp_path / "spec.toml"
        path.write_text(text, encoding="utf-8")
        return read_spec(path)

    return read_text


def line_of(text: str, part: str) -> int:
    """The line on which `part` stands for the last time."""
    return text[: text.rindex(part)].count("\n") + 1


# ── what a spec declares ─────────────────────────────────────────────────────────────────────────


def test_the_least_spec(read, tmp_path):
    spec = read(SCHEMA + PRIVACY + TOTAL)
    assert spec.domain.names == ("age", "sex", "wages")
    assert spec.domain.shape == (21, 3, 3)
    assert spec.budget == Budget.approx("0.1", "1e-6")
    assert (spec.neighbours, spec.person, spec.rows_per_person) == (Neighbours.ADD_REMOVE, None, 1)
    assert (spec.mechanism.name, spec.objective, spec.records, spec.source) == ("auto", "tables", None, None)
    assert spec.path == tmp_path / "spec.toml"
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.records = 5


def test_everything_that_a_spec_may_say(read, tmp_path):
    spec = read(
        '[data]\nsource = "data/people.csv"\n'
        + SCHEMA
        + '[privacy]\nrho = 0.5\nneighbours = "replace-one"\nperson = "person_id"\nrows_per_person = 4\n'
        + '[plan]\nmechanism = "marginals"\nobjective = "max"\nrecords = 1_000\n'
        + TOTAL
    )
    assert spec.source == str(tmp_path / "data" / "people.csv")
    assert spec.budget == Budget.zcdp("0.5")
    assert (spec.neighbours, spec.person, spec.rows_per_person) == (Neighbours.REPLACE_ONE, "person_id", 4)
    assert (spec.mechanism.name, spec.objective, spec.records) == ("marginals", "max", 1000)


@pytest.mark.parametrize(
    ("lines", "budget"),
    [
        ("epsilon = 1", Budget.pure(1)),
        ("epsilon = 0.1", Budget.pure(Fraction(1, 10))),
        ("epsilon = 0.10000000000000000000001", Budget.pure("0.10000000000000000000001")),
        ('epsilon = "1/3"', Budget.pure(Fraction(1, 3))),
        ("epsilon = 1\ndelta = 1e-6", Budget.approx(1, Fraction(1, 10**6))),
        ("rho = 0.3", Budget.zcdp("0.3")),
        ("mu = 1", Budget.gdp(1)),
    ],
)
def test_budgets_are_exactly_what_is_written(read, lines, budget):
    assert read(SCHEMA + f'[privacy]\n{lines}\nneighbours = "add-remove"\n' + TOTAL).budget == budget


@pytest.mark.parametrize("source", ["duckdb:///file.db?table=people", "postgresql://host/db?table=people"])
def test_addresses_are_kept(read, source):
    assert read(f'[data]\nsource = "{source}"\n' + SCHEMA + PRIVACY + TOTAL).source == source


@pytest.mark.parametrize(
    ("query", "build", "name"),
    [
        ("marginals = 2", lambda d: marginals(d, 2), "marginals"),
        ("upto = 1", lambda d: marginals(d, upto=1), "marginals"),
        ('sets = [["sex", "age"], []]', lambda d: marginals(d, sets=[("age", "sex"), ()]), "marginals"),
        ('prefix = "age"\nby = ["sex"]', lambda d: prefix(d, "age", by=["sex"]), "prefix age by sex"),
        ('prefix = "age"\nby = "sex"', lambda d: prefix(d, "age", by=["sex"]), "prefix age by sex"),
        ('ranges = "wages"', lambda d: ranges(d, "wages"), "ranges wages"),
        ('windows = "age"\nwidth = 4', lambda d: windows(d, "age", width=4), "windows age"),
        ('sums = "wages"\nby = ["sex"]', lambda d: sums(d, "wages", by=["sex"]), "sum of wages by sex"),
        ('sums = "wages"\nvalues = [1, 2.5]', lambda d: sums(d, "wages", values=[1, 2.5]), "sum of wages"),
        (
            'sums = "wages"\nvalues = [1, 2.5]\nlabel = "wages squared"',
            lambda d: sums(d, "wages", values=[1, 2.5], name="wages squared"),
            "sum of wages squared",
        ),
        ('identity = ["age", "sex"]', lambda d: identity(d, "age", "sex"), "identity"),
        ("total = true", total, "total"),
        (
            "where = [\"age >= 65 and sex == 'female'\", 'wages < 10000']",
            lambda d: predicates(d, ["age >= 65 and sex == 'female'", "wages < 10000"]),
            "predicates",
        ),
    ],
)
def test_each_kind_of_query(read, query, build, name):
    spec = read(SCHEMA + PRIVACY + f"[[queries]]\n{query}\n")
    same = build(spec.domain)
    counts = np.arange(spec.domain.size) % 7
    assert list(spec.workload.parts) == [name]
    assert spec.workload.labels() == same.labels()
    assert np.array_equal(spec.workload.answer(counts), same.answer(counts))


def test_names_weights_and_order(read):
    spec = read(
        SCHEMA
        + PRIVACY
        + '[[queries]]\nname = "main"\nmarginals = 2\nweight = 2.5\n'
        + '[[queries]]\nprefix = "age"\n[[queries]]\nprefix = "age"\nweight = 0.1\n'
        + '[[queries]]\nname = "weights"\nmarginals = 1\n[[queries]]\nmarginals = 1\n'
    )
    assert list(spec.workload.parts) == ["main", "prefix age", "prefix age 2", "weights", "marginals"]
    assert spec.workload.weights == {
        "main": Fraction(5, 2),
        "prefix age": 1,
        "prefix age 2": Fraction(1, 10),
        "weights": 1,
        "marginals": 1,
    }


def test_a_generated_name_gives_way_to_a_given_one(read):
    spec = read(SCHEMA + PRIVACY + '[[queries]]\nmarginals = 1\n[[queries]]\nname = "marginals"\nmarginals = 2\n')
    assert list(spec.workload.parts) == ["marginals 2", "marginals"]


def test_dotted_and_inline_forms_are_the_same(read):
    inline = 'queries = [{ total = true }]\nprivacy = { rho = 1, neighbours = "add-remove" }\n'
    dotted = 'privacy.rho = 1\nprivacy . neighbours = "add-remove"\nqueries = [{ total = true }]\n'
    specs = [read(text + SCHEMA) for text in (inline, dotted)]
    assert [spec.workload.shape[0] for spec in specs] == [1, 1]
    assert specs[0].budget == specs[1].budget
    with pytest.raises(SpecError) as caught:
        read(dotted.replace("privacy.rho = 1", "privacy.rho = 0") + SCHEMA)
    assert caught.value.line == 1


# ── the way from a header or a schema to a spec ──────────────────────────────────────────────────


def test_a_template_refuses_to_run_and_lists_its_blanks(read):
    text = spec_template(["age", "odd name"], source="people.csv")
    with pytest.raises(SpecError, match="fill in what is still blank, or delete it") as caught:
        read(text)
    for key in ("schema.age.type", "schema.odd name.type", "privacy.neighbours", "queries.1.marginals"):
        assert key in str(caught.value)
    line = line_of(text, "epsilon =")
    assert f"privacy.epsilon (line {line})" in str(caught.value)
    assert caught.value.line == line_of(text, "outside =")


def test_a_template_runs_when_filled_in(read):
    text = spec_template(["employed"], source="people.csv")
    for key, value in [
        ("outside", '"other"'),
        ("missing", '"other"'),
        ("type", '"boolean"'),
        ("epsilon", "1"),
        ("delta", "1e-6"),
        ("neighbours", '"add-remove"'),
        ("marginals", "1"),
    ]:
        blank = next(row for row in text.splitlines() if row.startswith(key) and '""' in row)
        text = text.replace(blank, f"{key} = {value}")
    spec = read(text)
    assert spec.workload.shape == (4, 3)  # a table, and how many people there are, a part of its own
    assert list(spec.workload.parts) == ["main", "people"]
    assert spec.budget == Budget.approx(1, "1e-6")


def test_an_imported_schema_keeps_its_attributes(read, tmp_path):
    (tmp_path / "domain.json").write_text('{"age": 85, "sex": 2}')
    columns = import_schema(tmp_path / "domain.json")
    text = spec_template(columns).replace('source = ""', 'source = "p.csv"').replace('marginals = ""', "marginals = 2")
    text = text.replace('outside = ""', 'outside = "other"').replace('missing = ""', 'missing = "other"')
    text = text.replace('epsilon = ""', "epsilon = 1").replace('delta = ""', "delta = 1e-6")
    spec = read(text.replace('neighbours = ""', 'neighbours = "add-remove"'))
    assert spec.domain.shape == (86, 3)


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("lines", "at", "message"),
    [
        ("epsilon = 1\nrho = 1", "rho", "give epsilon, or epsilon and delta, or rho, or mu; got 'epsilon, rho'"),
        ("rho = 1\ndelta = 1e-6", "delta", "got 'delta, rho'"),
        ("delta = 1e-6", "delta", "got 'delta'"),
        ("", "[privacy]", "got 'nothing'"),
        ("epsilon = 0", "epsilon", "between 1e-300 and 1e9"),
        ("epsilon = 0\ndelta = 1e-6", "epsilon", "between 1e-300 and 1e9"),
        ("epsilon = -1", "epsilon", "must not be negative"),
        ("epsilon = nan", "epsilon", "must be a finite number"),
        ("epsilon = inf", "epsilon", "must be a finite number"),
        ("epsilon = 1e999", "epsilon", "fit a double"),
        ('epsilon = "1e999"', "epsilon", "epsilon must be"),
        ('epsilon = "1e9999999999"', "epsilon", "epsilon must be"),
        ("epsilon = true", "epsilon", "epsilon must be"),
        ('epsilon = "one"', "epsilon", "'one'"),
        ("epsilon = 1\ndelta = 0", "delta", "delta must be above 0"),
        ("epsilon = 1\ndelta = 1", "delta", "below 1"),
        ("epsilon = 1\nseed = 0", "seed", "no such key"),
        ("epsilom = 1", "epsilom", "did you mean 'epsilon'?"),
    ],
)
def test_budgets_that_are_refused(read, lines, at, message):
    text = SCHEMA + f'[privacy]\n{lines}\nneighbours = "add-remove"\n' + TOTAL
    with pytest.raises(SpecError) as caught:
        read(text)
    assert message in str(caught.value)
    assert caught.value.line == line_of(text, at)


@pytest.mark.parametrize(
    ("lines", "at", "message"),
    [
        ("", "[privacy]", "neighbours is missing; it is 'add-remove' or 'replace-one'"),
        ('neighbours = "bounded"', "neighbours", "must be 'add-remove' or 'replace-one', not 'bounded'"),
        ("neighbours = 1", "neighbours", "must be a text in quotes, not 1"),
        ('neighbours = "add-remove"\nrows_per_person = 2', "rows_per_person", "needs person="),
        ('neighbours = "add-remove"\nperson = "p"\nrows_per_person = 0', "rows_per_person", "from 1 to"),
        ('neighbours = "add-remove"\nperson = "p"\nrows_per_person = 1.5', "rows_per_person", "whole number"),
        ('neighbours = "add-remove"\nperson = 5', "person", "must be a text"),
    ],
)
def test_privacy_units_that_are_refused(read, lines, at, message):
    text = SCHEMA + f"[privacy]\nepsilon = 1\n{lines}\n" + TOTAL
    with pytest.raises(SpecError) as caught:
        read(text)
    assert message in str(caught.value)
    assert caught.value.line == line_of(text, at)


@pytest.mark.parametrize(
    ("schema", "at"),
    [
        (SCHEMA.replace('outside = "clamp"', 'outside = "drop"'), 'outside = "drop"'),
        (SCHEMA.replace('missing = "other"', 'missing = "drop"'), 'missing = "drop"'),
    ],
)
def test_replace_one_refuses_rows_that_are_dropped(read, schema, at):
    text = schema + '[privacy]\nepsilon = 1\nneighbours = "replace-one"\n' + TOTAL
    with pytest.raises(SpecError, match="treats the number of records counted as public") as caught:
        read(text)
    assert caught.value.line == line_of(text, at)
    assert read(text.replace("replace-one", "add-remove")).domain.drops


@pytest.mark.parametrize(
    ("lines", "at", "message"),
    [
        ("", "[[queries]]", "asks exactly one of marginals, upto, sets, prefix"),
        ("marginal = 2", "[[queries]]", "'marginal' is none of them; did you mean 'marginals'"),
        ("total = true\nmarginals = 2", "marginals", "it has total, marginals"),
        ("total = false", "total", "write total = true"),
        ("totl = true", "[[queries]]", "'totl' is none of them; did you mean 'total'"),
        ("weight = 2", "[[queries]]", "it has none"),
        ('marginals = "2"', "marginals", "must be a number, not '2'"),
        ("marginals = 2.5", "marginals", "must be a whole number, not 2.5"),
        ("marginals = true", "marginals", "must be a number, not true"),
        ("marginals = 9", "marginals", "from 0 to 3, not 9"),
        ("upto = -1", "upto", "from 0 to 3, not -1"),
        ('sets = ["age", "sex"]', "sets", 'as in sets = [["age", "sex"]]'),
        ("sets = []", "sets", "not 0"),
        ('sets = [["age"],\n["agee"]]', '["agee"]', "did you mean 'age'?"),
        ('sets = [["age", "age"]]', "sets", "twice"),
        ('sets = [["age"], ["age"]]', "sets", "twice"),
        ('prefix = "agee"', "prefix", "no attribute is called 'agee'; did you mean 'age'?"),
        ('prefix = "age"\nby = ["age"]', "prefix", "twice"),
        ('prefix = "age"\nby = ["sex",\n"agee"]', '"agee"]', "did you mean 'age'?"),
        ('prefix = "age"\nby = 5', "by", "must be a list"),
        ('prefix = "age"\nwidth = 5', "width", "no such key"),
        ('windows = "age"', "[[queries]]", "width is missing"),
        ('windows = "age"\nwidth = 0', "windows", "width"),
        ('windows = "age"\nwidth = 99', "windows", "99"),
        ('windows = "age"\nwidth = "4"', "width", "must be a number"),
        ('sums = "sex"', "sums", "numeric"),
        ('sums = "wages"\nvalues = [1]', "sums", "wages has 3 cells"),
        ('sums = "wages"\nvalues = [1, nan]', "values", "finite"),
        ('sums = "wages"\npower = 2', "sums", "numbers of a measure"),
        ('sums = "wages"\npower = 2.5', "power", "whole number"),
        ("identity = []", "identity", "at least one attribute"),
        ("identity = [5]", "identity", "must be the name of an attribute in quotes, not 5"),
        ("where = []", "where", "non-empty list"),
        ('where = "age >= 65"', "where", "must be a list, ['age >= 65'], not 'age >= 65'"),
        ("where = ['age >= 65',\n5]", "5]", "must be a text in quotes, not 5"),
        (
            "where = ['age >= 65',\n  # 'age >= 1'\n  'age >= 62']",
            "'age >= 62'",
            "where.2: age >= 62 divides",
        ),
        ("where = ['age > 30; DROP TABLE people']", "where", "';' has no meaning"),
        (f"where = ['{'(' * 100_000}']", "where", "at most 10,000 characters"),
        ("total = true\nweight = 0", "weight", "must be a positive number"),
        ("total = true\nweight = inf", "weight", "finite"),
        ("total = true\nweight = 1e999999999", "weight", "fit a double"),
        ('total = true\nweight = "2"', "weight", "must be a number, not '2'"),
        ("total = true\nname = 5", "name", "must be a text in quotes, not 5"),
        ('total = true\nname = "a\\u202e"', "name", "invisible"),
        ('total = true\nname = "(a"\n[[queries]]\ntotal = true\nname = "(A"', "name", "cannot be told apart"),
    ],
)
def test_queries_that_are_refused(read, lines, at, message):
    text = SCHEMA + PRIVACY + f"[[queries]]\n{lines}\n"
    with pytest.raises(SpecError) as caught:
        read(text)
    assert message in str(caught.value)
    assert caught.value.line == line_of(text, at)


@pytest.mark.parametrize(
    ("extra", "at", "message"),
    [
        ('[plan]\nobjective = "best"', "objective", "must be 'tables', 'cells' or 'max', not 'best'"),
        ("[plan]\nrecords = 0", "records", "must be at least 1, not 0"),
        ("[plan]\nrecords = 1.5", "records", "whole number"),
        ("[plan]\nmechanism = 5", "mechanism", "must be a text"),
        ("[plan]\nmecanism = 'auto'", "mecanism", "did you mean 'mechanism'?"),
        ("[plans]\nrecords = 1", "[plans]", "did you mean 'plan'?"),
        ("[data]\nsource = 5", "source", "must be a text"),
        ("[data]\nsource = ''", "source", "fill in what is still blank"),
        ("[data]\nsorce = 'a'", "sorce", "did you mean 'source'?"),
        ("[[data]]\nsource = 'a'", "[[data]]", "must be a table, [data]"),
    ],
)
def test_other_tables_that_are_refused(read, extra, at, message):
    text = SCHEMA + PRIVACY + TOTAL + extra + "\n"
    with pytest.raises(SpecError) as caught:
        read(text)
    assert message in str(caught.value)
    assert caught.value.line == line_of(text, at)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no attribute is declared"),
        (PRIVACY + TOTAL, "no attribute is declared"),
        (SCHEMA + TOTAL, "privacy: give epsilon"),
        (SCHEMA + PRIVACY, "between 1 and 1,000 tables [[queries]] are allowed, not 0"),
        ("queries = []\n" + SCHEMA + PRIVACY, "not 0"),
        (SCHEMA + PRIVACY + "[queries]\ntotal = true\n", "each under a line [[queries]]"),
        (SCHEMA + PRIVACY + TOTAL * 1001, "not 1,001"),
    ],
)
def test_specs_that_lack_a_part(read, text, message):
    with pytest.raises(SpecError) as caught:
        read(text)
    assert message in str(caught.value)


def test_a_spec_error_is_an_invalid_input_and_a_value_error(tmp_path):
    for path in (tmp_path, tmp_path / "absent.toml", str(tmp_path / "absent.toml")):
        with pytest.raises(SpecError, match="no file that can be read") as caught:
            read_spec(path)
        assert isinstance(caught.value, (InvalidInput, ValueError))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SpecError, match="no file that can be read"):
        read_spec(tmp_path / "pipe")


def test_relative_paths_start_at_the_spec(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "codes.csv").write_text("code,label\n1,one\n")
    schema = SCHEMA.replace('values = ["female", "male"]', 'values_from = "codes.csv"')
    (folder / "spec.toml").write_text('[data]\nsource = "people.csv"\n' + schema + PRIVACY + TOTAL)
    monkeypatch.chdir(tmp_path)
    spec = read_spec("project/spec.toml")
    assert spec.domain["sex"].labels == ("one", "(other)")
    assert Path(spec.source) == Path("project/people.csv")


MARGINAL_SPEC = """
[schema.age]
type = "integer"
min = 0
max = 9
outside = "clamp"
missing = "other"
[schema.sex]
type = "category"
values = ["f", "m"]
outside = "other"
missing = "other"
[privacy]
rho = 0.5
neighbours = "add-remove"
[[public]]
table = ["sex"]
counts = [10, 20, 0]
[[queries]]
name = "pairs"
marginals = 2
factors = { age = "prefix" }
margin = 12.5
[[queries]]
name = "windows"
sets = [["age"]]
factors = { age = ["windows", 3] }
"""


def test_factors_public_tables_and_margins(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(MARGINAL_SPEC)
    spec = read_spec(path)
    domain = spec.domain
    wanted = stack(
        pairs=marginals(domain, 2, factors={"age": "prefix"}),
        windows=marginals(domain, sets=[["age"]], factors={"age": ("windows", 3)}),
    )
    assert value_fingerprint(spec.workload) == value_fingerprint(wanted)
    assert spec.public == {("sex",): [10, 20, 0]}
    assert spec.margins == {"pairs": 12.5}


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ('age = "prefix"', 'age = "magic"', 22, "'identity', 'prefix'"),
        ('age = "prefix"', 'wage = "prefix"', 22, "no attribute is called 'wage'"),
        ('["windows", 3]', '["windows"]', 27, "windows"),
        ('["windows", 3]', '["windows", 30]', 27, "window"),
        ("margin = 12.5", "margin = 0", 23, "positive"),
        ("margin = 12.5", 'margin = "x"', 23, "number"),
        ('table = ["sex"]', 'table = ["six"]', 17, "no attribute"),
        ("counts = [10, 20, 0]", "cuonts = [10, 20, 0]", 18, "cuonts"),
        (
            '[[queries]]\nname = "windows"',
            '[[public]]\ntable = ["sex"]\ncounts = [1]\n[[queries]]\nname = "windows"',
            25,
            "twice",
        ),
    ],
)
def test_marginal_options_are_refused_with_their_line(
    tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    path = tmp_path / "s.toml"
    path.write_text(MARGINAL_SPEC.replace(old, new, 1))
    with pytest.raises(SpecError, match=message) as refused:
        read_spec(path)
    assert refused.value.line == line
