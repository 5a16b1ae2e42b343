"""Sources of keys: every kind of table gives the same counts, every rule is total, and nothing raised quotes a key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.curator.keys.counts import open_keys
from sfumato.privacy.unit import PrivacyUnit

NUMBERS = sf.Keys("id")
TEXTS = sf.Keys("id", "text")
RECORDS = PrivacyUnit(sf.Neighbours.ADD_REMOVE)


def counted(source: Any, keys: sf.Keys = NUMBERS, unit: PrivacyUnit = RECORDS) -> dict[int, int]:
    table = open_keys(source, keys, unit)
    assert table.elements.dtype == np.uint64
    assert (np.diff(table.elements.astype(object)) > 0).all()
    return dict(zip(table.elements.tolist(), table.counts.tolist(), strict=True))


def test_numbers_are_read_exactly_from_everything(tmp_path: Path) -> None:
    """Mutants: numbers through doubles (which merge 2^59 and 2^59 + 1); casts that round; a key above 2^60 kept."""
    import pandas as pd
    import pyarrow as pa

    big = 2**59
    fields = ["7", " 7 ", "+7", "7.0", "007", str(big), str(big + 1), "", "-7", "7.5", "1e3", "x", "NaN", "9_9"]
    fields += [str(2**60), "9" * 39, "9" * 400, "\u0667"]
    (tmp_path / "t.csv").write_text("other,id\n" + "".join(f"1,{f}\n" for f in fields), encoding="utf-8")
    expected = {7: 5, big: 1, big + 1: 1}
    assert counted(tmp_path / "t.csv") == expected
    whole = [7, 7, 7, 7, 7, big, big + 1, -7, 2**60, 2**62]
    assert counted(pd.DataFrame({"id": whole})) == expected
    assert counted(pa.table({"id": pa.array([*whole, None], type=pa.int64())})) == expected
    assert counted(pd.DataFrame({"id": [7.0, 7.0, np.nan, np.inf, -1.0, 7.5, 1e300]})) == {7: 2}
    assert counted(sf.KeyCounts(whole)) == expected
    assert counted(sf.KeyCounts([7, 8, 7], [2, 0, 3.0])) == {7: 5}
    assert counted(sf.KeyCounts([])) == {}
    (tmp_path / "t.csv").write_text("id\n", encoding="utf-8")
    assert counted(tmp_path / "t.csv") == {}


def test_texts_are_taken_as_they_are(tmp_path: Path) -> None:
    """Mutants: trimmed or folded texts; empty or long texts counted; a hash of the first bytes."""
    import pandas as pd

    texts = ["a", "a", "A", " a", "é", "b" * 1024, "c" * 1025, "é" * 513, "", None]
    found = counted(pd.DataFrame({"id": pd.Series(texts, dtype=object)}), TEXTS)
    assert sorted(found.values()) == [1, 1, 1, 1, 2]
    assert counted(sf.KeyCounts(np.array(texts, dtype=object)), TEXTS) == found
    pd.DataFrame({"id": texts}).to_parquet(tmp_path / "t.parquet")
    assert counted(tmp_path / "t.parquet", TEXTS) == found
    elements, _ = TEXTS.query(["a", "A", " a", "é", "b" * 1024], None)
    assert elements.tolist() == sorted(found)
    # another draw of the hash is another set of elements
    assert set(counted(sf.KeyCounts(["a"]), sf.Keys("id", "text"))).isdisjoint(found)


@pytest.mark.parametrize(
    ("keys", "counts"),
    [(5, None), (None, None), (np.array([[1]]), None), ("7", None), (b"x", None), ({1: 2}, None)]
    + [([1, 2], c) for c in ([1], [1, -1], [1, 0.5], [1, np.nan], ["a", "b"], [2**52, 2**52], [1, 2**80])]
    + [(np.ma.masked_array([1, 2], [0, 1]), None), ([1, 2], np.ma.masked_array([1, 2], [0, 1]))],
)
def test_what_is_no_source_is_refused(keys: Any, counts: Any) -> None:
    with pytest.raises(sf.errors.InvalidInput) as failure:
        sf.KeyCounts(keys, counts)
    assert not any(t in str(failure.value) for t in ("0.5", "4503599627370496", "-1"))


def test_a_key_is_read_by_itself() -> None:
    """The breach: numpy took 1,000 numbers for texts because of one, so one record added 1,001 to the counts.

    Mutants: one type for the whole list; a list refused for one of its elements.
    """
    numbers = list(range(1000))
    odd: list[Any] = ["zz", None, 1.5, 2**70, True, [1], b"1", float("nan"), -1, "", "\ud800", object()]
    for keys, counts in ((NUMBERS, False), (TEXTS, True)):
        plain = counted(sf.KeyCounts(numbers), keys)
        assert sum(plain.values()) == 1000
        for element in odd:
            found = counted(sf.KeyCounts([*numbers, element]), keys)
            moved = {k: found.get(k, 0) - plain.get(k, 0) for k in {*found, *plain}}
            # texts of numbers, and of true, are texts
            alone = counts and isinstance(element, (str, bool, int, float)) and element not in ("", "\ud800")
            assert sum(map(abs, moved.values())) == (alone and element == element), element
    assert counted(sf.KeyCounts([7, "7", 7.0, np.int8(7), " +7.0 "])) == {7: 5}
    assert len(counted(sf.KeyCounts([7, "7", 7.0, np.int8(7)]), TEXTS)) == 1
    assert counted(sf.KeyCounts(np.array(["7", "zz"]))) == counted(sf.KeyCounts(["7", "zz"])) == {7: 1}


def test_columns_of_frames_are_lists_too() -> None:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    big = [2**59 + 1, None, 2**59 + 1]
    for column in (pd.Series(big, dtype="Int64"), pl.Series(big), pa.array(big), pa.chunked_array([big])):
        assert counted(sf.KeyCounts(column)) == {2**59 + 1: 2}


def test_texts_under_a_collation_are_told_apart(tmp_path: Path) -> None:
    """Mutant: keys grouped as the database compares them, where "a" is "A": one record then renames the others."""
    import duckdb

    with duckdb.connect(str(tmp_path / "f.db")) as connection:
        connection.execute("CREATE TABLE t (id VARCHAR COLLATE nocase, who VARCHAR COLLATE nocase)")
        connection.execute("INSERT INTO t VALUES ('a', 'p'), ('a', 'P'), ('A', 'p'), ('b', 'p')")
    url = f"duckdb:///{tmp_path}/f.db?table=t"
    expected = counted(sf.KeyCounts(["a", "a", "A", "b"]), TEXTS)
    assert sorted(expected.values()) == [1, 1, 2]
    assert counted(url, TEXTS) == expected
    assert sum(counted(url, TEXTS, PrivacyUnit(sf.Neighbours.ADD_REMOVE, "who", 1)).values()) == 2


def test_other_columns_and_sources_are_refused(tmp_path: Path) -> None:
    import pandas as pd
    import pyarrow as pa

    with pytest.raises(sf.errors.InvalidInput, match="not a source"):
        open_keys([1, 2], NUMBERS, RECORDS)
    with pytest.raises(sf.errors.SourceError, match="no column"):
        open_keys(pd.DataFrame({"key": [1]}), NUMBERS, RECORDS)
    with pytest.raises(sf.errors.SourceError, match="holds no keys"):
        open_keys(pa.table({"id": [True]}), NUMBERS, RECORDS)
    (tmp_path / "t.csv").write_text('id\n"4321\n', encoding="utf-8")
    with pytest.raises(sf.errors.SourceError) as failure:
        open_keys(tmp_path / "t.csv", NUMBERS, RECORDS)
    assert "4321" not in str(failure.value)


def test_a_source_is_its_own_copy() -> None:
    given = np.array([1, 2])
    source = sf.KeyCounts(given)
    given[:] = 9
    assert counted(source) == {1: 1, 2: 1}
    assert repr(source) == "KeyCounts(...)"


def test_of_a_person_so_many_records_are_counted(tmp_path: Path) -> None:
    """Mutants: truncated before records without a key are left out; rows of nobody counted; others' rows decide."""
    import pandas as pd

    rows = [("a", "1"), ("a", "1"), ("a", "x"), ("a", "2"), ("b", "1"), ("b", "-3"), (None, "4"), ("c", None)]
    alone = {who: [k for w, k in rows if w == who] for who in ("a", "b")}
    for most in (1, 2, 3):
        unit = PrivacyUnit(sf.Neighbours.REPLACE_ONE, "who", most)
        frame = pd.DataFrame(rows, columns=["who", "id"])
        found = counted(frame, NUMBERS, unit)
        assert sum(found.values()) == min(3, most) + 1
        parts = [counted(pd.DataFrame({"who": [w] * len(k), "id": k}), NUMBERS, unit) for w, k in alone.items()]
        assert found == {key: sum(p.get(key, 0) for p in parts) for key in found}
        shuffled = frame.sample(frac=1, random_state=most)
        shuffled.to_parquet(tmp_path / f"{most}.parquet")
        assert counted(tmp_path / f"{most}.parquet", NUMBERS, unit) == found
        texts = counted(frame, TEXTS, unit)
        assert sum(texts.values()) == min(4, most) + min(2, most)
    own = PrivacyUnit(sf.Neighbours.ADD_REMOVE, "id", 1)
    assert counted(pd.DataFrame({"id": [5, 5, 6]}), NUMBERS, own) == {5: 1, 6: 1}
    with pytest.raises(sf.errors.InvalidInput, match="no column 'who'"):
        counted(sf.KeyCounts([1]), NUMBERS, PrivacyUnit(sf.Neighbours.ADD_REMOVE, "who"))
    with pytest.raises(sf.errors.SourceError, match="no column"):
        counted(pd.DataFrame({"id": [5]}), NUMBERS, PrivacyUnit(sf.Neighbours.ADD_REMOVE, "who"))
