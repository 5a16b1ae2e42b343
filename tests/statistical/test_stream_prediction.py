"""Predicted errors of streams of tables with two and three attributes, against 20,000 streams of drawn noise."""

from __future__ import annotations

import numpy as np
import pytest

import sfumato as sf
from sfumato.plans.streams import StreamPlan
from sfumato.strategies.toeplitz import Decoder
from support.insecure_bits import InsecureTestBits

STREAMS = 20_000
PERIODS = 24


def plan_of(neighbours: str, shape: tuple[int, ...], k: int, strategy: str) -> StreamPlan:
    domain = sf.Domain(dict(zip("abc", shape, strict=False)))
    over = sf.periods(PERIODS, per_person=k, apart=2) if k > 1 else sf.periods(PERIODS)
    person = {"person": "id"} if k > 1 else {}
    by = sf.mechanisms.continual(strategy=strategy)
    work = sf.marginals(domain, upto=2)
    return sf.plan(work, sf.gdp(1), neighbours=neighbours, periods=over, mechanism=by, **person)


def inverse(plan: StreamPlan) -> np.ndarray:
    """(periods, periods, rows) what the way back makes of a 1 in one period, in every row: rows are by themselves."""
    out = np.zeros((PERIODS, PERIODS, sum(f.rows for f in plan.terms.families)))
    for given in range(PERIODS):
        decoder = Decoder(plan.terms)
        for t in range(PERIODS):
            values = [np.full(f.rows, t == given, dtype=np.int64) for f in plan.terms.families]
            out[t, given] = np.concatenate(decoder.step(values))
    return out


def answers(plan: StreamPlan) -> np.ndarray:
    """(queries, rows) what the tables' strategy makes of a 1 in one row."""
    ends = np.cumsum([f.rows for f in plan.terms.families])
    columns = []
    for row in np.eye(int(ends[-1])):
        estimate = plan.strategy.estimate(np.split(row, ends[:-1]), None)
        columns.append(np.concatenate([plan.strategy.answer(estimate, q.block) for q in plan.workload.blocks]))
    return np.array(columns).T


@pytest.mark.parametrize(
    ("neighbours", "shape", "k", "strategy"),
    [
        # bands are for people in several periods
        ("add-remove", (2, 3), 1, "buffers"),
        ("replace-one", (2, 2, 3), 1, "buffers"),
        ("add-remove", (2, 2, 3), 12, "buffers"),
        ("add-remove", (2, 2, 3), 12, "banded"),
        ("replace-one", (2, 3), 12, "buffers"),
        ("replace-one", (2, 3), 12, "banded"),
    ],
)
def test_prediction_is_observation(neighbours: str, shape: tuple[int, ...], k: int, strategy: str) -> None:
    """All queries, of totals, increments and the last periods, early and late. alpha = 1e-12 for each.

    Mutants: sigma without 2^grain, a multiple twice, the period before, the noise of one family for all.
    """
    plan = plan_of(neighbours, shape, k, strategy)
    back, matrix, bits = inverse(plan), answers(plan), InsecureTestBits(k + len(shape))
    asked = [
        (q, t)
        for t in (1, 2, PERIODS // 2, PERIODS)
        for q in ("totals", "increments", "last 2")
        if t > 1 or q != "last 2"
    ]
    weights = [np.tensordot(plan.weights(q, t), back[:t], 1) for q, t in asked]
    size, squares = back.shape[2], np.zeros((len(asked), len(matrix)))
    for _ in range(10):
        drawn = plan.terms.noise.sample(STREAMS // 10 * PERIODS * size, bits).reshape(-1, PERIODS, size).astype(float)
        for i, w in enumerate(weights):
            squares[i] += ((np.einsum("std,td->sd", drawn, w) @ matrix.T) ** 2).sum(axis=0)
    for i, (q, t) in enumerate(asked):
        wanted = np.concatenate([plan.standard_errors(q, t)]) ** 2
        observed = squares[i] / STREAMS
        free = wanted > 0
        assert ((observed[free] / wanted[free] > 0.930) & (observed[free] / wanted[free] < 1.073)).all(), (q, t)
        assert (observed[~free] < 1e-9 * wanted.max()).all()
