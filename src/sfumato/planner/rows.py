"""How many rows of a person to count: chosen by a private look at how many persons have."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from sfumato.curator import Histogram
from sfumato.curator.people import Joined, PerPerson, Rows, per_person, rows
from sfumato.curator.rows.written import source_of
from sfumato.domain import Bins, Domain
from sfumato.errors import InvalidInput, PlanError
from sfumato.mechanisms.carry_out import carry_out
from sfumato.operators.base import FloatArray
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
# Of numbers above the plan's own, each to twice the one before: whoever has more has rows left out by any number.
_BANDS = 3
# By so much, in squared standard deviations, may fewer numbers fit worse. Numbers of rows that nobody has fit better by
# more in one look of four hundred, by noise alone (drawn for 64 numbers, of which persons have 7; with 8 it is 11).
_DOUBT = 18.0
_SEEN = 10.0  # likewise, of tails that fall in six given ways: by so much have they to fit better
_POWERS, _RATIOS = (1, 2, 4), (0.5, 0.75, 0.9)  # by which tails fall: as powers of the number, or from one to the next
_OF_NUMBERS = Fraction(9, 10)  # of the share, for how many rows persons have; where they lie is known well for little
_MOVES = 24  # by which what noise does is told: with four times as many the number that is chosen hardly moves
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
    pays for two releases: of how many rows would be left out by each number up to the plan's own, and roughly of who
    has up to eight times that; and of the plan's questions with as many rows of each person as would do if they lay
    evenly. The plan that is returned has the best number, and the rest of the budget.

    The best is that of the least mean squared error, noise and what is left out together, over the tables of counts,
    tables alike. Rows that are left out are taken to lie in the cells as those of the second release do. Counted are
    all rows that name the person, also those that the domain drops; under `once_per` the different values of its one
    attribute.

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
    lost = _Lost.of(numbers, unit.rows_per_person)
    tried, noise = _noise_of(most, 1 - part)
    cells = np.concatenate([e.cells() for e in most.entries if e.item.unit == RECORDS])

    def best_of(spread: FloatArray) -> int:
        """The number of least error where of each table's cells the shares of rows left out have these mean squares."""
        squares = noise + lost.squares[tried][:, None] * spread
        return tried[int(np.argmin(squares.mean(axis=1)))]

    # Whoever has many rows may have them elsewhere than others have theirs. So this looks at as many rows of each as
    # would be best if all lay evenly.
    evenly = 1 / np.square(cells.astype(float))
    first = best_of(evenly)
    where = replan(most, part_of(most.budget, part * (1 - _OF_NUMBERS)), first)
    found = carry_out(where, source, name=second, out=folder and folder / "where", **pays)
    # no shares have smaller mean squares than even ones, whatever the noise says
    best = best_of(np.maximum(evenly, _spread(found) / max(1.0, lost.rows[0] - lost.rows[first]) ** 2))
    doubt = math.sqrt(max(0.0, lost.squares[best] - lost.rows[best] ** 2))
    text = (
        f"{best} rows of a person were chosen by the release {name!r}: about {lost.rows[best]:,.0f} ± {2 * doubt:,.0f} "
        f"rows are left out of those who have up to {unit.rows_per_person * 2**_BANDS:,}"
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


@dataclass(frozen=True, slots=True)
class _Lost:
    """How many rows are left out by how many are counted, from 0, and what the squares are expected to be."""

    rows: FloatArray
    squares: FloatArray

    @classmethod
    def of(cls, found: Release, most: int) -> _Lost:
        beyond, sizes = _beyond(most)
        parts = np.linalg.eigh(found.covariance(found.workload))
        roots = np.sqrt(np.maximum(parts.eigenvalues, 1e-12 * parts.eigenvalues.max()))
        white = parts.eigenvectors.T / roots[:, None]
        seen, answers = white @ beyond[:, 1:], white @ found.answers
        numbers = np.eye(len(sizes) - 1)

        def fit(ways: FloatArray, moved: FloatArray | float = 0.0) -> tuple[FloatArray, float]:
            """How many persons have each number of rows, as a sum of ways, none below 0; and how badly that fits."""
            each, off = nnls(seen @ ways, answers + moved, maxiter=100 * len(sizes))
            return ways @ each, off**2

        worst = fit(numbers)[1] + _DOUBT

        def least(ways: Callable[[int], FloatArray]) -> int:
            """Beyond how many rows nobody need have more, or only as the ways say, for what was measured."""
            low, high = 0, len(numbers)
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if fit(ways(middle))[1] <= worst else (middle, high)
            return high

        def ending(last: int) -> FloatArray:
            return numbers[:, :last]

        def falling(last: int) -> FloatArray:
            return np.hstack([ending(last), _tails(sizes[1:], last, most)])

        # Two tables that no look could tell apart may need numbers that are far apart. Where rows are seen to go on as
        # they fell before, both are possible, that they do and that they end; elsewhere they end.
        taken, last = [ending(least(ending))], least(falling)
        if fit(ending(last))[1] - fit(falling(last))[1] > _SEEN:
            taken.append(falling(last))
        left = np.maximum(sizes[1:] - np.arange(most + 1)[:, None], 0)
        # what the noise does to the fit: moved as noise moves it, both ways, the same for every look
        moves = np.random.default_rng(_MOVES).normal(size=(_MOVES, len(answers)))
        drawn = [[fit(ways, move)[0] for move in np.vstack([moves, -moves])] for ways in taken]
        each = np.array(drawn).reshape(-1, len(numbers))
        lost = each @ left.T
        return cls(lost.mean(axis=0), np.square(lost).mean(axis=0))


def _beyond(most: int) -> tuple[FloatArray, FloatArray]:
    """What is asked of a number of rows, and the numbers: up to the largest one by one, then the middles of bands.

    Asked are the rows beyond each number of counted ones, from 0, up to the largest; then those in each band. Each is a
    part of as many as there can be: where few rows are counted more are left out, and err more.
    """
    starts = most * 2 ** np.arange(_BANDS)
    sizes = np.concatenate([np.arange(most + 1), 1.5 * starts]).astype(np.float64)
    first = np.concatenate([np.arange(most), starts])[:, None]
    end = np.concatenate([np.full(most, most), 2 * starts])[:, None]
    return np.clip(np.minimum(sizes, end) - first, 0, None) / (end - first), sizes


def _tails(sizes: FloatArray, last: int, most: int) -> FloatArray:
    """(numbers, tails) how persons who have more than the last number of rows may have them, each a distribution."""
    over = sizes - last
    width = np.where(sizes > most, sizes / 1.5, 1.0)  # of a band as many numbers as it begins with
    shapes = [(sizes / last) ** (-power - 1.0) for power in _POWERS] + [ratio**over for ratio in _RATIOS]
    tails = [np.where(over > 0, shape * width, 0.0) for shape in shapes]
    return np.array([tail / tail.sum() for tail in tails if tail.sum() > 0]).reshape(-1, len(sizes)).T


def _look_plan(most: Plan, part: Fraction) -> Plan:
    """The plan of how many rows are left out by each number of counted ones below the largest, and above that."""
    top = most.unit.rows_per_person
    beyond, sizes = _beyond(top)
    edges = [*range(top + 1), *(top * 2**j + 1 for j in range(_BANDS + 1))]
    domain = Domain({"rows": Bins(edges, outside="clamp", missing="other")})
    matrix = np.hstack([beyond, np.zeros((len(beyond), domain.size - len(sizes)))])
    labels = [f"rows beyond {r}, times {1 / (top - r):.3g}" for r in range(top)]
    labels += [f"rows from {top * 2**j + 1} to {top * 2 ** (j + 1)}, as a part" for j in range(_BANDS)]
    asked = queries(matrix, domain, labels=labels)
    return plan(asked, part_of(most.budget, part), neighbours=most.unit.neighbours, person=most.unit.person)


def _spread(found: Release) -> FloatArray:
    """Of every table of counts the mean square of a cell."""
    entries = found.plan.entries
    errors = found.standard_errors()
    assert errors is not None
    sizes = np.concatenate([e.cells() for e in entries])
    kept = np.concatenate([np.full(len(e.cells()), e.item.unit == RECORDS) for e in entries])
    starts = np.append(0, np.cumsum(sizes)[:-1])
    squares = np.add.reduceat(np.square(found.answers) - np.square(errors), starts) / sizes
    return np.maximum(squares, 0.0)[kept]


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
