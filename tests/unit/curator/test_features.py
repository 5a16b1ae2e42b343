"""Features of persons: what expressions say, what is refused, and that SQL says what plain Python does."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.curator.labels import open_labels
from sfumato.curator.people import PerPerson
from sfumato.curator.people.grammar import AGGREGATES, DAY, OPERATIONS, TRUTH, Scope, number_kind, parse_feature
from sfumato.curator.people.opening import PersonTable
from sfumato.curator.rows.sources import open_source
from sfumato.errors import InvalidInput, SourceError
from sfumato.mechanisms.labels import select_labels
from sfumato.privacy.accounting import ApproxGaussianEvent
from sfumato.privacy.labels import LabelLook
from sfumato.privacy.unit import PrivacyUnit
from support.features import EXPRESSIONS, KEYS, canonical_rows, drawn_tables, encoded_value, feature_of, nodes_inside
from support.postgres import Server
from support.spark import Running

MONEY = number_kind(-100_000, 100_000, Fraction(1, 100))
SCOPE = Scope(
    {
        "visits": {"cost": MONEY, "nights": MONEY, "day": DAY, "urgent": TRUTH},
        "drugs": {"dose": MONEY},
        "people": {"born": DAY, "known": TRUTH},
    },
    {"visits": "day", "drugs": None, "people": None},
)
API: Any = sf
OTHER: Any = {"outside": "other", "missing": "other"}
RANGE = (-1000, 1000, "0.01")


def frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), dtype=object)


def source(tables: Mapping[str, Any], people: bool = True, **columns: str) -> PerPerson:
    """The features of tables, or all expressions by their numbers."""
    numbers = {"cost": RANGE, "nights": RANGE}
    said = columns or {f"f{i}": text for i, text in enumerate(EXPRESSIONS)}
    return sf.per_person(
        sf.rows(tables["people"], dates=["born"], booleans=["known"]) if people else None,
        key="key",
        visits=sf.rows(tables["visits"], numbers=numbers, dates=["day"], booleans=["urgent"]),
        drugs=sf.rows(tables["drugs"], numbers={"dose": RANGE}),
        columns=said,
    )


def features(made: PerPerson, *own: str) -> dict[str, tuple[Any, ...]]:
    """The features of every person by their names; NaN is no value of any."""
    opened = PersonTable(made).opened([made.key, *own, *made.features])
    try:
        chosen = ", ".join(column.sql for column in opened.columns.values())
        rows = opened.session.rows(f"SELECT {chosen} FROM {opened.sql}")
        found = {str(row[0]): row[1:] for row in rows}
        assert len(found) == len(rows)  # one row a person
        return found
    finally:
        opened.session.close()


def frames(tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, pd.DataFrame]:
    return {name: frame(rows) for name, rows in tables.items()}


@pytest.mark.parametrize("seed", range(3))
def test_features_are_what_plain_python_says(seed: int) -> None:
    """Mutants: whole numbers divided by //; a sum of nothing that is missing; `next` of the last dated row; rows of a
    day in the order in which they lie; `first` of rows without a date; a condition that is not known taken for true."""
    tables = drawn_tables(seed)
    made = source(frames(tables))
    found = features(made)
    read = {name: canonical_rows(rows) for name, rows in tables.items()}
    assert set(found) == set(read["people"])
    for person, values in found.items():
        rows = {name: read[name].get(person, []) for name in ("visits", "drugs")}
        for (name, node), value in zip(made.features.items(), values, strict=True):
            expected = {repr(encoded_value(node, feature_of(node, one, rows))) for one in read["people"][person]}
            assert repr(value) in expected, (person, EXPRESSIONS[int(name[1:])])


def test_the_expressions_use_every_operation() -> None:
    used = set[str]().union(*(nodes_inside(parse_feature(text, SCOPE)) for text in EXPRESSIONS))
    assert used == OPERATIONS | AGGREGATES
    assert len(EXPRESSIONS) >= 40


@pytest.mark.parametrize("text", ["count(visits where visits.ward == 'A')", "any(visits.urgent == true)"])
def test_two_signs_say_that_values_are_equal(text: str) -> None:
    """As the conditions of queries have it."""
    assert parse_feature(text, SCOPE) == parse_feature(text.replace("==", "="), SCOPE)
    with pytest.raises(InvalidInput, match=r"^character "):
        parse_feature(text.replace("==", "==="), SCOPE)


@pytest.mark.parametrize("people", [True, False])
def test_nobody_changes_anybody_else(people: bool) -> None:
    """Mutants: rows of a day in the order in which they lie; sums of doubles; ranks over all columns of the table; the
    row of a key that several have chosen by its place."""
    said = {f"f{i}": text for i, text in enumerate(EXPRESSIONS) if people or "people." not in text}
    for seed in range(2):
        tables = drawn_tables(seed, 400)
        whole = features(source(frames(tables), people, **said), *(["area", "born"] if people else []))
        drawn = random.Random(seed)
        for gone in drawn.sample(sorted(whole), 8):
            less = {n: [r for r in rows if r["key"] is None or KEYS[r["key"]] != gone] for n, rows in tables.items()}
            for rows in less.values():
                drawn.shuffle(rows)
            found = features(source(frames(less), people, **said), *(["area", "born"] if people else []))
            assert repr(sorted(found.items())) == repr(sorted((p, v) for p, v in whole.items() if p != gone))


def test_a_key_is_one_name_in_every_table() -> None:
    """Mutants: keys joined as numbers, by which 2^53 and 2^53 + 1 are one; a text key that refuses all others."""
    big = 2**53
    people = pd.DataFrame({"key": [big, big + 1, 7]})
    visits = pd.DataFrame({"key": [f"{big}.0", str(big + 1), "7.0", "abc", "7"]})
    made = sf.per_person(people, key="key", visits=sf.rows(visits), columns={"n": "count(visits)"})
    assert features(made) == {str(big): (1,), str(big + 1): (1,), "7": (2,)}
    other = pd.DataFrame({"who": [7.0, None, float(big)]})
    made = sf.per_person(people, key="key", visits=sf.rows(other, key="who"), columns={"n": "count(visits)"})
    assert features(made) == {str(big): (1,), str(big + 1): (0,), "7": (1,)}


def test_tables_and_columns_are_called_as_anything() -> None:
    """Mutant: names of tables as names of databases, of which some are taken."""
    visits = sf.rows(pd.DataFrame({"key": [1, 1], 'a "b" c': ["x", "y"]}))
    every = dict.fromkeys(("memory", "Temp", "main", "a b", "A B"), visits)
    values = ", ".join(f"'{i}'" for i in range(300))
    said = {
        "all": 'count(memory) + count(Temp) + count(main) + count("a b") + count("A B")',
        "kinds": f'count(distinct main."a ""b"" c" where not main."a ""b"" c" in ({values}))',
    }
    assert features(sf.per_person(None, key="key", columns=said, **every)) == {"1": (10, 2)}


def test_who_occurs_in_one_table_is_one_person() -> None:
    """Mutant: a row for every row, of which a plan of persons then keeps one."""
    visits = pd.DataFrame({"key": [1, 1, 2, None]})
    made = sf.per_person(None, key="key", visits=sf.rows(visits), columns={"n": "count(visits)"})
    assert features(made) == {"1": (2,), "2": (1,)}


def test_of_rows_with_one_key_one_is_taken_whatever_the_order() -> None:
    rows = [{"key": k, "sex": s, "age": str(a)} for k in range(50) for s, a in (("f", 30), ("m", 40), ("f", 50))]
    orders = (rows, rows[::-1], sorted(rows, key=str))
    made = [features(sf.per_person(frame(order), key="key"), "sex", "age") for order in orders]
    assert made[0] == made[1] == made[2]
    assert 10 < sum(values == ("m", "40") for values in made[0].values()) < 25  # not always the first or the last


REFUSED = {
    "": "an expression is a text of 1 to",
    "count(visits": r"character 13 \(its end\): '\)' belongs here, after what count goes through",
    "count(visit)": "no table of rows is called 'visit'; allowed are visits, drugs",
    "counts(visits)": "no function is called 'counts'; allowed are all, any, count",
    "visits.cost": "a person has several rows of 'visits': say which, as in sum",
    "sum(visits.ward)": r"character 1 \('sum'\): a number belongs here, and this is a text \(declare it",
    "sum(people.age)": "goes through the rows of a table, and none is named inside",
    "sum(visits.cost + drugs.dose)": "goes through the rows of one table, here those of 'visits'",
    "sum(visits.cost / visits.nights)": "quotients of columns are not added up",
    "sum(mean(visits.cost))": "mean stands inside another aggregate",
    "previous(visits.cost)": "previous stands inside an aggregate",
    "any(previous(drugs.dose) > 1)": "goes by the day of a row, and none is declared",
    "first(drugs.dose)": "goes by the day of a row, and none is declared",
    "count(visits.urgent = true)": "are counted by count",
    "any(visits.cost)": "true or false belongs here, and this is a number",
    "any(visits.ward < 'B')": "a number or a date belongs here, and this is a text",
    "any(visits.cost = 'B')": "a number is not compared with a text",
    "count(visits where visits.cost)": "what follows where is true or false, not a number",
    "count(visits) count(visits)": "the expression was complete before this",
    "sum(distinct visits.cost)": "distinct belongs to count",
    "days(max(visits.day), date '2026-02-30')": "a day is written date '2026-01-31'",
    "count(visits) ; 1": r"character 15 \(';'\): it is no part of an expression",
    "any(visits.ward = 'ER)": "a text in quotes does not end",
    "if(count(visits) > 1, 1, 'a')": "if gives one kind of value",
    "days(max(visits.day))": "days takes 2 values",
    "cost": "a column is named with its table",
    "sum(visits.cost) * 1000000000000 * 1000000000000": "could have more than 36 digits",
    # what comes out is small, and what it is made of is not
    f"(count(visits) + {9 * 10**35}) / 1009 - {9 * 10**35 * 1013 // 1009} / 1013": "could have more than 36 digits",
    "(" * 60 + "1" + ")" * 60: "nested 40 deep at most",
    "floor(" * 30 + "mean(visits.cost)" + ")" * 30: "too long once it is written out",
    "not " * 2_000 + "true": "too long once it is written out",
    " + ".join(["count(visits)"] * 200): "too long once it is written out",
    "sum(select(1))": "no function is called 'select'",
    "count(visits where (select 1) = 1)": "a column is named with its table",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_expression_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(InvalidInput, match=REFUSED[text]):
        parse_feature(text, SCOPE)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: API.rows("v.csv", numbers={"cost": (0, 10)}), "has a range and a unit"),
        (lambda: API.rows("v.csv", numbers={"cost": (0, 10, 3)}), "both ends are whole multiples"),
        (lambda: API.rows("v.csv", numbers={"cost": (0, "1e300", 1)}), "fewer than 2\\^53 units"),
        (lambda: API.rows("v.csv", numbers={"cost": (0, "x", 1)}), "three finite numbers"),
        (lambda: API.rows("v.csv", numbers={"cost": (0, float("inf"), 1)}), "three finite numbers"),
        (lambda: API.rows("v.csv", dates=["a"], booleans=["a"]), "declared once"),
        (lambda: API.rows("v.csv", dates="a"), "a list of names"),
        (lambda: API.rows("v.csv", dates=["a"], order="b"), "order='b' is no date"),
        (lambda: API.rows(API.rows("v.csv")), "rows are of one table"),
        (lambda: API.per_person(None, key="k"), "name the table of persons"),
        (lambda: API.per_person("p.csv", key="k", visits="v.csv"), "visits=sf.rows"),
        (lambda: API.per_person("p.csv", key="k", people2=1), "is a table of rows"),
        (lambda: API.per_person("p.csv", key="k", columns={"k": "1"}), "no name for a column"),
        (lambda: API.joined("v.csv", "p.csv", key="k", unmatched="no"), "use 'drop' or 'missing'"),
        (lambda: API.joined("v.csv", None, key="k"), "people is None"),
    ],
)
def test_declarations_are_refused_before_anything_is_read(call: Callable[[], object], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        call()


def test_files_and_frames_of_every_kind_say_the_same(tmp_path: Path) -> None:
    tables = frames(drawn_tables(7))
    expected = features(source(tables))
    for name, table in tables.items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
        table.astype("string").to_parquet(tmp_path / f"{name}.parquet")
    for end in ("csv", "parquet"):
        paths = {name: str(tmp_path / f"{name}.{end}") for name in tables}
        assert repr(sorted(features(source(paths)).items())) == repr(sorted(expected.items())), end


def test_a_table_that_cannot_be_read_is_refused_in_words(tmp_path: Path) -> None:
    """Mutant: a failure on the way between two sessions that is passed over."""
    tables = drawn_tables(7)
    file = tmp_path / "visits.parquet"
    frames(tables)["visits"].astype("string").to_parquet(file)
    whole = bytearray(file.read_bytes())
    whole[4 : len(whole) // 3] = bytes(len(whole) // 3 - 4)  # pages; where they lie, and their types, stay told
    file.write_bytes(whole)
    with pytest.raises(SourceError, match="could not be read"):
        features(source(frames(tables) | {"visits": str(file)}))


INNER = (
    "visits.cost - 2 * visits.nights + 0.125",
    "visits.cost * visits.nights / 3",
    "floor(visits.cost)",
    "floor(visits.cost / visits.nights)",
    "floor(visits.cost * 7 / visits.nights)",
    "floor(floor(visits.nights * 100) / visits.cost)",
    "floor(1000 / visits.cost)",
    "if(visits.cost > visits.nights, visits.cost / 7, -visits.nights)",
)


@pytest.mark.parametrize("text", INNER)
def test_numbers_are_within_what_their_kind_says(text: str) -> None:
    """Whole numbers of an engine are as wide as kinds say, at the ends of what is declared too.

    Mutants: bounds of a floor that forget the unit's numerator, or its denominator; of a quotient those of its
    numerator.
    """
    ends = [Fraction(v, 100) for v in (-100_000, -99_999, -101, -1, 0, 1, 99, 12_345, 99_999, 100_000)]
    rows = [{"cost": a, "nights": b} for a in ends for b in ends]
    for aggregate in ("min", "max", "sum"):
        node = parse_feature(f"{aggregate}({text})", SCOPE)
        kind, found = node.kind, feature_of(node, None, {"visits": rows})
        number = found / kind.unit
        assert number.denominator <= kind.most or aggregate == "sum"
        assert min(kind.low, Fraction(kind.low, kind.most)) <= number <= max(kind.high, Fraction(kind.high, kind.most))


@pytest.mark.parametrize(
    "text",
    [
        "visits.cost / visits.nights",
        "visits.cost / visits.nights / visits.nights",
        "visits.cost / visits.nights * visits.cost / 7",
    ],
)
def test_quotients_are_within_what_their_kind_says(text: str) -> None:
    """Mutants: the largest denominator of a quotient that is added to, not multiplied; bounds without it."""
    node = parse_feature(f"first({text})", SCOPE)
    kind = node.kind
    ends = [Fraction(v, 100) for v in (-100_000, -99_999, -1, 1, 12_347, 99_999, 100_000)]
    for cost in ends:
        for nights in ends:
            found = feature_of(node, None, {"visits": [{"cost": cost, "nights": nights, "day": 1}]})
            number = found / kind.unit
            assert number.denominator <= kind.most
            assert kind.low <= number <= kind.high


def test_tables_on_postgres_say_the_same(postgres: Server) -> None:
    """Rows of a server come here, so that an expression means there what it means of a file."""
    tables = drawn_tables(11)
    for name, rows in tables.items():
        columns = list(rows[0])
        values = ", ".join(f"({', '.join(_quoted(row[c]) for c in columns)})" for row in rows)
        listed = ", ".join(f'"{c}" text' for c in columns)
        postgres.run(
            f"DROP TABLE IF EXISTS {name} CASCADE",
            f"CREATE TABLE {name} ({listed})",
            f"INSERT INTO {name} VALUES {values}",
        )
    found = features(source({name: postgres.address(name) for name in tables}))
    assert repr(sorted(found.items())) == repr(sorted(features(source(frames(tables))).items()))


def _quoted(value: str | None) -> str:
    return "NULL" if value is None else "'" + value.replace("'", "''") + "'"


def test_tables_of_spark_are_not_read_beside_files() -> None:
    """Their rows stay where they are; nothing is connected."""
    visits = sf.rows("spark://nowhere:15002?table=visits")
    made = sf.per_person(frame([{"key": "1"}]), key="key", visits=visits, columns={"n": "count(visits)"})
    domain = sf.Domain({"n": sf.Integers(0, 9, outside="clamp", missing="other")})
    with pytest.raises(InvalidInput, match="is counted where it lies, and its rows are not read beside those"):
        open_source(made, domain, person="key")


def each_value(made: PerPerson, values: Mapping[str, Sequence[Any]]) -> sf.Domain:
    """A cell for every value that some feature has, and for every person."""
    attributes: dict[str, sf.Attribute] = {"key": sf.Categories(sorted(set(KEYS.values())), **OTHER)}
    for name, node in made.features.items():
        there = sorted({v for v in values[name] if v is not None})
        if node.kind.name == "number":
            edges = [float(v) for v in there] or [0.0]
            attributes[name] = sf.Bins([*edges, float(np.nextafter(edges[-1], np.inf))], **OTHER)
        elif node.kind.name == "text":
            attributes[name] = sf.Categories(there or ["none"], **OTHER)
        elif node.kind.name == "day":
            attributes[name] = sf.Dates("0001-01-01", "9999-12-31", "year", outside="clamp", missing="other")
        else:
            attributes[name] = sf.Booleans(**OTHER)
    return sf.Domain(attributes)


def on_spark(spark: Running, rows: Sequence[Mapping[str, Any]], parts: int = 3) -> Any:
    """A DataFrame of texts, in several partitions."""
    listed = ", ".join(f"`{name}` string" for name in rows[0])
    return spark.session.createDataFrame([tuple(row.values()) for row in rows], listed).repartition(parts, "key")


@pytest.mark.parametrize("seed", [0, 11])
def test_tables_of_spark_say_the_same(spark: Running, seed: int, request: pytest.FixtureRequest) -> None:
    """Every feature of every person, to the bit, with rows of one person in several partitions of several tables.

    Mutants: a table whose persons are moved by another hash; a digest that is a decimal number on its way.
    """
    tables = drawn_tables(seed)
    here = source(frames(tables))
    told = features(here)
    domain = each_value(here, {n: [v[i] for v in told.values()] for i, n in enumerate(here.features)})
    there = source({name: on_spark(spark, rows) for name, rows in tables.items()})
    sets = [("key", name) for name in here.features]
    spark.session.conf.set("spark.sql.shuffle.partitions", "7")  # of two, both may be in one partition
    request.addfinalizer(lambda: spark.session.conf.set("spark.sql.shuffle.partitions", "2"))
    counts = [open_source(made, domain, person="key") for made in (here, there)]
    assert counts[0].rows == counts[1].rows == len(told)
    one, other = (c.count(sets) for c in counts)
    for name in sets:
        np.testing.assert_array_equal(one[name], other[name], EXPRESSIONS[int(name[1][1:])])


def test_rows_of_spark_have_their_persons_columns(spark: Running) -> None:
    """Of each person some rows and labels, the same as of frames; also where nobody is in the table of persons.

    Mutants: rows cut in each partition alone; rows of nobody counted; those of a table without rows refused.
    """
    tables = drawn_tables(5)
    domain = sf.Domain(
        {
            "ward": sf.Categories(["ER", "A", "er"], **OTHER),
            "area": sf.Categories(["1", "A", "é"], **OTHER),
            "visits": sf.Integers(0, 30, outside="clamp", missing="other"),
        }
    )
    sets = [("ward", "area"), ("area", "visits")]
    law = select_labels(PrivacyUnit("add-remove", "key", 3), Fraction(1), Fraction(1, 10**6))
    look = LabelLook("ward", False, 9, law, ApproxGaussianEvent(1, "1e-6"))
    for people in (tables["people"], []):
        for unmatched, most in (("drop", 2), ("missing", 3)):
            found: list[Any] = []
            for put in (frame, lambda rows: on_spark(spark, rows)):
                some = (
                    put(people)
                    if people
                    else put(tables["people"][:1]).filter("1 = 0")
                    if found
                    else (frame(tables["people"][:1]).iloc[:0])
                )
                visits = API.rows(put(tables["visits"]))
                persons = API.per_person(some, key="key", visits=visits, columns={"visits": "count(visits)"})
                joined = API.joined(visits, persons, key="key", columns=["area", "visits"], unmatched=unmatched)
                counts = open_source(joined, domain, person="key", rows_per_person=most)
                labels = open_labels(joined, look, PrivacyUnit("add-remove", "key", 3))
                lines = sorted(zip(labels.labels[labels.lines(3)[0]], labels.lines(3)[1].tolist(), strict=True))
                found.append((counts.rows, counts.cut, {n: t.tolist() for n, t in counts.count(sets).items()}, lines))
            assert found[0] == found[1]
            assert (found[0][0] > 40) == bool(people or unmatched == "missing")
