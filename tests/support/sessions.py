"""Sessions over one small table, for tests of what they answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import sfumato as sf
from sfumato.curator import Curator
from sfumato.curator.conversations import Conversation, open_conversation
from sfumato.interactive.opening import OnlineSession
from sfumato.interactive.plan import SessionPlan
from support.words import open_with

DOMAIN = sf.Domain({"x": sf.Integers(0, 15), "y": sf.Categories(["a", "b", "c"])})
RECORDS = 100_000
TABLE = np.random.default_rng(0).multinomial(RECORDS, np.random.default_rng(1).dirichlet(np.full(48, 0.4)))
COUNTS = TABLE.reshape(16, 3)
GENEROUS = sf.gdp(8)
SURE = 1e-11  # the probability with which a bound may fail in a test


def opened(neighbours: str = "replace-one", budget: sf.Budget = GENEROUS, **options: Any) -> OnlineSession:
    given: dict[str, Any] = {"ledger": None, "questions": 200, "records": RECORDS, **options}
    found = open_with(sf.Histogram(TABLE), DOMAIN, budget, neighbours=neighbours, **given)
    assert isinstance(found, OnlineSession)
    return found


def stored(folder: Path, **options: Any) -> tuple[OnlineSession, Path]:
    sf.Ledger.create(folder / "budget.db", total=GENEROUS)
    place = folder / "desk.session"
    return opened(ledger=folder / "budget.db", store=place, **options), place


def conversing(plan: SessionPlan, table: np.ndarray) -> Conversation:
    curator = Curator(sf.Histogram(table), DOMAIN, plan.unit, sf.Ledger.in_memory(GENEROUS))
    return open_conversation(curator, plan.terms, plan.price, name="s", plan_hash=plan.fingerprint)[0]
