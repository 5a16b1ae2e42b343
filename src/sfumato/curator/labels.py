"""The door that finds labels: those that many persons have, and nothing else, come out; decision 0163.

The order of steps is that of `curator`: price, ledger, table, debit, look. At each attribute and length of prefixes it
is one, which whoever pays for several (`steps`) writes down before noise is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato._util.bundles import check_text
from sfumato._util.elsewhere import find_engine
from sfumato._util.text import normalize_nfc
from sfumato.cells import Codes
from sfumato.curator.curator import CuratedTable, rebuild_values
from sfumato.curator.rows.encoding import (
    UNREADABLE,
    Column,
    attribute_column,
    check_type,
    field_sql,
    sql_literal,
    whole_text_sql,
)
from sfumato.curator.rows.readers import DuckDBSession, attempt, open_persons
from sfumato.curator.rows.sources import Histogram
from sfumato.curator.rows.written import source_of
from sfumato.errors import DomainError, InvalidInput, NotWritten, PlanError
from sfumato.privacy.accounting import ApproxGaussianEvent
from sfumato.privacy.debits import Debits
from sfumato.privacy.labels import CLIPPED_AT, LabelLook, LabelSelection, are_rounds_whole, rounds_of
from sfumato.privacy.noise import BitSource
from sfumato.privacy.reserved_budget import ReservedBudget
from sfumato.privacy.unit import PrivacyUnit

OTHER = "(other)"  # where labels count that are not shown: no label of its own
_LONGEST = 256  # bytes of a label: what `check_text` allows a name


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LabelTable:
    """Which labels occur, and who has them. Private.

    Of each line `place` is the number of a label. Without persons a line is a label, of `persons` records. With them it
    is a label of one person, whose lines stand together by their digest, and `nth` counts them from 1.
    """

    labels: NDArray[Any]
    place: NDArray[np.int64]
    persons: NDArray[np.int64]
    nth: NDArray[np.int64] | None

    def lines(self, most: int) -> tuple[NDArray[np.int64], ...]:
        """(place, had, persons) of the lines that count: of each person at most so many, the first of that person.

        Whether a line counts, and how many its person has, depends on that person's lines alone.
        """
        place, person, persons = self._first(most)
        return place, _had(person, place), persons

    def _first(self, most: int) -> tuple[NDArray[np.int64], NDArray[np.int64] | None, NDArray[np.int64]]:
        if self.nth is None:
            return self.place, None, self.persons
        kept = self.nth <= most
        return self.place[kept], (np.cumsum(self.nth == 1) - 1)[kept], self.persons[kept]

    def shown(self, selections: Sequence[LabelSelection], most: int, bits: BitSource | None = None) -> tuple[str, ...]:
        """The labels that are shown in rounds, in the order of the alphabet, which tells nothing of sums.

        In each round persons leave out what was shown, and spread their weight over what is left; they take nothing in
        its place. So whoever has a label that was not shown has it in every round, and its sums add up.
        """
        place, person, persons = self._first(selections[0].per_person)
        gone = np.zeros(len(self.labels), dtype=bool)
        total = np.zeros(len(self.labels), dtype=np.int64)
        for law in selections:
            left = ~gone[place]
            own = None if person is None else person[left]
            sums = law.sums(len(self.labels), place[left], _had(own, place[left]), persons[left])
            noisy = law.noisy(sums, bits)
            total += law.times * noisy.clip(-CLIPPED_AT, CLIPPED_AT)
            gone[law.reached(sums, total if law.before else noisy, most - int(gone.sum()))] = True
        return tuple(sorted(map(str, self.labels[gone].tolist())))

    def cut(self, letters: int, length: int, shown: Sequence[str]) -> LabelTable:
        """The prefixes of so many letters, or whole labels for 0, of labels that begin with one of `shown`, which have
        `length` letters; of all labels where that is 0.

        Of a person every prefix counts once, where the first label with it stands. So the lines of a person hang on
        that person's rows and on what was shown alone.
        """
        given = [str(label) for label in self.labels]
        texts = np.array([text[:letters] if letters else text for text in given], dtype=object)
        above = {*shown}
        fits = [len(text) >= letters and OTHER not in text and (not length or text[:length] in above) for text in given]
        names, number = np.unique(texts, return_inverse=True)
        allowed = np.array([_is_label(name) for name in names.tolist()], dtype=bool)
        left = (np.array(fits, dtype=bool) & allowed[number])[self.place]
        place, persons = number[self.place[left]], self.persons[left]
        if self.nth is None:
            return LabelTable(names, place, persons, None)
        person = np.cumsum(self.nth == 1)[left]
        first = np.sort(np.unique(person * len(names) + place, return_index=True)[1])
        place, person, persons = place[first], person[first], persons[first]
        start = np.flatnonzero(np.diff(person, prepend=0))
        nth = np.arange(len(person)) - np.repeat(start, np.diff(start, append=len(person))) + 1
        return LabelTable(names, place, persons, nth)

    def __repr__(self) -> str:
        return "<LabelTable>"


def _had(person: NDArray[np.int64] | None, place: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many of these lines the person of each has."""
    return np.ones(len(place), dtype=np.int64) if person is None else np.bincount(person, minlength=1)[person]


def open_labels(source: object, look: LabelLook, unit: PrivacyUnit) -> LabelTable:
    """Read which labels occur, and of how many persons.

    A label is what `sf.Categories` compares a record's text with: composed, 1.0 and 1 as one. No label are missing
    ones, "(other)", and texts that no category may be called: of more than 256 bytes, or with characters that cannot be
    seen. They count where what is not declared counts. A label is counted once a person; which of a person's labels
    come first hangs on a digest of the person's name and the label. Of several columns their texts are one label.

    Guarantee: the lines of a person, and their order, depend on that person's rows alone.

    Raises InvalidInput for what is no source, SourceError for a table that cannot be loaded.
    """
    if isinstance(source, Histogram):
        raise InvalidInput("a histogram holds counts of cells, and no label that could be found; give a table of rows")
    names = look.columns or (look.attribute,)
    needed = list(names) if unit.person in (None, *names) else [*names, unit.person]
    rule = Codes(
        kind="category", outside="other", missing="other", codes=(OTHER,), trim=look.trim, columns=look.columns
    )

    def occurring(source: str, columns: Mapping[str, Column]) -> str:
        if unit.person is not None:
            check_type(unit.person, None, columns[unit.person])
        return _occurring_sql(source, columns, names, unit.person, rule)

    engine = find_engine(source)
    if require := getattr(engine, "require_person", None):
        require(unit.person)
    if there := getattr(engine, "lines", None):
        lines = there(needed, occurring, f"CREATE TEMP TABLE lines AS {_lines_sql(unit.person)}")
        if lines is not None:
            return _label_table(_session_of(lines), unit.person)
    opened = open_persons(source, needed, unit.person)
    try:
        handed = occurring(opened.sql, opened.columns)
        message = (
            f"{opened.label} could not be read for its columns {', '.join(map(repr, names))}: "
            "it is damaged or was cut short, or memory or disk ran out"
        )

        def read() -> LabelTable:
            opened.session.connection.execute(f"CREATE TEMP TABLE handed AS {handed}")
            opened.session.connection.execute(f"CREATE TEMP TABLE lines AS {_lines_sql(unit.person)}")
            return _label_table(opened.session, unit.person)

        return attempt(message, read)
    finally:
        opened.session.close()


def _session_of(lines: Iterable[tuple[int, Any]]) -> DuckDBSession:
    """A session with the lines that came in parts, whose persons are numbered in each: of the parts, none twice."""
    session = DuckDBSession()
    for i, (part, some) in enumerate(lines):
        session.connection.register("chunk", some)
        made = "INSERT INTO lines" if i else "CREATE TEMP TABLE lines AS"
        session.connection.execute(f"{made} SELECT *, {part} AS part FROM chunk")
    return session


def _label_table(session: DuckDBSession, person: str | None) -> LabelTable:
    """The labels of `lines`, without texts that are none."""
    connection = session.connection
    odd = session.rows("SELECT DISTINCT label FROM lines WHERE NOT regexp_full_match(label, '[!-~][ -~]*')")
    refused = [text for (text,) in odd if not _is_label(text)] + [OTHER]
    connection.register("refused", {"label": np.array(refused, dtype=object)})
    allowed = "SELECT * FROM lines WHERE label NOT IN (SELECT label FROM refused)"
    if person is None:
        fetched = connection.execute(allowed).fetchnumpy()
        labels, persons = np.asarray(fetched["label"], dtype=object), np.asarray(fetched["n"]).astype(np.int64)
        return LabelTable(labels, np.arange(len(labels)), persons, None)
    connection.execute(f"CREATE TEMP TABLE allowed AS {allowed}")
    numbered = "SELECT label, row_number() OVER () - 1 AS place FROM (SELECT DISTINCT label FROM allowed)"
    connection.execute(f"CREATE TEMP TABLE numbered AS {numbered}")
    labels = np.asarray(connection.execute("SELECT label FROM numbered ORDER BY place").fetchnumpy()["label"], object)
    parts = "part, who" if "part" in session.columns("allowed") else "who"
    ordered = f"SELECT place, row_number() OVER (PARTITION BY {parts} ORDER BY nth) AS nth, {parts}"
    ordered = f"SELECT place, nth FROM ({ordered} FROM allowed JOIN numbered USING (label)) ORDER BY {parts}, nth"
    fetched = connection.execute(ordered).fetchnumpy()
    place, nth = (np.asarray(fetched[name]).astype(np.int64) for name in ("place", "nth"))
    return LabelTable(labels, place, np.ones(len(place), dtype=np.int64), nth)


def _occurring_sql(
    source: str, columns: Mapping[str, Column], names: Sequence[str], who: str | None, rule: Codes
) -> str:
    """SQL of persons and their different labels; without persons of labels, as such, and how often each is there."""
    column = attribute_column(rule, names, columns)
    raw = f"SELECT {column.sql} AS r, {'NULL' if who is None else columns[who].sql} AS p FROM {source}"
    text = f"SELECT {field_sql(rule, column, 'r')} AS v, p FROM ({raw})"
    name = "NULL" if who is None else columns[who].name("p")
    labels = f"SELECT {whole_text_sql('v', column.decimal)} AS label, {name} AS person FROM ({text})"
    fits = f"label IS NOT NULL AND strlen(label) BETWEEN 1 AND {_LONGEST} AND label <> {sql_literal(UNREADABLE)}"
    if who is None:
        return f"SELECT label AS person, count(*) AS n FROM ({labels}) WHERE {fits} GROUP BY label"
    return f"SELECT DISTINCT label, person FROM ({labels}) WHERE {fits} AND person IS NOT NULL"


def _lines_sql(person: str | None) -> str:
    """SQL of lines of what was `handed`, by batches: each label, with its records, or with the number of each person
    who has it and its place among that person's.

    Persons get numbers, for a name is needed no more; places are by a digest of its own, for which rows are counted is
    chosen by another.
    """
    if person is None:
        return "SELECT person AS label, CAST(sum(n) AS BIGINT) AS n FROM handed GROUP BY person"
    place = "row_number() OVER (PARTITION BY person ORDER BY md5(concat_ws('|', 'labels', person, label)), label)"
    who = "dense_rank() OVER (ORDER BY person)"
    return f"SELECT label, {who} AS who, {place} AS nth FROM (SELECT DISTINCT label, person FROM handed)"


def _is_label(text: str) -> bool:
    """Whether a text can be declared: nothing that is shown may be refused when it is paid for."""
    try:
        check_text(text, "a label")
    except DomainError:
        return False
    # the database may know other letters than Python does: two of its texts could be one here
    return normalize_nfc(text) == text


def refuse_one_reading(source: object) -> None:
    """Refuse a source of rows that can be read once, for what reads it several times. Raises InvalidInput."""
    given = source_of(source).table if not isinstance(source, Histogram) else source
    if hasattr(given, "__next__") or hasattr(given, "read_next_batch"):
        raise InvalidInput(
            f"the table is read more than once, and a {type(given).__name__} can be read once; give the table itself, "
            "such as what its read_all() returns"
        )


class LabelCurator:
    """Holds one table under one ledger, to find labels in it before it is counted; see `Curator` for the arguments."""

    __slots__ = ("_held", "_source")

    def __init__(
        self,
        source: Any,
        domain: object,
        unit: PrivacyUnit,
        ledger: Debits | ReservedBudget,
        *,
        table: str | None = None,
    ) -> None:
        self._held = CuratedTable(source, domain, unit, ledger, table, None, measures=True)
        self._held.unit.refuse_groups("labels that are to be found")
        refuse_one_reading(source)
        self._source = source

    def find(
        self,
        looks: Sequence[LabelLook],
        *,
        name: str,
        plan_hash: str,
        keep: Callable[[tuple[str, ...]], object],
        shown: Sequence[tuple[str, ...]] = (),
    ) -> tuple[tuple[str, ...], ...]:
        """What is shown of each attribute, by its letters: each length of prefixes is debited, looked at and kept.

        `shown` is what earlier looks showed, which are not taken again; `keep` is told what each of the others shows.

        Guarantee: the labels satisfy together what the looks' prices state.

        Refused before the table is touched: with PlanError what costs more than its price; with NameTaken,
        BudgetExceeded or LedgerError what the ledger would not pay. SourceError: the table cannot be loaded; nothing is
        spent, or no more than was. NotWritten: spent, but looking failed.
        """
        held = self._held
        (looks,) = rebuild_values((tuple(looks),))
        check_looks(looks, held.unit)
        levels = rounds_of(looks)
        found = dict(zip(levels, shown, strict=False))
        left = {level: rounds for level, rounds in levels.items() if level not in found}
        held.expect(looks_price([k for rounds in left.values() for k in rounds]), name, plan_hash)
        # several rounds at one attribute read it once
        first = {of: rounds[0] for (of, _), rounds in reversed(left.items())}
        tables = {of: open_labels(self._source, first[of], held.unit) for of in reversed(first)}
        # what is counted afterwards is opened once before it is paid for: nothing public is to fail after the debit
        held.open()
        held.counts = None
        for level, rounds in left.items():
            paid = held.debit(looks_price(rounds), name, plan_hash)
            kept = False
            with suppress(Exception):  # what failed, and its text, may depend on the data
                found[level] = show_level(rounds, found, tables[level[0]])
                keep(found[level])
                kept = True
            if not kept:
                raise NotWritten(
                    f"the budget is spent (entry {paid.sequence}) but finding labels failed; there is no refund once "
                    "noise may be drawn"
                )
        return tuple(found.values())

    def __repr__(self) -> str:
        return "<LabelCurator>"


def show_level(
    rounds: Sequence[LabelLook],
    before: Mapping[tuple[str, int], Sequence[str]],
    table: LabelTable,
    bits: BitSource | None = None,
) -> tuple[str, ...]:
    """What rounds of one length of prefixes show, under what those for shorter ones showed, by attribute and letters.

    The rounds' noisy sums are added up, and never leave this: so they are taken together, or not at all.
    """
    name, letters = rounds[0].attribute, rounds[0].letters
    _, length = last = next((k for k in reversed([*before]) if k[0] == name), ("", 0))
    table = table.cut(letters, length, before.get(last, ())) if letters or length else table
    return table.shown([k.selection for k in rounds], rounds[0].most, bits)


def show_labels(
    looks: Sequence[LabelLook], tables: Mapping[str, LabelTable], bits: BitSource | None = None
) -> dict[tuple[str, int], tuple[str, ...]]:
    """What looks show, by attribute and letters, length after length."""
    shown: dict[tuple[str, int], tuple[str, ...]] = {}
    for (name, letters), rounds in rounds_of(looks).items():
        shown[name, letters] = show_level(rounds, shown, tables[name], bits)
    return shown


def check_looks(looks: Sequence[LabelLook], unit: PrivacyUnit) -> None:
    """Refuse looks of which one costs more than it states. Raises PlanError."""
    if not looks or not all(isinstance(k, LabelLook) and k.selection.costs_at_most(unit, k.price) for k in looks):
        raise PlanError("a look for labels costs more than the price that it states; it is refused")
    if any(k.selection.per_person > unit.rows_per_person for k in looks):
        raise PlanError("more labels of a person count than rows")
    if not are_rounds_whole(looks):
        raise PlanError("a look adds up other rounds than those before it; it is refused")


def looks_price(looks: Sequence[LabelLook]) -> ApproxGaussianEvent:
    """What looks cost together: both parts add up."""
    nothing = Fraction(0)
    return ApproxGaussianEvent(
        sum((k.price.mu_squared for k in looks), nothing), sum((k.price.delta for k in looks), nothing)
    )
