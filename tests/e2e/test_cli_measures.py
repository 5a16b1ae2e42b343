"""Measures on the command line: a spec begun, planned, released, and asked for means, moments and regressions."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfumato.errors import PlanError
from sfumato.present.crosstab import print_chart
from sfumato.releases import Release, load_release
from sfumato.releases.measure_tables import measure_tables
from sfumato.releases.publication import Publication
from support.typed import Run, refused

SPEC = """
[data]
source = "stays.csv"

[schema.ward]
type = "category"
values = ["north", "south"]
outside = "other"
missing = "other"

[measures.days]
min = 0
max = 60

[measures.cost]
min = 0
max = 50000

[privacy]
rho = "5"
neighbours = "add-remove"

[[queries]]
moments = ["cost", "days"]
by = ["ward"]
"""


@pytest.fixture
def stays(run: Run) -> Run:
    """A release of 600 drawn stays."""
    rng = np.random.default_rng(152)
    days = np.round(rng.gamma(2, 3, 600), 1)
    cost = np.round(900 * days + rng.gamma(2, 800, 600), 2)
    lines = [f"{'north' if i % 3 else 'south'},{d},{c}" for i, (d, c) in enumerate(zip(days, cost, strict=True))]
    Path("stays.csv").write_text("\n".join(["ward,days,cost", *lines]) + "\n", encoding="utf-8")
    Path("money.toml").write_text(SPEC, encoding="utf-8")
    assert run("ledger", "create", "money.db", "--rho", "5").code == 0
    assert run("release", "money.toml", "--ledger", "money.db", "--name", "one", "-o", "out/one").code == 0
    return run


def test_statistics_of_measures_are_those_of_python(stays: Run) -> None:
    """Mutants: a variance for a standard deviation; the second measure left out; y and x exchanged."""
    found = load_release("out/one")
    assert isinstance(found, Release)
    for typed, expected in (
        (("mean", "cost", "--by", "ward"), found.mean("cost", by="ward", confidence=0.9)),
        (("moments", "cost", "--by", "ward"), found.std("cost", by="ward", confidence=0.9)),
        (("moments", "cost", "--statistic", "variance"), found.variance("cost", confidence=0.9)),
        (("moments", "cost", "days"), found.correlation("cost", "days", confidence=0.9)),
        (
            ("moments", "cost", "days", "--statistic", "covariance"),
            found.covariance_between("cost", "days", confidence=0.9),
        ),
        (("regress", "cost", "days", "--by", "ward"), found.regression("cost", "days", by="ward", confidence=0.9)),
    ):
        command, *options = typed
        told = json.loads(stays(command, "out/one", *options, "--confidence", "0.9", "--json").out)
        assert told["rows"] == expected.rows()
        lines = csv.DictReader(io.StringIO(stays(command, "out/one", *options, "--csv").out))
        assert len(list(lines)) == len(expected)
        shown = stays(command, "out/one", *options)
        assert shown.code == 0
        assert "confidence of 0.95" in shown.out


def test_gaps_and_inequality_are_those_of_python(stays: Run) -> None:
    """Mutants: below and above exchanged; a knot of another measure; the cut left out; one share of several."""
    spec = SPEC.replace("max = 50000", "max = 50000\nknots = [2000, 10000]").replace(
        'moments = ["cost", "days"]', 'means = "cost"\nclip = "best"'
    )
    Path("cut.toml").write_text(spec, encoding="utf-8")
    assert stays("ledger", "create", "second.db", "--rho", "5").code == 0
    assert stays("release", "cut.toml", "--ledger", "second.db", "--name", "two", "-o", "out/two").code == 0
    found = load_release("out/two")
    assert isinstance(found, Release)
    for typed, expected in (
        (("gap", "cost", "--at", "2000", "--by", "ward"), found.gap("cost", 2_000, by="ward")),
        (("gap", "cost", "--at", "10000", "--side", "above"), found.gap("cost", 10_000, side="above")),
        (("gini", "cost", "--by", "ward"), found.gini("cost", by="ward")),
        (("lorenz", "cost", "--at", "0.25,0.75"), found.lorenz("cost", [0.25, 0.75])),
        (("mean", "cost", "--clip", "2000"), found.mean("cost", clip=2_000)),
        (("mean", "cost", "--clip", "best", "--by", "ward"), found.mean("cost", clip="best", by="ward")),
    ):
        command, *options = typed
        assert json.loads(stays(command, "out/two", *options, "--json").out)["rows"] == expected.rows()
    report = Path("out/two/report.html").read_text(encoding="utf-8")
    assert "and how unequal they are" in report
    for word in ("mean gap below 2000", "Gini index", "what the lower half have"):
        assert f">{word}<" in report
    refused(stays("gap", "out/two", "cost", "--at", "3000"), "knot")
    refused(stays("mean", "out/two", "cost", "--clip", "much"), "such as 20000, or best")
    refused(stays("lorenz", "out/two", "cost", "--at", "half"), "probabilities such as")
    refused(stays("gini", "out/two", "ward"), "no measure")


def test_statistics_of_too_many_or_too_few_measures_are_refused(stays: Run) -> None:
    """Mutant: the one that was not asked told in place of it."""
    refused(stays("moments", "out/one", "cost", "--statistic", "correlation"), "of two")
    refused(stays("moments", "out/one", "cost", "days", "--statistic", "std"), "of one measure")
    refused(stays("moments", "out/one", "ward"), "ward is no measure")
    refused(stays("regress", "out/one", "cost", "cost"), "each measure once")


def test_reports_show_sums_means_and_variances(stays: Run) -> None:
    """Mutants: moments about the middle of a range shown as answers; sums left out where two measures are joined."""
    del stays
    report = Path("out/one/report.html").read_text(encoding="utf-8")
    assert "Sums, means and variances of measures with 95 % intervals" in report
    for word in ("north", "south", "sum", "mean", "variance"):
        assert f">{word}<" in report
    assert "squared" not in report.partition("Sums, means and variances")[2].partition("</table>")[0]


def test_init_says_how_a_measure_is_declared(stays: Run) -> None:
    """Names are read and nothing else. Mutant: a range proposed from the rows."""
    assert stays("init", "stays.csv", "-o", "new.toml").code == 0
    text = Path("new.toml").read_text(encoding="utf-8")
    assert "[measures.NAME]" in text
    assert 'means = "cost", or moments' in text
    assert "[schema.cost]" in text
    assert "900" not in text


def test_means_are_drawn(stays: Run) -> None:
    """The bars are Python's means, a group of nobody has none, and both say so. Mutants: counts drawn under the name of
    a mean; a mean of what is left out; numbers as in English in a German chart; no
    flags."""
    found = load_release("out/one").with_errors()
    frame = found.mean("cost", by="ward")
    expected = dict(zip(frame["ward"], frame["mean cost"], strict=True))
    del expected["(other)"]
    for chart in (frame.plot(), print_chart(found, ("ward",), Publication(), mean="cost")):
        spec = chart.to_dict()
        assert {r["axis0"]: r["answer"] for r in _values(spec)} == expected
        assert "1 bar is missing" in json.dumps(spec)
    marked = json.dumps(frame.plot(flags={"+": 1e-9}).to_dict())
    assert marked.count('"flag": "+"') == 2
    assert "Relative standard error: + above" in marked
    assert stays("chart", "out/one", "ward", "--mean", "cost", "-o", "mean.svg", "--title", "T").code == 0
    assert "mean of cost" in Path("mean.svg").read_text(encoding="utf-8")
    assert stays("chart", "out/one", "ward", "--mean", "cost", "-o", "de.svg", "--language", "de").code == 0
    text = Path("de.svg").read_text(encoding="utf-8")
    assert re.search(r">\d\.\d{3}<", text)
    assert not re.search(r">\d,\d{3}<", text)
    refused(stays("chart", "out/one", "ward", "--mean", "cost", "--per", "row", "-o", "x.svg"), "ask for one of both")
    refused(stays("chart", "out/one", "ward", "--mean", "ward", "-o", "x.svg"), "not numeric")
    with pytest.raises(PlanError, match="one to three"):
        found.mean("cost").plot()
    with pytest.raises(PlanError, match="do not add up"):
        next(measure_tables(found, 0.95)).crosstab("ward")


def _values(spec: Any) -> list[dict[str, Any]]:
    """The rows of a chart, wherever in it they are."""
    if isinstance(spec, list):
        return [row for one in spec for row in _values(one)]
    if not isinstance(spec, dict):
        return []
    own = spec["data"].get("values", []) if isinstance(spec.get("data"), dict) else []
    return own or [row for one in spec.values() for row in _values(one)]
