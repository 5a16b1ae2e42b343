"""Plans to describe a table that nobody described: which columns are looked at, how, at which price, how well."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from sfumato._util.codec import storable
from sfumato._util.description import Description, Facts, TitledTable
from sfumato._util.frames import Frame, safe_text
from sfumato.errors import PlanError
from sfumato.plans.planned import Planned, event_price_text, protection_lines
from sfumato.privacy.accounting import Event
from sfumato.privacy.budget import Budget
from sfumato.privacy.unit import PrivacyUnit

COLUMN_TYPES = {
    "": "looked at: each value as number, date or text",
    "integer": "whole numbers, by its type",
    "number": "numbers, by its type",
    "date": "dates, by its type",
    "boolean": "true or false, by its type",
}
"""What is known of a column before a look, and what is said of it."""


@storable
@dataclass(frozen=True, eq=False, repr=False)
class ProfilePlan(Planned):
    """A plan to describe all columns of a table in a few looks, one price for all. It holds nothing private.

    `sf.plan_profile` makes it; `sf.release` and `sf.describe` carry it out.

    Args:
        names: The columns.
        types: What the type of each says: "integer", "number", "date", "boolean", or "" where values are looked at.
        formats: How texts of some of the columns write a day, besides year-month-day.
        budget: The budget that the description keeps.
        unit: Whose privacy is protected.
        mechanism: "describe".
        price: What a ledger is charged, before the first look and for all.
        pairs: The share of the price for a look at all pairs of columns; 0 for none.
        records: The public number of records for which it is told how well columns will be known; it may be a guess.
        whole: Whether columns are described; else only the kinds of their values are, as the budget is too small for
            so many columns.
        unlabelled: Why labels of texts are not looked for, or "" where they are.
        share_error: By how much numbers of records of one kind are off, as half of a 95 % interval, in records.
        rank_error: By how much ranks of quartiles are off, likewise; None where they are not told.
        label_count: How many records a label must have to be shown with 99 %; None where none is shown.
        pair_value: From which Cramér's V on two columns are told to depend; None where pairs are not looked at.

    Raises:
        PlanError: There is no column, or not one type for each.
    """

    names: tuple[str, ...]
    types: tuple[str, ...]
    formats: dict[str, str]
    budget: Budget
    unit: PrivacyUnit
    mechanism: str
    price: Event
    pairs: Fraction
    records: int
    whole: bool
    unlabelled: str
    share_error: float
    rank_error: float | None
    label_count: int | None
    pair_value: float | None

    decides = ("names", "types", "formats", "budget", "unit", "mechanism", "price", "pairs", "whole", "unlabelled")
    holds = Planned.holds | {"names": tuple, "types": tuple, "records": int, "whole": bool, "formats": dict}

    def __post_init__(self) -> None:
        fit = len(self.names) == len(self.types) > 0 and len(set(self.names)) == len(self.names)
        if not fit or any(kind not in COLUMN_TYPES for kind in self.types):
            raise PlanError("a description is of at least one column, each named once and with one type")
        if not {*self.formats} <= {*self.names} or not 0 <= self.pairs < 1:
            raise PlanError("a description has formats of its own columns, and pairs have a part of the price")

    @property
    def promise(self) -> str:
        """How well columns will be known, in one sentence."""
        n = self.records

        def of_records(size: float) -> str:
            return f"± {100 * size / n:.2g} %"

        parts = [f"shares {of_records(self.share_error)}"]
        if self.rank_error is not None:
            parts.append(f"quartiles {of_records(self.rank_error)} of ranks")
        if self.label_count is not None:
            parts.append(f"labels of {self.label_count:,} records and more")
        if self.pair_value is not None:
            parts.append(f"pairs of columns whose V is {self.pair_value:.2g} and more")
        sure = "95 %" if self.label_count is None else "95 %; labels 99 %"
        return f"of {n:,} records, {', '.join(parts)} ({sure})"

    def columns(self) -> Frame:
        """What is known of the columns before a look.

        Returns:
            One row per column: its name and what its type says.
        """
        known = [
            f"looked at: each value as number, date ({safe_text(self.formats[n])}) or text"
            if n in self.formats
            else COLUMN_TYPES[kind]
            for n, kind in zip(self.names, self.types, strict=True)
        ]
        return Frame({"column": [safe_text(n) for n in self.names], "type": known})

    def describe(self) -> Description:
        count = len(self.names)
        headline = f"Plan: describe {count:,} column{'s' if count > 1 else ''}, mechanism {self.mechanism!r}"
        return Description(headline, [Facts(tuple(self._lines())), TitledTable("Columns", self.columns())])

    def _lines(self) -> Iterator[tuple[str, str]]:
        yield from protection_lines(self.unit, self.price)
        yield "guarantee", str(self.budget)
        yield "price", f"{event_price_text(self.price)}, debited as a whole before the first look"
        yield "expects", self.promise
        if self.whole:
            yield "first look", "the kind of every value: number, date, text or missing"
            yield "second", "of numbers sign and power of two, of dates years, of texts the labels that many have"
            yield "third", "of numbers and dates cells over the range that was found, of labels their counts"
            if self.pairs:
                yield "fourth", "all pairs of columns, by quarters and common labels"
            if self.unlabelled:
                yield "texts", f"no label is shown: {self.unlabelled}"
        else:
            yield (
                "kinds only",
                f"for {len(self.names):,} columns the budget is too small to tell more: their quartiles and labels "
                "stay blank. Describe fewer columns (columns=), or spend more; if the table has more records, say so "
                "(records=)",
            )

    def brief(self) -> str:
        return f"{len(self.names):,} columns: {self.promise}"
