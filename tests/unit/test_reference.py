"""Every public name has a page of the reference, which names where it is defined."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import sfumato as sf
from support.scripts import script

ROOT = Path(__file__).parents[2]


def test_every_public_name_has_one_page() -> None:
    docs = script("scripts/docs.py")
    listed = [name for names in docs.GROUPS.values() for name in names]
    assert sorted(listed) == sorted(sf.__all__)
    pages = docs.api_pages()
    assert len({p.casefold() for p in pages}) == len(sf.__all__) + 1
    index = pages["api/index.md"]
    assert all(f"({docs.page_name(name)}.md)" in index for name in sf.__all__)


@pytest.mark.parametrize("name", sf.__all__)
def test_the_page_names_what_is_there(name: str) -> None:
    docs = script("scripts/docs.py")
    module, _, rest = docs.target(name).rpartition(".")
    if rest and docs.CALLED.get(name):
        module, _, owner = module.rpartition(".")
        assert hasattr(getattr(importlib.import_module(module), owner), rest)
    else:
        assert hasattr(importlib.import_module(module), rest)


def test_every_page_of_docs_has_a_place() -> None:
    docs = script("scripts/docs.py")
    guide = [name for names in docs.GUIDE.values() for name in names]
    placed = ["mechanisms", *docs.START, *guide, *docs.MECHANISMS, *docs.THEORY, *docs.PROJECT]
    assert sorted(placed) == sorted(p.stem for p in (ROOT / "docs").glob("*.md"))
