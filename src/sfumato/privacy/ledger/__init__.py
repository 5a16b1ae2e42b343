"""A durable privacy budget as people hold it: granted, read, quoted, exported; `words` is what they read.

What the curator uses of it is `privacy.debits`, with the meaning of its lines.
"""

from __future__ import annotations

from sfumato.privacy.debits import Entry, Receipt
from sfumato.privacy.ledger.ledger import HasPrice, Ledger, Quote, Verification

__all__ = ["Entry", "HasPrice", "Ledger", "Quote", "Receipt", "Verification"]
