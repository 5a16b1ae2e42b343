"""What notebooks show: aligned tables with error bars, escaped; charts; answers that add, subtract and divide."""

from __future__ import annotations

import math
from html.parser import HTMLParser

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import NotAnswerable, PlanError
from sfumato.releases import Release

DOMAIN = sf.Domain({"age": sf.Integers(0, 5), "<b>sex": sf.Categories(["f", "<script>"])})
COUNTS = np.array([[300, 200], [250, 260], [400, 380], [90, 80], [60, 55], [40, 45]])


def released(seed: int = 0, budget: int = 1) -> Release:
    work = sf.stack(main=sf.marginals(DOMAIN, upto=2), named=sf.predicates(DOMAIN, ["age >= 4"]))
    plan = sf.plan(work, sf.gdp(budget), neighbours="add-remove")
    return sf.release(plan, sf.Histogram(COUNTS + seed), ledger=None, name=f"ages {seed}")


class Tags(HTMLParser):
    """Elements that are open, and those that were seen."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_everything_shows_itself_as_tables_and_nothing_of_a_label_is_markup() -> None:
    """Mutants: a label or caption that is not escaped."""
    release, ledger = released(), sf.Ledger.in_memory(sf.gdp(2))
    sf.release(release.plan, sf.Histogram(COUNTS), ledger=ledger, name="<i>")
    projected = release.project()
    things = [release.plan, release, projected, release.table("age", "<b>sex"), ledger, release.workload]
    things += [projected.projection, projected.synthetic(50), release.quantiles("age", [0.5]), release.share("age")]
    for thing in things:
        found = Tags(thing._repr_html_())
        assert found.open == []
        assert "table" in found.seen
        assert found.seen <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "div", "p", "strong"} | {
            "svg",
            "line",
            "circle",
        }


def test_answers_have_bars_on_one_scale() -> None:
    table = released().table("age")
    text = table._repr_html_()
    assert text.count("<svg") == 6
    assert 'text-align:right">' in text
    assert "<svg" not in released().plan.candidates.to_html()


def test_charts_of_plans_tables_and_distributions() -> None:
    pytest.importorskip("altair")
    release = released()
    for chart in (release.plot("age"), release.plot("age", by="<b>sex"), release.plot("<b>sex", by="age")):
        assert "layer" in chart.to_dict()
    assert release.table("age", "<b>sex").plot().to_dict()["layer"]
    assert release.plan.plot().to_dict()["encoding"]["x"]["field"] == "rmse"


def test_answers_of_one_release_err_together() -> None:
    """Mutants: variances added, the sign of the covariance, the covariance of one term alone."""
    release = released()
    a, b = release.ask("age <= 2"), release.ask("age >= 1")
    both = release.plan.covariance("age <= 2", "age >= 1")[0, 0]
    expected = (a.standard_error or 0) ** 2 + (b.standard_error or 0) ** 2 - 2 * both
    assert (a - b).standard_error == pytest.approx(math.sqrt(expected), rel=1e-9)
    assert (a + b).value == pytest.approx(a.value + b.value)
    assert sum([a, b]) == a + b
    assert (2 * a).standard_error == pytest.approx(2 * (a.standard_error or 0))
    assert (-a / 4).value == pytest.approx(-a.value / 4)
    assert (a - a).standard_error == pytest.approx(0, abs=1e-6)


def test_ratios_are_those_of_share_and_mean() -> None:
    release = released()
    ours = release.ask("age == 1") / release.ask("age <= 5")
    (theirs,) = [r for r in release.share("age").rows() if r["age"] == "1"]
    assert list(ours) == pytest.approx([theirs[k] for k in ("share", "standard_error", "low", "high")], rel=1e-6)
    projected = release.project()
    ratio = projected.ask("age == 1") / projected.ask("age <= 5")
    assert ratio.standard_error is None
    assert ratio.low <= ratio.value <= ratio.high
    with pytest.raises(NotAnswerable, match="too near 0"):
        _ = release.ask("age <= 2") / (release.ask("age == 1") - release.ask("age == 1"))


def test_answers_of_two_releases_are_independent() -> None:
    one, other = released(0), released(3, budget=2)
    a, b = one.ask("age <= 2"), other.ask("age <= 2")
    assert (a - b).standard_error == pytest.approx(math.hypot(a.standard_error or 0, b.standard_error or 0))
    assert (a / b).low < 1 < (a / b).high + 0.2


def test_arithmetic_is_refused_where_errors_are_not_known() -> None:
    release = released()
    a = release.ask("age <= 2")
    with pytest.raises(PlanError, match="ratio"):
        _ = a / a - a
    with pytest.raises(PlanError, match="one confidence"):
        _ = a - release.ask("age <= 2", confidence=0.9)
    with pytest.raises(PlanError, match="model or a sketch"):
        _ = sf.Answer(1.0, None, 0.0, 2.0) - a
    for wrong in ("1", True, math.nan):
        with pytest.raises(TypeError):
            _ = a * wrong  # type: ignore[operator]
    with pytest.raises(TypeError):
        _ = a - (1.0, 1.0, 1.0, 1.0)
