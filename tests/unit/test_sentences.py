"""The guide is read aloud: its sentences are short, at most 25 words on average on every page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.scripts import script

ROOT = Path(__file__).parents[2]
DOCS = script("scripts/docs.py")
PAGES = ["mechanisms", *DOCS.START, *DOCS.MECHANISMS, *(n for names in DOCS.GUIDE.values() for n in names)]
_SILENT = re.compile(r"^```.*?^```[ \t]*$|\$\$.*?\$\$|^\s*\|.*?$|^#.*?$", re.DOTALL | re.MULTILINE)


def sentences(text: str) -> list[str]:
    """What is said in a page: no code, no tables, no headings; a formula or a name in code is one word."""
    found: list[str] = []
    for part in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", _SILENT.sub("\n\n", text)):
        said = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", part)
        said = " ".join(re.sub(r"`[^`]*`|\$[^$]*\$", "x", said).split())
        found += [s for s in re.split(r"(?<=[.?!])\s+", said) if s]
    return found


def words(sentence: str) -> int:
    return len(re.findall(r"\w[\w'’-]*", sentence))


@pytest.mark.parametrize("name", PAGES)
def test_sentences_of_the_guide_are_short(name: str) -> None:
    """Mutant: a page whose sentences go on and on."""
    lengths = [words(s) for s in sentences((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8"))]
    assert sum(lengths) / len(lengths) <= 25


def test_sentences_are_counted_as_they_are_said() -> None:
    text = "# Not this\n\nOne `f(a, b)` is\ntwo. Is $x + y$ three?\n\n| a | b |\n|---|---|\n\n- An [item](there.md).\n"
    assert [words(s) for s in sentences(text + "```python\nnot = this\n```\n")] == [4, 3, 2]
