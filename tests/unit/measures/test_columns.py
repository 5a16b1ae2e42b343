"""A measure that reads a column of another name: one column is counted in cells and summed, in one plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.curator.rows.samples import place_sample
from sfumato.curator.rows.sources import open_source
from sfumato.domain.mock import mock_columns
from sfumato.errors import DomainError, SourceError, SpecError
from sfumato.privacy.unit import PrivacyUnit
from sfumato.specs import read_spec
from sfumato.workloads.schema import spec_text

PAY = sf.Bins([0, 100, 1_000, 5_000], outside="clamp", missing="other")


def _domain(column: str | None = "pay") -> sf.Domain:
    return sf.Domain({"pay": PAY}, measures={"wage": sf.Measure(0, 5_000, knots=[700], column=column)})


def _frame() -> pd.DataFrame:
    rng = np.random.default_rng([174, 0])
    pay = np.round(rng.gamma(1, 900, 400), 2)
    pay[::17] = np.nan
    return pd.DataFrame({"pay": pay, "who": rng.integers(0, 150, 400)})


@pytest.mark.parametrize("kind", ["pandas", "csv", "parquet", "duckdb"])
@pytest.mark.parametrize("person", [None, "who"])
def test_one_column_is_what_a_copy_of_it_is(tmp_path: Path, kind: str, person: str | None) -> None:
    """To the bit, tables and sums. Mutants: the measure's own name is read; the column is asked for twice."""
    frame, given = _frame(), {"pandas": None, "duckdb": f"duckdb:///{tmp_path}/t.db?table=t"}
    copied = frame.assign(wage=frame.pay)
    source: Any = given.get(kind, tmp_path / f"t.{kind}")
    if kind == "pandas":
        source = frame
    elif kind == "duckdb":
        with duckdb.connect(tmp_path / "t.db") as connection:
            connection.execute("CREATE TABLE t AS SELECT * FROM frame")
    else:
        getattr(frame, f"to_{kind}")(source, index=False)
    options: dict[str, Any] = {"person": person, "rows_per_person": 2}
    one, two = open_source(source, _domain(), **options), open_source(copied, _domain(None), **options)
    for axes in ((1,), (0, 1)):
        ((_, found),), ((_, wanted),) = one.shared([axes]), two.shared([axes])
        assert np.array_equal(found, wanted)
    assert np.array_equal(one.count([("pay",)])["pay",], two.count([("pay",)])["pay",])


def test_both_uses_are_answered_and_kept(tmp_path: Path) -> None:
    work = sf.stack(sf.means(_domain(), "wage", by="pay"), sf.prefix(_domain(), "pay"))
    release = sf.release(sf.plan(work, sf.gdp(500), neighbours="add-remove"), _frame(), ledger=None)
    release.save(tmp_path / "r.sfumato")
    loaded = sf.load(tmp_path / "r.sfumato")
    assert isinstance(loaded, sf.Release)
    assert loaded.plan.workload.domain == _domain()
    means = loaded.mean("wage", by="pay")["mean wage"]
    frame = _frame().clip(upper=5_000)
    exact = frame.groupby(pd.cut(frame.pay, [0, 100, 1_000, 5_001], right=False), observed=False).pay.mean()
    assert np.allclose([m for m in means[:3] if m is not None], exact, rtol=1e-2)


def test_a_column_that_is_not_there_is_refused_by_its_name() -> None:
    with pytest.raises(SourceError, match="no column called 'pay'"):
        open_source(_frame().rename(columns={"pay": "wage"}), _domain())
    for wrong in ("", "a\u200b", 3):
        with pytest.raises(DomainError, match="column"):
            sf.Measure(0, 1, column=wrong)  # type: ignore[arg-type]


def test_specs_and_samples_know_the_column(tmp_path: Path) -> None:
    """Mutants: [measures] without it; rows drawn with a column for the measure, which the table does not have."""
    place = tmp_path / "spec.toml"
    rest = '[privacy]\nmu = 1\nneighbours = "add-remove"\n[[queries]]\nmeans = "wage"\n'
    place.write_text(f'{spec_text(_domain())}\n[data]\nsource = "t.csv"\n{rest}', encoding="utf-8")
    assert read_spec(place).domain == _domain()
    place.write_text(place.read_text(encoding="utf-8").replace('"pay"\n', "3\n"), encoding="utf-8")
    with pytest.raises(SpecError, match="column"):
        read_spec(place)
    powers = rest.replace('means = "wage"', 'sums = "wage"\npower = 2\ncentre = 1.5')
    place.write_text(f'{spec_text(_domain())}\n[data]\nsource = "t.csv"\n{powers}', encoding="utf-8")
    assert read_spec(place).workload.labels() == sf.sums(_domain(), "wage", power=2, centre=1.5).labels()
    drawn = mock_columns(_domain(), 50)
    assert list(drawn) == ["pay"]
    pd.DataFrame(drawn).to_csv(tmp_path / "mock.csv", index=False)
    told = place_sample(tmp_path / "mock.csv", _domain(), PrivacyUnit(sf.Neighbours.ADD_REMOVE))
    assert [a.inside for a in told.attributes] == [50, 50]
