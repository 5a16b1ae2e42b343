"""Where a file of the custodian may be made."""

from __future__ import annotations

import os
from pathlib import Path

from sfumato.errors import InvalidInput

__all__ = ["check_place"]


def check_place(store: str | os.PathLike[str], noun: str) -> Path:
    """A path at which nothing is, in a folder that is there. Raises InvalidInput."""
    try:
        path = Path(store)
        if ".." in path.parts or not path.name or "\0" in path.name:
            raise InvalidInput(f"{path}: the file of a {noun} has a name of its own and must not climb with '..'")
        if path.is_symlink() or any(p.is_symlink() for p in path.parents if not p.is_absolute()):
            raise InvalidInput(f"{path} is a symbolic link; name the file itself")
        if path.exists() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
            raise InvalidInput(f"{path} exists, or its folder is missing or not to be written to; choose another path")
    except InvalidInput:
        raise
    except (OSError, TypeError, ValueError) as error:
        raise InvalidInput(f"a {noun} cannot be kept at {store!r}: {error}") from error
    return path
