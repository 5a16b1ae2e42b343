"""What a mechanism is, and every mechanism by its name.

A mechanism is a frozen value with its options, that plans without data for the questions it serves. A name has one line
here; a value's file is imported when the mechanism is first asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from importlib import import_module
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
    `grouped`: whether it plans for persons whose rows are counted once per group, which have a price of their own.
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
    grouped: ClassVar[bool] = False
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


MECHANISMS: dict[str, str] = {
    "auto": "sfumato.mechanisms.automatic.Auto",
    "laplace": "sfumato.mechanisms.textbook.Laplace",
    "gaussian": "sfumato.mechanisms.textbook.Gaussian",
    "tree": "sfumato.mechanisms.textbook.TreeMechanism",
    "factorization": "sfumato.mechanisms.textbook.Factorization",
    "marginals": "sfumato.mechanisms.textbook.Marginals",
    "projection": "sfumato.mechanisms.projected.Projection",
    "approximate": "sfumato.mechanisms.research.biased.Approximate",
    "adaptive": "sfumato.mechanisms.denoised_pairs.Adaptive",
    "mwem": "sfumato.mechanisms.iterative.Mwem",
    "boosting": "sfumato.mechanisms.research.boosting.Boosting",
    "hybrid": "sfumato.mechanisms.sketches.Hybrid",
    "count-sketch": "sfumato.mechanisms.sketches.CountSketch",
    "sparse-project": "sfumato.mechanisms.research.sparse_keys.SparseProject",
    "histogram": "sfumato.mechanisms.sketches.Histogram",
    "pmw": "sfumato.mechanisms.multiplicative_weights.Pmw",
    "sparse-mw": "sfumato.mechanisms.research.sparse_keys.SparseMw",
    "local": "sfumato.mechanisms.local_reports.Local",
    "continual": "sfumato.mechanisms.streams.Continual",
}
"""What `mechanism=` calls each of them, and where its class is. What "auto" tries is listed in `searches.py`."""

CHOICES: dict[str, str] = {KEYS: "sfumato.mechanisms.sketches.choose_sketch"}
"""What chooses among the mechanisms that serve a kind of questions, where an extension does; else `automatic.py`."""

LOOKS: dict[str, str] = {
    "KeyPlan": "sfumato.mechanisms.sketches.look_at_keys",
    "LabelPlan": "sfumato.mechanisms.labels.look_for_labels",
    "ProfilePlan": "sfumato.mechanisms.profiles.look_at_columns",
}
"""How the plans of extensions are carried out, by their class: what makes the `PlanKind` of each."""

ASKED_FOR = frozenset(MECHANISMS) - {"laplace", "gaussian", "tree", "factorization", "marginals"}
"""Those that "auto" never tries for tables, so that it need not import them: half of the library."""


def mechanism_class(name: object) -> type[Mechanism[Any]]:
    """The class of a mechanism.

    Args:
        name: What `mechanism=` calls it, such as "count-sketch".

    Returns:
        The class.

    Raises:
        PlanError: There is no such mechanism; the message lists all names.
    """
    if not isinstance(name, str) or name not in MECHANISMS:
        raise PlanError(f"mechanism must be one of {', '.join(MECHANISMS)}, not {name!r}")
    return import_named(MECHANISMS[name])


def import_named(path: str) -> Any:
    """What stands in a module, by the dotted name of both, imported when it is first asked for."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def mechanisms_serving(kind: str) -> list[type[Mechanism[Any]]]:
    """The mechanisms that plan questions of one kind.

    Args:
        kind: "tables", "questions", "keys", "local" or "streams".

    Returns:
        Their classes, in the order of `MECHANISMS`.
    """
    return [cls for cls in map(mechanism_class, MECHANISMS) if kind in cls.serves]


def make_mechanism(mechanism: object, **options: Any) -> Mechanism[Any]:
    """A mechanism's value.

    Args:
        mechanism: A value, which is returned as it is, or a name, which stands for its defaults.
        **options: Options of the mechanism of that name.

    Returns:
        The value.

    Raises:
        PlanError: There is no such mechanism, it does not have one of the options, or options are given beside a value.
    """
    if isinstance(mechanism, Mechanism):
        if options:
            raise PlanError(f"{mechanism!r} has its options already; leave out {', '.join(options)}")
        return mechanism
    if isinstance(mechanism, type) and issubclass(mechanism, Mechanism):
        raise PlanError(
            f"mechanism={mechanism.name!r} is a value: write sf.mechanisms.{mechanism.name.replace('-', '_')}()"
        )
    cls = mechanism_class(mechanism)
    idle = [option for option in options if option not in _option_names(cls)]
    if idle:
        owners = {option: [n for n in MECHANISMS if option in _option_names(mechanism_class(n))] for option in idle}
        said = "; ".join(f"{o}= belongs to {', '.join(names) or 'no mechanism'}" for o, names in owners.items())
        raise PlanError(f"mechanism={cls.name!r} would drop what was given: {said}")
    return cls(**options)


def plan_with_mechanism(value: Mechanism[Any], asked: Request) -> Any:
    """The plan of a mechanism, which is refused what it does not serve or would not use. Raises PlanError."""
    if asked.kind not in value.serves:
        served = " and ".join(KINDS[k] for k in value.serves)
        others = ", ".join(repr(cls.name) for cls in mechanisms_serving(asked.kind))
        raise PlanError(
            f"mechanism={value.name!r} plans {served}, not {KINDS[asked.kind]}; for that there are {others}"
        )
    refuse_discovery(value, asked)
    value.check(asked)
    _check_measures(value, asked)
    check_groups(value, asked)
    return value.plan(asked)


def refuse_discovery(value: Mechanism[Any], asked: Request) -> None:
    """Refuse labels that are to be found, for plans of questions over cells that are known. Raises PlanError."""
    if names := discovered_attributes(asked):
        raise PlanError(
            f"labels of {', '.join(names)} are to be found (discover=), which plans of tables do that are released "
            f"once, by sf.plan and sf.release; mechanism={value.name!r} for {KINDS[asked.kind]} needs labels that are "
            "declared: take those of a release, or list them"
        )


def discovered_attributes(asked: Request) -> tuple[str, ...]:
    """The attributes of what was asked whose labels are to be found."""
    what: Any = asked.what
    domain: Domain | None = what if isinstance(what, Domain) else getattr(what, "domain", None)
    return () if domain is None else domain.discovered


def check_groups(value: Mechanism[Any], asked: Request) -> None:
    """Refuse persons whose rows are counted once per group where they have no price. Raises PlanError."""
    if not asked.unit.once_per:
        return
    if asked.kind not in (TABLES, STREAMS) or not value.grouped:
        asked.unit.refuse_groups(f"mechanism={value.name!r} and {KINDS[asked.kind]}")
    domain = asked.what.domain
    if domain.impossible:
        asked.unit.refuse_groups("domains with impossible cells")
    unknown = [a for a in asked.unit.once_per if a not in domain.names or a in domain.measures]
    if unknown:
        known = ", ".join(a for a in domain.names if a not in domain.measures)
        raise PlanError(f"once_per= names attributes that have cells: {known}; not {', '.join(unknown)}")
    if asked.public is not None:
        asked.unit.refuse_groups("tables that are public")


def _check_measures(value: Mechanism[Any], asked: Request) -> None:
    """Refuse what measures are not summed by, before anything is planned. Raises PlanError."""
    what: Any = asked.what
    domain: Domain | None = what if isinstance(what, Domain) else getattr(what, "domain", None)
    if domain is None or not domain.measures:
        return
    known = ", ".join(domain.measures)
    if asked.kind != TABLES:
        raise PlanError(
            f"measures ({known}) are summed over one table, not by plans of {KINDS[asked.kind]}; declare a domain "
            "without them for these"
        )
    summed: bool = bool(what.measures)
    if value.measures not in (("summed",) if summed else ("summed", "beside")):
        raise PlanError(
            f"mechanism={value.name!r} sums no measures ({known}): leave it out, for 'auto', or declare a domain "
            "without them"
        )
    fixed = [f"{n}=" for n in ("strategy", "public") if getattr(asked, n) is not None]
    if getattr(value, "lattice", "fine") != "fine":
        fixed.append("lattice='unit'")
    if summed and fixed:
        raise PlanError(f"sums of measures ({known}) are planned without {', '.join(fixed)}; leave it out")


def _option_names(cls: type[Mechanism[Any]]) -> list[str]:
    return [f.name for f in fields(cls)]  # pyright: ignore[reportArgumentType]  (every mechanism is a dataclass)
