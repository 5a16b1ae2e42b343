"""Exact answers to candidates, for the doors that choose; they never leave the wall."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.errors import PlanError
from sfumato.ground.codec import fingerprint
from sfumato.operators import Block
from sfumato.privacy.conversing import Terms
from sfumato.privacy.misses import Misses
from sfumato.privacy.selection import Candidates, score_sensitivity
from sfumato.privacy.unit import PrivacyUnit
from sfumato.wall.rows.counting import MAX_CELLS, Counts, check_countable

__all__ = ["TableHolder", "answers", "check_candidates"]

_DIGESTED = 2**20


def check_candidates(domain: Domain, blocks: Sequence[Block]) -> None:
    """Refuse, from public facts alone, what could not be counted or applied; a dry run on empty tables."""
    for block in blocks:
        axes = sorted(domain.axis(a) for a in block.attributes)
        check_countable(domain, [np.array([axes], dtype=np.int32)])
        block.operator.matvec(np.zeros(block.cells, dtype=np.int64))


def answers(counts: Counts, candidates: Candidates | Misses) -> NDArray[np.int64]:
    """(candidates,) exact integers: coefficients below 2^10 times fewer than 2^53 records fit int64."""
    tables = counts.count(list(dict.fromkeys(b.attributes for b in candidates.blocks)))
    return np.concatenate([b.operator.matvec(tables[b.attributes].reshape(-1)) for b in candidates.blocks])


def _joint(domain: Domain) -> list[tuple[str, ...]]:
    """Consecutive attributes, as many together as have at most 2^20 cells; those too large to count are left out."""
    sets: list[tuple[str, ...]] = [()]
    cells = 1
    for name, attribute in domain.attributes.items():
        if attribute.size > MAX_CELLS:
            continue
        cells *= attribute.size
        if cells <= _DIGESTED:
            sets[-1] = (*sets[-1], name)
        else:
            sets.append((name,))
            cells = attribute.size
    return sets


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TableHolder:
    """A table over a domain, for conversations: questions are `Candidates` of one row."""

    domain: Domain
    unit: PrivacyUnit
    counts: Callable[[], Counts]
    own: Callable[[Candidates], Candidates]

    def open(self) -> None:
        """Read the table, if that was not done before."""
        self.counts()

    def admit(self, question: object, terms: Terms) -> Candidates:
        """The question built anew. Raises PlanError or WorkloadError for what cannot be counted or moves too far."""
        own = self.own(question)  # type: ignore[arg-type]
        if len(own) != 1:
            raise PlanError(f"a conversation is asked one question at a time, not {len(own)}")
        sizes = {n: a.size for n, a in self.domain.attributes.items()}
        moves = score_sensitivity(own, sizes, self.unit)
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
        return own

    @property
    def fingerprint(self) -> str:
        """A hash of domain and privacy unit."""
        return fingerprint((self.domain, self.unit))

    def digest(self, key: bytes) -> str:
        """A keyed hash of joint tables of neighbouring attributes, as many together as have at most 2^20 cells.

        A change that leaves all of them as they are goes unnoticed.
        """
        found = hmac.new(key, b"table", hashlib.sha256)
        for table in self.counts().count(_joint(self.domain)).values():
            found.update(np.ascontiguousarray(table).data)
        return found.hexdigest()

    def exact(self, question: Candidates) -> int:
        """The exact answer to an admitted question."""
        return int(answers(self.counts(), question)[0])
