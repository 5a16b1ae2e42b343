"""Functions that build the common workloads, and that combine them."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike

from sfumato._util.bundles import check_text
from sfumato._util.checks import Number, read_number, show_count, show_number
from sfumato._util.codec import encode_value
from sfumato.domain import Booleans, Domain, Measure
from sfumato.domain.predicates import compile_predicate
from sfumato.errors import InvalidInput, WorkloadError
from sfumato.operators import (
    AllRange,
    Block,
    Dense,
    Kronecker,
    LinearOperator,
    Padded,
    Prefix,
    Scaled,
    Sparse,
    Sum,
    Window,
)
from sfumato.operators.base import FloatArray, as_numeric_array, real_array
from sfumato.workloads.core import RECORDS, QueryBlock, Workload, exact_weight, weight_items
from sfumato.workloads.levels import every_level, lift_to_attribute, table_block


def _grouping_names(domain: Domain, attribute: str, by: Iterable[str] | str) -> tuple[str, ...]:
    names = (by,) if isinstance(by, str) else domain.columns(by)
    return domain.columns((attribute, *names))[1:]


def identity(domain: Domain, *attributes: str) -> Workload:
    """Every cell of a marginal table.

    Args:
        domain: The attributes.
        *attributes: Names of attributes or levels; all attributes but the measures, unless some are named.

    Returns:
        A workload of one query per cell, in C order of the attributes in the domain's order.

    Raises:
        DomainError: A name is unknown, or two names belong to one attribute.

    >>> domain = sf.Domain({"age": 3, "sex": sf.Categories(["female", "male"])})
    >>> sf.identity(domain, "sex").labels()
    ['sex = female', 'sex = male']
    >>> sf.identity(domain)
    Workload(6 queries over 6 cells; identity: 6)
    """
    return Workload(
        domain, (QueryBlock("identity", table_block(domain, domain.ordered(attributes or domain.dimensions))),)
    )


def total(domain: Domain) -> Workload:
    """The number of records.

    Args:
        domain: The attributes.

    Returns:
        A workload of one query.

    >>> sf.total(sf.Domain({"age": 3, "sex": 2})).answer([[1, 2], [3, 4], [5, 6]])
    array([21])
    """
    return Workload(domain, (QueryBlock("total", Block((), ())),))


def _ordered_workload(
    domain: Domain, attribute: str, by: Iterable[str] | str, part: str, make: Callable[[int], LinearOperator]
) -> Workload:
    names = _grouping_names(domain, attribute, by)
    domain.check_counted([attribute])
    declared = domain[attribute]
    n = declared.size - declared.has_other
    operator = make(n)
    if declared.has_other:
        # the extra cell has no place in the order: it is not counted
        operator = Padded(operator, 1)
    owner, operator = lift_to_attribute(domain, attribute, operator)
    work = Workload(domain, (QueryBlock(part, Block(((owner,),), (operator,))),))
    if not names:
        return work
    return (work * identity(domain, *names)).named(f"{part} by {', '.join(names)}")


def prefix(domain: Domain, attribute: str, by: Iterable[str] | str = ()) -> Workload:
    """Cumulative counts up to each declared cell of an attribute.

    Args:
        domain: The attributes.
        attribute: The attribute or level that is counted along.
        by: Attributes or levels; the counts are asked within each of their cells.

    Returns:
        A workload of one query per declared cell of the attribute and cell of `by`.

    Raises:
        DomainError: A name is unknown, or two names belong to one attribute.

    >>> domain = sf.Domain({"age": sf.Integers(0, 29, width=10), "sex": 2})
    >>> sf.prefix(domain, "age").labels()
    ['age up to 0..9', 'age up to 10..19', 'age up to 20..29']
    >>> sf.prefix(domain, "age", by="sex")
    Workload(6 queries over 6 cells; prefix age by sex: 6)
    """
    return _ordered_workload(domain, attribute, by, f"prefix {attribute}", Prefix)


def ranges(domain: Domain, attribute: str, by: Iterable[str] | str = ()) -> Workload:
    """Counts of all ranges of declared cells of an attribute, ordered by first, then by last cell.

    Args:
        domain: The attributes.
        attribute: The attribute or level that is counted along.
        by: Attributes or levels; the counts are asked within each of their cells.

    Returns:
        A workload of n (n + 1) / 2 queries for n declared cells, in each cell of `by`.

    Raises:
        DomainError: A name is unknown, or two names belong to one attribute.

    >>> sf.ranges(sf.Domain({"age": 3}), "age").labels()
    ['age from 0 to 0', 'age from 0 to 1', 'age from 0 to 2', 'age from 1 to 1', 'age from 1 to 2', 'age from 2 to 2']
    """
    return _ordered_workload(domain, attribute, by, f"ranges {attribute}", AllRange)


def windows(domain: Domain, attribute: str, width: int, by: Iterable[str] | str = ()) -> Workload:
    """Counts of all runs of `width` neighbouring declared cells of an attribute.

    Args:
        domain: The attributes.
        attribute: The attribute or level that is counted along.
        width: The number of cells of a run, from 1 to the number of declared cells.
        by: Attributes or levels; the counts are asked within each of their cells.

    Returns:
        A workload of n - width + 1 queries for n declared cells, in each cell of `by`.

    Raises:
        WorkloadError: The width is not allowed.
        DomainError: A name is unknown, or two names belong to one attribute.

    >>> sf.windows(sf.Domain({"hour": 24}), "hour", width=6).labels()[:2]
    ['hour from 0 to 5', 'hour from 1 to 6']
    """
    return _ordered_workload(domain, attribute, by, f"windows {attribute}", partial(Window, width=width))


def hierarchy(domain: Domain, attribute: str, by: Iterable[str] | str = ()) -> Workload:
    """The cells of every level of an attribute, coarsest first, without the total.

    Args:
        domain: The attributes.
        attribute: An attribute with levels.
        by: Attributes or levels; the cells are asked within each of their cells.

    Returns:
        A workload of one block per level.

    Raises:
        WorkloadError: The attribute has no levels.
        DomainError: A name is unknown, or two names belong to one attribute.

    >>> place = sf.Hierarchy({"06": ["06001", "06003"], "36": ["36001"]}, levels=["state", "county"])
    >>> sf.hierarchy(sf.Domain({"place": place}), "place").labels()
    ['state = 06', 'state = 36', 'place = 06001', 'place = 06003', 'place = 36001']
    """
    names = _grouping_names(domain, attribute, by)
    levels = [level.name for level in domain.groupings(*domain.check_names((attribute,)))]
    every_level(domain, attribute)
    part = f"hierarchy {attribute}"
    work = stack(*(identity(domain, level, *names) for level in (*levels, attribute)))
    return work.named(f"{part} by {', '.join(names)}" if names else part)


def sums(
    domain: Domain,
    attribute: str,
    values: ArrayLike | None = None,
    by: Iterable[str] | str = (),
    *,
    name: str | None = None,
    power: int = 1,
    centre: Number = 0,
) -> Workload:
    """The sum of a numeric attribute, each cell counted with a public value.

    Of a measure it is the sum of the numbers themselves, of what they are beyond a centre, or of the squares of that.
    The nearer the centre is to the middle of the range, the less is the noise; `sf.moments` asks for all sums from
    which variances follow.

    Args:
        domain: The attributes and measures.
        attribute: The attribute, level or measure that is summed.
        values: One finite number per declared cell, or one per cell; the cells' midpoints, unless given. The extra cell
            counts 0 unless its value is given.
        by: Attributes or levels; the sum is asked within each of their cells.
        name: What given values are, such as "wages squared". It names the part and the unit of the answers.
        power: Of a measure 1, the default, or 2 for squares.
        centre: Of a measure the number that is taken off each before it is raised to the power.

    Returns:
        A workload of one query per cell of `by`, whose answers are in the attribute's unit, or in `name`.

    Raises:
        WorkloadError: The attribute is not numeric and no values are given, or the values are not one per cell; a power
            or a centre is not allowed, or is asked of what is no measure.
        DomainError: A name is unknown, two names belong to one attribute, or the centre is no finite number.

    >>> domain = sf.Domain({"wages": sf.Bins([0, 10_000, 30_000]), "sex": sf.Categories(["female", "male"])})
    >>> sums = sf.sums(domain, "wages", by="sex")
    >>> sums.labels(), sums.units
    (['sum of wages, sex = female', 'sum of wages, sex = male'], ('wages',))
    >>> sums.answer([[1, 0], [1, 2]])
    array([25000, 40000])
    >>> domain = sf.Domain({}, measures={"cost": sf.Measure(0, 50_000)})
    >>> sf.sums(domain, "cost", power=2, centre=20_000).labels()
    ['sum of (cost less 20000) squared']
    """
    names = _grouping_names(domain, attribute, by)
    declared = domain[attribute]
    what, unit = (attribute, None) if name is None else (check_text(name, "name="),) * 2
    if (power, centre) != (1, 0) or type(power) is not int:
        if values is not None or not isinstance(declared, Measure):
            raise WorkloadError(
                "power= and centre= are of the numbers of a measure, without values=; of an attribute that is summed "
                f"by its cells, as {attribute} is here, values= gives what each adds"
            )
        values, text, own = _powers_about(declared, attribute, power, centre)
        what, unit = (text, own) if name is None else (what, unit)
    elif values is None:
        if declared.midpoints is None:
            raise WorkloadError(f"{attribute} is not numeric; give the value of each cell with values=")
        values = declared.midpoints
    row = as_numeric_array(values, "values").astype(np.float64)
    if row.shape == (declared.size - declared.has_other,) and declared.has_other:
        row = np.append(row, 0.0)
    if row.shape != (declared.size,):
        raise WorkloadError(f"{attribute} has {declared.size} cells; values of shape {row.shape} were given")
    owner, operator = lift_to_attribute(domain, attribute, Dense(row[None, :]))
    part = f"sum of {what}"
    query = QueryBlock(part, Block(((owner,),), (operator,)), unit=owner if unit is None else unit, labels=((part,),))
    work = Workload(domain, (query,))
    return (work * identity(domain, *names)).named(f"{query.part} by {', '.join(names)}") if names else work


def _powers_about(measure: Measure, name: str, power: object, centre: object) -> tuple[tuple[float, ...], str, str]:
    """What a share of 1 in each cell adds to the sum of powers of numbers less a centre; what these are, and their
    unit."""
    if type(power) is not int or power not in (1, 2):
        raise WorkloadError(
            f"power is 1 or 2, not {power!r}: what is counted of {name} gives sums and sums of squares. For others "
            "make them a column of the table, and a measure of its own"
        )
    about = read_number(centre, "a centre")
    text = name if about == 0 else _taken_off(name, about)
    ends = [v - float(about) for v in measure.ends]
    if power == 1:
        return measure.sums_of(ends, [(a + b) / 2 for a, b in itertools.pairwise(ends)]), text, name
    squares = measure.sums_of([v * v for v in ends], [a * b for a, b in itertools.pairwise(ends)])
    return squares, f"{text if about == 0 else f'({text})'} squared", f"{name} squared"


def _centred(measure: Measure) -> tuple[FloatArray, FloatArray, float]:
    """What a share of 1 in each cell of a measure adds to sums, and to sums of squares, of its numbers less the middle
    of the range; and that middle."""
    low, *_, high = measure.ends
    half, middle = (high - low) / 2, (low + high) / 2
    if not measure.knots:
        return np.array([-half, 0.0, half]), np.array([half**2, -(half**2), half**2]), middle
    ends = [v - middle for v in measure.ends]
    first = measure.sums_of(ends, [(a + b) / 2 for a, b in itertools.pairwise(ends)])
    second = measure.sums_of([v * v for v in ends], [a * b for a, b in itertools.pairwise(ends)])
    return np.array(first), np.array(second), middle


def _measured(domain: Domain, names: Iterable[str] | str, what: str) -> tuple[str, ...]:
    given = (names,) if isinstance(names, str) else domain.columns(names)
    strange = [n for n in domain.columns(given) if n not in domain.measures]
    if strange or not given:
        known = f"; the measures of this domain are {', '.join(domain.measures)}" if domain.measures else ""
        raise WorkloadError(
            f"{what} are of measures, declared by sf.Domain(..., measures={{name: sf.Measure(low, high)}}), not of "
            f"{strange[0] if strange else 'nothing'}{known}"
        )
    return domain.columns(given)


def _row(domain: Domain, rows: Mapping[str, FloatArray], part: str, unit: str, by: Sequence[str]) -> Workload:
    """One row over the cells of some measures, within each cell of `by`."""
    factors = [Dense(np.append(r, np.zeros(domain[n].size - len(r)))[None, :]) for n, r in rows.items()]
    labels = ((part,), *(("",) for _ in factors[1:]))
    query = QueryBlock(part, Block(tuple((n,) for n in rows), tuple(factors)), unit=unit, labels=labels)
    work = Workload(domain, (query,))
    return (work * identity(domain, *by)).named(f"{part} by {', '.join(by)}") if by else work


def _less(domain: Domain, name: str) -> str:
    middle = _centred(cast(Measure, domain[name]))[2]
    return _taken_off(name, int(middle) if middle == int(middle) else middle)


def _taken_off(name: str, centre: Number) -> str:
    return f"{name} less {show_number(centre)}" if centre > 0 else f"{name} plus {show_number(-centre)}"


def _there(domain: Domain, name: str) -> FloatArray:
    return np.ones(domain[name].declared_size)


def means(
    domain: Domain,
    measures: str | Iterable[str],
    by: Iterable[str] | str = (),
    *,
    clip: Literal["best"] | None = None,
) -> Workload:
    """The queries from which means of measures follow: how many records have a number, and the sum of these numbers.

    Sums are of the numbers less the middle of the range. The queries are weighted such that the mean itself errs least,
    whichever mean of the range it is: with noise multiplier 1 under add-remove the standard error of one mean of n
    records is .789 of the range over n. `release.mean(measure, by=...)` gives the means; sums and counts follow from
    the same release.

    Args:
        domain: The attributes and measures.
        measures: The name of a measure, or several.
        by: Attributes or levels; the means are asked within each of their cells.
        clip: "best" asks, of measures with knots, for the sum of the numbers cut at each knot as well, all weighed by
            their range: what `release.mean(measure, clip="best")` takes to choose the cut after the release.

    Returns:
        A workload of two queries per measure and cell of `by`; with `clip` one more for each knot.

    Raises:
        WorkloadError: A name is not that of a measure, or `clip` is asked of one without knots.
        DomainError: A name is unknown, or two names belong to one attribute.

    >>> domain = sf.Domain({"ward": 3}, measures={"cost": sf.Measure(0, 50_000)})
    >>> sf.means(domain, "cost", by="ward")
    Workload(6 queries over 12 cells; cost less 25000 by ward: 3, records with cost by ward: 3)
    """
    names = _measured(domain, measures, "means")
    within = _grouping_names(domain, names[0], by)
    found: list[Workload] = []
    weights: dict[str, int] = {}
    for name in names:
        measure = cast(Measure, domain[name])
        sums = _row(domain, {name: _centred(measure)[0]}, _less(domain, name), name, within)
        there = _row(domain, {name: _there(domain, name)}, f"records with {name}", RECORDS, within)
        # Var(sum - m n) for m uniform in the range: 1 of the centred sum and 1/12 of the count, of a range of 1; sums
        # are weighed by half a range
        weights |= {sums.items[0].part: 3, there.items[0].part: 1}
        found += [sums, there]
        if clip is None:
            continue
        if clip != "best" or not measure.knots:
            raise WorkloadError(f'means are asked with clip="best" of measures with knots, not {clip!r} of {name}')
        for knot in measure.knots:
            middle = (measure.ends[0] + float(knot)) / 2
            part = f"{name} cut at {show_number(knot)}, less {show_number(middle)}"
            found.append(_row(domain, {name: np.array(measure.clipped(float(knot))) - middle}, part, name, within))
            weights[found[-1].items[0].part] = 3
        weights[there.items[0].part] = 1 + len(measure.knots)
    return stack(*found, weights=weights)


def gaps(
    domain: Domain, measure: str, at: float | Iterable[float] | None = None, by: Iterable[str] | str = ()
) -> Workload:
    """How far the numbers of a measure are below knots, and how far above: sums of shortfalls, and of excesses.

    With z a knot a number v is max(z - v, 0) short of it and max(v - z, 0) in excess. These are exact, as z was
    declared before any data were seen. `release.gap(measure, at=z)` gives the mean shortfall, which of incomes at a
    poverty line is the poverty gap. The sum of the numbers cut at z is z for each record, less the shortfalls, so that
    it, and `release.mean(measure, clip=z)`, follow from the same release.

    Args:
        domain: The attributes and measures.
        measure: The name of a measure with knots.
        at: A knot of the measure, or several; all of them unless given.
        by: Attributes or levels; the sums are asked within each of their cells.

    Returns:
        A workload, for every cell of `by`, of two queries per knot, and one of how many records have a number.

    Raises:
        WorkloadError: The name is not that of a measure, or `at` is no knot of it.
        DomainError: A name is unknown, or two names belong to one attribute.

    >>> domain = sf.Domain({"area": 3}, measures={"income": sf.Measure(0, 100_000, knots=[12_000, 20_000])})
    >>> sf.gaps(domain, "income", at=20_000).labels()
    ['shortfall of income below 20000', 'excess of income above 20000', 'records with income']
    >>> len(sf.gaps(domain, "income", by="area"))
    15
    """
    (name,) = _measured(domain, measure, "gaps")
    declared = cast(Measure, domain[name])
    within = _grouping_names(domain, name, by)
    given = declared.knots if at is None else (at,) if isinstance(at, (int, float)) else tuple(at)
    if not given or any(z not in declared.knots for z in given):
        known = ", ".join(map(show_number, declared.knots)) or "none is declared: sf.Measure(low, high, knots=[...])"
        raise WorkloadError(f"gaps of {name} are asked at its knots, which are: {known}")
    found: list[Workload] = []
    for z in given:
        below = float(z) - np.array(declared.clipped(float(z)))
        above = np.array(declared.midpoints) - np.array(declared.clipped(float(z)))
        found.append(_row(domain, {name: below}, f"shortfall of {name} below {show_number(z)}", name, within))
        found.append(_row(domain, {name: above}, f"excess of {name} above {show_number(z)}", name, within))
    return stack(*found, _row(domain, {name: _there(domain, name)}, f"records with {name}", RECORDS, within))


def moments(domain: Domain, measures: str | Iterable[str], by: Iterable[str] | str = ()) -> Workload:
    """The queries from which means, variances, covariances and correlations of measures follow.

    They are a count, sums, and sums of squares and products, each of the numbers less the middle of their range. For
    several measures all are of the records that have a number in each of them. `release.mean`, `release.variance`,
    `release.std`, `release.covariance_between` and `release.correlation` give the statistics.

    Args:
        domain: The attributes and measures.
        measures: The name of a measure, or up to three.
        by: Attributes or levels; the moments are asked within each of their cells.

    Returns:
        A workload, for every cell of `by`, of a count, two queries per measure, and one per pair of measures.

    Raises:
        WorkloadError: A name is not that of a measure.
        DomainError: A name is unknown, or two names belong to one attribute.

    >>> domain = sf.Domain({"ward": 3}, measures={"cost": sf.Measure(0, 50_000)})
    >>> len(sf.moments(domain, "cost", by="ward"))
    9
    """
    names = _measured(domain, measures, "moments")
    within = _grouping_names(domain, names[0], by)
    there = {name: _there(domain, name) for name in names}
    found = [_row(domain, there, f"records with {' and '.join(names)}", RECORDS, within)]
    for name in names:
        first, second, _ = _centred(cast(Measure, domain[name]))
        less = _less(domain, name)
        found.append(_row(domain, there | {name: first}, less, name, within))
        found.append(_row(domain, there | {name: second}, f"({less}) squared", f"{name} squared", within))
    for one, other in itertools.combinations(names, 2):
        a, b = (_centred(cast(Measure, domain[n]))[0] for n in (one, other))
        what, unit = f"({_less(domain, one)}) times ({_less(domain, other)})", f"{one} times {other}"
        found.append(_row(domain, there | {one: a, other: b}, what, unit, within))
    return stack(*found)


def predicates(domain: Domain, texts: Sequence[str]) -> Workload:
    """The number of records that satisfy each predicate.

    Args:
        domain: The attributes.
        texts: Predicates over the declared values, in a closed grammar, such as "age >= 65 and sex == 'female'".

    Returns:
        A workload of one query per predicate.

    Raises:
        WorkloadError: There is no predicate, or one cannot be read over the domain; the message says where.

    >>> domain = sf.Domain({"age": sf.Integers(0, 99, width=5), "sex": sf.Categories(["female", "male"])})
    >>> sf.predicates(domain, ["age >= 65 and sex == 'female'", "age < 20 or age >= 65"])
    Workload(2 queries over 40 cells; predicates: 2)
    >>> sf.predicates(domain, ["age >= 18"])
    Traceback (most recent call last):
        ...
    sfumato.errors.WorkloadError: age >= 18 divides the cell 15..19 of age; ask age >= 15 or age >= 20 (character 8 of
    the predicate, in 'age >= 18')
    """
    if isinstance(texts, str | Mapping) or not texts:
        named = (
            "; for names, stack them: sf.stack(name=sf.predicates(domain, [text]))"
            if isinstance(texts, Mapping)
            else ""
        )
        raise WorkloadError(f"predicates are given as a non-empty list of texts{named}")
    blocks = []
    for text in texts:
        compiled = compile_predicate(domain, text)
        names, mask = compiled.attributes, compiled.mask
        sides = [np.asarray(mask.any(axis=tuple(j for j in range(mask.ndim) if j != i))) for i in range(mask.ndim)]
        product = np.ones((), dtype=bool)
        for side in sides:
            product = np.multiply.outer(product, side)
        if np.array_equal(product, mask):
            # a conjunction over attributes: one small row each
            block = Block(tuple((n,) for n in names), tuple(Dense(s[None, :]) for s in sides))
            labels = ((compiled.text,), *(("",) for _ in names[1:]))
        else:
            block = Block((names,), (Sparse.from_cells([np.flatnonzero(mask)], mask.size),))
            labels = ((compiled.text,),)
        blocks.append(QueryBlock("predicates", block, labels=labels))
    return Workload(domain, tuple(blocks))


def queries(
    matrix: Any,
    domain: Domain | None = None,
    attribute: str | None = None,
    labels: Sequence[str] | None = None,
) -> Workload:
    """Any linear queries, given as a matrix.

    Args:
        matrix: A (k, m) array, scipy sparse matrix or LinearOperator; (m,) for one query.
        domain: The attributes. Without it the m columns are the cells of one attribute.
        attribute: The attribute or level whose cells the columns are; the cells of the whole domain, unless given.
        labels: One text per query.

    Returns:
        A workload of k queries.

    Raises:
        WorkloadError: It is no matrix of finite numbers, its columns are not as many as the cells, or the labels are
            not one per query.
        DomainError: The name is unknown.

    >>> sf.queries([[1, 1, 0], [0, 0, 1]], labels=["first two", "last"]).labels()
    ['first two', 'last']
    >>> domain = sf.Domain({"age": 3, "sex": 2})
    >>> sf.queries(np.tri(3), domain, "age")
    Workload(3 queries over 6 cells; queries: 3)
    """
    operator = as_operator(matrix)
    columns = operator.shape[1]
    if domain is None:
        domain = Domain({attribute or "cell": columns})
    names = domain.columns([attribute]) if attribute is not None else domain.names
    domain.check_counted(names)
    cells = math.prod(domain.sizes(names))
    if columns != cells:
        raise WorkloadError(f"the matrix has {columns:,} columns; {', '.join(names)} has {show_count(cells)} cells")
    if isinstance(labels, str):
        raise WorkloadError(f"labels= takes a list of texts, one per query, not {labels!r}")
    texts = None if labels is None else tuple(str(t) for t in labels)
    if attribute is not None:
        owner, operator = lift_to_attribute(domain, names[0], operator)
        names = (owner,)
    return Workload(domain, (QueryBlock("queries", Block((names,), (operator,)), labels=(texts,)),))


def as_operator(matrix: Any) -> LinearOperator:
    """A matrix of any kind as an operator. One of a class that is not the library's own becomes a plain matrix.

    What is measured must be the library's own, since privacy rests on what an operator says of itself.
    """
    if isinstance(matrix, LinearOperator):
        try:
            encode_value(matrix)
        except InvalidInput:
            return Dense(matrix.dense())
        return matrix
    if hasattr(matrix, "tocsr"):
        return Sparse.of(matrix)
    given = cast("list[Any]", matrix) if isinstance(matrix, (list, tuple)) else [matrix]
    if any(isinstance(g, (str, Mapping)) for g in given):
        raise WorkloadError(
            "queries are rows of numbers; conditions in words are asked by sf.predicates(domain, [...])"
        )
    array = real_array(matrix, "the queries")
    return Dense(array[None, :] if array.ndim == 1 else array)


def stack(*works: Workload, weights: Mapping[str, object] | None = None, **named: Workload) -> Workload:
    """Several workloads over one domain as one.

    Args:
        *works: Workloads, which keep the names of their parts.
        weights: A weight by part, by which the weights of its queries are multiplied.
        **named: Workloads by name; each becomes a part of that name.

    Returns:
        The workload of all their queries, in order.

    Raises:
        WorkloadError: There is no workload, something else is given, the domains differ, or a weight is not allowed or
            names no part.

    >>> domain = sf.Domain({"age": 100, "sex": 2})
    >>> work = sf.stack(cdf=sf.prefix(domain, "age"), tables=sf.marginals(domain, upto=2), weights={"cdf": 2})
    >>> work
    Workload(403 queries over 200 cells; cdf: 100, tables: 303)
    >>> work.weights
    {'cdf': Fraction(2, 1), 'tables': Fraction(1, 1)}
    """
    if not works and not named:
        raise WorkloadError("stack needs at least one workload")
    for work in (*works, *named.values()):
        if not isinstance(work, Workload):
            raise WorkloadError(f"stack takes workloads, not a {type(work).__name__}")
    parts = [*works, *(w.named(n) for n, w in named.items())]
    if any(w.domain != parts[0].domain for w in parts):
        raise WorkloadError("workloads over different domains cannot be stacked")
    items = [i for w in parts for i in w.items]
    names = dict.fromkeys(i.part for i in items)
    factors = {name: exact_weight(weight) for name, weight in weight_items(weights)}
    for name in factors:
        if name not in names:
            raise WorkloadError(f"weights name {name!r}; the parts are {', '.join(names)}")
    return Workload(
        parts[0].domain, tuple(replace(i, weight=i.weight * factors.get(i.part, Fraction(1))) for i in items)
    )


_MAX_PRODUCT = 30  # 2^30 queries, as Kronecker products
_MAX_JOINT = 14  # 2^28 entries: these are no product of factors, so their errors are computed row by row


def disjunctions(d: int) -> Workload:
    """For every set of d binary attributes x1, ..., xd, the number of records with at least one of them true.

    Bit by bit, x1 first, the number of a query says which attributes are in its set; so query 0 is the empty set, whose
    answer is 0.

    Args:
        d: The number of attributes, from 1 to 14.

    Returns:
        A workload of 2^d queries over 2^d cells.

    Raises:
        WorkloadError: d is no such whole number.

    >>> sf.disjunctions(2).labels()
    ['nothing', 'x2', 'x1', 'x1 or x2']
    """
    domain = _binary_domain(d, _MAX_JOINT)
    every = Kronecker((Dense(np.ones((2, 2), dtype=np.int64)),) * d)
    none = Kronecker((Dense(np.array([[1, 1], [1, 0]])),) * d)
    sets = itertools.product((False, True), repeat=d)
    labels = tuple(" or ".join(itertools.compress(domain.names, chosen)) or "nothing" for chosen in sets)
    matrix: LinearOperator = Sum((every, Scaled(none, -1)))
    block = Block((domain.names,), (matrix,))
    return Workload(domain, (QueryBlock("disjunctions", block, labels=(labels,)),))


def conjunctions(d: int) -> Workload:
    """For every set of d binary attributes x1, ..., xd, the number of records with all of them true.

    Queries are numbered as in `disjunctions`; query 0 is the total. They are a Kronecker product of one factor per
    attribute.

    Args:
        d: The number of attributes, from 1 to 30.

    Returns:
        A workload of 2^d queries over 2^d cells.

    Raises:
        WorkloadError: d is no such whole number.

    >>> sf.conjunctions(2).labels()
    ['total', 'x2', 'x1', 'x1, x2']
    >>> sf.conjunctions(20).shape
    (1048576, 1048576)
    """
    return _product_workload(d, "conjunctions", np.array([[1, 1], [0, 1]]))


def parities(d: int) -> Workload:
    """For every set S of d binary attributes, the sum over the records of -1 to the power of how many in S are true.

    Queries are numbered as in `disjunctions`; query 0 is the total. They are a Kronecker product of one factor per
    attribute.

    Args:
        d: The number of attributes, from 1 to 30.

    Returns:
        A workload of 2^d queries over 2^d cells.

    Raises:
        WorkloadError: d is no such whole number.

    >>> sf.parities(2).operator.dense()
    array([[ 1,  1,  1,  1],
           [ 1, -1,  1, -1],
           [ 1,  1, -1, -1],
           [ 1, -1, -1,  1]])
    """
    return _product_workload(d, "parities", np.array([[1, 1], [1, -1]]))


def _product_workload(d: int, part: str, factor: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> Workload:
    domain = _binary_domain(d, _MAX_PRODUCT)
    single = (
        Workload(domain, (QueryBlock(part, Block(((name,),), (Dense(factor),)), labels=(("", name),)),))
        for name in domain.names
    )
    return functools.reduce(operator.mul, single)


def _binary_domain(d: int, most: int) -> Domain:
    if isinstance(d, bool) or not isinstance(d, int) or not 1 <= d <= most:
        raise WorkloadError(f"d is the number of binary attributes, a whole number from 1 to {most}, not {d!r}")
    return Domain({f"x{i + 1}": Booleans() for i in range(d)})
