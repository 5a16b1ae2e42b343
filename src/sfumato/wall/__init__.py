"""The only place that sees data: a core that measures; a door that selects and two wings, which it never imports."""

from sfumato.wall.curator import Curator
from sfumato.wall.rows.sources import Histogram
from sfumato.wall.rows.written import Source

__all__ = ["Curator", "Histogram", "Source"]
