"""Sums of measures from whatever holds the table: those of exact numbers, to the bit those of every other engine."""

from __future__ import annotations

import itertools
import os
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest

import sfumato as sf
from sfumato.cells import POINTS
from sfumato.curator.engines.kernel import Encoding, WordLayout
from sfumato.curator.rows import loading as opened
from sfumato.curator.rows import shares as adding
from sfumato.curator.rows.counting import Counts, Table
from sfumato.curator.rows.shares import SHARES, blocks_of_shares, shares
from sfumato.curator.rows.sources import open_source
from sfumato.errors import SourceError
from support import postgres as of_postgres
from support import spark as of_spark
from support.postgres import Server
from support.spark import Running

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")

OTHER: dict[str, Any] = {"outside": "other", "missing": "other"}
GROUP = sf.Integers(1, 7, **OTHER)
# type of Postgres of each column, by its name
KINDS = {"double": "float8", "single": "float4", "long": "int8", "decimal": "numeric(38, 10)", "text": "text"}
RANGES = [(0, 1), (-10, 90.5), (0.1, 0.3), (-(2**60), 2**62), (0, 1e-280), (-1e150, 7e149), (1e15, 1e15 + 1)]
AWKWARD = [
    *(float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 5e-324, -5e-324),
    *(2.2250738585072014e-308, 1.7976931348623157e308, -1e300, 0.1, 0.3, 1e-17),
]


def _drawn(rng: np.random.Generator, low: float, high: float) -> list[float | None]:
    """Numbers in the range, on halves of its steps, at its ends and just beyond, far away, none, and awkward ones."""
    width = Fraction(high) - Fraction(low)
    steps = [Fraction(int(k), 2**31) for k in rng.integers(0, 2**31 + 1, 40)]
    halves = [Fraction(2 * int(k) + 1, 2**25) for k in rng.integers(0, 2**24, 20)]
    near = [float(Fraction(low) + width * t) for t in (*steps, *halves, Fraction(0), Fraction(1), Fraction(1, 2))]
    ends = [float(np.nextafter(end, way)) for end in (low, high) for way in (-np.inf, np.inf)]
    found: list[float | None] = [*near, *ends, *AWKWARD, None, None, None]
    return [found[i] for i in rng.permutation(len(found))]


def _column(kind: str, drawn: list[float | None]) -> list[Any]:
    """The nearest values that a type holds; none where it holds nothing of the kind."""
    finite = [v is not None and np.isfinite(v) for v in drawn]
    if kind == "double":
        return drawn
    if kind == "single":
        with np.errstate(over="ignore", under="ignore"):
            return [None if v is None else float(np.float32(v)) for v in drawn]
    if kind == "long":
        most = 2**63 - 1
        return [
            min(max(int(v), -most), most) if ok and v is not None else None for v, ok in zip(drawn, finite, strict=True)
        ]
    if kind == "decimal":
        held = [ok and v is not None and abs(v) < 1e27 for v, ok in zip(drawn, finite, strict=True)]
        places = Decimal("1e-10")
        return [
            Decimal(v).quantize(places) if ok and v is not None else None for v, ok in zip(drawn, held, strict=True)
        ]
    return [None if v is None else repr(v) for v in drawn]


def _value(kind: str, given: Any) -> Fraction | float | None:
    """What is summed of a value: 32-bit floats and decimals by their texts."""
    if given is None:
        return None
    if kind == "single":
        given = float(str(np.float32(given)))
    elif kind == "text":
        given = float(given)
    if isinstance(given, float) and not np.isfinite(given):
        return None if np.isnan(given) else given
    return Fraction(given)


def _place(value: Fraction | float | None, low: Fraction, high: Fraction, *, absent: bool) -> Fraction | None:
    """Where in its range a number lies."""
    if value is None or (absent and not low <= value <= high):
        return None
    return (Fraction(min(max(value, low), high)) - low) / (high - low)


def _exact(places: list[list[Fraction | None]], groups: list[int], keep: int | None) -> Any:
    """Shares of records in the joint cells of measures, those of one group or of all, in rational numbers."""
    found = np.zeros([4] * len(places), dtype=object)
    for i, group in enumerate(groups):
        if keep not in (None, group):
            continue
        part: Any = np.ones((), dtype=object)
        for t in (column[i] for column in places):
            own = (
                [Fraction(0)] * 3 + [Fraction(1)] if t is None else [(1 - t) ** 2, 2 * t * (1 - t), t * t, Fraction(0)]
            )
            part = np.multiply.outer(part, np.array(own, dtype=object))
        found = found + part
    return found


def _tables(counts: Counts, sets: list[tuple[int, ...]]) -> dict[tuple[int, ...], Table]:
    found = dict(counts.shared(sets))
    assert found.keys() == set(sets)
    return found


def _sql(kind: str, value: Any) -> str:
    if value is None:
        return "NULL"
    return str(value) if kind in ("long", "decimal") else f"'{np.float32(value) if kind == 'single' else value}'"


@pytest.fixture
def servers(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The servers that are here; in CI both have to be."""
    needed = bool(os.environ.get("SFUMATO_TESTS_NEED_ENGINES"))
    found: dict[str, Any] = {}
    for name, lacking in (("postgres", of_postgres.missing()), ("spark", of_spark.missing())):
        if needed or not lacking:
            found[name] = request.getfixturevalue(name)
    return found


def _sources(columns: dict[str, tuple[str, list[Any]]], folder: Path, servers: dict[str, Any]) -> dict[str, Any]:
    """One table by what holds it. columns: the kind and the values of each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"double": pa.float64(), "single": pa.float32(), "long": pa.int64(), "decimal": pa.decimal128(38, 10)}
    table = pa.table({n: pa.array(v, kinds.get(k, pa.string())) for n, (k, v) in columns.items()})
    path, text, base = folder / "t.parquet", folder / "t.csv", folder / "t.duckdb"
    pq.write_table(table, path, row_group_size=40)
    written = {
        n: [None if v is None else str(np.float32(v)) if k == "single" else str(v) for v in values]
        for n, (k, values) in columns.items()
    }
    pl.DataFrame(written, schema=dict.fromkeys(columns, pl.String)).write_csv(text)
    base.unlink(missing_ok=True)
    with duckdb.connect(str(base)) as connection:
        connection.register("given", table)
        connection.execute("CREATE TABLE t AS SELECT * FROM given")
    found: dict[str, Any] = {
        "Parquet": path,
        "CSV": text,
        "arrow": table,
        "polars": pl.DataFrame(pl.from_arrow(table)),
        "pandas": table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get),
        "DuckDB": f"duckdb:///{base}?table=t",
    }
    server: Server | None = servers.get("postgres")
    if server is not None:
        lines = zip(*([_sql(k, v) for v in values] for k, values in columns.values()), strict=True)
        rows = ", ".join(f"({', '.join(line)})" for line in lines)
        server.run(
            "DROP TABLE IF EXISTS amounts",
            f"CREATE TABLE amounts ({', '.join(f'{n} {KINDS[k]}' for n, (k, _) in columns.items())})",
            f"INSERT INTO amounts VALUES {rows}",
        )
        found["Postgres"] = server.address("amounts")
    running: Running | None = servers.get("spark")
    if running is not None:
        found["Spark"] = running.session.read.parquet(str(path)).repartition(3)
    return found


@pytest.mark.parametrize("outside", ["clamp", "absent"])
@pytest.mark.parametrize("seed", range(3))
def test_every_engine_sums_the_same_and_what_is_exact(
    tmp_path: Path, servers: dict[str, Any], outside: Any, seed: int
) -> None:
    """Of drawn columns of every type and ranges of every size, seeds [153, seed], the tables of all engines are equal
    to the bit; sums, sums of squares and products of two measures are off by at most n 2^-25 and a hair.

    Mutants: bits of a place cut to those of a cell; doubles taken for 32-bit floats; numbers that Spark casts by
    itself; NaN cut to an end; infinity that is missing.
    """
    rng = np.random.default_rng([153, seed])
    chosen = [RANGES[i] for i in rng.permutation(len(RANGES))[:5]]
    drawn = [_drawn(rng, *map(float, r)) for r in chosen]
    columns = {f"v_{k}": (k, _column(k, v)) for k, v in zip(KINDS, drawn, strict=True)}
    n = len(drawn[0])
    groups = [int(g) for g in rng.integers(1, 9, n)]
    columns["g"] = ("long", groups)
    measures = {f"v_{k}": sf.Measure(*r, outside=outside) for k, r in zip(KINDS, chosen, strict=True)}
    domain = sf.Domain({"g": GROUP}, measures=measures)
    sets = [s for k in (1, 2) for s in itertools.combinations(range(6), k) if s != (0,)]
    sets += [(0, *s) for s in itertools.combinations(range(1, 6), 2)] + [(1, 2, 4), (0, 2, 3, 5)]
    sources = _sources(columns, tmp_path, servers)
    found = {where: _tables(open_source(source, domain), sets) for where, source in sources.items()}
    for (where, tables), s in itertools.product(found.items(), sets):
        assert tables[s].tolist() == found["Parquet"][s].tolist(), (where, s)

    places = [
        [
            _place(_value(k, v), Fraction(float(low)), Fraction(float(high)), absent=outside == "absent")
            for v in columns[f"v_{k}"][1]
        ]
        for k, (low, high) in zip(KINDS, chosen, strict=True)
    ]
    most = Fraction(n, 2**25) * Fraction(33, 32)
    for i in range(5):
        for keep in (None, 1, 4):
            exact = _exact(places[i : i + 1], groups, keep)
            table = found["Parquet"][(0, i + 1)]
            here = (table.sum(axis=0) if keep is None else table[keep - 1]).tolist()
            for weights in ((0, Fraction(1, 2), 1, 0), (0, 0, 1, 0), (0, 0, 0, 1)):
                off = sum(w * (Fraction(a, SHARES) - b) for w, a, b in zip(weights, here, exact, strict=True))
                assert abs(off) <= most
    shape = found["Parquet"][(1, 5)].shape
    both = np.array([Fraction(int(v), SHARES) for v in found["Parquet"][(1, 5)].reshape(-1)]).reshape(shape)
    off = both - np.asarray(_exact([places[0], places[4]], groups, None)).reshape(shape)
    features = np.array([[2, 2, 2, 0], [0, 1, 2, 0], [0, 0, 2, 0], [0, 0, 0, 2]], dtype=object)  # twice 1, t, t^2
    assert max(map(abs, (features @ off @ features.T).reshape(-1))) <= 4 * most


def test_persons_bring_the_same_rows_to_every_engine(tmp_path: Path, servers: dict[str, Any]) -> None:
    """Two rows of each person are chosen by places in the range and not by cells, seed [153, 9], beside an attribute
    that drops records, and a second measure of the same column. Mutants: places cut to the bits of a cell when rows are
    chosen; a column called as the measure is."""
    rng = np.random.default_rng([153, 9])
    n = 240
    columns = {
        "g": ("long", [int(v) for v in rng.integers(0, 9, n)]),
        "x": ("double", [float(v) for v in rng.random(n)]),
        "who": ("text", [f"p{i}" for i in rng.integers(0, 60, n)]),
    }
    measures = {"x": sf.Measure(0, 1), "again": sf.Measure(-1, 2, column="x")}
    domain = sf.Domain({"g": sf.Integers(1, 7, outside="drop", missing="drop")}, measures=measures)
    found: dict[str, Any] = {}
    for where, source in _sources(columns, tmp_path, servers).items():
        counts = open_source(source, domain, person="who", rows_per_person=2)
        tables = _tables(counts, [(0, 1), (0, 2)])
        found[where] = (counts.rows, counts.cut, *(tables[s].tolist() for s in tables))
    assert all(v == found["Parquet"] for v in found.values())
    assert found["Parquet"][1] > 0


def test_releases_of_every_engine_stand_within_their_errors(tmp_path: Path, servers: dict[str, Any]) -> None:
    """Means and moments by groups beside counts, at a budget beyond use: those of the numbers, from every engine, and
    whoever is not there refuses before the ledger. Mutant: tables of measures mixed up where several are summed in one
    pass."""
    rng = np.random.default_rng([153, 10])
    n = 600
    x, g = np.round(rng.gamma(2, 20, n), 2), rng.integers(1, 4, n)
    y = np.round(0.5 * x + rng.normal(0, 9, n), 1)
    missing = rng.random(n) < 0.1
    columns = {
        "g": ("long", g.tolist()),
        "x": ("decimal", [Decimal(str(v)) for v in x.tolist()]),
        "y": ("double", [None if m else v for m, v in zip(missing.tolist(), y.tolist(), strict=True)]),
    }
    domain = sf.Domain(
        {"g": sf.Integers(1, 3, outside="other", missing="other")},
        measures={"x": sf.Measure(0, 200), "y": sf.Measure(-40, 120)},
    )
    work = sf.stack(sf.moments(domain, ["x", "y"], by="g"), sf.means(domain, "y"), sf.marginals(domain, upto=1))
    plan = sf.plan(work, sf.gdp(10**6), neighbours="add-remove")
    for source in _sources(columns, tmp_path, servers).values():
        release = sf.release(plan, source, ledger=None)
        for name, values in (("x", x), ("y", y.clip(-40, 120))):
            means = release.mean(name, by="g")
            for low, high, k in zip(means["low"], means["high"], (1, 2, 3), strict=False):
                assert low - 1e-3 <= values[(g == k) & ~missing].mean() <= high + 1e-3
    ledger = sf.Ledger.in_memory(total=sf.gdp(10**7))
    with pytest.raises(SourceError):
        sf.release(plan, "postgresql://nobody@/none?host=/nowhere&table=t", ledger=ledger, name="q")
    assert not [e for e in ledger.entries() if e.kind == "spend"]


def test_a_place_has_room_in_its_word() -> None:
    """The largest code of every attribute comes back from its bits, however many measures a record has. Mutant: bits of
    a measure's cells."""
    for count in (1, 2, 3, 7):
        domain = sf.Domain(
            {"a": sf.Integers(0, 1000, outside="drop", missing="other")},
            measures={f"m{i}": sf.Measure(0, 1) for i in range(count)},
        )
        layout = WordLayout(domain.grid)
        words = np.zeros((layout.words, 3), dtype=np.int64)
        codes = [[0, rule.states // 3, rule.states - 1 + rule.drops] for rule in domain.grid.rules]
        for (word, shift, _), own in zip(layout.places(), codes, strict=True):
            words[word] |= np.array(own, dtype=np.int64) << shift
        assert [layout.cells(words, i).tolist() for i in range(len(codes))] == codes
        assert layout.kept(words).tolist() == [True, True, False]
        assert Encoding(domain.grid).words == layout.words


def test_a_table_follows_from_a_larger_one() -> None:
    """By summing, over measures too: features of one are rounded alike beside others. Mutants: not over measures;
    nothing summed at all."""
    domain = sf.Domain({"a": 3, "b": 2}, measures={"x": sf.Measure(0, 1), "y": sf.Measure(0, 1)})
    sets = [(2,), (3,), (0, 2), (0, 1, 2), (2, 3), (0, 2, 3), (1, 2, 3)]
    families, blocks, homes = blocks_of_shares(domain.grid, sets)
    where = {
        tuple(s): tuple(p for p in blocks[h].tolist() if p < 4)
        for family, own in zip(families, homes, strict=True)
        for s, h in zip(family.tolist(), own.tolist(), strict=True)
    }
    joint, single = (0, 2, 3), (0, 1, 2)
    assert where == {
        (2,): single,
        (0, 2): single,
        single: single,
        (2, 3): joint,
        joint: joint,
        (1, 2, 3): (1, 2, 3),
        (3,): joint,
    }
    rng = np.random.default_rng([187, 3])
    codes = [rng.integers(0, POINTS + 2, 500).astype(np.uint32) for _ in range(2)]
    assert (shares(codes, (4, 4)).reshape(4, 4, -1).sum(axis=0) == shares(codes[1:], (4,))).all()


@pytest.mark.parametrize("memory", [2**31, 1])
def test_records_are_added_alike_in_few_cells_and_in_many(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 140,000 records, seed [153, 11], a tenth without a number: by 9,001 cells they are added one by one, by 5 in
    sorted runs, and by none at once; chunks are added to what was there.

    Mutants: a run that ends with its chunk lost; records without a number taken for those of the next cell; a run
    that is added to the first cells; the order of attributes and measures.
    """
    monkeypatch.setattr(opened, "MEMORY_LIMIT", memory)
    rng = np.random.default_rng([153, 11])
    n = 140_000
    frame = pd.DataFrame({"a": rng.integers(0, 9_000, n), "x": rng.random(n), "y": rng.normal(0, 1, n)})
    frame["h"] = frame.a // 3_000
    for name in "xy":
        frame.loc[rng.random(n) < 0.1, name] = np.nan
    domain = sf.Domain(
        {"a": sf.Integers(0, 8_999, **OTHER), "h": sf.Integers(-1, 2, **OTHER)},
        measures={"x": sf.Measure(0, 1), "y": sf.Measure(-1, 2)},
    )
    counts = open_source(frame, domain)
    for measures in ((2,), (2, 3)):
        by_a, by_h, whole = ((0, *measures), (1, *measures), measures)
        # one after the other: together those follow from one that has both attributes
        found = {axes: _tables(counts, [axes])[axes] for axes in (by_a, by_h, whole)}
        summed = found[by_a][:9_000].reshape(3, 3_000, *found[whole].shape).sum(axis=1)
        assert (summed == found[by_h][1:4]).all()
        assert (found[by_h].sum(axis=0) == found[whole]).all()
        none = frame[["x", "y"][: len(measures)]].isna().to_numpy().all(axis=1).sum()
        assert found[whole].reshape(-1)[-1] == int(none) * SHARES
        assert not found[by_a][9_000].any()


@pytest.mark.parametrize("cells", [2**13, 2**14])
def test_keys_of_three_measures_have_room_in_sixteen_bits(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The most cells that are sorted, and twice as many, seed [184, 1], numbers there or not. Mutant: both sorted."""
    rng = np.random.default_rng([184, 1])
    n = 3_000
    columns = {name: np.where(rng.random(n) < 0.5, rng.random(n), np.nan) for name in "xyz"}
    frame = pd.DataFrame({"a": rng.integers(cells - 100, cells, n), **columns})
    groups = {"a": sf.Integers(0, cells - 1, outside="drop", missing="drop")}
    counts = open_source(frame, sf.Domain(groups, measures={name: sf.Measure(0, 1) for name in "xyz"}))
    axes = (0, 1, 2, 3)
    found = _tables(counts, [axes])[axes]
    monkeypatch.setattr(adding, "_SORTED_KEYS", 0)
    assert (found == _tables(counts, [axes])[axes]).all()
