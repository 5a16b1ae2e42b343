"""The only place that sees data."""

from sfumato.curator.curator import Curator
from sfumato.curator.sources import Histogram

__all__ = ["Curator", "Histogram"]
