"""The page: it loads nothing, lets nothing run but its own programs, and says every number it promises."""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from typing import Any

import numpy as np
import pytest

from sfumato.curator import Histogram
from sfumato.domain import Bins, Categories, Domain, Integers
from sfumato.errors import NotAnswerable, PlanError
from sfumato.mechanisms.carry_out import carry_out
from sfumato.planner.planning import plan as make_plan
from sfumato.plans.plan import Plan
from sfumato.present import render, write_report
from sfumato.present.answers import asked_distributions, single_answers, small_tables
from sfumato.present.charts import family_chart
from sfumato.present.words import percentage_text, plan_as_json, predicted_families, round_to_error, show_figures
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger import Ledger
from sfumato.releases import Release
from sfumato.workloads import Workload, identity, marginals, predicates, prefix, queries, stack, sums

HOSTILE = (
    "</script><script>alert(1)</script>",
    '=HYPERLINK("http://evil.example")',
    '"><img src=http://evil.example/x onerror=alert(2)>',
    "{{ 7 * 123457 }}",
    "@import url(http://evil.example)",
    "<!-- ",
    "ü × 日本",
)
SPACE = Domain(
    {
        "age": Integers(0, 19),
        "<b>who</b>": Categories(HOSTILE),
        "sex": Categories({"1": "female", "2": "male"}, outside="other"),
        "wage": Bins([0, 10, 25, 100]),
    }
)
COUNTS = np.random.default_rng(5).poisson(3.0, size=SPACE.shape)
WORK = stack(
    tables=marginals(SPACE, upto=2),
    curve=prefix(SPACE, "age", by=["sex"]),
    named=predicates(SPACE, ["age >= 10 and sex == 'female'", "wage < 25"]),
    pay=sums(SPACE, "wage", by=["sex"]),
)


def planned(work: Workload = WORK, budget: Budget | None = None, neighbours: str = "add-remove", **more: Any) -> Plan:
    return make_plan(work, budget or Budget.approx(1, "1e-6"), neighbours=neighbours, **more)


def released(plan: Plan, counts: np.ndarray[Any, Any] = COUNTS, ledger: Ledger | None = None) -> Release:
    return carry_out(plan, Histogram(counts), ledger=ledger, name="winter 2026")


@pytest.fixture(scope="module")
def plan() -> Plan:
    return planned()


@pytest.fixture(scope="module")
def release(plan: Plan) -> Release:
    return released(plan)


class Page(HTMLParser):
    """What a browser would see."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self._inside: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside.append(tag)
            if tag == "script":
                self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if self._inside[-1:] == ["script"]:
            self.scripts[-1] += data
        elif not self._inside:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    @property
    def charts(self) -> dict[str, Any]:
        return json.loads(self.scripts[0])["specs"]


# -- offline and safe -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["plan", "release"])
def test_nothing_is_loaded_from_elsewhere(kind: str, plan: Plan, release: Release) -> None:
    text = render(plan if kind == "plan" else release)
    page = Page(text)
    loading = ("src", "srcset", "data", "poster", "background", "action", "formaction", "ping", "manifest", "style")
    for tag, attributes in page.tags:
        assert tag not in ("link", "iframe", "object", "embed", "img", "base", "form", "video", "audio", "svg"), tag
        assert set(loading) & set(attributes) <= {"style"}, (tag, attributes)
        assert (attributes.get("href") or "#").startswith("#")
        assert re.fullmatch(r"(width:[\d.]+%)?", attributes.get("style") or "")
        assert not [name for name in attributes if name.startswith("on")]
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert len(text.encode()) < 1_200_000


def test_only_the_pages_own_programs_may_run(release: Release) -> None:
    """Mutants: 'unsafe-eval' in the policy; expressions compiled, which the policy then stops in every chart."""
    page = Page(render(release))
    data, *programs = page.scripts
    assert len(programs) == 2
    policy = next(a["content"] or "" for t, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    for program in programs:
        assert base64.b64encode(hashlib.sha256(program.encode()).digest()).decode() in policy
    assert "http" not in policy
    assert "unsafe-inline" not in policy.split(";")[1]
    assert "unsafe-eval" not in policy
    assert "ast: true" in programs[1]
    assert json.loads(data)["specs"]


@pytest.mark.parametrize("kind", ["plan", "release"])
def test_hostile_labels_stay_text(kind: str, plan: Plan, release: Release) -> None:
    text = render(plan if kind == "plan" else release)
    page = Page(text)
    assert len(page.scripts) == 3
    assert "alert(1)</script>" not in text
    assert "<b>who" not in text.replace("\\u003cb", "")
    assert "<b>who</b>" in page.text
    assert "864199" not in text
    assert "</script><script>alert(1)</script>" in page.text
    if kind == "release":
        cells = [row["cell"] for spec in page.charts.values() for row in spec["data"]["values"] if "cell" in row]
        assert HOSTILE[0] in cells
        assert HOSTILE[2] in cells
        assert HOSTILE[6] in cells
        # a formula does not survive being copied into a spreadsheet
        assert HOSTILE[1] not in cells
        assert f"'{HOSTILE[1]}" in cells
        assert f"'{HOSTILE[4]}" in cells


def test_escape_codes_do_not_reach_the_page() -> None:
    space = Domain({"x": Integers(0, 3)})
    work = queries(np.eye(4)[:2] + 1, domain=space, labels=["\x1b[31mred\x1b]0;title\x07", "=1+1"])
    found = released(planned(work), np.arange(4))
    page = Page(render(found))
    assert "\x1b" not in page.text + page.scripts[0]
    assert "\\u001b" not in page.scripts[0]
    assert "[31mred" in page.text
    assert "'=1+1" in page.text
    assert "\x1b" not in json.dumps(plan_as_json(found.plan), ensure_ascii=False)


def test_no_blank_of_a_page_is_shown_as_a_lost_character() -> None:
    """Mutant: blanks that must not break, as within equations and between thousands in French, taken for commands."""
    work = identity(Domain({"a": 3}))
    page = render(make_plan(work, Budget.approx(1, "1e-6"), neighbours="add-remove"))
    assert "ε\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}1" in page
    assert "\N{REPLACEMENT CHARACTER}" not in page


def test_no_domain_text_becomes_part_of_a_chart_but_as_data(release: Release) -> None:
    """Field names, expressions and formats are the page's own; texts of the domain stand only in values and titles."""
    for spec in Page(render(release)).charts.values():

        def walk(node: Any, key: str = "") -> None:
            if isinstance(node, dict):
                for name, value in node.items():
                    if name not in ("data", "title", "sort", "domain"):  # the domain of a scale lists values
                        walk(value, name)
            elif isinstance(node, list):
                for value in node:
                    walk(value, key)
            elif isinstance(node, str):
                assert not any(h in node for h in HOSTILE[:6]), (key, node)
                assert key not in ("expr", "calculate", "labelExpr", "url", "href")

        walk(spec)


# -- what it says ---------------------------------------------------------------------------------------


def test_every_error_that_is_promised_is_there(plan: Plan, release: Release) -> None:
    for thing in (plan, release):
        page = Page(render(thing))
        found = predicted_families(plan)
        assert len(found) == len(plan.workload.blocks)
        worst = sorted((f for f in found if f.unit == "records"), key=lambda f: -f.worst)[:18]
        for f in worst:
            for number in (f.rmse, f.worst, f.margin):
                assert show_figures(number) in page.text
            assert f"{f.smallest:,}" in page.text
        drawn = [r["name"] for k, s in page.charts.items() if k.startswith("errors") for r in s["data"]["values"]]
        assert sorted(drawn) == sorted(f.name for f in found)
        assert len([k for k in page.charts if k.startswith("errors")]) == len(plan.workload.units)
        assert f"{len(plan.workload):,}" in page.text
        assert plan.fingerprint in page.text
        assert show_figures(plan.mean_error) in page.text
        assert show_figures(plan.max_standard_error) in page.text


def test_candidates_the_choice_and_the_bound(plan: Plan) -> None:
    text = Page(render(plan)).text
    for candidate in plan.considered:
        assert candidate.mechanism in text
        if candidate.value is not None:
            assert show_figures(candidate.value, 4) in text
    assert "chosen" in text
    assert plan.lower_bound is not None
    assert show_figures(plan.lower_bound, 4) in text
    assert percentage_text(max(0.0, plan.objective_value / plan.lower_bound - 1)) in text


def test_laplace_noise_has_no_bound_and_the_page_says_so() -> None:
    found = planned(marginals(SPACE, 1), Budget.pure(1))
    text = Page(render(found)).text
    assert found.lower_bound is None
    assert "no lower bound is known" in text
    assert "73.2 %" in text  # e / (1 + e), rounded up


def test_answers_with_intervals(release: Release) -> None:
    page = Page(render(release))
    for query in ("age >= 10 and sex == 'female'", "wage < 25"):
        answer = release.ask(query)
        assert query in page.text
        for value in (answer.value, answer.low, answer.high):
            assert round_to_error(value, answer.standard_error) in page.text
    charts = page.charts
    drawn = {k: s for k, s in charts.items() if k.startswith("table")}
    table = next(t for t in small_tables(release) if t.names == ("sex",))
    exact = release.table("sex")
    assert [r["answer"] for r in table.rows] == pytest.approx(exact.values.tolist(), rel=1e-6)
    assert [r["low"] for r in table.rows] == pytest.approx(exact.low.tolist(), rel=1e-6)
    assert [r["cell"] for r in table.rows] == ["female", "male", "(other)"]
    assert any(s["data"]["values"] == table.rows for s in drawn.values())
    assert len(drawn) <= 30
    curve = next(s for k, s in charts.items() if k.startswith("curve"))
    shares = release.cdf("age", by="sex")
    drawn_shares = [r["share"] for r in curve["data"]["values"] if r["group"] == "male"]
    expected = [r["share"] for r in shares.rows() if r["sex"] == "male"]
    assert drawn_shares == pytest.approx(expected, rel=1e-6)
    assert [r["x"] for r in curve["data"]["values"]][:20] == list(range(20))


def test_where_a_release_stands(tmp_path: Any, plan: Plan) -> None:
    ledger = Ledger.create(tmp_path / "budget.db", total=Budget.zcdp(2))
    found = carry_out(plan, Histogram(COUNTS), ledger=ledger, name="winter 2026")
    text = Page(render(found)).text
    p = found.provenance
    for wanted in (p.name, p.ledger_id, p.anchor, p.created, *(f"{n} {v}" for n, v in p.versions)):
        assert wanted in text
    assert "one-shot" not in text
    assert "one-shot" in Page(render(released(plan))).text


def test_the_example_can_be_asked(release: Release) -> None:
    page = html.unescape(render(release))
    question = re.search(r'release\.ask\((".*?"|\'.*?\')\)', page)
    assert question is not None
    assert release.ask(question[1][1:-1]).standard_error > 0


def test_a_plan_has_no_answers(plan: Plan) -> None:
    page = Page(render(plan))
    assert {k for k in page.charts if not k.startswith("errors")} == {"pairs"}
    assert "No data were read" in page.text
    assert "sfumato release PLAN" in page.text
    assert 'id="answers"' not in render(plan)


def test_a_part_of_a_release(release: Release) -> None:
    page = Page(render(release["named"]))
    assert "winter 2026: named" in page.text
    names = [r["name"] for r in page.charts["errors-0"]["data"]["values"]]
    assert sorted(names) == ["age >= 10 and sex == 'female'", "wage < 25"]


def test_a_page_is_a_function_of_what_it_is_about(tmp_path: Any, release: Release) -> None:
    path = write_report(release, tmp_path / "page.html")
    assert path.read_text(encoding="utf-8") == render(release)
    with pytest.raises(OSError, match="missing"):
        write_report(release, tmp_path / "missing" / "page.html")


@pytest.mark.parametrize("wrong", [None, "release", WORK])
def test_other_things_have_no_page(wrong: Any) -> None:
    with pytest.raises(PlanError, match="a plan or a release"):
        render(wrong)


def test_predicted_and_actual_errors(plan: Plan, release: Release) -> None:
    exact = WORK.answer(COUNTS.reshape(-1)).astype(np.float64)
    page = Page(render(release, actual=exact))
    assert "only because the table is public" in page.text
    rows = page.charts["agreement"]["layer"][1].get("data", page.charts["agreement"]["data"])["values"]
    total = next(r for r in rows if r["name"] == "total")
    assert total["actual"] == pytest.approx(abs(release.answers[0] - exact[0]), rel=1e-5)
    assert total["predicted"] == pytest.approx(plan.standard_errors()[0], rel=1e-5)
    assert "public" not in " ".join(re.findall(r"only because[^.]*", Page(render(release)).text))
    with pytest.raises(NotAnswerable, match="exact answers are needed"):
        render(release, actual=exact[1:])
    with pytest.raises(PlanError, match="no answers yet"):
        render(plan, actual=exact)


# -- other shapes of plans --------------------------------------------------------------------------------


def test_many_families_become_strips_and_the_worst_is_kept(plan: Plan) -> None:
    one = predicted_families(plan)[1]
    many = [replace(one, name=f"f{i}", rmse=1.0 + i, order=1 + i * 3 // 7_000) for i in range(7_000)]
    spec = family_chart(many)
    assert spec is not None
    rows = spec["data"]["values"]
    assert len(rows) <= 3_001
    assert max(r["rmse"] for r in rows) == 7_000.0
    assert {r["strip"] for r in rows} == {"1 attribute", "2 attributes", "3 attributes"}
    assert all(0 <= r["jitter"] <= 1 for r in rows)


def test_every_pair_is_a_square_of_the_map() -> None:
    space = Domain({f"a{i}": i + 2 for i in range(5)})
    found = planned(marginals(space, upto=2))
    rows = Page(render(found)).charts["pairs"]["data"]["values"]
    assert {(r["down"], r["across"]) for r in rows} == set(itertools.combinations(space.names, 2))
    table = found.errors()
    errors = dict(zip(table["attributes"], table["rmse"], strict=True))
    assert all(r["rmse"] == pytest.approx(errors[f"{r['down']}, {r['across']}"], rel=1e-4) for r in rows)
    few = planned(marginals(Domain({"a": 2, "b": 3, "c": 4}), order=2))
    assert "pairs" not in Page(render(few)).charts


def test_families_of_one_name_keep_their_own_lines(plan: Plan) -> None:
    one = predicted_families(plan)[1]
    spec = family_chart([one, one, replace(one, name="other")])
    assert spec is not None
    assert len({r["line"] for r in spec["data"]["values"]}) == 3


def test_exact_families_are_said_and_not_drawn() -> None:
    found = planned(marginals(SPACE, upto=1), neighbours="replace-one")
    page = Page(render(found))
    assert "1 of them needs no noise and is exact" in page.text
    assert "total" not in [r["name"] for r in page.charts["errors-0"]["data"]["values"]]
    assert "number of records is treated as public" in page.text
    assert family_chart([f for f in predicted_families(found) if f.rmse == 0]) is None


def test_long_tables_show_their_largest_cells() -> None:
    space = Domain({"place": Categories([f"p{i}" for i in range(60)])})
    found = released(planned(identity(space, "place")), np.arange(60) * 1000)
    page = Page(render(found))
    cells = [r["cell"] for r in page.charts["table-0"]["data"]["values"]]
    assert set(cells) == {f"p{i}" for i in range(40, 60)}
    assert "The 20 largest of 60 cells" in page.text


def test_many_single_queries_are_cut_and_counted() -> None:
    space = Domain({"x": Integers(0, 29)})
    work = queries(np.eye(30)[:, ::-1] + 1, domain=space) + queries(np.ones((190, 30)), domain=space)
    found = released(planned(work), np.arange(30))
    shown, omitted = single_answers(found)
    assert (len(shown), omitted) == (30, 190)
    assert "190 more" in Page(render(found)).text


def test_a_group_without_records_has_no_curve(release: Release) -> None:
    (curve,) = asked_distributions(release)
    assert {r["group"] for r in curve.rows} <= {"female", "male", "(other)"}
    empty = COUNTS.copy()
    empty[:, :, 2, :] = 0
    (found,) = asked_distributions(released(planned(budget=Budget.approx(1, "1e-6")), empty))
    assert "(other)" not in {r["group"] for r in found.rows}
    assert found.omitted == 1


def test_persons_with_several_rows() -> None:
    found = planned(marginals(SPACE, 1), person="id", rows_per_person=4)
    text = Page(render(found)).text
    assert "(up to 4 of them)" in text
    assert "Counted are at most 4 rows of each person; further rows" in text
    assert "any rows are as likely to be kept as any others" in text


# -- the chart software -----------------------------------------------------------------------------------


def test_the_bundle_is_what_its_readme_says() -> None:
    folder = resources.files("sfumato.present") / "vendor"
    bundle = (folder / "vega-bundle.js").read_text(encoding="utf-8")
    readme = (folder / "README.md").read_text(encoding="utf-8")
    licences = (folder / "LICENSES.txt").read_text(encoding="utf-8")
    assert bundle.startswith(f"/*!\n{licences}*/\n")
    for banned in ("</script", "<!--", "sourceMappingURL"):
        assert banned not in bundle.removeprefix(f"/*!\n{licences}*/\n")
    versions = re.findall(r"\| (vega\S*) \| ([\d.]+) \| ([0-9a-f]{64})", readme)
    assert [name for name, *_ in versions] == ["vega", "vega-lite", "vega-embed"]
    for name, version, _ in versions:
        assert f'"{version}"' in bundle
        assert f"{name} {version}" in licences
    assert licences.count("Redistribution and use in source and binary forms") >= 3
    assert "registry" not in readme
