"""Attributes: the public cells of a table's columns, declared and never inferred, and the groups they nest in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray

from sfumato._util.bundles import check_text, shorten
from sfumato._util.checks import Number, read_number, show_count, show_number
from sfumato._util.codec import deferred_field, storable
from sfumato._util.text import comparable_text, normalize_nfc
from sfumato.cells import BETWEEN, EDITION, MAX_CELLS, Codes, Rule, Truths, check_read_together
from sfumato.errors import DomainError

Outside = Literal["other", "clamp", "drop"]
Missing = Literal["other", "drop"]

OTHER = "(other)"
TO_BE_FOUND = "(to be found)"
NONE_FOUND = "(none found)"
MOST_FOUND = 100_000  # labels: tables over more fit no plan
MOST_UNDER_PREFIXES = 10_000  # of labels and of each of their prefixes, which have cells too
MOST_PREFIXES = 3  # a look each; codes that nest have seldom more levels
MOST_LETTERS = 32  # of a prefix: codes are shorter than names
MAX_LEVELS = 16  # classifications of statistical offices have some four to six


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """A column with a declared, finite set of cells.

    `outside` says what becomes of values outside the declaration, `missing` of absent ones: "other"
    (one extra, last cell serves both), "clamp" (numbers only, to the nearest cell) or "drop" (the
    row is not counted). Undeclared policies add no cell; a table of rows is then refused. `edition` says by which
    rules values are read: attributes that 0.2 stored keep its own (`cells.EDITION`).
    """

    kind: ClassVar[str] = ""
    ordered: ClassVar[bool] = False
    outside: Outside | None = None
    missing: Missing | None = None
    edition: int = deferred_field(EDITION, before=1)

    def settle(self, *, alike: bool) -> None:
        """Take the first edition where both editions read every value alike, so that such attributes are equal.

        Args:
            alike: Whether both editions read every value alike.
        """
        if alike:
            object.__setattr__(self, "edition", 1)

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
    def rule(self) -> Rule:
        """The rule by which a value of the table is counted in a cell."""
        raise AttributeError

    @property
    def intervals(self) -> tuple[tuple[Number, Number], ...] | None:
        """For numeric attributes the interval [low, high) of each cell, else None; the last bin holds high too."""
        return None

    @property
    def midpoints(self) -> tuple[float, ...] | None:
        """For numeric attributes a representative value of each declared cell, else None."""
        return None

    @property
    def groupings(self) -> tuple[Level, ...]:
        """The levels above the cells, coarsest first; none unless declared."""
        return ()

    @property
    def cell_level(self) -> str | None:
        """The name of the level of the cells themselves, where it has a name of its own; else None."""
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """A coarser reading of an attribute: its cells in groups, which are the cells of another attribute.

    Args:
        name: The name of the level.
        attribute: The attribute whose cells are the groups.
        groups: (cells of the finer attribute,) the group of each. The extra cell is a group of its own.
    """

    name: str
    attribute: Attribute
    groups: NDArray[np.int64]

    @classmethod
    def of(cls, name: str, attribute: Attribute, declared: NDArray[np.int64]) -> Level:
        """A level from the groups of the declared cells.

        Args:
            name: The name of the level.
            attribute: The attribute whose cells are the groups.
            declared: (declared cells of the finer attribute,) the group of each.

        Returns:
            The level.
        """
        extra = [attribute.declared_size] if attribute.has_other else []
        groups = np.concatenate([declared, np.array(extra, dtype=np.int64)])
        groups.flags.writeable = False
        return cls(name, attribute, groups)


def check_policies(outside: object, missing: object, *, numeric: bool) -> None:
    """Refuse policies that are none, or that this kind of attribute cannot have."""
    allowed = ("other", "clamp", "drop") if numeric else ("other", "drop")
    if outside is not None and outside not in allowed:
        raise DomainError(f"outside={outside!r} is not allowed here; use one of {', '.join(allowed)}")
    if missing is not None and missing not in ("other", "drop"):
        raise DomainError(f"missing={missing!r} is not allowed; use 'other' or 'drop'")


def check_cell_limit(count: int, what: str) -> None:
    """Refuse no cells, and too many."""
    if count < 1:
        raise DomainError(f"{what} declares no cell")
    if count > MAX_CELLS:
        raise DomainError(
            f"{what} declares {show_count(count)} cells; at most {MAX_CELLS:,} are allowed, use wider ones"
        )


@storable
@dataclass(frozen=True, slots=True)
class Categories(Attribute):
    """A finite set of codes, each with a label.

    Codes of one label share its cell; cells stand in the order in which their labels appear first. Letters that Unicode
    writes in two ways are the same in any case (form NFC).

    Args:
        values: The codes, as a list, or a mapping from codes to labels. Without a mapping a code is its own label. Left
            out with `discover`.
        case: "exact", or "ignore" where capitals make no difference (GROSS is Groß).
        trim: Whether blanks around a text make no difference.
        outside: What happens to a value that is not declared: "other" counts it in one extra, last cell, "drop" leaves
            the row out, None refuses a table of rows.
        missing: What happens to a missing value: "other", "drop" or None, in the same sense. One extra cell serves
            both.
        edition: By which rules values are read. Leave it out; attributes that version 0.2 stored keep its rules.
        discover: For labels that nobody listed: the share of the budget, between 0 and 1, that finds which occur. A
            plan with such an attribute takes two looks, both paid for before the first: the labels that enough persons
            have, then the tables over these. What is not shown counts as `outside`, which is "other".
        most: How many labels are shown at most, where they are discovered: from 1 to 100,000.
        prefixes: Names and numbers of letters, such as {"chapter": 1, "group": 3}, where labels that are to be found
            are codes that nest: beginnings are looked for first, longer ones under those that were shown alone, labels
            last. What is found is a hierarchy with these levels; what begins as a shown group and is not shown itself
            counts there, in a cell "GROUP (other)". At most 10,000 labels then. With `columns` the letters are those of
            the first column's text.
        columns: Two to four columns whose texts are read together, as one label: "E11 | insulin" of a diagnosis and a
            product. With `discover` the pairs are found that enough persons have, which is cheaper than to find the
            labels of each and to count every combination. A row counts as missing where one of them is; a text with
            "|" in it is part of no label.

    Raises:
        DomainError: There are no codes, a code is declared twice, two texts of different cells are compared as one, or
            an option is not allowed.

    >>> sf.Categories(["north", "south"], outside="other").labels
    ('north', 'south', '(other)')
    >>> sex = sf.Categories({"1": "female", "2": "male", "F": "female"})
    >>> sex.codes, sex.labels
    (('1', '2', 'F'), ('female', 'male'))
    >>> sf.Categories(discover=0.2, missing="other").labels
    ('(to be found)', '(other)')
    """

    kind: ClassVar[str] = "category"
    values: Mapping[str, str] | Sequence[object] = ()
    case: Literal["exact", "ignore"] = deferred_field("exact")
    trim: bool = deferred_field(False)
    discover: Fraction | None = deferred_field(None)  # noqa: RUF009  (as dataclasses.field is)
    most: int = deferred_field(1_000, before=1_000)
    prefixes: Mapping[str, int] | Sequence[tuple[str, int]] = deferred_field(())
    columns: Sequence[str] = deferred_field(())
    _labels: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _places: dict[str, int] = field(init=False, repr=False, compare=False)
    _names: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.discover is None and len(self.prefixes):
            raise DomainError("prefixes= is for labels that are to be found: give discover= too")
        self._check_columns()
        given = self.values if self.discover is None else self._to_be_found()
        if isinstance(given, (str, bytes)) or not isinstance(given, (Mapping, Sequence)):
            raise DomainError(f"categories must be a list of values or a mapping code -> label, not {shorten(given)}")
        check_cell_limit(len(given), "a category attribute")
        if self.case not in ("exact", "ignore") or not isinstance(self.trim, bool):
            raise DomainError("case is 'exact' or 'ignore', and trim is True or False")
        pairs = given.items() if isinstance(given, Mapping) else ((v, v) for v in given)
        values = {}
        for code, label in pairs:
            key = normalize_nfc(read_code(code)) if self.edition > 1 else read_code(code)
            if key in values:
                raise DomainError(f"category {key!r} is declared twice (1, '1' and 1.0 are one code)")
            text = key if label is code else check_text(read_code(label), "category label")
            values[key] = normalize_nfc(text) if self.edition > 1 else text
        if OTHER in values.values():
            raise DomainError(f"the label {OTHER!r} is reserved for the extra cell")
        check_policies(self.outside, self.missing, numeric=False)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "_labels", tuple(dict.fromkeys(values.values())))
        cells = {label: i for i, label in enumerate(self._labels)}
        texts = {t: self._read(t) for t in (values.keys() | cells.keys())}
        object.__setattr__(self, "_places", self._placed(cells, texts))
        object.__setattr__(self, "_names", {texts[t]: i for t, i in cells.items()} | self._places)
        # of labels that are to be found nobody knows whether they are plain
        plain = self.discover is None and not self.columns and all(map(str.isascii, values))
        self.settle(alike=self.case == "exact" and not self.trim and plain)

    def _check_columns(self) -> None:
        """Read the columns whose texts are one label, and refuse codes that are none of them."""
        columns = read_joined_columns(self.columns)
        object.__setattr__(self, "columns", columns)
        if not columns:
            return
        if self.edition < 2:
            raise DomainError("labels of several columns are read by the rules of today: leave out edition=")
        check_joined([c for c in self.values if c != NONE_FOUND] if self.discover is None else (), columns)

    def _to_be_found(self) -> tuple[str]:
        """The one code that stands for all, so that tables over them can be asked. Checks what goes with `discover`."""
        try:
            share = read_exact_share(self.discover)
        except (TypeError, ValueError, ZeroDivisionError):
            share = Fraction(0)
        if not 0 < share < 1 or type(self.most) is not int or not 1 <= self.most <= MOST_FOUND:
            raise DomainError(
                "discover= is the share of the budget that finds labels, between 0 and 1, such as 0.2, and most= how "
                f"many are shown at most, a whole number from 1 to {MOST_FOUND:,}; not {shorten(self.discover)} and "
                f"{shorten(self.most)}"
            )
        if len(self.values) and tuple(self.values) != (TO_BE_FOUND,):
            raise DomainError("categories are declared by values or found by discover=; leave out one of them")
        if self.outside not in (None, "other") or self.case != "exact" or self.edition < 2:
            raise DomainError(
                "labels that are found are told apart by their capitals, and those that are not shown count in (other):"
                " leave out case= and outside="
            )
        object.__setattr__(self, "outside", "other")
        object.__setattr__(self, "discover", share)
        object.__setattr__(self, "prefixes", self._read_prefixes())
        return (TO_BE_FOUND,)

    def _read_prefixes(self) -> tuple[tuple[str, int], ...]:
        """Names of levels and their numbers of letters, from short to long."""
        given = self.prefixes
        if isinstance(given, (str, bytes)) or not isinstance(given, (Mapping, Sequence)):
            raise DomainError(f'prefixes= names levels with their letters, {{"group": 3}}, not {shorten(given)}')
        pairs = list(given.items()) if isinstance(given, Mapping) else list(given)
        letters = [pair[1] for pair in pairs]
        if not all(type(n) is int and 1 <= n <= MOST_LETTERS for n in letters) or letters != sorted({*letters}):
            raise DomainError(
                f"prefixes= are longer and longer, each of 1 to {MOST_LETTERS} letters, not {shorten(letters)}"
            )
        if len(pairs) > MOST_PREFIXES or (pairs and (self.trim or self.most > MOST_UNDER_PREFIXES)):
            raise DomainError(
                f"at most {MOST_PREFIXES} prefixes are looked for, with most={MOST_UNDER_PREFIXES:,} or less, and "
                "without trim="
            )
        return tuple((check_text(name, "a level's name"), n) for name, n in pairs)

    def found(self, labels: Sequence[str]) -> Categories:
        """The same attribute with the labels that were found, each its own code.

        Args:
            labels: The labels, in the order of their cells; none leave "(other)" and one cell that stays empty.

        Returns:
            An attribute with declared cells.

        Raises:
            DomainError: A label cannot be one.
        """
        # an attribute has a cell besides (other)
        values = tuple(labels) or (NONE_FOUND,)
        return replace(self, values=values, discover=None, most=1_000, prefixes=())

    @property
    def lengths(self) -> tuple[tuple[str, int], ...]:
        """The levels of labels that are to be found by their prefixes, with their numbers of letters."""
        return cast(tuple[tuple[str, int], ...], self.prefixes)

    def _read(self, text: str) -> str:
        """A text as it is compared."""
        return comparable_text(text, trim=self.trim, ignore_case=self.case == "ignore") if self.edition > 1 else text

    def _placed(self, cells: dict[str, int], texts: dict[str, str]) -> dict[str, int]:
        """The cell of every code as it is compared: `texts`. Refuses texts of two cells that are compared as one."""
        labels = {texts[label]: label for label in reversed(cells)}
        for label in cells:
            if labels[texts[label]] != label:
                other = labels[texts[label]]
                raise DomainError(f"the labels {other!r} and {label!r} are one text, as texts are read here")
        found: dict[str, int] = {}
        first: dict[str, str] = {}
        for code, label in self._mapping.items():
            text = texts[code]
            if text == "":
                raise DomainError("a code that is blank alone is no code where blanks are trimmed")
            if found.setdefault(text, cells[label]) != cells[label]:
                raise DomainError(
                    f"{first[text]!r} and {code!r} are one text, as texts are read here, and have two labels, "
                    f"{self._labels[found[text]]!r} and {label!r}"
                )
            first.setdefault(text, code)
        for code, label in self._mapping.items():
            if found.get(texts[label], cells[label]) != cells[label]:
                raise DomainError(f"{shorten(label)} is a code and also the label of another code, {code!r}")
        return found

    def cell_of(self, text: str) -> int | None:
        """The declared cell of a code or of a label.

        Args:
            text: A code or a label.

        Returns:
            The position of its cell, or None where it is neither.
        """
        return self._names.get(self._read(text))

    @property
    def declared_size(self) -> int:
        return len(self._labels)

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes that the table may hold, as text; every declared cell has at least one."""
        return tuple(self._mapping)

    @property
    def code_labels(self) -> dict[str, str]:
        """The label of each code."""
        return dict(self._mapping)

    @property
    def rule(self) -> Rule:
        cells = tuple(self._places.values())
        return Codes(
            kind=self.kind,
            outside=self.outside,
            missing=self.missing,
            edition=self.edition,
            codes=tuple(self._places),
            cells=() if cells == tuple(range(len(cells))) else cells,
            trim=self.trim,
            ignore_case=self.case == "ignore",
            columns=tuple(self.columns),
        )

    @property
    def declared_labels(self) -> tuple[str, ...]:
        return self._labels

    @property
    def _mapping(self) -> dict[str, str]:
        # __post_init__ turned whatever was given into a dict of texts
        return cast(dict[str, str], self.values)

    def _key(self) -> tuple[object, ...]:
        own = (self.outside, self.missing, self.edition, self.case, self.trim, self.discover, self.most)
        own = (*own, self.prefixes, self.columns)
        return (tuple(self._mapping.items()), *own)

    def __eq__(self, other: object) -> bool:
        # the order of the codes is the order of the cells; two dicts in other orders would count as equal
        return isinstance(other, Categories) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


def read_joined_columns(given: object) -> tuple[str, ...]:
    """The columns whose texts are one label, as `columns=` names them; none where it is empty. Raises DomainError."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise DomainError(f'columns= names columns, ["diagnosis", "product"], not {shorten(given)}')
    columns = tuple(check_text(name, "a column's name") for name in given)  # pyright: ignore[reportUnknownVariableType]
    if columns:
        check_read_together(columns)
    return columns


def check_joined(codes: Iterable[object], columns: Sequence[str]) -> None:
    """Refuse codes that are no texts of so many columns, put together. Raises DomainError."""
    for code in codes:
        parts = code.split(BETWEEN) if isinstance(code, str) else []
        if len(parts) != len(columns) or BETWEEN.strip() in "".join(parts):
            raise DomainError(
                f"a code of {len(columns)} columns is their texts, parted by {BETWEEN!r}, not {shorten(code)}"
            )


def read_exact_share(value: object) -> Fraction:
    """A share as it was written: a float counts as its shortest decimal text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal, Fraction)):
        raise TypeError
    return Fraction(str(value)) if isinstance(value, (float, Decimal)) else Fraction(value)


def read_code(value: object) -> str:
    """What a table holds for a category, as text: whole numbers as "1" however they are given."""
    if isinstance(value, str):
        return check_text(str(value), "category")
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.number, Decimal, Fraction)):
        raise DomainError(
            f"a category must be a text or a number, not {shorten(value)}; for true/false use sf.Booleans()"
        )
    return show_number(read_number(value, "a category"))


@storable
@dataclass(frozen=True, slots=True)
class Booleans(Attribute):
    """True or false; the texts true/false, t/f, yes/no, y/n and 1/0 are read in any case.

    Args:
        outside: What happens to a value that is neither: "other" counts it in one extra, last cell, "drop" leaves the
            row out, None refuses a table of rows.
        missing: What happens to a missing value: "other", "drop" or None, in the same sense. One extra cell serves
            both.
        edition: By which rules values are read. Leave it out.

    Raises:
        DomainError: `outside` or `missing` is not allowed.

    >>> sf.Booleans(missing="other").labels
    ('false', 'true', '(other)')
    """

    kind: ClassVar[str] = "boolean"

    def __post_init__(self) -> None:
        check_policies(self.outside, self.missing, numeric=False)
        self.settle(alike=True)

    @property
    def rule(self) -> Rule:
        return Truths(kind=self.kind, outside=self.outside, missing=self.missing, edition=1)

    @property
    def declared_labels(self) -> tuple[str, ...]:
        return ("false", "true")
