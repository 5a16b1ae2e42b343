"""How long work tells how far it is."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Progress"]

Progress = Callable[[int, float], None]
"""Is told the number of steps so far, and how far from the best the result is proved to be, as a share; else nan."""
