"""`make docs` builds: no warning, no broken link, nothing loaded from another host, everything searched."""

from __future__ import annotations

import inspect
import json
import re
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
    found = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert any("Fieller" in entry["text"] for entry in found["docs"])
    gallery = (site / "gallery" / "1-analyst.html").read_text(encoding="utf-8")
    assert 'class="vega"' in gallery


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("notation.html", "min ‖R‖_F ‖M‖_{1→2} / √k over R M = F"),
        ("notation.html", "mean width, a unit vector, E ‖G‖₂"),
        ("notation.html", "ℓ*(K) · λ"),
        ("sparse.html", "√s · √(v + ‖D‖²/W)"),
        ("decisions/0012-projection.html", "by <e, P - F h>, so"),
    ],
)
def test_formulas_in_plain_text_keep_their_signs(site: Path, page: str, text: str) -> None:
    """Mutants: signs of formulas that Markdown takes for emphasis, tags or lists of attributes."""
    shown = re.sub(r"<[^>]+>", "", (site / page).read_text(encoding="utf-8"))
    assert text in re.sub(r"\s+", " ", shown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


def test_formulas_are_set(site: Path, browser: Browser) -> None:
    """Every formula of every page is shown by KaTeX, without an error, and within the width of a phone's page."""
    pages = [p for p in sorted(site.rglob("*.html")) if 'class="arithmatex"' in p.read_text(encoding="utf-8")]
    assert {"projection.html", "marginals.html", "pure.html", "errata.html"} <= {p.name for p in pages}
    for page in pages:
        browser.go(page.as_uri())
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
        ("E max_j <F_j, Z>, F_j", "E max_j &lt;F_j, Z>, F_j"),
        ("*mean width* M* is, *Gaussian width* ℓ* is", "*mean width* M\\* is, *Gaussian width* ℓ\\* is"),
        ("‖R‖_F ‖M‖_{1→2}", "‖R‖\\_F ‖M‖\\_{1→2}"),
        ("`<a, b>` and $x_1 < y*$", "`<a, b>` and $x_1 < y*$"),
        ("* one\n* **two** <br> a*b", "* one\n* **two** <br> a\\*b"),
        ("```\na*b <c, d>\n```", "```\na*b <c, d>\n```"),
    ],
)
def test_signs_that_markdown_would_take(given: str, kept: str) -> None:
    assert DOCS.keep_signs(given) == kept
