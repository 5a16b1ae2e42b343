"""Plans for universes of keys too large to list."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from sfumato._util.codec import storable
from sfumato._util.description import Description, Facts
from sfumato._util.frames import Frame
from sfumato.errors import PlanError
from sfumato.plans.planned import Planned, event_price_text, protection_lines
from sfumato.privacy.accounting import ApproxEvent, Event
from sfumato.privacy.budget import Budget
from sfumato.privacy.keyed import Stability, costs_at_most
from sfumato.privacy.noise import DiscreteLaplace, NoiseLaw
from sfumato.privacy.unit import PrivacyUnit
from sfumato.sketches import KeyMap, Keys
from sfumato.sketches.predict import gaussian_residual_rate, residual_rate


@storable
@dataclass(frozen=True, slots=True)
class KeyCandidate:
    """One mechanism considered: its predicted error for the planned queries, or why it does not apply."""

    mechanism: str
    error: float | None
    note: str = ""


@storable
@dataclass(frozen=True, eq=False, repr=False)
class KeyPlan(Planned):
    """What will be measured of a universe of keys, its noise, its price, and the errors that follow. Nothing private.

    The map's hash is public randomness, drawn with the plan and so before any data.

    Args:
        keys: Which keys there are.
        budget: The budget that the release keeps.
        unit: Whose privacy is protected.
        mechanism: The name of the mechanism.
        map: What is measured: how keys are mapped to noisy integers.
        noise: The law of the noise.
        price: What a ledger is charged.
        stability: How heavy keys are shown by name, or None where none are.
        records: The public number of records that was given, or None.
        size: The usual number of keys of a query, at which candidates were compared.
        considered: The mechanisms that were considered.
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

    def agree(self) -> None:
        super().agree()
        if not costs_at_most(self.map, self.noise, self.stability, self.unit, self.price):
            raise PlanError("its map, noise and threshold cost more than its price")

    @property
    def noise_variance(self) -> float:
        """The noise's share in the variance of an answer, per key of weight 1."""
        return self.noise.variance * self.map.squared_weights()

    def error(self, size: float, squared_norm: float | None = None) -> float:
        """The predicted root mean squared error of a query, in records, over noise and hash.

        Args:
            size: The number of keys of the query, each of weight 1; with weights the sum of their squares.
            squared_norm: The sum of squared counts of the keys that are sketched; None takes that of `records` records
                whose keys all differ.

        Returns:
            The error.

        Raises:
            PlanError: The size is not allowed, or the error depends on the number of records, which is not known.
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
        """The predicted root mean squared error of a query for the worst that `records` records can be.

        That is one key that holds all of them, or, where heavy keys are shown, keys that are all just too light to be
        shown.

        Args:
            size: The number of keys of the query, each of weight 1.

        Returns:
            The error.

        Raises:
            PlanError: The size is not allowed, or the error depends on the number of records, which is not known.
        """
        if self.records is None or not self.map.shrinkage:
            return self.error(size)
        if self.stability is None:
            return self.error(size, float(self.records) ** 2)
        law, least = self.stability.noise, self.stability.threshold
        if isinstance(law, DiscreteLaplace):
            rate = residual_rate(float(law.scale), least)
        else:
            rate = gaussian_residual_rate(float(law.sigma), least)
        return self.error(size, self.records * rate)

    @property
    def candidates(self) -> Frame:
        """Every mechanism considered, with its predicted error at `size` keys."""
        return Frame.of(KeyCandidate, self.considered)

    decides = ("keys", "budget", "unit", "mechanism", "map", "noise", "price", "stability")

    holds = Planned.holds | {
        "keys": Keys,
        "map": KeyMap,
        "noise": NoiseLaw,
        "stability": Stability | None,
        "records": int | None,
    }

    @property
    def honest(self) -> bool:
        if not isinstance(self.price, ApproxEvent):
            return super().honest
        b, price = self.budget, self.price
        return b.delta is not None and b.kind == "approx" and (price.epsilon <= b.parameter) and price.delta <= b.delta

    def describe(self) -> Description:
        return Description(f"Plan: {self.mechanism} over {self.keys.describe()}", [Facts(tuple(self._lines()))])

    def _lines(self) -> Iterator[tuple[str, str]]:
        deviation = f"{law_name(self.noise)} noise of standard deviation {self.noise.variance**0.5:.4g}"
        yield from protection_lines(self.unit, self.price)
        yield "price", event_price_text(self.price)
        yield "measures", f"{self.map.rows:,} integers, {deviation}"
        if self.stability is not None:
            s = self.stability
            shown = (
                f"noisy count (deviation {s.noise.variance**0.5:.4g}) reaches {s.threshold}, delta {float(s.delta):.3g}"
            )
            yield "shows", f"keys whose {shown}; the sketch holds the rest"
        try:
            sizes = (1, 16, 256)
            errors = ", ".join(f"{self.error(m):.3g} ({m})" for m in sizes)
            yield "error", f"{errors}: rmse in records, of queries of so many keys"
            if self.map.shrinkage:
                yield "at worst", ", ".join(f"{self.worst_error(m):.3g} ({m})" for m in sizes)
        except PlanError:
            yield "error", "known with records=, a public approximate number of records"
        for c in self.considered:
            yield "considered", f"{c.mechanism}: {c.note if c.error is None else f'{c.error:.4g} {c.note}'.strip()}"

    def brief(self) -> str:
        return f"{self.mechanism}: {self.map.rows:,} integers"


def law_name(noise: NoiseLaw) -> str:
    """The law of noise on counts by key."""
    return "discrete Laplace" if isinstance(noise, DiscreteLaplace) else "rounded Gaussian"
