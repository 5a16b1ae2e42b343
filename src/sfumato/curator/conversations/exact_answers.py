"""Conversations about a table: the doors that open one and go on with it, and the exact answers they are made of."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sfumato._util.codec import value_fingerprint
from sfumato.cells import Grid
from sfumato.curator.conversations import curator as conversing
from sfumato.curator.conversations.curator import Conversation
from sfumato.curator.curator import CuratedTable, Curator, curator_holding, rebuild_values
from sfumato.curator.rows.counting import MAX_CELLS
from sfumato.curator.selecting import admit_candidates, exact_candidate_answers
from sfumato.errors import PlanError
from sfumato.privacy.accounting import Event
from sfumato.privacy.conversation_price import Terms
from sfumato.privacy.debits import Receipt
from sfumato.privacy.selection import Candidates, score_sensitivity

_DIGESTED = 2**20  # 8 MB of counts that tell a table by its digest


def open_conversation(
    curator: Curator,
    terms: Terms,
    price: Event,
    *,
    name: str,
    plan_hash: str,
    store: Path | None = None,
    about: Any = None,
) -> tuple[Conversation, Receipt]:
    """Questions one by one, each chosen after earlier replies; the whole price is debited now, used up or not.

    A question is `Candidates` of one row; it is positive if its score, with noise, is at least a noisy zero: its
    penalty is the threshold. `about` is any public storable value, kept with the conversation. With `store`, a
    path at which nothing is, it is kept in a file, private to the custodian, that many processes may `resume`.

    Guarantee: all replies it ever gives satisfy together the definition that `price` states, for the curator's
    neighbour relation, and beside anything else the ledger pays for. Refusals are those of `Curator.measure`;
    InvalidInput or LedgerError for a place where no file can be made.
    """
    held = curator_holding(curator)
    terms, price, about = rebuild_values((terms, price, about))
    return conversing.converse_with(
        TableAccess(held),
        terms,
        price,
        ledger=held.ledger,
        unit=held.unit,
        table=held.table,
        name=name,
        plan_hash=plan_hash,
        store=store,
        about=about,
        bits=held.bits,
    )


def resume_conversation(curator: Curator, store: Path, *, anchor: str | None = None) -> Conversation:
    """The conversation kept in a file, to go on with; no budget is spent. `anchor` finds a file put back.

    Raises LedgerError or LedgerCorrupted for a file that the curator's ledger did not pay for, that is not complete,
    that was changed or is open to others; PlanError for another domain or unit; SourceError (for the custodian) for a
    table that cannot be loaded or that is another.
    """
    held = curator_holding(curator)
    return conversing.resume_with(TableAccess(held), store, ledger=held.ledger, anchor=anchor)


def _countable_sets(grid: Grid) -> list[tuple[str, ...]]:
    """Consecutive attributes, as many together as have at most 2^20 cells; those too large to count are left out."""
    sets: list[tuple[str, ...]] = [()]
    cells = 1
    for name, size in grid.sizes().items():
        if size > MAX_CELLS:
            continue
        cells *= size
        if cells <= _DIGESTED:
            sets[-1] = (*sets[-1], name)
        else:
            sets.append((name,))
            cells = size
    return sets


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TableAccess:
    """A table over a domain, for conversations: questions are `Candidates` of one row."""

    held: CuratedTable

    def open(self) -> None:
        """Read the table, if that was not done before."""
        self.held.open()

    def admit(self, question: object, terms: Terms) -> tuple[Candidates, Candidates]:
        """The question built anew, and with its maps.

        Raises PlanError or WorkloadError for what cannot be counted or moves too far.
        """
        own, asked = admit_candidates(self.held, question)
        if not isinstance(own, Candidates) or not isinstance(asked, Candidates):
            raise PlanError(f"candidates are needed, not {type(question).__name__}")
        if len(own) != 1:
            raise PlanError(f"a conversation is asked one question at a time, not {len(own)}")
        moves = score_sensitivity(asked, self.held.grid.sizes(), self.held.unit)
        if moves > terms.epochs.sensitivity:
            raise PlanError(
                f"the score moves by up to {moves} between neighbours; the conversation was paid for "
                f"{terms.epochs.sensitivity}"
            )
        # a single score moves its weight times as far as its answer
        if terms.answer is not None and moves > terms.move * int(own.weights[0]):
            raise PlanError(
                f"the answer moves by up to {moves // int(own.weights[0])} between neighbours; the conversation was "
                f"paid for {terms.move}"
            )
        return own, asked

    @property
    def fingerprint(self) -> str:
        """A hash of domain and privacy unit."""
        return value_fingerprint((self.held.declared, self.held.unit))

    def digest(self, key: bytes) -> str:
        """A keyed hash of joint tables of neighbouring attributes, as many together as have at most 2^20 cells.

        A change that leaves all of them as they are goes unnoticed.
        """
        found = hmac.new(key, b"table", hashlib.sha256)
        for table in self.held.open().count(_countable_sets(self.held.grid)).values():
            found.update(np.ascontiguousarray(table).data)
        return found.hexdigest()

    def exact(self, question: Candidates) -> int:
        """The exact answer to an admitted question."""
        return int(exact_candidate_answers(self.held.open(), question)[0])
