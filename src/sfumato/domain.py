"""Attributes and domains: the public names and cells of a table's columns, declared and never inferred.

A cell of a domain is one combination of cells of its attributes; cells are numbered in C order (the
last attribute runs fastest), so counts over a domain reshape to `domain.shape`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, Literal, cast

import numpy as np

from sfumato.checks import Number, check_distinct, check_text, read_number, shorten, show_count, show_number
from sfumato.codec import storable
from sfumato.errors import DomainError

__all__ = ["OTHER", "Attribute", "Bins", "Booleans", "Categories", "Domain", "Integers"]

Outside = Literal["other", "clamp", "drop"]
Missing = Literal["other", "drop"]

OTHER = "(other)"
_MAX_CELLS = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """A column with a declared, finite set of cells.

    `outside` says what becomes of values outside the declaration, `missing` of absent ones: "other"
    (one extra, last cell serves both), "clamp" (numbers only, to the nearest cell) or "drop" (the
    row is not counted). Undeclared policies add no cell; a table of rows is then refused.
    """

    kind: ClassVar[str] = ""
    ordered: ClassVar[bool] = False
    outside: Outside | None = None
    missing: Missing | None = None

    @property
    def declared_labels(self) -> tuple[str, ...]:
        """Labels of the declared cells, without the extra one."""
        raise AttributeError

    @property
    def has_other(self) -> bool:
        """Whether one extra, last cell serves values outside the declaration or missing ones."""
        return "other" in (self.outside, self.missing)

    @property
    def drops(self) -> bool:
        """Whether some rows may not be counted at all."""
        return "drop" in (self.outside, self.missing)

    @property
    def declared_size(self) -> int:
        """Number of declared cells, without the extra one."""
        return len(self.declared_labels)

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.declared_size + self.has_other

    @property
    def labels(self) -> tuple[str, ...]:
        """One label per cell."""
        return self.declared_labels + ((OTHER,) if self.has_other else ())

    @property
    def intervals(self) -> tuple[tuple[Number, Number], ...] | None:
        """For numeric attributes the half-open interval [low, high) of each declared cell, else None."""
        return None

    @property
    def midpoints(self) -> tuple[float, ...] | None:
        """For numeric attributes a representative value of each declared cell, else None."""
        return None


def _check_policies(outside: object, missing: object, *, numeric: bool) -> None:
    allowed = ("other", "clamp", "drop") if numeric else ("other", "drop")
    if outside is not None and outside not in allowed:
        raise DomainError(f"outside={outside!r} is not allowed here; use one of {', '.join(allowed)}")
    if missing is not None and missing not in ("other", "drop"):
        raise DomainError(f"missing={missing!r} is not allowed; use 'other' or 'drop'")


def _check_size(count: int, what: str) -> None:
    if count < 1:
        raise DomainError(f"{what} declares no cell")
    if count > _MAX_CELLS:
        raise DomainError(
            f"{what} declares {show_count(count)} cells; at most {_MAX_CELLS:,} are allowed, use wider ones"
        )


@storable
@dataclass(frozen=True, slots=True)
class Categories(Attribute):
    """A finite set of codes, each with a label (the code itself unless a mapping code -> label is given)."""

    kind: ClassVar[str] = "category"
    values: Mapping[str, str] | Sequence[object]

    def __post_init__(self) -> None:
        given = self.values
        if isinstance(given, (str, bytes)) or not isinstance(given, (Mapping, Sequence)):
            raise DomainError(f"categories must be a list of values or a mapping code -> label, not {shorten(given)}")
        _check_size(len(given), "a category attribute")
        pairs = given.items() if isinstance(given, Mapping) else ((v, v) for v in given)
        values = {}
        for code, label in pairs:
            key = _code(code)
            if key in values:
                raise DomainError(f"category {key!r} is declared twice (1, '1' and 1.0 are one code)")
            values[key] = check_text(_code(label), "category label")
        if len(set(values.values())) != len(values):
            raise DomainError("two categories have the same label; labels must be distinct")
        if OTHER in values.values():
            raise DomainError(f"the label {OTHER!r} is reserved for the extra cell")
        for code, label in values.items():
            if code != label and label in values:
                raise DomainError(f"{shorten(label)} is a code and also the label of another code, {code!r}")
        _check_policies(self.outside, self.missing, numeric=False)
        object.__setattr__(self, "values", values)

    @property
    def declared_size(self) -> int:
        return len(self._mapping)

    @property
    def codes(self) -> tuple[str, ...]:
        """What the table holds, one code per declared cell, as text."""
        return tuple(self._mapping)

    @property
    def declared_labels(self) -> tuple[str, ...]:
        return tuple(self._mapping.values())

    @property
    def _mapping(self) -> dict[str, str]:
        # __post_init__ turned whatever was given into a dict of texts
        return cast(dict[str, str], self.values)

    def _key(self) -> tuple[object, ...]:
        return (tuple(self._mapping.items()), self.outside, self.missing)

    def __eq__(self, other: object) -> bool:
        # the order of the codes is the order of the cells; two dicts in other orders would count as equal
        return isinstance(other, Categories) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


def _code(value: object) -> str:
    if isinstance(value, str):
        return check_text(str(value), "category")
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.number, Decimal, Fraction)):
        raise DomainError(
            f"a category must be a text or a number, not {shorten(value)}; for true/false use sf.Booleans()"
        )
    return show_number(read_number(value, "a category"))


@storable
@dataclass(frozen=True, slots=True)
class Integers(Attribute):
    """Whole numbers from `low` to `high`, both included, in cells of `width` (the last may be narrower)."""

    kind: ClassVar[str] = "integer"
    ordered: ClassVar[bool] = True
    low: int
    high: int
    width: int = 1

    def __post_init__(self) -> None:
        for name in ("low", "high", "width"):
            value = read_number(getattr(self, name), f"integer {name}")
            if not isinstance(value, int) or abs(value) >= 2**53:
                raise DomainError(f"integer {name} must be a whole number below 2^53, not {shorten(value)}")
            object.__setattr__(self, name, value)
        if self.high < self.low:
            raise DomainError(f"integers from {self.low} to {self.high}: the range is reversed")
        if self.width < 1:
            raise DomainError(f"width must be at least 1, not {self.width}")
        _check_size(self.declared_size, f"integers from {self.low} to {self.high}")
        _check_policies(self.outside, self.missing, numeric=True)

    @property
    def declared_size(self) -> int:
        return -(-(self.high - self.low + 1) // self.width)

    @property
    def intervals(self) -> tuple[tuple[Number, Number], ...]:
        starts = range(self.low, self.high + 1, self.width)
        return tuple((s, min(s + self.width, self.high + 1)) for s in starts)

    @property
    def declared_labels(self) -> tuple[str, ...]:
        return tuple(str(a) if b == a + 1 else f"{a}..{b - 1}" for a, b in self.intervals)

    @property
    def midpoints(self) -> tuple[float, ...]:
        return tuple((a + b - 1) / 2 for a, b in self.intervals)


@storable
@dataclass(frozen=True, slots=True)
class Bins(Attribute):
    """Numbers in half-open bins [edge, next edge); `Bins.regular(low, high, width)` makes equal ones."""

    kind: ClassVar[str] = "number"
    ordered: ClassVar[bool] = True
    edges: Sequence[Number]

    def __post_init__(self) -> None:
        if isinstance(self.edges, (str, bytes)) or not hasattr(self.edges, "__iter__"):
            raise DomainError(f"edges must be a list of numbers, not {shorten(self.edges)}")
        # an endless list is cut where it is too long anyway
        edges = tuple(read_number(e, "a bin edge") for e in itertools.islice(self.edges, _MAX_CELLS + 2))
        _check_size(len(edges) - 1, "a list of bin edges")
        for a, b in itertools.pairwise(edges):
            if not a < b:
                raise DomainError(f"bin edges must increase: {show_number(a)} is followed by {show_number(b)}")
        _check_policies(self.outside, self.missing, numeric=True)
        object.__setattr__(self, "edges", edges)

    @property
    def declared_size(self) -> int:
        return len(self.edges) - 1

    @classmethod
    def regular(
        cls,
        low: Number,
        high: Number,
        width: Number,
        outside: Outside | None = None,
        missing: Missing | None = None,
    ) -> Bins:
        """Bins of equal width from `low` to `high`; `width` must divide the range."""
        start, stop, step = (Fraction(show_number(read_number(v, "a bin edge"))) for v in (low, high, width))
        if step <= 0 or stop <= start:
            raise DomainError(f"bins from {low} to {high} of width {width}: the range or the width is reversed")
        count = (stop - start) / step
        if count.denominator != 1:
            raise DomainError(f"width {width} does not divide the range from {low} to {high}")
        _check_size(int(count), "a range of bins")
        edges = [start + step * i for i in range(int(count) + 1)]
        return cls([int(e) if e.denominator == 1 else float(e) for e in edges], outside=outside, missing=missing)

    @property
    def intervals(self) -> tuple[tuple[Number, Number], ...]:
        return tuple(itertools.pairwise(self.edges))

    @property
    def declared_labels(self) -> tuple[str, ...]:
        return tuple(f"[{show_number(a)}, {show_number(b)})" for a, b in self.intervals)

    @property
    def midpoints(self) -> tuple[float, ...]:
        return tuple((a + b) / 2 for a, b in self.intervals)


@storable
@dataclass(frozen=True, slots=True)
class Booleans(Attribute):
    """True or false; texts true/false, t/f, yes/no, y/n and 1/0 are read in any case."""

    kind: ClassVar[str] = "boolean"

    def __post_init__(self) -> None:
        _check_policies(self.outside, self.missing, numeric=False)

    @property
    def declared_labels(self) -> tuple[str, ...]:
        return ("false", "true")


@storable
@dataclass(frozen=True, slots=True)
class Domain:
    """Named attributes in order. `size` is the exact number of cells, however large.

    `attributes` maps names to attributes; a whole number n stands for the codes 0 to n - 1.
    """

    attributes: Mapping[str, Attribute]

    def __init__(self, attributes: Mapping[str, Attribute | int]) -> None:
        given = attributes
        if not isinstance(given, Mapping) or not given:
            raise DomainError(f"a domain is a non-empty mapping of names to attributes, not {shorten(given)}")
        kept: dict[str, Attribute] = {}
        for name, attribute in given.items():
            check_text(name, "attribute name")
            if isinstance(attribute, (int, np.integer)) and not isinstance(attribute, bool):
                _check_size(int(attribute), f"attribute {shorten(name)}")
                attribute = Integers(0, int(attribute) - 1)
            if not isinstance(attribute, Attribute):
                raise DomainError(
                    f"attribute {shorten(name)} must be sf.Categories, sf.Integers, sf.Bins, sf.Booleans or a size, "
                    f"not {shorten(attribute)}"
                )
            kept[name] = attribute
        check_distinct(kept, "attributes")
        object.__setattr__(self, "attributes", kept)

    @property
    def names(self) -> tuple[str, ...]:
        """Attribute names in order."""
        return tuple(self.attributes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of cells of each attribute."""
        return tuple(a.size for a in self.attributes.values())

    @property
    def size(self) -> int:
        """Number of cells, an exact integer."""
        return math.prod(self.shape)

    @property
    def drops(self) -> bool:
        """Whether some rows may not be counted at all."""
        return any(a.drops for a in self.attributes.values())

    def __getitem__(self, name: str) -> Attribute:
        self.check_names([name])
        return self.attributes[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self.attributes

    def __eq__(self, other: object) -> bool:
        # the order of the attributes is the order of the axes
        return isinstance(other, Domain) and tuple(self.attributes.items()) == tuple(other.attributes.items())

    def __hash__(self) -> int:
        return hash(tuple(self.attributes.items()))

    def sizes(self, names: Iterable[str]) -> tuple[int, ...]:
        """Number of cells of each named attribute."""
        return tuple(self[n].size for n in names)

    def axis(self, name: str) -> int:
        """Position of an attribute."""
        self.check_names([name])
        return self.names.index(name)

    def check_names(self, names: Iterable[str]) -> tuple[str, ...]:
        """The names as a tuple, refused where unknown or repeated."""
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise DomainError(
                f"attributes are given as a list of names, such as [{self.names[0]!r}], not {shorten(names)}"
            )
        result = tuple(names)
        for name in result:
            if not isinstance(name, str) or name not in self.attributes:
                raise DomainError(f"no attribute is called {shorten(name)}; there are {', '.join(self.names)}")
        if len(set(result)) != len(result):
            raise DomainError(f"an attribute is named twice in {result}")
        return result

    def ordered(self, names: Iterable[str]) -> tuple[str, ...]:
        """The names, checked, in the domain's order."""
        return tuple(sorted(self.check_names(names), key=self.names.index))

    def __repr__(self) -> str:
        inside = ", ".join(f"{n}: {a.size}" for n, a in self.attributes.items())
        return f"Domain({inside}; {show_count(self.size)} cells)"
