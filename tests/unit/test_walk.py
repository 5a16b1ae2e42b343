"""The figures of size, names and roads: what `scripts/walk.py` counts."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from support.scripts import script

TEXT = '''"""Words."""

from a import (
    b,
)

__all__ = ["f"]


def f(x: int) -> int:
    """Words."""

    def inner() -> int:
        return x  # a remark

    return sum(inner() for _ in range(2))


y = 1
'''


@pytest.fixture
def there(tmp_path: Path) -> Path:
    (tmp_path / "one.py").write_text(TEXT, encoding="utf-8")
    return tmp_path / "one.py"


def test_lines_of_imports_are_counted_whole(there: Path) -> None:
    """Mutants: the first line of an import alone; `__all__` left out."""
    assert script("scripts/walk.py").import_lines(there) == 4


def test_what_is_nested_belongs_to_the_function_around_it(there: Path) -> None:
    """Mutants: the line of the inner function; code of the module given to the last function."""
    walk = script("scripts/walk.py")
    begin = next(n.lineno for n in ast.parse(TEXT).body if isinstance(n, ast.FunctionDef))
    lines = (1, 7, begin, begin + 4, begin + 6, begin + 9)
    assert [walk.holding(there, line) for line in lines] == [None, None, begin, begin, begin, None]


def test_a_road_is_the_functions_that_were_entered(there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lines of code in the outer function and two in the one inside. Mutants: blank lines and words counted; a
    function that was entered twice counted twice; lines of the module counted."""
    walk, place = script("scripts/walk.py"), dict[str, Any]()
    monkeypatch.setattr(walk, "SRC", there.parent)
    exec(compile(TEXT.replace("from a import (\n    b,\n)", "\n\n"), str(there), "exec"), place)
    assert walk.walked(lambda: (place["f"](1), place["f"](2))) == (1, 1, 4)
    assert walk.walked(lambda: None) == (0, 0, 0)


def test_docstrings_lack_what_applies() -> None:
    """Mutants: a parameter that is not asked for; a function that raises and does not say so let pass."""
    walk = script("scripts/walk.py")

    def none() -> None:
        """Words."""

    def some(x: int) -> int:
        """Words.

        Args:
            x: A number.
        """
        if x < 0:
            raise ValueError
        return x

    assert walk.lacking(none) == []
    assert walk.lacking(some) == ["Returns", "Raises"]
