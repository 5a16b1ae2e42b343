"""How a session is opened, which one to take, and the histogram beside it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.sessions.plans import SessionPlan
from support.sessions import COUNTS, DOMAIN, GENEROUS, RECORDS, TABLE, opened


@pytest.mark.parametrize(
    "options",
    [
        {"updates": 0},
        {"updates": 2.0},
        {"threshold": 0},
        {"alpha": 2},
        {"alpha": "most"},
        {"beta": 0},
        {"beta": True},
        {"questions": 0},
        {"span": 0},
        {"mechanism": "magic"},
        {"records": -1},
        {"neighbours": "none"},
    ],
    ids=str,
)
def test_options_that_cannot_be_are_refused_before_anything_is_spent(options: dict[str, Any]) -> None:
    ledger = sf.Ledger.in_memory(GENEROUS)
    given: dict[str, Any] = {"neighbours": "add-remove", "ledger": ledger}
    with pytest.raises(sf.SfumatoError):
        opened(**given | options)
    assert ledger.spent == 0


def test_the_plan_says_what_would_err_less() -> None:
    plan = sf.session_plan(DOMAIN, sf.approx(1, "1e-6"), neighbours="replace-one", records=RECORDS)
    assert isinstance(plan, SessionPlan)
    assert plan.compared["mechanism"][1] == "histogram"
    # replace-one: sqrt 2 times the multiplier, times the root of half the cells
    assert plan.compared["standard_error"][1] == pytest.approx(4.2247 * math.sqrt(2 * 24), rel=0.01)
    assert "histogram" in plan.advice
    large = sf.session_plan(
        sf.Domain({"a": 2000, "b": 2000}),
        sf.approx(1, "1e-6"),
        neighbours="replace-one",
        records=RECORDS,
        questions=10**8,
    )
    assert "pmw errs least" in large.advice
    assert "Errors in records" in str(large)


def test_a_histogram_session_answers_everything_for_ever(tmp_path: Path) -> None:
    for store in (None, tmp_path / "cells"):
        if store is not None:
            sf.Ledger.create(tmp_path / "budget.db", total=sf.approx(1, "1e-6"))
        asked = sf.session(
            sf.Histogram(TABLE),
            DOMAIN,
            sf.approx(1, "1e-6"),
            neighbours="add-remove",
            mechanism="histogram",
            ledger=None if store is None else tmp_path / "budget.db",
            store=store,
        )
        found = asked.ask("x < 8 and y == 'a'")
        assert found.how == "histogram"
        assert found.guaranteed
        # Laplace noise errs least where no ledger asks for mu^2; there Gaussian noise does
        deviation = 4.2257 if store else math.sqrt(2)
        assert found.standard_error is not None
        assert found.standard_error == pytest.approx(math.sqrt(8) * deviation, rel=0.02)
        assert abs(found.value - COUNTS[:8, 0].sum()) < 12 * found.standard_error
        mean = asked.ask(sf.queries(np.full((1, 16), 1 / 16), DOMAIN, "x"))[0]
        assert mean.standard_error is not None
        assert abs(mean.value - RECORDS / 16) < 12 * mean.standard_error
        assert not asked.status()["exhausted"]
    assert sf.resume_session(tmp_path / "cells").ask("x < 8 and y == 'a'") == found
    with pytest.raises(sf.PlanError, match="belongs to"):
        opened(mechanism="histogram", updates=3)
