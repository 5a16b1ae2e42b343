"""Schemas in files: what reads back, what other tools' files become, and every refusal with its line."""

from __future__ import annotations

import json
import os
import re
import string
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato._util.checks import suggest_name
from sfumato.domain import Bins, Booleans, Categories, Dates, Domain, Hierarchy, Integers, Measure
from sfumato.errors import DomainError, SpecError
from sfumato.workloads.reading import read_toml
from sfumato.workloads.schema import import_schema, read_schema, spec_template, spec_text


def read(folder, text: str) -> Domain:
    path = folder / "spec.toml"
    path.write_text(text, encoding="utf-8")
    return read_schema(read_toml(path), folder)


def declared(body: str, name: str = "x") -> str:
    return f'[schema_defaults]\noutside = "other"\nmissing = "other"\n[schema.{name}]\n{body}\n'


# ── round trip ───────────────────────────────────────────────────────────────────────────────────

NAMES = st.text(string.ascii_letters + string.digits + " _-.\"'\\[]=#`é漢{}", min_size=1, max_size=12).filter(str.strip)
OUTSIDE = st.sampled_from(["other", "clamp", "drop"])
WITHOUT_ORDER = st.sampled_from(["other", "drop"])


def _told_apart(attributes) -> bool:
    finest = [a.cell_level for name, a in attributes.items() if a.cell_level not in (None, name)]
    names = [*attributes, *finest, *(level.name for a in attributes.values() for level in a.groupings)]
    return len({n.casefold().strip() for n in names}) == len(names)


@st.composite
def attributes(draw):
    policies = {"outside": draw(OUTSIDE), "missing": draw(WITHOUT_ORDER)}
    plain = {"outside": draw(WITHOUT_ORDER), "missing": draw(WITHOUT_ORDER)}
    kind = draw(
        st.sampled_from(["integer", "number", "date", "category", "labelled", "boolean", "hierarchy", "levels"])
    )
    if kind == "integer":
        low = draw(st.integers(-(10**6), 10**6))
        return Integers(low, low + draw(st.integers(0, 200)), draw(st.integers(1, 50)), **policies)
    # a name of its own for every level of a domain
    number = draw(st.integers(0, 10**12).map(lambda n: f"level {n}"))
    if kind == "hierarchy":
        codes = draw(st.lists(NAMES, min_size=3, max_size=6, unique_by=lambda n: n.casefold().strip()))
        rows = [("a" if i == 0 else "b", code) for i, code in enumerate(codes)]
        labels = draw(st.sampled_from([{}, {f"{number}'": {codes[0]: "first of all"}, number: {"a": "one 'a'"}}]))
        return Hierarchy(rows, [number, f"{number}'"], labels, **plain)
    if kind == "levels":
        level = draw(st.sampled_from([2, [0, 1, 6], [0, 3, 6]]))
        made = draw(st.sampled_from([Integers(0, 5, 1, {number: level}, **policies), None]))
        return Bins(range(7), {number: level}, **policies) if made is None else made
    if kind == "number":
        number = st.one_of(st.integers(-1000, 1000), st.floats(-1e150, 1e150))
        edges = draw(st.lists(number, min_size=2, max_size=6, unique_by=float))
        return Bins(sorted(edges), **policies)
    if kind == "date":
        low, high = sorted(draw(st.lists(st.dates(), min_size=2, max_size=2)))
        format = draw(st.sampled_from(["", "%d.%m.%Y", "%Y/%m/%d", "%d de %m '%Y\"", "%Y%m%d"]))
        if low < high and draw(st.booleans()):
            inner = st.dates(low + timedelta(1), high)
            starts = sorted(draw(st.lists(inner, min_size=1, max_size=5, unique=True)))
            return Dates(low, high, format=format, starts=starts, **policies)
        return Dates(low, high, draw(st.sampled_from(["month", "quarter", "year"])), format, **policies)
    if kind == "boolean":
        return Booleans(**plain)
    codes = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    if kind == "category":
        return Categories(codes, **plain)
    labels = {code: f"label of {code if draw(st.booleans()) else codes[0]}" for code in codes}
    try:
        return Categories(labels, draw(st.sampled_from(["exact", "ignore"])), draw(st.booleans()), **plain)
    except DomainError:  # two codes are one text, without capitals or blanks
        return Categories(labels, **plain)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(NAMES, attributes(), min_size=1, max_size=4).filter(_told_apart))
def test_reading_what_was_written_gives_the_same_domain(tmp_path_factory, given_attributes):
    domain = Domain(given_attributes)
    again = read(tmp_path_factory.mktemp("spec"), spec_text(domain))
    assert again == domain
    assert again.names == domain.names
    assert [a.labels for a in again.attributes.values()] == [a.labels for a in domain.attributes.values()]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('type = "date"\nmin = "2024-01-01"', "max"),
        ('type = "date"\nmin = "2024-02-30"\nmax = "2024-03-01"', "must be a day"),
        ('type = "date"\nmin = "2024-01-01"\nmax = "2024-03-01"\nby = "decade"', "week"),
        ('type = "date"\nmin = "2024-01-01"\nmax = "2024-03-01"\nformat = "%d.%m"', "%d, %m and %Y"),
        ('type = "date"\nmin = 2024\nmax = "2024-03-01"', "text"),
        ('type = "category"\nvalues = ["a", "A"]\ncase = "ignore"', "'a' and 'A'"),
        ('type = "category"\nvalues = ["a"]\ncase = "lower"', "'ignore'"),
        ('type = "category"\nvalues = ["a"]\ntrim = "yes"', "true or false"),
    ],
)
def test_days_and_spellings_that_cannot_be_declared_name_their_line(tmp_path, body, message):
    with pytest.raises(SpecError, match=re.escape(message)) as refused:
        read(tmp_path, declared(body))
    assert "line " in str(refused.value)


def test_days_may_be_those_of_toml(tmp_path):
    body = 'type = "date"\nmin = 2024-01-01\nmax = 2024-12-31\nby = "month"'
    text = body.replace("2024-01-01", '"2024-01-01"').replace("2024-12-31", '"2024-12-31"')
    assert read(tmp_path, declared(body)) == read(tmp_path, declared(text))


def test_undeclared_columns_and_policies_become_blanks(tmp_path):
    text = spec_text({"age": Integers(0, 9, outside="clamp"), "who": None})
    assert '[schema.who]\ntype = ""' in text
    assert text.startswith('[schema_defaults]\noutside = ""')
    path = tmp_path / "spec.toml"
    path.write_text(text)
    assert [name for name, _ in read_toml(path).blanks()] == [
        "schema_defaults.outside",
        "schema_defaults.missing",
        "schema.who.type",
    ]


def test_a_template_names_columns_and_fills_nothing_in(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text(spec_template(["age", 'odd "name"'], source='a "b".csv'), encoding="utf-8")
    root = read_toml(path)
    assert list(root.section("schema")) == ["age", 'odd "name"']
    assert root.section("data").text("source") == 'a "b".csv'
    names = {name for name, _ in root.blanks()}
    assert {"schema.age.type", "privacy.epsilon", "privacy.neighbours", "schema_defaults.outside"} <= names


@pytest.mark.parametrize("names", [["a", "A"], ["a", ""], ["a\u200b"], ["x" * 300], ["a", "a"], ["a\nb = 1"]])
def test_a_template_refuses_names_that_people_cannot_tell_apart(names):
    with pytest.raises(DomainError):
        spec_template(names)


OTHER = {"outside": "other", "missing": "other"}

# ── attributes in TOML ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("body", "attribute"),
    [
        ('type = "integer"\nmin = 0\nmax = 99\nwidth = 5', Integers(0, 99, 5, **OTHER)),
        ('type = "integer"\nmin = 0\nmax = 3', Integers(0, 3, 1, **OTHER)),
        ('type = "integer"\nedges = [0, 18, 65]', Bins([0, 18, 65], **OTHER)),
        ('type = "number"\nedges = [0, 0.1, 1e3]', Bins([0, 0.1, 1000], **OTHER)),
        ('type = "number"\nmin = 0\nmax = 1\nwidth = 0.1', Bins.regular(0, 1, 0.1, **OTHER)),
        ('type = "category"\nvalues = ["a", 6, 1.5]', Categories(["a", "6", "1.5"], **OTHER)),
        ('type = "category"\nvalues = { "1" = "f", "2" = "m" }', Categories({"1": "f", "2": "m"}, **OTHER)),
        ('type = "category"\n[schema.x.values]\n1 = "f"', Categories({"1": "f"}, **OTHER)),
        ('type = "boolean"\nmissing = "drop"', Booleans(outside="other", missing="drop")),
    ],
)
def test_each_type(tmp_path, body, attribute):
    domain = read(tmp_path, declared(body))
    assert domain["x"] == attribute
    assert domain["x"].labels == attribute.labels


def test_codes_come_from_a_file_beside_the_spec(tmp_path):
    body = declared('type = "category"\nvalues_from = "codes.csv"')
    (tmp_path / "codes.csv").write_bytes(b'\xef\xbb\xbfCode,Label\r\n01,"Ain, FR"\r\n\r\n02,Aisne\r\n')
    assert read(tmp_path, body)["x"] == Categories({"01": "Ain, FR", "02": "Aisne"}, **OTHER)
    (tmp_path / "codes.csv").write_text("code\na\nb\n")
    assert read(tmp_path, body)["x"] == Categories(["a", "b"], **OTHER)


def test_hierarchies_come_from_files_rows_and_tables(tmp_path):
    (tmp_path / "counties.csv").write_text(
        "state,county,county label\n06,06001,Alameda\n06,06003,Alpine\n36,36001,Albany\n"
    )
    from_file = read(
        tmp_path, declared('type = "hierarchy"\nlevels = ["state", "county"]\nvalues_from = "counties.csv"')
    )
    tree = '{ "06" = { "06001" = "Alameda", "06003" = "Alpine" }, "36" = { "36001" = "Albany" } }'
    from_tables = read(tmp_path, declared(f'type = "hierarchy"\nlevels = ["state", "county"]\nvalues = {tree}'))
    rows = '[["06", "06001"], ["06", "06003"], ["36", 36001]]'
    labels = '[schema.x.labels.county]\n"06001" = "Alameda"\n"06003" = "Alpine"\n"36001" = "Albany"'
    body = f'type = "hierarchy"\nlevels = ["state", "county"]\nvalues = {rows}\n{labels}'
    assert read(tmp_path, declared(body)) == from_tables == from_file
    assert from_file["x"].labels == ("Alameda", "Alpine", "Albany", "(other)")
    assert from_file.levels == {"state": "x", "county": "x"}
    assert read(tmp_path, declared('type = "hierarchy"\nvalues_from = "counties.csv"')) == from_file


def test_numbers_have_levels_by_width_or_by_edges(tmp_path):
    body = 'type = "integer"\nmin = 0\nmax = 99\nlevels = { five_year = 5, group = [0, 18, 65, 100] }'
    wanted = Integers(0, 99, levels={"five_year": 5, "group": [0, 18, 65, 100]}, **OTHER)
    assert read(tmp_path, declared(body))["x"] == wanted
    body = 'type = "number"\nedges = [0, 0.5, 1, 2]\n[schema.x.levels]\nwhole = [0, 1, 2]'
    assert read(tmp_path, declared(body))["x"] == Bins([0, 0.5, 1, 2], {"whole": [0, 1, 2]}, **OTHER)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "first line"),
        (b"01,Ain\n", "first line"),
        (b"code,label\n01\n", "line 2 of the file of codes has 1 columns"),
        (b"code\na\na\n", "line 3 of the file of codes repeats a code"),
        (b"code\n", "declares no cell"),
        (b"code\n\xff\n", "not UTF-8"),
        (b"code\na\x00b\n", "U+0000"),
        (b'code\n"a\n', "not CSV"),
    ],
)
def test_files_of_codes_that_are_refused(tmp_path, content, message):
    (tmp_path / "codes.csv").write_bytes(content)
    with pytest.raises(SpecError) as caught:
        read(tmp_path, declared('type = "category"\nvalues_from = "codes.csv"'))
    assert message in str(caught.value)


def test_files_that_are_no_regular_files_are_refused(tmp_path):
    os.mkfifo(tmp_path / "codes.csv")
    for name in ("codes.csv", "absent.csv", ".", "a\\u0000b"):
        with pytest.raises(SpecError, match=r"no file that can be read"):
            read(tmp_path, declared(f'type = "category"\nvalues_from = "{name}"'))


# line numbers count from [schema_defaults]; the attribute's table is line 4
@pytest.mark.parametrize(
    ("body", "line", "message"),
    [
        ("min = 0", 4, "type is missing; it is one of integer, number, date, category, hierarchy, boolean"),
        ('type = "nested"', 5, "no type is called 'nested'; there are integer"),
        ('type = "hierarchy"', 4, "say once what lies in what"),
        ('type = "hierarchy"\nvalues = [["a", "1"]]\nvalues_from = "b.csv"', 4, "say once what lies in what"),
        ('type = "hierarchy"\nvalues = [["a", "1"]]', 4, "levels is missing; it names the levels from coarse to fine"),
        ('type = "hierarchy"\nlevels = "a"\nvalues = [["a", "1"]]', 6, "must be a list"),
        ('type = "hierarchy"\nlevels = ["s",\n  5]\nvalues = [["a", "1"]]', 7, "must be a text in quotes, not 5"),
        ('type = "hierarchy"\nlevels = ["s", "c"]\nvalues = [["a", "1"], ["b"]]', 7, "one code for each of s, c"),
        ('type = "hierarchy"\nlevels = ["s", "c"]\nvalues = [["a", "1"], ["b", "1"]]', 7, "lies in two groups"),
        ('type = "hierarchy"\nlevels = ["s", "c"]\nvalues_from = "absent.csv"', 7, "no file that can be read"),
        ('type = "hierarchy"\nlevels = ["s", "c"]\nvalues = { a = ["1"] }\nwidth = 3', 8, "no such key here"),
        (
            'type = "hierarchy"\nlevels = ["s", "c"]\nvalues = { a = ["1", "2"] }\nlabels = { s = { a = 3 } }',
            8,
            "must be a text in quotes, not 3",
        ),
        ('type = "integer"\nmin = 0\nmax = 9\nlevels = 5', 8, "must be a table"),
        ('type = "integer"\nmin = 0\nmax = 9\nlevels = { x = "2" }', 8, "must be a number, not '2'"),
        ('type = "integer"\nmin = 0\nmax = 9\nlevels = { x = [0, 5, 11] }', 4, "divide a cell at 11"),
        ('type = "number"\nedges = [0, 1, 2]\nlevels = { x = 1 }', 4, "groups no cells"),
        ("type = 5", 5, "must be a text in quotes, not 5"),
        ('type = "integer"\nmin = 0\nmax = 9\nwidht = 3', 8, "did you mean 'width'? Allowed: 'type'"),
        ('type = "integer"\nmin = 0', 4, "max is missing"),
        ('type = "integer"\nmin = "0"\nmax = 9', 6, "schema.x.min: must be a number, not '0'"),
        ('type = "integer"\nmin = true\nmax = 9', 6, "must be a number, not true"),
        ('type = "integer"\nmin = 0\nmax = 9.5', 7, "must be a whole number, not 9.5"),
        ('type = "integer"\nmin = 9\nmax = 0', 4, "the range is reversed"),
        ('type = "integer"\nmin = 0\nmax = 9\nwidth = 0', 4, "width must be at least 1"),
        ('type = "integer"\nmin = 0\nmax = 99999999999', 4, "at most 10,000,000"),
        ('type = "integer"\nmin = 0\nmax = 9\nedges = [0, 1]', 6, "no such key"),
        ('type = "integer"\nedges = [0, 1.5]', 6, "whole numbers"),
        ('type = "number"\nmin = 0\nmax = 9', 4, "width is missing"),
        ('type = "number"\nmin = 0\nmax = 1\nwidth = 0.3', 4, "does not divide"),
        ('type = "number"\nedges = [0, 5, 5]', 4, "must increase: 5 is followed by 5"),
        ('type = "number"\nedges = [0,\n  nan]', 7, "schema.x.edges.2: must be a finite number"),
        ('type = "number"\nedges = [0, inf]', 6, "must be a finite number"),
        ('type = "number"\nedges = [0, 1e999]', 6, "fit a double"),
        ('type = "number"\nedges = [0, 99999999999999999999]', 6, "at most 2^63"),
        ('type = "number"\nedges = [0]', 4, "declares no cell"),
        ('type = "number"\nedges = 5', 6, "must be a list, [5], not 5"),
        ('type = "number"\nedges = [0,\n  1,\n  "2"]', 8, "must be a number, not '2'"),
        ('type = "category"', 4, "give the categories once"),
        ('type = "category"\nvalues = ["a"]\nvalues_from = "b.csv"', 4, "give the categories once"),
        ('type = "category"\nvalues = []', 4, "declares no cell"),
        ('type = "category"\nvalues = ["a", ""]', 4, "non-empty"),
        ('type = "category"\nvalues = [1, "1"]', 4, "declared twice"),
        ('type = "category"\nvalues = [1, 1.0]', 4, "declared twice"),
        ('type = "category"\nvalues = ["a", true]', 4, "sf.Booleans"),
        ('type = "category"\nvalues = 1979-05-27', 6, "must be a list"),
        ('type = "category"\nvalues = ["a\\u200b"]', 4, "invisible"),
        ('type = "category"\nvalues = ["(other)"]', 4, "reserved"),
        ('type = "category"\nvalues = { "1" = 5 }', 6, "must be a text in quotes"),
        ('type = "category"\nvalues = ["a"]\noutside = "clamp"', 4, "outside='clamp' is not allowed"),
        ('type = "boolean"\nvalues = ["a"]', 6, "no such key"),
        ('type = "boolean"\noutside = "Other"', 6, "must be one of other, clamp, drop, not 'Other'"),
        ('type = "boolean"\nmissing = "clamp"', 6, "must be one of other, drop, not 'clamp'"),
    ],
)
def test_refusals_name_the_line(tmp_path, body, line, message):
    with pytest.raises(SpecError) as caught:
        read(tmp_path, declared(body))
    assert message in str(caught.value)
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", None, "no attribute is declared"),
        ("[schema]\nage = 5", 2, "must be a table, [schema.age], not 5"),
        ('[schema.x]\ntype = "boolean"\nmissing = "drop"', 1, "outside is not declared; state it here or once for all"),
        ('[schema.x]\ntype = "boolean"\noutside = "drop"', 1, "missing is not declared"),
        ("[schema_defaults]\noutsid = 1", 2, "did you mean 'outside'?"),
        ('[schema_defaults]\noutside = "none"\n[schema.x]\ntype="boolean"', 2, "must be one of other, clamp, drop"),
        (declared('type="boolean"') + '[schema.X]\ntype="boolean"', None, "cannot be told apart"),
        (declared('type="boolean"') + '[schema.x]\ntype="boolean"', 6, "not TOML"),
        (declared('type="boolean"', '"a\\u202e"'), None, "invisible character U+202E"),
        (declared('type="boolean"', '" "'), None, "non-empty"),
        (declared('type="boolean"', f'"{"x" * 257}"'), None, "longer than 256 bytes"),
        ("a = ", 1, "not TOML"),
        ("a = 1\nb = [1,\n\n", 4, "not TOML"),
        ("a = 1\na = 2", 2, "not TOML"),
        ("a\x00 = 1", 1, "not TOML"),
        ("a = " + "[" * 100_000, None, "nested deeper"),
        ("\na = " + "[" * 20 + "]" * 20, 2, "nested deeper than 8 levels"),
        ("x = 1\n" + "a." * 100_000 + "a = 1", 2, "more than 64 parts"),
        ("x = 1\n[" + "'a' . " * 100_000 + "a]", 2, "more than 64 parts"),
        ("a = " + "9" * 5_000, None, "not TOML"),
        ("a = 1\nb = 0x" + "f" * 5_000, 2, "at most 2^63"),
        ("a = 0." + "1" * 5_000, 1, "at most 400 digits"),
        ("a = 1e999999999", 1, "fit a double"),
        ("a = 1.8e308", 1, "fit a double"),
        ("a = 1\nb = 1e99999999999999999999", 2, "must be a finite number"),
    ],
)
def test_files_that_are_refused_as_a_whole(tmp_path, text, line, message):
    with pytest.raises(SpecError) as caught:
        read(tmp_path, text)
    assert message in str(caught.value)
    assert caught.value.line == line


def test_caps_encodings_and_line_ends(tmp_path):
    path = tmp_path / "spec.toml"
    body = declared('type = "category"\nvalues = ["é"]')
    path.write_bytes(b"\xef\xbb\xbf" + body.replace("\n", "\r\n").encode())
    assert read_schema(read_toml(path), tmp_path)["x"].labels == ("é", "(other)")
    path.write_bytes(body.encode("latin-1"))
    with pytest.raises(SpecError, match=r"line 6: .*not UTF-8"):
        read_toml(path)
    path.write_bytes(b"#" * (4 * 2**20 + 1))
    with pytest.raises(SpecError, match="larger than 4,194,304 bytes"):
        read_toml(path)
    for place in (tmp_path, tmp_path / "absent.toml", "a\0b", "x" * 5000):
        with pytest.raises(SpecError, match="can"):
            read_toml(place)


def test_lines_are_found_past_texts_and_lists_of_many_lines(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text(
        'a = """\n[b]\nc = 1\n"""\n[[t]]\nl = [\n  "x", # ], [\n\n  { k = "}" },\n]\nm = 1\n'
        "[[t]]\n'odd = key' . n = 2\n[t.u]\nv = '''\n'''\nw = 3\n"
    )
    root = read_toml(path)
    first, second = root.sections("t")
    assert [first.refuse("", "l", i).line for i in (0, 1)] == [7, 9]
    assert first.refuse("", "m").line == 11
    assert second.refuse("", "odd = key", "n").line == 13
    assert second.section("u").refuse("", "w").line == 17
    assert second.section("u").refuse("", "absent").line == 14
    assert root.refuse("", "absent").line is None


def test_nearest_names_one_and_lists_few():
    assert suggest_name("Aeg", ["sex", "age"]) == "did you mean 'age'? Allowed: 'sex', 'age'"
    assert suggest_name("zzz", ["sex", "age"]) == "Allowed: 'sex', 'age'"
    assert len(suggest_name("zzz" * 1000, (f"name {i}" for i in range(10**7)))) < 300


# ── schemas of other tools ───────────────────────────────────────────────────────────────────────


def imported(folder, document):
    path = folder / "schema.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return import_schema(path)


def test_sizes_are_codes_from_zero(tmp_path):
    assert imported(tmp_path, {"age": 85, "sex": 2}) == {"age": Integers(0, 84), "sex": Integers(0, 1)}


def test_table_schema(tmp_path):
    fields = [
        {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 99}, "width": 5},
        {"name": "year", "type": "year", "constraints": {"minimum": 2000, "maximum": 2009}},
        {"name": "wages", "type": "number", "bins": [0, 0.5, 10]},
        {"name": "share", "type": "number", "constraints": {"minimum": 0, "maximum": 1}, "width": 0.25},
        {"name": "sex", "type": "string", "constraints": {"enum": ["f", "m"]}},
        {"name": "race", "categories": [{"value": "1", "label": "one"}, {"value": 2}]},
        {"name": "grade", "type": "integer", "categories": [1, 2, 3]},
        {"name": "employed", "type": "boolean"},
        {"name": "who", "type": "string", "constraints": {"required": True}},
        {"name": "height", "type": "number", "constraints": {"minimum": 0, "maximum": 3}},
    ]
    columns = imported(tmp_path, {"fields": fields, "primaryKey": "who"})
    assert columns == {
        "age": Integers(0, 99, 5),
        "year": Integers(2000, 2009),
        "wages": Bins([0, 0.5, 10]),
        "share": Bins([0, 0.25, 0.5, 0.75, 1]),
        "sex": Categories(["f", "m"]),
        "race": Categories({"1": "one", "2": "2"}),
        "grade": Categories(["1", "2", "3"]),
        "employed": Booleans(),
        "who": None,
        "height": Measure(0, 3),
    }
    text = spec_template(columns)
    assert 'means = "height"' in text
    assert '[schema.who]\ntype = ""' in text
    assert "edges = [0, 0.25, 0.5, 0.75, 1]" in text


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("", "not JSON"),
        ("[1, 2", "not JSON"),
        ("[]", "must be {"),
        ("{}", "must be {"),
        ('{"a": true}', "must be {"),
        ('{"a": 1.5}', "must be {"),
        ('{"a": NaN}', "finite"),
        ('{"a": 0}', "declares no cell"),
        ('{"a": 1, "a": 2}', "repeats a key"),
        ('{"a": 1, "A": 2}', "cannot be told apart"),
        ('{"a\\u202e": 1}', "invisible"),
        ('{"a": ' + "9" * 5000 + "}", "not JSON"),
        ('{"a": 1e999999999}', "must be {"),
        ('{"fields": [{"name": "a", "type": "number", "bins": [0, 1e999]}]}', "finite"),
        ("[" * 100_000, "nested too deep"),
        ("[" * 20 + "]" * 20, "nested deeper"),
        ({"fields": []}, "no field"),
        ({"fields": [5]}, "object with a name"),
        ({"fields": [{"type": "boolean"}]}, "object with a name"),
        ({"fields": [{"name": "a"}, {"name": "a"}]}, "declared twice"),
        ({"fields": [{"name": "a"}, {"name": "A"}]}, "cannot be told apart"),
        ({"fields": [{"name": "a", "constraints": 5}]}, "field 'a': constraints must be an object"),
        ({"fields": [{"name": "a", "categories": 5}]}, "field 'a': categories must be a list"),
        ({"fields": [{"name": "a", "categories": []}]}, "field 'a'"),
        ({"fields": [{"name": "a", "categories": [{"label": "x"}]}]}, "field 'a'"),
        ({"fields": [{"name": "a", "categories": [{"value": 1}, {"value": "1"}]}]}, "declared twice"),
        ({"fields": [{"name": "a", "constraints": {"enum": [1, "1"]}}]}, "declared twice"),
        ({"fields": [{"name": "a", "constraints": {"enum": [None]}}]}, "field 'a'"),
        ({"fields": [{"name": "a", "type": "number", "bins": 5}]}, "field 'a'"),
        ({"fields": [{"name": "a", "type": "number", "bins": [0, "x"]}]}, "field 'a'"),
        (
            {"fields": [{"name": "a", "type": "integer", "constraints": {"minimum": "x", "maximum": 3}}]},
            "field 'a': integer low must be a finite number, not 'x'",
        ),
    ],
)
def test_schemas_that_are_refused(tmp_path, document, message):
    with pytest.raises(SpecError) as caught:
        imported(tmp_path, document)
    assert message in str(caught.value)
