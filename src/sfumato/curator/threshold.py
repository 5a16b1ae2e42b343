"""A session of `above`: it holds the noisy threshold and what is left, and gives out single bits."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NoReturn

from sfumato.errors import BudgetError, NotWritten, PlanError
from sfumato.privacy.selection import Candidates, Epochs, SparseVector, score_sensitivity
from sfumato.privacy.unit import PrivacyUnit

__all__ = ["Threshold"]


class Threshold:
    """Questions one by one, under a budget debited when it was opened; made by `Curator.above`.

    It lives in one process: a forked copy refuses, and it can be neither copied nor pickled, for two copies would
    give out twice the answers with one noise. `epochs` and `remaining` are public and all that may be stored: a
    session that is opened again starts a new epoch, so the one it was in counts as spent.
    """

    __slots__ = ("_check", "_lock", "_process", "_score", "_sizes", "_unit", "_vector", "epochs")

    def __init__(
        self,
        epochs: Epochs,
        vector: SparseVector,
        unit: PrivacyUnit,
        sizes: Mapping[str, int],
        check: Callable[[Candidates], Candidates],
        score: Callable[[Candidates], list[int]],
    ) -> None:
        self.epochs, self._vector, self._unit, self._sizes = epochs, vector, unit, dict(sizes)
        self._check, self._score = check, score
        self._lock, self._process = threading.Lock(), os.getpid()

    @property
    def remaining(self) -> int:
        """Positive answers left."""
        return self._vector.remaining

    def ask(self, question: Candidates) -> bool:
        """Whether the score of one candidate, with noise, is at least a noisy zero: its penalty is the threshold.

        Refused without a look: PlanError or WorkloadError for more than one candidate, for what could not be
        counted and for scores that move further than the session paid for; BudgetExceeded once the last positive
        was given; BudgetError in another process. NotWritten: answering failed, and the session is closed for good.
        """
        if os.getpid() != self._process:
            raise BudgetError("this session belongs to the process that opened it; a copy would spend twice")
        question = self._check(question)
        if len(question) != 1:
            raise PlanError(f"a session is asked one question at a time, not {len(question)}")
        moves = score_sensitivity(question, self._sizes, self._unit)
        if moves > self.epochs.sensitivity:
            raise PlanError(f"the score moves by up to {moves}; the session was opened for {self.epochs.sensitivity}")
        with self._lock:
            if not self._vector.remaining:
                self._vector.above(0)  # raises
            found: bool | None = None
            try:
                with suppress(Exception):  # what failed, and its text, may depend on the data
                    found = self._vector.above(*self._score(question))
            finally:
                if found is None:
                    self._vector.close()
        if found is None:
            raise NotWritten("answering failed, for want of memory or because the table is gone; the session is closed")
        return found

    def __reduce__(self) -> NoReturn:
        raise BudgetError("a session holds secret noise: it can be neither copied nor stored; keep `remaining`")

    def __repr__(self) -> str:
        return f"<Threshold: {self.remaining} of {self.epochs.count} positive answers left>"
