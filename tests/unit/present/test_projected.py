"""The page of a projected release: before and after, what made answers move, and no error that does not hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.present import render
from sfumato.present.answers import single_answers, small_tables
from sfumato.present.charts import moved_chart
from sfumato.present.projected import projection_section
from sfumato.present.words import round_to_error, show_figures
from unit.present.test_report import HOSTILE, Page

SPACE = sf.Domain({"age": sf.Integers(0, 19), "place": sf.Categories(list("xyz")), "sex": sf.Booleans()})
COUNTS = np.random.default_rng(1).multinomial(300, np.random.default_rng(2).dirichlet(np.ones(120) * 0.1))
WORK = sf.stack(
    tables=sf.marginals(SPACE, order=2),
    curve=sf.prefix(SPACE, "age", by=["sex"]),
    named=sf.predicates(SPACE, ["age >= 10 and sex == true", "age < 3"]),
)


def released(work: sf.Workload = WORK, neighbours: str = "replace-one") -> sf.Release:
    plan = sf.plan(work, sf.approx(1, "1e-6"), neighbours=neighbours)
    counts = np.resize(COUNTS, work.domain.size).reshape(work.domain.shape)
    return sf.release(plan, sf.Histogram(counts), ledger=None)


@pytest.fixture(scope="module")
def raw() -> sf.Release:
    return released()


@pytest.fixture(scope="module")
def projected(raw: sf.Release) -> sf.Release:
    return raw.project()


def fact(release: sf.Release, name: str) -> str:
    found = projection_section(release)
    assert found is not None
    return dict(found.facts)[name]


def test_an_unprojected_release_has_no_such_section(raw: sf.Release) -> None:
    assert projection_section(raw) is None
    page = render(raw)
    assert 'id="moved"' not in page
    assert "rojected" not in Page(page).text
    assert "before" not in Page(page).charts["table-0"]["data"]["values"][0]


def test_what_the_page_says(raw: sf.Release, projected: sf.Release) -> None:
    found = projected.projection
    assert found is not None
    text = Page(render(projected)).text
    assert "Standard errors are withdrawn" in text
    assert "Before and after the projection" in text
    assert "nothing is rounded, clipped" not in text
    assert found.describe() in text
    assert "before they were projected" in text
    assert "300 before, 300 after (public)" in text
    below = int((raw.answers < 0).sum())
    assert below > 0
    assert f"{below:,} of {len(raw.answers):,} answers" in fact(projected, "Below zero or the least possible, before")
    zero = int((projected.answers < 1e-3 * raw.plan.rmse).sum())
    assert zero > below // 2
    assert f"{zero:,} of" in fact(projected, "At zero now")
    moved = float(np.sqrt(np.mean((projected.answers - raw.answers) ** 2)))
    assert fact(projected, "Moved by").startswith(f"{show_figures(moved)} records")
    assert f"{moved / raw.plan.rmse:.2f} of the typical noise" in fact(projected, "Moved by")
    assert found.describe() in fact(projected, "Certificate")


def test_what_moved_most_stands_with_its_interval(raw: sf.Release, projected: sf.Release) -> None:
    found = projection_section(projected)
    assert found is not None
    steps = (projected.answers - raw.answers) / raw.plan.standard_errors()
    first = int(np.argmax(np.abs(steps)))
    assert found.most[0]["label"] == raw.labels()[first]
    assert found.most[0]["steps"] == show_figures(steps[first])
    ends = raw.intervals()
    error = float(raw.plan.standard_errors()[first])
    shown = {k: found.most[0][k] for k in ("low", "high")}
    assert shown == {"low": round_to_error(ends.low[first], error), "high": round_to_error(ends.high[first], error)}
    assert len(found.most) == 20


def test_charts_show_both(raw: sf.Release, projected: sf.Release) -> None:
    charts = Page(render(projected)).charts
    dots = charts["moved"]["data"]["values"]
    assert [d["before"] for d in dots] == pytest.approx(np.sort(raw.answers), rel=1e-4, abs=1e-3)
    assert sorted(d["after"] for d in dots) == pytest.approx(np.sort(projected.answers), rel=1e-4, abs=1e-3)
    table = next(t for t in small_tables(projected) if t.names == ("place",))
    assert [r["before"] for r in table.rows] == pytest.approx(raw.table("place").values.tolist(), rel=1e-6)
    assert [r["answer"] for r in table.rows] == pytest.approx(projected.table("place").values.tolist(), rel=1e-6)
    assert table.error_low == pytest.approx(raw.ask("place == 'x'").standard_error)
    drawn = [s for k, s in charts.items() if k.startswith("table")]
    fields = [{e.get("field") for layer in s["layer"] for e in layer["encoding"].values()} for s in drawn]
    assert all("before" in f for f in fields)
    curve = next(s for k, s in charts.items() if k.startswith("curve"))
    shares = projected.cdf("age", by="sex")["share"]
    assert [r["share"] for r in curve["data"]["values"]] == pytest.approx(shares, abs=1e-6)


def test_single_queries_have_the_projected_interval(raw: sf.Release, projected: sf.Release) -> None:
    shown, _ = single_answers(projected)
    for single in shown:
        answer, before = projected.ask(single.label), raw.ask(single.label)
        assert (single.value, single.low, single.high) == pytest.approx((answer.value, answer.low, answer.high))
        assert (single.before, single.error) == pytest.approx((before.value, before.standard_error))


def test_the_estimate_of_the_error_is_one_in_the_mean() -> None:
    """|raw - truth|^2 >= |raw - projected|^2 + |projected - truth|^2, in every release."""
    truth = WORK.answer(COUNTS)
    for _ in range(5):
        before = released()
        after = before.project(space="answers")
        lost = np.mean((before.answers - truth) ** 2) - np.mean((after.answers - before.answers) ** 2)
        assert np.mean((after.answers - truth) ** 2) <= lost + 1e-6
        left = before.plan.rmse**2 - np.mean((after.answers - before.answers) ** 2)
        assert ("about " + show_figures(np.sqrt(left)) if left > 0 else "far below") in fact(after, "Error now")


@pytest.mark.parametrize(
    ("body", "options", "says", "silent"),
    [
        ("local", {}, "is not decided", "Error now"),
        ("hull", {"space": "measurements"}, "in units of the noise", "Error now"),
        ("hull", {"integer": True}, "then made whole", "Error now"),
        ("exact", {}, "weighted records", "is not decided"),
    ],
)
def test_no_claim_beyond_what_is_proved(body: str, options: dict[str, Any], says: str, silent: str) -> None:
    done = released(sf.marginals(SPACE, order=2), "add-remove").project(body, **options)
    text = Page(render(done)).text
    assert says in text
    assert silent not in text
    assert "measured with noise" in text


def test_a_part_and_a_public_table(raw: sf.Release, projected: sf.Release) -> None:
    part = projection_section(projected["named"])
    assert part is not None
    assert "Error now" not in dict(part.facts)
    assert len(part.most) == 2
    exact = WORK.answer(COUNTS).astype(float)
    page = Page(render(projected, actual=exact))
    ends = projected.intervals()
    inside = ((ends.low <= exact) & (exact <= ends.high)).mean()
    assert f"{inside:.1%} of the {len(exact):,} intervals" in page.text
    assert f"{inside:.3f}" >= f"{((raw.intervals().low <= exact) & (exact <= raw.intervals().high)).mean():.3f}"


def test_the_scale_is_logarithmic_only_beyond_the_noise(projected: sf.Release) -> None:
    found = projection_section(projected)
    assert found is not None
    small = moved_chart(found)
    assert small is not None
    many = [{"name": "a", "before": -20.0, "after": 0.0}, {"name": "b", "before": 5e6, "after": 5e6}]
    wide = moved_chart(type(found)([], [], [], many, 8.0, 0))
    assert wide is not None
    x, narrow = (s["layer"][0]["encoding"]["x"] for s in (wide, small))
    assert x["scale"]["type"] == "symlog"
    assert x["axis"]["values"] == [-10, 0, 10, 100, 1000, 10_000, 100_000, 1_000_000]
    assert narrow["scale"].get("type") is None
    assert moved_chart(type(found)([], [], [], many[:1], 8.0, 0)) is None


def test_hostile_labels_stay_text() -> None:
    domain = sf.Domain({"who": sf.Categories(HOSTILE), "sex": sf.Booleans()})
    text = render(released(sf.marginals(domain, order=2)).project())
    assert len(Page(text).scripts) == 3
    assert "alert(1)</script>" not in text


def test_a_plan_that_projects_says_what_is_before_and_what_after() -> None:
    plan = sf.plan(
        sf.marginals(SPACE, order=2), sf.approx(1, "1e-6"), neighbours="replace-one", mechanism="projection", records=50
    )
    assert plan.forecast is not None
    assert plan.rmse < plan.forecast.raw
    after = sf.release(plan, sf.Histogram(COUNTS.reshape(SPACE.shape)), ledger=None)
    for thing in (plan, after):
        text = Page(render(thing)).text
        assert (
            f"at most {show_figures(plan.rmse)} records once projected, {show_figures(plan.forecast.raw)} before"
            in text
        )
        assert plan.forecast.verdict in text
        assert "Every unprojected answer is" in text
        assert "All of this is about the unprojected answers" in text
        assert "before they were projected" not in text
        assert "predicted weighted" not in text.lower()
