"""Files of the custodian: where one may be made, and how what it is for is paid."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sfumato._util.codec import value_fingerprint
from sfumato.errors import InvalidInput, LedgerCorrupted, NotWritten
from sfumato.privacy.accounting import Event
from sfumato.privacy.chain import Format
from sfumato.privacy.debits import Debits, Receipt
from sfumato.privacy.files import is_nonempty_file
from sfumato.privacy.unit import PrivacyUnit, is_file_of_kind


def check_place(store: str | os.PathLike[str], noun: str, begun: Format | None = None) -> Path:
    """A path in a folder that is there, at which nothing is but an empty file, or one of the kind `begun`.

    Raises InvalidInput.
    """
    try:
        path = Path(store)
        if ".." in path.parts or not path.name or "\0" in path.name:
            raise InvalidInput(f"{path}: the file of a {noun} has a name of its own and must not climb with '..'")
        if path.is_symlink() or any(p.is_symlink() for p in path.parents if not p.is_absolute()):
            raise InvalidInput(f"{path} is a symbolic link; name the file itself")
        free = not path.exists() or (path.is_file() and not is_nonempty_file(path))
        free = free or (begun is not None and path.is_file() and is_file_of_kind(path, begun))
        if not free or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
            raise InvalidInput(f"{path} exists, or its folder is missing or not to be written to; choose another path")
    except InvalidInput:
        raise
    except (OSError, TypeError, ValueError) as error:
        raise InvalidInput(f"a {noun} cannot be kept at {store!r}: {error}") from error
    return path


def check_same_opening(path: Path, there: Any, asked: Any) -> None:
    """Raise InvalidInput unless what a file was begun for is what is asked now, but for what is only kept with it."""
    if value_fingerprint(replace(there, about=None)) != value_fingerprint(replace(asked, about=None)):
        raise InvalidInput(f"{path} exists and was opened for something else; choose another path")


def check_unopened(path: Path, ledger: Debits, name: str) -> None:
    """Raise LedgerCorrupted for a file without receipt whose opening, so the ledger says, came to its end once."""
    entry = ledger.find(name)
    if entry is not None and entry.released:
        raise LedgerCorrupted(
            f"{path} was put back to the state before its opening was complete; restore the newest copy"
        )


def pay_for_file(
    ledger: Debits,
    terms: tuple[str, str, Event, PrivacyUnit, str | None],
    kept: tuple[Path, Callable[[], None]],
    finish: Callable[[Receipt], object],
) -> Receipt:
    """Debit what a file is for, unless that was done, and finish the file; `terms` are what `Debits.debit` takes.

    The hash in the terms names this very file, so it is paid for once, however often its opening is cut short. `kept`
    is where it lies, and what takes it away while it is unpaid. NotWritten: spent, but the file is not finished.
    """
    (path, remove), receipt = kept, ledger.paid(*terms[:2])
    try:
        receipt = receipt or ledger.debit(*terms)
        finish(receipt)
    except BaseException as error:
        receipt = receipt or ledger.paid(*terms[:2])
        if receipt is None:
            remove()
            raise
        raise NotWritten(
            f"the budget is spent (entry {receipt.sequence}) but opening {path} did not come to its end "
            f"({error or type(error).__name__}). Nothing was shown: the same call goes on with it, and is free"
        ) from error
    return receipt
