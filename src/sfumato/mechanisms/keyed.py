"""Sparse queries over universes too large to list: which sketch, which noise, at what error; all before data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from sfumato.designs.spending import cheapest, noise_of, spend_in
from sfumato.errors import PlanError, WorkloadError
from sfumato.mechanisms.thresholds import least_threshold
from sfumato.plans.keys import KeyCandidate, KeyPlan
from sfumato.privacy.accountant import ApproxEvent, Event
from sfumato.privacy.amounts import Currency, Number, exact
from sfumato.privacy.budget import Budget
from sfumato.privacy.keyed import Stability, key_sensitivity
from sfumato.privacy.noise import DiscreteLaplace, NoiseLaw
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.sketches import Buckets, KeyMap, Keys, Listed, Signs
from sfumato.sketches.field import Words
from sfumato.sketches.predict import dimension as signs_needed

__all__ = ["KEY_MECHANISMS", "plan_keys"]

KEY_MECHANISMS = ("hybrid", "count-sketch", "sparse-project", "histogram")

_BELONGS = {
    "width": ("hybrid", "count-sketch"),
    "dimension": ("sparse-project",),
    "independence": ("hybrid", "count-sketch", "sparse-project"),
    "share": ("hybrid",),
}
_INDEPENDENCE = 4
_WIDTH = 2**20
_MOST_WIDTH = 2**24
_SIGNS = 5603
"""Signs where nothing is known of the records: the balance of noise and projection for 100,000 at (1, 1e-6)."""
# An eighth of epsilon finds the keys that are heavy enough to matter; half would double every error (decisions/0015).
_SHARE = Fraction(1, 8)

Priced = tuple[NoiseLaw, Event]


def plan_keys(
    keys: Keys,
    budget: Budget,
    *,
    neighbours: str | Neighbours,
    person: str | None = None,
    rows_per_person: int = 1,
    mechanism: str = "auto",
    queries: Iterable[ArrayLike | Sequence[str]] | None = None,
    records: int | None = None,
    width: int | None = None,
    dimension: int | None = None,
    independence: int | None = None,
    share: Number | None = None,
) -> KeyPlan:
    """A plan to answer sums of counts over few keys of a universe too large to list.

    `mechanism`: "count-sketch" (any later query, pure epsilon or Gaussian noise, whichever is less), "hybrid" (besides
    shows heavy keys by a stability histogram, with `share` of epsilon and all of delta), "sparse-project" (the
    projection of [BR11] with Gaussian noise), "histogram" (the keys of `queries`, known now, and no others), or "auto":
    where queries are known the least predicted error, else hybrid where the budget has a delta, else count-sketch.
    Where the custodian can answer queries as they come, `sf.session(..., mechanism="histogram")` errs less than any
    sketch; it stands among the candidates.

    `person` names the column that says whose record it is; of each at most `rows_per_person` are counted. A hybrid
    takes one a person.

    `records` is a public (approximate) number of records, for predictions and sizes; `width` (buckets, a power of two)
    and `dimension` (signs) set sizes by hand; `independence` of the hash (4) changes accuracy only, never privacy. What
    belongs to other mechanisms than the one asked for is refused; under "auto" only those it belongs to are compared.

    Raises PlanError for a mechanism the budget does not allow, WorkloadError for queries outside the universe.
    """
    if not isinstance(keys, Keys) or not isinstance(budget, Budget):
        raise PlanError("plan_keys needs sf.Keys and a budget, such as sf.pure(1)")
    if mechanism != "auto" and mechanism not in KEY_MECHANISMS:
        raise PlanError(f"mechanism is 'auto' or one of {', '.join(map(repr, KEY_MECHANISMS))}, not {mechanism!r}")
    if records is not None and (type(records) is not int or not 0 < records < 2**53):
        raise PlanError(f"records is a public whole number of at least 1, not {records!r}")
    if mechanism == "histogram" and records is not None:
        raise PlanError(
            "records= predicts what sketches err; the error of a histogram does not depend on it: leave it out"
        )
    given = {"width": width, "dimension": dimension, "independence": independence, "share": share}
    idle = _idle({name for name, value in given.items() if value is not None})
    if mechanism in idle:
        raise PlanError(idle[mechanism])
    wise = _INDEPENDENCE if independence is None else independence
    if type(wise) is not int or not 4 <= wise <= 1024:
        raise PlanError(f"independence is a whole number from 4 (which the errors stated need) up, not {wise!r}")
    part = exact(_SHARE if share is None else share, "share")
    if not 0 < part < 1:
        raise PlanError(f"share is the part of epsilon that finds heavy keys, between 0 and 1, not {share!r}")
    unit = PrivacyUnit(Neighbours.parse(neighbours), person, rows_per_person)
    supports = None if queries is None else [keys.query(_listed(q), None)[0] for q in queries]
    if supports is not None and not any(map(len, supports)):
        raise PlanError("queries names no keys; leave it out where queries are not known yet")
    size = 1.0 if supports is None else sum(map(len, supports)) / len(supports)

    request = _Request(keys, budget, unit, supports, records, width, dimension, wise, part)
    if mechanism != "auto":
        return replace(request.make(mechanism), size=size)
    return _best(request, size, idle)


def _idle(given: set[str]) -> dict[str, str]:
    """The mechanisms that would drop an option that was given, and what is said of it."""
    out: dict[str, str] = {}
    for name in KEY_MECHANISMS:
        dropped = sorted(o for o in given if name not in _BELONGS[o])
        if dropped:
            to = "; ".join(f"{o}= belongs to {', '.join(_BELONGS[o])}" for o in dropped)
            out[name] = f"mechanism={name!r} would drop what was given: {to}"
    return out


def _listed(query: ArrayLike | Sequence[str]) -> ArrayLike | Sequence[str]:
    if isinstance(query, (str, bytes)) or not isinstance(query, Iterable):
        raise PlanError("queries is a list of queries, each a list of its keys")
    return query


@dataclass(frozen=True, slots=True)
class _Request:
    """What was asked of `plan_keys`, checked."""

    keys: Keys
    budget: Budget
    unit: PrivacyUnit
    supports: list[Words] | None
    records: int | None
    width: int | None
    dimension: int | None
    independence: int
    share: Fraction

    def make(self, mechanism: str) -> KeyPlan:
        """The plan of one mechanism."""
        if mechanism == "hybrid":
            return self._hybrid()
        if mechanism == "count-sketch":
            return self._of(mechanism, self._buckets(), _cheapest)
        if mechanism == "sparse-project":
            size = _dimension(self.budget, self.unit, self.records) if self.dimension is None else self.dimension
            return self._of(mechanism, Signs.draw(size, self.independence), _gaussian)
        if self.supports is None:
            raise PlanError("a histogram counts the keys of known queries; give queries=, one list of keys each")
        return self._of(mechanism, Listed(np.unique(np.concatenate(self.supports))), _cheapest)

    def _buckets(self) -> Buckets:
        return Buckets.draw(_width(self.records) if self.width is None else self.width, self.independence)

    def _of(self, mechanism: str, key_map: KeyMap, price: Callable[[KeyMap, Budget, PrivacyUnit], Priced]) -> KeyPlan:
        noise, event = price(key_map, self.budget, self.unit)
        return KeyPlan(self.keys, self.budget, self.unit, mechanism, key_map, noise, event, None, self.records)

    def _hybrid(self) -> KeyPlan:
        """A stability histogram with a share of epsilon and all of delta, and a count-sketch of what it leaves over."""
        budget, buckets = self.budget, self._buckets()
        if budget.kind != "approx" or budget.delta is None:
            raise PlanError(
                "a hybrid shows heavy keys, which takes an (epsilon, delta) budget such as sf.approx(1, '1e-6'); "
                "with any other take a count-sketch"
            )
        epsilon, changed = budget.parameter, key_sensitivity(buckets, self.unit, 1).value
        shown = DiscreteLaplace(changed / (self.share * epsilon))
        stability = Stability(shown, least_threshold(shown, budget.delta))
        stability.epsilon(self.unit)  # refuses persons with several records
        noise = DiscreteLaplace(changed / ((1 - self.share) * epsilon))
        price = ApproxEvent(epsilon, budget.delta)
        return KeyPlan(self.keys, budget, self.unit, "hybrid", buckets, noise, price, stability, self.records)


def _best(request: _Request, size: float, idle: dict[str, str]) -> KeyPlan:
    """The plan of least predicted error where queries are known, else the default; with all that was considered.

    Mechanisms that would drop an option (`idle`) are not considered.
    """
    plans: dict[str, KeyPlan] = {}
    considered: list[KeyCandidate] = []
    for name in KEY_MECHANISMS:
        if name in idle:
            considered.append(KeyCandidate(name, None, idle[name]))
            continue
        try:
            plans[name] = request.make(name)
            error = plans[name].error(size) if request.records or name == "histogram" else None
            considered.append(KeyCandidate(name, error, "" if error is not None else "unknown without records="))
        except (PlanError, WorkloadError) as refused:
            considered.append(KeyCandidate(name, None, str(refused)))
    chosen = next((n for n in ("hybrid", "count-sketch", *KEY_MECHANISMS) if n in plans), "count-sketch")
    if "histogram" in plans:
        # its error holds whatever the records are; a sketch without records= adds an unknown to the same noise
        errors = {c.mechanism: c.error for c in considered if c.error is not None}
        chosen = min(errors, key=lambda name: (errors[name], name != "histogram"))
    if chosen not in plans:
        raise PlanError(considered[KEY_MECHANISMS.index(chosen)].note)
    considered.append(_asked_one_by_one(request, size))
    return replace(plans[chosen], size=size, considered=tuple(considered))


def _asked_one_by_one(request: _Request, size: float) -> KeyCandidate:
    """A histogram that draws a key's noise when it is first asked for: never above a sketch, but no file to publish."""
    # a record changes one count or two, whatever keys there are: two stand for all
    noise, _ = _cheapest(Listed(np.arange(2, dtype=np.uint64)), request.budget, request.unit)
    note = "sf.session, where the custodian answers queries as they come; no file is published, no sketch errs less"
    return KeyCandidate("histogram in a session", (size * noise.variance) ** 0.5, note)


def _width(records: int | None) -> int:
    """Buckets so many that ten times the records would fit: distinct records then add a tenth to a unit variance."""
    return _WIDTH if records is None else min(_MOST_WIDTH, max(2**10, 1 << (10 * records - 1).bit_length()))


def _dimension(budget: Budget, unit: PrivacyUnit, records: int | None) -> int:
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


def _gaussian(key_map: KeyMap, budget: Budget, unit: PrivacyUnit) -> Priced:
    """Gaussian noise that spends the whole budget, its sigma rounded up."""
    _refuse_pure(budget)
    price = spend_in(budget, Currency.MU_SQUARED)
    return noise_of(price, key_sensitivity(key_map, unit, 2).value), price


def _cheapest(key_map: KeyMap, budget: Budget, unit: PrivacyUnit) -> Priced:
    """Laplace or Gaussian noise, whichever has less variance."""
    laplace, squared = (key_sensitivity(key_map, unit, power).value for power in (1, 2))
    return cheapest(budget, laplace, squared)
