"""Builds the site of documentation: guide, API reference, gallery, decisions, with search.

It loads nothing from another host.

python scripts/docs.py             # into docs-site/
python scripts/docs.py --pages DIR # only the pages that MkDocs is given

The pages of docs/ stay as they are read in the repository. Beside them come the README as the first page, one page for
every public name from its docstring, and the notebooks of examples/ as they were executed.
"""

from __future__ import annotations

import html
import importlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs-site"
CALLED = {"pure": "Budget.pure", "approx": "Budget.approx", "zcdp": "Budget.zcdp", "gdp": "Budget.gdp"}
"""Public names that are methods of others."""
GROUPS = {
    "Declaring": [
        "Domain",
        "Categories",
        "Integers",
        "Bins",
        "Dates",
        "Booleans",
        "Hierarchy",
        "Measure",
        "Keys",
        "Spec",
        "read_spec",
    ],
    "Asking": [
        *(
            "Workload",
            "marginals",
            "predicates",
            "prefix",
            "ranges",
            "windows",
            "identity",
            "total",
            "sums",
            "means",
            "moments",
            "gaps",
            "hierarchy",
        ),
        *("queries", "parities", "conjunctions", "disjunctions", "periods", "stack", "sql"),
    ],
    "Budgets and the ledger": ["Budget", "pure", "approx", "zcdp", "gdp", "Neighbours", "Ledger"],
    "Planning": [
        *(
            "plan",
            "Plan",
            "mechanisms",
            "budget_for",
            "records_for",
            "choose_rows",
            "share_budget",
            "simulate",
            "preview",
            "plan_profile",
            "factorization",
            "Factorization",
            "width",
        ),
    ],
    "Releasing": [
        *("Source", "rows", "per_person", "joined", "release", "Release", "Table", "Answer", "combine", "difference"),
        *("project", "Projection", "describe"),
    ],
    "Opening and loading": ["open", "load", "Session", "Histogram", "KeyCounts"],
    "Refusals": ["errors", "SfumatoError", "BudgetExceeded", "NotAnswerable"],
}
MODULES = ("errors", "mechanisms")
GALLERY = sorted((ROOT / "examples").glob("*.ipynb"))
COURSE = sorted((ROOT / "examples" / "course").glob("*.ipynb"))
START = ("start", "idea", "tutorial", "studio")
GUIDE = {
    "What do I want to know?": ("how-to-choose", "how-to", "sql"),
    "How large may epsilon be?": ("epsilon",),
    "What is in the table?": ("describe", "data", "money", "persons", "hospital"),
    "Where is it?": ("engines", "spark"),
    "Are there places inside places?": ("census",),
    "Is the budget small, with many pairs?": ("adaptive",),
    "Do questions come later?": ("sessions", "sparse"),
    "Does nobody hold the table?": ("local",),
    "May I publish it?": ("privacy", "publishing", "office", "format", "checking"),
}
"""The guide by question: pages of docs/ under what their readers ask."""
MECHANISMS = (
    *("histogram", "laplace", "gaussian", "tree", "matrix-mechanism", "factorization", "approximate", "marginals"),
    *("projection", "pmw", "mwem", "boosting", "sparse-project", "sparse-mw", "streams"),
)
"""One page each, in the order in which they build on each other."""
THEORY = ("theory", "prefix-constant", "who-wins-where", "sliders", "sources", "notation", "errata", "references")
PROJECT = ("architecture", "peers")
MOVED = {"ordered": "factorization", "pure": "laplace", "rounds": "mwem"}
"""Pages that were merged into others: their addresses lead there."""
UNSEARCHED = ("CHANGELOG.md", "decisions/")
"""What explains how things came to be: found from the pages that name it, not by the search."""


def target(name: str) -> str:
    """Where a public name is defined."""
    sfumato = importlib.import_module("sfumato")
    if name in MODULES:
        return f"sfumato.{name}"
    if name in CALLED:
        return f"sfumato.privacy.budget.{CALLED[name]}"
    found = getattr(sfumato, name)
    found = getattr(found, "__wrapped__", found)
    return f"{found.__module__}.{found.__qualname__}"


def page_name(name: str) -> str:
    """Files that no system takes for one another: Plan and plan."""
    return f"{name}-class" if name[:1].isupper() else name


def api_pages() -> dict[str, str]:
    """The pages of the reference: every public name has one."""
    pages: dict[str, str] = {}
    listed = ["# Reference", "", "Every public name, with an example that is run by the tests."]
    for title, names in GROUPS.items():
        listed += ["", f"## {title}", ""]
        for name in names:
            listed.append(f"- [`sf.{name}`]({page_name(name)}.md)")
            options = f"{{heading: sf.{name}, show_root_heading: true}}"
            title = ""
            if name in MODULES:
                # what is public by itself is told on its own page alone
                elsewhere = [n for names in GROUPS.values() for n in names if target(n).startswith(f"sfumato.{name}.")]
                here = [n for n in importlib.import_module(f"sfumato.{name}").__all__ if n not in elsewhere]
                options = f"{{members: {json.dumps(here)}}}"
                links = ", ".join(f"[`sf.{n}`]({page_name(n)}.md)" for n in elsewhere)
                title = f"# sf.{name}\n\n" + f"On pages of their own: {links}.\n\n" * bool(elsewhere)
            pages[f"api/{page_name(name)}.md"] = f"{title}::: {target(name)}\n    options: {options}\n"
    pages["api/index.md"] = "\n".join(listed) + "\n"
    return pages


def notebook_page(path: Path) -> str:
    """A notebook as it was executed."""
    found: list[str] = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            found.append(source)
            continue
        found.append(f"```python\n{source}\n```")
        found += [text for output in cell["outputs"] if (text := _output(output))]
    text = re.sub(r"\]\((\.\./)+docs/", "](../", "\n\n".join(found)).replace("](course/", "](../course/")
    return text.replace(".ipynb)", ".md)") + "\n"


def sliders_chart() -> dict[str, Any]:
    """The chart of the page with sliders, made by a script beside this one."""
    spec = importlib.util.spec_from_file_location("sliders", Path(__file__).with_name("sliders.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.chart()


def vega_place(spec: Any) -> str:
    """Where the page's script draws a chart."""
    text = html.escape(json.dumps(spec, separators=(",", ":")), quote=True)
    return f'<div class="vega" data-spec="{text}"></div>'


def notebook_entries(folder: str, paths: list[Path]) -> list[dict[str, str]]:
    """Lines of the navigation, by the names of the files."""
    return [{p.stem[2:].replace("-", " ").capitalize(): f"{folder}/{p.stem}.md"} for p in paths]


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    for kind, value in data.items():
        if "vegalite" in kind:
            return vega_place(value)
    if "text/html" in data:
        return '<div class="output">' + "".join(data["text/html"]).replace("\n", " ") + "</div>"
    text = "".join(output.get("text", data.get("text/plain", "")))
    return f'<pre class="output">{html.escape(text.rstrip())}</pre>' if text.strip() else ""


_FENCED = r"^\s*(```|~~~).*?^\s*\1|`[^`\n]+`|\$\$.*?\$\$|\$[^$\n]+\$|<!--.*?-->"
_CODE = re.compile(rf"{_FENCED}|^(?: {{4,}}|\t).*?$", re.DOTALL | re.MULTILINE)
_CODE_OF_DOCSTRINGS = re.compile(_FENCED, re.DOTALL | re.MULTILINE)  # where arguments are indented
_TAGS = "a|b|br|code|div|em|hr|i|img|kbd|p|pre|span|sub|sup|table|td|th|tr"
_TAG = re.compile(rf"<(?!/?(?:{_TAGS})\b[^<>]*>|https?:|mailto:)")


def keep_signs(text: str, *, docstring: bool = False) -> str:
    """A page whose formulas keep the signs that Markdown takes for its own: `<x, y>`, `M* is ℓ*`; 2^d is set high.

    Code stays as it is, and so does what is typeset ($...$).
    """

    def signs(text: str) -> str:
        text = set_indices(_TAG.sub("&lt;", text))
        text = re.sub(r"(?<=[^\s\w(*|\\])_", r"\\_", text)
        return "\n\n".join(map(_keep_stars, text.split("\n\n")))

    return _outside_code(text, signs, _CODE_OF_DOCSTRINGS if docstring else _CODE)


def set_indices(text: str) -> str:
    """Prose whose exponents and indices are set: 2^60, e^(mu^2), (E p)^(1/2), ‖M‖_{1→2}, x_i; "mu^2" is typed so."""
    text = re.sub(r'"(\w+)\^(\w+)"', r'<code>"\1&#94;\2"</code>', text)
    base = r"(?<=[\w)\]|‖>'])"
    short = r"[-−]?(?:\d[\d.,]*(?<=\d)|\.\d+|[¼½+]|[^\W\d_](?![^\W\d_])|epsilon\b|eps\b|mu\b|power\b|shift\b)"
    text = re.sub(rf"{base}\^({short})", r"<sup>\1</sup>", text)
    text = re.sub(rf"{base}\^(?:\(((?:[^()\n]|\([^()\n]*\))+)\)|\{{([^{{}}\n]+)\}})", r"<sup>\1\2</sup>", text)
    text = re.sub(r"(?<=[^\s\\])_\{([^{}\n]+)\}|(?<=[\w‖)])_\(([^()\n]+)\)", r"<sub>\1\2</sub>", text)
    return re.sub(
        r"(?:(?<=[‖)*])|(?<=\b\w)|(?<=\bmax)|(?<=\bmin)|(?<=\bsum))_([^\W_])(?![\w≤])", r"<sub>\1</sub>", text
    )


def link_keys(text: str, page: str) -> str:
    """A page whose keys of sources, [LHR10] or [LHR10, ENU20 section 2], lead to the page that lists them."""
    key = r"(?:[A-Z][A-Za-z]*\d\d|Notes|SmithUllman|Tutunov|Nikolov|Brown)\b"
    listed = re.compile(rf"\[({key}(?:[^\[\]`]*))\](?!\(|:)")

    def linked(found: re.Match[str]) -> str:
        return "[" + re.sub(key, lambda one: f"[{one[0]}]({page})", found[1]) + "]"

    def each(prose: str) -> str:
        return "\n".join(line if line.startswith("#") else listed.sub(linked, line) for line in prose.split("\n"))

    return _outside_code(text, each)


def _outside_code(text: str, change: Callable[[str], str], code_of: re.Pattern[str] = _CODE) -> str:
    """A page that is changed but for its code and what is typeset."""
    code: list[str] = []

    def aside(found: re.Match[str]) -> str:
        code.append(found[0])
        return f"\0{len(code) - 1}\0"

    return re.sub(r"\0(\d+)\0", lambda found: code[int(found[1])], change(code_of.sub(aside, text)))


def _keep_stars(paragraph: str) -> str:
    """A paragraph in which stars that open or close nothing are signs."""
    opened: list[int] = []
    signs: list[re.Match[str]] = []
    for found in re.finditer(r"(?<![\\*])\*{1,3}(?!\*)", paragraph):
        before, after = paragraph[: found.start()][-1:], paragraph[found.end() :][:1]
        if opened and before.strip() and opened[-1] == len(found[0]):
            opened.pop()
        elif not before.strip(" \n(—|\"'·") and after.strip():
            opened.append(len(found[0]))
        elif before.strip():
            signs.append(found)
    for found in reversed(signs):
        paragraph = paragraph[: found.start()] + "\\*" * len(found[0]) + paragraph[found.end() :]
    return paragraph


def assemble(folder: Path) -> None:
    """Write what MkDocs builds from: pages, pictures, and its configuration beside them."""
    pages = folder / "pages"
    shutil.copytree(ROOT / "docs", pages)
    for part, paths in {"gallery": GALLERY, "course": COURSE}.items():
        for path in paths:
            place = pages / part / f"{path.stem}.md"
            place.parent.mkdir(exist_ok=True)
            place.write_text(notebook_page(path), encoding="utf-8")
    for name, text in api_pages().items():
        place = pages / name
        place.parent.mkdir(exist_ok=True)
        place.write_text(text, encoding="utf-8")
    for name in ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY"):
        text = (ROOT / f"{name}.md").read_text(encoding="utf-8")
        text = re.sub(r"\]\(docs/", "](", text).replace("](examples/)", "](gallery/1-analyst.md)")
        text = text.replace("](examples/course/", "](course/").replace(".ipynb)", ".md)")
        text = text.replace("](examples/", "](gallery/").replace("](README.md", "](index.md")
        (pages / ("index.md" if name == "README" else f"{name}.md")).write_text(text, encoding="utf-8")
    (pages / "decisions" / "README.md").rename(pages / "decisions" / "index.md")
    for place in pages.rglob("*.md"):
        up = "../" * (len(place.relative_to(pages).parts) - 1)
        text = place.read_text(encoding="utf-8")
        # what lies beside docs/ in the repository lies in the site's own folder
        text = re.sub(r"\]\((\.\./)+(README|CONTRIBUTING|CHANGELOG|SECURITY)\.md", rf"]({up}\2.md", text)
        text = re.sub(r"\]\(\.\./examples/course/([\w-]+)\.ipynb\)", r"](course/\1.md)", text)
        text = text.replace("README.md)", "index.md)").replace("(decisions/)", "(decisions/index.md)")
        text = re.sub(r"\[([^\]]*)\]\((?:\.\./)*(?:bench|tests|src|scripts|changelog\.d|LICENSE)[^)]*\)", r"\1", text)
        # what code prints: one word names the language of a block here
        text = re.sub(r"^```output( noisy)?$", "```text", text, flags=re.MULTILINE)
        if place.parent.name not in ("gallery", "course"):  # whose output is HTML
            text = link_keys(keep_signs(text), f"{up}references.md")
        if place.relative_to(pages).as_posix().startswith(UNSEARCHED):
            text = f"---\nsearch:\n  exclude: true\n---\n\n{text}"
        place.write_text(text, encoding="utf-8")
    for old, new in MOVED.items():
        (pages / f"{old}.html").write_text(
            f'<meta http-equiv="refresh" content="0; url={new}.html">\n', encoding="utf-8"
        )
    sliders = pages / "sliders.md"
    drawn = vega_place(sliders_chart())
    sliders.write_text(sliders.read_text(encoding="utf-8").replace("<!-- sliders -->", drawn), encoding="utf-8")
    assets = pages / "assets"
    assets.mkdir()
    shutil.copyfile(ROOT / "src/sfumato/present/vendor/vega-bundle.js", assets / "vega-bundle.js")
    shutil.copytree(ROOT / "scripts/vendor/katex", assets / "katex", ignore=shutil.ignore_patterns("README.md"))
    shutil.copyfile(ROOT / "scripts/vendor/iframe-worker/iframe-worker.js", assets / "iframe-worker.js")
    (assets / "draw.js").write_text(_DRAW, encoding="utf-8")
    (assets / "style.css").write_text(_STYLE, encoding="utf-8")
    shutil.copyfile(__file__, folder / "docs_script.py")
    (folder / "fence.py").write_text(_FENCE, encoding="utf-8")
    (folder / "mkdocs.yml").write_text(json.dumps(configuration(), indent=1), encoding="utf-8")  # JSON is YAML


def configuration() -> dict[str, Any]:
    title = {p.stem: p.read_text(encoding="utf-8").splitlines()[0].lstrip("# ") for p in (ROOT / "docs").glob("*.md")}

    def toggle(icon: str, name: str) -> dict[str, str]:
        return {"icon": f"material/brightness-{icon}", "name": name}

    reference = [{g: [{f"sf.{n}": f"api/{page_name(n)}.md"} for n in names]} for g, names in GROUPS.items()]
    return {
        "site_name": "sfumato",
        "docs_dir": "pages",
        "use_directory_urls": False,
        "theme": {
            "name": "material",
            "font": False,  # of the reader's system: nothing is loaded from another host
            "features": [
                "navigation.tabs",
                "navigation.footer",
                "search.highlight",
                "content.code.copy",
            ],
            # as the reader's system is, also when that changes, or as the reader chooses; with two of these the theme
            # would keep to what the system was at the first visit
            "palette": [
                {"media": "(prefers-color-scheme)", "toggle": toggle("auto", "As the system; to light")},
                {"media": "(prefers-color-scheme: light)", "scheme": "default", "primary": "white"}
                | {"toggle": toggle("7", "Light; to dark")},
                {"media": "(prefers-color-scheme: dark)", "scheme": "slate", "primary": "black"}
                | {"toggle": toggle("4", "Dark; as the system")},
            ],
        },
        "plugins": [
            "search",
            "offline",  # the index as a script, and beside it what runs the search: for pages that are opened as files
            {
                "mkdocstrings": {
                    "handlers": {
                        "python": {
                            "paths": [str(ROOT / "src")],
                            "options": {
                                "extensions": ["fence.py"],
                                "show_source": False,
                                "show_root_heading": False,
                                "show_root_toc_entry": False,
                                "heading_level": 1,
                                "line_length": 80,
                                "members_order": "source",
                                "separate_signature": True,
                                "show_signature_annotations": True,
                                "docstring_style": "google",
                                "docstring_section_style": "list",
                                "docstring_options": {
                                    "returns_multiple_items": False,
                                    # tests/unit/test_walk.py looks at parameters, and knows those of enums, too
                                    "warn_unknown_params": False,
                                    "warn_missing_types": False,
                                },
                                "inherited_members": True,
                                "filters": ["!^_"],
                            },
                        }
                    }
                }
            },
        ],
        "markdown_extensions": [
            "tables",
            "pymdownx.superfences",
            {"pymdownx.arithmatex": {"generic": True}},
            {"toc": {"permalink": True}},
        ],
        "extra": {"polyfills": ["assets/iframe-worker.js"]},
        "extra_css": ["assets/katex/katex.min.css", "assets/style.css"],
        "extra_javascript": ["assets/vega-bundle.js", "assets/katex/katex.min.js", "assets/draw.js"],
        "validation": {"links": {"not_found": "warn", "unrecognized_links": "warn", "anchors": "info"}},
        "nav": [
            {"sfumato": "index.md"},
            {"Start": [{title[n]: f"{n}.md"} for n in START]},
            {"Guide": [{asked: [{title[n]: f"{n}.md"} for n in names]} for asked, names in GUIDE.items()]},
            {"Mechanisms": ["mechanisms.md", *({title[n]: f"{n}.md"} for n in MECHANISMS)]},
            {"Gallery": notebook_entries("gallery", GALLERY)},
            {"Course": notebook_entries("course", COURSE)},
            {"Theory": [{title[n]: f"{n}.md"} for n in THEORY]},
            {"Reference": [{"All names": "api/index.md"}, *reference]},
            {
                "Project": [
                    *({title[n]: f"{n}.md"} for n in PROJECT),
                    *(
                        {"Decisions": "decisions/index.md"},
                        {"Changes": "CHANGELOG.md"},
                        "CONTRIBUTING.md",
                        "SECURITY.md",
                    ),
                ]
            },
        ],
    }


# examples of docstrings are code, not quotations within quotations; keys of sources lead to the page that lists them
_FENCE = """
import re
import griffe
from docs_script import keep_signs


class Fence(griffe.Extension):
    def on_attribute_instance(self, *, attr, **_):
        # a default is what is given, not how it is kept
        if getattr(attr.value, "canonical_name", "") == "deferred_field":
            attr.value = attr.value.arguments[0]

    def on_object(self, *, obj, **_):
        if obj.is_function:
            obj.overloads = None  # the whole signature names every argument
        if obj.docstring:
            lines, inside = [], False
            for line in obj.docstring.value.split("\\n"):
                starts = line.lstrip().startswith(">>> ")
                if starts and not inside:
                    lines += ["", "```pycon"]
                    inside = True
                elif inside and not line.strip():
                    lines += ["```", ""]
                    inside = False
                if not inside:
                    line = re.sub(r"\\[([A-Z][A-Za-z]*\\d\\d)\\]", r"[[\\1]](../references.md)", line)
                lines.append(line)
            obj.docstring.value = keep_signs("\\n".join(lines + ["```"] * inside), docstring=True)
"""
_DRAW = """
for (const place of document.querySelectorAll(".vega")) {
  vegaEmbed(place, JSON.parse(place.dataset.spec), { actions: false, renderer: "svg", ast: true });
}
for (const place of document.querySelectorAll(".arithmatex")) {
  const shown = place.textContent.startsWith("\\\\[");
  katex.render(place.textContent.slice(2, -2), place, { displayMode: shown });
}
// for keyboards and screen readers: what scrolls can be reached, what is hidden cannot, and bars of buttons have names
function named() {
  const scrolls = "pre > code, .output, .arithmatex, .md-typeset__scrollwrap, .vega, p:has(> img)";
  document.querySelectorAll(scrolls).forEach((place) => {
    if (place.scrollWidth > place.clientWidth) place.tabIndex = 0;
  });
  document.querySelectorAll("[aria-hidden=true] input, input.md-option").forEach((place) => { place.tabIndex = -1; });
  document.querySelectorAll(".md-search").forEach((place) => { place.ariaLabel = "Search"; });
  document.querySelectorAll(".md-code__nav").forEach((bar, i) => bar.setAttribute("aria-label", `Code ${i + 1}`));
}
// long names of code are broken after an underscore, and sentences in a table have a width to be read in
for (const code of document.querySelectorAll("td code")) code.innerHTML = code.innerHTML.replace(/_(?=\\w)/g, "_<wbr>");
for (const cell of document.querySelectorAll("td")) {
  const long = cell.textContent.length;
  if (long > 24) cell.style.minWidth = long > 80 ? "14rem" : "7rem";
}
for (const head of document.querySelectorAll("thead")) if (!head.textContent.trim()) head.remove();
for (const corner of document.querySelectorAll("th:empty")) corner.replaceWith(document.createElement("td"));
named();
new MutationObserver(named).observe(document.body, { childList: true, subtree: true });
addEventListener("resize", named);
"""
_STYLE = """
/* sliders: one below the other; what they stand at is said above the chart */
.vega-bind label { display: flex; gap: 0.5rem; }
.vega-bind-name { flex: 0 0 11rem; }
.vega-bind input + span { display: none; }
/* code of 120 characters a line fits in the column of a desk's screen */
.md-grid { max-width: 82rem; }
.md-typeset pre > code { font-size: 0.62rem; }
.output { overflow-x: auto; border-left: 2px solid var(--md-default-fg-color--lighter); padding-left: 0.8rem; }
.output { font-size: 0.7rem; }
.output table { font-size: inherit; }
/* on a phone a picture keeps a size at which it can be read, and scrolls */
@media (max-width: 40em) {
  .md-typeset p:has(> img) { overflow-x: auto; }
  .md-typeset p > img { max-width: none; width: 32rem; }
  .md-typeset .vega { overflow-x: auto; max-width: 100%; }
  .md-typeset .vega svg { max-width: 24rem; }
}
.vega svg { max-width: 100%; height: auto; background: white; }
/* links are told by more than their colour; code and the last line by enough of it */
.md-typeset :is(p, li, td) > a:not(.headerlink) { text-decoration: underline; }
/* where a table scrolls its rows keep their names; a table that hides what is beyond it would hold them itself */
.md-typeset .md-typeset__table table:not([class]) { overflow: visible; }
.md-typeset table:not([class]) :is(td, th):first-child {
  position: sticky; left: 0; z-index: 1; background-color: var(--md-default-bg-color);
}
[data-md-color-scheme="default"] { --md-code-hl-comment-color: #595959; --md-code-hl-generic-color: #4d4d4d; }
[data-md-color-scheme="default"] { --md-code-hl-operator-color: #4d4d4d; --md-code-hl-variable-color: #4d4d4d; }
[data-md-color-scheme="slate"] { --md-code-hl-comment-color: #b4b8c4; --md-code-hl-generic-color: #c4c8d4; }
[data-md-color-scheme="slate"] { --md-code-hl-operator-color: #c4c8d4; --md-code-hl-variable-color: #c4c8d4; }
[data-md-color-scheme="slate"] { --md-code-hl-number-color: #f08a7c; --md-code-hl-constant-color: #a99cf0; }
[data-md-color-scheme="slate"] .md-typeset :is(code a, a code) { color: #8fb3f5; }
/* names of code are broken where there is no other way: beside them a table has room, or scrolls */
.md-typeset td code { word-break: normal; overflow-wrap: break-word; }
.md-copyright, .md-copyright a { color: #e8e8e8; }
"""


def build(out: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        assemble(Path(place))
        # (with --quiet nothing is counted as a warning, and --strict lets everything pass)
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
        hidden = {"NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
        done = subprocess.run(command, cwd=place, env=os.environ | hidden, capture_output=True, text=True, check=False)
    if done.returncode:
        told = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith(("INFO", "  -"))]
        raise SystemExit("\n".join(["the site is not built:", *told[-20:]]))
    loads = re.compile(r"<(script|link|img)[^>]+(src|href)=.?https?://")
    foreign = [p for p in out.rglob("*.html") if loads.search(p.read_text(encoding="utf-8"))]
    if foreign:
        raise SystemExit(f"pages that load from another host: {foreign[:3]}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--pages"]:
        assemble(Path(sys.argv[2]))
    else:
        build(OUT)
        print(f"Written to {OUT / 'index.html'}")
