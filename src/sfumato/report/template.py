"""Templates and the files that pages carry inline."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["asset", "environment"]


@cache
def environment(package: str = "sfumato.report", folder: str = ".") -> Environment:
    """Templates of a folder, by default this one: all text is escaped, and a missing value is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415  (only where a page is made)

    return Environment(
        loader=PackageLoader(package, folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


@cache
def asset(name: str) -> str:
    """The text of a file of this folder."""
    return (resources.files("sfumato.report") / name).read_text(encoding="utf-8")
