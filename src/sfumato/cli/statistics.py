"""Statistics of a release, and what changed between two: whatever follows from what was measured is free."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.options import Folder, Json
from sfumato.errors import InvalidInput
from sfumato.terminal import show_rows

if TYPE_CHECKING:
    from sfumato._util.frames import Frame
    from sfumato.releases import Release


commands = typer.Typer()

Attribute = Annotated[str, typer.Argument(metavar="ATTRIBUTE", help="A declared attribute, or a level of one.")]
Measure = Annotated[str, typer.Argument(metavar="MEASURE", help="A declared measure.")]
By = Annotated[list[str] | None, typer.Option("--by", metavar="ATTRIBUTE", help="Groups; may be repeated.")]
Confidence = Annotated[float, typer.Option(help="Of the intervals.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV: every line, every digit.")]


@commands.command()
def quantiles(
    folder: Folder,
    attribute: Attribute,
    at: Annotated[str, typer.Option(metavar="P,P,…", help="Probabilities between 0 and 1.")] = "0.25,0.5,0.75",
    by: By = None,
    confidence: Confidence = 0.95,
    as_csv: Csv = False,
    as_json: Json = False,
) -> None:
    """Quantiles of a numeric attribute, told to its cells, each with its interval. They cost nothing.

    \b
    Example:
      sfumato quantiles releases/2026-11 age --at 0.1,0.5,0.9 --by sex
    """
    wanted, groups, found = _parse_probabilities(at), by or [], _load_measured(folder)
    frame = found.quantiles(attribute, wanted, by=groups, confidence=confidence)
    _print_frame(found, frame, [attribute, *groups], confidence, as_csv=as_csv, as_json=as_json)


@commands.command()
def mean(
    folder: Folder,
    attribute: Attribute,
    by: By = None,
    confidence: Confidence = 0.95,
    as_csv: Csv = False,
    as_json: Json = False,
) -> None:
    """The mean of a measure, or of a numeric attribute from the middles of its declared cells. It costs nothing.

    Its interval holds the mean of the values, wherever in their cells these are; the note names the widest cell. Of a
    measure it is the mean of the numbers, cut to the declared range.

    \b
    Example:
      sfumato mean releases/2026-11 age --by sex
      sfumato mean releases/2026-11 cost --by ward
    """
    groups, found = by or [], _load_measured(folder)
    frame = found.mean(attribute, by=groups, confidence=confidence)
    _print_frame(found, frame, [attribute, *groups], confidence, as_csv=as_csv, as_json=as_json)


class Statistic(StrEnum):
    """What `moments` tells of one measure or of two."""

    VARIANCE = "variance"
    STD = "std"
    COVARIANCE = "covariance"
    CORRELATION = "correlation"


@commands.command()
def moments(
    folder: Folder,
    measure: Measure,
    other: Annotated[str | None, typer.Argument(metavar="OTHER", help="A second measure.")] = None,
    statistic: Annotated[
        Statistic | None,
        typer.Option(
            help="Of one measure variance or std, the default; of two covariance or correlation, the default."
        ),
    ] = None,
    by: By = None,
    confidence: Confidence = 0.95,
    as_csv: Csv = False,
    as_json: Json = False,
) -> None:
    """How much a measure varies, or how two vary together, from sums of squares and products. It costs nothing.

    The queries of the release must have moments of the measures.

    \b
    Example:
      sfumato moments releases/2026-11 cost --by ward
      sfumato moments releases/2026-11 cost days --statistic covariance
    """
    groups, found = by or [], _load_measured(folder)
    wanted = statistic or (Statistic.STD if other is None else Statistic.CORRELATION)
    if (other is None) != (wanted in (Statistic.VARIANCE, Statistic.STD)):
        raise InvalidInput(
            "variance and std are of one measure, covariance and correlation of two: "
            f"{wanted.value} was asked of {'one' if other is None else 'two'}"
        )
    if other is None:
        tell = found.variance if wanted is Statistic.VARIANCE else found.std
        frame = tell(measure, by=groups, confidence=confidence)
    else:
        together = found.covariance_between if wanted is Statistic.COVARIANCE else found.correlation
        frame = together(measure, other, by=groups, confidence=confidence)
    named = [measure, *([] if other is None else [other]), *groups]
    _print_frame(found, frame, named, confidence, as_csv=as_csv, as_json=as_json)


@commands.command()
def regress(
    folder: Folder,
    y: Annotated[str, typer.Argument(metavar="Y", help="The measure that is explained.")],
    x: Annotated[list[str], typer.Argument(metavar="X…", help="One or two measures that explain it.")],
    by: By = None,
    confidence: Confidence = 0.95,
    as_csv: Csv = False,
    as_json: Json = False,
) -> None:
    """Least squares of a measure on others: coefficients and R², each with its interval. It costs nothing.

    The queries of the release must have moments of all of them together.

    \b
    Example:
      sfumato regress releases/2026-11 cost days --by ward
    """
    groups, found = by or [], _load_measured(folder)
    frame = found.regression(y, x, by=groups, confidence=confidence)
    _print_frame(found, frame, [y, *x, *groups], confidence, as_csv=as_csv, as_json=as_json)


@commands.command()
def share(
    folder: Folder,
    attribute: Attribute,
    within: Annotated[
        list[str] | None, typer.Option("--within", metavar="ATTRIBUTE", help="Groups; may be repeated.")
    ] = None,
    confidence: Confidence = 0.95,
    as_csv: Csv = False,
    as_json: Json = False,
) -> None:
    """The share of records in each cell of an attribute, within groups. It costs nothing.

    \b
    Example:
      sfumato share releases/2026-11 sex --within age
    """
    groups, found = within or [], _load_measured(folder)
    frame = found.share(attribute, within=groups, confidence=confidence)
    _print_frame(found, frame, [attribute, *groups], confidence, as_csv=as_csv, as_json=as_json, without_other=False)


@commands.command()
def cdf(
    folder: Folder,
    attribute: Attribute,
    by: By = None,
    confidence: Confidence = 0.95,
    as_csv: Csv = False,
    as_json: Json = False,
) -> None:
    """The share of records up to each cell of an ordered attribute. It costs nothing.

    \b
    Example:
      sfumato cdf releases/2026-11 age --by sex --csv
    """
    groups, found = by or [], _load_measured(folder)
    frame = found.cdf(attribute, by=groups, confidence=confidence)
    _print_frame(found, frame, [attribute, *groups], confidence, as_csv=as_csv, as_json=as_json)


@commands.command()
def compare(
    later: Annotated[Path, typer.Argument(metavar="LATER", help="The folder of a release.")],
    earlier: Annotated[Path, typer.Argument(metavar="EARLIER", help="The folder of one of the same queries.")],
    part: Annotated[str | None, typer.Option(metavar="PART", help="One part of the queries; default: all.")] = None,
    together: Annotated[bool, typer.Option("--together", help="Let all intervals hold together.")] = False,
    confidence: Confidence = 0.95,
    as_csv: Csv = False,
    as_json: Json = False,
) -> None:
    """What changed between two releases of the same queries, with intervals. It costs nothing.

    \b
    Example:
      sfumato compare releases/2026-12 releases/2026-11 --part main
    """
    new, old = _load_measured(later), _load_measured(earlier)
    if part is not None:
        new, old = new[part], old[part]
    frame = new.compare(old, confidence, simultaneous=together)
    changed = sum(not low <= 0 <= high for low, high in zip(frame["low"], frame["high"], strict=True))
    by_chance = f"about {(1 - confidence) * len(frame):,.3g} would"
    if together:
        by_chance = f"none would in {confidence:.3g} of all comparisons"
    text = f"{changed:,} of {len(frame):,} intervals leave out 0; if nothing had changed, {by_chance}."
    facts = {"confidence": confidence, "together": together, "changed": changed}
    show_rows(frame, facts, text, as_csv=as_csv, as_json=as_json)


def _parse_probabilities(text: str) -> list[float]:
    try:
        return [float(p) for p in text.split(",")]
    except ValueError:
        raise InvalidInput(f"--at lists probabilities such as 0.1,0.5,0.9, not {text!r}") from None


def _load_measured(folder: Path) -> Release:
    from sfumato.releases import load_release

    return load_release(folder).with_errors()


def _print_frame(
    release: Release,
    frame: Frame,
    attributes: list[str],
    confidence: float,
    *,
    as_csv: bool,
    as_json: bool,
    without_other: bool = True,
) -> None:
    """The rows; on a screen also what they rest on, and reasons to doubt the attributes that are asked about."""
    from sfumato.domain.attributes import OTHER

    domain = release.plan.workload.domain
    owners = {domain.owner(a) for a in attributes}
    doubts = [c for c in release.cautions if c.attribute is None or c.attribute in owners] if not as_csv else []
    lines = [f"low and high: an interval that holds with a confidence of {confidence:.3g}."]
    if without_other and any(c.attribute == domain.owner(attributes[0]) and OTHER in c.text for c in doubts):
        lines.append(f"Records whose {attributes[0]} is in {OTHER} are left out: these numbers are of the others.")
    lines += [f"caution: {c.text}" for c in doubts]
    facts = {"release": release.provenance.name, "confidence": confidence, "cautions": [c.facts() for c in doubts]}
    show_rows(frame, facts, "\n".join(lines), as_csv=as_csv, as_json=as_json)
