"""Tests of one attribute against constants, as masks over its cells; refused where they would divide a cell."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from sfumato.domain.attributes import OTHER, Attribute, Booleans, Categories
from sfumato.domain.dates import Dates, shown
from sfumato.domain.hierarchies import Hierarchy
from sfumato.domain.ordered import Bins, Integers
from sfumato.ground.checks import show_number
from sfumato.ground.nearest import nearest

__all__ = ["Column", "Constant", "Mask"]

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of a predicate: its value, the text it was written as, and where that starts."""

    value: Fraction | str | bool
    raw: str
    at: int


class Column:
    """An attribute as tests see it. `refuse(at, message)` raises for a constant at that place."""

    def __init__(self, name: str, attribute: Attribute, refuse: Callable[[int, str], NoReturn]) -> None:
        self.name = name
        self.attribute = attribute
        self.size = attribute.size
        self._declared = attribute.declared_size
        self._refuse = refuse
        self._indices: dict[str, int] | None = None

    @property
    def example(self) -> str:
        """A test that this attribute allows, for messages."""
        if isinstance(self.attribute, Booleans):
            return f"{self._written} == true"
        if isinstance(self.attribute, (Categories, Hierarchy)):
            return f"{self._written} == '{self._label(0)}'"
        return f"{self._written} >= {self._shown(0)}"

    def members(self, constants: Sequence[Constant]) -> Mask:
        """The cells whose value is one of the constants."""
        mask = np.zeros(self.size, dtype=np.bool_)
        whole: dict[int, set[int]] = {}
        for constant in constants:
            if constant.value == OTHER:
                mask[self._other(constant)] = True
            elif isinstance(self.attribute, Dates):
                mask[self._period(self.attribute, constant)] = True
            elif isinstance(self.attribute, Integers):
                value = self._whole(constant)
                whole.setdefault((value - self.attribute.low) // self.attribute.width, set()).add(value)
            elif isinstance(self.attribute, Bins):
                cell = bisect_right(self.attribute.edges, self._double(constant)) - 1
                self._refuse_single(constant, min(max(cell, 0), self._declared - 1))
            else:
                mask[self._index(constant)] = True
        for cell, values in whole.items():
            if len(values) < self._edge(cell + 1) - self._edge(cell):
                self._refuse_single(next(c for c in constants if c.value in values), cell)
            mask[cell] = True
        return mask

    def _refuse_single(self, constant: Constant, cell: int) -> NoReturn:
        low, high = self._shown(cell), self._shown(cell + 1)
        upto = "<=" if self._closed and cell == self._declared - 1 else "<"
        self._refuse(
            constant.at,
            f"{constant.raw} is only a part of the cell {self._label(cell)} of {self.name}; "
            f"ask for the whole cell, {low} <= {self._written} {upto} {high}",
        )

    @property
    def _closed(self) -> bool:
        """Whether the last cell holds the edge where it ends."""
        return isinstance(self.attribute, Bins) and self.attribute.holds_last

    def compare(self, op: str, constant: Constant) -> Mask:
        """The cells whose values are all `op` the constant, for an order `op`."""
        if not self.attribute.ordered:
            self._refuse(constant.at, f"{self.name} has no order; compare it with ==, != or in, as in {self.example}")
        cut = self._cut(op, constant)
        mask = np.zeros(self.size, dtype=np.bool_)
        mask[slice(cut, self._declared) if op[0] == ">" else slice(cut)] = True
        if self.attribute.outside == "clamp" and not mask.any():
            beyond = self._label(0 if op[0] == "<" else self._declared - 1)
            self._refuse(
                constant.at, f"{self.name} is clamped to {self._range}: values beyond are counted in its cell {beyond}"
            )
        return mask

    @property
    def _range(self) -> str:
        low, high = self._edge(0), self._edge(self._declared)
        if isinstance(self.attribute, Integers):
            return f"{low}..{high - 1}"
        if isinstance(self.attribute, Dates):
            return f"{self.attribute.low} to {self.attribute.high}"
        return f"[{low}, {high}{']' if self._closed else ')'}"

    @property
    def _written(self) -> str:
        return self.name if self.name.isidentifier() else "`" + self.name.replace("`", "``") + "`"

    def _edge(self, i: int) -> int | float:
        """Where declared cell i starts; for i the number of cells, where the last ends."""
        if isinstance(self.attribute, Integers):
            return min(self.attribute.low + i * self.attribute.width, self.attribute.high + 1)
        assert isinstance(self.attribute, (Bins, Dates))
        return self.attribute.edges[i]

    def _shown(self, i: int) -> str:
        """The same as it is written in a predicate."""
        edge = self._edge(i)
        return f"'{shown(int(edge))}'" if isinstance(self.attribute, Dates) else str(edge)

    def _period(self, attribute: Dates, constant: Constant) -> int:
        """The cell that a text names."""
        first, end = self._days(attribute, constant)
        cell = bisect_right(attribute.edges, first) - 1
        if not 0 <= cell < self._declared:
            self._refuse_beyond(constant)
        if end - first < self._edge(cell + 1) - self._edge(cell):
            self._refuse_single(constant, cell)
        return cell

    def _days(self, attribute: Dates, constant: Constant) -> tuple[int, int]:
        """The first day that a text names, and the day after the last."""
        found = attribute.days(constant.value) if isinstance(constant.value, str) else None
        if found is None:
            self._refuse(
                constant.at,
                f"{self.name} is compared with days or labels, as in {self.example} or '{self._label(0)}', "
                f"not with {constant.raw}",
            )
        return found

    def _label(self, i: int) -> str:
        return self.attribute.declared_labels[i]

    def _cut(self, op: str, constant: Constant) -> int:
        """The first cell above the constant (at or above it, for < and >=); the number of cells if there is none."""
        above = op in (">", "<=")
        if isinstance(self.attribute, Dates):
            first = self._days(self.attribute, constant)[above]
            edges = self.attribute.edges
            if not edges[0] <= first <= edges[-1]:
                self._refuse_beyond(constant)
            cell = bisect_left(edges, first)
            inside = edges[cell] != first
        elif isinstance(self.attribute, Integers):
            number = self._number(constant)
            first = math.floor(number) + 1 if above else math.ceil(number)
            if not self.attribute.low <= first <= self.attribute.high + 1:
                self._refuse_beyond(constant)
            cell = -(-(first - self.attribute.low) // self.attribute.width)
            inside = self._edge(cell) != first
        else:
            assert isinstance(self.attribute, Bins)
            number = self._double(constant)
            cell = bisect_left(self.attribute.edges, number)
            on_edge = cell <= self._declared and self.attribute.edges[cell] == number
            if not on_edge and cell in (0, self._declared + 1):
                self._refuse_beyond(constant)
            last = on_edge and cell == self._declared
            inside = not on_edge or (above and not last) or (last and not above and self._closed)
            cell += on_edge and not last and inside
        if inside:
            self._refuse_division(op, constant, cell)
        return cell

    def _refuse_beyond(self, constant: Constant) -> NoReturn:
        self._refuse(constant.at, f"{constant.raw} is beyond the values declared for {self.name}, {self._range}")

    def _refuse_division(self, op: str, constant: Constant, cell: int) -> NoReturn:
        """Cell `cell - 1` is divided; name the nearest edges."""
        kept = op[0] + ("=" if op[0] == ">" else "")
        asks = [f"{self._written} {kept} {self._shown(i)}" for i in (cell - 1, cell) if 0 < i < self._declared]
        if self._closed and cell == self._declared:
            asks.append(f"{self._written} {'>' if op[0] == '>' else '<='} {self._edge(cell)}")
        ask = " or ".join(asks)
        self._refuse(
            constant.at,
            f"{self.name} {op} {constant.raw} divides the cell {self._label(cell - 1)} of {self.name}; "
            + (f"ask {ask}" if ask else f"{self.name} has no edge to ask for"),
        )

    def _number(self, constant: Constant) -> Fraction:
        if not isinstance(constant.value, Fraction):
            self._refuse(
                constant.at, f"{self.name} is compared with numbers, as in {self.example}, not with {constant.raw}"
            )
        return constant.value

    def _double(self, constant: Constant) -> int | float:
        """The constant as the int it equals, or else as the nearest double, as edges and values are."""
        value = self._number(constant)
        try:
            return int(value) if value.denominator == 1 and abs(value) < 2**53 else float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf

    def _whole(self, constant: Constant) -> int:
        assert isinstance(self.attribute, Integers)
        number = self._number(constant)
        if number.denominator != 1:
            self._refuse(constant.at, f"{self.name} holds whole numbers only, never {constant.raw}")
        if not self.attribute.low <= number <= self.attribute.high:
            self._refuse_beyond(constant)
        return int(number)

    def _other(self, constant: Constant) -> int:
        if not self.attribute.has_other:
            self._refuse(
                constant.at,
                f"{self.name} has no extra cell {OTHER!r}: none of its policies outside and missing is 'other'",
            )
        return self._declared

    def _index(self, constant: Constant) -> int:
        """The cell of a category, by label or code, or of a boolean."""
        if self._indices is None:
            self._indices = {label: i for i, label in enumerate(self.attribute.declared_labels)}
        value = constant.value
        if isinstance(value, bool):
            if not isinstance(self.attribute, Booleans):
                self._refuse(constant.at, f"{self.name} is not true or false; write {self.example}")
            return int(value)
        spellings = [value] if isinstance(value, str) else [constant.raw, show_number(self._double(constant))]
        of = self.attribute.cell_of if isinstance(self.attribute, (Categories, Hierarchy)) else self._indices.get
        found = next((i for i in map(of, spellings) if i is not None), None)
        if found is None:
            allowed = nearest(spellings[0], self.attribute.labels)
            self._refuse(constant.at, f"{self.name} has no {spellings[0]!r}; {allowed}")
        return found
