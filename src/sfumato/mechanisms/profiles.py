"""Describing a table that nobody described: from its columns to a plan, and from each look to the next.

Three looks, one price. The first counts the kinds of the values of every column. The second has sign and power of two
of numbers, years of dates, and finds the labels of texts. The third counts cells over the range that was found, and
the labels that were shown. Where it is asked for, a fourth counts all pairs of columns, by quarters and common labels.
What a look counts follows from the noisy counts before it alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, islice
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sfumato._util.bundles import check_text, pack_value, unpack_value
from sfumato._util.elsewhere import find_engine
from sfumato._util.text import date_format_fields
from sfumato.cells import Codes, Days, Edges, Grid, Kinds, Rule, Truths
from sfumato.curator import Curator, Histogram
from sfumato.curator.labels import LabelCurator, refuse_one_reading
from sfumato.curator.rows.samples import column_types
from sfumato.curator.steps import StepBudget, StepStore
from sfumato.domain import Categories
from sfumato.errors import DomainError, InvalidInput, PlanError
from sfumato.mechanisms.labels import label_rounds
from sfumato.mechanisms.steps import are_looks_owed, remove_looks, step_budget
from sfumato.operators import Block, Identity, LinearOperator, Scaled, Tree
from sfumato.plans.profiles import COLUMN_TYPES, ProfilePlan
from sfumato.postprocess.column_shapes import (
    FINE_BRANCHING,
    SCALE_BRANCHING,
    date_edges,
    fine_edges,
    scale_edges,
    tree_counts,
    year_edges,
)
from sfumato.postprocess.dependence import least_dependence
from sfumato.privacy.accounting import ApproxGaussianEvent, Event, GaussianEvent, PureEvent, ZcdpEvent
from sfumato.privacy.budget import Budget
from sfumato.privacy.labels import LabelLook
from sfumato.privacy.ledger import Receipt
from sfumato.privacy.noise import NoiseLaw
from sfumato.privacy.replaced import Certificate
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.releases.profiles import (
    Profile,
    ProfileLook,
    column_counts,
    column_kinds,
    kind_of,
    load_profile,
    paired_rule,
)
from sfumato.strategies.calibration import noise_of
from sfumato.strategies.certificates import search_certificate

if TYPE_CHECKING:
    from sfumato.mechanisms.carry_out import Access, PlanKind

_FIRST = Fraction(1, 3)  # of the budget, for kinds; what is left is divided over columns by what they need
_NEEDS = {"text": 5, "number": 3, "date": 3, "boolean": 1, "": 0}
"""How the rest is divided: a label that 4 % have is found with 99 % at some 8 standard errors, quartiles are within 5 %
of their ranks at some 6, so a column of texts needs nearly twice as much (bench/describe.py)."""
_SECOND = {"text": Fraction(9, 10), "number": Fraction(3, 10), "date": Fraction(3, 10), "boolean": Fraction(1)}
"""Of what a column gets, the part of the second look; the third has the rest."""
_LATTICE = 2**12  # integers that a count is multiplied by: shares of the budget are then kept to a thousandth
_MOST_LABELS = 1_000  # of a column: a description, not a table
_RANKS = Fraction(12, 100)  # quartiles that would be further off are not looked for
_RECORDS = 10_000  # where nobody says how many there are
_TWO = 1.96  # standard errors of a 95 % interval
_QUARTERS = 4  # cells of a column in tables of two
_MISS = 0.05  # the probability with which any interval of a pair may miss
_MOST_V = 0.5  # pairs that depend less than this are those that nobody knows of
_UNKNOWN = ("number", "text")  # what a column whose type says nothing is taken for when errors are told: half of each

Parts = Mapping[str, tuple[Rule, LinearOperator, Fraction]]
"""Of each column that is looked at: its cells, the sums over them, and its share of the look."""


@dataclass(frozen=True, slots=True)
class _Gridded:
    """Cells of columns as the curator takes them."""

    grid: Grid


def plan_profile(
    source: Any,
    budget: Budget,
    *,
    neighbours: str | Neighbours = "add-remove",
    person: str | None = None,
    rows_per_person: int = 1,
    columns: Sequence[str] | None = None,
    records: int = _RECORDS,
    date_formats: Mapping[str, str] | None = None,
    pairs: float | str | Fraction = 0,
) -> ProfilePlan:
    """Plan to describe all columns of a table, of which names and types are read and nothing else.

    Args:
        source: The table, as `sf.release` takes it.
        budget: What may be spent. Labels of texts are looked for under `sf.approx` with `thresholds=`.
        neighbours: Which two tables must be hard to tell apart: "add-remove" or "replace-one".
        person: The column that says whose record a row is, which is not described; None where every person has one row.
        rows_per_person: How many rows of each person are counted at most.
        columns: The columns to describe; None takes all whose type can be read.
        records: About how many records there are, as far as is public. With few records and many columns, the kinds of
            values are all that is looked at.
        date_formats: How texts write a day besides year-month-day, by the name of the column: {"born": "%d.%m.%Y"}.
        pairs: The share of the budget for a look at all pairs of columns, which tells how much they depend on each
            other; 0 for none.

    Returns:
        The plan, which can be printed: it says before the price how well columns will be known.

    Raises:
        PlanError: There is no column to describe, an option is not allowed, or pairs are out of reach.
        BudgetError: The budget is too small for its noise.
        InvalidInput: The source is no table of rows, or cannot be read several times.
        SourceError: The table cannot be opened, or lacks a column.

    >>> import pandas as pd
    >>> people = pd.DataFrame({"age": [20, 30, 40], "city": ["Bonn", "Bonn", "Ulm"]})
    >>> sf.plan_profile(people, sf.gdp(1), records=10_000).promise
    'of 10,000 records, shares ± 0.048 %, quartiles ± 0.089 % of ranks (95 %)'
    """
    if not isinstance(budget, Budget):
        raise PlanError("a description needs a budget: sf.approx(1, '1e-6', thresholds='5e-7'), or another")
    if isinstance(source, Histogram):
        raise InvalidInput("a histogram holds counts of cells, and no columns that could be described; give a table")
    refuse_one_reading(source)
    if type(records) is not int or records < 1:
        raise PlanError(f"records= is about how many records there are, a whole number from 1 on, not {records!r}")
    if isinstance(columns, str):
        raise PlanError(f"columns= is a list of names, not {columns!r}")
    unit = PrivacyUnit(Neighbours.parse(neighbours), person, rows_per_person)
    share = _pair_share(pairs)
    if (engine := find_engine(source)) is not None and hasattr(engine, "require_person"):
        engine.require_person(person)  # of a table that is made of several
    types = {n: kind for n, kind in column_types(source, columns).items() if n != person}
    for name in types:
        check_text(name, "column name")
    if not types:
        raise PlanError("there is no column that could be described: none has a type that is read")
    formats = _checked_formats(date_formats or {}, types)
    unlabelled = "" if budget.thresholds is not None else "none of delta is set aside for it (thresholds=)"
    return _promised(
        ProfilePlan(
            names=tuple(types),
            types=tuple(types.values()),
            formats=formats,
            budget=budget,
            unit=unit,
            mechanism="describe",
            price=_price(budget, labels=not unlabelled and "" in types.values()),
            pairs=share,
            records=records,
            whole=True,
            unlabelled=unlabelled,
            share_error=0.0,
            rank_error=None,
            label_count=None,
            pair_value=None,
        )
    )


def _pair_share(given: object) -> Fraction:
    """The share of the budget for pairs, exactly. Raises PlanError."""
    try:
        share = Fraction(str(given)) if isinstance(given, (int, float, str, Fraction)) else Fraction(-1)
    except (ValueError, ZeroDivisionError):
        share = Fraction(-1)
    if isinstance(given, bool) or not 0 <= share < 1:
        raise PlanError(f"pairs= is the share of the budget for pairs of columns, from 0 to below 1, not {given!r}")
    return share


def _checked_formats(given: Mapping[str, str], types: Mapping[str, str]) -> dict[str, str]:
    """Formats of days by column. Raises PlanError."""
    if not isinstance(given, Mapping):
        raise PlanError(f"date_formats= has a format for the name of each column, not {given!r}")
    for name, written in given.items():
        if types.get(name) != "":
            told = COLUMN_TYPES.get(types.get(name, ""), "") if name in types else "no column that is described"
            raise PlanError(f"date_formats= is for columns of texts, and {name!r} is {told}")
        try:
            date_format_fields(written)
        except DomainError as error:
            raise PlanError(f"date_formats= of {name!r}: {error}") from None
    return dict(given)


def _price(budget: Budget, *, labels: bool) -> Event:
    """The whole budget as an event whose parts add up."""
    if budget.kind == "pure":
        return PureEvent(budget.parameter)
    if budget.kind == "zcdp":
        return ZcdpEvent(budget.parameter)
    if labels and budget.thresholds is not None:
        return ApproxGaussianEvent(budget.mu_squared, budget.thresholds)
    return GaussianEvent(budget.mu_squared)


def _part(price: Event, share: Fraction) -> Event:
    """A share of a price for a look at counts."""
    if isinstance(price, PureEvent):
        return PureEvent(price.epsilon * share)
    if isinstance(price, ZcdpEvent):
        return ZcdpEvent(price.rho * share)
    assert isinstance(price, (GaussianEvent, ApproxGaussianEvent))
    return GaussianEvent(price.mu_squared * share)


def _described_price(plan: ProfilePlan) -> Event:
    """What the looks at single columns cost, all delta with them: the price without what pairs have of it."""
    own = _part(plan.price, 1 - plan.pairs)
    if isinstance(plan.price, ApproxGaussianEvent) and isinstance(own, GaussianEvent):
        return ApproxGaussianEvent(own.mu_squared, plan.price.delta)
    return own


# -- looks ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Look:
    """What is measured: sums over columns, each times a whole number, and the noise that its price pays for."""

    grid: Grid
    blocks: tuple[Block, ...]
    noise: NoiseLaw
    price: Event
    certificate: Certificate | None

    def variance(self, name: str) -> float:
        """The variance of a sum over a column, in records."""
        scaled = next(cast(Scaled, b.factors[0]) for b in self.blocks if b.attributes == (name,))
        return self.noise.variance / float(scaled.factor) ** 2


def _design_look(parts: Parts, price: Event, unit: PrivacyUnit) -> _Look:
    """The look whose columns have shares of a price: of a tree, each of its levels costs as much as one count."""
    power = 1 if isinstance(price, PureEvent) else 2
    heights = {n: int(op.column_sums(1).max()) for n, (_, op, _) in parts.items()}
    wanted = {n: (float(share) / heights[n]) ** (1 / power) for n, (_, _, share) in parts.items()}
    most = max(wanted.values())
    blocks = tuple(
        Block(((n,),), (Scaled(op, max(1, round(_LATTICE * wanted[n] / most))),)) for n, (_, op, _) in parts.items()
    )
    grid = Grid(tuple(parts), tuple(rule for rule, _, _ in parts.values()))
    found, certificate = search_certificate(blocks, grid.sizes(), unit, power)
    return _Look(grid, blocks, noise_of(price, found.value), price, certificate)


def _kinds_look(plan: ProfilePlan) -> _Look:
    """The first look."""
    rules = {n: Kinds(kind="any", outside="other", missing="other", format=plan.formats.get(n, "")) for n in plan.names}
    parts = {n: (rule, Identity(rule.size), Fraction(1)) for n, rule in rules.items()}
    return _design_look(parts, _part(_described_price(plan), _FIRST if plan.whole else Fraction(1)), plan.unit)


def _pair_look(rules: Mapping[str, Rule], price: Event, unit: PrivacyUnit) -> _Look:
    """The look at all pairs of columns: a table of two for each, all alike."""
    blocks = tuple(
        Block(((a,), (b,)), (Identity(rules[a].size), Identity(rules[b].size))) for a, b in combinations(rules, 2)
    )
    grid = Grid(tuple(rules), tuple(rules.values()))
    found, certificate = search_certificate(blocks, grid.sizes(), unit, 1 if isinstance(price, PureEvent) else 2)
    return _Look(grid, blocks, noise_of(price, found.value), price, certificate)


def _shares(kinds: Mapping[str, str], *, labels: bool) -> dict[str, Fraction]:
    """What each column gets of the price, after the first look."""
    needs = {n: 0 if k == "text" and not labels else _NEEDS[k] for n, k in kinds.items()}
    whole = max(1, sum(needs.values()))
    return {n: (1 - _FIRST) * need / whole for n, need in needs.items()}


def _numeric(edges: Sequence[float]) -> Rule:
    return Edges(kind="number", outside="clamp", missing="other", edges=tuple(edges))


def _of_days(edges: Sequence[int], format: str) -> Rule:
    return Days(kind="date", outside="clamp", missing="other", edges=tuple(edges), format=format)


def _tree(rule: Rule, branching: int) -> LinearOperator:
    return Tree(rule.size, branching, root=False)


def _scale_part(kind: str, format: str) -> tuple[Rule, LinearOperator] | None:
    """What the second look counts of a column."""
    if kind == "boolean":
        rule: Rule = Truths(kind="boolean", outside="other", missing="other")
        return rule, Identity(rule.size)
    if kind not in ("number", "date"):
        return None
    rule = _numeric(scale_edges()) if kind == "number" else _of_days(year_edges(), format)
    return rule, _tree(rule, SCALE_BRANCHING)


@dataclass(frozen=True, slots=True)
class _Course:
    """The looks of a plan, each from what came before it."""

    plan: ProfilePlan

    def kinds(self, first: ProfileLook) -> dict[str, str]:
        """What each column holds."""
        found, types = column_kinds(self.plan, first).kinds, zip(self.plan.names, self.plan.types, strict=True)
        return {n: kind_of(t, found[n]) for n, t in types}

    @property
    def labels(self) -> bool:
        """Whether labels are looked for."""
        return not self.plan.unlabelled and isinstance(self.plan.price, ApproxGaussianEvent)

    def second(self, first: ProfileLook) -> _Look | None:
        """Signs and powers of two, and years; None where no column has any."""
        kinds = self.kinds(first)
        shares = _shares(kinds, labels=self.labels)
        parts: dict[str, tuple[Rule, LinearOperator, Fraction]] = {}
        for name, kind in kinds.items():
            if (part := _scale_part(kind, self.plan.formats.get(name, ""))) is not None:
                parts[name] = (*part, shares[name] * _SECOND[kind])
        return self._look(parts)

    def looks_for_labels(self, first: ProfileLook) -> tuple[LabelLook, ...]:
        """The looks for labels; none where no column has texts."""
        kinds = self.kinds(first)
        texts = [n for n, k in kinds.items() if k == "text"]
        if not texts or not self.labels:
            return ()
        price, shares = _described_price(self.plan), _shares(kinds, labels=True)
        assert isinstance(price, ApproxGaussianEvent)
        wanted = Categories(discover=Fraction(1, 2), most=_MOST_LABELS, missing="other")
        looks: list[LabelLook] = []
        for name in texts:
            own = ApproxGaussianEvent(price.mu_squared * shares[name] * _SECOND["text"], price.delta / len(texts))
            looks += label_rounds(name, wanted, own, self.plan.unit)
        return tuple(looks)

    def third(
        self, first: ProfileLook, second: ProfileLook | None, labels: Mapping[str, Sequence[str]]
    ) -> _Look | None:
        """Cells over the ranges that were found, and counts of labels; None where there is nothing to count."""
        plan, seen = self.plan, [k for k in (first, second) if k is not None]
        counted, kinds = column_kinds(plan, first), self.kinds(first)
        types = dict(zip(plan.names, plan.types, strict=True))
        shares = _shares(kinds, labels=self.labels)
        parts: dict[str, tuple[Rule, LinearOperator, Fraction]] = {}
        for name, kind in kinds.items():
            rule: Rule | None = None
            found = column_counts(plan, seen, name, counted)
            if kind == "number" and found is not None:
                rule = _numeric(fine_edges(found[1], whole=types[name] == "integer"))
            elif kind == "date" and found is not None:
                rule = _of_days(date_edges(found[1])[1], plan.formats.get(name, ""))
            elif labels.get(name):
                rule = Codes(kind="category", outside="other", missing="other", codes=tuple(labels[name]))
            if rule is not None:
                sums = Identity(rule.size) if kind == "text" else _tree(rule, FINE_BRANCHING)
                parts[name] = rule, sums, shares[name] * (1 - _SECOND[kind])
        return self._look(parts)

    def _look(self, parts: Parts) -> _Look | None:
        if not parts:
            return None
        share = sum((s for _, _, s in parts.values()), Fraction(0))
        return _design_look(parts, _part(_described_price(self.plan), share), self.plan.unit)

    def fourth(self, looks: Sequence[ProfileLook]) -> _Look | None:
        """All pairs of columns by quarters and common labels; None where fewer than two have any."""
        if not self.plan.pairs:
            return None
        plan, counted = self.plan, column_kinds(self.plan, looks[0])
        rules = {n: r for n in plan.names if (r := paired_rule(plan, looks, n, counted)) is not None}
        if len(rules) < 2:
            return None
        return _pair_look(rules, _part(plan.price, plan.pairs), plan.unit)


# -- what is promised -------------------------------------------------------------------------------------------------


def _promised(plan: ProfilePlan) -> ProfilePlan:
    """The plan with what it promises, as if half of the columns whose type is not known held texts.

    Where quartiles would be too far off for the number of records, it is a plan for kinds alone.
    """
    course, asked = _Course(plan), plan.pairs
    kinds = {
        n: _UNKNOWN[i % 2] if not t else "number" if t == "integer" else t
        for i, (n, t) in enumerate(zip(plan.names, plan.types, strict=True))
    }
    shares = _shares(kinds, labels=course.labels)
    numeric = {n: k for n, k in kinds.items() if k in ("number", "date")}
    ranks: float | None = None
    if numeric:
        rule = _numeric(range(257))
        parts = {n: (rule, _tree(rule, FINE_BRANCHING), shares[n] * (1 - _SECOND[k])) for n, k in numeric.items()}
        share = sum((p[2] for p in parts.values()), Fraction(0))
        look = _design_look(parts, _part(_described_price(plan), share), plan.unit)
        name = next(iter(numeric))
        tree = cast(Tree, parts[name][1])
        counts = tree_counts(tree, np.zeros(tree.shape[0]), look.variance(name)).with_total(0.0, 0.0)
        ranks = _TWO * math.sqrt(float(np.square(counts.errors_upto).mean()))
    labels = _least_label(course, kinds, shares)
    enough = ranks is None or ranks <= _RANKS * plan.records
    enough &= labels is None or labels <= plan.records
    if not enough:
        plan, ranks, labels = replace(plan, whole=False, pairs=Fraction(0)), None, None
        if isinstance(plan.price, ApproxGaussianEvent):
            plan = replace(plan, price=GaussianEvent(plan.price.mu_squared))
    share_error = _TWO * math.sqrt(_kinds_look(plan).variance(plan.names[0]))
    return replace(
        plan, share_error=share_error, rank_error=ranks, label_count=labels, pair_value=_least_pair(plan, asked)
    )


def _least_pair(plan: ProfilePlan, asked: Fraction) -> float | None:
    """From which V on pairs are told, of columns of four equal cells. Raises PlanError where that is out of reach."""
    if not asked:
        return None
    if len(plan.names) < 2:
        raise PlanError("pairs= is for two columns at least")
    if not plan.whole:
        raise PlanError(
            f"pairs of columns are out of reach: of {len(plan.names):,} columns of {plan.records:,} records this "
            "budget tells the kinds alone. Describe fewer columns (columns=), spend more, or leave pairs= out"
        )

    def told(columns: int) -> float:
        """Of so many columns; two stand for all, as every table of two costs the same."""
        power = 1 if isinstance(plan.price, PureEvent) else 2
        changed = math.comb(columns, 2) * (2 if plan.unit.neighbours is Neighbours.REPLACE_ONE else 1)
        noise = noise_of(_part(plan.price, asked), changed * plan.unit.rows_per_person**power)
        return least_dependence(plan.records, _QUARTERS, noise.variance, _MISS / math.comb(columns, 2))

    if (found := told(len(plan.names))) > _MOST_V:
        fits = next((k for k in range(len(plan.names), 1, -1) if told(k) <= _MOST_V), 0)
        fewer = f"of up to {fits:,} columns they are told (columns=)" if fits else "nor could those of two columns be"
        raise PlanError(
            f"pairs of columns are out of reach: of {len(plan.names):,} columns of {plan.records:,} records only those "
            f"whose V is {found:.2g} and more could be told, which hardly any is. {fewer[0].upper()}{fewer[1:]}; or "
            "spend more on them, or leave pairs= out"
        )
    return found


def _least_label(course: _Course, kinds: Mapping[str, str], shares: Mapping[str, Fraction]) -> int | None:
    """How many records a label must have to be shown with 99 %; None where none is looked for."""
    from sfumato.plans.labels import least_occurrence  # noqa: PLC0415

    texts = [n for n, k in kinds.items() if k == "text"]
    price = _described_price(course.plan)
    if not texts or not isinstance(price, ApproxGaussianEvent):
        return None
    own = ApproxGaussianEvent(price.mu_squared * shares[texts[0]] * _SECOND["text"], price.delta / len(texts))
    wanted = Categories(discover=Fraction(1, 2), most=_MOST_LABELS, missing="other")
    rounds = label_rounds(texts[0], wanted, own, course.plan.unit)
    return least_occurrence([k.selection for k in rounds], 0.99, 1)


# -- carried out ------------------------------------------------------------------------------------------------------


def _take_looks(plan: ProfilePlan, at: Access, budget: StepBudget, store: StepStore) -> Iterator[Any]:
    """What comes of each look, in their order; each is taken unless an earlier process did."""
    course, came = _Course(plan), iter([unpack_value(b) for b in store.came])

    def measure(look: _Look | None) -> ProfileLook | None:
        if look is None:
            return None
        if (known := next(came, None)) is not None:
            return known
        curator = Curator(at.source, _Gridded(look.grid), plan.unit, budget, table=at.table)
        measured, _ = curator.measure(
            look.blocks,
            look.noise,
            look.price,
            name=at.name,
            plan_hash=plan.fingerprint,
            certificate=look.certificate,
        )
        found = ProfileLook(look.grid, measured)
        store.keep(pack_value(found))
        return found

    def find(looks: tuple[LabelLook, ...]) -> dict[str, tuple[str, ...]]:
        names = tuple(dict.fromkeys(k.attribute for k in looks))
        shown = tuple(islice(came, len(names)))
        if len(shown) < len(names):
            rule = Kinds(kind="any", outside="other", missing="other")
            curator = LabelCurator(at.source, _Gridded(Grid(names[:1], (rule,))), plan.unit, budget, table=at.table)
            shown = curator.find(
                looks,
                name=at.name,
                plan_hash=plan.fingerprint,
                keep=lambda labels: store.keep(pack_value(labels)),
                shown=shown,
            )
        return dict(zip(names, shown, strict=True))

    first = measure(_kinds_look(plan))
    assert first is not None
    yield first
    if plan.whole:
        second = measure(course.second(first))
        yield second
        looks = course.looks_for_labels(first)
        labels = find(looks)
        yield looks, labels
        third = measure(course.third(first, second, labels))
        yield third
        seen = [k for k in (first, second, third) if k is not None]
        if plan.pairs:
            yield measure(course.fourth(seen))


def look_at_columns() -> PlanKind:
    """How a plan of a description is carried out: look after look, from one price."""
    from sfumato.mechanisms.carry_out import Made, PlanKind  # noqa: PLC0415  (plans look at nothing)
    from sfumato.releases.files import ReleaseFile, check_file  # noqa: PLC0415

    def look(plan: ProfilePlan, at: Access) -> tuple[Receipt, Made]:
        with step_budget(plan, at) as (budget, store):
            found = list(_take_looks(plan, at, budget, store))
        paid = at.account.paid(at.name, plan.fingerprint)
        assert paid is not None
        looks = tuple(k for k in found if isinstance(k, ProfileLook))
        label_looks, labels = next((k for k in found if isinstance(k, tuple)), ((), {}))
        return paid, lambda where: Profile(plan, looks, labels, label_looks, where)

    return PlanKind(
        look,
        what="description",
        place="file",
        draft=ReleaseFile,
        bundle=lambda out: out.name,
        read=load_profile,
        load=load_profile,
        holds=lambda out: check_file(out).exists(),
        owed=are_looks_owed,
        stored=remove_looks,
    )
