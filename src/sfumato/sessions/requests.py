"""What was asked of `sf.session`, refused where it belongs to another mechanism, and begun once it is paid."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sfumato.errors import NotWritten, PlanError, SfumatoError
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger import Ledger, Receipt
from sfumato.privacy.unit import PrivacyUnit

__all__ = ["Request", "begun", "check_keys", "refuse_idle"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked of `sf.session`, checked as far as every mechanism needs it."""

    source: Any
    domain: Any
    budget: Budget
    unit: PrivacyUnit
    ledger: Ledger | None
    table: str | None
    name: str
    store: str | os.PathLike[str] | None
    records: int | None
    beta: float | None
    questions: int | None
    span: int | None
    updates: int | None
    threshold: int | None
    alpha: float | str | None
    size: int | None
    about: dict[str, Any]


def refuse_idle(asked: Request, names: Iterable[str], whose: str) -> None:
    """Raise PlanError for options that were given and belong to another mechanism."""
    for name in names:
        if getattr(asked, name) is not None:
            raise PlanError(f"{name} belongs to {whose}")


def check_keys(span: object) -> None:
    """Raise PlanError for a span of coefficients."""
    if span is not None:
        raise PlanError("span= is of questions over a domain; over keys every coefficient is 1")


def begun(asked: Request, account: Ledger, plan: Any, door: Callable[..., tuple[T, Receipt]], what: object) -> T:
    """What a door of the curator opens once the whole price is debited, kept in the session's store if it has one.

    Raises NotWritten where it is kept, but the ledger could not be told so.
    """
    store, about = None if asked.store is None else Path(asked.store), asked.about | {"plan": plan}
    made, receipt = door(what, plan.price, name=asked.name, plan_hash=plan.fingerprint, store=store, about=about)
    try:
        if store is not None:
            account.mark_released(receipt, plan.fingerprint)
    except SfumatoError as error:
        raise NotWritten(
            f"the session is paid for and kept in {store}, but the ledger could not be told so ({error}); go on with "
            "it by sf.resume_session"
        ) from error
    return made
