"""No patch is disarmed by a move: of the library, what tests replace exists and is read where it is replaced."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import ModuleType

import pytest

import sfumato as sf
from sfumato.strategies import certificates as fits
from sfumato.strategies import certificates as proposals
from support.patching import Disarmed, check, put

TESTS = Path(__file__).parents[1]
FILES = sorted(TESTS.rglob("*.py"))
LOUD = "files.sqlite3.connect"
"""Assigned by the harnesses, which are processes of their own: raises where `files` opens no SQLite any more."""


def test_a_patch_of_the_library_must_be_read_where_it_is_put(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: names looked up in the module alone, so that one imported for others passes; raising=False obeyed."""
    monkeypatch.setattr(proposals, "_MAX_TABLES", proposals._MAX_TABLES)
    monkeypatch.setattr(f"{proposals.__name__}._MAX_TABLES", 5)
    assert proposals._MAX_TABLES == 5
    for options in ({}, {"raising": False}):
        with pytest.raises(Disarmed, match="has no '_MAX_TABLETS' to replace"):
            monkeypatch.setattr(proposals, "_MAX_TABLETS", 0, **options)
        with pytest.raises(Disarmed, match="has no 'debits' to replace"):
            monkeypatch.setattr(sf.Ledger, "debits", None, **options)
        with pytest.raises(Disarmed):
            monkeypatch.setattr(f"{fits.__name__}.nothing", 0, **options)
    # the public page imports the name and reads it nowhere
    with pytest.raises(Disarmed, match="no code of sfumato reads 'release'"):
        monkeypatch.setattr(sf, "release", None)
    with pytest.raises(Disarmed):
        put(sf, "release", None)


def test_what_is_left_behind_by_a_move_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Mutant: a module that hands a moved name on, patched in the old place. What is not ours is pytest's affair."""
    (tmp_path / "old.py").write_text("from os import sep\n__all__ = ['sep']\n")
    monkeypatch.syspath_prepend(tmp_path)
    import old  # type: ignore[import-not-found]

    assert isinstance(old, ModuleType)
    monkeypatch.setattr(old, "sep", ":")
    old.__name__ = "sfumato.old"
    with pytest.raises(Disarmed, match=r"no code of sfumato\.old reads 'sep'"):
        check(old, "sep")
    del sys.modules["old"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(TESTS)))
def test_no_test_replaces_anything_past_the_guard(path: Path) -> None:
    """Mutants: an attribute of the library assigned, setattr on it, unittest.mock, or raising=False, which all do
    nothing in silence after a move."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    ours: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.module not in ("unittest.mock", "mock"), node.lineno
            if (node.module or "").partition(".")[0] == "sfumato":
                ours |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            assert not any(a.name.startswith(("unittest.mock", "mock")) for a in node.names), node.lineno
            ours |= {a.asname or a.name.partition(".")[0] for a in node.names if a.name.startswith("sfumato")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for t in targets:
                past = isinstance(t, ast.Attribute) and _root(t) in ours and ast.unparse(t) != LOUD
                assert not past, f"line {node.lineno}: use patching.put"
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id == "setattr":
                assert _root(node.args[0]) not in ours, f"line {node.lineno}: use monkeypatch.setattr"
            if path.name not in (Path(__file__).name, "patching.py"):
                assert not any(k.arg == "raising" for k in node.keywords), f"line {node.lineno}: raising="


def _root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
