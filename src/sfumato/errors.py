"""Every exception of the library.

A message says what was given, what is allowed and what to do. Exceptions raised while data are at
hand name columns and declared bounds, never values read from the data.
"""

from __future__ import annotations

from fractions import Fraction

__all__ = [
    "BudgetError",
    "BudgetExceeded",
    "DomainError",
    "InvalidInput",
    "LedgerCorrupted",
    "LedgerError",
    "LedgerMismatch",
    "MissingExtra",
    "NameTaken",
    "NotAnswerable",
    "NotInRowSpace",
    "NotWritten",
    "PlanError",
    "SfumatoError",
    "SourceError",
    "SpecError",
    "WorkloadError",
]


class SfumatoError(Exception):
    """Base of everything the library raises on purpose."""


class InvalidInput(SfumatoError, ValueError):
    """Public input that is refused before anything is spent."""


class DomainError(InvalidInput):
    """A domain or an attribute that cannot be declared so."""


class WorkloadError(InvalidInput):
    """A workload or an operator that cannot be asked so."""


class BudgetError(InvalidInput):
    """A budget, a price or a conversion that does not exist."""


class PlanError(InvalidInput):
    """A plan that cannot be made, or not carried out as asked."""


class SpecError(InvalidInput):
    """A specification file that cannot be read; `line` is 1-based where it is known."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message if line is None else f"line {line}: {message}")
        self.line = line


class SourceError(SfumatoError):
    """The table could not be loaded. Shown to its custodian; nothing was spent."""


class NotAnswerable(SfumatoError, ValueError):
    """A question outside the span of what was measured."""


class NotInRowSpace(NotAnswerable):
    """A reconstruction with R M != F; `residual` is the largest absolute difference."""

    def __init__(self, message: str, residual: float) -> None:
        super().__init__(message)
        self.residual = residual


class BudgetExceeded(SfumatoError):
    """The ledger refuses a price above what is left; the ledger is untouched.

    `requested` and `remaining` are in the ledger's currency.
    """

    def __init__(self, message: str, requested: Fraction, remaining: Fraction) -> None:
        super().__init__(message)
        self.requested = requested
        self.remaining = remaining


class LedgerError(SfumatoError):
    """A ledger, or a file paid from one, that cannot be opened, created or used so; nothing was spent."""


class LedgerCorrupted(LedgerError):
    """The chain of hashes of a ledger, or of a file paid from one, is broken; it refuses to go on."""


class LedgerMismatch(LedgerError):
    """The ledger is of another privacy unit, or of another table; nothing was spent."""


class NameTaken(SfumatoError):
    """A release of that name exists, made from another plan."""


class NotWritten(SfumatoError):
    """The budget is spent and the release could not be stored. The ledger lists it as unreleased."""


class MissingExtra(SfumatoError, ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""
