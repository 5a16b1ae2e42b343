"""How long computations report their progress."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Progress"]

Progress = Callable[[int, float], None]
"""Called with the number of steps so far and the proved relative distance from the optimum, nan if none is proved.

Where an engine counts a table (docs/spark.md), its method `jobs(what, done, of)` is called, if it has one.
"""
