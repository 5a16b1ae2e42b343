"""The only place that sees data: a core that measures and selects, and two wings that the core never imports."""

from sfumato.wall.curator import Curator
from sfumato.wall.rows.sources import Histogram

__all__ = ["Curator", "Histogram"]
