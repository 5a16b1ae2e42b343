"""Conversations over the table of the wall: the number of records, far from its estimate (`high`) or near (`low`)."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

import sfumato as sf
from sfumato.curator import Curator
from sfumato.curator.conversations import Conversation, open_conversation
from sfumato.operators import Block, Dense
from sfumato.privacy.accounting import ZcdpEvent
from sfumato.privacy.conversation_price import Step, Terms
from sfumato.privacy.noise import RoundedGaussian
from sfumato.privacy.selection import Candidates, Epochs
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from support.wall import COUNTS, DOMAIN, TABLE

UNIT = PrivacyUnit(Neighbours.ADD_REMOVE)
HASH = "0" * 64
TERMS = Terms(Epochs(3, Fraction(20)), RoundedGaussian(Fraction(1, 100)))
COST = TERMS.cost(ZcdpEvent)
N = sum(COUNTS)


def question(estimate: int = 0, weight: int = 1, coefficient: int = 1, penalty: int = 10) -> Candidates:
    """The number of records, some times: `high` is far from it and `low` is not."""
    public = (np.array([v], dtype=np.int64) for v in (estimate, weight, penalty))
    return Candidates((Block((("a",),), (Dense(np.full((1, 5), coefficient)),)),), *public)


def high(_: Sequence[Step]) -> Candidates:
    return question()


def low(_: Sequence[Step]) -> Candidates:
    return question(estimate=N)


def curator(ledger: sf.Ledger, source: Any = TABLE, domain: sf.Domain = DOMAIN, unit: PrivacyUnit = UNIT) -> Curator:
    return Curator(source, domain, unit, ledger)


def opened(ledger: sf.Ledger, store: Path | None, about: Any = None) -> Conversation:
    return open_conversation(curator(ledger), TERMS, COST, name="c", plan_hash=HASH, store=store, about=about)[0]


def lines(store: Path, *columns: str) -> list[tuple[Any, ...]]:
    """Parts of the lines after the first: kind, answer, threshold, question, body, hash."""
    with closing(sqlite3.connect(store)) as connection:
        rows = connection.execute("SELECT body, hash FROM lines WHERE sequence > 0 ORDER BY sequence").fetchall()
    found: list[tuple[Any, ...]] = []
    for body, digest in rows:
        kind, answer, threshold, question = body.split(b"\n", 3)
        parts = {"kind": kind.decode(), "answer": answer.decode(), "threshold": threshold.decode()}
        parts |= {"question": question, "body": body, "hash": digest}
        found.append(tuple(parts[c] for c in columns))
    return found
