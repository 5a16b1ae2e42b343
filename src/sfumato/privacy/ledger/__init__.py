"""A durable privacy budget: `ledger` is its face, `entries` the meaning of its lines, `words` what people read."""

from sfumato.privacy.ledger.entries import Entry
from sfumato.privacy.ledger.ledger import Ledger, Priced, Quote, Receipt, Verification

__all__ = ["Entry", "Ledger", "Priced", "Quote", "Receipt", "Verification"]
