"""Days as an ordered attribute: questions along them, their distribution, quantiles as days, and mock rows."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pytest

import sfumato as sf
from sfumato.curator.rows.sources import open_source
from sfumato.domain.mock import mock_columns
from sfumato.errors import PlanError
from sfumato.present.answers import asked_distributions
from sfumato.present.charts import distribution_chart
from support.reading import write_csv

MONTHS = sf.Dates("2024-01-01", "2024-12-31", by="month", format="%d.%m.%Y", outside="other", missing="other")
DOMAIN = sf.Domain({"admitted": MONTHS, "sex": sf.Categories(["f", "m"], outside="other", missing="other")})


def test_quantiles_are_days_and_shares_go_by_period() -> None:
    """With little noise: the median of as many records in every month is the last of June.

    Mutants: days by their numbers; the day after a cell for its last."""
    work = sf.stack(sf.prefix(DOMAIN, "admitted", by="sex"), sf.predicates(DOMAIN, ["admitted >= '2024-07-01'"]))
    plan = sf.plan(work, sf.gdp(50), neighbours="add-remove")
    counts = np.zeros(DOMAIN.shape)
    counts[:12, :2] = 10_000
    release = sf.release(plan, sf.Histogram(counts), ledger=None)
    found = release.quantiles("admitted", [0.25, 0.5])
    low, value, high = (datetime.date.fromisoformat(found[key][1]) for key in ("low", "quantile", "high"))
    assert abs(value - datetime.date(2024, 6, 30)) <= datetime.timedelta(4)  # rounded to a tenth of a cell
    assert (low, high) <= (value, datetime.date(2024, 7, 31))
    assert low in (datetime.date(2024, 6, 1), datetime.date(2024, 7, 1))  # out to the edges of cells
    shares = release.cdf("admitted")
    assert shares["admitted"][:2] == ["up to 2024-01", "up to 2024-02"]
    assert shares["share"][5] == pytest.approx(0.5, abs=1e-3)
    assert release.ask("admitted >= '2024-07'").value == pytest.approx(120_000, abs=100)
    with pytest.raises(PlanError, match="not numeric"):
        release.mean("admitted")


def test_mock_rows_lie_in_declared_cells(tmp_path: Path) -> None:
    """Mutants: days written as the table does not; a day of no cell."""
    drawn = mock_columns(DOMAIN, 200, seed=3)
    path = write_csv(tmp_path / "t.csv", DOMAIN.names, list(zip(*drawn.values(), strict=True)))
    counts = open_source(path, DOMAIN).count([DOMAIN.names])[DOMAIN.names]
    assert counts[:-1, :-1].sum() == 200
    assert drawn["admitted"][0][2] == "."


def test_a_report_draws_days_along_a_time_axis(tmp_path: Path) -> None:
    """Mutants: an axis of numbers of days; the first day of a cell for its last."""
    plan = sf.plan(sf.prefix(DOMAIN, "admitted"), sf.gdp(1), neighbours="add-remove")
    counts = np.zeros(DOMAIN.shape)
    counts[:12, :2] = 1_000
    release = sf.release(plan, sf.Histogram(counts), ledger=None, out=tmp_path / "r")
    (found,) = asked_distributions(release)
    last = datetime.datetime(2024, 1, 31, tzinfo=datetime.UTC)
    assert found.rows[0]["x"] == last.timestamp() * 1000
    assert distribution_chart(found)["encoding"]["x"]["type"] == "temporal"
    assert "2024-01" in (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
