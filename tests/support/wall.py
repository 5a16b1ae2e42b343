"""What the tests of the wall share: a source that may not be touched, and a small road to walk."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import sfumato as sf
from sfumato.curator import Curator
from sfumato.strategies.certificates import find_certificate
from support.insecure_bits import InsecureTestBits

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


def crossing(made: sf.Plan, source: object, domain: sf.Domain, ledger: sf.Ledger) -> list[int]:
    """All that crosses the wall under a plan of persons, with noise that is the same for all tables."""
    curator = Curator(source, domain, made.unit, ledger, insecure_bits=InsecureTestBits(7))
    sizes = {n: a.size for n, a in domain.attributes.items()}
    found, _ = curator.measure(
        made.strategy.blocks,
        made.noise,
        made.price,
        name="x",
        plan_hash=made.fingerprint,
        stated=made.sensitivity,
        certificate=find_certificate(made.strategy.blocks, sizes, made.unit, made.sensitivity.power),
        cut=made.cut,
    )
    assert found.cut is not None
    return [*(int(v) for values in found.values for v in values), found.cut]
