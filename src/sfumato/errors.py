"""Every exception of the library.

A message says what was given, what is allowed and what to do. Exceptions raised while data are at
hand name columns and declared bounds, never values read from the data.

>>> try:
...     sf.gdp(-1)
... except sf.errors.BudgetError as refused:
...     print(refused)
mu must not be negative; got -1
"""

from __future__ import annotations

import re
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


_ENDLESS = re.compile(r"\S{400,}")  # a word that is no path: of what was given, not of what is said
_SHOWN = 60  # characters of a long word, with which it is known again
_MOST = 3_000  # a page of text; more is a value with blanks in it


class SfumatoError(Exception):
    """Base of everything the library raises on purpose.

    >>> try:
    ...     sf.pure(0)
    ... except sf.SfumatoError as error:
    ...     print(error)
    epsilon must be between 1e-300 and 1e9; got 0
    """

    def __str__(self) -> str:
        """The message, with what is too long to be read in it cut short."""
        text = _ENDLESS.sub(lambda word: f"{word[0][:_SHOWN]}… ({len(word[0]):,} characters)", super().__str__())
        if len(text) <= _MOST:
            return text
        return f"{text[: _MOST // 2]} … {text[-_MOST // 2 :]}"


class InvalidInput(SfumatoError, ValueError):
    """Public input that is refused before anything is spent.

    >>> sf.Histogram([-1, 2])
    Traceback (most recent call last):
        ...
    sfumato.errors.InvalidInput: a histogram counts records: no entry may be negative, fractional or missing
    >>> issubclass(sf.errors.InvalidInput, ValueError)
    True
    """


class DomainError(InvalidInput):
    """A domain or an attribute that cannot be declared as given.

    >>> sf.Domain({"age": sf.Integers(99, 0)})
    Traceback (most recent call last):
        ...
    sfumato.errors.DomainError: integers from 99 to 0: the range is reversed
    """


class WorkloadError(InvalidInput):
    """A workload, a query or an operator that cannot be built as given.

    >>> sf.marginals(sf.Domain({"age": 100, "sex": 2}), order=3)
    Traceback (most recent call last):
        ...
    sfumato.errors.WorkloadError: an order must be a whole number from 0 to 2, not 3; lists of names are given as sets=
    """


class BudgetError(InvalidInput):
    """A budget, a price or a conversion that does not exist.

    >>> sf.pure(-1)
    Traceback (most recent call last):
        ...
    sfumato.errors.BudgetError: epsilon must not be negative; got -1
    """


class PlanError(InvalidInput):
    """A plan that cannot be made, or cannot be carried out as asked.

    >>> sf.plan(sf.total(sf.Domain({"age": 100})), sf.pure(1), neighbours="neither")
    Traceback (most recent call last):
        ...
    sfumato.errors.PlanError: neighbours must be 'add-remove' or 'replace-one', not 'neither'
    """


class SpecError(InvalidInput):
    """A specification file that cannot be read.

    Args:
        message: What is wrong, and what is allowed.
        line: The line of the file, counted from 1, or None where it is not known.

    >>> sf.read_spec("nowhere.toml")
    Traceback (most recent call last):
        ...
    sfumato.errors.SpecError: the spec file 'nowhere.toml' is no file that can be read
    """

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message if line is None else f"line {line}: {message}")
        self.line = line


class SourceError(SfumatoError):
    """The table could not be loaded. Shown to its custodian; nothing was spent.

    >>> domain = sf.Domain({"adult": sf.Booleans(outside="other", missing="other")})
    >>> plan = sf.plan(sf.identity(domain), sf.pure(1), neighbours="add-remove")
    >>> sf.release(plan, "nowhere.csv", ledger=None)
    Traceback (most recent call last):
        ...
    sfumato.errors.SourceError: 'nowhere.csv' cannot be found or read
    """


class NotAnswerable(SfumatoError, ValueError):
    """A query outside the row space of what was measured.

    >>> domain = sf.Domain({"age": 100, "sex": 2})
    >>> plan = sf.plan(sf.total(domain), sf.pure(1), neighbours="add-remove")
    >>> release = sf.release(plan, sf.Histogram(np.ones((100, 2))), ledger=None)
    >>> release.ask(sf.identity(domain, "age"))
    Traceback (most recent call last):
        ...
    sfumato.errors.NotAnswerable: the joint table of age was not measured; what was measured holds only tables over
    fewer of these attributes
    """


class NotInRowSpace(NotAnswerable):
    """A strategy M, or a reconstruction R, with R M != W for the workload W.

    Args:
        message: What cannot be answered, and by how much it is off.
        residual: The largest difference between R M and W.

    >>> work = sf.identity(sf.Domain({"age": 3}))
    >>> sf.plan(work, sf.zcdp(1), neighbours="add-remove", strategy=[[1, 1, 0], [0, 0, 1]])
    Traceback (most recent call last):
        ...
    sfumato.errors.NotInRowSpace: the strategy cannot answer the workload: W M^+ M differs from W by up to 0.5 (the 3
    cells over age lie outside the span of the 2 queries that were measured)
    """

    def __init__(self, message: str, residual: float) -> None:
        super().__init__(message)
        self.residual = residual


class BudgetExceeded(SfumatoError):
    """The ledger refuses a price above what is left; the ledger is untouched.

    Args:
        message: What does not fit.
        requested: The price, in the ledger's currency.
        remaining: What is left, in the ledger's currency.

    >>> plan = sf.plan(sf.total(sf.Domain({"age": 3})), sf.pure(2), neighbours="add-remove")
    >>> try:
    ...     sf.release(plan, sf.Histogram([1, 2, 3]), ledger=sf.Ledger.in_memory(sf.pure(1)))
    ... except sf.BudgetExceeded as error:
    ...     print(error.requested, error.remaining)
    2 1
    """

    def __init__(self, message: str, requested: Fraction, remaining: Fraction) -> None:
        super().__init__(message)
        self.requested = requested
        self.remaining = remaining


class LedgerError(SfumatoError):
    """A ledger, or a file paid from one, that cannot be opened, created or used so; nothing was spent.

    >>> sf.Ledger("nowhere.ledger")
    Traceback (most recent call last):
        ...
    sfumato.errors.LedgerError: nowhere.ledger: no ledger is there (No such file or directory); make one with sfumato
    ledger create, or Ledger.create
    """


class LedgerCorrupted(LedgerError):
    """The chain of hashes of a ledger, or of a file paid from one, is broken; the file is not used any further.

    >>> ledger = sf.Ledger.create("people.ledger", total=sf.pure(1))
    >>> other = sf.Ledger.create("other.ledger", total=sf.pure(1))
    >>> ledger.verify(other.anchor)
    Traceback (most recent call last):
        ...
    sfumato.errors.LedgerCorrupted: line 0 is not the one the anchor was taken of: this is another ledger, or it was
    made anew; restore the right copy
    """


class LedgerMismatch(LedgerError):
    """The ledger is of another privacy unit, or of another table; nothing was spent.

    >>> ledger = sf.Ledger.create("visits.ledger", total=sf.pure(1), table="visits")
    >>> plan = sf.plan(sf.total(sf.Domain({"age": 3})), sf.pure(1), neighbours="add-remove")
    >>> sf.release(plan, sf.Histogram([1, 2, 3]), ledger=ledger, table="people")
    Traceback (most recent call last):
        ...
    sfumato.errors.LedgerMismatch: this is the ledger of the table 'visits'; this spend names 'people'. ...
    """


class NameTaken(SfumatoError):
    """The name was paid for before: read that release back, or choose another name for a new one.

    >>> ledger = sf.Ledger.in_memory(sf.pure(1))
    >>> plan = sf.plan(sf.total(sf.Domain({"age": 3})), sf.pure("0.5"), neighbours="add-remove")
    >>> release = sf.release(plan, sf.Histogram([1, 2, 3]), ledger=ledger, name="count")
    >>> sf.release(plan, sf.Histogram([1, 2, 3]), ledger=ledger, name="count")
    Traceback (most recent call last):
        ...
    sfumato.errors.NameTaken: 'count' was already paid for. ...
    """


class NotWritten(SfumatoError):
    """The budget is spent and the release could not be stored. The ledger lists it as unreleased.

    >>> ledger = sf.Ledger.in_memory(sf.pure(1))
    >>> plan = sf.plan(sf.total(sf.Domain({"age": 3})), sf.pure(1), neighbours="add-remove")
    >>> receipt = ledger.debit("lost", plan.fingerprint, plan.price, plan.unit)  # and then the disk was full
    >>> [entry.name for entry in ledger.unreleased()]
    ['lost']
    """


class MissingExtra(SfumatoError, ImportError):
    """An optional dependency is not installed; the message says how to install it.

    >>> issubclass(sf.errors.MissingExtra, ImportError)
    True
    """


def how_to_install(extra: str) -> str:
    """How the optional packages of a name come to an installation: never by the name of a package that is not ours."""
    return (
        f"install them from your clone: pip install -e '.[{extra}]', or from a wheel: pip install 'FILE.whl[{extra}]'"
    )
