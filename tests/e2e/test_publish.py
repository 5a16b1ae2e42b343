"""`sfumato publish`, and its site as a reader's browser shows it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import sfumato as sf
from sfumato.cli import app
from sfumato.errors import InvalidInput, PlanError
from sfumato.present import write_report
from sfumato.publishing import publish
from sfumato.publishing.site import POLICY
from sfumato.releases import Release
from support.browser import Browser
from support.served import served

SHEET = 673  # pixels of an A4 page between margins of 16 mm
HOSTILE = ("<img src=x onerror=window.ran=1>", "</script><script>window.ran=2</script>", "שלום עולם", "x" * 250)


def released() -> Release:
    group = sf.Categories(HOSTILE, outside="other")
    domain = sf.Domain({"age": sf.Integers(0, 19), "<b>group</b>": group, "sex": sf.Categories(["f", "m"])})
    work = sf.stack(
        main=sf.marginals(domain, upto=2),
        old=sf.predicates(domain, ["age >= 15"]),
    )
    plan = sf.plan(work, sf.gdp(1), neighbours="add-remove", mechanism="marginals")
    counts = np.random.default_rng(5).poisson(60, domain.shape)
    return sf.release(plan, sf.Histogram(counts), ledger=None, name="<i>hostile")


def test_the_command_writes_a_site_and_no_other_folder_is_touched(tmp_path: Path) -> None:
    release = released()
    release.save(tmp_path / "release")
    run = CliRunner().invoke(app, ["publish", str(tmp_path / "release"), "-o", str(tmp_path / "site")])
    assert run.exit_code == 0, run.output
    page = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert POLICY.replace("'", "&#39;") in page
    assert "<i>hostile" not in page
    assert not re.search(r"(src|href)=.(https?:)?//", page)
    # the same again finds its own site, as after a kill at the very end; another release does not
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "site").iterdir()}
    again = CliRunner().invoke(app, ["publish", str(tmp_path / "release"), "-o", str(tmp_path / "site")])
    assert again.exit_code == 0
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "site").iterdir()} == before
    with pytest.raises(InvalidInput, match="not an empty folder"):
        publish(released(), tmp_path / "site")
    with pytest.raises(PlanError, match="errors are known"):
        publish("no release", tmp_path / "other")  # type: ignore[arg-type]
    assert not (tmp_path / "other").exists()


class Page:
    """A reader's window, asked by expressions of its own language."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser

    def open(self, url: str, width: int, scheme: str) -> None:
        # so low that the first chart, which loads what draws it, begins well below the window
        self.browser.look(width, scheme, height=500)
        self.browser.go(url)
        self.until("document.documentElement.dataset.ready")

    def run(self, expression: str) -> Any:
        return self.browser.run(f"return ({expression});")

    def until(self, condition: str) -> None:
        self.browser.until(lambda: self.run(condition), 60)


def test_a_reader_s_browser_shows_what_python_says(tmp_path: Path, browser: Browser) -> None:
    """Nothing of a label runs, nothing foreign is asked for, charts are drawn, and the calculator says Python's number.

    Mutants: labels set as HTML; a policy that lets no table load.
    """
    release = released()
    site = publish(release, tmp_path / "site")
    page = Page(browser)
    browser.forget()
    with served(site) as (url, asked):
        page.open(f"{url}/index.html", 1280, "light")
        assert sum(size for _, size in asked) <= 300_000
        assert not any("charts.js" in file for file, _ in asked)
        for section in ("distributions", "tables", "calculator"):
            page.run(f"document.getElementById('{section}').scrollIntoView({{behavior: 'instant'}})")
            page.until(
                {
                    "distributions": "document.querySelector('#curve-chart svg')",
                    "tables": "document.querySelector('#table-rows tr') && document.querySelector('#table-chart svg')",
                    "calculator": "document.querySelector('#calc-result .big')",
                }[section]
            )
        _crosses(page, release)
        _ticks(page, "age", "sex")
        cells = release.table("age", "sex").values.size
        page.until(f"document.querySelectorAll('#table-rows tbody tr').length === {min(50, cells)}")
        _calculates(page, release)
        assert page.run("window.ran") is None
        assert all(r.startswith((url, "data:", "blob:")) for r in browser.requests())
        assert browser.troubles() == []
        assert page.run("document.getElementById('trouble').hidden")
        assert browser.faults() == []
        browser.paper(SHEET)
        assert browser.overflow() <= 0
        browser.shot("site-print")
        page.open(f"{url}/index.html", 390, "dark")
        assert browser.overflow() <= 0
        assert browser.faults() == []
        captions = "[...document.querySelectorAll('.scroll caption')].map(c => c.getBoundingClientRect().right)"
        assert page.run(f"Math.max(...{captions})") <= 390
        browser.shot("site-390-dark")


def test_a_report_is_for_everybody(tmp_path: Path, browser: Browser) -> None:
    """No rule of axe is broken, on a phone and wide; on paper nothing is wider than the sheet."""
    place = write_report(released(), tmp_path / "report.html")
    browser.forget()
    browser.go(place.as_uri())
    browser.until(lambda: browser.all(".chart svg"))
    for width, scheme in ((1280, "light"), (390, "dark")):
        browser.look(width, scheme)
        assert browser.overflow() <= 0
        assert browser.faults() == []
        browser.shot(f"report-{width}-{scheme}")
    browser.paper(SHEET)
    assert browser.overflow() <= 0
    browser.shot("report-print")
    browser.look(1280, "light")


def _ticks(page: Page, *wanted: str) -> None:
    """Those attributes alone are chosen for the table, one click after the other."""
    boxes = "[...document.querySelectorAll('#table-names input')]"
    inside = f"{list(wanted)!r}.includes(b.value)"
    page.run(f"{boxes}.filter(b => b.checked && !{inside}).forEach(b => b.click())")
    page.run(f"{boxes}.filter(b => !b.checked && {inside}).forEach(b => b.click())")


def _crosses(page: Page, release: Release) -> None:
    """A cross-table and its per cents have Python's numbers, with the same decimals; then the list is back.

    Mutants: per cents of the column for those of the row; a total without one of its cells.
    """
    _ticks(page, "age", "sex")
    rows = "[...document.querySelectorAll('#table-rows tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    show = "(k => { k.value = %r; k.dispatchEvent(new Event('input')); })(document.getElementById('table-as'))"
    down, across = page.run("[...document.querySelectorAll('#table-names input:checked')].map(b => b.value)")
    for mode, per in (("count", None), ("row", "row"), ("column", "column"), ("all", "all")):
        made = release.table("age", "sex").crosstab(down, across, per=per or "row")
        expected = [list(r.values())[1:] for r in made.grid(per=per is not None).rows()]
        page.run(show % mode)
        page.until(f"{rows}.length === {len(expected)} && {rows}[0].length === {len(expected[0]) + 1}")
        wanted = json.dumps(json.dumps(expected, separators=(",", ":"), ensure_ascii=False))
        page.until(f"JSON.stringify({rows}.map(r => r.slice(1))) === {wanted}")
    page.until("document.querySelector('#table-chart svg')")
    page.run(
        "(() => { window.kept = []; URL.createObjectURL = (b) => { kept.push(b); return 'data:,'; }; return 1; })()"
    )
    page.run("document.getElementById('chart-save').click()")
    page.until("kept.length")
    page.run("kept[0].text().then(t => { window.svg = t; })")
    page.until("window.svg")
    picture = page.run("window.svg")
    assert picture.startswith("<svg ")
    assert "Source: " in picture
    assert "var(--" not in picture
    page.run(show % "list")


def _calculates(page: Page, release: Release) -> None:
    """The ratio of the men of the two youngest ages to the women of all."""
    page.run(
        "(k => { k.value = 'ratio'; k.dispatchEvent(new Event('change')); })(document.getElementById('calc-kind'))"
    )
    for letter, choices in (("A", {"age": [0, 1], "sex": [1]}), ("B", {"sex": [0]})):
        term = f"document.querySelectorAll('#calc-terms .term')['AB'.indexOf('{letter}')]"
        while page.run(f"{term}.querySelectorAll('.condition').length") > 0:
            page.run(f"{term}.querySelector('.condition button').click()")
        for i, (name, cells) in enumerate(choices.items()):
            page.run(f"[...{term}.querySelectorAll('button')].pop().click()")
            which = f"{term}.querySelectorAll('.condition')[{i}]"
            change = f"s => {{ s.value = {name!r}; s.dispatchEvent(new Event('change')); }}"
            page.run(f"({change})({which}.querySelector('select'))")
            select = f"{which}.querySelector('select[multiple]')"
            chosen = f"for (const o of s.options) o.selected = {cells}.includes(Number(o.value));"
            page.run(f"(s => {{ {chosen} s.dispatchEvent(new Event('change')); }})({select})")
    found = release.ask("age <= 1 and sex == 'm'") / release.ask("sex == 'f'")
    assert found.standard_error is not None
    decimals = max(0, 1 - int(np.floor(np.log10(found.standard_error))))
    page.until(f"document.querySelector('#calc-result .big')?.textContent === '{found.value:.{decimals}f}'")
    text = page.run("document.getElementById('calc-result').textContent")
    assert f"{found.low:.{decimals}f} to {found.high:.{decimals}f}" in text
