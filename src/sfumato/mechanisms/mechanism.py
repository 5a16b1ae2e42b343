"""What a mechanism is: a frozen value with its options, that plans without data for the questions it serves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from sfumato._util.display import Progress
from sfumato.domain import Domain
from sfumato.errors import PlanError
from sfumato.privacy.amounts import Currency
from sfumato.privacy.budget import Budget
from sfumato.privacy.unit import PrivacyUnit
from sfumato.strategies.design import DEFAULT_OBJECTIVE
from sfumato.strategies.periods import Periods

if TYPE_CHECKING:
    from sfumato.mechanisms.tables import Need

__all__ = [
    "KEYS",
    "KINDS",
    "LOCAL",
    "QUESTIONS",
    "STREAMS",
    "TABLES",
    "Mechanism",
    "Request",
    "check_whole_option",
    "read_currency",
]

TABLES, QUESTIONS, KEYS, LOCAL, STREAMS = "tables", "questions", "keys", "local", "streams"
"""What is planned: a workload; a whole domain, for questions to come; keys; a workload that persons report on, or whose
tables come period after period."""

Made = TypeVar("Made", covariant=True)


@dataclass(frozen=True, slots=True)
class Request:
    """What `sf.plan` was asked. `kind` is one of those above, `what` a Workload, Domain, Keys or KeyQueries."""

    kind: str
    what: Any
    budget: Budget
    unit: PrivacyUnit
    objective: str = DEFAULT_OBJECTIVE
    records: int | None = None
    public: Mapping[Any, Any] | None = None
    strategy: object = None
    reconstruction: object = None
    periods: Periods | None = None
    progress: Progress | None = None

    @property
    def given(self) -> tuple[str, ...]:
        """The options that were given and that not every mechanism takes."""
        named = ("records", "public", "strategy", "reconstruction", "periods")
        found = [name for name in named if getattr(self, name) is not None]
        return (*found, *["objective"] * (self.objective != DEFAULT_OBJECTIVE))


class Mechanism(ABC, Generic[Made]):
    """A way to answer questions privately, as a frozen value: its options are its fields, checked at birth.

    `name` is what `mechanism=` calls its defaults; `serves` the kinds of questions it plans for, `takes` the options of
    `sf.plan` that it uses: others are refused, never dropped. `needs_records`: nothing is planned without their number.
    `honours`: whether it knows of cells that a domain declares impossible; otherwise such domains are refused.
    `measures`: what it does over a domain that has measures: "refused", "beside" where none of them is asked about, or
    "summed".
    `alone` is the option `currency` of a session with an account of its own.
    `unscaled` says why its margins do not follow from the budget alone, so that no budget is found from them, and
    `unknown` why no number of records is known for an error.
    A new mechanism is one file with such a class, and one line in `registry.py`.
    """

    name: ClassVar[str]
    serves: ClassVar[tuple[str, ...]]
    takes: ClassVar[tuple[str, ...]] = ()
    needs_records: ClassVar[bool] = False
    honours: ClassVar[bool] = True
    measures: ClassVar[Literal["refused", "beside", "summed"]] = "refused"
    alone: ClassVar[str | None] = None
    unscaled: ClassVar[str] = ""
    unscaled_rmse: ClassVar[str] = ""
    unknown: ClassVar[str] = ""

    @abstractmethod
    def plan(self, asked: Request) -> Made:
        """Decide everything before a row is read.

        Args:
            asked: The request, as `sf.plan` reads its arguments.

        Returns:
            The plan.

        Raises:
            PlanError: The mechanism does not apply, or an option is not allowed.
            BudgetError: The budget is of a kind that the mechanism cannot spend.
        """

    def records_for(self, need: Need) -> int:
        """The least number of records for an accuracy, as `sf.records_for` asks for it.

        Args:
            need: The accuracy, and the request that it is about.

        Returns:
            The number of records.

        Raises:
            PlanError: No number is known for this mechanism, or an option does not apply.
        """
        raise PlanError(f"no number of records is known for mechanism={self.name!r}: {self.unknown}")

    def check(self, asked: Request) -> None:
        """Refuse options that this mechanism would not use.

        Args:
            asked: The request.

        Raises:
            PlanError: An option would be dropped, or the domain has impossible cells, of which the mechanism does not
                know.
        """
        idle = [f"{name}=" for name in asked.given if name not in self.takes]
        if idle:
            raise PlanError(f"mechanism={self.name!r} makes no use of {', '.join(idle)}; leave it out")
        domain = asked.what if isinstance(asked.what, Domain) else getattr(asked.what, "domain", None)
        if isinstance(domain, Domain) and domain.impossible and not self.honours:
            raise PlanError(
                f"mechanism={self.name!r} does not know of cells that are declared impossible; take 'marginals', or "
                "'auto'"
            )

    @property
    def options(self) -> dict[str, Any]:
        """The options that differ from their defaults."""
        found: dict[str, Any] = {}
        for f in fields(self):  # pyright: ignore[reportArgumentType]  (every mechanism is a dataclass)
            value = getattr(self, f.name)
            if f.default is MISSING or value != f.default:
                found[f.name] = value
        return found

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"sf.mechanisms.{self.name.replace('-', '_')}({given})"


KINDS = {
    TABLES: "a workload",
    QUESTIONS: "questions to come over a domain",
    KEYS: "queries over sf.Keys",
    LOCAL: "the local model (trust='local')",
    STREAMS: "tables period after period (periods=)",
}
"""The kinds in words."""


def check_whole_option(name: str, given: object, least: int, most: int) -> None:
    """Refuse an option that is given and no whole number of that range. Raises PlanError."""
    if given is not None and (type(given) is not int or not least <= given <= most):
        raise PlanError(f"{name} must be a whole number from {least:,} to {most:,}, not {given!r}")


def read_currency(given: object) -> Currency | None:
    """The currency of a ledger, as `Currency` writes it; None where none is given. Raises PlanError."""
    try:
        return None if given is None else Currency(given)
    except ValueError:
        raise PlanError(f"currency is one of {', '.join(Currency)}, in which a ledger adds up, not {given!r}") from None
