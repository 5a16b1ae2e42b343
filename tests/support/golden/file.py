"""The golden file: what it holds of every plan, and how a plan made now is compared with it."""

from __future__ import annotations

import hashlib
import json
import math
import platform
import re
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from threadpoolctl import threadpool_info

from support.kernels import kernels

__all__ = ["FILE", "compiled", "differences", "entry", "read", "where"]

FILE = Path(__file__).parents[2] / "fixtures" / "golden" / "plans.json"

ABOUT = [
    "What sf.plan and its kin decide, by name of tests/support/golden/cases.py; compared by tests/laws/test_golden.py.",
    "exact: the same on every kernel of OpenBLAS, with and without vector instructions, on all supported versions.",
    "floats: predictions, equal within 1e-9 of themselves where 'where' names, elsewhere within what 'within' says.",
    "searched: what a search in floating-point numbers found (an optimum of a factorization, questions of the local",
    "model): its last bits hang on how BLAS adds, so it is compared only at the place that 'where' names. There it is",
    "equal to the bit, or at the place that the plan itself names; elsewhere its price, its noise, its errors and that",
    "sensitivity and noise make that price are.",
    "Written by `python -m support.golden` after a change that is meant; say in the change's record why it was.",
]

WITHIN = 1e-9
_SEARCHED = ("factorization", "approximate", "designed")
_BY_SEARCH = ("fingerprint", "maps", "sensitivity", "attained", "questions", "outcomes")
_ROOM = 100  # times what the ways of making a plan differ by
_MOST = 0.1  # the questions of the local model differ by 3 % from kernel to kernel; no search by more


def where() -> str:
    """What the last bits of a search hang on: kernels, versions, instructions that numpy uses, the processor's maker.

    The same instructions of AMD and of Intel differ in the last bits of reciprocals, from which numpy's vectors begin.
    """
    features = sorted(n for n, on in np._core._multiarray_umath.__cpu_features__.items() if on)
    used = hashlib.sha256(" ".join(features).encode()).hexdigest()[:8]
    python = ".".join(platform.python_version_tuple()[:2])
    libc = "-".join(platform.libc_ver())
    blas = "+".join(sorted(kernels()))
    at_once = max((lib["num_threads"] for lib in threadpool_info() if lib["internal_api"] == "openblas"), default=1)
    threads = f", {at_once} threads" if at_once > 1 else ""  # the file is written with one, as `make test` has it
    versions = f"numpy {np.__version__}, scipy {scipy.__version__}, Python {python}"
    return f"{blas}, {versions}, {libc}, instructions {used}{threads}{_processor()}"


def _processor() -> str:
    """The maker of the processor, where the system tells it."""
    known = Path("/proc/cpuinfo")
    found = re.search(r"^vendor_id\s*: (\w+)$", known.read_text(), re.MULTILINE) if known.exists() else None
    return f", {found[1]}" if found else ""


def compiled(place: str, entries: dict[str, dict[str, Any]]) -> str:
    """The file's text."""
    plans = ",\n".join(f"{json.dumps(name)}: {json.dumps(kept)}" for name, kept in entries.items())
    return f'{{"about": {json.dumps(ABOUT, indent=1)},\n"where": {json.dumps(place)},\n"plans": {{\n{plans}\n}}}}\n'


def entry(told: dict[str, Any], others: list[dict[str, Any]]) -> dict[str, Any]:
    """What the file keeps of a plan, from what is told of it here and in other ways of making it."""
    exact = told["exact"]
    hangs = {k for k in exact if any(other["exact"][k] != exact[k] for other in others)}
    if hangs or exact.get("mechanism", exact.get("reporter")) in _SEARCHED:
        hangs |= {k for k in _BY_SEARCH if k in exact}
    spread = max(_spread(told["floats"], other["floats"]) for other in others)
    kept: dict[str, Any] = {"exact": {k: v for k, v in exact.items() if k not in hangs}, "floats": told["floats"]}
    if spread * _ROOM > WITHIN:
        kept["within"] = min(_MOST, float(f"1e{math.ceil(math.log10(spread * _ROOM))}"))
    if hangs:
        kept["searched"] = {k: v for k, v in exact.items() if k in hangs}
    return kept


def _spread(one: dict[str, Any], other: dict[str, Any]) -> float:
    assert one.keys() == other.keys()
    return max((_apart(x, other[n]) for n, x in one.items()), default=0.0)


def _apart(x: float | str, y: float | str) -> float:
    """The relative difference; texts stand for what is not finite."""
    if isinstance(x, str) or isinstance(y, str):
        return 0.0 if x == y else math.inf
    return 0.0 if x == y else abs(x - y) / max(abs(x), abs(y))


def read() -> dict[str, Any]:
    """The file."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def differences(stored: dict[str, Any], told: dict[str, Any], *, here: bool) -> list[str]:
    """What differs between a plan as stored and as told now, one line each; `here` says that searches are compared."""
    told = json.loads(json.dumps(told))
    searched = stored.get("searched", {})
    out = _unlike({"exact": {*stored["exact"], *searched}, "floats": set(stored["floats"])}, told)
    demanded = stored["exact"] | (searched if here else {})
    for field, value in demanded.items():
        if told["exact"].get(field) != value:
            out.append(f"{field} was {value} and is {told['exact'].get(field)}")
    within = WITHIN if here else stored.get("within", WITHIN)
    for field, value in stored["floats"].items():
        if _apart(value, told["floats"].get(field, "missing")) > within:
            out.append(f"{field} was {value} and is {told['floats'].get(field)}, allowed {within}")
    return out


def _unlike(fields: dict[str, set[str]], told: dict[str, Any]) -> list[str]:
    """Fields that are new: what is told and not stored would never be compared."""
    return [f"{name} is new: write the file anew" for kind in fields for name in told[kind].keys() - fields[kind]]
