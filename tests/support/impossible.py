"""Domains with cells that no record can be in, drawn."""

from __future__ import annotations

from typing import Any

import numpy as np

from sfumato.domain import Booleans, Categories, Domain, Hierarchy, Integers

__all__ = ["ATTRIBUTES", "drawn", "impossible_mass"]

ATTRIBUTES: dict[str, Any] = {
    "a": Integers(0, 3),
    "b": Booleans(outside="other", missing="other"),
    "c": Categories(["x", "y", "z"]),
    "h": Hierarchy({"06": ["1", "2"], "36": ["3"]}, ["state", "county"]),
}
_TESTS = ("a >= 2", "a == 1", "b", "not b", "c == 'x'", "c != 'z'", "state == '06'", "county == '3'")


def drawn(seed: int, most: int = 3) -> Domain:
    """One to `most` random conjunctions of two tests each, that leave some record."""
    rng = np.random.default_rng([seed, 68])
    while True:
        count = int(rng.integers(1, most + 1))
        texts = {" and ".join(rng.choice(_TESTS, size=int(rng.integers(1, 4)), replace=False)) for _ in range(count)}
        try:
            return Domain(ATTRIBUTES, sorted(texts))
        except ValueError:
            continue


def impossible_mass(domain: Domain, found: Any) -> float:
    """Of every table that a release holds: the largest count of an impossible cell."""
    largest = 0.0
    for block in found.workload.blocks:
        mask = domain.possible(block.attributes)
        if mask is not None:
            largest = max(largest, float(np.abs(found.answer_block(block.block).reshape(mask.shape)[~mask]).max()))
    return largest
