"""Domains: attributes in order, and the names by which their cells and groups of cells are asked for.

A cell of a domain is one combination of cells of its attributes; cells are numbered in C order (the
last attribute runs fastest), so counts over a domain reshape to `domain.shape`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sfumato._util.bundles import check_text, shorten
from sfumato._util.checks import Number, check_distinct, show_count, show_number
from sfumato._util.codec import deferred_field, storable
from sfumato._util.frames import safe_text
from sfumato.cells import Grid, Moves
from sfumato.domain import impossible as cannot
from sfumato.domain.attributes import OTHER, Attribute, Categories, Level, check_cell_limit
from sfumato.domain.hierarchies import nest_labels
from sfumato.domain.impossible import Tied, cell_value_ranges
from sfumato.domain.measures import Measure
from sfumato.domain.ordered import Bins, Integers
from sfumato.domain.predicates import Mask
from sfumato.errors import DomainError

_SHOWN = 4  # predicates in a line that people read; a plan's facts have all of them


@storable
@dataclass(frozen=True, slots=True)
class Domain:
    """Named attributes in order: which cells the records of a table are counted in.

    A cell is one combination of cells of the attributes; cells are numbered in C order (the last attribute runs
    fastest). `size` is the exact number of cells, however large.

    Where an attribute has levels, their names may stand wherever a table's attributes are named: a table over a level
    has a cell for every group.

    A record for which an impossible predicate holds is counted in the nearest cell that can be: as few attributes as
    possible change, the last first, each to the nearest number, and a place only where nothing can be in it. No error
    is raised, because an error would tell of the record. The counts are those of the table so mended, what a person can
    change stays the same, and estimates know that those cells are zero.

    Args:
        attributes: Attributes by name, in order. A whole number n stands for the codes 0 to n - 1.
        impossible: Predicates that hold for no record, such as "age < 20 and retired". Declare them from public
            knowledge before any data are seen: predicates that were learnt from the table would leak.
        measures: Numbers that are summed, by names of their own; they come after the attributes.

    Raises:
        DomainError: There are neither attributes nor measures, one is something else, a name occurs twice, an attribute
            has too many cells, or a predicate cannot be read or holds for no cell.

    >>> place = sf.Hierarchy({"06": ["06001", "06003"], "36": ["36001"]}, levels=["state", "county"])
    >>> domain = sf.Domain({"place": place, "adult": sf.Booleans()})
    >>> domain
    Domain(place: 3, adult: 2; 6 cells)
    >>> domain.names, domain.shape, domain.size
    (('place', 'adult'), (3, 2), 6)
    >>> domain.levels
    {'state': 'place', 'county': 'place'}
    >>> domain["state"].labels
    ('06', '36')
    >>> "state" in domain, domain.owner("state"), domain.sizes(["state", "adult"])
    (True, 'place', (2, 2))
    >>> sf.Domain({f"x{i}": 10 for i in range(40)}).size == 10**40
    True
    >>> ages = sf.Integers(0, 59, width=20)
    >>> known = sf.Domain({"age": ages, "retired": sf.Booleans()}, impossible=["age < 20 and retired"])
    >>> known.possible(["age", "retired"]).tolist()
    [[True, False], [True, True], [True, True]]
    """

    attributes: Mapping[str, Attribute]
    impossible: tuple[str, ...] = deferred_field(())
    tied: tuple[Tied, ...] = field(init=False, repr=False, compare=False)
    _levels: dict[str, tuple[str, Level | None]] = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        attributes: Mapping[str, Attribute | int],
        impossible: Iterable[str] = (),
        *,
        measures: Mapping[str, Measure] | None = None,
    ) -> None:
        given = attributes
        if not isinstance(given, Mapping) or not (given or measures):
            raise DomainError(f"a domain is a non-empty mapping of names to attributes, not {shorten(given)}")
        kept: dict[str, Attribute] = {}
        for name, attribute in given.items():
            check_text(name, "attribute name")
            if isinstance(attribute, (int, np.integer)) and not isinstance(attribute, bool):
                check_cell_limit(int(attribute), f"attribute {shorten(name)}")
                attribute = Integers(0, int(attribute) - 1)
            if not isinstance(attribute, Attribute):
                raise DomainError(
                    f"attribute {shorten(name)} must be sf.Categories, sf.Integers, sf.Bins, sf.Dates, sf.Booleans, "
                    f"sf.Hierarchy or a size, not {shorten(attribute)}"
                )
            kept[name] = attribute
        for name, measure in ({} if measures is None else measures).items():
            check_text(name, "measure name")
            if not isinstance(measure, Measure) or name in kept:
                raise DomainError(f"measures= takes sf.Measure values by names of their own, not {shorten(name)}")
            kept[name] = measure
        # sets of attributes whose cells are counted are told by the first positions
        kept = dict(sorted(kept.items(), key=lambda item: isinstance(item[1], Measure)))
        check_distinct(kept, "attributes")
        levels: list[tuple[str, tuple[str, Level | None]]] = []
        for name, attribute in kept.items():
            levels += [(level.name, (name, level)) for level in attribute.groupings]
            if attribute.cell_level is not None and attribute.cell_level != name:
                levels.append((attribute.cell_level, (name, None)))
        check_distinct([*kept, *(n for n, _ in levels)], "attributes and levels")
        object.__setattr__(self, "attributes", kept)
        object.__setattr__(self, "_levels", dict(levels))
        predicates = cannot.compile_impossible(self, impossible)
        object.__setattr__(self, "impossible", tuple(p.text for p in predicates))
        object.__setattr__(self, "tied", cannot.group_tied_attributes(self, predicates))

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
    def measures(self) -> tuple[str, ...]:
        """The names of the attributes whose numbers are summed; all others have cells that are counted."""
        return tuple(n for n, a in self.attributes.items() if isinstance(a, Measure))

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The names of the attributes whose cells are counted: all but the measures."""
        return tuple(n for n in self.attributes if n not in self.measures)

    @property
    def discovered(self) -> tuple[str, ...]:
        """The names of the attributes whose labels are still to be found."""
        return tuple(n for n, a in self.attributes.items() if isinstance(a, Categories) and a.discover is not None)

    def found(self, labels: Mapping[str, Sequence[Sequence[str]]]) -> Domain:
        """The domain with the labels that were found.

        Args:
            labels: Of each attribute of `discovered` what was shown: the prefixes of each length, if it has any, and
                last the labels.

        Returns:
            A domain in which these are declared.

        Raises:
            DomainError: A label cannot be one, or a name is none of these attributes.
        """
        kept = dict(self.attributes)
        for name, given in labels.items():
            attribute = kept.get(name)
            if not isinstance(attribute, Categories) or attribute.discover is None:
                raise DomainError(f"{name!r} is no attribute whose labels are to be found")
            if len(given) != len(attribute.prefixes) + 1:
                raise DomainError(f"of {name!r} the labels are needed, and the prefixes of each length")
            if attribute.prefixes:
                levels = [*(level for level, _ in attribute.lengths), name]
                kept[name] = nest_labels(given, levels, attribute.missing, attribute.columns)
            else:
                kept[name] = attribute.found(given[0])
        measures = {n: a for n, a in kept.items() if isinstance(a, Measure)}
        return Domain({n: a for n, a in kept.items() if n not in measures}, self.impossible, measures=measures)

    @property
    def drops(self) -> bool:
        """Whether some rows may not be counted at all."""
        return any(a.drops for a in self.attributes.values())

    @property
    def grid(self) -> Grid:
        """The names and the rules of cells, which are all that the curator needs of a domain."""
        # a text of a class that derives from str may compare as it likes
        return Grid(
            tuple("".join((n,)) for n in self.names), tuple(a.rule for a in self.attributes.values()), self.moves()
        )

    @property
    def levels(self) -> dict[str, str]:
        """Names of all levels, each with its attribute's name."""
        return {name: owner for name, (owner, _) in self._levels.items()}

    def grouping(self, name: str) -> Level | None:
        """The level with a name.

        Args:
            name: The name of an attribute or of a level.

        Returns:
            The level, or None for an attribute and for the level of an attribute's own cells.

        Raises:
            DomainError: There is no attribute or level with this name.
        """
        self._listed([name])
        return None if name in self.attributes else self._levels[name][1]

    def groupings(self, attribute: str) -> list[Level]:
        """The levels above the cells of an attribute, coarsest first.

        Args:
            attribute: The name of an attribute.

        Returns:
            Its levels; an empty list where it has none, and for a name that is not an attribute's.
        """
        return [level for owner, level in self._levels.values() if level is not None and owner == attribute]

    def __getitem__(self, name: str) -> Attribute:
        """The attribute called so; of a level, the attribute whose cells are its groups."""
        level = self.grouping(name)
        return self.attributes[self.owner(name)] if level is None else level.attribute

    def __contains__(self, name: object) -> bool:
        """Whether an attribute or a level is called so."""
        return isinstance(name, str) and (name in self.attributes or name in self._levels)

    def __eq__(self, other: object) -> bool:
        # the order of the attributes is the order of the axes
        same = isinstance(other, Domain) and tuple(self.attributes.items()) == tuple(other.attributes.items())
        return same and isinstance(other, Domain) and self.impossible == other.impossible

    def __hash__(self) -> int:
        return hash((tuple(self.attributes.items()), self.impossible))

    def possible(self, names: Iterable[str]) -> Mask | None:
        """Which cells of a table can hold a record.

        Args:
            names: The attributes or levels of the table.

        Returns:
            An array of truth values with one axis per name, or None where every cell can hold a record.

        Raises:
            DomainError: A name is unknown, or two names belong to one attribute.
        """
        return cannot.possible_cells_mask(self, self.tied, self.columns(names))

    def moves(self, names: Iterable[str] | None = None) -> tuple[Moves, ...]:
        """The rules by which records in impossible cells are counted in other cells.

        Args:
            names: The attributes of the table that is counted; all attributes, unless given.

        Returns:
            The rules, which number the attributes by their positions in `names`; empty where nothing is declared
            impossible.

        Raises:
            DomainError: A name is unknown, is that of a level, or occurs twice.
        """
        if not self.impossible:
            return ()
        return cannot.record_moves(self, self.tied, self.names if names is None else self.check_names(names))

    def sizes(self, names: Iterable[str]) -> tuple[int, ...]:
        """The number of cells of each named attribute or level.

        Args:
            names: Names of attributes or levels.

        Returns:
            One number of cells per name, in the order given.

        Raises:
            DomainError: A name is unknown.
        """
        return tuple(self[n].size for n in names)

    def owner(self, name: str) -> str:
        """The attribute that a name belongs to.

        Args:
            name: The name of an attribute or of a level.

        Returns:
            The name itself for an attribute, and the name of its attribute for a level.

        Raises:
            DomainError: There is no attribute or level with this name.
        """
        return self._levels[name][0] if name in self._levels else self.check_names([name])[0]

    def axis(self, name: str) -> int:
        """The position of an attribute in the domain.

        Args:
            name: The name of an attribute.

        Returns:
            Its position, counted from 0.

        Raises:
            DomainError: There is no attribute with this name.
        """
        self.check_names([name])
        return self.names.index(name)

    def check_counted(self, names: Iterable[str]) -> None:
        """Refuse the names of measures, which have no cells to count.

        Args:
            names: Names of attributes or levels.

        Raises:
            DomainError: One of them is a measure.
        """
        for name in names:
            if name in self.measures:
                raise DomainError(
                    f"{name!r} is a measure, which is summed and not counted: ask sf.means(domain, {name!r}, by=[...]) "
                    "or sf.sums, or declare sf.Bins of the same column beside it, under another name"
                )

    def check_names(self, names: Iterable[str]) -> tuple[str, ...]:
        """Check names of attributes.

        Args:
            names: Names of attributes; levels are refused.

        Returns:
            The names as a tuple, in the order given.

        Raises:
            DomainError: A name is unknown, is that of a level, or occurs twice.
        """
        result = self._listed(names)
        for name in result:
            if name not in self.attributes:
                raise DomainError(f"{name!r} is a level of {self._levels[name][0]!r}; name the attribute here")
        if len(set(result)) != len(result):
            raise DomainError(f"an attribute is named twice in {result}")
        return result

    def columns(self, names: Iterable[str]) -> tuple[str, ...]:
        """Check names of attributes or levels.

        Args:
            names: Names of attributes or levels.

        Returns:
            The names as a tuple, in the order given; the level of an attribute's own cells goes by the attribute's
            name.

        Raises:
            DomainError: A name is unknown, or two names belong to one attribute.

        >>> place = sf.Hierarchy({"06": ["06001", "06003"], "36": ["36001"]}, levels=["state", "county"])
        >>> domain = sf.Domain({"place": place, "adult": sf.Booleans()})
        >>> domain.columns(["adult", "county"])
        ('adult', 'place')
        >>> domain.ordered(["adult", "state"])
        ('state', 'adult')
        >>> domain.columns(["state", "county"])
        Traceback (most recent call last):
            ...
        sfumato.errors.DomainError: 'state' and 'county' are levels of one attribute, 'place'; name the finer one
        alone: its cells add up to those of the coarser
        """
        given = self._listed(names)
        owners: dict[str, str] = {}
        for name in given:
            owner = self.owner(name)
            if owner in owners and owners[owner] == name:
                raise DomainError(f"{name!r} is named twice in {given}")
            if owner in owners:
                raise DomainError(
                    f"{owners[owner]!r} and {name!r} are levels of one attribute, {owner!r}; name the finer one alone: "
                    "its cells add up to those of the coarser"
                )
            owners[owner] = name
        return tuple(n if n in self.attributes or self._levels[n][1] is not None else self.owner(n) for n in given)

    def _listed(self, names: Iterable[str]) -> tuple[str, ...]:
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise DomainError(
                f"attributes are given as a list of names, such as [{self.names[0]!r}], not {shorten(names)}"
            )
        result = tuple(names)
        for name in result:
            if name not in self:
                known = ", ".join((*self.names, *(f"{n} (a level of {o})" for n, o in self.levels.items())))
                raise DomainError(f"no attribute is called {shorten(name)}; there are {known}")
        return result

    def ordered(self, names: Iterable[str]) -> tuple[str, ...]:
        """Check names of attributes or levels, and put them in the order of the domain.

        Args:
            names: Names of attributes or levels.

        Returns:
            The names as `columns` gives them, in the order of their attributes.

        Raises:
            DomainError: A name is unknown, or two names belong to one attribute.
        """
        return tuple(sorted(self.columns(names), key=lambda n: self.names.index(self.owner(n))))

    def told(self) -> Iterator[tuple[str, str]]:
        """What a plan or a release says of impossible cells where it explains itself.

        Returns:
            At most one pair of a heading and a sentence; none where nothing is declared impossible.
        """
        if self.impossible:
            more = f" and {len(self.impossible) - _SHOWN:,} more" if len(self.impossible) > _SHOWN else ""
            listed = "; ".join(self.impossible[:_SHOWN])
            yield "impossible", f"{listed}{more}: a record of which it is said counts in the nearest cell that can be"

    def __repr__(self) -> str:
        inside = ", ".join(f"{n}: {self.attributes[n].size}" for n in self.dimensions)
        summed = f"; measures {', '.join(self.measures)}" if self.measures else ""
        cannot_be = f"; {show_count(len(self.impossible))} impossible" if self.impossible else ""
        cells = math.prod(self.attributes[n].size for n in self.dimensions)
        return f"Domain({inside}; {show_count(cells)} cells{cannot_be}{summed})"


_YEARS = (1800, 2200)  # whole numbers that all lie here are read as years
_YEAR = re.compile(r"(?<![^\W\d_])year(?![^\W\d_])", re.IGNORECASE)  # the word, also in birth_year; not in years
_NAMED = 1000  # a year of school has no thousands to mark, and its mean says something


def is_year(domain: Domain, name: str) -> bool:
    """Whether an attribute holds calendar years: all its cells are whole numbers from 1800 to 2200, or it is named so.

    Edges of a level of whole numbers are whole too.
    """
    attribute, owner = domain[name], domain.owner(name)
    ends = attribute.intervals
    if ends is None or domain[owner].kind != "integer":
        return False
    low, high = ends[0][0], ends[-1][1] - 1
    named = _YEAR.search(name) or _YEAR.search(owner)
    return (low >= _YEARS[0] and high <= _YEARS[1]) or (named is not None and high >= _NAMED)


def has_unequal_widths(attribute: Attribute) -> bool:
    """Whether an attribute's cells are classes of numbers of several widths, which bars of counts would misstate."""
    ends = attribute.intervals
    return ends is not None and len({float(high - low) for low, high in ends}) > 1


def cell_texts(domain: Domain, name: str) -> list[str]:
    """One text for each cell, the extra one included: of numbers in words and with thousands marks, of others the
    declared labels."""
    attribute = domain[name]
    if attribute.intervals is None:
        return [safe_text(label) for label in attribute.labels]
    whole, year = domain[domain.owner(name)].kind == "integer", is_year(domain, name)
    found = [_range_words(low, high, whole=whole, year=year) for low, high in attribute.intervals]
    if isinstance(attribute, Bins) and attribute.holds_last and not whole:
        low, high = attribute.intervals[-1]
        found[-1] = f"{format_with_thousands(low)} to {format_with_thousands(high)}"
    return found + [OTHER] * attribute.has_other


def range_text(domain: Domain, name: str) -> str:
    """The declared range of an attribute of numbers, from its first to its last."""
    declared = domain[name]
    if isinstance(declared, Measure):
        return f"{format_with_thousands(declared.low)} to {format_with_thousands(declared.high)}"
    ends = declared.intervals
    assert ends is not None
    year = is_year(domain, name)
    last = ends[-1][1] - (1 if domain[domain.owner(name)].kind == "integer" else 0)
    return " to ".join(str(x) if year else format_with_thousands(x) for x in (ends[0][0], last))


def range_restriction(domain: Domain, name: str) -> str:
    """Of which records, or of which values, a mean or sum is, where some may lie outside the range; "" where none may.

    What is outside is cut to the range, counted as (other), or not counted: nothing measured says how far out it is.
    """
    attribute = domain[name]
    if cell_value_ranges(attribute) is None or attribute.outside is None:
        return ""
    if attribute.outside == "clamp":
        return f"of values cut to {range_text(domain, name)}"
    return f"of records from {range_text(domain, name)}"


def _range_words(low: Number, high: Number, *, whole: bool, year: bool) -> str:
    if not whole:
        return f"{format_with_thousands(low)} to under {format_with_thousands(high)}"
    first, last = (str(x) if year else format_with_thousands(x) for x in (low, high - 1))
    return first if first == last else f"{first} to {last}"


def format_with_thousands(value: Number) -> str:
    """As it is declared, to the last digit; thousands apart."""
    text = show_number(value)
    head, point, tail = text.lstrip("-").partition(".")
    marked = f"{int(head):,}" if head.isdecimal() else head
    return f"{'−' * text.startswith('-')}{marked}{point}{tail}"
