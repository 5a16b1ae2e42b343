"""A plan: every decision before the data, with the error it will have and how far that is from the best."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import numpy as np

from sfumato.codec import fingerprint, read_document, storable, write_document
from sfumato.errors import PlanError
from sfumato.explain import explain_plan
from sfumato.frames import Frame
from sfumato.intervals import check_confidence, margins
from sfumato.operators.base import FloatArray
from sfumato.privacy.accountant import Event, events_export
from sfumato.privacy.budget import Budget
from sfumato.privacy.noise import DiscreteLaplace, NoiseLaw
from sfumato.privacy.sensitivity import Sensitivity
from sfumato.privacy.unit import PrivacyUnit
from sfumato.strategies.base import Strategy
from sfumato.strategies.calibrate import NoiseName, calibrate
from sfumato.workloads import RECORDS, QueryBlock, Workload

__all__ = ["Candidate", "Design", "Plan", "Problem", "load_plan", "price_design"]

_MAX_ERRORS = 200_000_000


@dataclass(frozen=True)
class Problem:
    """What a mechanism is asked to plan for; all of it public."""

    workload: Workload
    budget: Budget
    unit: PrivacyUnit
    noise: NoiseName
    objective: str = "mean"
    records: int | None = None
    unit_lattice: bool = False

    @functools.cached_property
    def sizes(self) -> dict[str, int]:
        """Number of cells of every attribute."""
        return {n: a.size for n, a in self.workload.domain.attributes.items()}

    @property
    def total_weight(self) -> float:
        """Weights of all queries: by how much the sum of weighted variances exceeds their mean."""
        return sum(self.objective_weight(q) * q.rows for q in self.workload.blocks)

    def objective_weight(self, query: QueryBlock) -> float:
        """The weight of a block's squared errors; sums are measured in their largest value, so that units agree."""
        weight = float(query.weight)
        return weight if query.unit == RECORDS else weight / max(query.block.operator.max_abs, 1e-300) ** 2


@dataclass(frozen=True, slots=True)
class Design:
    """A way to answer a workload before it is scaled to a budget.

    `build(s)` gives the integer strategy with coefficients multiplied by s; `fine` is the s from which
    rounding does no harm; `bound` a proved lower bound at noise multiplier 1 for any unbiased
    reconstruction from additive Gaussian noise, if one is known: on sqrt(sum of weighted variances) for
    the objective "mean", on sqrt(largest weighted variance) for "max".
    """

    mechanism: str
    build: Callable[[float], Strategy]
    fine: float
    bound: float | None = None
    notes: tuple[str, ...] = ()


@storable
@dataclass(frozen=True, slots=True)
class Candidate:
    """One line of the comparison: what was considered, what it would give, or why it does not apply."""

    mechanism: str
    strategy: str
    rmse: float | None
    max_standard_error: float | None
    note: str = ""


@storable
@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """What will be measured, with which noise, at what price, and the errors that follow. Holds nothing private."""

    workload: Workload
    budget: Budget
    unit: PrivacyUnit
    mechanism: str
    objective: str
    strategy: Strategy
    noise: NoiseLaw
    price: Event
    sensitivity: Sensitivity
    bound: float | None = None
    records: int | None = None
    notes: tuple[str, ...] = ()
    considered: tuple[Candidate, ...] = field(default=())

    # -- predicted errors --------------------------------------------------------------------------

    @functools.cached_property
    def powers(self) -> tuple[FloatArray, ...]:
        """Per block: sums of squares of the reconstruction's rows, one axis per factor (length 1 if constant)."""
        return tuple(self.strategy.row_powers(q.block, 2) for q in self.workload.blocks)

    def block_variances(self) -> list[tuple[QueryBlock, FloatArray]]:
        """Per block the predicted variances, compact as in `powers`."""
        return [(q, p * self.noise.variance) for q, p in zip(self.workload.blocks, self.powers, strict=True)]

    def _mean_variance(self, only: Callable[[QueryBlock], bool]) -> float:
        chosen = [(q, v) for q, v in self.block_variances() if only(q)]
        return sum(float(v.mean()) * q.rows for q, v in chosen) / max(1, sum(q.rows for q, _ in chosen))

    @functools.cached_property
    def main_unit(self) -> str:
        """The unit of `rmse`: records, unless no query counts records."""
        units = self.workload.units
        return RECORDS if RECORDS in units else units[0]

    @functools.cached_property
    def rmse(self) -> float:
        """Root mean squared error over all queries in records (over all queries, if none counts records)."""
        return math.sqrt(self._mean_variance(lambda q: q.unit == self.main_unit))

    @functools.cached_property
    def max_standard_error(self) -> float:
        """The largest standard error of a query (of those that count records, where there are any)."""
        chosen = [float(v.max()) for q, v in self.block_variances() if q.unit == self.main_unit]
        return math.sqrt(max(chosen))

    def standard_errors(self, part: str | None = None) -> FloatArray:
        """(k,) predicted standard errors of all queries in order, or of one part."""
        chosen = [(q, v) for q, v in self.block_variances() if part in (None, q.part)]
        if not chosen:
            raise PlanError(f"no part is called {part!r}; there are {', '.join(self.workload.parts)}")
        if sum(q.rows for q, _ in chosen) > _MAX_ERRORS:
            raise PlanError("too many queries to list; take plan.block_variances(), which is compact")
        return np.concatenate([np.sqrt(expand(v, q)) for q, v in chosen])

    @property
    def objective_value(self) -> float:
        """What `lower_bound` bounds: the root of the weighted mean variance, or of the largest weighted variance.

        Equal to `rmse` (objective "mean") or `max_standard_error` ("max") where all weights are 1.
        """
        problem = Problem(self.workload, self.budget, self.unit, "gaussian")
        weighted = [(problem.objective_weight(q), v, q.rows) for q, v in self.block_variances()]
        if self.objective == "max":
            return math.sqrt(max(w * float(v.max()) for w, v, _ in weighted))
        return math.sqrt(sum(w * float(v.mean()) * n for w, v, n in weighted) / problem.total_weight)

    @property
    def lower_bound(self) -> float | None:
        """A proved bound on `objective_value`, or None where none is known.

        No unbiased linear reconstruction from additive Gaussian noise of any covariance does better at
        this budget. There is none for Laplace noise or for a coarse lattice.
        """
        return self.bound

    def block_margins(self, confidence: float) -> list[tuple[QueryBlock, FloatArray]]:
        """Per block the half-widths of pointwise intervals, compact as in `powers`."""
        out: list[tuple[QueryBlock, FloatArray]] = []
        for q, second in zip(self.workload.blocks, self.powers, strict=True):
            out.append((q, margins(confidence, second, self.fourth_powers(q), self.noise)))
        return out

    def fourth_powers(self, query: QueryBlock) -> FloatArray | None:
        """Sums of fourth powers of the reconstruction's rows where the noise's shape matters, else None."""
        if not isinstance(self.noise, DiscreteLaplace):
            return None
        return self.strategy.row_powers(query.block, 4)

    def errors(self, confidence: float = 0.95) -> Frame:
        """One row per table or family of queries: cells, rmse, worst standard error, margin at that confidence."""
        level = check_confidence(confidence)
        rows: list[dict[str, Any]] = []
        for (q, v), (_, m) in zip(self.block_variances(), self.block_margins(level), strict=True):
            rows.append(
                {
                    "part": q.part,
                    "attributes": ", ".join(q.attributes) or "(total)",
                    "cells": q.rows,
                    "unit": q.unit,
                    "rmse": math.sqrt(float(v.mean())),
                    "worst_standard_error": math.sqrt(float(v.max())),
                    "margin": float(m.max()),
                }
            )
        return Frame({name: [r[name] for r in rows] for name in rows[0]})

    def smallest_count(self, cv: float = 0.2) -> Frame:
        """Per table: the smallest count whose standard error is at most `cv` of it; None for sums of other units."""
        if isinstance(cv, bool) or not isinstance(cv, (int, float)) or not 0 < cv < math.inf:
            raise PlanError(f"cv must be a positive share such as 0.2, not {cv!r}")
        table = self.errors()
        errors = zip(table["worst_standard_error"], table["unit"], strict=True)
        counts = [math.ceil(e / cv) if unit == RECORDS else None for e, unit in errors]
        return Frame({"part": table["part"], "attributes": table["attributes"], "smallest_count": counts})

    @property
    def candidates(self) -> Frame:
        """Every mechanism considered: predicted rmse, largest standard error, and why it was not chosen."""
        return Frame(
            {
                "mechanism": [c.mechanism for c in self.considered],
                "strategy": [c.strategy for c in self.considered],
                "rmse": [c.rmse for c in self.considered],
                "max_standard_error": [c.max_standard_error for c in self.considered],
                "note": [c.note for c in self.considered],
            }
        )

    @functools.cached_property
    def bias_bound(self) -> float:
        """Largest bias of an answer per record, from rounding real numbers to integers; 0 where there is none."""
        return max(self.strategy.bias_bound(q.block) for q in self.workload.blocks)

    @functools.cached_property
    def record_limit(self) -> int:
        """The largest number of records for which the integer arithmetic cannot wrap."""
        spread = math.ceil(64 * math.sqrt(self.noise.variance))
        return max(0, (2**62 - spread) // max(1, self.strategy.max_abs))

    # -- identity and files ---------------------------------------------------------------------------

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all that decides what is measured and released."""
        return fingerprint(
            (self.workload, self.budget, self.unit, self.mechanism, self.strategy, self.noise, self.price)
        )

    def facts(self) -> dict[str, Any]:
        """The public facts as plain JSON values: what is protected, measured and predicted, and hashes of it all."""
        noise, found = self.noise, self.sensitivity
        return {
            "privacy": {
                "neighbours": self.unit.neighbours.value,
                "person": self.unit.person,
                "rows_per_person": self.unit.rows_per_person,
                "unit": self.unit.describe(),
                "budget": self.budget.to_json(),
                "statement": str(self.budget),
                "events": list(events_export([self.price])),
            },
            "mechanism": {
                "name": self.mechanism,
                "strategy": self.strategy.summary,
                "noise": {
                    "law": type(noise).__name__,
                    "scale": str(getattr(noise, "sigma", None) or getattr(noise, "scale", None)),
                },
                "sensitivity": {
                    "norm": "L1" if found.power == 1 else "L2 squared",
                    "value": str(found.value),
                    "exact": found.exact,
                },
                "record_limit": self.record_limit,
            },
            "error": {
                "rmse": self.rmse,
                "max_standard_error": self.max_standard_error,
                "objective": self.objective,
                "objective_value": self.objective_value,
                "lower_bound": self.lower_bound,
                "bias_bound_per_record": self.bias_bound,
                "unit": self.main_unit,
            },
            "hashes": {
                "plan": self.fingerprint,
                "workload": fingerprint(self.workload),
                "strategy": fingerprint(self.strategy),
                "domain": fingerprint(self.workload.domain),
            },
        }

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan to one file (no pickle)."""
        write_document(path, self)

    def explain(self) -> str:
        """The plan in words."""
        return explain_plan(self)

    def __str__(self) -> str:
        return self.explain()

    def __repr__(self) -> str:
        return f"<Plan {self.mechanism}: {len(self.workload):,} queries, rmse {self.rmse:.4g}>"

    def _repr_html_(self) -> str:
        import html  # noqa: PLC0415

        return f"<pre>{html.escape(self.explain())}</pre>"


def expand(values: FloatArray, query: QueryBlock) -> FloatArray:
    """A compact array of a block, spread to one value per query."""
    shape = tuple(f.shape[0] for f in query.block.factors)
    return np.broadcast_to(values, shape).reshape(-1)


def load_plan(path: str | PathLike[str]) -> Plan:
    """Read a plan that `Plan.save` wrote."""
    return read_document(path, Plan)


def price_design(design: Design, problem: Problem) -> Plan:
    """Scale a design to the budget and predict its errors."""
    done = calibrate(
        design.build,
        design.fine,
        problem.sizes,
        problem.unit,
        problem.budget,
        problem.noise,
        unit_lattice=problem.unit_lattice,
    )
    bound = None
    if design.bound is not None and problem.noise == "gaussian" and not problem.unit_lattice:
        weights = problem.total_weight if problem.objective == "mean" else 1.0
        # sensitivity at c rows a person is c times as large, for every strategy alike
        multiplier = problem.unit.rows_per_person / math.sqrt(float(problem.budget.mu_squared))
        bound = design.bound * multiplier / math.sqrt(weights) * (1 - 1e-12)
    return Plan(
        problem.workload,
        problem.budget,
        problem.unit,
        design.mechanism,
        problem.objective,
        done.strategy,
        done.noise,
        done.price,
        done.sensitivity,
        bound,
        problem.records,
        design.notes,
    )
