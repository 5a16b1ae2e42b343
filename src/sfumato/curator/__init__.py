"""The only place that sees data: a core that measures; a door that selects and two wings, which it never imports."""

from __future__ import annotations

from sfumato.curator.curator import Curator
from sfumato.curator.rows.sources import Histogram

__all__ = ["Curator", "Histogram"]
