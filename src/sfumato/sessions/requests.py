"""What a session is opened with, and how it begins once it is paid."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from sfumato.errors import NotWritten, SfumatoError
from sfumato.privacy.ledger import Ledger, Receipt
from sfumato.wall import Source

__all__ = ["Opening", "begun", "settled", "tell"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Opening:
    """What a session is opened with. `counted`: the public number of records was read already, and is the plan's."""

    plan: Any
    source: Any
    ledger: Ledger | None
    name: str = "session"
    store: Path | None = None
    table: str | None = None
    counted: bool = False

    @property
    def about(self) -> dict[str, Any]:
        """What a store remembers of it."""
        return {"source": _text(self.source), "plan": self.plan}


def begun(asked: Opening, account: Ledger, door: Callable[..., tuple[T, Receipt]], what: object) -> T:
    """What a door of the curator opens once the whole price is debited, kept in the session's store if it has one.

    Raises NotWritten where it is kept, but the ledger could not be told so.
    """
    plan = asked.plan
    made, receipt = door(
        what, plan.price, name=asked.name, plan_hash=plan.fingerprint, store=asked.store, about=asked.about
    )
    if asked.store is not None:
        tell(account, receipt, plan.fingerprint, f"the session is paid for and kept in {asked.store}")
    return made


def tell(account: Ledger, receipt: Receipt, fingerprint: str, kept: str) -> None:
    """Have the ledger say that what a receipt paid for is kept. Raises NotWritten where it could not."""
    try:
        account.mark_released(receipt, fingerprint)
    except SfumatoError as error:
        raise NotWritten(
            f"{kept}, but the ledger could not be told so ({error}); the same call of sf.open goes on with it"
        ) from error


def settled(account: Ledger, name: str, fingerprint: str) -> None:
    """Have the ledger say that a session that is kept was opened, where the process that opened it could not."""
    entry = account.find(name)
    if entry is None or entry.released:
        return
    receipt = account.paid(name, entry.plan_hash)
    if receipt is not None:
        with suppress(SfumatoError):  # another process was faster, or the ledger is read alone
            account.mark_released(receipt, fingerprint)


def _text(place: Any) -> str | Source | None:
    """A path or an address as text that means the same elsewhere, with how its table is written; None for what lives
    in memory."""
    if isinstance(place, Source):
        kept = _text(place.table)
        return None if kept is None else replace(place, table=kept)
    if isinstance(place, os.PathLike):
        place = os.fspath(place)
    if not isinstance(place, str):
        return None
    return place if "://" in place else os.path.abspath(place)
