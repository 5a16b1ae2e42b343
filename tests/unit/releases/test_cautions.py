"""A declaration that does not fit its table is said to, from what was measured, where it can be told from noise."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.present.page import render
from sfumato.releases.warnings import other_shares, percent_text

DOMAIN = sf.Domain(
    {
        "sex": sf.Categories(["female", "male"], outside="other", missing="other"),
        "age": sf.Integers(0, 9, outside="clamp", missing="other"),
        "pay": sf.Bins([0, 10, 20, 50], outside="other", missing="drop"),
    }
)


def counted(
    other: tuple[float, float, float] = (0.0, 0.0, 0.0), last: float = 0.1, records: int = 20_000
) -> sf.Histogram:
    """Independent attributes with these shares in (other), and this share of ages in the last declared cell."""
    sex = np.array([(1 - other[0]) / 2, (1 - other[0]) / 2, other[0]])
    age = np.append(np.full(9, (1 - other[1] - last) / 9), [last, other[1]])
    pay = np.append(np.full(3, (1 - other[2]) / 3), other[2])
    return sf.Histogram(np.rint(records * np.einsum("i,j,k->ijk", sex, age, pay)).astype(int))


def released(
    source: object, work: sf.Workload | None = None, budget: sf.Budget | None = None, **more: object
) -> sf.Release:
    work = sf.marginals(DOMAIN, upto=2) if work is None else work
    plan = sf.plan(work, sf.gdp(1) if budget is None else budget, neighbours="add-remove")
    return sf.release(plan, source, ledger=None, **more)  # type: ignore[arg-type]


def test_nothing_is_said_of_a_declaration_that_fits() -> None:
    """Mutant: every share that was measured is a reason."""
    release = released(counted())
    assert release.cautions == ()
    assert "caution" not in str(release)
    assert "in (other)" in str(release)
    assert "Does the declaration fit" not in render(release)


def test_wrong_labels_are_said_first_everywhere(tmp_path: Path) -> None:
    """Mutants: the exact share in place of the noisy one has none here to look at; no caution for shares above 1."""
    release = released(counted((1.0, 0.0, 0.3)), out=tmp_path / "out")
    sex, pay = release.cautions
    assert (sex.attribute, sex.cell, pay.attribute) == ("sex", "(other)", "pay")
    assert sex.text == "sex: 100 % of records are in (other); do the labels match, or are so many missing?"
    assert pay.text == "pay: 30 % of records are in (other); is the range 0 to 50 right?"
    assert sex.share <= 1
    assert pay.share == pytest.approx(0.3, abs=6 * pay.standard_error)
    first, second, *_ = str(release).splitlines()
    assert first.startswith("Release")
    assert second == f"  caution    {sex.text}"
    facts = json.loads((tmp_path / "out/release.json").read_text(encoding="utf-8"))
    assert [c["attribute"] for c in facts["cautions"]] == ["sex", "pay"]
    page = render(release)
    assert page.index(sex.text) < page.index('id="protects"')
    assert sf.load(tmp_path / "out").cautions == release.cautions
    assert [c.attribute for c in release.project().cautions] == ["sex", "pay"]


def test_numbers_that_are_missing_are_not_called_a_wrong_range() -> None:
    (age,) = released(counted((0.0, 0.5, 0.0))).cautions
    assert age.text == "age: 50 % of records are in (other): they are missing, or no number"


def test_a_heap_at_a_clamped_end_is_said_only_where_it_is_nearly_all() -> None:
    """Mutants: no heap is ever said; a heap of 95 %, as zeros in an honest table have, is."""
    (age,) = released(counted(last=0.999)).cautions
    assert "100 % of records are in the last cell, 9, which takes in all that is above it" in age.text
    assert "range 0 to 9 right?" in age.text
    assert released(counted(last=0.95)).cautions == ()


def test_noise_is_no_reason() -> None:
    """200 attributes of a table so small that a quarter of the noisy shares are above 5 %. Mutant: no standard errors
    asked."""
    domain = sf.Domain({f"a{i}": sf.Categories(["x"], outside="other", missing="other") for i in range(200)})
    plan = sf.plan(sf.marginals(domain, upto=1), sf.gdp(1), neighbours="add-remove")
    rows = {n: ["x"] * 100 for n in domain.names}
    release = sf.release(plan, pa.table(rows), ledger=None)
    shares = [release.table(n).values[1] / release.table().values for n in domain.names]
    assert sum(s >= 0.05 for s in shares) > 10
    assert release.table().values > 5 * release.table().standard_errors
    assert release.cautions == ()


@pytest.mark.parametrize("budget", [sf.gdp("0.02"), sf.approx(1, "1e-6"), sf.gdp(20), sf.pure("0.05"), sf.pure(10)])
def test_false_alarms_are_rare_at_both_ends_of_the_budget(budget: sf.Budget) -> None:
    """200 attributes and nobody in any (other), 100,000 records: an alarm once in 3.5 million attributes, so in these
    cases once in 6,000. Mutant: 3 standard errors."""
    domain = sf.Domain({f"a{i}": sf.Categories(["x"], outside="other", missing="other") for i in range(200)})
    work = sf.marginals(domain, sets=[(), *((n,) for n in domain.names)])
    if isinstance(budget, type(sf.pure(1))):
        work = sf.marginals(sf.Domain({"a0": domain["a0"]}), upto=1)
    plan = sf.plan(work, budget, neighbours="add-remove")
    rows = {n: ["x"] * 100_000 for n in plan.workload.domain.names}
    source = pa.table(rows)
    for _ in range(1 if len(rows) > 1 else 3):
        release = sf.release(plan, source, ledger=None)
        assert release.cautions == () or release.cautions[0].attribute is None
        if release.table().values > 10 * release.table().standard_errors:
            assert len(release.plan.workload.domain.names) == len(other_shares(release))


@pytest.mark.parametrize(("errors", "said"), [(7.0, False), (9.0, False), (12.0, True)])
def test_one_draw_of_laplace_noise_is_told_from_nothing_as_rarely(errors: float, said: bool) -> None:
    """A draw is beyond 7 standard errors once in 40,000. Mutant: 5 of them, as of Gaussian noise."""
    domain = sf.Domain({"sex": sf.Categories(["x"], outside="other", missing="other")})
    plan = sf.plan(sf.identity(domain), sf.pure(1), neighbours="add-remove", mechanism="laplace")
    release = sf.release(plan, sf.Histogram([100_000, 0]), ledger=None)
    (values,) = (np.array(v) for v in release.measurement.values)
    table, scale = release.table("sex"), float(values[0]) / float(release.table("sex").values[0])
    assert table.standard_errors is not None
    values[1] = round(errors * float(table.standard_errors[1]) * scale)
    shifted = replace(release, measurement=replace(release.measurement, values=(values,)))
    assert float(shifted.table("sex").values[1]) == pytest.approx(errors * float(table.standard_errors[1]), abs=0.51)
    assert bool(shifted.cautions) == said


@pytest.mark.parametrize(("share", "records"), [(0.04, 10_000), (0.01, 20_000), (0.001, 300_000)])
def test_a_small_share_is_said_where_noise_can_tell_it(share: float, records: int) -> None:
    """At (1, 1e-6), where its count is more than 8 standard errors. Mutant: nothing is said below 5 %."""
    release = released(counted((share, 0.0, 0.0), records=records), budget=sf.approx(1, "1e-6"))
    (sex,) = release.cautions
    assert sex.attribute == "sex"
    assert sex.share == pytest.approx(share, abs=5 * sex.standard_error)
    assert f"{percent_text(sex.share)} of records are in (other)" in sex.text
    assert share > 8 * sex.standard_error


def test_every_share_is_listed_said_or_not(tmp_path: Path) -> None:
    """Mutant: those alone that can be told from noise."""
    release = released(counted((0.04, 0.0, 0.001)), budget=sf.gdp("0.05"), out=tmp_path / "out")
    shares = {s.attribute: s for s in other_shares(release)}
    assert set(shares) == {"sex", "age", "pay"}
    assert all(s.standard_error > 0 and 0 <= s.share <= 1 for s in shares.values())
    line = next(x for x in str(release).splitlines() if x.startswith("  in (other)"))
    assert all(f"{n} {percent_text(s.share)} ± {percent_text(2 * s.standard_error)}" in line for n, s in shares.items())
    facts = json.loads((tmp_path / "out/release.json").read_text(encoding="utf-8"))
    assert {s["attribute"] for s in facts["other"]} == set(shares)
    assert "<dt>in (other)</dt>" in render(release)


def test_only_what_was_measured_is_told() -> None:
    release = released(counted((1.0, 0.0, 1.0)), sf.marginals(DOMAIN, sets=[("sex", "age")]))
    assert [c.attribute for c in release.cautions] == ["sex"]
    assert released(counted((1.0, 0.0, 0.0)), sf.predicates(DOMAIN, ["sex == 'female'"])).cautions == ()


def test_a_table_that_was_dropped_whole() -> None:
    domain = sf.Domain({"sex": sf.Categories(["female", "male"], outside="drop", missing="drop")})
    plan = sf.plan(sf.marginals(domain, upto=1), sf.gdp(1), neighbours="add-remove")
    (caution,) = sf.release(plan, sf.Histogram([0, 0]), ledger=None).cautions
    assert "cannot be told from none" in caution.text
    assert caution.text.endswith("rows are dropped by what sex declares: do the labels match?")
    assert caution.attribute is None


def test_a_level_tells_of_codes_that_match_nothing() -> None:
    """Only states were measured; counties that are not declared are in the states' (other) too."""
    place = sf.Hierarchy(
        {"06": ["06001", "06003"], "41": ["41001"]}, ["state", "county"], outside="other", missing="drop"
    )
    domain = sf.Domain({"place": place})
    plan = sf.plan(sf.marginals(domain, sets=[("state",)]), sf.gdp(1), neighbours="add-remove")
    (caution,) = sf.release(plan, sf.Histogram([10, 0, 0, 5000]), ledger=None).cautions
    assert caution.text == "place: 100 % of records are in (other); do the labels match?"


def test_few_are_listed_and_all_are_kept() -> None:
    domain = sf.Domain({f"a{i}": sf.Categories(["x"], outside="other", missing="drop") for i in range(12)})
    plan = sf.plan(sf.marginals(domain, upto=1), sf.gdp(5), neighbours="add-remove")
    release = sf.release(plan, pa.table({n: ["y"] * 500 for n in domain.names}), ledger=None)
    assert len(release.cautions) == 12
    assert max(c.share for c in release.cautions) <= 1  # half of the noisy shares are above
    lines = [line for line in str(release).splitlines() if "caution" in line]
    assert len(lines) == 9
    assert lines[-1] == "  caution    and 4 more attributes like these"
