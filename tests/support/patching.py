"""Patches that cannot be disarmed by a move: what is replaced must be there, and be read where it is replaced.

A constant or function that moves may leave its name behind, imported for others. Who patches it there changes nothing
and sees nothing fail. So a name of one of the library's modules is replaced only where code of that module reads it, or
other code through the module.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

__all__ = ["Disarmed", "armed", "check", "put"]

_LIBRARY = "sfumato"


class Disarmed(AssertionError):
    """A patch that would change nothing."""


@cache
def _read(module: ModuleType) -> frozenset[str]:
    """The global names that code of a module reads."""
    tree = ast.parse(inspect.getsource(module))
    return frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))


def _is_read(module: ModuleType, name: str) -> bool:
    """Whether code of the module reads a global name, or code elsewhere reads it through the module."""
    through = re.compile(rf"\b{re.escape(module.__name__.rpartition('.')[2])}\.{re.escape(name)}\b")
    return name in _read(module) or any(through.search(text) for text in _sources())


@cache
def _sources() -> tuple[str, ...]:
    """The text of every file of the library."""
    folder = Path(importlib.import_module(_LIBRARY).__path__[0])
    return tuple(p.read_text(encoding="utf-8") for p in folder.rglob("*.py"))


def _ours(target: Any) -> bool:
    """Whether a module, class or value is the library's."""
    homes = (getattr(target, "__name__", None), getattr(target, "__module__", None), type(target).__module__)
    return any(isinstance(home, str) and home.partition(".")[0] == _LIBRARY for home in homes)


def check(target: Any, name: str) -> None:
    """Raise Disarmed where replacing `name` of a module, class or value would change nothing."""
    if not hasattr(target, name):
        raise Disarmed(f"{target!r} has no {name!r} to replace: it moved, or has another name now")
    if isinstance(target, ModuleType) and _ours(target) and not _is_read(target, name):
        raise Disarmed(f"no code of {target.__name__} reads {name!r}: patch the module that does")


def put(target: Any, name: str, value: Any) -> None:
    """Replace for good, in a process of its own."""
    check(target, name)
    setattr(target, name, value)


def armed(patch: Any) -> Any:
    """`MonkeyPatch.setattr` that refuses to do nothing to the library; pytest's own patches go through."""

    def setattr(self: pytest.MonkeyPatch, target: Any, name: Any, *value: Any, raising: bool = True) -> None:
        owner, last, given = target, name, value
        if isinstance(target, str):
            path, _, last = target.rpartition(".")
            owner, given = _resolved(path), (name,)
        if _ours(owner):
            check(owner, last)
        patch(self, owner, last, *given, raising=raising)

    return setattr


def _resolved(path: str) -> Any:
    """The module, or what is in it, of a dotted name."""
    try:
        return importlib.import_module(path)
    except ImportError:
        outer, _, last = path.rpartition(".")
        if not outer:
            raise
        return getattr(_resolved(outer), last)
