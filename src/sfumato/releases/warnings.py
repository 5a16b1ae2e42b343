"""What the noisy values say against the declaration, told at no cost: labels that match nothing, ranges that miss.

A declaration is made without looking at the rows, so it can be wrong, and a table of which nothing matches is
measured and paid for like any other. The noisy share of records that went to `(other)` is post-processing of what
was measured. Nothing is said where that share cannot be told from noise, or was not measured; every share that was
measured is listed besides, with what it is known to (`other_shares`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato._util.description import Warnings
from sfumato._util.frames import safe_text
from sfumato.domain import OTHER, Attribute, Domain
from sfumato.domain.core import range_text
from sfumato.errors import NotAnswerable
from sfumato.operators import Block, Sparse
from sfumato.operators.base import FloatArray
from sfumato.plans.predictions import check_confidence, entry_biases, interval_margins, widest_sum_margin
from sfumato.releases.answers import Answer
from sfumato.strategies.strategy import KnownGroups
from sfumato.workloads.levels import lift_to_attribute, table_block

if TYPE_CHECKING:
    from sfumato.releases.release import Release


def cut_persons(release: Release, confidence: float = 0.95) -> Answer | None:
    """How many persons had more rows than were counted.

    Args:
        confidence: The probability, strictly between 0 and 1, with which the interval holds.

    Returns:
        An Answer in persons, or None where it was not measured.

    Raises:
        PlanError: The confidence is no such probability.
    """
    level, times, found = check_confidence(confidence), release.plan.cut, release.measurement.cut
    if not times or found is None:
        return None
    noise = release.measurement.noise
    (half,) = interval_margins(level, np.array([1 / times**2]), np.array([1 / times**4]), noise)
    value = found / times
    answer = Answer(value, math.sqrt(noise.variance) / times, max(0.0, value - half), max(0.0, value + half))
    answer.confidence, answer.unit = level, "persons"
    return answer


def cut_facts(release: Release) -> dict[str, Any]:
    """The number for release.json, nothing where it was not measured."""
    found = cut_persons(release)
    return {} if found is None else {"cut_persons": {"value": found.value, "standard_error": found.standard_error}}


def cut_persons_text(release: Release) -> str:
    """One sentence on who was cut, for people; nothing where no person is named."""
    unit, found = release.plan.unit, cut_persons(release)
    if unit.person is None:
        return ""
    rows = "row" if unit.rows_per_person == 1 else "rows"
    whom = f"persons who had more than {unit.rows_per_person:,} {rows}"
    if unit.once_per:
        whom = "persons who had more rows than are counted"
    if found is None:
        return f"the number of {whom} was not measured"
    return f"the number of {whom}: {max(0.0, found.value):,.0f} ± {2 * (found.standard_error or 0.0):,.0f}"


ERRORS = 5.0
"""A count in `(other)` is said from this many standard errors above 0 on, however small its share: of Gaussian noise a
false alarm once in 3.5 million attributes. Of other noise it is as many as make one as rare."""
_SURE = math.erf(ERRORS / math.sqrt(2))  # two-sided, of the normal law at that many standard errors
HEAP = 0.99
"""Under outside='clamp' the first and the last cell hold what is beyond. Heaps there are usual too (92 and 95 % of
the bundled table have no capital gain or loss), so that a range is wrong cannot be told from the counts. Where nearly
all records are in one end cell the attribute tells nothing, whether its range is wrong or not: that is said."""
_LISTED = 8  # cautions that are told: more than a screen half full nobody reads
_NAMED = 5  # attributes in one line


@dataclass(frozen=True, slots=True)
class Caution:
    """A reason to doubt a declaration: the noisy share of records in one cell of one attribute.

    Args:
        attribute: The attribute; None where the table as a whole holds no records that can be told from noise, and
            where persons had more rows than were counted.
        cell: The cell, or None in the same cases.
        share: The share of records; where the table holds no records that can be told from noise, that of the standard
            error; where persons had more rows than were counted, the share of counted records that are theirs, 0 where
            the number of records is not known.
        standard_error: The standard error.
        text: One sentence for people.
    """

    attribute: str | None
    cell: str | None
    share: float
    standard_error: float
    text: str

    def facts(self) -> dict[str, Any]:
        """The fields as plain values.

        Returns:
            JSON values by name.
        """
        return asdict(self)


def caution_lines(found: tuple[Caution, ...]) -> list[str]:
    """The sentences that are shown where there is little room: the largest shares first."""
    more = [f"and {len(found) - _LISTED:,} more attributes like these"] if len(found) > _LISTED else []
    return [c.text for c in found[:_LISTED]] + more


def doubts(release: Release) -> Warnings:
    """The same as they stand before everything else."""
    return Warnings(
        caution_lines(release.cautions),
        "Does the declaration fit the table?",
        "These noisy shares ask for a look. They follow from what was measured and cost nothing.",
        "If labels or a range are wrong, the budget is spent all the same: corrected, they need a new release.",
    )


def caution_facts(release: Release) -> dict[str, Any]:
    """The cautions, and the shares in `(other)` that were measured, as plain JSON values."""
    return {
        "cautions": [c.facts() for c in release.cautions],
        "other": [s._asdict() for s in other_shares(release)],
    }


def reader_lines(release: Release) -> list[str]:
    """What readers of published answers must know: that rows of persons were left out. Whether labels or a range fit
    is for those who declared them."""
    return [c.text for c in _cut_rows_cautions(release.raw, _clear_total(_total_count(release.raw)))]


def find_cautions(release: Release) -> tuple[Caution, ...]:
    """Every reason to doubt the declaration that was measured, the largest shares first; see `Release.cautions`."""
    raw, domain = release.raw, release.plan.workload.domain
    whole = _total_count(raw)
    return (*_cut_rows_cautions(raw, _clear_total(whole)), *_declaration_cautions(raw, domain, whole))


def _total_count(raw: Release) -> _BlockAnswers | None:
    """The number of records; None where it was not measured."""
    return _count_block(raw, table_block(raw.plan.workload.domain, ()))


def _clear_total(whole: _BlockAnswers | None) -> float | None:
    """The number of records where it can be told from none."""
    return None if whole is None or not whole.clear[0] else float(whole.answers[0])


def _cut_rows_cautions(release: Release, size: float | None) -> Iterator[Caution]:
    """What there is to say of rows that were left out."""
    found, unit = cut_persons(release, _SURE), release.plan.unit
    rows = unit.rows_per_person
    if found is None or not found.low:
        return
    persons, doubt = float(found.value), float(found.standard_error or 0.0)
    share, off = (0.0, 0.0) if size is None else (min(1.0, rows * persons / size), rows * doubt / size)
    theirs = f" ({percent_text(share)} of all that are)" if size is not None else ""
    only = "only one row of each is" if rows == 1 else f"only {rows:,} rows of each are"
    more = f"{rows:,} row{'s' if rows > 1 else ''}"
    if unit.once_per:
        # who had many rows of one group has fewer counted than rows_per_person
        share, off, theirs, more = 0.0, 0.0, "", "rows than are counted"
        each = "one" if unit.rows_per_group == 1 else f"{unit.rows_per_group:,}"
        only = f"at most {rows:,} of each, {each} per {' and '.join(unit.once_per)}, are"
    text = (
        f"about {persons:,.0f} ± {2 * doubt:,.0f} persons had more {'' if unit.once_per else 'than '}{more}; {only} "
        f"counted{theirs}: every answer is of counted rows, and is below that of all rows"
    )
    yield Caution(None, None, share, off, text)


def _declaration_cautions(raw: Release, domain: Domain, whole: _BlockAnswers | None) -> tuple[Caution, ...]:
    """What there is to say of the declaration."""
    if whole is None:
        return ()
    size, error = float(whole.answers[0]), float(whole.errors[0])
    counted = raw.measurement.total
    if counted is not None and size != counted and any(isinstance(k, KnownGroups) for k in raw.plan.strategy.known):
        text = (
            f"the public totals add up to {size:,.0f}, and {counted:,} records were counted: they are of another table"
        )
        return (Caution(None, None, abs(size - counted) / max(counted, 1), 0.0, text),)
    if not whole.clear[0]:
        return (_no_records_caution(domain, size, error),)
    found = [c for name in domain.names for c in _attribute_cautions(raw, name, size)]
    return tuple(sorted(found, key=lambda c: -c.share))


def _no_records_caution(domain: Domain, size: float, error: float) -> Caution:
    """No records that can be told from noise: they may all have been dropped."""
    text = f"the number of records, {size:,.0f} ± {2 * error:,.0f}, cannot be told from none"
    dropping = [safe_text(n) for n, a in domain.attributes.items() if a.drops]
    if dropping:
        named = ", ".join(dropping[:_NAMED]) + (", …" if len(dropping) > _NAMED else "")
        text += f"; rows are dropped by what {named} declare{'s' if len(dropping) == 1 else ''}: do the labels match?"
    return Caution(None, None, 0.0, error, text)


class _BlockAnswers(NamedTuple):
    """Answers, standard errors, and which answers are clearly above 0: (rows,) each."""

    answers: FloatArray
    errors: FloatArray
    clear: NDArray[np.bool_]


def _count_block(release: Release, block: Block) -> _BlockAnswers | None:
    """The answers to a block; None where it was not measured."""
    try:
        answers = release.answer_block(block)
        errors = np.sqrt(np.broadcast_to(release.variances(block).reshape(-1), answers.shape))
    except NotAnswerable:
        return None
    bias = entry_biases(release.plan.strategy, block)[0]
    off = 0.0 if bias is None else bias.reshape(-1)
    needed = max(ERRORS, widest_sum_margin(_SURE, release.measurement.noise))
    return _BlockAnswers(answers, errors, (answers - off > needed * errors) & (answers > 0))


class OtherShare(NamedTuple):
    """The noisy share of records in the `(other)` of one attribute, cut to what is possible, and its standard error."""

    attribute: str
    share: float
    standard_error: float


def other_shares(release: Release) -> tuple[OtherShare, ...]:
    """Of every attribute whose `(other)` was measured the share of records in it, the largest first.

    Empty where the number of records was not measured or cannot be told from none.
    """
    raw, domain = release.raw, release.plan.workload.domain
    size, found = _clear_total(_total_count(raw)), list[OtherShare]()
    if size is None:
        return ()
    for name in domain.names:
        if not domain[name].has_other:
            continue
        for cell, counted in _measured_suspects(raw, name):
            if cell is None:
                share = min(1.0, max(0.0, float(counted[0]) / size))
                found.append(OtherShare(name, share, float(counted[1]) / size))
    return tuple(sorted(found, key=lambda s: -s.share))


def other_line(release: Release) -> str:
    """These shares in one line, with two standard errors; "" where there are none."""
    found = other_shares(release)
    said = [
        f"{safe_text(s.attribute)} {percent_text(s.share)} ± {percent_text(2 * s.standard_error)}"
        for s in found[:_LISTED]
    ]
    more = f", {len(found) - _LISTED:,} more attributes at most as much" if len(found) > _LISTED else ""
    return ", ".join(said) + more


def _attribute_cautions(release: Release, name: str, size: float) -> Iterator[Caution]:
    """What there is to say about one attribute, from its own table or from that of one of its levels."""
    domain = release.plan.workload.domain
    attribute = domain[name]
    found = () if release.plan.found is None else {look.attribute for look in release.plan.found.looks}
    for cell, (answer, error, clear) in _measured_suspects(release, name):
        share, doubt = min(1.0, answer / size), error / size
        # of labels that were found it is known that others count there
        if clear and cell is None and name not in found:
            yield Caution(name, OTHER, share, doubt, _outside_sentence(domain, name, share))
        if clear and cell is not None and share >= HEAP and doubt <= 1 - HEAP:
            yield Caution(name, attribute.labels[cell], share, doubt, _heaped_sentence(domain, name, cell, share))


def _measured_suspects(release: Release, name: str) -> Iterator[tuple[int | None, tuple[float, float, bool]]]:
    """The cells that tell whether an attribute's declaration fits, the extra one as None, each with its count, the
    standard error of that, and whether it is clearly above 0: from its own table or from that of one of its levels."""
    domain = release.plan.workload.domain
    for asked in (name, *(level.name for level in reversed(domain.groupings(name)))):
        attribute = domain[asked]
        cells = _suspect_cells(attribute, own=asked == name)
        if not cells:
            return
        owner, factor = lift_to_attribute(domain, asked, Sparse.from_cells([[c] for c in cells], attribute.size))
        counted = _count_block(release, Block(((owner,),), (factor,)))
        if counted is None:
            continue
        for cell, answer, error, clear in zip(cells, *counted, strict=True):
            extra = attribute.has_other and cell == attribute.size - 1
            yield None if extra else cell, (float(answer), float(error), bool(clear))
        return


def _suspect_cells(attribute: Attribute, *, own: bool) -> list[int]:
    """The extra cell; and the cells at the ends of a range that takes in what is beyond."""
    ends = (
        [0, attribute.declared_size - 1] if own and attribute.outside == "clamp" and attribute.declared_size > 1 else []
    )
    return ends + ([attribute.size - 1] if attribute.has_other else [])


def percent_text(share: float) -> str:
    """A noisy share, with a decimal where it is small, and two figures where it is smaller still."""
    digits = 0 if share >= 0.0995 else 1 if share >= 0.00095 or share == 0 else 1 - math.floor(math.log10(100 * share))
    return f"{100 * share:.{digits}f} %"


def _outside_sentence(domain: Domain, name: str, share: float) -> str:
    attribute = domain[name]
    start = f"{safe_text(name)}: {percent_text(share)} of records are in {OTHER}"
    numeric = attribute.intervals is not None
    if attribute.outside != "other":
        return f"{start}: they are missing{', or no number' if numeric else ''}"
    question = f"is the range {range_text(domain, name)} right" if numeric else "do the labels match"
    absent = "missing or no number" if numeric else "missing"
    also = f", or are so many {absent}" if attribute.missing == "other" else ""
    return f"{start}; {question}{also}?"


def _heaped_sentence(domain: Domain, name: str, cell: int, share: float) -> str:
    attribute = domain[name]
    end, beyond = ("first", "below") if cell == 0 else ("last", "above")
    label = attribute.labels[cell]
    return (
        f"{safe_text(name)}: {percent_text(share)} of records are in the {end} cell, {label}, which takes "
        "in all that is "
        f"{beyond} it; is the range {range_text(domain, name)} right?"
    )
