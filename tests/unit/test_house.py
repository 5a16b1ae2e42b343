"""Habits of the house: the changelog, what CI and the hooks run, the citation."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

import sfumato as sf
from support.scripts import script

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "sfumato"
NEXT = "a new fragment belongs to the next version, which FIRST of scripts/changelog.py names first"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


# -- changelog ---------------------------------------------------------------------------------------------


def shown(page: str) -> dict[str, str]:
    """The sections of a changelog by version."""
    parts = re.split(r"^(?=## )", page, flags=re.MULTILINE)[1:]
    return {part.split()[1]: part.rstrip("\n") + "\n" for part in parts}


def test_the_changelog_is_what_the_fragments_give() -> None:
    """Released versions to the letter; of the unreleased one nothing that no fragment says: `make changelog`."""
    changelog = script("scripts/changelog.py")
    made, page = changelog.sections(ROOT), (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = shown(page)
    assert page.startswith(changelog.TOP)
    assert list(found) == list(made), "run make changelog"
    assert VERSION in made
    for version, text in made.items():
        if changelog.number(version) <= changelog.number(VERSION):
            assert found[version] == text, f"{version}: run make changelog; {NEXT}"
        else:
            assert set(found[version].splitlines()) <= set(text.splitlines()), f"{version}: run make changelog"
    for target in re.findall(r"\]\(([^)#:\s]+)\)", page):
        assert (ROOT / target).exists(), target


def written(root: Path, **fragments: str) -> Path:
    """A project of version 0.1.0 with these fragments, by number and title."""
    (root / "changelog.d").mkdir(parents=True)
    (root / "pyproject.toml").write_text('[project]\nversion = "0.1.0"\n', encoding="utf-8")
    (root / "changelog.d" / "README.md").write_text("what fragments are\n", encoding="utf-8")
    for name, text in fragments.items():
        (root / "changelog.d" / f"{name[1:]}.md").write_text(text, encoding="utf-8")
    return root


def test_fragments_are_gathered_by_version_and_heading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = written(
        tmp_path,
        **{
            "n0031-b": "### Privacy\n- P\n\n### Added\n- B\n  goes on\n",
            "n0030-a": "### Added\n- A, see [it](../docs/x.md)\n",
            "n0029-old": "### Fixed\n- O\n",
        },
    )
    changelog = script("scripts/changelog.py")
    monkeypatch.setattr(changelog, "FIRST", {"0.2.0": 30, "0.1.0": 1})
    new = "## 0.2.0 (unreleased)\n\n### Added\n- A, see [it](docs/x.md)\n- B\n  goes on\n\n### Privacy\n- P\n"
    assert changelog.sections(root) == {"0.2.0": new, "0.1.0": "## 0.1.0\n\n### Fixed\n- O\n"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("n0030-a", "### Adds\n- A\n"),
        ("n0030-a", "### Added\n- A\n### Added\n- B\n"),
        ("n0030-a", "### Added\n\n### Fixed\n- B\n"),
        ("n0030-a", "said before\n### Added\n- A\n"),
        ("n0030-a", "- A\n"),
        ("nlate", "### Added\n- A\n"),
    ],
)
def test_a_fragment_that_cannot_be_gathered_is_refused(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(ValueError, match=name[1:]):
        script("scripts/changelog.py").sections(written(tmp_path, **{name: text}))


# -- what contributors type ----------------------------------------------------------------------------------


def test_hooks_run_what_ci_runs() -> None:
    """And nothing that has to be fetched. Mutant: a line of .ci/run without its hook."""
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    entries = re.findall(r"^ *entry: (.*)$", hooks, re.MULTILINE)
    lines = re.findall(r"^make .*$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    called = [line for line in lines if line != "make setup"]
    assert called == ["make lint", "make test", "make kernels"]
    assert [e for e in entries if e in called] == called
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {e.removeprefix("make ") for e in entries} <= targets
    assert re.findall(r"repo: (.*)", hooks) == ["local"]


def test_the_citation_names_the_version() -> None:
    said = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.*)$", said, re.MULTILINE) == [VERSION]
    assert sf.__version__ == VERSION
    assert re.findall(r"^cff-version: (.*)$", said, re.MULTILINE) == ["1.2.0"]


def test_the_mutant_that_newcomers_try_is_caught(tmp_path: Path) -> None:
    """The line of CONTRIBUTING.md that breaks a sensitivity changes one place, and the column sums are then wrong."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^sed -i .*$", page, re.MULTILINE)
    *_, change, file = shlex.split(line)
    shutil.copytree(SRC, tmp_path / "src" / "sfumato", ignore=shutil.ignore_patterns("__pycache__"))
    broken = tmp_path / file
    before = broken.read_text(encoding="utf-8").splitlines()
    subprocess.run(["sed", "-i", change, str(broken)], check=True)
    after = broken.read_text(encoding="utf-8").splitlines()
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 1
    sums = ast.parse(broken.read_text(encoding="utf-8"))
    changed = next(i for i, (a, b) in enumerate(zip(before, after, strict=True), 1) if a != b)
    inside = [f.name for f in ast.walk(sums) if isinstance(f, ast.FunctionDef) and f.lineno <= changed <= f.end_lineno]  # type: ignore[operator]
    assert inside == ["column_sums"]


# -- how it is installed ------------------------------------------------------------------------------------


def test_nobody_is_told_to_install_a_package_of_our_name_from_an_index() -> None:
    """It is not published, and whoever claimed the name would run his code beside people's data.

    Mutants: a message or a page says pip install 'sfumato[ui]', or pip install sfumato.
    """
    named = re.compile(r"""(?:pip3?|pipx|conda|poetry|uv) (?:install|add) [^\n`#;]*?(?<=["' `])sfumato\b(?![-/.])""")
    for bad in (
        "pip install 'sfumato[ui]'",
        "pip install -U sfumato",
        "uv pip install sfumato",
        "pipx install sfumato",
    ):
        assert named.search(bad)
    for good in ("pip install -e '.[ui]'", "pip install 'FILE.whl[ui]'", "pip install ./sfumato-0.2.0.whl"):
        assert not named.search(good)
    places = ["src", "docs", "examples", "bench", "scripts", "changelog.d"]
    files = [f for p in places for f in (ROOT / p).rglob("*") if f.suffix in {".py", ".md", ".ipynb", ".html", ".toml"}]
    files += [f for f in ROOT.iterdir() if f.is_file() and f.suffix in {".md", ".toml"}]
    assert [f.name for f in files if named.search(f.read_text(encoding="utf-8"))] == []
    assert [f.name for f in files if re.search(r"sfumato\[[a-z]+\]", f.read_text(encoding="utf-8"))] == []


# -- faces of folders --------------------------------------------------------------------------------------


def test_only_faces_of_folders_list_what_is_public() -> None:
    """What a folder offers stands in its `__init__`, and errors.py is public as it is. Mutant: a list in a module."""
    listed = [f for f in SRC.rglob("*.py") if re.search(r"^__all__", f.read_text(encoding="utf-8"), re.MULTILINE)]
    assert [str(f.relative_to(SRC)) for f in listed if f.name not in ("__init__.py", "errors.py")] == []


# -- decisions -----------------------------------------------------------------------------------------------------

DECISIONS = ROOT / "docs" / "decisions"
RECORDS = {p.name: p.read_text(encoding="utf-8") for p in sorted(DECISIONS.glob("[0-9]*.md"))}
LINE = re.compile(
    r"- \[(\d+)\]\(([\w-]+\.md)\) (.+?)(?: (?:Changed|Superseded) by ((?:\[\d+\]\([\w-]+\.md\)(?:, )?)+)\.)?"
)
NAMED = re.compile(r"\[(\d+)\]\(([\w-]+\.md)\)")


def indexed() -> dict[str, list[tuple[str, str, str]]]:
    """By subject the record, the sentence and the later records of every line of the index."""
    subjects = re.split(r"^## ", (DECISIONS / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    found: dict[str, list[tuple[str, str, str]]] = {}
    for subject in subjects:
        name, *lines = [line for line in subject.splitlines() if line and line != "### Superseded"]
        assert name not in found
        found[name] = []
        for line in lines:
            parts = LINE.fullmatch(line)
            assert parts, line
            assert int(parts[1]) == int(parts[2][:4]), line
            found[name].append((parts[2], parts[3], parts[4] or ""))
    return found


def test_every_decision_is_in_the_index_once() -> None:
    """Mutants: a line left out; one under two subjects; a file that does not exist; a sentence of 26 words."""
    subjects = indexed()
    lines = [line for rows in subjects.values() for line in rows]
    assert sorted(name for name, _, _ in lines) == sorted(RECORDS)
    assert 12 <= len(subjects) <= 18
    assert all(subjects.values())
    for name, sentence, later in lines:
        assert len(sentence.split()) <= 25, name
        assert sentence.endswith("."), name
        for number, other in NAMED.findall(later):
            assert other in RECORDS, (name, other)
            assert other != name
            assert int(number) == int(other[:4]), (name, other)


def test_decisions_are_headed_by_what_was_decided() -> None:
    """And what no longer holds of one is said atop it, by records that its line of the index names too.

    Mutants: a heading with four digits, another number, or one word; a record that is named atop and not in the index.
    """
    later = {name: set(NAMED.findall(by)) for rows in indexed().values() for name, _, by in rows}
    for name, text in RECORDS.items():
        heading, blank, first = text.split("\n", 3)[:3]
        parts = re.fullmatch(r"# (\d+)\. (\S+(?: \S+){2,}[^\s.])", heading)
        assert parts, heading
        assert parts[1] == str(int(name[:4])), heading
        assert len(parts[2].split()) <= 16, heading
        assert not blank
        if first.startswith("**Changed"):
            atop = text.split("\n\n", 2)[1].partition("**Changed ")[2].partition("**")[0]
            assert atop.startswith(("by [", "since.")), name
            assert set(NAMED.findall(atop)) <= later[name], name
