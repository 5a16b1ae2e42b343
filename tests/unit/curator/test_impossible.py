"""Records that cannot be are counted where the domain says, in every kind of source alike, and nobody is told."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest

import sfumato as sf
from sfumato.curator.engines import kernel
from sfumato.curator.engines.kernel import RECEIPT, Encoding
from sfumato.curator.rows import loading
from sfumato.curator.rows.counting import ColumnCounts
from sfumato.curator.rows.encoding import Truncation
from sfumato.curator.rows.loading import FileCounts
from sfumato.curator.rows.sources import open_source
from sfumato.local.collecting import record_cell
from support.impossible import drawn

NAMES = ("a", "b", "c", "h")
OTHER: dict[str, Any] = {"outside": "other", "missing": "other"}
ALL = [NAMES, ("a",), ("c", "a"), ("b", "h"), ()]


def domain(seed: int) -> sf.Domain:
    """As drawn, of rows that may hold anything; `a` drops some."""
    plain = drawn(seed)
    attributes = {
        "a": sf.Integers(0, 3, outside="drop", missing="drop"),
        "b": sf.Booleans(**OTHER),
        "c": sf.Categories(["x", "y", "z"], **OTHER),
        "h": sf.Hierarchy({"06": ["1", "2"], "36": ["3"]}, ["state", "county"], **OTHER),
    }
    return sf.Domain(attributes, plain.impossible)


def rows(seed: int, count: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    values = {"a": ["0", "1", "2", "3", "9", ""], "b": ["t", "f", ""], "c": ["x", "y", "z", "?"], "h": ["1", "2", "3"]}
    return pd.DataFrame({n: rng.choice(v, count) for n, v in values.items()} | {"who": rng.integers(0, 40, count)})


def expected(of: sf.Domain, table: pd.DataFrame) -> dict[Any, Any]:
    """Record by record, by the device's own reading of one, which shares no code with the wall's."""
    counts = np.zeros(of.shape, dtype=np.int64)
    for values in table[list(NAMES)].to_numpy().tolist():
        record = dict(zip(NAMES, values, strict=True))
        if record["a"] not in ("9", ""):
            counts.reshape(-1)[record_cell(of, NAMES, record)] += 1
    return {s: np.einsum(counts, [0, 1, 2, 3], [NAMES.index(n) for n in s]) for s in ALL}


def in_a_kernel(of: sf.Domain, table: pd.DataFrame, person: str | None) -> np.ndarray[Any, Any]:
    """The cells that an engine counts, as it keeps them: whole numbers."""
    import pyarrow as pa

    texts = table.astype(str)
    columns = {f"r{i}": pa.array(texts[n]) for i, n in enumerate(NAMES)} | {"w0": pa.array(np.zeros(len(texts), int))}
    columns |= {} if person is None else {"r": pa.array(texts[person])}
    how = Encoding(of.grid, dict.fromkeys(range(4), ("VARCHAR",)), person and "VARCHAR", Truncation(2), 1)
    batches = pa.table(columns).to_batches(max_chunksize=70)
    parts = list(kernel.encode(batches, how, 0))
    if person is not None:
        parts = [p for p in kernel.gather(kernel.part_batches(parts), how, 0) if p.chunk != RECEIPT]
    words = np.concatenate([np.frombuffer(p.data, dtype="<i8").reshape(how.words, -1) for p in parts], axis=1)
    counts = np.zeros(of.shape, dtype=np.int64)
    np.add.at(counts, tuple(how.cells(words, i) for i in range(4)), 1)
    return counts


@pytest.mark.parametrize("seed", range(4))
def test_every_source_counts_them_alike(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files, frames, a database, records that stay on disk, histograms, the kernel of engines, and the device.

    Mutants: impossible records left where they are, or left out, or counted in the total alone, in any of these; the
    columns that decide not read where others are asked.
    """
    of, table = domain(seed), rows(seed, 300)
    wanted = expected(of, table)
    table.to_csv(tmp_path / "t.csv", index=False)
    pl.from_pandas(table).write_parquet(tmp_path / "t.parquet")
    with duckdb.connect(str(tmp_path / "t.db")) as connection:
        connection.register("given", table)
        connection.execute("CREATE TABLE t AS SELECT * FROM given")
    whole = sf.Domain(of.attributes)
    plain = open_source(table, whole).count([NAMES])[NAMES]
    given = [table, pl.from_pandas(table), tmp_path / "t.csv", tmp_path / "t.parquet", sf.Histogram(plain)]
    counted = [open_source(s, of) for s in [*given, f"duckdb:///{tmp_path / 't.db'}?table=t"]]
    assert isinstance(counted[0], ColumnCounts)
    monkeypatch.setattr(loading, "MEMORY_LIMIT", 0)
    counted.append(open_source(table, of))
    assert isinstance(counted[-1], FileCounts)
    possible = of.possible(NAMES)
    assert possible is not None
    for found in counted:
        assert found.rows == int(wanted[()])
        for s, counts in found.count(ALL).items():
            assert np.array_equal(counts, wanted[s])
            # by itself too: of a table on disk no other columns are read then than those that decide
            assert np.array_equal(found.count([s])[s], wanted[s])
    assert np.array_equal(in_a_kernel(of, table, None), wanted[NAMES])
    # of persons as many rows, of the same: those that were chosen before any was moved
    for_each = open_source(table, whole, person="who", rows_per_person=2).count([NAMES])[NAMES]
    assert np.array_equal(
        open_source(table, of, person="who", rows_per_person=2).count([NAMES])[NAMES], of.grid.mended(for_each)
    )
    assert np.array_equal(in_a_kernel(of, table, "who"), of.grid.mended(for_each))


@pytest.mark.parametrize("seed", range(4))
def test_one_record_more_or_another_moves_one_cell(seed: int) -> None:
    """What a person can change stays: one record more is one more somewhere; another leaves one cell for another.

    Mutants: a record moved by how many others are there; the most frequent possible cell; impossible records dropped,
    by which a replaced one could vanish.
    """
    of = domain(seed)
    kept = rows(seed + 10, 12)
    base = open_source(kept, of).count([NAMES])[NAMES]
    cells = itertools.product(["0", "3"], ["t", ""], ["x", "?"], ["1", "3"])
    for values in cells:
        more = pd.DataFrame([dict(zip(NAMES, values, strict=True), who=1)])
        with_it = open_source(pd.concat([kept, more]), of).count([NAMES])[NAMES]
        assert (with_it - base).sum() == 1
        assert (with_it >= base).all()
        alone = open_source(more, of).count([NAMES])[NAMES]
        assert np.array_equal(with_it - base, alone)


def test_nobody_is_told() -> None:
    """A table of impossible records alone is released like any other: same prices, no error, no word of it."""
    of = sf.Domain({"b": sf.Booleans(**OTHER), "c": sf.Categories(["x", "y"], **OTHER)}, ["b and c == 'x'"])
    work = sf.marginals(of, upto=2)
    plan = sf.plan(work, sf.gdp(1), neighbours="replace-one")
    free = sf.plan(sf.marginals(sf.Domain(of.attributes), upto=2), sf.gdp(1), neighbours="replace-one")
    assert (plan.price, plan.sensitivity, plan.noise) == (free.price, free.sensitivity, free.noise)
    shown: list[str] = []
    for values in (("t", "x"), ("t", "y")):
        table = pd.DataFrame([dict(zip(("b", "c"), values, strict=True))] * 50)
        release = sf.release(plan, table, ledger=None)
        assert abs(release.table("b").values[1] - 50) < 20
        assert release.table("b", "c").values[1, 0] == 0
        shown.append(str([c.text for c in release.cautions]))
    assert shown[0] == shown[1]
