"""The periods of a stream as a file declares them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from sfumato.designs.continual.periods import Periods, periods
from sfumato.privacy.unit import PrivacyUnit
from sfumato.workloads.reading import Section

__all__ = ["declared"]

_KEYS = ("periods", "ask", "objective", "periods_per_person", "apart", "promised")


def declared(root: Section, unit: PrivacyUnit) -> Periods | None:
    """What stands under [stream], or None where nothing does. Raises SpecError with the line."""
    if "stream" not in root:
        return None
    given = root.section("stream")
    given.allow(*_KEYS)
    given.need("periods", 'it is how many are paid for, such as 104 for two years of weeks, or "unknown"')
    unknown = given.raw("periods") == "unknown"
    count = None if unknown else given.whole("periods") or 0
    each, apart, objective = given.whole("periods_per_person"), given.whole("apart"), given.text("objective")
    if each is not None and each > 1 and unit.person is None:
        raise given.refuse(
            "whoever is in several periods is a person: name the column that says whose record a row is, as person "
            "under [privacy]",
            "periods_per_person",
        )
    promised, ask = given.raw("promised"), given.raw("ask")
    if isinstance(ask, dict):
        ask = {text: float(weight) if isinstance(weight, Decimal) else weight for text, weight in ask.items()}
    options = {"per_person": each, "apart": apart, "objective": objective, "promised": promised, "ask": ask}
    chosen: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    # a refusal is of the last key that is there, of those that it may be about
    at = [key for key in ("ask", "objective", "apart", "periods_per_person", "periods") if key in given]
    with given.guard(at[0]):
        return periods(count, **chosen)
