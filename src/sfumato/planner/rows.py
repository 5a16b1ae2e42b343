"""How many rows of a person to count: chosen by a private look at how many persons have."""

from __future__ import annotations

import os
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.curator import Histogram
from sfumato.curator.people import Joined, PerPerson, Rows, per_person, rows
from sfumato.curator.rows.written import source_of
from sfumato.domain import Bins, Domain
from sfumato.errors import InvalidInput, PlanError
from sfumato.mechanisms.carry_out import carry_out
from sfumato.operators.base import FloatArray
from sfumato.planner.left_out import BANDS, draw_left_out, draw_uneven, numbers_asked
from sfumato.planner.planning import plan
from sfumato.planner.shares import part_of, replan
from sfumato.plans.plan import Plan
from sfumato.privacy.accounting import event_price, overspending_error
from sfumato.privacy.amounts import Number, read_exact
from sfumato.privacy.ledger import Ledger
from sfumato.releases import Release
from sfumato.releases.released import as_ledger
from sfumato.workloads import queries
from sfumato.workloads.core import RECORDS

_MOST = 128  # numbers of rows that are compared, each with a query of its own
_OF_NUMBERS = Fraction(4, 5)  # of the share, for how many rows persons have; the rest for where these lie
_PLANS = 12  # plans that are made where errors do not follow from one of them


def choose_rows(
    most: Plan,
    source: Any,
    *,
    ledger: str | os.PathLike[str] | Ledger | None,
    share: Number = "0.05",
    name: str = "rows of persons",
    out: str | os.PathLike[str] | None = None,
    table: str | None = None,
) -> Plan:
    """The plan that counts as many rows of each person as errs least, after a look at how many persons have.

    Each row more of a person costs noise in every answer, each row fewer leaves rows out. A share of the plan's budget
    pays for two releases: four fifths of it that of how many rows would be left out by each number up to the plan's
    own, and roughly of rows up to eight times that; the rest that of the plan's questions with as many rows of each
    person as would do if they lay evenly. The plan that is returned has the best number, and the rest of the budget.

    The best is that of the least mean squared error, noise and what is left out together, over the tables of counts,
    tables alike; as what is left out is known roughly, of the least mean logarithm over what it may be. Rows that are
    left out are taken to lie in the cells as those of the second release do. Counted are all rows that name the person,
    also those that the domain drops; under `once_per` the different values of its one attribute.

    Args:
        most: A plan whose `rows_per_person` is the largest that comes into question, at most 128.
        source: The table, as `sf.release` takes it: rows, or `sf.joined(...)`.
        ledger: The ledger that pays, or its path; None for an explicit one-shot account.
        share: The share of the plan's budget that both releases cost, above 0 and below 1.
        name: The name of the first release; that of the second is this with ", where they lie".
        out: The folder where both are stored; the same call then reads them back, free.
        table: The public name of the table or database, as for `sf.release`.

    Returns:
        A plan of the same questions, mechanism and objective, whose notes say what was found. The budget of an
        (epsilon, delta) plan is divided as mu², in which both parts add up, and is then one of mu-GDP.

    Raises:
        PlanError: The plan is not one of several rows a person and one look, or the share is none.
        InvalidInput: The source has one row for each person, or holds counts. Nothing is spent.
        SfumatoError: As `sf.release`.

    Guarantee:
        Both releases together satisfy the share of the plan's budget for the plan's person, and each is debited before
        the table is read; what is returned follows from them alone.

    >>> import pandas as pd
    >>> visits = pd.DataFrame({"patient": [1, 1, 2, 3, 3, 3] * 500, "ward": list("abcabc") * 500})
    >>> visits["patient"] += 10 * (np.arange(3_000) // 6)
    >>> wards = sf.Domain({"ward": sf.Categories(["a", "b", "c"], outside="other", missing="other")})
    >>> work = sf.marginals(wards, order=1)
    >>> plan = sf.plan(work, sf.zcdp(1), neighbours="add-remove", person="patient", rows_per_person=8)
    >>> chosen = sf.choose_rows(plan, visits, ledger=None)
    >>> chosen.unit.rows_per_person, chosen.budget
    (3, <Budget 0.95-zCDP; Gaussian noise multiplier 0.72548; (7.5386, 1e-6)-DP>)
    """
    part = read_exact(share, "share")
    if not isinstance(most, Plan) or most.unit.person is None or most.unit.rows_per_person < 2:
        raise PlanError("choose_rows needs a plan of tables with person= and rows_per_person= of 2 or more")
    if not 0 < part < 1:
        raise PlanError(f"share is above 0 and below 1, not {share!r}")
    unit = most.unit
    if unit.rows_per_person > _MOST:
        raise PlanError(f"at most {_MOST} rows of a person are compared, not {unit.rows_per_person:,}; plan with fewer")
    if len(unit.once_per) > 1 or unit.rows_per_group > 1:
        raise PlanError("rows are chosen where once_per= names one attribute, one row per group; leave it out, or plan")
    account, folder = as_ledger(ledger), None if out is None else Path(out)
    pays = {"ledger": account, "table": table}
    look = _look_plan(most, part * _OF_NUMBERS)
    places = {r: replan(most, part_of(most.budget, part * (1 - _OF_NUMBERS)), r) for r in (1, unit.rows_per_person)}
    second = f"{name}, where they lie"
    if account is not None:
        _check_both_are_paid(account, {name: [look], second: list(places.values())})
    numbers = carry_out(look, _numbers_of_rows(most, source), name=name, out=folder and folder / "numbers", **pays)
    lost = draw_left_out(numbers.answers, numbers.covariance(numbers.workload), unit.rows_per_person)
    tried, noise = _noise_of(most, 1 - part)
    cells = np.concatenate([e.cells() for e in most.entries if e.item.unit == RECORDS]).astype(float)

    def best_of(uneven: FloatArray) -> int:
        """The number of least error where a table's mean square is so much more than if what is left out lay evenly."""
        # what is left out falls into cells by chance: a mean square is at least a mean, and one more square of it
        even = np.square(lost) * np.mean((1 + uneven) / cells**2, axis=1)[:, None] + lost * np.mean(1 / cells)
        # of logarithms: what a choice loses is a ratio, and tables that are unlikely must not outweigh the rest
        squares = np.log(noise.mean(axis=1) + even[:, tried])
        return tried[int(np.argmin(squares.mean(axis=0)))]

    # Whoever has many rows may have them elsewhere than others have theirs. So this looks at as many rows of each as
    # would be best if all lay evenly.
    first = best_of(np.zeros((1, len(cells))))
    where = replan(most, part_of(most.budget, part * (1 - _OF_NUMBERS)), first)
    found = carry_out(where, source, name=second, out=folder and folder / "where", **pays)
    best = best_of(_uneven(found, np.maximum(lost[:, 0] - lost[:, first], 1.0)))
    low, about, high = np.quantile(lost[:, best], (0.025, 0.5, 0.975))
    text = (
        f"{best} rows of a person were chosen by the release {name!r}: about {about:,.0f} rows are left out, "
        f"{low:,.0f} to {high:,.0f} at 95 %"
    )
    made = replan(most, part_of(most.budget, 1 - part), best)
    return replace(made, notes=(*made.notes, text))


def _check_both_are_paid(account: Ledger, plans: dict[str, list[Plan]]) -> None:
    """Refuse two releases of which the ledger would pay the first alone. Those that it paid for before are free."""
    currency = account.currency
    new = [some for name, some in plans.items() if account.find(name) is None]
    prices = [max(event_price(plan.price, currency) for plan in some) for some in new]
    if sum(prices, Fraction(0)) > account.remaining:
        raise overspending_error(sum(prices, Fraction(0)), account.remaining, currency)


def _look_plan(most: Plan, part: Fraction) -> Plan:
    """The plan of how many rows are left out by each number of counted ones below the largest, and above that."""
    top = most.unit.rows_per_person
    asked, sizes, widths = numbers_asked(top)
    above = sizes > top * 2**BANDS  # all of these are asked alike, so one class is enough
    edges = np.append(0, np.cumsum(widths[~above])).astype(int).tolist()
    domain = Domain({"rows": Bins([*edges, 2 * edges[-1]], outside="clamp", missing="other")})
    matrix = np.hstack([asked[:, ~above], asked[:, above][:, :1], np.zeros((len(asked), domain.size - len(edges)))])
    labels = [f"rows beyond {r}, times {1 / (top - r):.3g}" for r in range(top)]
    labels += [f"rows from {top * 2**j + 1} to {top * 2 ** (j + 1)}, as a part" for j in range(BANDS)]
    asked = queries(matrix, domain, labels=labels)
    return plan(asked, part_of(most.budget, part), neighbours=most.unit.neighbours, person=most.unit.person)


def _uneven(found: Release, rows: FloatArray) -> FloatArray:
    """(draws, tables of counts) how unevenly rows may lie in each table, where a draw of `rows` were counted."""
    entries = found.plan.entries
    errors = found.standard_errors()
    assert errors is not None
    sizes = np.concatenate([e.cells() for e in entries])
    counts = np.concatenate([np.full(len(e.cells()), e.item.unit == RECORDS) for e in entries])
    tables = np.concatenate([np.full(len(e.cells()), int(e.item.is_marginal)) for e in entries])
    starts = np.append(0, np.cumsum(sizes)[:-1])
    squares, means, noise = (
        np.add.reduceat(values, starts) / sizes
        for values in (np.square(found.answers), found.answers, np.square(errors))
    )
    differ = squares - tables * np.square(means)
    return draw_uneven(differ[counts], noise[counts], sizes[counts], tables[counts], rows)


def _numbers_of_rows(most: Plan, source: Any) -> PerPerson:
    """The source with one row for each person, of how many rows that person has. Raises InvalidInput."""
    unit, given = most.unit, source_of(source).table
    assert unit.person is not None
    if isinstance(given, Histogram):
        raise InvalidInput("a histogram has no rows: give the table that it was counted from")
    if isinstance(given, PerPerson):
        raise InvalidInput("a table of sf.per_person has one row for each person: there is nothing to choose")
    people: Rows | None = None
    if isinstance(given, Joined):
        people, counted = given.people.people if given.unmatched == "drop" else None, given.table
        if given.people.key != unit.person:
            raise InvalidInput(f"persons are known by {given.people.key!r} there and by {unit.person!r} in the plan")
    else:
        counted = rows(source)
    quoted = "".join(unit.once_per).replace('"', '""')
    what = f'count(distinct counted."{quoted}")' if quoted else "count(counted)"
    return per_person(people, key=unit.person, columns={"rows": what}, counted=counted)


def _noise_of(most: Plan, rest: Fraction) -> tuple[list[int], FloatArray]:
    """Numbers of rows, and for each of them the mean variance of every table of counts with the rest of the budget."""
    top, budget = most.unit.rows_per_person, part_of(most.budget, rest)
    if not most.unit.once_per:
        # noise grows with the number of rows, and nothing else does
        once = _variances(replan(most, budget, top)) / top**2
        return list(range(1, top + 1)), np.arange(1, top + 1)[:, None] ** 2 * once
    tried = sorted({*np.geomspace(2, top, _PLANS).round().astype(int).tolist()})
    return tried, np.array([_variances(replan(most, budget, r)) for r in tried])


def _columns(made: Plan, *names: str) -> list[Any]:
    errors = made.errors()
    return [errors[name] for name in names]


def _variances(made: Plan) -> FloatArray:
    errors, units = _columns(made, "rmse", "unit")
    return np.array([e**2 for e, unit in zip(errors, units, strict=True) if unit == RECORDS])
