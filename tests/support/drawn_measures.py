"""Drawn declarations of measures, from the plan to every answer: what is wrong with any of it, in words."""

from __future__ import annotations

import itertools
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

import sfumato as sf
from sfumato.errors import SfumatoError

__all__ = ["Told", "wrongs"]

Told = Counter[str]
_SLACK = 1e-6  # of a range: what rounding of an interval's end may come to


def _measure(rng: np.random.Generator) -> sf.Measure:
    low = float(rng.choice([0, 0, 0, -5, 1, 1e-3, -1e6]))
    high = low + float(rng.choice([1, 10, 100, 5e4, 1e7, 0.5]))
    count = int(rng.choice([0, 0, 1, 2, 4]))
    inner = sorted({round(float(v), 4) for v in rng.uniform(low, high, count)} - {low, high})
    options = {"outside": str(rng.choice(["clamp", "absent"])), "missing": "absent"}
    return sf.Measure(low, high, knots=[v for v in inner if low < v < high], **options)  # type: ignore[arg-type]


def _domain(rng: np.random.Generator) -> sf.Domain:
    attributes: dict[str, Any] = {}
    for name in ("a", "b")[: int(rng.integers(0, 3))]:
        declared: list[Any] = [
            sf.Categories(["x", "y", "z"][: int(rng.integers(1, 4))], outside="other", missing="other"),
            sf.Integers(0, int(rng.integers(1, 4)), outside="clamp", missing="other"),
            sf.Bins([0, 1, 2.5, 7], outside="clamp", missing="other"),
        ]
        attributes[name] = declared[int(rng.integers(3))]
    names = [f"m{i}" for i in range(int(rng.choice([1, 1, 2, 2, 3, 5])))]
    return sf.Domain(attributes, measures={n: _measure(rng) for n in names})


def _table(rng: np.random.Generator, domain: sf.Domain) -> pd.DataFrame:
    n = int(rng.choice([0, 1, 5, 40, 300, 2_000]))
    columns: dict[str, Any] = {}
    for name, declared in domain.attributes.items():
        if isinstance(declared, sf.Measure):
            low, high = float(declared.low), float(declared.high)
            law = int(rng.integers(4))
            v = [
                rng.uniform(low - (high - low) / 3, high + (high - low) / 3, n),
                low + (high - low) / 20 * np.exp(rng.normal(0, 1.5, n)),
                np.full(n, low + (high - low) * float(rng.choice([0, 0.3, 1]))),
                rng.choice([low, high, *map(float, declared.knots)], n),
            ][law]
            v = np.where(rng.random(n) < float(rng.choice([0, 0.1, 1], p=[0.5, 0.45, 0.05])), np.nan, v)
            if n and rng.random() < 0.2:
                v[rng.integers(n)] = float(rng.choice([np.inf, -np.inf, 1e300, -1e300]))
            columns[name] = v
        elif isinstance(declared, sf.Categories):
            columns[name] = rng.choice(["x", "y", "z", "w"], n)
        else:
            columns[name] = rng.integers(-1, 6, n)
    return pd.DataFrame(columns)


Asked = list[tuple[str, dict[str, Any]]]


def _work(rng: np.random.Generator, domain: sf.Domain) -> tuple[sf.Workload, Asked]:
    """Queries, and the statistics that must then be told."""
    dims = [n for n in domain.names if n not in domain.measures]
    parts: list[sf.Workload] = []
    asked: Asked = []
    for _ in range(int(rng.integers(1, 5))):
        by = [n for n in dims if rng.random() < 0.5]
        names = [str(n) for n in rng.permutation(list(domain.measures))]
        one = names[0]
        measure = domain[one]
        assert isinstance(measure, sf.Measure)
        kind = str(rng.choice(["sums", "means", "best", "moments", "moments", "gaps", "counts"]))
        if kind == "best" and measure.knots:
            parts.append(sf.means(domain, one, by=by, clip="best"))
            asked += [("mean", {"attribute": one, "by": by}), ("mean", {"attribute": one, "by": by, "clip": "best"})]
            asked += [("gap", {"measure": one, "at": float(measure.knots[0]), "by": by})]
            if measure.low >= 0:
                asked += [("gini", {"measure": one, "by": by}), ("lorenz", {"measure": one, "by": by})]
        elif kind == "gaps" and measure.knots:
            at = float(rng.choice(measure.knots))
            parts.append(sf.gaps(domain, one, at=at, by=by))
            asked += [("gap", {"measure": one, "at": at, "by": by}), ("mean", {"attribute": one, "by": by})]
            asked += [("gap", {"measure": one, "at": at, "by": by, "side": "above"})]
        elif kind == "moments":
            own = names[: int(rng.integers(1, 4))]
            parts.append(sf.moments(domain, own, by=by))
            asked += [(s, {"measure": n, "by": by}) for s in ("variance", "std") for n in own]
            asked += [("mean", {"attribute": n, "by": by}) for n in own]
            for pair in itertools.combinations(own, 2):
                two = {"one": pair[0], "other": pair[1], "by": by}
                asked += [("covariance_between", two), ("correlation", two)]
            if len(own) > 1:
                asked.append(("regression", {"y": own[0], "x": own[1:], "by": by}))
        elif kind == "counts" and dims:
            parts.append(sf.marginals(domain, upto=1))
        elif kind == "sums":
            parts.append(sf.sums(domain, one, by=by))
        else:
            parts.append(sf.means(domain, one, by=by))
            asked.append(("mean", {"attribute": one, "by": by}))
    return sf.stack(*parts), asked


def _budget(rng: np.random.Generator) -> Any:
    size = str(rng.choice(["0.001", "0.05", "0.5", "3", "1000"]))
    return [sf.gdp(size), sf.pure(size), sf.zcdp(size)][int(rng.integers(3))]


def _range_of(domain: sf.Domain, statistic: str, options: dict[str, Any]) -> tuple[float, float]:
    """Between what a statistic can be."""
    names = [options[k] for k in ("attribute", "measure", "one", "other") if k in options]
    ends = [(float(m.low), float(m.high)) for n in names if isinstance(m := domain[n], sf.Measure)]
    widths = [b - a for a, b in ends]
    return {
        "mean": lambda: ends[0],
        "gap": lambda: (0.0, widths[0]),
        "gini": lambda: (0.0, 1.0),
        "lorenz": lambda: (0.0, 1.0),
        "variance": lambda: (0.0, widths[0] ** 2 / 4),
        "std": lambda: (0.0, widths[0] / 2),
        "covariance_between": lambda: (-widths[0] * widths[1] / 4, widths[0] * widths[1] / 4),
        "correlation": lambda: (-1.0, 1.0),
        "regression": lambda: (-math.inf, math.inf),
    }[statistic]()


def _odd_lines(frame: sf.Frame, least: float, most: float) -> Iterator[str]:
    """Lines whose numbers are not in order, beyond what is possible, not numbers, or blank without a reason."""
    value = next(c for c in frame.columns if frame.columns[c] is frame.columns["low"] or c == "low")
    place = list(frame.columns).index(value) - 1
    names = list(frame.columns)
    value = names[place - 1] if names[place] == "standard_error" else names[place]
    room = _SLACK * (most - least) if math.isfinite(most - least) else 0.0
    for v, low, high, note in zip(frame[value], frame["low"], frame["high"], frame["note"], strict=True):
        if v is None:
            if not note:
                yield f"blank without a reason: {low} to {high}"
            continue
        if not all(map(math.isfinite, (v, low, high))):
            yield f"no numbers: {v} in {low} to {high}"
        elif not low - room <= v <= high + room:
            yield f"not in order: {v} in {low} to {high}"
        elif low < least - room or high > most + room:
            yield f"beyond {least} to {most}: {v} in {low} to {high}"


def _asked_of(release: sf.Release, asked: Asked, which: str) -> Iterator[str]:
    domain = release.plan.workload.domain
    for statistic, options in asked:
        what = f"{which}.{statistic}({options})"
        try:
            found = getattr(release, statistic)(**options)
        except Exception as error:
            yield f"{what}: {error!r}"
            continue
        for line in _odd_lines(found, *_range_of(domain, statistic, options)):
            yield f"{what}: {line}"


def _one(seed: int, told: Told) -> Iterator[str]:
    rng = np.random.default_rng([189, seed])
    domain = _domain(rng)
    work, asked = _work(rng, domain)
    table, budget = _table(rng, domain), _budget(rng)
    relation = str(rng.choice(["add-remove", "replace-one"]))
    try:
        plan = sf.plan(work, budget, neighbours=relation)  # type: ignore[call-overload]
    except SfumatoError as error:
        told[f"plan refused: {str(error)[:120]}"] += 1
        return
    told["planned"] += 1
    release = sf.release(plan, table, ledger=None)  # what a plan accepts, a release answers
    if not np.isfinite(release.answers).all() or not np.isfinite(plan.standard_errors()).all():
        yield "answers or errors that are no numbers"
    yield from _asked_of(release, asked, "release")
    told["answered"] += len(asked)
    if rng.random() < 0.3:
        try:
            projected = release.project()
        except SfumatoError as error:
            told[f"projection refused: {str(error)[:80]}"] += 1
            return
        told["projected"] += 1
        yield from _asked_of(projected, asked, "projected")
        projected.synthetic()


def wrongs(first: int, count: int, said: Callable[[str], None] | None = None) -> tuple[list[str], Told]:
    """What is wrong in draws with seeds [189, first] and so on, and what was told how often."""
    found: list[str] = []
    told: Told = Counter()
    for seed in range(first, first + count):
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            try:
                own = list(_one(seed, told))
            except Exception as error:
                own = [f"{type(error).__name__}: {error}"]
        for line in own:
            found.append(f"seed {seed}: {line}")
            if said is not None:
                said(found[-1])
    return found, told
