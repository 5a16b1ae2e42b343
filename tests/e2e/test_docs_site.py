"""`make docs` builds: no warning, no broken link, nothing loaded from another host, everything searched."""

from __future__ import annotations

import html
import inspect
import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

import sfumato as sf
from support.browser import Browser
from support.scripts import script

DOCS = script("scripts/docs.py")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it. MkDocs is strict: a link or a name that is not there ends the build."""
    for package in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(package)
    place = tmp_path_factory.mktemp("docs") / "site"
    DOCS.build(place)
    return place


def test_the_site_builds_and_is_whole(site: Path) -> None:
    for name in sf.__all__:
        page = (site / "api" / f"{DOCS.page_name(name)}.html").read_text(encoding="utf-8")
        assert "doc-contents" in page, name
        value = getattr(sf, name)
        assert inspect.isclass(value) or inspect.ismodule(value) or 'class="doc-signature' in page, name
    signature = re.sub(r"<[^>]+>", "", (site / "api" / "plan.html").read_text(encoding="utf-8"))
    assert signature.count("plan(\n") == 1
    assert "neighbours: Relation | Neighbours | None = None," in signature
    assert "deferred_field" not in (site / "api" / "Plan-class.html").read_text(encoding="utf-8")
    found = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert any("Fieller" in entry["text"] for entry in found["docs"])
    gallery = (site / "gallery" / "1-analyst.html").read_text(encoding="utf-8")
    assert 'class="vega"' in gallery


def _leaves(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    assert isinstance(parts, Iterable)
    return [leaf for part in parts for leaf in _leaves(part)]


def test_a_link_that_leads_nowhere_ends_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: --quiet, which keeps warnings from being counted."""
    for package in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(package)
    whole = DOCS.assemble

    def assemble(folder: Path) -> None:
        whole(folder)
        for name in ("api", "gallery", "decisions"):  # to be quick
            shutil.rmtree(folder / "pages" / name)
        for page in (folder / "pages").glob("*.md"):
            page.write_text("# A page\n", encoding="utf-8")
        (folder / "pages" / "tree.md").write_text("# A tree\n\n[a leaf](mechanisms/leaf.md)\n", encoding="utf-8")
        settings = json.loads((folder / "mkdocs.yml").read_text(encoding="utf-8"))
        del settings["nav"]
        (folder / "mkdocs.yml").write_text(json.dumps(settings), encoding="utf-8")

    monkeypatch.setattr(DOCS, "assemble", assemble)
    with pytest.raises(SystemExit, match=r"mechanisms/leaf\.md"):
        DOCS.build(tmp_path / "site")


def test_what_code_prints_is_a_block(site: Path) -> None:
    """Mutant: a block that is named by two words, which were shown in a line with all that was printed."""
    for name in ("start", "pmw", "histogram"):
        shown = (site / f"{name}.html").read_text(encoding="utf-8")
        assert "output noisy" not in shown
        page = (Path(DOCS.ROOT) / "docs" / f"{name}.md").read_text(encoding="utf-8")
        assert shown.count("<pre>") == len(re.findall("^```", page, re.MULTILINE)) // 2


def test_every_page_has_one_place_in_the_order(site: Path) -> None:
    """Mutants: a page that is written and that no way leads to; one that stands in two places."""
    nav = DOCS.configuration()["nav"]
    assert [next(iter(part)) for part in nav] == [
        *("sfumato", "Start", "Guide", "Mechanisms", "Gallery", "Course", "Theory", "Reference", "Project"),
    ]
    leaves = _leaves(nav)
    assert len(leaves) == len(set(leaves))
    pages = {p.name for p in (Path(DOCS.ROOT) / "docs").glob("*.md")}
    assert pages <= set(leaves)
    for leaf in leaves:
        assert (site / leaf.replace(".md", ".html")).exists(), leaf


def test_decisions_and_changes_are_not_searched(site: Path) -> None:
    """They explain how things came to be; whoever searches wants to know how things are."""
    found = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    places = [entry["location"] for entry in found]
    assert not [p for p in places if p.startswith(("decisions/", "CHANGELOG"))]
    assert any(p.startswith("theory.html") for p in places)
    assert (site / "decisions" / "0012-projection.html").exists()


def test_decisions_are_listed_by_subject(site: Path) -> None:
    """The index of the repository is the page. Mutant: a list by number."""
    index = (site / "decisions" / "index.html").read_text(encoding="utf-8")
    assert "Projection and denoising</h2>" in re.sub(r"<a class=\"headerlink.*?</a>", "", index)
    assert '<a href="0012-projection.html">12</a>' in index
    assert not (site / "decisions" / "README.html").exists()


def test_pages_that_are_opened_as_files_are_searched(site: Path, browser: Browser) -> None:
    """Mutants: no index as a script; a worker, which a browser refuses to a file; the search without a name."""
    browser.look(1280, "light")
    browser.go((site / "start.html").as_uri())
    browser.run("document.querySelector('.md-search__input').focus()")
    browser.type(".md-search__input", "Fieller")
    browser.until(lambda: "matching" in browser.text(".md-search-result__meta"))
    assert browser.all(".md-search-result__link")
    assert browser.errors() == []


def test_addresses_of_merged_pages_lead_on(site: Path) -> None:
    for old, new in DOCS.MOVED.items():
        assert f"url={new}.html" in (site / f"{old}.html").read_text(encoding="utf-8")
        assert (site / f"{new}.html").exists()


def test_keys_of_sources_lead_to_the_references(site: Path) -> None:
    assert 'href="references.html">HKU26</a>' in (site / "theory.html").read_text(encoding="utf-8")
    decision = (site / "decisions" / "0018-courses.html").read_text(encoding="utf-8")
    assert re.search(r'href="../references.html">[A-Z]\w+</a>', decision)


@pytest.mark.parametrize(
    ("given", "linked"),
    [
        ("[LHR10]", "[[LHR10](r.md)]"),
        ("see [ENU20, LHR10 section 2].", "see [[ENU20](r.md), [LHR10](r.md) section 2]."),
        ("[SmithUllman] and `[LHR10]`", "[[SmithUllman](r.md)] and `[LHR10]`"),
        ("[LHR10](paper.md) and [other]", "[LHR10](paper.md) and [other]"),
    ],
)
def test_keys_are_linked(given: str, linked: str) -> None:
    assert DOCS.link_keys(given, "r.md") == linked


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_pictures_and_theorems_fit_their_page(site: Path, browser: Browser, width: int, scheme: str) -> None:
    """On a phone as on a desk nothing is wider than the page, and every picture is there."""
    browser.look(width, scheme)
    for name in ("idea", "mechanisms", "theory", *DOCS.MECHANISMS):
        browser.go((site / f"{name}.html").as_uri())
        browser.until(lambda: browser.run("return [...document.images].every((i) => i.complete)"))
        lost = browser.run("return [...document.images].filter((i) => !i.naturalWidth).map((i) => i.src)")
        assert lost == [], name
        assert browser.overflow() <= 0, name


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_pages_can_be_used_by_everybody(site: Path, browser: Browser, width: int, scheme: str) -> None:
    """No fault by the rules of axe, on a page of every kind.

    Mutants: a link that is told by its colour alone; pale comments; a chart's marks without names; faint links in code.
    """
    browser.look(width, scheme)
    pages = ("index", "idea", "theory", "mechanisms", "tree", "streams", "sliders", "peers", "sources", "CONTRIBUTING")
    for name in (*pages, "gallery/2-data-scientist", "api/index", "api/Plan-class", "decisions/index"):
        browser.go((site / f"{name}.html").as_uri())
        assert browser.faults() == [], name


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("notation.html", "min ‖R‖^F ‖M‖^1→2 / √k over R M = F"),
        ("notation.html", "mean width, a unit vector, E ‖G‖₂"),
        ("notation.html", "ℓ*(K) · λ"),
        ("sparse.html", "√s · √(v + ‖D‖²/W)"),
        ("decisions/0012-projection.html", "by <e, P - F h>, so"),
    ],
)
def test_formulas_in_plain_text_keep_their_signs(site: Path, page: str, text: str) -> None:
    """Mutants: signs of formulas that Markdown takes for emphasis, tags or lists of attributes."""
    shown = re.sub(r"<su[bp]>", "^", (site / page).read_text(encoding="utf-8"))
    shown = re.sub(r"<[^>]+>", "", shown)
    assert text in re.sub(r"\s+", " ", shown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


def test_no_page_shows_a_raw_sign(site: Path) -> None:
    """Of a formula, outside of code and of what KaTeX sets.

    Mutants: exponents of prose that stay as they are typed; `$` that no blank follows.
    """
    aside = re.compile(
        r"<(head|pre|code|script|style|svg|nav|footer|h\d)\b.*?</\1>|<(span|div) class=\"arithmatex\">.*?</\2>"
        r"|<div class=\"(?:doc doc-signature|doc doc-heading|output).*?</div>",
        re.DOTALL,
    )
    raw = re.compile(r"\w\^|\\[a-zA-Z(\[{]|\S_\{|(?<!\w)\w_\w(?!\w)|\$[^\s\d]|&lt;/?[a-z]+&gt;")
    for page in site.rglob("*.html"):
        text = html.unescape(
            re.sub(r"<[^>]+>", " ", aside.sub(" ", page.read_text(encoding="utf-8"))).replace("&lt;", "<")
        )
        found = [text[max(m.start() - 40, 0) : m.end() + 20] for m in raw.finditer(text)]
        assert found == [], page.relative_to(site)


def test_formulas_are_set(site: Path, browser: Browser) -> None:
    """Every formula of every page is shown by KaTeX, without an error, and within the width of a phone's page."""
    browser.forget()  # what axe asked for on other pages
    browser.look(390, "light")
    pages = [p for p in sorted(site.rglob("*.html")) if 'class="arithmatex"' in p.read_text(encoding="utf-8")]
    assert {"projection.html", "marginals.html", "laplace.html", "errata.html"} <= {p.name for p in pages}
    for page in pages:
        browser.go(page.as_uri())
        assert browser.troubles() == [], page.name
        assert browser.beyond() == [], page.name
        assert browser.overflow() <= 0, page.name
        places = browser.all(".arithmatex")
        assert places
        found = browser.run(
            """return [...document.querySelectorAll(".arithmatex")].map((place) =>
                 [place.querySelectorAll(".katex").length, place.querySelectorAll(".katex-error").length])"""
        )
        assert all(one == [1, 0] for one in found), (page.name, found)
        shown = browser.text("article")
        assert "\\(" not in shown, page.name
        assert "\\[" not in shown, page.name


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("E max_j <F_j, Z>, F_j", "E max<sub>j</sub> &lt;F<sub>j</sub>, Z>, F<sub>j</sub>"),
        ("2^60, e^(mu^2), d^{k/2}", "2<sup>60</sup>, e<sup>mu<sup>2</sup></sup>, d<sup>k/2</sup>"),
        ("`2^60`, read_spec, c_(i-j), [^1]", "`2^60`, read_spec, c<sub>i-j</sub>, [^1]"),
        ("*mean width* M* is, *Gaussian width* ℓ* is", "*mean width* M\\* is, *Gaussian width* ℓ\\* is"),
        ("‖R‖_F ‖M‖_{1→2}", "‖R‖<sub>F</sub> ‖M‖<sub>1→2</sub>"),
        ("`<a, b>` and $x_1 < y*$", "`<a, b>` and $x_1 < y*$"),
        ("* one\n* **two** <br> a*b", "* one\n* **two** <br> a\\*b"),
        ("```\na*b <c, d>\n```", "```\na*b <c, d>\n```"),
    ],
)
def test_signs_that_markdown_would_take(given: str, kept: str) -> None:
    assert DOCS.keep_signs(given) == kept
