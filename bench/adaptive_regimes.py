"""Adaptive beside what is simpler, over regimes of noise: pairs and triples of public and generated tables.

    OPENBLAS_NUM_THREADS=1 python bench/adaptive_regimes.py [--tables adult,diamonds,...] [--orders 2,3] [--draws 20]
        [--epsilons .1,1,10] [--alone] [--records] [--looks 2]

"adult", "diamonds", "labsup" and "randhie" are those of bench/ladder.py, five attributes each. Generated, eight
attributes of 2 to 12 cells, 30,000 records (generator 54): "tree", each attribute a noisy function of an earlier one;
"mixture" of four kinds of people; "independent"; "million" is five attributes of three kinds of people, 1.4 million.
delta 1e-9, add-remove. All tables of the order are asked. Each draw puts the plan's noise (generator 2026, number of
the draw) on the exact counts. Mean over tables of sum |answer - truth| / n: "raw" the plan of least squared error over
cells, "projected" onto tables that agree, "denoised" by models of pairs; "alone" one-way tables with the whole budget
as if independent; "pairs" (order 3) what adaptive's pairs alone imply; "records" as many as were released. ratio: over
the best of raw, projected, denoised and pairs; and over alone. CPU seconds of one denoising. With two
looks "adaptive" is a first release with .3 of the budget, a second one after it with the rest, both pooled, and "saw"
the share of the draws in which the first saw pairs depend.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from ladder import NOWHERE, Counts, columns
from numpy.typing import NDArray

import sfumato as sf
from sfumato.measurements import Measurement
from sfumato.postprocess.cones import project_onto_simplex

FIRST = Fraction(3, 10)  # of the budget, for the first of two looks

Held = dict[str, NDArray[np.int64]]
Floats = NDArray[np.float64]


def tree(random: np.random.Generator, sizes: list[int], n: int) -> Iterator[NDArray[np.int64]]:
    above: list[NDArray[np.int64]] = []
    for size in sizes:
        shares = random.dirichlet(np.full(size, 0.7))
        own = random.choice(size, n, p=shares)
        if above:
            parent = above[int(random.integers(len(above)))]
            told = random.integers(0, size, int(parent.max()) + 1)[parent]
            own = np.where(random.random(n) < 0.5, told, own)
        above.append(own.astype(np.int64))
        yield above[-1]


def mixture(random: np.random.Generator, sizes: list[int], n: int, kinds: int) -> Iterator[NDArray[np.int64]]:
    kind = random.integers(0, kinds, n)
    for size in sizes:
        shares = np.array([random.dirichlet(np.full(size, 0.5)) for _ in range(kinds)])
        yield (random.random(n)[:, None] > np.cumsum(shares, axis=1)[kind][:, :-1]).sum(axis=1).astype(np.int64)


def held_of(table: str) -> Held | None:
    random = np.random.default_rng(54)
    sizes = [2, 3, 4, 5, 6, 8, 10, 12]
    if table == "tree":
        made = list(tree(random, sizes, 30_000))
    elif table in ("mixture", "independent"):
        made = list(mixture(random, sizes, 30_000, 4 if table == "mixture" else 1))
    elif table == "million":
        made = list(mixture(random, [8, 6, 7, 5, 4], 1_400_000, 3))
    else:
        found = columns(table)
        return None if found is None else found[0]
    return {f"a{i}": v for i, v in enumerate(made)}


def noised(plan: sf.Plan, exact: list[NDArray[np.int64]], rng: np.random.Generator, anchor: str) -> sf.Release:
    deviation = math.sqrt(plan.noise.variance)
    values = tuple(e + np.rint(rng.normal(0, deviation, len(e))).astype(np.int64) for e in exact)
    measured = Measurement(tuple(plan.strategy.blocks), values, plan.noise, None)
    return sf.Release(plan, measured, replace(NOWHERE, anchor=anchor, snapshot="bench"))


class Case:
    """A table, the plans that are compared, and their errors."""

    def __init__(self, held: Held, order: int, epsilon: str) -> None:
        self.held, self.order, self.n = held, order, len(next(iter(held.values())))
        some = {k: sf.Integers(0, int(v.max()), outside="clamp", missing="drop") for k, v in held.items()}
        self.domain, self.budget = sf.Domain(some), sf.approx(epsilon, "1e-9")
        self.works = {k: sf.marginals(self.domain, order=k) for k in range(1, order + 1)}
        self.counts = Counts(self.works[order], held)
        self.truth = [self.counts.of(q.attributes) for q in self.works[order].blocks]
        self.exact: dict[int, list[NDArray[np.int64]]] = {}

    @functools.cached_property
    def adaptive(self) -> sf.Plan:
        return self._plan(self.order, "adaptive")

    def _plan(self, order: int, mechanism: str) -> sf.Plan:
        more: dict[str, Any] = {} if mechanism == "adaptive" else {"objective": "cells"}
        made = sf.plan(
            self.works[order], self.budget, neighbours="add-remove", mechanism=mechanism, records=self.n, **more
        )
        assert isinstance(made, sf.Plan)
        return made

    @functools.cache  # noqa: B019  (a case lives as long as the bench)
    def plan(self, order: int, mechanism: str) -> sf.Plan:
        return self._plan(order, mechanism)

    def released(self, plan: sf.Plan, draw: int) -> sf.Release:
        if id(plan) not in self.exact:
            self.exact[id(plan)] = list(self.counts.measured(plan))
        return noised(plan, self.exact[id(plan)], np.random.default_rng([2026, draw]), "once")

    def twice(self, draw: int) -> tuple[sf.Release, bool]:
        """Two looks, pooled and denoised, and whether the first saw pairs depend."""
        rho, first = self.budget.mu_squared / 2, self._first(draw)
        after = sf.mechanisms.adaptive(after=first)
        more: dict[str, Any] = {"neighbours": "add-remove", "records": self.n}
        plan = sf.plan(self.works[self.order], sf.zcdp(rho * (1 - FIRST)), mechanism=after, **more)
        second = noised(plan, list(self.counts.measured(plan)), np.random.default_rng([2026, draw, 3]), "second")
        return second.project("mixtures", earlier=first), any("pairs depend" in n for n in plan.notes)

    @functools.cache  # noqa: B019  (likewise)
    def _first(self, draw: int) -> sf.Release:
        """The first of two looks, denoised."""
        more: dict[str, Any] = {"neighbours": "add-remove", "records": self.n}
        rho, work = self.budget.mu_squared / 2, self.works[self.order]
        plan = sf.plan(work, sf.zcdp(rho * FIRST), mechanism="adaptive", **more)
        rng = np.random.default_rng([2026, draw, 2])
        return noised(plan, list(self.counts.measured(plan)), rng, "first").project("mixtures")

    def error(self, release: sf.Release) -> float:
        tables = [release.answer_block(q.block) for q in self.works[self.order].blocks]
        return self.away([t.reshape(e.shape) for t, e in zip(tables, self.truth, strict=True)])

    def away(self, tables: list[Floats]) -> float:
        return float(np.mean([np.abs(t - e).sum() for t, e in zip(tables, self.truth, strict=True)])) / self.n

    def alone(self, draw: int) -> float:
        found = self.released(self.plan(1, "marginals"), draw)
        tables = {a: found.table(a).values for a in self.domain.names}
        total = max(float(np.mean([t.sum() for t in tables.values()])), 1.0)
        ones = {a: project_onto_simplex(t, total) / total for a, t in tables.items()}
        blocks = self.works[self.order].blocks
        return self.away([total * functools.reduce(np.multiply.outer, [ones[a] for a in q.attributes]) for q in blocks])

    def records(self, release: sf.Release) -> float:
        made = release.synthetic()
        names = {a: i for i, a in enumerate(made.attributes)}
        held = {a: made.codes[:, i].astype(np.int64) for a, i in names.items()}
        counts = Counts(self.works[self.order], held)
        return self.away([counts.of(q.attributes).astype(float) for q in self.works[self.order].blocks])

    def once(self, draw: int, *, peers: bool, records: bool, looks: int) -> dict[str, float]:
        out: dict[str, float] = {}
        began = time.process_time()
        if looks == 2:
            found, out["saw"] = self.twice(draw)
        else:
            found = self.released(self.plan(self.order, "adaptive"), draw).project("mixtures")
        out["adaptive"] = self.error(found)
        out["CPU-s"] = time.process_time() - began
        if records:
            out["records"] = self.records(found)
        if peers:
            plain = self.released(self.plan(self.order, "marginals"), draw)
            out["raw"], out["projected"] = self.error(plain), self.error(plain.project("local"))
            out["denoised"] = self.error(plain.project("mixtures"))
            if self.order > 2:
                out["pairs"] = self.error(self.released(self.plan(2, "adaptive"), draw).project("mixtures"))
            out["alone"] = self.alone(draw)
        return out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", default="adult,diamonds,labsup,randhie,tree,mixture,independent,million")
    parser.add_argument("--epsilons", default="0.1,1,10")
    parser.add_argument("--orders", default="2,3")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number of the first draw")
    parser.add_argument("--alone", action="store_true", help="adaptive without what it is compared with")
    parser.add_argument("--records", action="store_true", help="whole records too")
    parser.add_argument("--looks", type=int, default=1, choices=(1, 2))
    given = parser.parse_args()
    for table, order, eps in itertools.product(
        given.tables.split(","), map(int, given.orders.split(",")), given.epsilons.split(",")
    ):
        held = held_of(table)
        if held is None:
            print(f"{table}: its package is not installed", flush=True)
            continue
        case = Case(held, order, eps)
        draws = range(given.first, given.first + given.draws)
        runs = [case.once(draw, peers=not given.alone, records=given.records, looks=given.looks) for draw in draws]
        means = {k: float(np.mean([r[k] for r in runs])) for k in runs[0]}
        best = min((means[k] for k in ("raw", "projected", "denoised", "pairs") if k in means), default=math.nan)
        ratios = f"ratio {means['adaptive'] / best:.3f} {means['adaptive'] / means.get('alone', math.nan):.3f}"
        print(f"{table:11} {order} eps {eps:>4} {ratios}", *(f"{k} {v:.4g}" for k, v in means.items()), flush=True)


if __name__ == "__main__":
    main()
