"""Domains with cells that no record can be in, drawn."""

from __future__ import annotations

from typing import Any

import numpy as np

from sfumato.domain import Booleans, Categories, Domain, Hierarchy, Integers

__all__ = ["ATTRIBUTES", "drawn"]

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
