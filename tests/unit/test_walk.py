"""The figures of size, names and roads: what `scripts/walk.py` counts."""

from __future__ import annotations

import ast
import functools
import inspect
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sfumato.errors import InvalidInput
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


def of(value: Any, *, method: bool = False) -> list[str]:
    """What the docstring of one thing lacks."""
    walk = script("scripts/walk.py")
    return walk.lacking(walk.Public("it", value, method))


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


def all_said(x: int, *more: int, **named: int) -> int:
    """Words.

    Args:
        x: A number, of which
            more: is said on a line of its own.
        *more: Numbers.
        **named: Numbers by name.

    Returns:
        The number.

    Raises:
        ValueError: It is negative.
    """
    if x < 0:
        raise ValueError(x)
    return x


def wrong(x: int, y: int) -> int:
    """Words.

    Args:
        x: A number.
        z: A number that nobody can give.

    Returns:
        The number.

    Raises:
        TypeError: It is none.
    """
    if x < y:
        raise ValueError
    return x


@dataclass
class Held:
    """Words.

    Args:
        one: A number.
    """

    one: int
    two: int = 2
    _three: int = field(default=3, init=False)

    def __post_init__(self) -> None:
        if self.one > self.two:
            raise InvalidInput

    def bare(self, x: int) -> int:
        return x

    def sum(self) -> int:
        """Words.

        Returns:
            A number.
        """
        return self.one + self.two

    @property
    def late(self) -> int:
        """Words."""
        raise InvalidInput

    @functools.cached_property
    def kept(self) -> int:
        return 1

    @classmethod
    def of(cls, x: int) -> Held:
        """Words.

        Args:
            x: A number.

        Returns:
            What holds it.
        """
        return cls(x)


class Derived(Held):
    def sum(self) -> int:
        return 0


def test_docstrings_lack_what_applies() -> None:
    """Mutants: a parameter that is not asked for; a function that raises and does not say so let pass."""
    assert of(none) == []
    assert of(some) == ["Returns", "Raises"]


def test_sections_are_read_line_by_line() -> None:
    """Mutants: a line that goes on taken for a name; stars left off; a name of `Args` that is no parameter let pass, or
    a parameter without a line; an error that is raised and not named let pass."""
    walk = script("scripts/walk.py")
    known = walk.sections(inspect.getdoc(all_said))
    assert known == {"Args": ["x", "*more", "**named"], "Returns": ["The number."], "Raises": ["ValueError"]}
    assert of(all_said) == []
    assert of(wrong) == ["Args: y", "Args: no z", "Raises: ValueError"]


def test_classes_say_their_fields_and_members_are_looked_at() -> None:
    """Mutants: a field left out, or a private one asked for; what is refused at birth not said; properties passed over;
    the first parameter of a method asked for; an inherited docstring not found."""
    walk = script("scripts/walk.py")
    assert of(Held) == ["Args: two", "Raises"]
    looked_at = {m.name: walk.lacking(m) for m in walk.members("Held", _here(Held), set())}
    assert looked_at == {
        "Held.bare": ["a docstring", "Args", "Returns"],
        "Held.late": ["Raises"],
        "Held.kept": ["a docstring"],
        "Held.of": [],
        "Held.sum": [],
    }
    own, *inherited = walk.members("Derived", _here(Derived), set())
    assert (own.name, walk.lacking(own)) == ("Derived.sum", [])
    assert {m.name for m in inherited} == {name.replace("Held", "Derived") for name in looked_at}


def _here(cls: type) -> type:
    """A class that stands for one of the library."""
    cls.__module__ = "sfumato.here"
    return cls


def test_what_public_names_return_is_public() -> None:
    """Mutants: variants of a function passed over (streams), what `sf.load` reads (reports), or what methods return
    (spends); the library's own algebra among it."""
    walk = script("scripts/walk.py")
    names = {one.name for one in walk.public()}
    assert {"Stream.append", "LocalRelease.intervals", "Quote", "Frame.rows", "Release.cautions", "pure"} <= names
    assert not {"LinearOperator", "Strategy", "Map", "Grid"} & names


def test_every_public_docstring_is_whole() -> None:
    """Whatever is public says every argument by its name and no other, what comes back, and what it raises.

    Mutants: a section, an argument, or an error that the code raises left out; an argument renamed in the code alone.
    """
    walk = script("scripts/walk.py")
    found = {one.name: lacks for one in walk.public() if (lacks := walk.lacking(one))}
    assert found == {}, "see CONTRIBUTING.md, Rules"
