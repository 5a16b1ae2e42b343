"""Wing of the wall: universes of keys too large to list, measured by key maps or asked key by key."""

from __future__ import annotations

from sfumato.curator.keys.counts import KeyCounts
from sfumato.curator.keys.curator import KeyCurator
from sfumato.curator.keys.lazy_histogram import LazyHistogram

__all__ = ["KeyCounts", "KeyCurator", "LazyHistogram"]
