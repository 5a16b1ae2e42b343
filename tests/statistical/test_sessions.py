"""The promises of sessions, kept as often as they say: many sessions on tables that are hard for them.

A bound fails with probability at most beta, which an exact binomial test holds against the sessions in which it did
(false alarm 1e-10). A promise that is never tried proves nothing: each test also says how near answers came to it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

import sfumato as sf
from sfumato.curator import Curator
from sfumato.curator.conversations import open_conversation
from sfumato.interactive import SessionAnswer
from sfumato.interactive.opening import OnlineSession
from sfumato.interactive.plan import SessionPlan
from support.seeded import draws
from support.words import plan_with

SESSIONS, BETA, ALARM = draws(60), 0.2, 1e-6
CELLS, ASKED = 32, 20
DOMAIN = sf.Domain({"x": CELLS})
Table = NDArray[np.int64]
Asker = Callable[[OnlineSession, Table], list[tuple[int, int]]]


def _spike(records: int) -> Table:
    """Everybody in one cell: as far from uniform as a table can be."""
    table = np.zeros(CELLS, dtype=np.int64)
    table[5] = records
    return table


def _smooth(records: int) -> Table:
    weights = np.exp(-(((np.arange(CELLS) - 12) / 5.0) ** 2))
    return np.random.default_rng(7).multinomial(records, weights / weights.sum())


@cache
def _plan(neighbours: str, records: int, *, promised: bool) -> SessionPlan:
    options = {"alpha": "least"} if promised else {"updates": 6, "threshold": 90}
    return plan_with(
        DOMAIN,
        sf.gdp(1),
        mechanism="pmw",
        neighbours=neighbours,
        records=records,
        questions=ASKED,
        beta=BETA,
        **options,  # type: ignore[arg-type]
    )


def _open(plan: SessionPlan, table: Table) -> OnlineSession:
    curator = Curator(sf.Histogram(table), plan.domain, plan.unit, sf.Ledger.in_memory(plan.budget))
    conversation, _ = open_conversation(curator, plan.terms, plan.price, name="s", plan_hash=plan.fingerprint)
    return OnlineSession(plan, conversation)


def _gaps(asked: OnlineSession, table: Table) -> NDArray[np.float64]:
    """(cells, cells) how far the hypothesis errs on every interval: what an all-knowing adversary goes by."""
    below = np.concatenate([[0.0], np.cumsum(table - asked.hypothesis)])
    return np.triu(below[None, 1:] - below[:-1, None])


def _ask(asked: OnlineSession, a: int, b: int) -> SessionAnswer:
    return asked.ask(f"x >= {a} and x <= {b}")


def _adversary(asked: OnlineSession, table: Table) -> tuple[float, float]:
    """Ask what errs by just less than an easy answer may: (worst excess over the bound, farthest from the truth).

    The question is the one whose gap is nearest to 1.1 thresholds: noise lets it through often, and then it errs most.
    """
    excess, farthest = -np.inf, 0.0
    for _ in range(ASKED):
        gaps = np.abs(np.abs(_gaps(asked, table)) - 1.1 * asked.plan.threshold)
        a, b = (
            int(i) for i in np.unravel_index(np.argmin(np.where(np.triu(np.ones_like(gaps)), gaps, np.inf)), gaps.shape)
        )
        found = _ask(asked, a, b)
        error = abs(found.value - int(table[a : b + 1].sum()))
        if found.guaranteed:
            assert found.bound is not None
            excess, farthest = max(excess, error - found.bound), max(farthest, error)
    return excess, farthest


@pytest.mark.parametrize(("neighbours", "law"), [("replace-one", _spike), ("add-remove", _smooth)])
def test_bounds_fail_no_more_often_than_they_say(neighbours: str, law: Callable[[int], Table]) -> None:
    """Mutants: a threshold that is not penalised; v of one side of the noise; exhausted answers called guaranteed."""
    plan, table = _plan(neighbours, 3000, promised=False), law(3000)
    found = [_adversary(_open(plan, table), table) for _ in range(SESSIONS)]
    missed = sum(excess > 0 for excess, _ in found)
    assert binom.sf(missed - 1, SESSIONS, BETA) > ALARM
    # the noise is no stranger to these answers: many come beyond half of the bound
    assert np.mean([far > plan.easy_bound / 2 for _, far in found]) > 0.2


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_promised_updates_last_and_every_answer_is_within_alpha(neighbours: str) -> None:
    """The adversary asks where the hypothesis errs most. Mutant: records= left out of the promise."""
    records = 1000
    plan, table = _plan(neighbours, records, promised=True), _spike(records)
    assert plan.alpha is not None
    assert plan.alpha < 0.9 * records
    assert plan.updates < ASKED
    broken, most = 0, 0
    for _ in range(SESSIONS):
        asked, kept = _open(plan, table), True
        for _ in range(ASKED):
            gaps = np.abs(_gaps(asked, table))
            a, b = (int(i) for i in np.unravel_index(np.argmax(gaps), gaps.shape))
            found = _ask(asked, a, b)
            kept &= found.how != "exhausted" and abs(found.value - int(table[a : b + 1].sum())) <= plan.alpha
        broken, most = broken + (not kept), max(most, plan.updates - asked.remaining)
    assert binom.sf(broken - 1, SESSIONS, BETA) > ALARM
    assert 0 < most < plan.updates


def test_hard_answers_err_as_their_noise_law_predicts() -> None:
    """Mutants: sigma for variance; noise for another number of updates. 400 answers: 7 standard errors either way."""
    table, noise = _smooth(3000), None
    errors: list[float] = []
    for _ in range(20):
        asked = sf.open(
            sf.plan(
                DOMAIN,
                sf.gdp(1),
                neighbours="replace-one",
                records=3000,
                mechanism=sf.mechanisms.pmw(updates=20, threshold=1),
            ),
            sf.Histogram(table),
            ledger=None,
        )
        assert isinstance(asked, OnlineSession)
        noise, cell = asked.plan.answer_noise, 0
        while asked.remaining:
            found = _ask(asked, cell, min(cell + 3, CELLS - 1))
            if found.how == "measured":
                errors.append(found.value - float(table[cell : cell + 4].sum()))
            cell = (cell + 5) % CELLS
    assert noise is not None
    assert len(errors) == 400
    assert abs(np.mean(errors)) < 7.13 * (noise.variance / len(errors)) ** 0.5
    assert np.var(errors) / noise.variance == pytest.approx(1, abs=7.13 * (2 / len(errors)) ** 0.5)
