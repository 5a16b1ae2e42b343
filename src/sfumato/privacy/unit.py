"""Whose privacy is protected: the neighbour relation and what one person can contribute; the kinds of chains."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sfumato._util.codec import deferred_field, storable, value_fingerprint
from sfumato.errors import LedgerError, PlanError
from sfumato.privacy.chain import Format
from sfumato.privacy.files import FileStore


@storable
class Neighbours(Enum):
    """Which two tables must be hard to tell apart.

    Args:
        value: "add-remove", where one table has one record more, or "replace-one", where one record differs.

    Raises:
        ValueError: The value is neither; `parse` says so with what is allowed.

    >>> sf.Neighbours("add-remove")
    <Neighbours.ADD_REMOVE: 'add-remove'>
    >>> sf.Neighbours.parse("replace")
    Traceback (most recent call last):
        ...
    sfumato.errors.PlanError: neighbours must be 'add-remove' or 'replace-one', not 'replace'
    """

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"

    @classmethod
    def parse(cls, given: object) -> Neighbours:
        """The relation that a text names.

        Args:
            given: A text, or a relation, which is returned as it is.

        Returns:
            The relation.

        Raises:
            PlanError: The text is neither "add-remove" nor "replace-one".
        """
        if isinstance(given, Neighbours):
            return given
        for member in cls:
            if given == member.value:
                return member
        raise PlanError(f"neighbours must be 'add-remove' or 'replace-one', not {given!r}")


@storable
@dataclass(frozen=True, slots=True)
class Within:
    """Groups of the cells of an attribute, called `name`; `codes` has the group of every cell.

    `digest` is the hash of attribute and codes, then that of the rule by which a value has its cell: all that a ledger
    keeps of them, and by it two are equal. By codes alone groups of other values could have the same. (In 0.2 it was
    the first alone, with which nothing is measured any more.) Raises PlanError where it is another's.
    """

    name: str
    attribute: str
    digest: str
    codes: NDArray[np.int64] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        hashed = self.digest.partition(":")[0]
        if self.codes is not None and value_fingerprint((self.attribute, self.codes)) != hashed:
            raise PlanError("the groups in which a record is replaced are others than their hash says")

    @classmethod
    def of(cls, name: str, attribute: str, codes: NDArray[np.int64], rule: object) -> Within:
        """Groups of cells that values have by a rule."""
        return cls(name, attribute, f"{value_fingerprint((attribute, codes))}:{value_fingerprint(rule)}", codes)

    def is_over(self, rule: object) -> bool:
        """Whether it is by this rule that values have the cells that are grouped."""
        return self.digest.partition(":")[2] == value_fingerprint(rule)


@storable
@dataclass(frozen=True, slots=True)
class PrivacyUnit:
    """Whose privacy is protected: the neighbour relation, and what one person can contribute.

    Args:
        neighbours: Which two tables must be hard to tell apart.
        person: The column that says whose record a row is, or None where every person has one row.
        rows_per_person: How many rows of one person are counted, from 1 to 1,000,000.
        within: Where given, a record is replaced by one that counts in the same group alone, so that the number of
            records of each group is the same for all neighbours. What is proved of any replaced record holds for these.
        once_per: Attributes whose joint cells part a person's rows into groups, of each of which few are counted; kept
            in alphabetical order. None given: all rows are one group.
        rows_per_group: How many rows of one person are counted in each of these groups, fewer than rows_per_person.

    Raises:
        PlanError: A number or a name is not allowed, or options contradict each other.

    >>> from sfumato.privacy.unit import PrivacyUnit
    >>> PrivacyUnit("add-remove", "patient", 16, once_per=("department",)).describe()
    "one person (column 'patient') with at most 16 rows, one per department, added or removed"
    """

    neighbours: Neighbours
    person: str | None = None
    rows_per_person: int = 1
    within: Within | None = deferred_field(None)  # noqa: RUF009  (as dataclasses.field is)
    # `before` keeps them out of the representation, which earlier versions have printed
    once_per: tuple[str, ...] = deferred_field((), before=())
    rows_per_group: int = deferred_field(1, before=1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "neighbours", Neighbours.parse(self.neighbours))
        c = self.rows_per_person
        if isinstance(c, bool) or not isinstance(c, int) or not 1 <= c <= 10**6:
            raise PlanError(f"rows_per_person must be a whole number from 1 to 1,000,000, not {c!r}")
        if self.person is not None and (not isinstance(self.person, str) or not self.person):
            raise PlanError(f"person must name a column, not {self.person!r}")
        if c > 1 and self.person is None:
            raise PlanError("rows_per_person above 1 needs person=, the column that says whose record a row is")
        if self.within is not None and not (type(self.within) is Within and self.total_is_public):
            raise PlanError("a record is replaced within a group where neighbours is 'replace-one', without person=")
        self._check_groups()

    def _check_groups(self) -> None:
        given = (self.once_per,) if isinstance(self.once_per, str) else self.once_per
        if not isinstance(given, (tuple, list)) or not all(isinstance(a, str) and a for a in given):
            raise PlanError(f"once_per must name attributes, as in once_per=['department'], not {given!r}")
        object.__setattr__(self, "once_per", tuple(sorted(given)))
        g = self.rows_per_group
        if isinstance(g, bool) or not isinstance(g, int) or not 1 <= g <= 10**6:
            raise PlanError(f"rows_per_group must be a whole number from 1 to 1,000,000, not {g!r}")
        if len(set(given)) < len(given):
            raise PlanError(f"once_per names an attribute twice: {', '.join(given)}")
        if g > 1 and not given:
            raise PlanError("rows_per_group above 1 needs once_per=, the attributes whose cells are the groups")
        if given and not g < self.rows_per_person:
            raise PlanError(
                f"once_per counts fewer rows of a person in a group than in all: give rows_per_person above {g:,}, "
                f"not {self.rows_per_person:,}, or leave out once_per="
            )

    def refuse_groups(self, what: str) -> None:
        """Refuse a unit whose rows are counted once per group, for what prices rows wherever they lie.

        Args:
            what: What it is, in the plural.

        Raises:
            PlanError: The unit names groups.
        """
        if self.once_per:
            raise PlanError(
                f"{what} have no price for once_per={list(self.once_per)}: leave it out, and rows_per_person bounds a "
                "person's rows wherever they lie; or ask for counts of listed cells by mechanism='auto' or 'marginals'"
            )

    @property
    def total_is_public(self) -> bool:
        """Whether the number of counted rows is the same for all neighbours.

        True under replace-one where the unit is a record, for every record is counted. With a person column it is not:
        any number of rows up to the limit is counted of a person, and rows that name nobody are not counted. (Rows
        that the domain drops would change it too; a plan refuses such domains.)
        """
        return self.neighbours is Neighbours.REPLACE_ONE and self.person is None

    @property
    def protected(self) -> PrivacyUnit:
        """Who is protected, however many rows are counted: what all spends of one ledger have in common.

        Of a person every price covers all rows, in whichever table: of those that are not counted nothing depends.
        """
        return self if self.person is None else PrivacyUnit(self.neighbours, self.person)

    def describe(self) -> str:
        """The unit in words.

        Returns:
            One line for people.
        """
        who = "one record" if self.person is None else f"one person (column {self.person!r})"
        rows = "" if self.rows_per_person == 1 else f" with at most {self.rows_per_person} rows"
        if self.once_per:
            each = "one" if self.rows_per_group == 1 else f"at most {self.rows_per_group}"
            rows += f", {each} per {' and '.join(self.once_per)},"
        verb = "added or removed" if self.neighbours is Neighbours.ADD_REMOVE else "replaced by another"
        return f"{who}{rows} {verb}" + (f" of the same {self.within.name}" if self.within else "")


def is_file_of_kind(path: Path, form: Format) -> bool:
    """Whether a file says of itself that it is of a kind; nothing else is checked."""
    try:
        # by SQLite: to open and close it would give up the locks that this process has on it
        with FileStore(path, form.words).transaction(write=False) as connection:
            return connection.execute("PRAGMA application_id").fetchone()[0] == form.application_id
    except LedgerError:
        return False
