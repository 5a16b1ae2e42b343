"""Programs beside the library, which are no package."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]


def script(place: str) -> Any:
    """The module at a path from the project's root, loaded anew."""
    spec = importlib.util.spec_from_file_location(Path(place).stem, _ROOT / place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
