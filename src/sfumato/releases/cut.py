"""How many persons had more rows than were counted: a noisy number that is measured beside, and what it says."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.plans.intervals import check_confidence, margins
from sfumato.releases.answers import Answer

if TYPE_CHECKING:
    from sfumato.releases.core import Release

__all__ = ["cut_facts", "cut_persons", "cut_text"]


def cut_persons(release: Release, confidence: float = 0.95) -> Answer | None:
    """How many persons had more rows than were counted, with its interval; None where that was not measured."""
    level, times, found = check_confidence(confidence), release.plan.cut, release.measurement.cut
    if not times or found is None:
        return None
    noise = release.measurement.noise
    (half,) = margins(level, np.array([1 / times**2]), np.array([1 / times**4]), noise)
    value = found / times
    answer = Answer(value, math.sqrt(noise.variance) / times, max(0.0, value - half), max(0.0, value + half))
    answer.confidence, answer.unit = level, "persons"
    return answer


def cut_facts(release: Release) -> dict[str, Any]:
    """The number for release.json, nothing where it was not measured."""
    found = cut_persons(release)
    return {} if found is None else {"cut_persons": {"value": found.value, "standard_error": found.standard_error}}


def cut_text(release: Release) -> str:
    """One sentence on who was cut, for people; nothing where no person is named."""
    unit, found = release.plan.unit, cut_persons(release)
    if unit.person is None:
        return ""
    rows = "row" if unit.rows_per_person == 1 else "rows"
    whom = f"persons who had more than {unit.rows_per_person:,} {rows}"
    if found is None:
        return f"the number of {whom} was not measured"
    return f"the number of {whom}: {max(0.0, found.value):,.0f} ± {2 * (found.standard_error or 0.0):,.0f}"
