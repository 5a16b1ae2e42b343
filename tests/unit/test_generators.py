"""Tests draw from generators of their own, so that no result depends on which tests ran before."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

MAKERS = {"default_rng", "Generator", "RandomState", "Random", "SystemRandom"}


def shared(text: str) -> list[int]:
    """The lines that bind a generator to a name of a module or of a class."""
    tree = ast.parse(text)
    bodies = [tree.body, *(n.body for n in ast.walk(tree) if isinstance(n, ast.ClassDef))]
    out: list[int] = []
    for statement in (s for body in bodies for s in body):
        value = getattr(statement, "value", None) if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
        if isinstance(value, ast.Call) and ast.unparse(value.func).split(".")[-1] in MAKERS:
            out.append(statement.lineno)
    return out


def test_no_module_of_tests_holds_a_generator() -> None:
    """Mutant: DRAWS = np.random.default_rng(3) on top of a module."""
    tests = Path(__file__).parents[1]
    found = {str(f.relative_to(tests)): lines for f in tests.rglob("*.py") if (lines := shared(f.read_text("utf-8")))}
    assert found == {}


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("import numpy as np\nDRAWS = np.random.default_rng(3)", [2]),
        ("R: object = random.Random(1)", [1]),
        ("class T:\n    draws = default_rng()", [2]),
        ("X = np.random.default_rng(3).normal(size=3)\ndef f():\n    r = np.random.default_rng(3)", []),
    ],
)
def test_what_counts_as_one(text: str, lines: list[int]) -> None:
    assert shared(text) == lines
