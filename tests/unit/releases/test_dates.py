"""Days as an ordered attribute: questions along them, their distribution, quantiles as days, and mock rows."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pytest

import sfumato as sf
from sfumato.curator.rows.sources import open_source
from sfumato.domain.mock import mock_columns
from sfumato.errors import DomainError, PlanError
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


def test_groups_by_age_are_cells_between_birthdays(tmp_path: Path) -> None:
    """Every day counts in the group that its age on the last day of 2025 says, from a file to the stored release.

    Mutants: a birthday on the reference day counted as not yet had; a cell's first day in the cell before it.
    """
    ages = (18, 45, 65)
    starts = [datetime.date(2026 - age, 1, 1) for age in reversed(ages)]
    born = sf.Dates("1906-01-01", "2025-12-31", format="%d.%m.%Y", starts=starts, outside="other", missing="other")
    assert born.labels == (
        "1906-01-01..1960-12-31", "1961-01-01..1980-12-31", "1981-01-01..2007-12-31", "2008-01-01..2025-12-31",
        "(other)",
    )  # fmt: skip
    rng = np.random.default_rng(3)
    days = [datetime.date(1906, 1, 1) + datetime.timedelta(int(d)) for d in rng.integers(0, 43_829, 400)]
    days += [*starts, *(d - datetime.timedelta(1) for d in starts), datetime.date(2025, 12, 31)]
    old = [2025 - d.year for d in days]  # on the last day of a year everybody had this year's birthday
    expected = [sum(sum(a >= age for age in ages) == group for a in old) for group in (3, 2, 1, 0)]
    path = write_csv(tmp_path / "t.csv", ["born"], [[d.strftime("%d.%m.%Y")] for d in days])
    domain = sf.Domain({"born": born})
    work = sf.stack(cells=sf.marginals(domain, upto=1), curve=sf.prefix(domain, "born"))
    release = sf.release(sf.plan(work, sf.gdp(1_000), neighbours="add-remove"), path, ledger=None)
    release.save(tmp_path / "out")
    found = sf.load(tmp_path / "out")
    assert found.table("born").values.round().tolist() == [*expected, 0]
    assert found.ask("born >= '2008-01-01'").value == pytest.approx(expected[3], abs=0.5)
    assert found.ask("born == '2008-01-01..2025-12-31'").value == pytest.approx(expected[3], abs=0.5)
    assert found.plan.workload.domain["born"] == born


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"starts": ["1960-01-01", "1950-01-01"]}, "they increase"),
        ({"starts": ["1926-01-01"]}, "after 1926-01-01"),
        ({"starts": ["2026-01-01"]}, "up to 2025-12-31"),
        ({"starts": ["18"]}, "a start must be a day"),
        ({"starts": "1960-01-01"}, "a list of days"),
        ({"starts": ["1960-01-01"], "by": "year"}, "leave by='year' or starts out"),
    ],
)
def test_starts_that_are_none_are_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(DomainError, match=said):
        sf.Dates("1926-01-01", "2025-12-31", **given)  # type: ignore[arg-type]
