"""Measures: numbers of records that are summed, exactly and of any size, within the cells of other attributes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato._util.bundles import check_text
from sfumato._util.checks import Number, read_number, show_number
from sfumato._util.codec import deferred_field, storable
from sfumato.cells import MAX_KNOTS, POINTS, Amounts, Rule
from sfumato.domain.attributes import Attribute
from sfumato.errors import DomainError


@storable
@dataclass(frozen=True, slots=True)
class Measure(Attribute):
    """A number that is summed, exactly and of any size: money, weights, durations.

    Sums, means, variances and correlations of a measure are of the numbers themselves, not of cells that they were
    counted in. The range is public knowledge, or a guess made without looking. Records without a number count as
    records, but not in the sums and means of the measure.

    A measure is no dimension: it has no cells to count. For a histogram, quantiles or a CDF of the same column declare
    `sf.Bins` of it beside, and give the measure another name and `column=`: both are then planned as one, best with
    knots where the bins end.

    Args:
        low: The least number that counts.
        high: The largest number that counts, above `low`.
        outside: What happens to a number outside the range: "clamp", the default, cuts it to the range; "absent" leaves
            it out as if it were missing.
        missing: "absent", which is the default: a missing number is left out of sums and means.
        edition: By which rules values are read. Leave it out.
        knots: Up to 30 values inside the range, rising, such as poverty lines, or amounts that double from one to the
            next. Gaps below and above a knot, and sums of values cut there, are then exact: see `sf.gaps`, and
            `sf.means` with `clip="best"`.
        column: The column that holds the numbers, where it is not called as the measure is.

    Raises:
        DomainError: An end or a knot is no finite number, the range is reversed or empty, knots do not rise within it
            by a millionth of the range at least, or an option is not allowed.

    Source:
        [NTZ13] for linear queries; the price of sums of squares is proved in docs/decisions/0136.

    >>> sf.Domain({"ward": 3}, measures={"cost": sf.Measure(0, 50_000)})
    Domain(ward: 3; 3 cells; measures cost)
    """

    kind: ClassVar[str] = "measure"
    ordered: ClassVar[bool] = False
    low: Number
    high: Number
    knots: Sequence[Number] = deferred_field(())
    column: str | None = deferred_field(None)

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
        if self.column is not None:
            check_text(self.column, "the name of a measure's column")
        given: object = self.knots
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise DomainError("a measure's knots are a list of numbers inside its range")
        knots = tuple(read_number(k, "a measure's knot") for k in given)
        if len(knots) > MAX_KNOTS:
            raise DomainError(f"a measure has up to {MAX_KNOTS} knots, not {len(knots)}")
        least = (float(self.high) - float(self.low)) * 1e-6
        ends = [float(self.low), *map(float, knots), float(self.high)]
        if not all(b - a >= least for a, b in itertools.pairwise(ends)):
            raise DomainError(
                f"a measure's knots rise between {show_number(self.low)} and {show_number(self.high)}, each a "
                "millionth of the range above the one before"
            )
        object.__setattr__(self, "knots", knots)
        # a number that does not count lies in the extra cell, in which it adds nothing to any sum
        policies = {None: "clamp", "clamp": "clamp", "absent": "other", "other": "other"}
        if self.outside not in policies or self.missing not in (None, "absent", "other"):
            raise DomainError("a measure's numbers outside are cut, 'clamp', or 'absent'; missing ones are 'absent'")
        object.__setattr__(self, "outside", policies[self.outside])
        object.__setattr__(self, "missing", "other")

    @property
    def declared_labels(self) -> tuple[str, ...]:
        inner = (text for k in self.knots for text in (f"middle below {show_number(k)}", show_number(k)))
        return ("low", *inner, "middle", "high")

    @property
    def rule(self) -> Rule:
        return Amounts(
            kind=self.kind,
            outside=self.outside,
            missing=self.missing,
            edition=self.edition,
            low=float(self.low),
            high=float(self.high),
            knots=tuple(map(float, self.knots)),
            column=self.column,
        )

    @property
    def ends(self) -> tuple[float, ...]:
        """Where pieces end: low, the knots and high."""
        return float(self.low), *map(float, self.knots), float(self.high)

    def sums_of(self, ends: Iterable[float], middles: Iterable[float]) -> tuple[float, ...]:
        """What a share of 1 in each cell adds to the sum of a function that is quadratic on each piece.

        Args:
            ends: The function's values at `ends`.
            middles: Per piece from a to b the value at a, and half of b - a times the slope there.

        Returns:
            A number per declared cell.
        """
        first, *rest = ends
        return first, *itertools.chain.from_iterable(zip(middles, rest, strict=True))

    def clipped(self, cut: float) -> tuple[float, ...]:
        """What a share of 1 in each cell adds to the sum of numbers that are cut at a knot, or at an end.

        Args:
            cut: A knot, or the upper end of the range.

        Returns:
            A number per declared cell.
        """
        values = [min(v, cut) for v in self.ends]
        return self.sums_of(values, [(a + b) / 2 for a, b in itertools.pairwise(values)])

    @property
    def midpoints(self) -> tuple[float, ...]:
        """What a share of 1 in each cell adds to the sum."""
        return self.sums_of(self.ends, [(a + b) / 2 for a, b in itertools.pairwise(self.ends)])

    @property
    def squares(self) -> tuple[float, ...]:
        """What a share of 1 in each cell adds to the sum of squares."""
        return self.sums_of([v * v for v in self.ends], [a * b for a, b in itertools.pairwise(self.ends)])


_UNIT = 2.0**-24  # of a record, to the nearest of which its features are taken
_STEP = 1 / POINTS  # of the range, and of a piece
_DOUBLES = 1 + 2.0**-10  # what rounding of doubles adds
# (1 - t)^2, 2 t (1 - t), t^2 in a row over the cells of a piece: what it takes of 1, t and t^2
_TAKEN = np.array([[1, -2, 1], [0, 2, -2], [0, 0, 1]])


def rounding_per_record(rows: NDArray[np.float64], measures: Sequence[Measure]) -> NDArray[np.float64]:
    """By how much a sum may be off per record, since numbers and features are put on a grid before they are added.

    A place is off by half a step of the range, a knot likewise, a place in its piece by half a step of that, and each
    of t, t^2 and the products of several measures by half of 2^-24. How many there are is not rounded.

    Args:
        rows: (rows, joint cells of the measures, in C order) what a share of 1 adds.
        measures: Which are summed jointly.

    Returns:
        (rows,) bounds.
    """
    table = rows.reshape(len(rows), *(m.size for m in measures))
    plain, moved = np.zeros(len(rows)), np.zeros(len(rows))
    for choice in itertools.product(*map(_pieces, measures)):
        own = table[np.ix_(np.arange(len(rows)), *(np.array(cells) for cells, _ in choice))]
        for axis, (cells, _) in enumerate(choice, 1):
            if len(cells) == len(_TAKEN):
                own = np.moveaxis(np.tensordot(own, _TAKEN, axes=(axis, 0)), -1, axis)
        here, there = np.zeros(len(rows)), np.zeros(len(rows))
        for powers in itertools.product(*(range(len(cells)) for cells, _ in choice)):
            if any(powers):
                taken = np.abs(own[:, *powers])
                here += taken * (_UNIT + sum(powers) * _STEP) / 2
                there += taken * sum(k * shift for k, (_, shift) in zip(powers, choice, strict=True))
        # a number beside a knot may be put on its other side: both pieces move it then, and one has its features
        plain, moved = np.maximum(plain, here), np.maximum(moved, there)
    return (plain + moved) * _DOUBLES


def _pieces(measure: Measure) -> list[tuple[list[int], float]]:
    """The cells of each piece, and how far steps at its ends move a place in it; and the cell of no number."""
    ends = [float(e) for e in measure.ends]
    span = ends[-1] - ends[0]
    found = [
        ([2 * p, 2 * p + 1, 2 * p + 2], 2 * _STEP * span / (b - a) if measure.knots else 0.0)
        for p, (a, b) in enumerate(itertools.pairwise(ends))
    ]
    return [*found, *(([c], 0.0) for c in range(2 * len(found) + 1, measure.size))]
