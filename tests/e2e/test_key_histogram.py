"""The lazy histogram at the wall and on disk: paid whole before the table is read, stored before it is shown, resumed.

Every test names the mutants that it was seen to fail on.
"""

from __future__ import annotations

import os
import pickle
import sqlite3
import stat
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.curator.keys import KeyCurator
from sfumato.curator.keys import curator as keyed
from sfumato.curator.keys.counts import KeyTable
from sfumato.curator.keys.store import KeyStore
from sfumato.privacy.accounting import ApproxEvent, Event, GaussianEvent, PureEvent
from sfumato.privacy.files import FileStore
from sfumato.privacy.noise import DiscreteLaplace, NoiseLaw, RoundedGaussian
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from support.wall import Touched, Untouchable

ADD, SWAP = PrivacyUnit(Neighbours.ADD_REMOVE), PrivacyUnit(Neighbours.REPLACE_ONE)
DATA = sf.KeyCounts([5, 2**59, 77], [100_000, 200_000, 3])
LAW, PRICE, PURE = DiscreteLaplace(1), PureEvent(1), sf.pure(2)


def words(*keys: int) -> Any:
    return np.array(keys, dtype=np.uint64)


def curator(ledger: sf.Ledger, source: Any = DATA, unit: PrivacyUnit = ADD, keys: sf.Keys | None = None) -> KeyCurator:
    return KeyCurator(source, keys or sf.Keys(), unit, ledger)


@pytest.fixture
def ledger(tmp_path: Path) -> sf.Ledger:
    return sf.Ledger.create(tmp_path / "l.db", total=PURE)


def opened(ledger: sf.Ledger, path: Path, **options: Any) -> Any:
    return curator(ledger).histogram(LAW, PRICE, name="n", plan_hash="h", store=path / "s.db", **options)[0]


# ---- paid first ---------------------------------------------------------------------------------------------------


TOO_CHEAP: list[tuple[NoiseLaw, Event, PrivacyUnit]] = [
    (DiscreteLaplace(1), PureEvent(Fraction(999, 1000)), ADD),
    (DiscreteLaplace(1), PureEvent(Fraction(1999, 1000)), SWAP),
    (DiscreteLaplace(1), PureEvent(2), PrivacyUnit(Neighbours.ADD_REMOVE, "who", 3)),
    (DiscreteLaplace(1), ApproxEvent(1, "0.5"), ADD),
    (RoundedGaussian(1), PureEvent(2), ADD),
    (RoundedGaussian(2), GaussianEvent(Fraction(49, 100)), SWAP),
]


@pytest.mark.parametrize(("noise", "price", "unit"), TOO_CHEAP, ids=range(len(TOO_CHEAP)))
def test_what_costs_more_is_refused_before_the_table(noise: NoiseLaw, price: Event, unit: PrivacyUnit) -> None:
    """Mutants: the price believed; replace-one priced as add-remove; rows of a person left out; another law."""
    account = sf.Ledger.in_memory(sf.zcdp(100))
    with pytest.raises(sf.errors.PlanError, match="costs more"):
        curator(account, Untouchable(), unit).histogram(noise, price, name="n", plan_hash="h")
    assert account.entries() == ()


def test_an_honest_price_opens_it() -> None:
    """The control of the test above."""
    for noise, price, unit in (
        (LAW, PRICE, ADD),
        (LAW, PureEvent(2), SWAP),
        (LAW, PureEvent(3), PrivacyUnit(Neighbours.ADD_REMOVE, "who", 3)),
        (RoundedGaussian(2), GaussianEvent(Fraction(1, 2)), SWAP),
    ):
        with pytest.raises(Touched):
            curator(sf.Ledger.in_memory(sf.zcdp(100)), Untouchable(), unit).histogram(
                noise, price, name="n", plan_hash="h"
            )


def test_the_whole_price_is_debited_before_a_look(
    ledger: sf.Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: the debit at the first question, or one for each; noise or a look before the debit."""
    steps: list[str] = []

    def note(owner: Any, name: str) -> None:
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, **k: (steps.append(name), real(*a, **k))[1])

    for owner, name in ((keyed, "noise_fits_price"), (sf.Ledger, "expect"), (keyed, "open_keys"), (KeyTable, "digest")):
        note(owner, name)
    for owner, name in ((sf.Ledger, "debit"), (KeyTable, "counts_of"), (NoiseLaw, "sample")):
        note(owner, name)
    made = opened(ledger, tmp_path)
    assert steps == ["noise_fits_price", "expect", "open_keys", "digest", "debit"]
    assert (ledger.spent, [e.name for e in ledger.entries()]) == (1, ["n"])
    for _ in range(3):
        made.counts(words(5, 6))
    assert steps[5:] == ["counts_of", "sample"]
    assert ledger.spent == 1
    steps.clear()
    in_memory, _ = curator(sf.Ledger.in_memory(PURE)).histogram(LAW, PRICE, name="n", plan_hash="h")
    assert steps == ["noise_fits_price", "expect", "open_keys", "debit"]
    in_memory.counts(words(5))
    assert steps[4:] == ["counts_of", "sample"]
    with pytest.raises(sf.errors.NameTaken):
        curator(ledger, Untouchable()).histogram(LAW, PRICE, name="n", plan_hash="h", store=tmp_path / "t.db")
    with pytest.raises(sf.BudgetExceeded):
        curator(ledger, Untouchable()).histogram(LAW, PureEvent(2), name="m", plan_hash="h", store=tmp_path / "t.db")
    assert not (tmp_path / "t.db").exists()


def test_what_cannot_be_kept_is_refused_before_it_is_paid(ledger: sf.Ledger, tmp_path: Path) -> None:
    """Mutants: the file made after the debit; a file written over; a store under a ledger in memory."""
    (tmp_path / "s.db").write_text("here")
    for path in (tmp_path / "s.db", tmp_path, tmp_path / "no" / "s.db"):
        with pytest.raises((sf.errors.LedgerError, sf.errors.InvalidInput)):
            curator(ledger).histogram(LAW, PRICE, name="n", plan_hash="h", store=path)
    with pytest.raises(sf.errors.PlanError, match="kept in one"):
        curator(sf.Ledger.in_memory(sf.pure(1))).histogram(LAW, PRICE, name="n", plan_hash="h", store=tmp_path / "t.db")
    assert ledger.entries() == ()
    assert {p.name for p in tmp_path.iterdir()} == {"l.db", "s.db"}
    assert (tmp_path / "s.db").read_text() == "here"


# ---- kept and resumed -----------------------------------------------------------------------------------------------


def test_processes_share_one_draw_of_each_key(ledger: sf.Ledger, tmp_path: Path) -> None:
    """Mutants: what others drew not read before drawing; a resumed histogram that starts empty."""
    one = opened(ledger, tmp_path, about=("public", 7))
    first = one.counts(words(5, 6, 2**59)).tolist()
    other = curator(ledger).resume_histogram(tmp_path / "s.db")
    assert other.counts(words(2**59, 6, 5)).tolist() == first[::-1]
    later = other.counts(words(*range(100, 300))).tolist()
    assert one.counts(words(*range(100, 301)))[:-1].tolist() == later
    assert curator(ledger).resume_histogram(tmp_path / "s.db").shown[1].tolist() == one.shown[1].tolist()
    assert abs(first[0] - 100_000) < 1000
    assert abs(first[2] - 200_000) < 1000
    assert KeyStore(tmp_path / "s.db").opening.about == ("public", 7)
    assert stat.S_IMODE((tmp_path / "s.db").stat().st_mode) == 0o600
    assert ledger.spent == 1


def test_only_the_same_data_under_the_same_ledger_go_on(ledger: sf.Ledger, tmp_path: Path) -> None:
    """Mutants: the table not compared; its order or its zeros compared; ledger, unit or keys not."""
    opened(ledger, tmp_path).counts(words(5))
    same = sf.KeyCounts([77, 5, 2**59, 9, 5], [3, 99_999, 200_000, 0, 1])
    path = tmp_path / "s.db"
    assert curator(ledger, same).resume_histogram(path).shown[0].tolist() == [5]
    for counts in ([100_000, 200_000, 4], [100_001, 200_000, 3], [200_000, 100_000, 3]):
        with pytest.raises(sf.errors.SourceError, match="not the one") as failure:
            curator(ledger, sf.KeyCounts([5, 2**59, 77], counts)).resume_histogram(path)
        assert not any(text in str(failure.value) for text in ("77", "200000", "100000"))
    for wrong in (
        curator(ledger, Untouchable(), SWAP),
        curator(ledger, Untouchable(), keys=sf.Keys("other")),
        curator(sf.Ledger.create(tmp_path / "m.db", total=sf.pure(2)), Untouchable()),
    ):
        with pytest.raises((sf.errors.PlanError, sf.errors.LedgerError), match=r"same|did not pay"):
            wrong.resume_histogram(path)
    cheap = sf.Ledger.create(tmp_path / "c.db", total=sf.pure(2))
    cheap.debit("n", "h", PureEvent("0.01"), ADD)
    with pytest.raises(sf.errors.LedgerError, match="did not pay"):
        curator(cheap, Untouchable()).resume_histogram(path)


EDITS: dict[str, str] = {
    "a count": "UPDATE lines SET body = CAST(substr(body, 1, 16) || zeroblob(16) AS BLOB) WHERE sequence = 1",
    "a key": "UPDATE lines SET body = CAST(zeroblob(8) || substr(body, 9) AS BLOB) WHERE sequence = 2",
    "a key lost": "UPDATE lines SET body = CAST(substr(body, 9, 8) || substr(body, 25) AS BLOB) WHERE sequence = 1",
    "a line lost": "DELETE FROM lines WHERE sequence = 1",
    "a line added": "INSERT INTO lines VALUES (3, zeroblob(16), 'x')",
    "a line in another's place": "INSERT OR REPLACE INTO lines VALUES (2, zeroblob(16), 'x')",
    "the opening": "UPDATE lines SET body = CAST(x'00' || body AS BLOB) WHERE sequence = 0",
}


@pytest.mark.parametrize("how", EDITS)
def test_a_file_that_was_changed_is_refused(how: str, ledger: sf.Ledger, tmp_path: Path) -> None:
    """Mutants: hashes not compared; a key that was lost and would be drawn again."""
    made = opened(ledger, tmp_path)
    made.counts(words(5, 6))
    made.counts(words(9))
    connection = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    if how != "a line added":
        with pytest.raises(sqlite3.Error, match="only grows"):
            connection.execute(EDITS[how])
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    with pytest.raises(sf.errors.LedgerCorrupted, match="triggers"):
        made.counts(words(10))
    assert connection.execute(EDITS[how]).rowcount > 0
    for _, text in triggers:
        connection.execute(text)
    connection.close()
    with pytest.raises(sf.errors.LedgerCorrupted):
        curator(ledger, Untouchable()).resume_histogram(tmp_path / "s.db")


def test_a_file_that_was_put_back_is_found(ledger: sf.Ledger, tmp_path: Path) -> None:
    """Mutants: the file not compared with what this object has shown; an anchor not compared."""
    made, path = opened(ledger, tmp_path), tmp_path / "s.db"
    made.counts(words(5))
    before = path.read_bytes()
    made.counts(words(6))
    anchor = KeyStore(path).anchor
    curator(ledger).resume_histogram(path, anchor)
    path.write_bytes(before)
    with pytest.raises(sf.errors.LedgerCorrupted, match=r"put back|rolled back"):
        made.counts(words(7))
    with pytest.raises(sf.errors.LedgerCorrupted, match=r"put back|rolled back"):
        curator(ledger, Untouchable()).resume_histogram(path, anchor)
    with pytest.raises(sf.errors.InvalidInput, match="anchor"):
        curator(ledger, Untouchable()).resume_histogram(path, "2")
    for other in (tmp_path / "l.db", tmp_path, tmp_path / "none"):
        with pytest.raises(sf.errors.LedgerError):
            curator(ledger, Untouchable()).resume_histogram(other)


def test_a_file_serves_the_debit_that_names_it_alone(ledger: sf.Ledger, tmp_path: Path) -> None:
    """Mutants: a second file resumed on one debit; a file whose debit never came. Each would draw noise of its own."""
    opening = KeyStore(opened(ledger, tmp_path)._cache._chain.path).opening
    for salt in (opening.salt, "other"):
        KeyStore.create(tmp_path / "t.db", replace(opening, salt=salt, about=1))
        with pytest.raises(sf.errors.LedgerError, match="did not pay"):
            curator(ledger, Untouchable()).resume_histogram(tmp_path / "t.db")
        (tmp_path / "t.db").unlink()
    # a debit of this very file, but too small
    cheap = sf.Ledger.create(tmp_path / "c.db", total=PURE)
    forged = KeyStore.create(tmp_path / "t.db", replace(opening, ledger_id=cheap.ledger_id))
    cheap.debit("n", forged.plan_hash, PureEvent("0.01"), ADD)
    with pytest.raises(sf.errors.LedgerError, match="did not pay"):
        curator(cheap, Untouchable()).resume_histogram(tmp_path / "t.db")


def test_a_file_goes_where_its_debit_is_refused(
    ledger: sf.Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: the file left behind. Another process may have taken the name meanwhile."""
    monkeypatch.setattr(sf.Ledger, "expect", lambda *_: None)
    ledger.debit("n", "other", PureEvent("0.5"), ADD)
    with pytest.raises(sf.errors.NameTaken):
        opened(ledger, tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"l.db"}


# ---- what goes wrong -----------------------------------------------------------------------------------------------


def test_what_could_not_be_stored_was_not_shown(
    ledger: sf.Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: values remembered before they are stored; a failure passed on with its text."""
    made = opened(ledger, tmp_path)
    genuine: Callable[..., Any] = FileStore._connect

    class Full(sqlite3.Connection):
        def execute(self, *given: Any) -> Any:
            if given[0] == "COMMIT":
                raise sqlite3.OperationalError("disk is full")
            return super().execute(*given)

    def full(self: Any, write: bool) -> Any:
        genuine(self, write).close()
        return sqlite3.connect(self.path, isolation_level=None, factory=Full)

    with monkeypatch.context() as patched:
        patched.setattr(FileStore, "_connect", full)
        with pytest.raises(sf.errors.LedgerError):
            made.counts(words(5, 6))
    assert made.shown[0].size == 0
    with monkeypatch.context() as patched:
        patched.setattr(KeyTable, "counts_of", lambda *_: 1 / 0)
        with pytest.raises(sf.errors.NotWritten, match="nothing was shown") as failure:
            made.counts(words(5, 6))
        assert failure.value.__context__ is None
    values = made.counts(words(5, 6)).tolist()
    assert curator(ledger).resume_histogram(tmp_path / "s.db").counts(words(5, 6)).tolist() == values


def test_a_copy_does_not_go_on(ledger: sf.Ledger, tmp_path: Path) -> None:
    """Mutants: a fork that draws beside its parent; a pickled histogram."""
    for made in (opened(ledger, tmp_path), curator(ledger).histogram(LAW, PRICE, name="m", plan_hash="h")[0]):
        made.counts(words(5))
        with pytest.raises(sf.errors.BudgetError, match="copied"):
            pickle.dumps(made)
        pid = os.fork()
        if not pid:
            status = 1
            try:
                made.counts(words(6))
            except sf.errors.BudgetError:
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_question_is_field_elements(ledger: sf.Ledger, tmp_path: Path) -> None:
    made = opened(ledger, tmp_path)
    for bad in (words(2**61), np.zeros((1, 1), dtype=np.uint64)):
        with pytest.raises(sf.errors.WorkloadError, match="field elements"):
            made.counts(bad)
    assert made.counts(words()).size == 0
    assert repr(made) == "<LazyHistogram: 0 keys shown>"
    with pytest.raises(AttributeError):  # mutant: noise that anybody may set after it was paid for
        made.noise = made.noise  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    shown = f"{made!r}{curator(ledger)!r}{KeyStore(tmp_path / 's.db').opening!r}"
    assert "digest" not in shown
    assert b"200000" not in (tmp_path / "s.db").read_bytes()
