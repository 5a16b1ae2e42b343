"""A declaration that does not fit its table is said to, from what was measured, where it can be told from noise."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.report.page import render

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
    """Mutant: no share is small enough to pass over."""
    release = released(counted((0.04, 0.04, 0.04)))
    assert release.cautions == ()
    assert "caution" not in str(release)
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
