"""Plans and releases of labels that are to be found: from a request to the first look, and from labels to the second.

The first look is priced and its threshold found here; that both are right is proved where the law is built
(`privacy.labels`). The second is a plan of tables like any other, made when the labels are there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from sfumato._util.bundles import pack_value, unpack_value
from sfumato.cells import BETWEEN
from sfumato.curator.labels import LabelCurator
from sfumato.domain import Categories, Domain
from sfumato.domain.attributes import MOST_LETTERS
from sfumato.errors import BudgetError, PlanError
from sfumato.mechanisms.registry import TABLES, Mechanism, Request, make_mechanism, plan_with_mechanism
from sfumato.mechanisms.steps import are_looks_owed, remove_looks, step_budget
from sfumato.plans.labels import Expected, LabelPlan, LabelsFound
from sfumato.plans.plan import Plan
from sfumato.privacy.accounting import ApproxGaussianEvent, GaussianEvent
from sfumato.privacy.amounts import readable_number
from sfumato.privacy.budget import Budget
from sfumato.privacy.labels import MOST_PER_PERSON, LabelLook, LabelSelection, added_weight
from sfumato.privacy.ledger import Receipt
from sfumato.privacy.noise import RoundedGaussian
from sfumato.privacy.rounding import sqrt_down
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies.calibration import noise_of

if TYPE_CHECKING:
    from sfumato.mechanisms.carry_out import PlanKind

_WEIGHT = 2**16  # what a person adds: fine enough that to round its parts down costs less than a thousandth
_SHOWN = (10, 100, 1_000)  # numbers of labels for which errors are told before data
_ROUNDS = ((1, Fraction(1, 800)), (5, Fraction(1, 400)), (14, Fraction(797, 800)))
"""Rounds of a look for labels, where a person has several: twentieths of its mu^2, and parts of its delta. Each shows
what the sums so far reach, whose weight is then free for others; the last adds up what all rounds saw, as one round of
the whole price would see it. So they cost a label nothing but the little delta of the first two (decision 163)."""
_PREFIXES = Fraction(1, 5)
"""Of a look for labels what each length of prefixes takes. With two of them, a prefix is shown that 1.7 times as many
persons have as a label needs: more have it than any label under it, and what is rare under it still counts there."""
_LETTER = 0x20000  # the first of 42,720 letters that follow each other
_TRIES = 1_000  # thresholds above the guess: one is enough where doubles are right to twelve digits


def select_labels(
    unit: PrivacyUnit,
    mu_squared: Fraction,
    delta: Fraction,
    before: tuple[tuple[int, Fraction], ...] = (),
    times: int = 1,
) -> LabelSelection:
    """The law with the least threshold that a price pays for, after some rounds (`LabelSelection.before`).

    Raises PlanError where none is found.
    """
    per_person = min(unit.rows_per_person, MOST_PER_PERSON)
    changed = 1 if unit.neighbours is Neighbours.ADD_REMOVE else 2
    noise = noise_of(GaussianEvent(mu_squared), changed * _WEIGHT**2)
    assert isinstance(noise, RoundedGaussian)
    rounds = [*before, (times, noise.sigma)] if before else [(1, noise.sigma)]
    first = _guessed_threshold([(n, float(sigma)) for n, sigma in rounds], per_person, float(delta))
    for threshold in range(first, first + _TRIES):
        try:
            return LabelSelection(noise, _WEIGHT, per_person, threshold, delta, before, times)
        except PlanError:
            continue
    raise PlanError("no threshold keeps so small a delta; set more of it aside (thresholds=)")


def _guessed_threshold(rounds: Sequence[tuple[int, float]], per_person: int, delta: float) -> int:
    """About the least threshold; whether it keeps delta is proved elsewhere."""
    whole, spread = sum(n for n, _ in rounds), math.hypot(*(n * sigma for n, sigma in rounds))
    counts = np.arange(1, per_person + 1)
    added = np.array([added_weight(_WEIGHT, n) for n in counts.tolist()])
    # the chance that each of n labels may have
    chance = -np.expm1(math.log1p(-delta) / counts)
    return max(1, math.floor(float((whole * (added + 0.5) - spread * ndtri(chance)).max())))


def plan_labels(value: Mechanism[Any], asked: Request) -> LabelPlan:
    """The plan of both looks. Raises PlanError and BudgetError."""
    _check_request(value, asked)
    domain: Domain = asked.what.domain
    budget, unit = asked.budget, asked.unit
    looks = label_looks(domain, budget, unit)
    total = budget.mu_squared
    assert budget.thresholds is not None
    made = LabelPlan(
        asked.what,
        budget,
        unit,
        value.name,
        asked.objective,
        ApproxGaussianEvent(total, budget.thresholds),
        looks,
        (),
        asked.records,
    )
    most = max(k.most for k in looks)
    # the last of them is planned too: what fits it fits whatever is shown
    expected = tuple(_expected(made, n) for n in (*(n for n in _SHOWN if n < most), most))
    return replace(made, expected=expected)


def label_looks(domain: Domain, budget: Budget, unit: PrivacyUnit) -> tuple[LabelLook, ...]:
    """The looks that find all labels which are to be found, each with its price. Raises PlanError and BudgetError."""
    attributes = {n: a for n in domain.discovered if isinstance(a := domain[n], Categories)}
    shares = [a.discover or Fraction(0) for a in attributes.values()]
    if sum(shares) >= 1:
        raise PlanError("the shares of discover= add up to the whole budget; leave some of it for the tables")
    if budget.thresholds is None:
        raise BudgetError(_set_aside(budget))
    looks: list[LabelLook] = []
    for (name, attribute), share in zip(attributes.items(), shares, strict=True):
        price = ApproxGaussianEvent(budget.mu_squared * share, budget.thresholds / len(attributes))
        looks += label_rounds(name, attribute, price, unit)
    return tuple(looks)


def label_rounds(name: str, attribute: Categories, price: ApproxGaussianEvent, unit: PrivacyUnit) -> list[LabelLook]:
    """The looks that find an attribute's labels at a price: one for prefixes of each length, rounds for labels."""
    levels = [n for _, n in attribute.lengths]
    found: list[LabelLook] = []

    def look(letters: int, mu_squared: Fraction, delta: Fraction, **rounds: Any) -> None:
        own = ApproxGaussianEvent(price.mu_squared * mu_squared, price.delta * delta)
        law = select_labels(unit, own.mu_squared, own.delta, **rounds)
        found.append(LabelLook(name, attribute.trim, attribute.most, law, own, letters, tuple(attribute.columns)))

    for letters in levels:
        look(letters, _PREFIXES, _PREFIXES)
    left, before = 1 - len(levels) * _PREFIXES, tuple[tuple[int, Fraction], ...]()
    if unit.rows_per_person == 1:
        look(0, left, left)
        return found
    for times, delta in _ROUNDS:
        look(0, left * times / sum(n for n, _ in _ROUNDS), left * delta, before=before, times=times)
        before = found[-1].selection.rounds
    return found


def _check_request(value: Mechanism[Any], asked: Request) -> None:
    """Refuse what does not go with labels that are to be found."""
    budget = asked.budget
    if asked.kind != TABLES:
        plan_with_mechanism(value, asked)  # refuses, in words of its own
    if budget.thresholds is None:
        raise BudgetError(_set_aside(budget))
    asked.unit.refuse_groups("labels that are to be found")
    idle = [f"{n}=" for n in ("public", "strategy", "reconstruction") if getattr(asked, n) is not None]
    if idle:
        raise PlanError(f"the tables over labels that are to be found are planned without {', '.join(idle)}")
    if value != make_mechanism(value.name):
        raise PlanError(
            f"the tables over labels that are to be found are planned by mechanism={value.name!r} without options"
        )


def _set_aside(budget: Budget) -> str:
    """Why a budget without thresholds finds no label, and which would."""
    example = "sf.approx(1, '1e-6', thresholds='5e-7')"
    if budget.delta is not None:
        given = (budget.parameter, budget.delta, budget.delta / 2)
        example = "sf.approx({!r}, {!r}, thresholds={!r})".format(*map(readable_number, given))
    return (
        "a label that one person alone has may be shown with a small probability, so finding labels needs a delta "
        f"that is set aside for it: plan with {example}, and make the ledger with such a total"
    )


@lru_cache(maxsize=64)
def _names(count: int, letters: int | None, columns: int) -> tuple[str, ...]:
    """Labels that stand for those that will be shown; or of so many letters, of which short ones begin long ones."""
    texts = (f"label {i}" if letters is None else chr(_LETTER + i) * letters for i in range(1, count + 1))
    return tuple(BETWEEN.join([text] * columns) for text in texts)


def _expected(plan: LabelPlan, count: int) -> Expected:
    nested = {name for name, letters in plan.rounds if letters}
    names = [
        _names(min(count, looks[0].most), (n or MOST_LETTERS) if name in nested else None, len(looks[0].columns) or 1)
        for (name, n), looks in plan.rounds.items()
    ]
    second = plan_of_found(plan, names)
    return Expected(count, second.rmse, second.max_standard_error)


def plan_of_found(plan: LabelPlan, shown: Sequence[Sequence[str]]) -> Plan:
    """The plan of the second look, over what was shown, in the order of `plan.rounds`. Raises PlanError."""
    labels: dict[str, list[Sequence[str]]] = {}
    for (name, _), texts in zip(plan.rounds, shown, strict=True):
        labels.setdefault(name, []).append(texts)
    workload = plan.workload.found(labels)
    budget = Budget.gdp(sqrt_down(plan.left))
    asked = Request(TABLES, workload, budget, plan.unit, plan.objective, plan.records)
    made = plan_with_mechanism(make_mechanism(plan.mechanism), asked)
    if type(made) is not Plan:
        raise PlanError(
            f"tables over labels that are to be found are measured in one look; mechanism={plan.mechanism!r} takes "
            "several"
        )
    return replace(made, budget=plan.budget, found=LabelsFound(plan.fingerprint, plan.price, plan.looks))


def look_for_labels() -> PlanKind:
    """How a plan of labels that are to be found is carried out: looks for them, and one at the tables over them."""
    from sfumato.mechanisms.carry_out import Access, Made, PlanKind, look_once  # noqa: PLC0415  (plans look at nothing)

    def look(plan: LabelPlan, at: Access) -> tuple[Receipt, Made]:
        """Find labels, unless an earlier process did and was killed, and then look at the tables over them."""
        with step_budget(plan, at) as (budget, store):
            shown = [unpack_value(labels) for labels in store.came]
            if len(shown) < len(plan.rounds):
                curator = LabelCurator(at.source, plan.workload.domain, plan.unit, budget, table=at.table)
                found = curator.find(
                    plan.looks,
                    name=at.name,
                    plan_hash=plan.fingerprint,
                    keep=lambda labels: store.keep(pack_value(labels)),
                    shown=shown,
                )
                shown = [*found]
            _, made = look_once(plan_of_found(plan, shown), at, budget)
        paid = at.account.paid(at.name, plan.fingerprint)
        assert paid is not None
        return paid, made

    return PlanKind(look, owed=are_looks_owed, stored=remove_looks)
