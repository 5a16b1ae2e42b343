"""What a session hands out for one question."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SessionAnswer"]


@dataclass(frozen=True, slots=True)
class SessionAnswer:
    """One answer, in records, and how it was come by.

    how: "hypothesis" (easy: what was known already is near enough), "measured" (hard: measured with noise, one
    update), "histogram" (summed from cells measured at the opening), or "exhausted" (from a hypothesis that nothing
    vouches for).
    guaranteed: whether [low, high] is promised to hold the exact answer, at the session's confidence.
    bound: the half-width of that interval; None where there is none. standard_error: of a measured or summed answer.
    """

    value: float
    how: str
    guaranteed: bool
    bound: float | None
    standard_error: float | None = None
    label: str = ""

    @property
    def low(self) -> float | None:
        """The lower end of the interval, or None."""
        return None if self.bound is None else self.value - self.bound

    @property
    def high(self) -> float | None:
        """The upper end of the interval, or None."""
        return None if self.bound is None else self.value + self.bound

    def __str__(self) -> str:
        if self.bound is None:
            return f"{self.value:,.6g} ({self.how}, no guarantee)"
        promise = "" if self.guaranteed else ", no guarantee"
        return f"{self.value:,.6g} ± {self.bound:,.4g} ({self.how}{promise})"
