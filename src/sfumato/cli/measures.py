"""What a release says of measures: how they vary and go together, gaps to a line, how unequal they are.

All of it follows from what was measured, so it is free.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from sfumato.cli.options import Folder, Json
from sfumato.cli.releases import By, Confidence, Csv, load_measured, parse_probabilities, print_frame
from sfumato.errors import InvalidInput

commands = typer.Typer()

Measure = Annotated[str, typer.Argument(metavar="MEASURE", help="A declared measure.")]


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
    groups, found = by or [], load_measured(folder)
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
    print_frame(found, frame, named, confidence, as_csv=as_csv, as_json=as_json)


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
    groups, found = by or [], load_measured(folder)
    frame = found.regression(y, x, by=groups, confidence=confidence)
    print_frame(found, frame, [y, *x, *groups], confidence, as_csv=as_csv, as_json=as_json)


class Side(StrEnum):
    """On which side of a knot `gap` looks."""

    BELOW = "below"
    ABOVE = "above"


@commands.command()
def gap(
    folder: Folder,
    measure: Measure,
    at: Annotated[float, typer.Option(metavar="KNOT", help="A declared knot of the measure, such as a poverty line.")],
    side: Annotated[Side, typer.Option(help="How far numbers fall short of it, or exceed it.")] = Side.BELOW,
    by: By = None,
    confidence: Confidence = 0.95,
    as_csv: Csv = False,
    as_json: Json = False,
) -> None:
    """How far the numbers of a measure are below a knot on average, or above it. It costs nothing.

    The mean is over all records with a number. The queries of the release must have gaps at the knot.

    \b
    Example:
      sfumato gap releases/2026-11 income --at 20000 --by region
    """
    groups, found = by or [], load_measured(folder)
    frame = found.gap(measure, at, by=groups, confidence=confidence, side=side.value)
    print_frame(found, frame, [measure, *groups], confidence, as_csv=as_csv, as_json=as_json)


@commands.command()
def gini(
    folder: Folder,
    measure: Measure,
    by: By = None,
    confidence: Confidence = 0.95,
    as_csv: Csv = False,
    as_json: Json = False,
) -> None:
    """The Gini index of a measure, between what sums cut at its knots leave possible. It costs nothing.

    The queries of the release must have gaps of the measure, or means with clip = "best".

    \b
    Example:
      sfumato gini releases/2026-11 income --by region
    """
    groups, found = by or [], load_measured(folder)
    frame = found.gini(measure, by=groups, confidence=confidence)
    print_frame(found, frame, [measure, *groups], confidence, as_csv=as_csv, as_json=as_json)


@commands.command()
def lorenz(
    folder: Folder,
    measure: Measure,
    at: Annotated[str, typer.Option(metavar="P,P,…", help="Shares of the records, between 0 and 1.")] = "0.5,0.9,0.99",
    by: By = None,
    confidence: Confidence = 0.95,
    as_csv: Csv = False,
    as_json: Json = False,
) -> None:
    """What share of a measure's sum the records with the smallest numbers have: the Lorenz curve. It costs nothing.

    The queries of the release must have gaps of the measure, or means with clip = "best".

    \b
    Example:
      sfumato lorenz releases/2026-11 income --at 0.5,0.9 --by region
    """
    wanted, groups, found = parse_probabilities(at), by or [], load_measured(folder)
    frame = found.lorenz(measure, wanted, by=groups, confidence=confidence)
    print_frame(found, frame, [measure, *groups], confidence, as_csv=as_csv, as_json=as_json)
