"""Distributions of the numeric attributes by a few groups, as they are computed here: quantiles, means and shares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sfumato.errors import NotAnswerable, PlanError
from sfumato.ground.frames import Frame
from sfumato.releases import Release
from sfumato.report.typical import CONFIDENCE, groupings, numeric

__all__ = ["write_curves"]

_DECILES = [0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 0.95]  # what official tables give
_MOST = 60  # files of some 20 kB each
_MOST_POINTS = 400  # steps of a curve: more than a phone has pixels


def write_curves(release: Release, folder: Path) -> list[dict[str, Any]]:
    """Write one file for every attribute and grouping that the release answers; say which."""
    folder.mkdir(exist_ok=True)
    out: list[dict[str, Any]] = []
    for attribute in numeric(release):
        for by in groupings(release, attribute):
            if len(out) == _MOST:
                return out
            try:
                found = _distribution(release, attribute, by)
            except (NotAnswerable, PlanError):
                continue
            place = f"{folder.name}/{len(out)}.json"
            text = json.dumps(found, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            (folder.parent / place).write_text(text, encoding="utf-8", newline="\n")
            out.append({"attribute": attribute, "by": list(by), "file": place})
    return out


def _distribution(release: Release, attribute: str, by: tuple[str, ...]) -> dict[str, Any]:
    declared = release.plan.workload.domain[attribute]
    quantiles = release.quantiles(attribute, _DECILES, by=by, confidence=CONFIDENCE)
    means = release.mean(attribute, by=by, confidence=CONFIDENCE)
    whole = declared.kind == "integer"
    found: dict[str, Any] = {"quantiles": _columns(quantiles), "means": _columns(means), "ends": []}
    if len(declared.declared_labels) <= _MOST_POINTS:
        found["ends"] = [float(high) - whole for _, high in declared.intervals or ()]
        shares = release.cdf(attribute, by=by, confidence=CONFIDENCE)
        found["shares"] = {k: [_short(v) for v in shares[k]] for k in ("share", "low", "high")}
    return found


def _columns(frame: Frame) -> dict[str, list[Any]]:
    """Columns by place, for an attribute may be called like one of them: groups, then what is told."""
    return {str(i): [_short(v) for v in column] for i, column in enumerate(frame.columns.values())}


def _short(value: Any) -> Any:
    """Seven figures: more than an interval has, and small files."""
    return float(f"{value:.7g}") if isinstance(value, float) else value
