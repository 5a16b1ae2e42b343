"""Where a release stands: in which ledger, made by what, of which table."""

from __future__ import annotations

import datetime
import platform
from dataclasses import dataclass
from importlib import metadata

from sfumato.ground.codec import storable
from sfumato.ground.later import later
from sfumato.privacy.ledger import Entry, Ledger, Receipt

__all__ = ["Provenance", "Versions", "provenance", "receipt_of", "versions"]

Versions = tuple[tuple[str, str], ...]


@storable
@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a release stands: its name, its ledger entry, what made it, and the public name of its table, if given."""

    name: str
    ledger_id: str
    sequence: int
    anchor: str
    one_shot: bool
    created: str
    versions: Versions
    snapshot: str | None = None
    table: str | None = later(None)

    @property
    def where(self) -> str:
        """The ledger entry in words."""
        if self.one_shot:
            return "one-shot account (no ledger): nothing remembers this spend"
        return f"ledger {self.ledger_id}, entry {self.sequence}, anchor {self.anchor}"


def versions() -> Versions:
    """What makes releases here."""
    packages = ("sfumato", "numpy", "scipy", "duckdb")
    return (("python", platform.python_version()), *((p, metadata.version(p)) for p in packages))


def receipt_of(account: Ledger, entry: Entry, anchor: str) -> Receipt:
    """The receipt of an entry that was debited earlier."""
    return Receipt(entry.sequence, anchor, account.ledger_id, entry.name, entry.price, account.currency)


def provenance(
    receipt: Receipt,
    account: Ledger,
    made_by: Versions,
    *,
    created: str | None = None,
    snapshot: str | None = None,
    table: str | None = None,
) -> Provenance:
    """The provenance of what a receipt paid for; made now, unless it says when."""
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds") if created is None else created
    ours = (receipt.name, receipt.ledger_id, receipt.sequence, receipt.anchor, not account.durable)
    return Provenance(*ours, when, made_by, snapshot, table)
