"""Examples in docstrings give what they print, and every public name of the rooms that have them has one."""

from __future__ import annotations

import ast
import doctest
import functools
import importlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import sfumato as sf

SRC = Path(sf.__file__).parent
STYLE = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@functools.cache
def texts() -> dict[str, int]:
    """Modules whose docstrings hold examples, and how many docstrings of each do, as the files say."""
    found: dict[str, int] = {}
    for file in sorted(SRC.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if ">>> " not in text:
            continue
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        nodes = (n for n in ast.walk(ast.parse(text)) if isinstance(n, kinds))
        count = sum(">>> " in (ast.get_docstring(n) or "") for n in nodes)
        if count:
            parts = file.relative_to(SRC.parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = count
    return found


def examples() -> Iterator[doctest.DocTest]:
    """Every docstring with examples. They take `sf` and `np` as imported."""
    for name in texts():
        module = importlib.import_module(name)
        yield from (t for t in doctest.DocTestFinder().find(module, globs={"sf": sf, "np": np}) if t.examples)


EXAMPLES = {test.name: test for test in examples()}


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_what_an_example_prints_is_what_comes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of its own, where what it writes ends. A warning fails it, as it would surprise a reader."""
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    doctest.DocTestRunner(verbose=False, optionflags=STYLE).run(EXAMPLES[name], out=said.append, clear_globs=False)
    assert not said, "".join(said)


def test_no_example_is_passed_over() -> None:
    """What the finder does not reach (a cached property, a function inside another) would never run."""
    reached = dict.fromkeys(texts(), 0)
    for test in EXAMPLES.values():
        reached[next(m for m in sorted(reached, key=len, reverse=True) if test.name.startswith(m))] += 1
    assert reached == texts()


def documented(name: str) -> bool:
    """Whether the docstring of a public name has an example."""
    return ">>> " in (getattr(sf, name).__doc__ or "")


def test_public_names_have_examples() -> None:
    assert not [name for name in sf.__all__ if not documented(name)]
