"""Measures: numbers of records that are summed, exactly and of any size, within the cells of other attributes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from sfumato._util.checks import Number, read_number, show_number
from sfumato._util.codec import storable
from sfumato.cells import Amounts, Rule
from sfumato.domain.attributes import Attribute
from sfumato.errors import DomainError

__all__ = ["Measure"]


@storable
@dataclass(frozen=True, slots=True)
class Measure(Attribute):
    """A number that is summed, exactly and of any size: money, weights, durations.

    Sums, means, variances and correlations of a measure are of the numbers themselves, not of cells that they were
    counted in. The range is public knowledge, or a guess made without looking. Records without a number count as
    records, but not in the sums and means of the measure.

    A measure is no dimension: it has no cells to count. For a histogram, quantiles or a CDF of the same column declare
    `sf.Bins` of it beside, under another name.

    Args:
        low: The least number that counts.
        high: The largest number that counts, above `low`.
        outside: What happens to a number outside the range: "clamp", the default, cuts it to the range; "absent" leaves
            it out as if it were missing.
        missing: "absent", which is the default: a missing number is left out of sums and means.
        edition: By which rules values are read. Leave it out.

    Raises:
        DomainError: An end is no finite number, the range is reversed or empty, or an option is not allowed.

    Source:
        [NTZ13] for linear queries; the price of sums of squares is proved in docs/decisions/0136.

    >>> sf.Domain({"ward": 3}, measures={"cost": sf.Measure(0, 50_000)})
    Domain(ward: 3; 3 cells; measures cost)
    """

    kind: ClassVar[str] = "measure"
    ordered: ClassVar[bool] = False
    low: Number
    high: Number

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            value = read_number(getattr(self, name), f"a measure's {name}")
            if not math.isfinite(float(value)):
                raise DomainError(f"a measure's {name} must be a finite number, not {show_number(value)}")
            object.__setattr__(self, name, value)
        if not 1e-290 < float(self.high) - float(self.low) < math.inf:
            raise DomainError(
                f"a measure goes from low to a high above it, not from {show_number(self.low)} to "
                f"{show_number(self.high)}"
            )
        # a number that does not count lies in the extra cell, in which it adds nothing to any sum
        policies = {None: "clamp", "clamp": "clamp", "absent": "other", "other": "other"}
        if self.outside not in policies or self.missing not in (None, "absent", "other"):
            raise DomainError("a measure's numbers outside are cut, 'clamp', or 'absent'; missing ones are 'absent'")
        object.__setattr__(self, "outside", policies[self.outside])
        object.__setattr__(self, "missing", "other")

    @property
    def declared_labels(self) -> tuple[str, ...]:
        return ("low", "middle", "high")

    @property
    def rule(self) -> Rule:
        return Amounts(
            kind=self.kind,
            outside=self.outside,
            missing=self.missing,
            edition=self.edition,
            low=float(self.low),
            high=float(self.high),
        )

    @property
    def midpoints(self) -> tuple[float, ...]:
        """What a share of 1 in each cell adds to the sum."""
        low, high = float(self.low), float(self.high)
        return low, (low + high) / 2, high

    @property
    def squares(self) -> tuple[float, ...]:
        """What a share of 1 in each cell adds to the sum of squares."""
        low, high = float(self.low), float(self.high)
        return low * low, low * high, high * high
