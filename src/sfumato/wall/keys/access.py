"""Access of conversations to records by key: exact answers to sets of keys, which never leave the wall."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sfumato.errors import PlanError
from sfumato.ground.codec import fingerprint
from sfumato.privacy.conversing import Terms
from sfumato.privacy.keyed import KeyQuestion
from sfumato.privacy.unit import PrivacyUnit
from sfumato.sketches import Keys
from sfumato.wall.keys.counts import KeyTable

__all__ = ["KeyAccess"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeyAccess:
    """Records by key, for conversations: questions are `KeyQuestion`s."""

    keys: Keys
    unit: PrivacyUnit
    table: Callable[[], KeyTable]
    own: Callable[[object], KeyQuestion]

    def open(self) -> None:
        """Read the table, if that was not done before."""
        self.table()

    def admit(self, question: object, terms: Terms) -> tuple[KeyQuestion, KeyQuestion]:
        """The question built anew, twice. Raises PlanError where it moves further than was paid for."""
        found, moves = self.own(question), self.unit.rows_per_person
        if moves > terms.epochs.sensitivity or (terms.answer is not None and moves > terms.move):
            raise PlanError(
                f"score and answer move by up to {moves} between neighbours; the conversation paid for less"
            )
        return found, found

    def exact(self, question: KeyQuestion) -> int:
        """How many records have one of the keys."""
        return int(self.table().counts_of(question.elements).sum())

    @property
    def fingerprint(self) -> str:
        """A hash of keys and privacy unit."""
        return fingerprint((self.keys, self.unit))

    def digest(self, key: bytes) -> str:
        """A keyed hash of the whole table."""
        return self.table().digest(key.hex())
