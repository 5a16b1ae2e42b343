"""Cross-tables: totals, per cents with the covariance of their two answers, marks, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import InvalidInput, NotAnswerable, PlanError
from sfumato.present.crosstab import print_chart, save_chart
from sfumato.releases.publication import Publication
from sfumato.releases.reliability import read_reliability

DOMAIN = sf.Domain(
    {"a": sf.Integers(0, 3, outside="other"), "b": sf.Categories(["f", "m"]), "c": sf.Categories(["n", "e", "s"])}
)
COUNTS = np.random.default_rng(4).poisson(300, DOMAIN.shape)


def released(work: sf.Workload | None = None, budget: sf.Budget | None = None, **options: str) -> sf.Release:
    asked = sf.marginals(DOMAIN, upto=3) if work is None else work
    plan = sf.plan(asked, budget or sf.gdp(1), **({"neighbours": "add-remove"} | options))  # type: ignore[arg-type]
    made = sf.release(plan, sf.Histogram(COUNTS), ledger=None)
    assert isinstance(made, sf.Release)
    return made


def quoted(release: sf.Release, **cell: str) -> sf.Answer:
    """The answer of a cell, or of a total."""
    said = " and ".join(f"{n} == {t if n == 'a' else repr(t)}" for n, t in cell.items())
    return release.ask(said) if said else release.ask("c == 'n' or c == 'e' or c == 's'")


@pytest.mark.parametrize("budget", [sf.gdp(1), sf.pure(1), sf.zcdp("0.5")])
def test_per_cents_are_the_shares_that_a_release_tells(budget: sf.Budget) -> None:
    """Mutants: the covariance left out, or taken with another total; per cents of the column for those of the row."""
    release = released(budget=budget)
    table = release.table("a", "b")
    by_row, by_column = (table.crosstab("a", "b", per=per).shares for per in ("row", "column"))
    assert by_row is not None
    assert by_column is not None
    for found, attribute, within, turned in ((by_row, "b", "a", False), (by_column, "a", "b", True)):
        told = release.share(attribute, within=within)
        for name, array in zip(("share", "standard_error", "low", "high"), found, strict=True):
            inner = array[:-1, :-1].T if turned else array[:-1, :-1]
            expected = np.array([math.nan if v is None else v for v in told[name]]).reshape(inner.shape)
            np.testing.assert_allclose(inner, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("asked", ["tables", "finest"])
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_per_cents_are_ratios_of_answers(asked: str, relation: str) -> None:
    """Of a table in three attributes, and of its totals. Mutant: the total of all taken for that of a row."""
    work = {
        "tables": lambda: sf.marginals(DOMAIN, upto=3),
        "finest": lambda: sf.identity(DOMAIN),
    }[asked]()
    release = released(work, neighbours=relation)
    table = release.table("a", "c", "b")
    last = table.values.shape[0]
    cells = {
        (0, 1): ({"a": "0", "c": "n", "b": "m"}, {"row": {"a": "0"}, "column": {"c": "n", "b": "m"}, "all": {}}),
        (2, 6): ({"a": "2"}, {"column": {}, "all": {}}),  # the total of a row: of itself it is all
        (last, 3): ({"c": "e", "b": "m"}, {"row": {}, "all": {}}),
    }
    for (i, j), (top, bases) in cells.items():
        for per, base in bases.items():
            shares = table.crosstab("a", ["c", "b"], per=per).shares
            assert shares is not None
            ratio = quoted(release, **top) / quoted(release, **base)
            expected = [ratio.value, ratio.standard_error, max(ratio.low, 0), min(ratio.high, 1)]
            np.testing.assert_allclose([float(x[i, j]) for x in shares], expected, rtol=1e-9)


def test_totals_that_are_measured_apart_err_independently() -> None:
    """Mutant: the covariance of answers from two pieces not 0."""
    release = released(sf.identity(DOMAIN) + sf.prefix(DOMAIN, "a"), sf.pure(1), mechanism="tree")
    shares = release.table("a", "b").crosstab("a", "b").shares
    assert shares is not None
    together = release.covariance(("a", "b"), ("a",)).reshape(5, 2, 5)
    assert (together == 0).all()
    cells, totals = release.table("a", "b"), release.table("a")
    share = cells.values / totals.values[:, None]
    variance = cells.standard_errors**2 + (share * totals.standard_errors[:, None]) ** 2
    np.testing.assert_allclose(shares[1][:-1, :-1], np.sqrt(variance) / totals.values[:, None], rtol=1e-9)


def test_totals_are_the_smaller_tables() -> None:
    release = released()
    found = release.table("a", "b").crosstab("a", per=None)
    value, error, low, _ = found.numbers
    np.testing.assert_allclose(value[:-1, -1], release.table("a").values)
    np.testing.assert_allclose(error[-1, :-1], release.table("b").standard_errors)
    np.testing.assert_allclose(low[-1, -1], release.table().low)
    assert found.shares is None
    with pytest.raises(PlanError, match="no per cents"):
        found.grid(per=True)


def test_a_projected_table_has_its_own_values_and_the_errors_from_before() -> None:
    release = released(budget=sf.gdp("0.05")).project()
    assert isinstance(release, sf.Release)
    found = release.table("a", "b").crosstab("a", "b", flags={"*": 1e-9})
    value, error, low, high = found.numbers
    assert (value >= 0).all()
    np.testing.assert_allclose(error[:-1, :-1], release.raw.table("a", "b").standard_errors)
    assert ((low <= value) & (value <= high)).all()
    assert "before projection" in found.explain()
    told = release.table("a", "b").frame({"*": 1e-9})
    assert set(told["flag"]) == {"*"}


def test_a_model_has_per_cents_without_errors() -> None:
    plan = sf.plan(sf.marginals(DOMAIN, 2), sf.zcdp(1), neighbours="add-remove", mechanism="mwem", records=8_000)
    made = sf.release(plan, sf.Histogram(COUNTS), ledger=None)
    found = made.table("a", "b").crosstab("a", "b")
    assert found.shares is not None
    np.testing.assert_allclose(found.numbers[0][:-1, :-1].sum(), found.numbers[0][-1, -1])
    np.testing.assert_allclose(found.shares[0][:, -1], 1.0)
    assert np.isnan(found.numbers[1]).all()
    assert "no error" in found.explain()


def test_rows_are_sorted_and_the_first_kept() -> None:
    table = released().table("c", "b")
    found = table.crosstab("c", "b", sort="m", top=2)
    column = table.values[:, 1]
    order = np.argsort(-column, kind="stable")[:2]
    assert [labels[0] for labels in found.row_labels] == [table.labels[0][i] for i in order]
    np.testing.assert_allclose(found.numbers[0][:2, 1], column[order])
    np.testing.assert_allclose(found.numbers[0][2, -1], released_total(table))
    assert "1 rows" in found.explain()


def released_total(table: sf.Table) -> float:
    assert table.release is not None
    return float(table.release.table().values)


@pytest.mark.parametrize(
    ("rows", "columns", "options", "words"),
    [
        ("a", "a", {}, "share out the attributes"),
        ("a", ["b", "z"], {}, "share out the attributes"),
        (["a", "b"], None, {}, "at least one"),
        ("a", "b", {"per": "cent"}, "'row', the 'column'"),
        ("a", "b", {"sort": "q"}, "sorted by 'total' or by a column"),
        ("a", "b", {"top": 0}, "from 1 on"),
        ("a", "b", {"top": True}, "from 1 on"),
    ],
)
def test_what_is_no_cross_table_is_refused(
    rows: object, columns: object, options: dict[str, object], words: str
) -> None:
    with pytest.raises(PlanError, match=words):
        released().table("a", "b").crosstab(rows, columns, **options)  # type: ignore[arg-type]


def test_totals_that_are_lost_in_noise_have_no_per_cents() -> None:
    domain = sf.Domain({"a": 2, "b": 2})
    plan = sf.plan(sf.identity(domain), sf.gdp(1), neighbours="add-remove")
    found = sf.release(plan, sf.Histogram([[0, 0], [900, 800]]), ledger=None).table("a", "b").crosstab("a", "b")
    assert found.shares is not None
    assert np.isnan(found.shares[0][0]).all()
    assert np.isfinite(found.shares[0][1:]).all()
    assert "no per cents" in found.explain()


def test_biased_answers_have_no_per_cents() -> None:
    domain = sf.Domain({"a": 40, "b": 2})
    plan = sf.plan(sf.identity(domain), sf.gdp("0.01"), neighbours="add-remove", mechanism="approximate", records=100)
    release = sf.release(plan, sf.Histogram(np.ones((40, 2), dtype=int)), ledger=None)
    assert release.plan.bias_records is not None
    with pytest.raises(NotAnswerable, match="bias"):
        release.table("a", "b").crosstab("a", "b")
    assert release.table("a", "b").crosstab("a", "b", per=None).shares is None


def test_labels_called_like_a_head_or_a_total_keep_their_columns() -> None:
    domain = sf.Domain({"a": 2, "b": sf.Categories(["a", "Total", "answer"])})
    plan = sf.plan(sf.identity(domain), sf.gdp(1), neighbours="add-remove")
    found = sf.release(plan, sf.Histogram(np.full((2, 3), 90)), ledger=None).table("a", "b").crosstab("a", "b")
    assert len(found.grid().columns) == 5
    assert len(found.frame()) == 12


# -- marks -----------------------------------------------------------------------------------------------


def test_flags_follow_the_relative_standard_error() -> None:
    """Mutants: a threshold itself flagged; an answer below 0 taken by its size; flags of the wrong order."""
    rule = read_reliability({"suppress": 0.5, "*": 0.15, "**": 0.3})
    values = [100.0, 100.0, 100.0, 100.0, -100.0, 0.0, 5.0]
    errors = [15.0, 15.1, 30.1, 50.1, 1.0, 1.0, math.nan]
    assert rule.flags(values, errors) == ["", "*", "**", "suppress", "suppress", "suppress", "suppress"]
    assert rule.flags([0.0, 7.0], [0.0, 0.0]) == ["", ""]
    assert "* above 15 %" in rule.statement()


@pytest.mark.parametrize(
    "flags",
    [
        {"*": 0},
        {"*": -1},
        {"*": math.inf},
        {"": 0.1},
        {"*": "x"},
        {"*": True},
        {"*": 0.1, "+": 0.1},
        {"suppress": 0.1, "*": 0.5},
        {"a very long mark": 0.1},
        {"\x1b": 0.1},
        3,
    ],
)
def test_flags_that_are_none_are_refused(flags: object) -> None:
    with pytest.raises(InvalidInput):
        read_reliability(flags)  # type: ignore[arg-type]


def test_a_left_out_cell_keeps_its_number_in_the_frame() -> None:
    """Flags are never in place of the numbers. Mutant: None for what is flagged."""
    found = released().table("a", "b").crosstab("a", "b", flags={"suppress": 1e-9})
    assert set(found.grid()["f"]) == {"··"}
    frame = found.frame()
    assert None not in frame["answer"]
    assert set(frame["flag"]) == {"suppress"}


# -- charts ------------------------------------------------------------------------------------------------


def test_charts_of_one_to_three_attributes_are_written_without_a_browser(tmp_path: Path) -> None:
    release = released()
    told = Publication(title="Ages", institution="Office", labels={"a": "Age"}, units={"a": "years"})
    for names in (("c",), ("a", "b"), ("a", "b", "c")):
        drawn = print_chart(release, names, told)
        place = save_chart(drawn, tmp_path / f"{len(names)}.svg")
        text = place.read_text(encoding="utf-8")
        assert "Ages" in text
        assert "Source: Office, Ages" in text
    assert "Age (years)" in text
    assert save_chart(drawn, tmp_path / "x.png").read_bytes()[:4] == b"\x89PNG"
    assert save_chart(drawn, tmp_path / "x.pdf").read_bytes()[:4] == b"%PDF"
    shares = print_chart(release, ("a", "b"), told, per="row").to_dict()
    assert "Per cent of the row" in str(shares)
    for name, words in (("x.pdf", "exists"), ("x.gif", "written as")):
        with pytest.raises(InvalidInput, match=words):
            save_chart(drawn, tmp_path / name)
    with pytest.raises(PlanError, match="two or three"):
        print_chart(release, ("c",), told, per="row")


# -- a reader's words -----------------------------------------------------------------------------------------


def test_labels_of_a_publication_stand_in_the_grid_alone() -> None:
    told = Publication(labels={"b": {"de": "Geschlecht"}}, categories={"b": {"f": "women"}})
    found = released().table("a", "b").crosstab("b", "a").labelled(told)
    assert found.grid()["Geschlecht"][:2] == ["women", "m"]
    assert found.frame()["b"][0] == "f"
