"""A durable privacy budget: `ledger` is its face, `chain` the meaning of its lines, `store` the file."""

from sfumato.privacy.ledger.chain import Entry
from sfumato.privacy.ledger.ledger import Ledger, Priced, Quote, Receipt, Verification

__all__ = ["Entry", "Ledger", "Priced", "Quote", "Receipt", "Verification"]
