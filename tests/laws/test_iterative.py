"""What mechanisms of several looks spend: the sum of all events of a run is the price of its plan, exactly.

Mutants named were seen to fail.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.curator import Curator
from sfumato.measurements import Measurement, Selection
from sfumato.mechanisms import mechanism_class
from sfumato.mechanisms.iterative import Iterative, run_rounds
from sfumato.plans.iterative import IterativePlan
from sfumato.privacy.accounting import (
    Account,
    BoundedRangeEvent,
    Event,
    GaussianEvent,
    PureEvent,
    ZcdpEvent,
    mu_of_pure,
)
from sfumato.privacy.noise import DiscreteLaplace, RoundedGaussian
from sfumato.releases import Provenance
from sfumato.releases.modelled import Findings
from sfumato.strategies.certificates import exact_sensitivity
from support.words import plan_with

DOMAIN = sf.Domain({"a": sf.Categories(["x", "y"]), "b": sf.Integers(0, 2), "c": sf.Booleans()})
WORK = sf.marginals(DOMAIN, order=2) + sf.prefix(DOMAIN, "b")
TABLE = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]
BUDGETS = {
    "zcdp": sf.zcdp("0.1"),
    "approx": sf.approx(1, "1e-6"),
    "gdp": sf.gdp("1/3"),
    "pure": sf.pure("0.7"),
    "large": sf.zcdp(10**6),
}
NOWHERE = Provenance("n", "", 1, "", True, "", ())
ITERATIVE = ("mwem", "boosting")
CASES = [(name, budget, unit) for name in ITERATIVE for budget in BUDGETS for unit in ("add-remove", "replace-one")]


def planned(name: str, budget: str, neighbours: str, **options: Any) -> IterativePlan:
    given: dict[str, Any] = {"records": 50, "rounds": 3} | options
    return plan_with(WORK, BUDGETS[budget], neighbours=neighbours, mechanism=name, **given)


def spends(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """What is spent from accounts in memory from now on."""
    seen: list[Event] = []
    spend = Account.spend

    def note(self: Account, event: Event) -> Fraction:
        cost = spend(self, event)
        seen.append(event)
        return cost

    monkeypatch.setattr(Account, "spend", note)
    return seen


def cost(event: Event, whole: Event) -> Fraction:
    """The price of an event in the definition of the whole, by the formulas of docs/privacy.md, written out here."""
    match whole, event:
        case ZcdpEvent(), GaussianEvent(mu_squared=m):
            return m / 2
        case ZcdpEvent(), BoundedRangeEvent(epsilon=e):
            return e * e / 8
        case GaussianEvent(), GaussianEvent(mu_squared=m):
            return m
        case GaussianEvent(), BoundedRangeEvent(epsilon=e):
            return mu_of_pure(e / 2) ** 2
        case PureEvent(), PureEvent(epsilon=e) | BoundedRangeEvent(epsilon=e):
            return e
        case _:
            raise AssertionError(event)


def total_of(whole: Event) -> Fraction:
    return next(getattr(whole, n) for n in ("rho", "mu_squared", "epsilon") if hasattr(whole, n))


def promised(budget: sf.Budget) -> Fraction:
    return {"zcdp": lambda: budget.rho, "pure": lambda: budget.parameter}.get(budget.kind, lambda: budget.mu_squared)()


@pytest.mark.parametrize(("name", "budget", "neighbours"), CASES)
def test_all_events_of_a_run_sum_to_the_promised_budget_exactly(
    name: str, budget: str, neighbours: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Fractions, with no slack. Mutants: a selection that is not paid; the price of T - 1 rounds for T; the total
    not charged; rounding that leaves something unspent."""
    plan = planned(name, budget, neighbours)
    assert total_of(plan.price) == promised(BUDGETS[budget])
    assert plan.slack == 0
    opened = Curator(sf.Histogram(TABLE), DOMAIN, plan.unit, sf.Ledger.in_memory(BUDGETS[budget]))
    paid, _ = opened.prepaid(plan.price, name="n", plan_hash=plan.fingerprint)
    seen = spends(monkeypatch)
    release = run_rounds(plan, paid, NOWHERE)
    assert sum((cost(e, plan.price) for e in seen), start=Fraction(0)) == total_of(plan.price)
    assert Counter(seen) == Counter(e for k in plan.looks for e in [k.price] * k.count)
    chosen = [m for m in release.measurement if isinstance(m, Selection)]
    assert len(chosen) == sum(isinstance(e, BoundedRangeEvent) for e in seen)
    assert len(release.measurement) == len(seen)


@pytest.mark.parametrize(("name", "budget", "neighbours"), CASES)
def test_the_noise_of_every_measurement_is_what_its_price_says(name: str, budget: str, neighbours: str) -> None:
    """Not smaller, nor larger than rounding makes it. Mutants: sigma too small by the root of 2; sensitivity of a row
    for a table under replace-one."""
    plan = planned(name, budget, neighbours)
    release = sf.release(plan, sf.Histogram(TABLE), ledger=None)
    sizes = {n: a.size for n, a in DOMAIN.attributes.items()}
    (price,) = (k.price for k in plan.looks if not isinstance(k.price, BoundedRangeEvent) and total_of(k.price))
    seen = 0
    for look in release.measurement:
        if isinstance(look, Measurement):
            law = look.noise
            if isinstance(law, DiscreteLaplace):
                moves = exact_sensitivity(look.blocks, sizes, plan.unit, 1).value
                needed = moves / total_of(price)
                least = law.scale
            else:
                assert isinstance(law, RoundedGaussian)
                moves = exact_sensitivity(look.blocks, sizes, plan.unit, 2).value
                needed = moves / total_of(price)
                least = law.sigma**2
            if moves and law != type(law)(Fraction(1, 2**10)):
                assert needed <= least <= needed * (1 + Fraction(1, 10**12))
                seen += 1
    assert seen or budget == "large"


@pytest.mark.parametrize("name", ITERATIVE)
def test_a_plan_above_its_price_or_budget_is_refused_before_the_table(name: str) -> None:
    """Mutant: what a stored plan says of its price believed."""
    plan = planned(name, "zcdp", "add-remove")
    more = replace(plan.course, measurement=GaussianEvent(plan.course.measurement.mu_squared * 2))
    dearer = ZcdpEvent(total_of(plan.price) * 2)
    wrong = [
        replace(plan, course=more),
        replace(plan, price=dearer),
        replace(plan, price=BoundedRangeEvent(Fraction(1))),
        replace(plan, course=plan.price),
        replace(plan, mechanism="auto"),
        replace(plan, workload=None),
    ]
    for bad in wrong:
        ledger = sf.Ledger.in_memory(sf.zcdp(9))
        with pytest.raises(sf.errors.PlanError):
            sf.release(bad, sf.Histogram(TABLE), ledger=ledger)
        assert ledger.entries() == ()


@pytest.mark.parametrize("name", ITERATIVE)
def test_a_run_that_asks_for_more_than_was_paid_ends_spent(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However a mechanism errs, its account refuses. Mutant: an account that is not enforced."""
    plan = planned(name, "zcdp", "add-remove")
    course = replace(plan.course, measurement=GaussianEvent(plan.course.measurement.mu_squared * 2))
    looks = mechanism_class(name)
    run = looks.run

    def greedy(given: IterativePlan, paid: Curator) -> Findings:
        return run(replace(given, course=course), paid)

    monkeypatch.setattr(looks, "run", staticmethod(greedy))
    ledger = sf.Ledger.in_memory(sf.zcdp(9))
    with pytest.raises(sf.errors.NotWritten) as failure:
        sf.release(plan, sf.Histogram(TABLE), ledger=ledger, name="n")
    assert isinstance(failure.value.__cause__, sf.BudgetExceeded)
    assert (ledger.spent, [e.name for e in ledger.unreleased()]) == (total_of(plan.price), ["n"])


def test_every_iterative_mechanism_is_a_mechanism_by_name() -> None:
    """One line in the registry is all that a new one needs."""
    from sfumato.mechanisms import mechanisms_serving

    assert [cls.name for cls in mechanisms_serving("tables") if issubclass(cls, Iterative)] == list(ITERATIVE)
    for name in ITERATIVE:
        assert np.isfinite(
            sf.release(planned(name, "zcdp", "replace-one"), sf.Histogram(TABLE), ledger=None).answers
        ).all()
