"""What the tests of the wall share: a source that may not be touched, and a small road to walk."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import sfumato as sf

OTHER: dict[str, Any] = {"outside": "other", "missing": "other"}


class Touched(BaseException):
    """Something looked at a source that it should not have looked at; no `except Exception` hides it."""


class Untouchable:
    """A source that explodes when anything at all is asked of it, its class included."""

    def __getattribute__(self, name: str) -> Any:
        raise Touched(name)


DOMAIN = sf.Domain({"a": sf.Integers(0, 3, **OTHER), "b": sf.Categories(["x", "y"], **OTHER)})
COUNTS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9]
TABLE = sf.Histogram(COUNTS)
WORK = sf.marginals(DOMAIN, upto=2)


def plan(budget: sf.Budget | None = None, neighbours: str = "add-remove", **options: Any) -> sf.Plan:
    """A plan for all tables of the small domain."""
    return sf.plan(WORK, budget or sf.gdp(1), neighbours=neighbours, **({"mechanism": "marginals"} | options))


def with_unit(given: sf.Plan, **changes: Any) -> sf.Plan:
    """The plan with another privacy unit, as a tamperer would have it."""
    return replace(given, unit=replace(given.unit, **changes))
