"""Public mathematics of sketches: hashing over a prime field, keys, and the integer maps that are measured."""

from sfumato.sketches.keys import KeyQueries, Keys
from sfumato.sketches.maps import Buckets, KeyMap, Listed, Signs

__all__ = ["Buckets", "KeyMap", "KeyQueries", "Keys", "Listed", "Signs"]
