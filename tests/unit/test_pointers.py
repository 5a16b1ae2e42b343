"""What documents, docstrings and comments name is there: files, and modules with what they hold."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "sfumato"
PACKAGES = {p.name for p in SRC.iterdir() if (p / "__init__.py").exists()} | {p.stem for p in SRC.glob("*.py")}
# names of variables as well: "cells.shape" is of an array
VARIABLES = {"cells", "domain", "errors", "maps", "operators"}
# names of folders and files that were: whoever reads them looks in vain
FORMER = {"designs", "estimate", "ground", "recipes", "talk", "wall"}
# decisions and changes speak of the tree of their day
PAGES = [
    *(p for p in (ROOT / "docs").glob("*.md") if p.name != "CHANGELOG.md"),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
]
FILE = re.compile(r"(?<![\w./*{-])((?:[\w.-]+/)*[\w-]+\.py)\b")
DOTTED = re.compile(r"(?<![\w./\"'=-])((?:[a-z_][a-z_0-9]*\.)+[A-Za-z_]\w*)")
QUOTED = re.compile(r"`+([^`\n]+)`+")
TEST = re.compile(r"(tests/[\w/]+\.py)::(\w+)")


def prose(file: Path) -> Iterator[str]:
    """Docstrings and comments of a module."""
    text = file.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value
    yield from (t.string for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.COMMENT)


def tracked() -> set[str]:
    """Every Python file of the repository, by all ends of its path."""
    tops = ("src", "tests", "bench", "scripts", "examples")
    places = [p.relative_to(ROOT) for top in tops for p in (ROOT / top).rglob("*.py")]
    return {"/".join(p.parts[i:]) for p in places for i in range(len(p.parts))}


def stands(name: str) -> bool:
    """Whether a dotted name begins with a module of the library, and what follows is in it."""
    parts = name.removeprefix("sfumato.").split(".")
    at = len(parts)
    while at and not _is_module(".".join(["sfumato", *parts[:at]])):
        at -= 1
    if not (at or name.startswith("sfumato.")):
        return False
    found: object = import_module(".".join(["sfumato", *parts[:at]]))
    for part in parts[at:]:
        fields = getattr(found, "__annotations__", {})
        if not hasattr(found, part) and part not in fields:
            return False
        found = getattr(found, part, None)
    return True


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _is_test(file: str, name: str) -> bool:
    return re.search(rf"^def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE) is not None


def lost(text: str, files: set[str]) -> list[str]:
    """What a text names and is not there."""
    gone = [name for name in FILE.findall(text) if name not in files]
    gone += [f"{file}::{test}" for file, test in TEST.findall(text) if file in files and not _is_test(file, test)]
    for quoted in QUOTED.findall(text):
        for name in DOTTED.findall(quoted):
            first = name.removeprefix("sfumato.").split(".")[0]
            ours = first in PACKAGES - VARIABLES or name.startswith("sfumato.")
            if not name.endswith(".py") and (first in FORMER or (ours and not stands(name))):
                gone.append(name)
    return gone


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_a_page_names_what_is_there(page: Path) -> None:
    """Mutant: a file that moved away from under its name."""
    assert lost(page.read_text(encoding="utf-8"), tracked()) == []


def test_docstrings_and_comments_name_what_is_there() -> None:
    """Mutant: the same in a docstring."""
    files = tracked()
    found = {str(f.relative_to(SRC)): [n for text in prose(f) for n in lost(text, files)] for f in SRC.rglob("*.py")}
    assert {file: names for file, names in found.items() if names} == {}


def test_a_name_that_is_gone_is_found() -> None:
    text = (
        "see summing.py, `wall.rows`, `privacy.unit.nothing`, `curator/curator.py` and "
        "`tests/laws/test_paid.py::test_nothing`, not `tests/laws/test_maps.py`"
    )
    assert lost(text, tracked()) == [
        "summing.py",
        "tests/laws/test_paid.py::test_nothing",
        "wall.rows",
        "privacy.unit.nothing",
    ]
