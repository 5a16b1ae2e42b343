"""The place of a number in the range of a measure: DuckDB's is that of numpy's doubles, and near that of fractions."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from sfumato.cells import POINTS
from sfumato.curator.rows.counting import ColumnCounts
from sfumato.curator.rows.samples import place_sample
from sfumato.curator.rows.sources import open_source
from sfumato.privacy.unit import Neighbours, PrivacyUnit

RANGES = [(0.0, 1.0), (-50.0, 150.0), (0.1, 0.3), (-8e149, 8e149), (0.0, 1e150), (-3e-290, 2e-290), (1e15, 1e15 + 4)]


def _hostile(low: float, high: float) -> list[float]:
    """Ends and halves of steps with the doubles beside them, what is no number, and what is out of all ranges."""
    rng = np.random.default_rng([184, *struct.unpack("<2Q", struct.pack("<2d", low, high))])
    steps = [0, 1, 2, 3, POINTS // 2, POINTS - 1, POINTS, *rng.integers(0, POINTS, 300).tolist()]
    exact = [
        Fraction(low) + (Fraction(s) + half) * (Fraction(high) - Fraction(low)) / POINTS
        for s in steps
        for half in HALVES
    ]
    found = [float(e) for e in exact if e <= Fraction(high)]
    found += [0.0, -0.0, 5e-324, -5e-324, 2.2e-308, 1e308, -1e308, math.inf, -math.inf, math.nan, 2.0**53 + 2, 1e-300]
    found += rng.uniform(low, high, 300).tolist()
    return [w for v in found for w in (v, math.nextafter(v, math.inf), math.nextafter(v, -math.inf))]


HALVES = (Fraction(0), Fraction(1, 2))


def _place(value: float | None, low: float, high: float, *, absent: bool) -> int:
    """The rule in numpy's doubles."""
    if value is None or math.isnan(value) or (absent and not low <= value <= high):
        return POINTS + 1
    if value <= low or value >= high:
        return 0 if value <= low else POINTS
    return int(np.floor((np.float64(value) - low) * np.float64(POINTS / (high - low)) + 0.5))


def _places(table: Any, low: float, high: float, *, absent: bool) -> list[int]:
    measure = sf.Measure(low, high, outside="absent" if absent else "clamp")
    counts = open_source(
        table, sf.Domain({"i": sf.Integers(0, 9_999_999, outside="drop", missing="drop")}, measures={"v": measure})
    )
    assert isinstance(counts, ColumnCounts)
    rows, codes = (np.concatenate([np.asarray(c[k]) for c in counts.chunks]) for k in (0, 1))
    return codes[np.argsort(rows)].tolist()


@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize(("low", "high"), RANGES)
def test_doubles_have_the_places_of_numpy(low: float, high: float, absent: bool, tmp_path: Path) -> None:
    """From a file and a frame, exactly; and within a little of those of fractions. Mutants: NaN cut to the upper end;
    an end left out of the range; halves rounded down or to even."""
    values: list[float | None] = [*_hostile(low, high), None]
    table = pa.table({"i": range(len(values)), "v": pa.array(values, pa.float64())})
    pq.write_table(table, tmp_path / "t.parquet")
    wanted = [_place(v, low, high, absent=absent) for v in values]
    assert _places(tmp_path / "t.parquet", low, high, absent=absent) == wanted
    assert _places(table, low, high, absent=absent) == wanted
    assert max(w for w in wanted if w <= POINTS) == POINTS
    width = Fraction(high) - Fraction(low)
    for value, place in zip(values, wanted, strict=True):
        if place <= POINTS and value is not None and math.isfinite(value):
            exact = (min(max(Fraction(value), Fraction(low)), Fraction(high)) - Fraction(low)) * POINTS / width
            assert abs(place - exact) <= Fraction(1, 2) + Fraction(1, 2**20)


def test_numbers_of_all_types_have_the_places_of_their_doubles() -> None:
    """Mutants: a 32-bit float as its own double; a whole number beyond 2^53 refused; text that is no number an end."""
    low, high = -10.0, 1e19
    cases: list[tuple[pa.DataType, list[Any], list[float | None]]] = [
        (pa.int64(), [0, 2**53 + 1, 2**63 - 1, -(2**63), None], [0.0, 2.0**53, 2.0**63, -(2.0**63), None]),
        (pa.uint64(), [2**64 - 1, 2**53 + 3], [2.0**64, float(2**53 + 3)]),
        (pa.decimal128(38, 3), [Decimal("0.125"), Decimal("99999999999999999.999")], [0.125, 99999999999999999.999]),
        (pa.float32(), [0.1, math.nan, math.inf, 1e-45], [0.1, math.nan, math.inf, 1e-45]),
        (
            pa.string(),
            ["0.1", "nan", "inf", "-inf", "1e400", "x", "", "1_0"],
            [0.1, math.nan, math.inf, -math.inf, math.inf, None, None, None],
        ),
    ]
    for kind, given, doubles in cases:
        table = pa.table({"i": range(len(given)), "v": pa.array(given, kind)})
        for absent in (False, True):
            wanted = [_place(v, low, high, absent=absent) for v in doubles]
            assert _places(table, low, high, absent=absent) == wanted, kind


def test_a_sample_says_that_nan_is_missing(tmp_path: Path) -> None:
    """Mutant: NaN, which has no place, taken for a number."""
    pq.write_table(pa.table({"v": [1.0, math.nan, None, 20.0]}), tmp_path / "t.parquet")
    domain = sf.Domain({}, measures={"v": sf.Measure(0, 10)})
    (found,) = place_sample(tmp_path / "t.parquet", domain, PrivacyUnit(Neighbours.ADD_REMOVE)).attributes
    assert (found.inside, found.missing) == (2, 2)
