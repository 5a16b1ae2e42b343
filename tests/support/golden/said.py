"""What a plan decides, as plain values: integers and hashes that must not change, floats that may by a rounding.

Nothing here knows where a class lives. What is of an unknown kind raises `Unknown`: a new kind of map, event or value
needs a line here before it can be compared.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sfumato as sf
from sfumato.interactive import SessionPlan
from sfumato.local.plan import LocalPlan
from sfumato.operators import Block, Combination, Family
from sfumato.plans.iterative import IterativePlan
from sfumato.plans.keys import KeyPlan
from sfumato.plans.streams import StreamPlan
from support.insecure_bits import InsecureTestBits

__all__ = ["Unknown", "maps", "noise", "say", "tell"]

_SEED = 40
_DIGITS = 32  # of a hash: 128 bits tell apart what nobody tries to make alike
_DRAWS = 256
_KEYS = np.arange(0, 3_000, 7, dtype=np.uint64) * np.uint64(2**47 + 5) % np.uint64(2**61 - 1)
_COUNTS = np.arange(1, 1 + _KEYS.size, dtype=np.int64)
_QUERY = 16  # keys of a query
_ENTRIES = 512  # columns of a map up to which every entry is looked at


class Unknown(TypeError):
    """A kind of map or value that the golden file has no words for."""


def tell(plan: Any) -> dict[str, Any]:
    """{"exact": what is the same everywhere, "floats": what may differ by a rounding} of a plan of any kind."""
    for kind, words in _WORDS.items():
        if isinstance(plan, kind):
            exact, floats = words(plan)
            exact = {"fingerprint": plan.fingerprint} | exact
            return {"exact": exact, "floats": {n: _number(x) for n, x in floats.items() if x is not None}}
    raise Unknown(f"a plan of class {type(plan).__name__}")


def _number(x: float) -> float | str:
    return float(f"{x:.13g}") if math.isfinite(x) else repr(float(x))


def _plan(plan: Any) -> tuple[dict[str, Any], dict[str, float | None]]:
    s = plan.sensitivity
    exact = {
        "mechanism": plan.mechanism,
        "objective": plan.objective,
        "body": plan.body,
        "maps": maps(plan.strategy.blocks),
        "power": s.power,
        "sensitivity": s.value,
        "attained": s.exact,
        "noise": say(plan.noise),
        "draws": noise(plan.noise),
        "price": say(plan.price),
        "records": plan.bias_records,
    }
    errors = plan.standard_errors()
    finite = errors[np.isfinite(errors)]
    floats = {
        "rmse": plan.rmse,
        "mean error": plan.mean_error,
        "largest error": plan.max_standard_error,
        "objective": plan.objective_value,
        "lower bound": plan.lower_bound,
        "bias": plan.bias_bound,
        # the order of the queries counts
        "errors": float(finite @ np.sqrt(np.arange(1.0, 1 + finite.size))),
        "margin": float(plan.half_widths(0.9).max()),
    }
    return exact, floats


def _course(plan: Any) -> tuple[dict[str, Any], dict[str, float | None]]:
    bound = plan.bound
    exact = {
        "mechanism": plan.mechanism,
        "price": say(plan.price),
        "slack": str(plan.slack),
        "looks": [[k.count, say(k.price)] for k in plan.looks],
        "course": say(plan.course),
    }
    floats = {"rmse": plan.rmse}
    if bound is not None:
        floats |= {"bound": bound.largest, "failure": bound.failure}
    return exact, floats


def _keyed(plan: Any) -> tuple[dict[str, Any], dict[str, float | None]]:
    m = plan.map
    at, weights = m.at(_listed(m)[:_QUERY], np.ones(_QUERY))
    exact = {
        "mechanism": plan.mechanism,
        "maps": {
            "rows": m.rows,
            "largest": [m.largest(1), m.largest(2)],
            "farthest": [m.farthest(1), m.farthest(2)],
            "applied": _hash(m.apply(_KEYS, _COUNTS)),
            "read": _hash(at.astype(np.int64), weights),
        },
        "noise": say(plan.noise),
        "draws": noise(plan.noise),
        "price": say(plan.price),
        "stability": say(plan.stability),
        "records": plan.records,
    }
    floats: dict[str, float | None] = {"size": plan.size}
    if plan.records is not None or not m.shrinkage:
        floats |= {"error": plan.error(_QUERY), "worst error": plan.worst_error(_QUERY)}
    return exact, floats


def _listed(m: Any) -> NDArray[np.uint64]:
    """Keys that a map can be read at."""
    return getattr(m, "elements", _KEYS)


def _local(plan: Any) -> tuple[dict[str, Any], dict[str, float | None]]:
    exact = {
        "reporter": plan.reporter,
        "epsilon": str(plan.epsilon),
        "records": plan.records,
        "questions": say(plan.questions),
        "outcomes": plan.outcomes,
    }
    errors = plan.standard_errors()
    weights = np.sqrt(np.arange(1.0, 1 + errors.size))
    return exact, {"rmse": plan.rmse, "lower bound": plan.lower_bound, "errors": float(errors @ weights)}


def _stream(plan: Any) -> tuple[dict[str, Any], dict[str, float | None]]:
    terms = plan.terms
    exact = {
        "mechanism": plan.mechanism,
        "objective": plan.objective,
        "maps": maps(plan.strategy.blocks),
        "filter": say(terms.filter),
        "participations": [terms.participations, terms.apart],
        "noise": say(terms.noise),
        "draws": noise(terms.noise),
        "price": say(plan.price),
        **({} if terms.total is None else {"filter of the total": say(terms.total)}),
    }
    floats = {"lower bound": plan.bound}
    if plan.worst_bound is not None:
        floats["lower bound, worst period"] = plan.worst_bound
    for question in ("totals", "increments", "last 3"):
        errors = plan.standard_errors(question)
        floats[question] = float(errors @ np.sqrt(np.arange(1.0, 1 + errors.size)))
    return exact, floats


def _session(plan: Any) -> tuple[dict[str, Any], dict[str, float | None]]:
    """Fields and what follows from them; a session plan has no floats but probabilities that were given."""
    own = {f.name: getattr(plan, f.name) for f in fields(plan)}
    own = {n: say(v) for n, v in own.items() if n not in ("domain", "keys", "budget", "unit")}
    if hasattr(plan, "bounds"):
        own |= {"v": plan.bounds.v, "g": plan.bounds.g, "updates": plan.updates}
    else:
        own |= {"draws": noise(plan.noise)}
    return {"mechanism": plan.mechanism} | own, {}


_WORDS: dict[Any, Any] = {
    sf.Plan: _plan,
    IterativePlan: _course,
    KeyPlan: _keyed,
    LocalPlan: _local,
    StreamPlan: _stream,
    SessionPlan: _session,
    type(sf.plan(sf.Keys(), sf.pure(1), neighbours="add-remove", mechanism="histogram")): _session,
    type(
        sf.plan(sf.Keys(), sf.pure(1), neighbours="add-remove", records=9, mechanism=sf.mechanisms.sparse_mw(size=2))
    ): _session,
}


def maps(blocks: Iterable[Any]) -> dict[str, Any]:
    """The integer maps that are measured, entry by entry and in order: how many, their rows, and a hash.

    A family counts as its blocks, and a block as the matrix over the cells of its attributes: what is measured, not how
    it is written down.
    """
    digest = hashlib.sha256()
    count, rows = 0, 0
    for item in blocks:
        if isinstance(item, Family):
            single = list(item.blocks())
        elif isinstance(item, Combination):
            single = list(item.blocks)
            digest.update(np.ascontiguousarray(item.matrix, dtype="<i8").tobytes())
            count, rows = count + 1 - len(single), rows + item.rows - sum(b.rows for b in single)
        elif isinstance(item, Block):
            single = [item]
        else:
            raise Unknown(f"a map of class {type(item).__name__}")
        for block in single:
            operator = block.operator
            matrix = operator.matvec(_inputs(operator.shape[1]))
            if not operator.integral or matrix.dtype != np.int64 or float(operator.max_abs) >= 2**63:
                raise Unknown(f"a map of {matrix.dtype}, which are no exact integers")
            digest.update(repr((block.attributes, matrix.shape)).encode())
            digest.update(np.ascontiguousarray(matrix, dtype="<i8").tobytes())
            count, rows = count + 1, rows + matrix.shape[0]
    return {"blocks": count, "rows": rows, "sha256": digest.hexdigest()[:_DIGITS]}


def _inputs(cells: int) -> NDArray[np.int64]:
    """What a map is fed: unit vectors, which give its entries, or beyond `_ENTRIES` columns fixed vectors."""
    if cells <= _ENTRIES:
        return np.eye(cells, dtype=np.int64)
    return np.random.default_rng(_SEED).integers(-1_000, 1_000, (cells, 8))


@cache
def noise(law: Any) -> str:
    """A hash of what the sampler of a law makes of fixed bits."""
    return _hash(law.sample(_DRAWS, InsecureTestBits(_SEED)), law.saturated(_DRAWS, InsecureTestBits(_SEED)))


def _hash(*arrays: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        if array.dtype.kind not in "iuf":
            raise Unknown(f"an array of {array.dtype}")
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()[:_DIGITS]


def say(value: Any) -> Any:
    """A frozen value in full: classes and fields by name, numbers exactly, arrays by shape and hash."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, np.ndarray):
        return {"shape": list(value.shape), "sha256": _hash(value)}
    if isinstance(value, (tuple, list)):
        return [say(v) for v in value]
    if isinstance(value, Mapping):
        return [[say(k), say(v)] for k, v in value.items()]
    if is_dataclass(value):
        stored = vars(type(value)).get("stored_as", type(value).__name__)
        return {"is": stored} | {f.name: say(getattr(value, f.name)) for f in fields(value) if f.init}
    raise Unknown(f"a value of class {type(value).__name__}")
