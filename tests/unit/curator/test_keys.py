"""Sources of keys: every kind of table gives the same counts, every rule is total, and nothing raised quotes a key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.curator.keys import open_keys
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
    [(5, None), ([[1]], None), ([1.5], None), ([None], None), ([2**70], None), ([True], None), (b"x", None)]
    + [([1, 2], c) for c in ([1], [1, -1], [1, 0.5], [1, np.nan], ["a", "b"], [2**52, 2**52], [1, 2**80])]
    + [(np.ma.masked_array([1, 2], [0, 1]), None), ([1, 2], np.ma.masked_array([1, 2], [0, 1]))],
)
def test_what_is_no_source_is_refused(keys: Any, counts: Any) -> None:
    with pytest.raises(sf.InvalidInput) as failure:
        sf.KeyCounts(keys, counts)
    assert not any(t in str(failure.value) for t in ("0.5", "4503599627370496", "-1"))


def test_other_columns_and_sources_are_refused(tmp_path: Path) -> None:
    import pandas as pd

    with pytest.raises(sf.InvalidInput, match="not a source"):
        open_keys([1, 2], NUMBERS, RECORDS)
    with pytest.raises(sf.InvalidInput):
        open_keys(sf.KeyCounts(["a"]), NUMBERS, RECORDS)
    with pytest.raises(sf.SourceError, match="no column"):
        open_keys(pd.DataFrame({"key": [1]}), NUMBERS, RECORDS)
    with pytest.raises(sf.SourceError, match="holds no keys"):
        open_keys(pd.DataFrame({"id": [True]}), NUMBERS, RECORDS)
    (tmp_path / "t.csv").write_text('id\n"4321\n', encoding="utf-8")
    with pytest.raises(sf.SourceError) as failure:
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
    with pytest.raises(sf.InvalidInput, match="no column 'who'"):
        counted(sf.KeyCounts([1]), NUMBERS, PrivacyUnit(sf.Neighbours.ADD_REMOVE, "who"))
    with pytest.raises(sf.SourceError, match="no column"):
        counted(pd.DataFrame({"id": [5]}), NUMBERS, PrivacyUnit(sf.Neighbours.ADD_REMOVE, "who"))
