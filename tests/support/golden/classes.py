"""What stored values are called: class names and field names, as fingerprints and files have them.

`python -m support.golden.classes`, in tests/, writes them anew: after a class or a field was added, and for nothing
else, since what is renamed loses what was stored under the old name.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from dataclasses import MISSING, fields
from enum import Enum
from pathlib import Path
from typing import Any

import sfumato
from sfumato._util.codec import storable

__all__ = ["FILE", "HOW", "stored_classes", "strange"]

FILE = Path(__file__).parents[2] / "fixtures" / "golden" / "classes.json"

HOW = (
    "a class keeps the name under which it was stored (that of the class), and a field its name; a field "
    "that is new is declared by later(default); a name that is given up stays readable by a line in the codec. Then "
    "`python -m support.golden.classes`, in tests/, writes what was added"
)


def stored_classes() -> dict[str, type]:
    """Every class that `storable` was given, by the name it is stored under, once all modules are imported."""
    for module in pkgutil.walk_packages(sfumato.__path__, "sfumato."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    return dict(vars(importlib.import_module(storable.__module__))["_CLASSES"])


def told(classes: dict[str, type]) -> dict[str, dict[str, Any]]:
    """By class: its fields in order, and whether each has a default; or the values of an enumeration."""
    out: dict[str, dict[str, Any]] = {}
    for name, cls in sorted(classes.items()):
        if issubclass(cls, Enum):
            out[name] = {"values": [member.value for member in cls]}
        else:
            stored = [f for f in fields(cls) if f.init]  # type: ignore[arg-type]
            defaults = [f.default is not MISSING or f.default_factory is not MISSING for f in stored]
            out[name] = {"fields": [f.name for f in stored], "may be missing": defaults}
            added = [f.name for f in stored if "later" in f.metadata]
            if added:
                out[name]["later"] = added
    return out


def strange(then: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> list[str]:
    """What is no longer as it was stored, one line each; where a class lives does not matter."""
    out: list[str] = []
    for name, was in then.items():
        if name not in now:
            out.append(f"no class is stored as {name} any more, under which values were stored")
        elif was != now[name]:
            out.append(f"{name} was stored with {was} and is now with {now[name]}")
    out += [f"{name} is new and not written down" for name in now.keys() - then.keys()]
    return out


def main() -> None:
    """Write the file."""
    lines = ",\n".join(f"{json.dumps(n)}: {json.dumps(t)}" for n, t in told(stored_classes()).items())
    FILE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
