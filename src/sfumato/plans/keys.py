"""Plans for universes of keys too large to list, and what crosses the wall for them."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from os import PathLike

from sfumato.errors import PlanError
from sfumato.ground.codec import fingerprint, storable
from sfumato.ground.documents import read_document, write_document
from sfumato.ground.frames import Frame
from sfumato.privacy.accountant import ApproxEvent, Event, GaussianEvent, PureEvent
from sfumato.privacy.amounts import readable
from sfumato.privacy.budget import Budget
from sfumato.privacy.keyed import Stability
from sfumato.privacy.noise import DiscreteLaplace, NoiseLaw
from sfumato.privacy.unit import PrivacyUnit
from sfumato.sketches import KeyMap, Keys
from sfumato.sketches.predict import residual_rate

__all__ = ["KeyCandidate", "KeyPlan", "load_key_plan"]


@storable
@dataclass(frozen=True, slots=True)
class KeyCandidate:
    """One mechanism considered: its predicted error for the planned queries, or why it does not apply."""

    mechanism: str
    error: float | None
    note: str = ""


@storable
@dataclass(frozen=True, eq=False, repr=False)
class KeyPlan:
    """What will be measured of a universe of keys, its noise, its price, and the errors that follow. Nothing private.

    The map's hash is public randomness, drawn with the plan and so before any data. `records` is a public
    (approximate) number of records; `size` the typical number of keys of a query that candidates were compared at.
    """

    keys: Keys
    budget: Budget
    unit: PrivacyUnit
    mechanism: str
    map: KeyMap
    noise: NoiseLaw
    price: Event
    stability: Stability | None = None
    records: int | None = None
    size: float = 1.0
    considered: tuple[KeyCandidate, ...] = field(default=())

    @property
    def noise_variance(self) -> float:
        """The noise's share in the variance of an answer, per key of weight 1."""
        return self.noise.variance * self.map.squared_weights()

    def error(self, size: float, squared_norm: float | None = None) -> float:
        """Predicted root mean squared error, in records, of a query of `size` keys of weight 1.

        Over noise and hash. `squared_norm` is the sum of squared counts of the keys that are sketched; by default that
        of `records` records whose keys all differ. (For weights, `size` is the sum of their squares.)
        """
        if isinstance(size, bool) or not isinstance(size, (int, float)) or not 0 <= size < math.inf:
            raise PlanError(f"the size of a query is its number of keys, not {size!r}")
        shrinkage = self.map.shrinkage
        if not shrinkage:
            return math.sqrt(size * self.noise_variance)
        norm = squared_norm if squared_norm is not None else self.records
        if norm is None:
            raise PlanError(
                "the error of a sketch depends on the records: plan with records=, a public approximate number, "
                "or give squared_norm=, the sum of squared counts"
            )
        return math.sqrt(size * (self.noise_variance + norm / shrinkage))

    def worst_error(self, size: float) -> float:
        """The same for the worst that `records` records can be: one key holds all of them, or, where heavy keys are
        shown, all keys are just too light to be shown."""
        if self.records is None or not self.map.shrinkage:
            return self.error(size)
        if self.stability is None:
            return self.error(size, float(self.records) ** 2)
        rate = residual_rate(float(self.stability.noise.scale), self.stability.threshold)
        return self.error(size, self.records * rate)

    @property
    def candidates(self) -> Frame:
        """Every mechanism considered, with its predicted error at `size` keys."""
        return Frame(
            {
                "mechanism": [c.mechanism for c in self.considered],
                "error": [c.error for c in self.considered],
                "note": [c.note for c in self.considered],
            }
        )

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all that decides what is measured and released."""
        parts = (self.keys, self.budget, self.unit, self.mechanism, self.map, self.noise, self.price, self.stability)
        return fingerprint(parts)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan to one file (no pickle)."""
        write_document(path, self)

    def explain(self) -> str:
        """The plan in words."""
        law = "discrete Laplace" if isinstance(self.noise, DiscreteLaplace) else "rounded Gaussian"
        lines = [
            f"{self.mechanism} over {self.keys.describe()}",
            f"protects   {self.unit.describe()}",
            f"price      {_price(self.price)}",
            f"measures   {self.map.rows:,} integers, {law} noise of standard deviation {self.noise.variance**0.5:.4g}",
        ]
        if self.stability is not None:
            s = self.stability
            shown = f"noisy count (scale {float(s.noise.scale):.4g}) reaches {s.threshold}, delta {float(s.delta):.3g}"
            lines.append(f"shows      keys whose {shown}; the sketch holds the rest")
        try:
            sizes = (1, 16, 256)
            errors = ", ".join(f"{self.error(m):.3g} ({m})" for m in sizes)
            lines.append(f"error      {errors}: rmse in records, of queries of so many keys")
            if self.map.shrinkage:
                lines.append(f"at worst   {', '.join(f'{self.worst_error(m):.3g} ({m})' for m in sizes)}")
        except PlanError:
            lines.append("error      known with records=, a public approximate number of records")
        for c in self.considered:
            lines.append(
                f"considered {c.mechanism}: {c.note if c.error is None else f'{c.error:.4g} {c.note}'.strip()}"
            )
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.explain()

    def __repr__(self) -> str:
        return f"<KeyPlan {self.mechanism}: {self.map.rows:,} integers>"


def load_key_plan(path: str | PathLike[str]) -> KeyPlan:
    """Read a plan that `KeyPlan.save` wrote."""
    return read_document(path, KeyPlan)


def _price(event: Event) -> str:
    if isinstance(event, ApproxEvent):
        return f"epsilon {readable(event.epsilon)}, delta {readable(event.delta)}"
    if isinstance(event, GaussianEvent):
        return f"mu^2 {readable(event.mu_squared)}"
    return f"epsilon {readable(event.epsilon)}" if isinstance(event, PureEvent) else str(event)
