"""Prediction equals observation in the local model: many tables of reports, drawn from the operating system's bits."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import sfumato as sf
from sfumato.local.collecting import answer_reports, report_cells
from sfumato.local.plan import LocalPlan

RUNS, PERSONS = 2_000, 60
Z = 7.13  # two-sided, 1e-12


def plans() -> list[LocalPlan]:
    line, pair = sf.Domain({"a": 9}), sf.Domain({"a": 3, "b": 4})
    return [
        sf.plan(sf.prefix(line, "a"), sf.pure(1), trust="local", records=PERSONS),
        sf.plan(sf.marginals(pair, order=1), sf.pure("0.7"), trust="local", records=PERSONS),
        sf.plan(
            sf.identity(line, "a"),
            sf.pure(3),
            trust="local",
            records=PERSONS,
            mechanism=sf.mechanisms.local(reporter="randomized-response"),
        ),
        sf.plan(
            sf.identity(line, "a"),
            sf.pure(1),
            trust="local",
            records=PERSONS,
            mechanism=sf.mechanisms.local(reporter="hadamard"),
        ),
    ]


def observed(plan: LocalPlan, counts: np.ndarray) -> np.ndarray:
    """(RUNS, k) answers of RUNS independent tables of reports."""
    cells = np.tile(np.repeat(np.arange(len(counts)), counts), RUNS).astype(np.int64)
    reports = report_cells(plan, cells).reshape(RUNS, -1)
    return np.stack([answer_reports(plan, r).answers for r in reports])


@pytest.mark.parametrize("index", range(4))
def test_answers_are_unbiased_with_the_variance_that_was_planned(index: int) -> None:
    """Mutants: questions drawn with side="left"; the tally read with the labels of the next question."""
    plan = plans()[index]
    m = plan.questions.cells
    counts = np.zeros(m, dtype=np.int64)
    counts[[0, m // 2, m - 1]] = PERSONS // 2, PERSONS // 6, PERSONS // 3
    found = observed(plan, counts)
    truth = plan.reading.queries @ counts
    variances = plan.reading.variances(0, len(truth)) @ counts
    sure = variances > 1e-9
    assert np.abs(found - truth)[:, ~sure].max(initial=0.0) < 1e-6
    z = (found.mean(axis=0) - truth)[sure] / np.sqrt(variances[sure] / RUNS)
    assert np.abs(z).max() < Z
    ratio = found.var(axis=0, ddof=1)[sure] / variances[sure]
    # a sum of 60 bounded terms is nearly normal: the ratio's deviation is about sqrt(2 / RUNS)
    spread = 1.5 * Z * np.sqrt(2 / RUNS)
    assert spread < 0.35
    assert (np.abs(ratio - 1) < spread).all()
    observed_rmse = np.sqrt(((found - truth) ** 2).mean())
    assert observed_rmse == pytest.approx(plan.rmse_on(counts), rel=0.1)
    assert plan.rmse_on(counts) <= plan.rmse * (1 + 1e-12)
    assert (plan.standard_errors() ** 2 >= variances * (1 - 1e-9)).all()


def test_intervals_hold_at_least_as_often_as_they_say() -> None:
    plan = plans()[0]
    counts = np.full(9, 20, dtype=np.int64)
    cells = np.repeat(np.arange(9), counts).astype(np.int64)
    truth = plan.reading.queries @ counts
    hits = []
    for _ in range(200):
        low, high = answer_reports(plan, report_cells(plan, cells)).intervals(0.9)
        hits.append(((low - 1e-9 <= truth) & (truth <= high + 1e-9))[:-1].mean())
    # errors of prefixes go together: at worst 200 independent trials
    assert np.mean(hits) > 0.9 - Z * np.sqrt(0.09 / 200)


def test_reports_come_as_often_as_the_law_says() -> None:
    plan = sf.plan(sf.prefix(sf.Domain({"a": 4}), "a"), sf.pure(Fraction(3, 2)), trust="local", records=1)
    q = plan.questions
    seen = np.bincount(report_cells(plan, np.zeros(200_000, dtype=np.int64)), minlength=plan.outcomes)
    top = float(np.exp(1.5))
    chance = np.ones((len(q.table), q.labels))
    chance[np.arange(len(q.table)), q.table[:, 0]] = top
    chance = (chance * q.weights[:, None] / (top + q.labels - 1)).reshape(-1)
    z = (seen - 200_000 * chance) / np.sqrt(200_000 * chance * (1 - chance))
    assert np.abs(z[200_000 * chance > 50]).max() < Z
