"""Releases of several looks that one debit pays for: where what came of them lies until the release is stored.

`curator.steps` spends the price look by look. Here stands where its file is, when it is gone on with, and what is said
when a look fails.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.curator.steps import StepBudget, StepOpening, StepStore
from sfumato.errors import InvalidInput, LedgerError, NotWritten, SfumatoError
from sfumato.plans.planned import Planned
from sfumato.privacy.files import is_nonempty_file
from sfumato.privacy.ledger import Entry, Ledger

if TYPE_CHECKING:
    from sfumato.mechanisms.carry_out import Access


def looks_beside(out: str | PathLike[str]) -> Path:
    """Where what came of the looks is kept until the release is stored."""
    place = Path(out)
    return place.with_name(f"{place.name}.looks")


@contextmanager
def step_budget(plan: Planned, at: Access) -> Generator[tuple[StepBudget, StepStore]]:
    """The account of a plan's looks, and what came of those that an earlier process took, which was killed.

    Where nothing is paid for in the block, nothing stays. Raises NotWritten where a look fails that was paid for, in
    words of what becomes of the others; InvalidInput where the looks of another release lie there.
    """
    store = _step_store(plan, at.account, at.name, at.out)
    try:
        yield StepBudget(_opening(plan, at.account, at.name), at.account, store), store
    except BaseException as error:
        entry = at.account.find(at.name)
        if entry is None:
            store.remove()
        elif isinstance(error, SfumatoError) and not (isinstance(error, NotWritten) and store.lost):
            raise _not_finished(entry, store, at.out, error) from error
        raise


def _opening(plan: Planned, account: Ledger, name: str) -> StepOpening:
    return StepOpening(plan.fingerprint, account.ledger_id, name, plan.price)


def _step_store(plan: Planned, account: Ledger, name: str, out: str | PathLike[str] | None) -> StepStore:
    """Where looks are kept, or are to be: beside the release, or in memory where nothing is stored.

    What a process that was killed left there is gone on with; of another release it is taken away where nothing comes
    of it any more.
    """
    opening = _opening(plan, account, name)
    if out is None or not account.durable:
        return StepStore.create(None, opening)
    path = looks_beside(out)
    if is_nonempty_file(path):
        store = StepStore.at(path)
        if store.opening == opening and (store.paid is None or account.find(name) is not None):
            return store
        if store.paid is not None and not store.lost:
            raise InvalidInput(
                f"{path} holds looks of another release that is not finished; finish that one, or choose another place"
            )
        store.remove()
    return StepStore.create(path, opening)


def are_looks_owed(plan: Planned, account: Ledger, entry: Entry, out: str | PathLike[str] | None) -> bool:
    """Whether an entry of the ledger paid for looks of which not all were taken, and none was lost."""
    if out is None or not is_nonempty_file(looks_beside(out)) or entry.released:
        return False
    if (entry.plan_hash, entry.event) != (plan.fingerprint, plan.price):
        return False
    store = StepStore.at(looks_beside(out))
    paid = store.paid
    if paid is None or store.opening != _opening(plan, account, entry.name) or paid[0] != entry.sequence:
        return False
    account.check(paid[1])
    return not store.lost


def remove_looks(out: str | PathLike[str] | None) -> None:
    """Take the file of looks away: what came of them stands in the release that is stored."""
    if out is not None and looks_beside(out).exists():
        with suppress(LedgerError):  # of another kind: not ours
            StepStore.at(looks_beside(out)).remove()


def _not_finished(entry: Entry, store: StepStore, out: str | PathLike[str] | None, error: Exception) -> NotWritten:
    after, kept = "there is no refund once noise was drawn", None if out is None else looks_beside(out)
    if kept is not None and not store.lost:
        after = f"what came of the looks so far is kept in {kept}, and the same command again goes on, free"
    return NotWritten(
        f"the budget is spent (entry {entry.sequence}), but not all looks could be taken: {error}; {after}"
    )
