"""Plans for labels that are to be found: a look that finds them, then one at the tables over them; one price for both.

Both looks are debited before the first. The second is planned when the labels are there, which are public then, with
noise of its own: so its answers are unbiased, and its intervals hold, whatever was shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from scipy.special import ndtr

from sfumato._util.codec import storable
from sfumato._util.description import Description, TitledTable
from sfumato._util.frames import Frame, safe_text
from sfumato.domain import Categories
from sfumato.errors import PlanError
from sfumato.plans.planned import WorkloadPlan, event_price_text, event_text, protection_lines
from sfumato.privacy.accounting import ApproxGaussianEvent, GaussianEvent
from sfumato.privacy.budget import Budget
from sfumato.privacy.labels import LabelLook, LabelSelection, are_rounds_whole, rounds_of
from sfumato.privacy.ledger.words import export_events
from sfumato.privacy.unit import PrivacyUnit
from sfumato.strategies.design import Candidate
from sfumato.workloads import Workload


@storable
@dataclass(frozen=True, slots=True)
class Expected:
    """What the second look errs if so many labels are shown.

    Args:
        labels: How many labels of each attribute are shown.
        rmse: The root mean squared error of all queries alike, in their unit, or None where they have several units.
        largest: The largest standard error of a query, of those that count records where there are any.
    """

    labels: int
    rmse: float | None
    largest: float


@storable
@dataclass(frozen=True, slots=True)
class LabelsFound:
    """What came before a look at tables whose labels were found: the plan that both were paid for, and its price.

    Args:
        plan: The fingerprint of that plan, which the ledger's entry bears.
        price: What it cost, both looks together.
        looks: The looks that found the labels.

    Raises:
        PlanError: The looks cost more than the price.
    """

    plan: str
    price: ApproxGaussianEvent
    looks: tuple[LabelLook, ...]

    def __post_init__(self) -> None:
        _ = self.left

    @property
    def left(self) -> Fraction:
        """What the looks leave of the price, as mu^2."""
        return left_after(self.looks, self.price)


def left_after(looks: tuple[LabelLook, ...], price: ApproxGaussianEvent) -> Fraction:
    """What looks for labels leave of a price, as mu^2. Raises PlanError where they cost more, or nothing is left."""
    mu_squared = price.mu_squared - sum((k.price.mu_squared for k in looks), Fraction(0))
    delta = price.delta - sum((k.price.delta for k in looks), Fraction(0))
    if not looks or mu_squared <= 0 or delta < 0:
        raise PlanError("the looks of this plan cost more than the price that it states; plan again")
    return mu_squared


def least_occurrence(rounds: Sequence[LabelSelection], chance: float, labels: int) -> int:
    """How many persons with so many labels surely suffice for one to be shown: in the round that shows most."""

    def missed(persons: int) -> float:
        laws = ((r, r.whole * (persons * r.added(min(labels, r.per_person)) + 0.5)) for r in rounds)
        return min(float(ndtr((r.threshold - added) / float(r.spread))) for r, added in laws)

    low, high = 0, 1
    while missed(high) > 1 - chance:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if missed(middle) > 1 - chance else (low, middle)
    return high


def _letters_text(letters: int) -> str:
    """What is said of a look for prefixes."""
    return f", first {letters} letters" if letters > 1 else ", first letter" if letters else ""


@storable
@dataclass(frozen=True, eq=False, repr=False)
class LabelPlan(WorkloadPlan):
    """A plan for a domain with labels that are to be found (`sf.Categories(discover=...)`). Holds nothing private.

    `sf.plan` makes it, and `sf.release` gives an `sf.Release` over the labels that were shown.

    Args:
        workload: The queries; an attribute whose labels are to be found has one cell for all of them, and (other).
        budget: The budget that the release keeps.
        unit: Whose privacy is protected.
        mechanism: The name of the mechanism of the second look.
        objective: What the second look minimises: "tables", "cells" or "max".
        price: What a ledger is charged, before the first look and for both.
        looks: The looks that find labels, in their order: one for each attribute and length of prefixes, or rounds.
        expected: What the second look errs, by the number of labels that are shown.
        records: The public number of records that was given, or None.
        notes: Remarks that are printed with the plan.
        considered: The mechanisms that were considered.
    """

    workload: Workload
    budget: Budget
    unit: PrivacyUnit
    mechanism: str
    objective: str
    price: ApproxGaussianEvent  # pyright: ignore[reportIncompatibleVariableOverride]  (frozen)
    looks: tuple[LabelLook, ...]
    expected: tuple[Expected, ...]
    records: int | None = None
    notes: tuple[str, ...] = ()
    considered: tuple[Candidate, ...] = field(default=())

    decides = ("workload", "budget", "unit", "mechanism", "objective", "price", "looks", "records")

    def check(self) -> None:
        super().check()
        _ = self.left
        domain = self.workload.domain
        sought = {n: a for n in domain.discovered if isinstance(a := domain[n], Categories)}
        wanted = [(name, n) for name, a in sought.items() for n in (*(k for _, k in a.lengths), 0)]
        if list(self.rounds) != wanted or any(k.columns != sought[k.attribute].columns for k in self.looks):
            raise PlanError("its looks are for other labels than those that are to be found: it is damaged, plan again")
        if not are_rounds_whole(self.looks):
            raise PlanError("a look adds up other rounds than those before it: it is damaged, plan again")
        if not all(k.selection.costs_at_most(self.unit, k.price) for k in self.looks):
            raise PlanError("a look for labels costs more than it states: it is damaged, plan again")

    @property
    def left(self) -> Fraction:
        """What is left for the second look, as mu^2."""
        return left_after(self.looks, self.price)

    @property
    def rounds(self) -> dict[tuple[str, int], tuple[LabelLook, ...]]:
        """The looks at prefixes of so many letters of each attribute, or at labels (0), in their order."""
        return rounds_of(self.looks)

    def occurrences(self, chance: float = 0.99, *, labels: int = 1) -> dict[str, int]:
        """How many persons must have a label for it to be shown with a probability.

        Where a person may have several labels, they are looked for in rounds, each of which leaves out those shown
        before. So persons whose other labels are common make a label shown that fewer of them have.

        Args:
            chance: The probability, strictly between 0 and 1.
            labels: How many different labels each of these persons has, none of them shown before.

        Returns:
            The number of each attribute.

        Raises:
            PlanError: The probability is none, or the number of labels is no whole number from 1 on.

        >>> domain = sf.Domain({"city": sf.Categories(discover=0.2, missing="other")})
        >>> budget = sf.approx(1, "1e-6", thresholds="5e-7")
        >>> made = sf.plan(sf.marginals(domain, order=1), budget, neighbours="add-remove")
        >>> made.occurrences(0.5), made.occurrences(0.99)
        ({'city': 49}, {'city': 72})
        """
        if isinstance(chance, bool) or not isinstance(chance, (int, float)) or not 0 < chance < 1:
            raise PlanError(f"a chance lies between 0 and 1, as 0.99 does; not {chance!r}")
        if type(labels) is not int or labels < 1:
            raise PlanError(f"labels= is how many different labels a person has, from 1 on; not {labels!r}")
        return {
            name: least_occurrence([k.selection for k in looks], chance, labels)
            for (name, letters), looks in self.rounds.items()
            if not letters
        }

    @property
    def measures(self) -> tuple[str, Any]:
        return "Looks", self.looks

    def own_facts(self) -> dict[str, dict[str, Any]]:
        return {
            "mechanism": {
                "name": self.mechanism,
                "strategy": "labels, then the tables over those that were shown",
                "looks": [
                    {
                        "attribute": k.attribute,
                        **({"letters": k.letters} if k.letters else {}),
                        **({"columns": list(k.columns)} if k.columns else {}),
                        "most": k.most,
                        "threshold": k.selection.threshold,
                        "weight": k.selection.weight,
                        "per_person": k.selection.per_person,
                        "sigma": str(k.selection.noise.sigma),
                        **({"times": k.selection.times} if k.selection.before or k.selection.times > 1 else {}),
                        **export_events([k.price])[0],
                    }
                    for k in self.looks
                ],
                "second": export_events([GaussianEvent(self.left)])[0],
                "records": self.records,
                "notes": list(self.notes),
            },
            "error": {
                "expected": [{"labels": e.labels, "rmse": e.rmse, "largest": e.largest} for e in self.expected],
                "objective": self.objective,
                "unit": self.main_unit,
            },
        }

    def errors(self) -> Frame:
        """Predicted errors of the second look, by the number of labels that are shown.

        Returns:
            One row per number of labels: rmse and largest standard error.
        """
        return Frame(
            {
                "labels shown": [e.labels for e in self.expected],
                "rmse": [e.rmse for e in self.expected],
                "largest standard error": [e.largest for e in self.expected],
            }
        )

    def shown_frame(self) -> Frame:
        """How many persons must have a label for it to be shown.

        Returns:
            One row per attribute and number of labels that these persons have, with those for 50 and 99 %.
        """
        rows: list[tuple[str, int, int, int]] = []
        for (name, letters), looks in self.rounds.items():
            laws = [k.selection for k in looks]
            for count in sorted({1, laws[0].per_person}):
                half, sure = (least_occurrence(laws, c, count) for c in (0.5, 0.99))
                rows.append((f"{safe_text(name)}{_letters_text(letters)}", count, half, sure))
        heads = ("attribute", "labels of a person", "shown with 50 %", "shown with 99 %")
        return Frame(dict(zip(heads, map(list, zip(*rows, strict=True)), strict=True)))

    def describe(self) -> Description:
        tables = [
            TitledTable("Persons that a label must have to be shown", self.shown_frame()),
            TitledTable("Errors by the number of labels that are shown", self.errors()),
        ]
        names = ", ".join(map(safe_text, self.workload.domain.discovered))
        return self._described(f", labels of {names} to be found", self._lines(), tables)

    def _lines(self) -> Iterator[tuple[str, str]]:
        yield from protection_lines(self.unit, self.price)
        yield from self.workload.domain.told()
        yield "guarantee", str(self.budget)
        yield "price", f"{event_price_text(self.price)}, debited as a whole before the first look"
        for (name, letters), looks in self.rounds.items():
            together = f" ({' and '.join(map(safe_text, looks[0].columns))} together)" if looks[0].columns else ""
            of = f" of {safe_text(looks[0].columns[0])}" if letters and together else ""
            called = f"{safe_text(name)}{together}{_letters_text(letters)}{of}"
            most = f"up to {looks[0].most:,} labels of {called}, without their counts"
            spent = (sum((getattr(k.price, part) for k in looks), Fraction(0)) for part in ("mu_squared", "delta"))
            both = "" if len(looks) == 1 else f", in {len(looks)} rounds"
            yield "first look", f"{most}{both}: {event_price_text(ApproxGaussianEvent(*spent))}"
        yield "second look", f"the tables over the labels that were shown: {event_text(GaussianEvent(self.left))}"
        yield "other", "labels that are not shown count in (other), in every table"
        if any(letters for _, letters in self.rounds):
            yield "prefixes", "labels are looked for under prefixes that were shown, and count there if they are not"
        yield from (("note", n) for n in self.notes)

    def brief(self) -> str:
        return f"{self.mechanism}: labels of {', '.join(self.workload.domain.discovered)} are found first"
