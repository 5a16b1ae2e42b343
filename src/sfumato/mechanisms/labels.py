"""Plans and releases of labels that are to be found: from a request to the first look, and from labels to the second.

The first look is priced and its threshold found here; that both are right is proved where the law is built
(`privacy.labels`). The second is a plan of tables like any other, made when the labels are there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from sfumato.cells import BETWEEN
from sfumato.curator.labels import LabelCurator, LabelOpening, LabelStore, OwedLook
from sfumato.domain import Categories, Domain
from sfumato.domain.attributes import MOST_LETTERS
from sfumato.errors import BudgetError, InvalidInput, LedgerError, NameTaken, NotWritten, PlanError, SfumatoError
from sfumato.mechanisms.registry import TABLES, Mechanism, Request, make_mechanism, plan_with_mechanism
from sfumato.plans.labels import Expected, LabelPlan, LabelsFound
from sfumato.plans.plan import Plan
from sfumato.privacy.accounting import ApproxGaussianEvent, GaussianEvent
from sfumato.privacy.amounts import readable_number
from sfumato.privacy.budget import Budget
from sfumato.privacy.files import is_nonempty_file
from sfumato.privacy.labels import MOST_PER_PERSON, LabelLook, LabelSelection, added_weight
from sfumato.privacy.ledger import Entry, Ledger, Receipt
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


# Between the looks --------------------------------------------------------------------------------------------------


def labels_beside(out: str | PathLike[str]) -> Path:
    """Where labels are kept until the release is stored that they are for."""
    place = Path(out)
    return place.with_name(f"{place.name}.labels")


def label_store(plan: LabelPlan, account: Ledger, name: str, out: str | PathLike[str] | None) -> LabelStore:
    """Where the labels of a release are kept, or are to be: beside its folder, or in memory where nothing is stored.

    What an opening that was cut short left there is gone on with; of another release it is taken away where that is
    owed nothing any more. Raises InvalidInput where it is, LedgerError for a file of another kind.
    """
    opening = LabelOpening(plan.fingerprint, account.ledger_id, name, plan.looks)
    if out is None or not account.durable:
        return LabelStore.create(None, opening)
    path = labels_beside(out)
    if is_nonempty_file(path):
        store = LabelStore.at(path)
        if store.opening == opening and (store.found is None or account.find(name) is not None):
            return store
        if store.owed is not None:
            raise InvalidInput(
                f"{path} holds labels that another release found, whose tables are still to be looked at; finish that "
                "one, or choose another folder"
            )
        store.remove()
    return LabelStore.create(path, opening)


def are_labels_owed(plan: LabelPlan, account: Ledger, entry: Entry, out: str | PathLike[str] | None) -> bool:
    """Whether labels were found under an entry of the ledger, and the tables over them were not yet looked at."""
    if out is None or not is_nonempty_file(labels_beside(out)):
        return False
    if entry.released or (entry.plan_hash, entry.event) != (plan.fingerprint, plan.price):
        return False
    store = LabelStore.at(labels_beside(out))
    found = store.owed
    if found is None or store.opening != LabelOpening(plan.fingerprint, account.ledger_id, entry.name, plan.looks):
        return False
    account.check(found.anchor)
    return found.sequence == entry.sequence


def remove_labels(out: str | PathLike[str] | None) -> None:
    """Take the file of labels away: they stand in the release that is stored."""
    if out is not None and labels_beside(out).exists():
        with suppress(LedgerError):  # of another kind: not ours
            LabelStore.at(labels_beside(out)).remove()


def _not_finished(sequence: int, error: SfumatoError, store: LabelStore, out: str | PathLike[str] | None) -> NotWritten:
    """Why not all looks could be taken that were paid for, and what becomes of what was shown."""
    after = "there is no refund once noise was drawn"
    if out is not None and store.owed is not None:
        after = f"what was shown is kept in {labels_beside(out)}, and the same command again goes on with it, free"
    what = "labels were found, but the tables over them" if store.whole else "not all labels"
    return NotWritten(f"the budget is spent (entry {sequence}) and {what} could not be looked at: {error}; {after}")


def look_for_labels() -> PlanKind:
    """How a plan of labels that are to be found is carried out: a look for them, and one at the tables over them."""
    from sfumato.mechanisms.carry_out import Access, Made, PlanKind, look_once  # noqa: PLC0415  (plans look at nothing)

    def look(plan: LabelPlan, at: Access) -> tuple[Receipt, Made]:
        """Find labels, unless an earlier process did and was killed, and then look at the tables over them."""
        name, hashed = at.name, plan.fingerprint
        store = label_store(plan, at.account, name, at.out)
        try:
            if not store.whole:
                curator = LabelCurator(at.source, plan.workload.domain, plan.unit, at.account, table=at.table)
                curator.find(plan.looks, plan.price, name=name, plan_hash=hashed, store=store)
        except BaseException as error:
            entry = at.account.find(name)
            if entry is None:
                store.remove()
            elif isinstance(error, SfumatoError) and store.owed is not None:
                raise _not_finished(entry.sequence, error, store, at.out) from error
            raise
        paid, owed = at.account.paid(name, hashed), store.owed
        if paid is None or owed is None:  # another process was faster
            raise NameTaken(f"{name!r} was paid for by another process, which looks at the tables now")
        try:
            second = plan_of_found(plan, owed.labels)
            _, made = look_once(second, at, OwedLook(plan.looks, plan.price, plan.unit, paid, store))
        except SfumatoError as error:
            raise _not_finished(paid.sequence, error, store, at.out) from error
        return paid, made

    return PlanKind(look, owed=are_labels_owed, stored=remove_labels)
