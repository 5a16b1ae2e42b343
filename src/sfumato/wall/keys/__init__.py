"""Wing of the wall: universes of keys too large to list, measured by key maps or asked key by key."""

from sfumato.wall.keys.counts import KeyCounts
from sfumato.wall.keys.curator import KeyCurator
from sfumato.wall.keys.lazy import LazyHistogram

__all__ = ["KeyCounts", "KeyCurator", "LazyHistogram"]
