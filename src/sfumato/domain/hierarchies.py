"""Hierarchies: codes in nested groups, such as counties in states, each level with a name of its own."""

from __future__ import annotations

import csv
import io
import itertools
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, ClassVar, cast

import numpy as np

from sfumato._util.bundles import check_text, shorten
from sfumato._util.checks import check_distinct, read_text
from sfumato._util.codec import deferred_field, storable
from sfumato._util.text import normalize_nfc
from sfumato.cells import Codes, Rule
from sfumato.domain.attributes import (
    MAX_LEVELS,
    NONE_FOUND,
    OTHER,
    Attribute,
    Categories,
    Level,
    check_joined,
    check_policies,
    read_code,
    read_joined_columns,
)
from sfumato.errors import DomainError, SpecError

_MAX_ROWS = 1_000_000  # finest codes: rows are Python values, a million of them some hundred MB
_MAX_BYTES = 64 * 2**20  # a million codes with their parents, 64 bytes each
_LABEL = " label"

Row = tuple[str, ...]
Source = str | PathLike[str] | Mapping[Any, Any] | Sequence[Sequence[object]]
Names = Mapping[str, Mapping[Any, str]] | Sequence[tuple[str, Sequence[tuple[str, str]]]]
_Kept = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]


@storable
@dataclass(frozen=True, slots=True, repr=False)
class Hierarchy(Attribute):
    """Codes in nested groups; the cells are those of the finest level, whose codes are what a table holds.

    A code stands for one group of its level: a finest code stands in one row, and no code has two parents. Two counties
    of one name therefore need codes of their own (as in FIPS). The content of a file is read at once and is what is
    stored and fingerprinted; its path is not.

    Args:
        source: Which group holds which, one code per level: the path of a CSV file with one column per level, named as
            the level, and beside it, where wanted, a column "<level> label"; a nested mapping such as {"06": ["06001",
            "06003"]}, whose innermost lists may map codes to labels; or rows such as [("06", "06001"), ("06",
            "06003")].
        levels: The names of the levels from coarse to fine. Only a CSV file may go without them: its columns are then
            the levels.
        code_labels: By level, a mapping from codes to the labels that people read. A label that occurs twice in a level
            is shown with its parent's.
        outside: What happens to a code that is not declared: "other" counts it in one extra, last cell, "drop" leaves
            the row out, None refuses a table of rows.
        missing: What happens to a missing value: "other", "drop" or None, in the same sense. One extra cell serves
            both.
        edition: By which rules values are read. Leave it out; attributes that version 0.2 stored keep its rules.
        beginnings: Texts with a finest code each, in whose cell counts what is no code and begins with the text; of
            several, with the longest. Labels that were found by their prefixes have them.
        columns: Two to four columns whose texts are read together, as one code: "E11 | insulin".

    Raises:
        DomainError: The file cannot be read, a code has two parents or is declared twice, two levels group alike, or
            labels are given for codes that are not declared.

    >>> place = sf.Hierarchy({"06": ["06001", "06003"], "36": ["36001"]}, levels=["state", "county"])
    >>> place
    Hierarchy(state: 2 > county: 3; outside=None, missing=None)
    >>> place.labels
    ('06001', '06003', '36001')
    """

    kind: ClassVar[str] = "hierarchy"
    source: Source
    levels: Sequence[str] | None = None
    code_labels: Names = ()
    beginnings: tuple[tuple[str, str], ...] = deferred_field(())
    columns: Sequence[str] = deferred_field(())
    _cells: Categories = field(init=False, compare=False)
    _groupings: tuple[Level, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        check_policies(self.outside, self.missing, numeric=False)
        levels = None if self.levels is None else _read_level_names(self.levels)
        names = _read_labels(self.code_labels)
        given = self.source
        if isinstance(given, (str, PathLike)):
            levels, rows, found = _read_hierarchy_csv(given, levels)
        elif levels is None:
            raise DomainError('levels= names the levels from coarse to fine, such as ["state", "county"]')
        elif isinstance(given, Mapping):
            rows, found = _flatten_mapping(given, levels)
        else:
            rows, found = _read_code_rows(given, levels), {}
        for level, labels in found.items():
            if level in names:
                raise DomainError(f"the labels of {level!r} are given twice: with the codes and by code_labels=")
            names[level] = labels
        if self.edition > 1:
            rows = [tuple(map(normalize_nfc, row)) for row in rows]
            names = {n: {normalize_nfc(code): label for code, label in some.items()} for n, some in names.items()}
        labelled = _labels_by_level(rows, levels, names, were_found=bool(self.beginnings))
        self.settle(alike=not self.beginnings and not self.columns and all(row[-1].isascii() for row in rows))
        policies: dict[str, Any] = {"outside": self.outside, "missing": self.missing, "edition": self.edition}
        attributes = [Categories(labels, **policies) for labels in labelled]
        for name, labels, attribute in zip(levels, labelled, attributes, strict=True):
            if attribute.declared_size < len(labels):
                raise DomainError(f"two codes of {name!r} have the same label; labels must be distinct in their level")
        _check_sizes(levels, attributes)
        groupings: list[Level] = []
        for depth, name in enumerate(levels[:-1]):
            place = {code: i for i, code in enumerate(labelled[depth])}
            groups = np.fromiter(map(place.__getitem__, map(operator.itemgetter(depth), rows)), np.int64, len(rows))
            groupings.append(Level.of(name, attributes[depth], groups))
        finest = {row[-1] for row in rows}
        if not all(type(text) is str and text and code in finest for text, code in self.beginnings):
            raise DomainError("a beginning is a text, and what begins with it counts in the cell of a finest code")
        self._check_columns([row[-1] for row in rows])
        kept = tuple((n, tuple(names[n].items())) for n in levels if n in names)
        for key, value in (("source", tuple(rows)), ("levels", levels), ("code_labels", kept)):
            object.__setattr__(self, key, value)
        object.__setattr__(self, "_cells", attributes[-1])
        object.__setattr__(self, "_groupings", tuple(groupings))

    def _check_columns(self, codes: Iterable[str]) -> None:
        """Read the columns whose texts are one code, and refuse codes that are none of them."""
        columns = read_joined_columns(self.columns)
        object.__setattr__(self, "columns", columns)
        if columns:
            # cells of what was not shown, and those that stay empty, are no texts of a row
            rests = {code for _, code in self.beginnings}
            check_joined((c for c in codes if c not in rests and not c.startswith(NONE_FOUND)), columns)

    @property
    def rows(self) -> tuple[Row, ...]:
        """One code per level for every declared cell."""
        return cast(tuple[Row, ...], self.source)

    @property
    def level_names(self) -> tuple[str, ...]:
        """The levels from coarse to fine."""
        return cast(tuple[str, ...], self.levels)

    @property
    def level_labels(self) -> dict[str, dict[str, str]]:
        """Labels by level and code, where they were declared."""
        kept = cast(_Kept, self.code_labels)
        return {level: dict(labels) for level, labels in kept}

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes that the table may hold, as text; every declared cell has one."""
        return self._cells.codes

    def cell_of(self, text: str) -> int | None:
        """The declared cell of a finest code or of its label.

        Args:
            text: A code or a label of the finest level.

        Returns:
            The position of its cell, or None where it is neither.
        """
        return self._cells.cell_of(text)

    @property
    def rule(self) -> Rule:
        policies: dict[str, Any] = {"outside": self.outside, "missing": self.missing, "edition": self.edition}
        cells = {code: i for i, code in enumerate(self.codes)} if self.beginnings else {}
        policies["prefixes"] = tuple(text for text, _ in self.beginnings)
        policies["prefix_cells"] = tuple(cells[code] for _, code in self.beginnings)
        return Codes(kind=self.kind, codes=self.codes, columns=tuple(self.columns), **policies)

    @property
    def declared_size(self) -> int:
        return self._cells.declared_size

    @property
    def declared_labels(self) -> tuple[str, ...]:
        return self._cells.declared_labels

    @property
    def groupings(self) -> tuple[Level, ...]:
        return self._groupings

    @property
    def cell_level(self) -> str:
        return self.level_names[-1]

    def __repr__(self) -> str:
        sizes = [*(level.attribute.declared_size for level in self._groupings), self.declared_size]
        inside = " > ".join(f"{n}: {s:,}" for n, s in zip(self.level_names, sizes, strict=True))
        return f"Hierarchy({inside}; outside={self.outside!r}, missing={self.missing!r})"


def nest_labels(
    found: Sequence[Sequence[str]], levels: Sequence[str], missing: Any, columns: Sequence[str] = ()
) -> Hierarchy:
    """Labels that were found by their prefixes, nested.

    Args:
        found: What was shown: the prefixes of each level, from short to long, and last the labels. Each begins with one
            of the level before.
        levels: The names of these, from coarse to fine.
        missing: What happens to a missing value.
        columns: The columns whose texts together are the labels, if there are several.

    Returns:
        A hierarchy in which every prefix has a cell for what begins with it and was not shown.
    """
    *above, labels = found
    last = len(levels)
    letters = [len(texts[0]) if texts else 0 for texts in above]
    rows: list[Row] = [(*(text[:n] for n in letters), text) for text in labels]
    rest: list[tuple[str, str]] = []
    for depth, texts in enumerate(above, start=1):
        for text in texts:
            rest.append((text, f"{text} {OTHER}"))
            rows.append((*(text[:n] for n in letters[:depth]), *[rest[-1][1]] * (last - depth)))
    # levels that group alike are refused: where nothing was shown of one, an empty cell tells it from the one before
    parents = rows[-1] if rows else (NONE_FOUND,) * last
    rows = rows or [parents]
    for depth in range(1, last):
        if not found[depth]:
            rows.append((*parents[:depth], *[f"{NONE_FOUND} {depth}"] * (last - depth)))
    return Hierarchy(rows, levels, outside="other", missing=missing, beginnings=tuple(rest), columns=columns)


def _read_level_names(given: object) -> tuple[str, ...]:
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        raise DomainError(f'levels= is a list of names from coarse to fine, such as ["state", "county"], not {given!r}')
    if not 2 <= len(given) <= MAX_LEVELS:
        raise DomainError(f"a hierarchy has 2 to {MAX_LEVELS} levels, not {len(given)}; for one, use sf.Categories")
    levels = tuple(check_text(name, "a level's name") for name in given)
    check_distinct(levels, "levels")
    return levels


def _read_labels(given: object) -> dict[str, dict[str, str]]:
    """Declared labels by level and code; what was stored comes as pairs."""
    refusal = f"code_labels= maps levels to mappings of codes to labels, not {shorten(given)}"
    read: dict[str, dict[str, str]] = {}
    for level, labels in _mapping_pairs(given, refusal):
        read[level] = {}
        for code, label in _mapping_pairs(labels, refusal):
            key = read_code(code)
            if key in read[level]:
                raise DomainError(f"the code {key!r} of {level!r} has two labels")
            read[level][key] = check_text(label, "a label")
    return read


def _mapping_pairs(given: object, refusal: str) -> list[tuple[Any, Any]]:
    pairs = list(given.items()) if isinstance(given, Mapping) else given
    if not isinstance(pairs, (list, tuple)) or not all(isinstance(p, (list, tuple)) and len(p) == 2 for p in pairs):
        raise DomainError(refusal)
    return [(k, v) for k, v in pairs]


def _read_code_rows(given: object, levels: Row) -> list[Row]:
    refusal = f"a row of a hierarchy lists one code for each of {', '.join(levels)}"
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)):
        raise DomainError(
            f"a hierarchy is the path of a CSV file, a nested mapping or a list of rows, not {shorten(given)}"
        )
    rows: list[Row] = []
    for row in itertools.islice(given, _MAX_ROWS + 1):
        if isinstance(row, (str, bytes)) or not isinstance(row, Sequence) or len(row) != len(levels):
            raise DomainError(f"{refusal}; this is none: {shorten(row)}")
        rows.append(tuple(map(read_code, row)))
    return rows


def _flatten_mapping(tree: Mapping[Any, Any], levels: Row) -> tuple[list[Row], dict[str, dict[str, str]]]:
    """The rows of a nested mapping, and the labels of its innermost ones."""
    labels: dict[str, str] = {}

    def walk(inside: object, path: Row) -> Iterator[Row]:
        depth, where = len(path), f" in {path[-1]!r}" if path else ""
        last = depth == len(levels) - 1
        if isinstance(inside, Mapping):
            codes = [read_code(code) for code in inside]
        elif last and isinstance(inside, Sequence) and not isinstance(inside, (str, bytes)):
            codes = [read_code(code) for code in itertools.islice(inside, _MAX_ROWS + 1)]
        else:
            wanted = "a list of codes, or codes with their labels" if last else "a mapping of codes to what is in them"
            raise DomainError(f"level {levels[depth]!r}{where} needs {wanted}, not {shorten(inside)}")
        if not codes:
            raise DomainError(f"there is no {levels[depth]}{where}; every group needs at least one")
        if len(set(codes)) != len(codes):
            raise DomainError(f"a {levels[depth]}{where} is declared twice (1, '1' and 1.0 are one code)")
        values: Iterable[object] = inside.values() if isinstance(inside, Mapping) else [None] * len(codes)
        for code, value in zip(codes, values, strict=True):
            if not last:
                yield from walk(value, (*path, code))
                continue
            if isinstance(value, (Mapping, list, tuple)):
                raise DomainError(f"{code!r} is of the last level, {levels[-1]!r}, and holds more: name all levels")
            if value is not None:
                labels[code] = check_text(value, "a label")
            yield (*path, code)

    rows = list(itertools.islice(walk(tree, ()), _MAX_ROWS + 1))
    return rows, {levels[-1]: labels} if labels else {}


class _Once(dict[str, str]):
    """Texts that are looked at and held once: codes of groups stand in many rows."""

    def __init__(self, what: Callable[[], str]) -> None:
        super().__init__()
        self._what = what

    def __missing__(self, text: str) -> str:
        return self.setdefault(check_text(text, self._what()), text)


def _pick_cells(places: list[int]) -> Callable[[list[str]], tuple[str, ...]]:
    """Some cells of a row."""
    return operator.itemgetter(*places) if len(places) > 1 else lambda row: (row[places[0]],)


def _read_hierarchy_csv(
    path: str | PathLike[str], levels: Row | None
) -> tuple[Row, list[Row], dict[str, dict[str, str]]]:
    """Levels, rows and labels of a file whose first line names its columns."""
    try:
        text = read_text(path, "the file of a hierarchy", _MAX_BYTES)
    except SpecError as error:
        raise DomainError(str(error)) from error
    try:
        lines = csv.reader(io.StringIO(text, newline=""), strict=True)
        header = [cell.strip() for cell in next(lines, [])]
        if levels is None:
            named = [h for h in header if not (h.endswith(_LABEL) and h.removesuffix(_LABEL) in header)]
            levels = _read_level_names(named)
        _check_hierarchy_header(header, levels)
        rows: list[Row] = []
        found: dict[str, dict[str, str]] = {n: {} for n in levels if f"{n}{_LABEL}" in header}
        places = [header.index(n) for n in levels]
        named_at = {n: (header.index(n), header.index(f"{n}{_LABEL}")) for n in found}
        chosen, known = _pick_cells(places), _Once(lambda: f"line {lines.line_num}: a code")
        for row in itertools.islice(filter(None, lines), _MAX_ROWS + 1):
            if len(row) != len(header):
                raise DomainError(f"line {lines.line_num} has {len(row)} columns, the first line {len(header)}")
            rows.append(tuple(map(known.__getitem__, chosen(row))))
            for name, (at, label) in named_at.items():
                text = row[label]
                if found[name].get(row[at]) != text:
                    check_text(text, f"line {lines.line_num}: a label")
                if found[name].setdefault(row[at], text) != text:
                    raise DomainError(f"line {lines.line_num}: {name} {row[at]!r} has two labels")
    except csv.Error as error:
        raise DomainError(f"the file of a hierarchy is not CSV: {error}") from error
    return levels, rows, found


def _check_hierarchy_header(header: list[str], levels: Row) -> None:
    allowed = [*levels, *(f"{n}{_LABEL}" for n in levels)]
    lacking, strange = [n for n in levels if n not in header], [h for h in header if h not in allowed]
    if lacking or strange or len(set(header)) != len(header):
        raise DomainError(
            f"the first line of the file of a hierarchy names a column for each of {', '.join(levels)}, each once, "
            f"and where wanted '{levels[0]}{_LABEL}' and so on, and no others, parted by commas; it has "
            f"{', '.join(header) or 'none'}"
        )


def _labels_by_level(
    rows: list[Row], levels: Row, names: dict[str, dict[str, str]], *, were_found: bool
) -> list[dict[str, str]]:
    """Code to label per level in the order of first appearance; refuses what is no hierarchy.

    Of codes that people declare no two may be equal but for case; those that were found are what the table has, and
    are paid for.
    """
    if not 1 <= len(rows) <= _MAX_ROWS:
        raise DomainError(
            f"a hierarchy has 1 to {_MAX_ROWS:,} finest codes, not {f'{len(rows) - 1:,} or more' if rows else 0}"
        )
    strange = [n for n in names if n not in levels]
    if strange:
        raise DomainError(f"labels are given for {strange[0]!r}, which is no level; there are {', '.join(levels)}")
    out: list[dict[str, str]] = []
    above: dict[str, str] = {}
    codes = [""] * len(rows)
    for depth, level in enumerate(levels):
        codes, given = list(map(operator.itemgetter(depth), rows)), codes
        parents: dict[str, str] = dict(zip(codes, given, strict=True))
        if list(map(parents.__getitem__, codes)) != given:
            first: dict[str, str] = {}
            code, parent = next(p for p in zip(codes, given, strict=True) if first.setdefault(*p) != p[1])
            raise DomainError(
                f"{level} {code!r} lies in two groups, {first[code]!r} and {parent!r}; give codes that are unique in "
                "their level, such as FIPS codes, and what people read as labels"
            )
        if depth == len(levels) - 1 and len(parents) != len(rows):
            twice = next(c for c, n in Counter(codes).items() if n > 1)
            raise DomainError(f"a {level}, {twice!r}, is declared twice; every finest code stands in one row")
        if not were_found:
            check_distinct(parents, f"the codes of {level!r},")
        own = names.get(level, {})
        unknown = next((c for c in own if c not in parents), None)
        if unknown is not None:
            raise DomainError(f"a label is given for {unknown!r}, which is no {level}")
        plain: dict[str, str] = {code: own.get(code, code) for code in parents}
        if depth and len(set(plain.values())) < len(plain):
            seen = Counter(plain.values())
            plain = {c: f"{above[parents[c]]} > {t}" if seen[t] > 1 else t for c, t in plain.items()}
        above = plain
        out.append(above)
    return out


def _check_sizes(levels: Row, attributes: list[Categories]) -> None:
    """Nested levels of equal size group the cells alike: every table over one would be one over the other."""
    for (coarse, a), (fine, b) in itertools.pairwise(zip(levels, attributes, strict=True)):
        if a.declared_size == b.declared_size:
            raise DomainError(f"every {coarse} holds one {fine}: the levels group alike; leave one of them out")
