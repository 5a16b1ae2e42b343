"""What a session believes of the table: a hypothesis that follows from the steps so far and from nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.domain import Domain
from sfumato.estimate.multiplicative import Hypothesis
from sfumato.operators import Block
from sfumato.operators.base import FloatArray
from sfumato.privacy.conversing import Step

__all__ = ["Belief", "Measured", "span_of"]

_PASSES = 50  # over all that was measured: most models are still long before
_WORK = 2**25  # cells touched for one question, which somebody waits for: a second or so
_MOVES = 2**12  # moves for one question, for the same reason where cells are few


def span_of(block: Block) -> tuple[float, float]:
    """The least and the largest coefficient of a block of one row, 0 among them."""
    low = high = 1.0
    for factor in block.factors:
        row = factor.rows(0, 1)
        ends = [low * row.min(), low * row.max(), high * row.min(), high * row.max()]
        low, high = float(min(ends)), float(max(ends))
    return min(low, 0.0), max(high, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """A question with a noisy answer: its row over the cells of some axes, between `low` and `high`."""

    axes: tuple[int, ...]
    row: FloatArray
    low: float
    high: float
    answer: float

    def move(self, hypothesis: Hypothesis, least: float) -> bool:
        """One multiplicative step toward the answer, if the hypothesis is farther than `least` from it.

        The step is 4 d for the gap d in fractions of what the answer can be, which is all that Hoeffding's lemma can
        promise to be of use [HR10]. An answer that no table of this total has is taken to be the nearest that one has.
        """
        possible = min(max(self.answer, self.low * hypothesis.total), self.high * hypothesis.total)
        width = (self.high - self.low) * hypothesis.total
        gap = possible - float(hypothesis.answer(self.row[None], self.axes)[0])
        if not width or abs(gap) <= least:
            return False
        top = max(-self.low, self.high)
        hypothesis.update(self.row / top, 4 * gap * top / (width * (self.high - self.low)), self.axes)
        return True


class Belief:
    """The hypothesis after some steps. The same steps give the same cells bit for bit, on whatever way they came.

    `least` is the gap from which an earlier answer is fitted again: after each update, answers that the hypothesis has
    left by more are revisited, at most 50 times over, or as often as large domains allow. That is public work. `hard`
    counts the hard questions so far.
    """

    __slots__ = ("_domain", "_followed", "_least", "_measured", "hard", "hypothesis")

    def __init__(self, domain: Domain, total: float, least: float) -> None:
        self._domain, self._least, self._followed = domain, least, 0
        self._measured: list[Measured] = []
        self.hard = 0
        self.hypothesis = Hypothesis(domain.shape, total, domain.possible(domain.names))

    def follow(self, steps: Sequence[Step]) -> None:
        """Take in the steps that are new; `steps` begin with those taken in before."""
        for step in steps[self._followed :]:
            self.hard += step.above
            if step.answer is not None:
                self._learn(step)
        self._followed = max(self._followed, len(steps))

    def estimate(self, block: Block) -> int:
        """What the hypothesis answers to a block of one row, rounded."""
        axes = [self._domain.axis(a) for a in block.attributes]
        return round(float(self.hypothesis.answer(block.operator, axes)[0]))

    def _learn(self, step: Step) -> None:
        (block,) = step.question.blocks
        axes = tuple(self._domain.axis(a) for a in block.attributes)
        row = np.asarray(block.operator.rows(0, 1)[0], dtype=np.float64)
        new = Measured(axes, row, *span_of(block), float(step.answer or 0))
        self._measured.append(new)
        new.move(self.hypothesis, 0.0)
        count = len(self._measured)
        passes = min(_PASSES, _WORK // (self._domain.size * count), _MOVES // count)
        for _ in range(passes):
            moved = [m.move(self.hypothesis, self._least) for m in self._measured]
            if not any(moved):
                return
