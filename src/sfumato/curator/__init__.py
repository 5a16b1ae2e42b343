"""The only place that sees data."""

from sfumato.curator.curator import Curator
from sfumato.curator.keyed import KeyCurator
from sfumato.curator.keys import KeyCounts
from sfumato.curator.sources import Histogram

__all__ = ["Curator", "Histogram", "KeyCounts", "KeyCurator"]
