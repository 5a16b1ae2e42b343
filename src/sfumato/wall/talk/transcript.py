"""What has been said in a conversation, with the secret noise it goes on with: kept in memory, or in a file."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from sfumato.privacy.conversing import SparseVector, Step, Terms

__all__ = ["MemoryTranscript", "Standing", "Transcript", "Turn"]


@dataclass(frozen=True, slots=True, repr=False)
class Standing:
    """The steps so far, and the sparse vector that answers the next question. Its noise is secret."""

    steps: tuple[Step, ...]
    vector: SparseVector


class Turn(Protocol):
    """The sole right to add one step to a transcript."""

    @property
    def standing(self) -> Standing:
        """What was said before."""
        ...

    def write(self, step: Step, vector: SparseVector) -> None:
        """Add a step; it is kept for good once the turn has ended, and not at all if the turn fails."""
        ...

    def close(self) -> None:
        """End the conversation for good instead."""
        ...


class Transcript(Protocol):
    """Where a conversation is kept."""

    @property
    def terms(self) -> Terms: ...

    @property
    def about(self) -> Any: ...

    @property
    def anchor(self) -> str | None:
        """The number of the last line and a hash over all of them; None in memory."""
        ...

    def standing(self) -> Standing:
        """What was said so far."""
        ...

    def turn(self) -> AbstractContextManager[Turn]:
        """One turn at a time, of all threads and processes."""
        ...


class _MemoryTurn:
    __slots__ = ("next", "standing")

    def __init__(self, standing: Standing) -> None:
        self.standing, self.next = standing, standing

    def write(self, step: Step, vector: SparseVector) -> None:
        self.next = Standing((*self.standing.steps, step), vector)

    def close(self) -> None:
        self.next = replace(self.standing, vector=replace(self.standing.vector, remaining=0))


class MemoryTranscript:
    """A transcript that ends with this process."""

    __slots__ = ("_lock", "_standing", "about", "terms")

    anchor: str | None = None

    def __init__(self, vector: SparseVector, about: Any) -> None:
        self.terms, self.about = vector.terms, about
        self._standing, self._lock = Standing((), vector), threading.Lock()

    def standing(self) -> Standing:
        """What was said so far."""
        return self._standing

    @contextmanager
    def turn(self) -> Generator[Turn]:
        """One turn at a time, of all threads."""
        with self._lock:
            made = _MemoryTurn(self._standing)
            yield made
            self._standing = made.next
