"""Sparse queries over universes too large to list: what their mechanisms share, and the choice among them; and
histograms of everything: the cells of a domain, the keys of known queries, or keys as they come up.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sfumato.errors import PlanError, WorkloadError
from sfumato.interactive.key_plans import plan_histogram
from sfumato.mechanisms.registry import (
    KEYS,
    QUESTIONS,
    TABLES,
    Mechanism,
    Request,
    mechanism_class,
    mechanisms_serving,
    read_currency,
)
from sfumato.plans.keys import KeyCandidate, KeyPlan
from sfumato.plans.plan import Plan
from sfumato.privacy.accounting import ApproxEvent, ApproxGaussianEvent, Event, GaussianEvent, event_price
from sfumato.privacy.amounts import Currency, Number, read_exact
from sfumato.privacy.budget import Budget
from sfumato.privacy.keyed import MAX_THRESHOLD, Stability, histogram_sensitivity, key_sensitivity, noise_tail
from sfumato.privacy.noise import DiscreteLaplace, NoiseLaw, RoundedGaussian
from sfumato.privacy.unit import PrivacyUnit
from sfumato.sketches import Buckets, KeyMap, KeyQueries, Keys, Listed, Signs
from sfumato.sketches.maps import Words
from sfumato.sketches.predict import projection_dimension as signs_needed
from sfumato.strategies import calibration
from sfumato.strategies.calibration import noise_of, price_of, spend_in
from sfumato.workloads import identity

if TYPE_CHECKING:
    from collections.abc import Callable

    from sfumato.mechanisms.carry_out import Access, PlanKind
    from sfumato.privacy.ledger import Receipt
    from sfumato.releases import Provenance
    from sfumato.releases.sketches import SketchRelease

_WIDTH = 2**20  # where nothing is known of the records: 8 MB, and a tenth of them share a bucket at 100,000 records
_MOST_WIDTH = 2**24  # by itself, from the number of records: 128 MB; more is asked for by width=
_SIGNS = 5603
"""Signs where nothing is known of the records: the balance of noise and projection for 100,000 at (1, 1e-6)."""
INDEPENDENCE = 4  # of hashes: what the variance of a product of two keys' signs needs

Priced = tuple[NoiseLaw, Event]


@dataclass(frozen=True, slots=True)
class KeyRequest:
    """What was asked about keys: the queries' field elements where they are known, and their usual number of keys."""

    keys: Keys
    budget: Budget
    unit: PrivacyUnit
    supports: tuple[Words, ...] | None
    records: int | None

    @property
    def size(self) -> float:
        """The mean number of keys of a query."""
        return 1.0 if self.supports is None else sum(map(len, self.supports)) / len(self.supports)


def read_key_request(asked: Request) -> KeyRequest:
    """What was asked about keys. Raises PlanError."""
    what, records = asked.what, asked.records
    if records is not None and (type(records) is not int or not 0 < records < 2**53):
        raise PlanError(f"records is a public whole number of at least 1, not {records!r}")
    keys, supports = (what.keys, what.supports) if isinstance(what, KeyQueries) else (what, None)
    return KeyRequest(keys, asked.budget, asked.unit, supports, records)


class Sketched(Mechanism[Any]):
    """A mechanism that measures a universe of keys once and answers any later query from that."""

    serves: ClassVar[tuple[str, ...]] = (KEYS,)
    takes: ClassVar[tuple[str, ...]] = ("records",)
    unknown: ClassVar[str] = "its errors depend on how the records spread over the keys"

    @abstractmethod
    def sketch(self, stated: KeyRequest) -> KeyPlan:
        """What is measured, with its noise and price.

        Args:
            stated: The request about keys.

        Returns:
            The plan.

        Raises:
            PlanError: The budget does not allow it, or an option does not apply.
        """

    def plan(self, asked: Request) -> Any:
        stated = read_key_request(asked)
        return replace(self.sketch(stated), size=stated.size)

    def predicts(self, stated: KeyRequest) -> bool:
        """Whether the error is known before data.

        Args:
            stated: The request about keys.

        Returns:
            True where the number of records is given, on which errors depend, and for counts of listed keys.
        """
        return stated.records is not None


def choose_sketch(asked: Request, **options: Any) -> KeyPlan:
    """The plan of least predicted error where queries are known, else the default; with all that was considered.

    Mechanisms that would drop one of the options are not considered. Raises PlanError.
    """
    stated = read_key_request(asked)
    plans: dict[str, KeyPlan] = {}
    considered: list[KeyCandidate] = []
    classes = {cls.name: cls for cls in mechanisms_serving(KEYS) if issubclass(cls, Sketched)}
    for name, cls in classes.items():
        own = {f.name for f in fields(cls)}  # pyright: ignore[reportArgumentType]  (every mechanism is a dataclass)
        if dropped := sorted(set(options) - own):
            considered.append(KeyCandidate(name, None, f"would drop what was given: {', '.join(dropped)}"))
            continue
        value = cls(**options)
        try:
            plans[name] = value.sketch(stated)
            error = plans[name].error(stated.size) if value.predicts(stated) else None
            considered.append(KeyCandidate(name, error, "" if error is not None else "unknown without records="))
        except (PlanError, WorkloadError) as refused:
            considered.append(KeyCandidate(name, None, str(refused)))
    sure = [name for name in classes if name in plans and not plans[name].map.shrinkage]
    chosen = next((name for name in classes if name in plans), None)
    if sure:
        # its error holds whatever the records are; a sketch without records= adds an unknown to the same noise
        errors = {c.mechanism: c.error for c in considered if c.error is not None}
        chosen = min(errors, key=lambda name: (errors[name], name not in sure))
    if chosen is None:
        raise PlanError("; ".join(f"{c.mechanism}: {c.note}" for c in considered))
    considered.append(_asked_one_by_one(stated))
    return replace(plans[chosen], size=stated.size, considered=tuple(considered))


def _asked_one_by_one(stated: KeyRequest) -> KeyCandidate:
    """A histogram that draws a key's noise when it is first asked for: never above a sketch, but no file to publish."""
    # a record changes one count or two, whatever keys there are: two stand for all
    noise, _ = cheapest_key_noise(Listed(np.arange(2, dtype=np.uint64)), stated.budget, stated.unit)
    note = "sf.open, where the custodian answers queries as they come; no file is published, no sketch errs less"
    return KeyCandidate("histogram in a session", (stated.size * noise.variance) ** 0.5, note)


def check_independence(given: object) -> None:
    """Refuse what is no independence of a hash. Raises PlanError."""
    if type(given) is not int or not 4 <= given <= 1024:
        raise PlanError(f"independence is a whole number from 4 (which the errors stated need) up, not {given!r}")


def buckets_for_records(records: int | None) -> int:
    """Buckets so many that ten times the records would fit: distinct records then add a tenth to a unit variance."""
    return _WIDTH if records is None else min(_MOST_WIDTH, max(2**10, 1 << (10 * records - 1).bit_length()))


def dimension_for(budget: Budget, unit: PrivacyUnit, records: int | None) -> int:
    """Signs that add as much variance for distinct records as the noise has."""
    if records is None:
        return _SIGNS
    _refuse_pure(budget)
    one = Signs.draw(1)
    per_key = key_sensitivity(one, unit, 2).value / float(budget.mu_squared)
    found = signs_needed(records, per_key)
    if found > 2**22:
        raise PlanError(f"{records:,} records would need {found:,} signs; take a count-sketch, or set dimension=")
    return found


def _refuse_pure(budget: Budget) -> None:
    if budget.kind == "pure":
        raise PlanError("sparse-project has Gaussian noise, which no pure epsilon budget allows; take a count-sketch")


def gaussian_key_noise(key_map: KeyMap, budget: Budget, unit: PrivacyUnit) -> Priced:
    """Gaussian noise that spends the whole budget, its sigma rounded up."""
    _refuse_pure(budget)
    price = spend_in(budget, Currency.MU_SQUARED)
    return noise_of(price, key_sensitivity(key_map, unit, 2).value), price


def cheapest_key_noise(key_map: KeyMap, budget: Budget, unit: PrivacyUnit) -> Priced:
    """Laplace or Gaussian noise, whichever has less variance."""
    laplace, squared = (key_sensitivity(key_map, unit, power).value for power in (1, 2))
    return calibration.cheapest_noise(budget, laplace, squared)


@dataclass(frozen=True, repr=False, kw_only=True)
class CountSketch(Sketched):
    """A count-sketch: counts in hashed buckets, which answer any later query about keys.

    Its noise is pure epsilon or Gaussian, whichever has less variance.

    Args:
        width: The number of buckets, a power of two; None takes about ten per record, within limits.
        independence: The independence of the hash, from 4 on; it changes accuracy alone, never privacy.

    Raises:
        PlanError: The independence is not allowed.

    Source:
        [CCF04]
    """

    width: int | None = None
    independence: int = INDEPENDENCE

    name: ClassVar[str] = "count-sketch"

    def __post_init__(self) -> None:
        check_independence(self.independence)

    def sketch(self, stated: KeyRequest) -> KeyPlan:
        width = buckets_for_records(stated.records) if self.width is None else self.width
        buckets = Buckets.draw(width, self.independence)
        noise, event = cheapest_key_noise(buckets, stated.budget, stated.unit)
        own = (stated.keys, stated.budget, stated.unit, self.name)
        return KeyPlan(*own, buckets, noise, event, None, stated.records)


def least_threshold(noise: DiscreteLaplace | RoundedGaussian, delta: Fraction) -> int:
    """The smallest integer threshold at which a count of one is shown with probability at most `delta`.

    From the exact tail of the law, certified: no smaller integer is proved to do. Raises PlanError where it is
    above 2^40.
    """
    if not 0 < delta < 1:
        raise PlanError(f"delta must lie between 0 and 1, not {delta}")
    low, high = -1, 1
    while noise_tail(noise, high) > delta:
        low, high = high, 2 * high
        if high > MAX_THRESHOLD:
            raise PlanError("this delta and epsilon need a threshold above 2^40; raise one of them")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if middle >= 0 and noise_tail(noise, middle) <= delta else (middle, high)
    return high + 1


# An eighth of epsilon finds the keys that are heavy enough to matter; half would double every error (decisions/0015).
_SHARE = Fraction(1, 8)


@dataclass(frozen=True, repr=False, kw_only=True)
class Hybrid(Sketched):
    """A count-sketch that answers any later query, and the heavy keys by name. One record a person.

    Its noise is Laplace's, paid from a ledger that adds epsilons and deltas; or Gaussian where the budget sets a part
    of delta aside for `thresholds`, paid from a ledger of such a total, which adds mu^2 and delta.

    Args:
        width: The number of buckets, a power of two; None takes about ten per record, within limits.
        independence: The independence of the hash, from 4 on; it changes accuracy alone, never privacy.
        share: The share of epsilon, or of mu^2, that finds heavy keys, with all of the delta for it.

    Raises:
        PlanError: The independence or the share is not allowed.

    Source:
        [KKMN09]
    """

    width: int | None = None
    independence: int = INDEPENDENCE
    share: Number = _SHARE

    name: ClassVar[str] = "hybrid"

    def __post_init__(self) -> None:
        check_independence(self.independence)
        if not 0 < read_exact(self.share, "share") < 1:
            raise PlanError(f"share is the part of epsilon that finds heavy keys, between 0 and 1, not {self.share!r}")

    def sketch(self, stated: KeyRequest) -> KeyPlan:
        budget, unit = stated.budget, stated.unit
        width = buckets_for_records(stated.records) if self.width is None else self.width
        buckets = Buckets.draw(width, self.independence)
        if budget.kind != "approx" or budget.delta is None:
            raise PlanError(
                "a hybrid shows heavy keys, which takes an (epsilon, delta) budget such as sf.approx(1, '1e-6'); "
                "with any other take a count-sketch"
            )
        share = read_exact(self.share, "share")
        own, rest = ((part * budget.parameter, part * budget.mu_squared) for part in (share, 1 - share))
        changed, squared = (key_sensitivity(buckets, unit, power).value for power in (1, 2))
        if budget.thresholds is None:
            price, delta = ApproxEvent(budget.parameter, budget.delta), budget.delta
            shown, noise = DiscreteLaplace(changed / own[0]), DiscreteLaplace(changed / rest[0])
        else:
            price, delta = ApproxGaussianEvent(budget.mu_squared, budget.thresholds), budget.thresholds
            keys = histogram_sensitivity(unit, 2).value
            shown, noise = noise_of(GaussianEvent(own[1]), keys), noise_of(GaussianEvent(rest[1]), squared)
            assert isinstance(shown, RoundedGaussian)
        stability = Stability(shown, least_threshold(shown, delta))
        stability.event(unit)  # refuses persons with several records
        return KeyPlan(stated.keys, budget, unit, self.name, buckets, noise, price, stability, stated.records)


_ANY = "any"


@dataclass(frozen=True, repr=False, kw_only=True)
class Histogram(Sketched):
    """All counts with one draw of noise each: any number of questions, exact standard errors.

    Over a domain every cell is measured once. Over keys whose queries are known, those keys; over keys whose queries
    are still to come, each when it is first asked for (`sf.open`).

    Args:
        currency: In which currency the ledger that pays adds up ("epsilon", "rho", "mu^2"); None takes the budget's
            own. "any" takes the law of less noise, Laplace's or Gauss's, whatever a ledger of the budget says of it.

    Raises:
        PlanError: There is no such currency.
    """

    currency: str | None = None

    name: ClassVar[str] = "histogram"
    serves: ClassVar[tuple[str, ...]] = (QUESTIONS, KEYS)
    alone: ClassVar[str | None] = _ANY

    def __post_init__(self) -> None:
        if self.currency != _ANY:
            read_currency(self.currency)

    def check(self, asked: Request) -> None:
        if asked.records is not None and asked.kind == KEYS:
            raise PlanError(
                "records= predicts what sketches err; the error of a histogram does not depend on it: leave it out"
            )
        super().check(asked)

    def plan(self, asked: Request) -> Any:
        currency = None
        if self.currency != _ANY:
            currency = read_currency(self.currency) or asked.budget.currency
        if asked.kind == QUESTIONS:
            return _plan_noisy_cells(asked, currency)
        if isinstance(asked.what, KeyQueries):
            if self.currency is not None:
                raise PlanError("currency= is of a histogram that is opened for questions to come; leave it out")
            return super().plan(asked)
        return plan_histogram(asked.what, asked.budget, asked.unit, currency=currency)

    def sketch(self, stated: KeyRequest) -> KeyPlan:
        if stated.supports is None:
            raise PlanError(
                "a histogram that is released counts the keys of known queries: plan keys.queries([...]), one list of "
                "keys each; for queries to come, open it: sf.plan(keys, ..., mechanism='histogram')"
            )
        listed = Listed(np.unique(np.concatenate(stated.supports)))
        noise, event = cheapest_key_noise(listed, stated.budget, stated.unit)
        own = (stated.keys, stated.budget, stated.unit, self.name)
        return KeyPlan(*own, listed, noise, event, None, stated.records)

    def predicts(self, stated: KeyRequest) -> bool:
        return True


def _plan_noisy_cells(asked: Request, currency: Currency | None) -> Plan:
    """The plan of less variance that measures every cell: Laplace or Gaussian noise, if the ledger can pay for both."""
    budget, plans = asked.budget, list[Plan]()
    request = replace(asked, kind=TABLES, what=identity(asked.what))
    for name in ("laplace",) if budget.kind == "pure" else ("laplace", "gaussian"):
        found = mechanism_class(name)().plan(request)
        # a histogram must not cost more than the budget in the ledger's currency
        if currency is None or event_price(found.price, currency) <= event_price(price_of(budget, currency), currency):
            plans.append(found)
    if not plans:
        raise PlanError(f"this ledger adds up {currency}, in which {budget} pays for no histogram")
    return min(plans, key=lambda p: p.noise.variance)


def look_at_keys() -> PlanKind:
    """How a plan of keys is carried out: one look at them, kept in one file."""
    from sfumato.curator.keys import KeyCurator  # noqa: PLC0415  (plans look at nothing)
    from sfumato.mechanisms.carry_out import PlanKind  # noqa: PLC0415
    from sfumato.releases.files import ReleaseFile, check_file  # noqa: PLC0415
    from sfumato.releases.sketches import SketchRelease, load_sketch  # noqa: PLC0415

    def look(plan: KeyPlan, at: Access) -> tuple[Receipt, Callable[[Provenance], SketchRelease]]:
        curator = KeyCurator(at.source, plan.keys, plan.unit, at.account, table=at.table)
        measured, receipt = curator.measure(
            plan.map, plan.noise, plan.price, plan.stability, name=at.name, plan_hash=plan.fingerprint
        )
        return receipt, lambda where: SketchRelease(plan, measured, where)

    return PlanKind(
        look,
        what="sketch",
        place="file",
        draft=ReleaseFile,
        bundle=lambda out: out.name,
        read=load_sketch,
        load=load_sketch,
        holds=lambda out: check_file(out).exists(),
    )
