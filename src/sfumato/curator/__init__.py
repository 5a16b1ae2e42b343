"""The only place that sees data."""

from sfumato.curator.conversing import Conversation, Minutes, minutes
from sfumato.curator.curator import Curator
from sfumato.curator.keycache import LazyHistogram
from sfumato.curator.keyed import KeyCurator
from sfumato.curator.keys import KeyCounts
from sfumato.curator.keystore import HistogramMinutes, histogram_minutes, is_histogram
from sfumato.curator.sources import Histogram

__all__ = [
    "Conversation",
    "Curator",
    "Histogram",
    "HistogramMinutes",
    "KeyCounts",
    "KeyCurator",
    "LazyHistogram",
    "Minutes",
    "histogram_minutes",
    "is_histogram",
    "minutes",
]
