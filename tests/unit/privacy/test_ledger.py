"""The ledger file: what it accepts, what it refuses, and when it is written."""

from __future__ import annotations

import copy
import os
import pickle
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from sfumato.errors import BudgetError, BudgetExceeded, InvalidInput, LedgerCorrupted, LedgerError, NameTaken
from sfumato.privacy import chain, debits, files
from sfumato.privacy.accounting import BoundedRangeEvent, Event, GaussianEvent, PureEvent, ZcdpEvent, event_price
from sfumato.privacy.amounts import Currency
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger import Ledger
from sfumato.privacy.unit import Neighbours, PrivacyUnit

PLAN, RESULT = "a" * 64, "b" * 64
ONE = PureEvent(Fraction(1))
UNIT = PrivacyUnit(Neighbours.ADD_REMOVE)


@dataclass(frozen=True)
class Plan:
    price: Event


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.db"


@pytest.fixture(params=["file", "memory"])
def make(request: pytest.FixtureRequest, path: Path) -> Callable[[Budget], Ledger]:
    return Ledger.in_memory if request.param == "memory" else lambda total: Ledger.create(path, total=total)


# Spending ------------------------------------------------------------------------------------------------------------


def test_a_release_from_quote_to_record(make: Callable[[Budget], Ledger]) -> None:
    ledger = make(Budget.zcdp("1.5"))
    quote = ledger.quote(Plan(GaussianEvent(Fraction(1))))
    assert (quote.price, quote.remaining, quote.remaining_after, quote.fits) == (
        Fraction(1, 2),
        Fraction(3, 2),
        Fraction(1),
        True,
    )
    assert str(quote) == "costs 0.5 of rho; 1.5 is left; 1 would remain"
    receipt = ledger.debit("2026-11", PLAN, GaussianEvent(Fraction(1)), UNIT)
    assert (receipt.sequence, receipt.price, receipt.currency) == (1, Fraction(1, 2), Currency.RHO)
    assert receipt.anchor == ledger.anchor
    assert (ledger.spent, ledger.remaining) == (Fraction(1, 2), Fraction(1))
    (spend,) = ledger.unreleased()
    assert (spend.name, spend.plan_hash, spend.released, spend.result_hash) == ("2026-11", PLAN, False, None)
    ledger.mark_released(receipt, RESULT)
    assert ledger.unreleased() == ()
    spend, released = ledger.entries()
    assert ledger.find("2026-11") == spend
    assert (spend.kind, spend.released, spend.result_hash) == ("spend", True, RESULT)
    assert (released.kind, released.price, released.cumulative) == ("released", 0, Fraction(1, 2))
    assert ledger.find("2026") is None
    check = ledger.verify(receipt.anchor)
    assert (check.entries, check.spent, check.remaining, check.unreleased) == (2, Fraction(1, 2), 1, ())
    (row,) = ledger.export()
    assert tuple(row) == Ledger.EXPORTED
    event = {"mechanism": "gaussian", "sensitivity": "1", "scale": "1", "guarantee": "1", "delta": ""}
    whose = {"name": "2026-11", "unit": "one record added or removed", "table": ""}
    price = {"price": "1/2", "currency": "rho", "paid": "epsilon 4.887 at delta 1e-6", "stored": "yes", "line": "1"}
    assert row == event | whose | price | {"plan": PLAN, "time": spend.time}
    assert "1 of 1.5 rho left; 1 spends, 0 unreleased" in repr(ledger)


def test_the_total_its_currency_and_what_is_left_to_read() -> None:
    for budget in (Budget.pure("1/3"), Budget.approx(1, "1e-6"), Budget.zcdp("0.1"), Budget.gdp("0.5")):
        ledger = Ledger.in_memory(budget)
        assert (ledger.total, ledger.currency, ledger.remaining) == (budget, budget.currency, budget.total)
    assert 1 <= Ledger.in_memory(Budget.approx(1, "1e-6")).epsilon_left() <= 1 + Fraction(1, 10**12)


def test_an_epsilon_delta_total_can_be_kept_as_rho(path: Path) -> None:
    """Mutants: mu^2/2 kept for rho, which is more; `remaining` read as mu^2; any total kept in any currency."""
    total = Budget.approx(1, "1e-6")
    for ledger in (Ledger.create(path, total=total, currency="rho"), Ledger.in_memory(total, "rho")):
        assert (ledger.currency, ledger.remaining) == (Currency.RHO, total.rho)
        assert total.rho < total.mu_squared / 2
        assert 1 - Fraction(1, 10**12) <= ledger.epsilon_left() <= 1
        with pytest.raises(BudgetExceeded):
            ledger.debit("a", PLAN, GaussianEvent(total.mu_squared), UNIT)
        ledger.debit("a", PLAN, ZcdpEvent(total.rho), UNIT)
        assert ledger.remaining == ledger.epsilon_left() == ledger.delta_remaining == 0
    assert Ledger(path).currency is Currency.RHO
    for other in (Budget.pure(1), Budget.gdp(1)):
        with pytest.raises(BudgetError, match="where the total is"):
            Ledger.in_memory(other, "rho")


def test_ten_tenths_fit_one_and_nothing_more(make: Callable[[Budget], Ledger]) -> None:
    """Mutant: prices kept as floats or REAL columns."""
    ledger = make(Budget.pure("1"))
    for number in range(10):
        ledger.debit(f"n{number}", PLAN, PureEvent("0.1"), UNIT)  # type: ignore[arg-type]
    assert ledger.remaining == 0
    before = ledger.anchor
    for value in ("1e-300", "0.1", "1e18"):
        with pytest.raises(BudgetExceeded):
            ledger.debit("more", PLAN, PureEvent(value), UNIT)  # type: ignore[arg-type]
    assert not ledger.quote(Plan(PureEvent("1e-300"))).fits  # type: ignore[arg-type]
    assert ledger.anchor == before
    ledger.debit("free", PLAN, PureEvent(Fraction(0)), UNIT)


def test_a_refusal_names_the_numbers_and_harms_nothing(make: Callable[[Budget], Ledger]) -> None:
    """Mutants: `>=` for `>`; a debit before the check; a ledger that stays refused."""
    ledger = make(Budget.zcdp("0.5"))
    with pytest.raises(BudgetExceeded) as refusal:
        ledger.debit("a", PLAN, ZcdpEvent(Fraction(1, 2) + Fraction(1, 10**30)), UNIT)
    assert (refusal.value.requested - refusal.value.remaining, refusal.value.remaining) == (
        Fraction(1, 10**30),
        Fraction(1, 2),
    )
    assert "difference 1e-30" in str(refusal.value)
    assert ledger.entries() == ()
    ledger.debit("a", PLAN, ZcdpEvent(Fraction(1, 2)), UNIT)
    assert ledger.remaining == 0


def test_a_thousand_spends_on_disk_reach_zero_exactly(path: Path) -> None:
    """Mutant: prices kept as floats."""
    ledger, event = Ledger.create(path, total=Budget.zcdp(1)), ZcdpEvent(Fraction(1, 1000))
    for number in range(1000):
        ledger.debit(f"n{number}", PLAN, event, UNIT)
    assert ledger.remaining == 0
    with pytest.raises(BudgetExceeded):
        ledger.debit("more", PLAN, ZcdpEvent(Fraction(1, 10**300)), UNIT)


def test_every_event_is_priced_in_the_ledgers_currency() -> None:
    """Mutant: the event's own parameter taken as the price."""
    all_events = [make(Fraction(1, 2)) for make in (GaussianEvent, PureEvent, ZcdpEvent, BoundedRangeEvent)]
    for budget in (Budget.pure(100), Budget.zcdp(100), Budget.gdp(100), Budget.approx(100, "1e-6")):
        ledger, spent = Ledger.in_memory(budget), Fraction(0)
        for event in all_events:
            try:
                cost = event_price(event, budget.currency)
            except BudgetError:
                with pytest.raises(BudgetError, match="no price"):
                    ledger.debit(type(event).__name__, PLAN, event, UNIT)
                continue
            assert ledger.debit(type(event).__name__, PLAN, event, UNIT).price == cost
            spent += cost
            assert ledger.entries()[-1].event == event
        assert ledger.spent == spent > 0


def test_a_price_is_in_the_currency_that_the_ledger_was_made_with(make: Callable[[Budget], Ledger]) -> None:
    """Mutant: in that which the object says, which anybody may set: in rho a Gaussian event costs half its mu^2."""
    ledger = make(Budget.gdp(1))
    ledger.currency = Currency.RHO
    assert ledger.debit("a", PLAN, GaussianEvent(Fraction(3, 4)), UNIT).price == Fraction(3, 4)
    with pytest.raises(BudgetExceeded):
        ledger.debit("b", PLAN, GaussianEvent(Fraction(1, 2)), UNIT)


def test_a_name_is_spent_once(make: Callable[[Budget], Ledger]) -> None:
    """Mutant: a replayed name that is debited, or released, again."""
    ledger = make(Budget.pure(10))
    receipt = ledger.debit("a", PLAN, ONE, UNIT)
    for plan in (PLAN, "c" * 64):
        with pytest.raises(NameTaken, match="line 1"):
            ledger.debit("a", plan, ONE, UNIT)
    ledger.mark_released(receipt, RESULT)
    with pytest.raises(LedgerError, match="already"):
        ledger.mark_released(receipt, RESULT)
    with pytest.raises(NameTaken):
        ledger.debit("a", PLAN, ONE, UNIT)
    assert ledger.spent == 1


class _Shown(str):
    """A text that shows another one, and is equal to none."""

    shown = "c" * 64 + ":" + "d" * 32

    def __str__(self) -> str:
        return self.shown

    def __format__(self, spec: str) -> str:
        return self.shown

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return str.__hash__(self)


def test_texts_of_other_classes_are_what_their_letters_are(make: Callable[[Budget], Ledger]) -> None:
    """The hash in the ledger is the one that was checked: another, of a file, would be paid for by this debit too.

    Mutants: the line written of what a text shows of itself; a name that compares itself."""
    ledger = make(Budget.pure(10))
    for _ in range(2):  # the second is refused, as its name is taken
        with suppress(NameTaken):
            ledger.debit(_Shown("a"), _Shown(PLAN), ONE, UNIT)
    (entry,) = ledger.entries()
    assert (entry.name, entry.plan_hash) == ("a", PLAN)
    assert ledger.find(_Shown("a")) == ledger.find("a")
    assert ledger.paid("a", _Shown(PLAN)) is not None
    assert ledger.paid("a", _Shown("b" * 64)) is None


def test_receipts_of_other_ledgers_release_nothing(make: Callable[[Budget], Ledger]) -> None:
    ledger, other = make(Budget.pure(10)), Ledger.in_memory(Budget.pure(10))
    receipt, foreign = ledger.debit("a", PLAN, ONE, UNIT), other.debit("a", PLAN, ONE, UNIT)
    ledger.debit("b", PLAN, ONE, UNIT)
    for forged in (foreign, replace(receipt, name="b"), replace(receipt, name="z"), replace(receipt, sequence=2)):
        with pytest.raises(LedgerError):
            ledger.mark_released(forged, RESULT)
    with pytest.raises(LedgerCorrupted):
        ledger.mark_released(replace(receipt, anchor=foreign.anchor), RESULT)
    assert len(ledger.unreleased()) == 2


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            " a",
            "a ",
            ".",
            "..",
            ".hidden",
            "a/b",
            "a\\b",
            "a\nb",
            "a\tb",
            "a\x00",
            "x" * 129,
            "a\u202eb",
            "a\u200bb",
        ),
        *("a\ud800", "e\u0301", None, 3, b"a", "\x1b[31m", "a\u2028b"),
    ],
)
def test_names_that_could_mislead_are_refused(name: str) -> None:
    ledger = Ledger.in_memory(Budget.pure(10))
    with pytest.raises(InvalidInput, match="name"):
        ledger.debit(name, PLAN, ONE, UNIT)
    assert ledger.entries() == ()


@pytest.mark.parametrize("name", ["2026-11", "Übersicht Nr. 3", "x" * 128, "人口", "a:b", "'; DROP TABLE entries; --"])
def test_ordinary_names_are_kept(name: str, make: Callable[[Budget], Ledger]) -> None:
    ledger = make(Budget.pure(10))
    ledger.debit(name, PLAN, ONE, UNIT)
    assert ledger.entries()[0].name == name


@pytest.mark.parametrize("value", ["", "a b", "a\n", "x" * 129, None, "é"])
def test_hashes_are_plain_text(value: str) -> None:
    ledger = Ledger.in_memory(Budget.pure(10))
    with pytest.raises(InvalidInput, match="plan_hash"):
        ledger.debit("a", value, ONE, UNIT)
    with pytest.raises(InvalidInput, match="result_hash"):
        ledger.mark_released(ledger.debit("a", PLAN, ONE, UNIT), value)


def test_sums_that_outgrow_the_file_are_refused() -> None:
    """Prices with ever new denominators would make every line longer than the last."""
    ledger = Ledger.in_memory(Budget.pure(10))
    for number in (1, 3):
        ledger.debit(f"n{number}", PLAN, PureEvent(Fraction(1, 2**4000 - number)), UNIT)
    with pytest.raises(BudgetError, match="round this price up"):
        ledger.debit("n5", PLAN, PureEvent(Fraction(1, 2**4000 - 5)), UNIT)
    assert len(ledger.entries()) == 2


# The file ------------------------------------------------------------------------------------------------------------


def test_a_debit_is_committed_and_synced_before_it_returns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: a debit without COMMIT; a read outside the write lock; synchronous=NORMAL; WAL."""
    ledger, statements = Ledger.create(path, total=Budget.pure(10)), list[str]()
    genuine = sqlite3.connect

    def traced(*args: object, **kwargs: object) -> sqlite3.Connection:
        connection = genuine(*args, **kwargs)  # type: ignore[call-overload]
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr(files.sqlite3, "connect", traced)
    ledger.debit("a", PLAN, ONE, UNIT)
    kinds = [text.split()[0] for text in statements if text.split()[0] in ("BEGIN", "SELECT", "INSERT", "COMMIT")]
    begin = statements.index("BEGIN IMMEDIATE")
    assert statements.index("PRAGMA synchronous=EXTRA") < begin
    assert begin < next(i for i, text in enumerate(statements) if "FROM lines" in text)
    assert kinds[-2:] == ["INSERT", "COMMIT"]
    with closing(genuine(path)) as other:
        assert other.execute("SELECT count(*) FROM lines").fetchone() == (2,)
        assert other.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    with ledger._chain.file.transaction(write=True) as connection:  # type: ignore[attr-defined]
        assert connection.execute("PRAGMA synchronous").fetchone() == (3,)


def test_reading_never_writes(path: Path) -> None:
    ledger = Ledger.create(path, total=Budget.pure(10))
    ledger.mark_released(ledger.debit("a", PLAN, ONE, UNIT), RESULT)
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    for read in (ledger.entries, ledger.verify, ledger.export, ledger.unreleased, lambda: repr(Ledger(path))):
        read()
    with pytest.raises(BudgetExceeded):
        ledger.debit("b", PLAN, PureEvent(Fraction(100)), UNIT)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    with (
        ledger._chain.file.transaction(write=False) as connection,  # type: ignore[attr-defined]
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        connection.execute("DELETE FROM lines")


def test_reopening_and_a_second_object_see_the_same(path: Path) -> None:
    first = Ledger.create(path, total=Budget.approx(1, "1e-6"))
    second = Ledger(str(path))
    second.debit("a", PLAN, GaussianEvent(Fraction(1, 100)), UNIT)
    assert first.entries() == second.entries() == Ledger(path).entries()
    assert first.ledger_id == second.ledger_id
    assert first.total == second.total == Budget.approx(1, "1e-6")
    assert first.durable
    again = pickle.loads(pickle.dumps(first))
    again.debit("b", PLAN, GaussianEvent(Fraction(1, 100)), UNIT)
    assert first.find("b") is not None


def test_odd_paths_are_only_paths(tmp_path: Path) -> None:
    for name in ("a b?mode=memory#x%20.db", "ünï.db", ":memory:", "file:x.db"):
        path = tmp_path / name
        Ledger.create(path, total=Budget.pure(1)).debit("a", PLAN, ONE, UNIT)
        assert path.is_file()
        assert Ledger(path).remaining == 0
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "ünï.db")
    assert Ledger(link).remaining == 0


def test_paths_that_hold_no_ledger(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "text").write_text("name,age\n" * 1000)
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "fifo")
    with closing(sqlite3.connect(tmp_path / "foreign")) as foreign:
        foreign.execute("CREATE TABLE entries (a)")
    for name in ("missing", "dangling", "loop", "text", "empty", "fifo", "foreign", ".", "a/b", "nul\0"):
        with pytest.raises(LedgerError):
            Ledger(tmp_path / name)
    assert not (tmp_path / "nowhere").exists()
    assert (tmp_path / "empty").stat().st_size == 0
    for name in ("dangling", "text", "foreign", "fifo", ".", "a/b", "nul\0"):
        with pytest.raises(LedgerError):
            Ledger.create(tmp_path / name, total=Budget.pure(1))
    with pytest.raises(BudgetError):
        Ledger.create(tmp_path / "new", total="1")  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()


def test_a_second_name_of_the_file_is_refused_for_spending(path: Path) -> None:
    """A journal is found by the file's name, so a crash under one name could not be undone under the other."""
    ledger = Ledger.create(path, total=Budget.pure(1))
    path.with_name("other").hardlink_to(path)
    assert ledger.remaining == 1
    with pytest.raises(LedgerError, match="hard links"):
        ledger.debit("a", PLAN, ONE, UNIT)


def test_an_interrupted_creation_leaves_nothing_in_the_way(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty file counts as none: it can be made again, and says what it is.

    Mutants: "exists", and then "damaged; restore it"; an empty file that is taken away, though another process fills
    it; one that is a link, or has content, taken for one that was begun.
    """
    with monkeypatch.context() as patch:
        patch.setitem(chain.SCHEMA, "lines", "CREATE TABLE no sense")
        with pytest.raises(LedgerError):
            Ledger.create(path, total=Budget.pure(1))
    assert [f.stat().st_size for f in path.parent.iterdir()] == [0]
    with pytest.raises(LedgerError, match="ended early, and nothing was paid; make it again"):
        Ledger(path)
    made = Ledger.create(path, total=Budget.pure(2))
    assert (made.remaining, Ledger(path).ledger_id) == (2, made.ledger_id)
    with pytest.raises(LedgerError, match="exists"):
        Ledger.create(path, total=Budget.pure(1))
    link = path.with_name("link")
    link.symlink_to(path.with_name("empty"))
    path.with_name("empty").touch()
    with pytest.raises(LedgerError, match="exists"):
        Ledger.create(link, total=Budget.pure(1))


def test_a_busy_ledger_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.create(path, total=Budget.pure(1))
    monkeypatch.setattr(files, "BUSY_SECONDS", 0.01)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert ledger.remaining == 1
        with pytest.raises(LedgerError, match="busy"):
            ledger.debit("a", PLAN, ONE, UNIT)
        other.execute("ROLLBACK")
    ledger.debit("a", PLAN, ONE, UNIT)


def test_an_old_sqlite_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(LedgerError, match=r"3\.37"):
        Ledger.create(path, total=Budget.pure(1))


def test_threads_share_one_object(make: Callable[[Budget], Ledger]) -> None:
    """Mutant: the lock left out, so that transactions of one connection in memory mix."""
    ledger, granted = make(Budget.pure(40)), list[str]()

    def spend(who: int) -> None:
        try:
            for number in range(41):
                granted.append(ledger.debit(f"{who}.{number}", PLAN, ONE, UNIT).name)
                ledger.verify()
        except BudgetExceeded:
            return

    threads = [threading.Thread(target=spend, args=(who,)) for who in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(granted) == 40
    assert ledger.remaining == 0


def test_a_debit_between_reading_and_checking_is_no_alarm(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: what was read is compared with what this object has seen only after the transaction has ended."""
    ledger, others = Ledger.create(path, total=Budget.pure(10)), list[threading.Thread]()

    genuine = chain.FileChain._follow

    def follow_slowly(*args: Any) -> Any:
        if not others:
            others.append(threading.Thread(target=ledger.debit, args=("a", PLAN, ONE, UNIT)))
            others[0].start()
            others[0].join(timeout=0.3)
        return genuine(*args)

    monkeypatch.setattr(chain.FileChain, "_follow", follow_slowly)
    assert ledger.remaining == 10
    others[0].join()
    assert ledger.remaining == 9


def test_an_account_in_memory_stays_in_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a forked copy of an account in memory that spends the same budget again."""
    ledger = Ledger.in_memory(Budget.pure(1))
    assert not ledger.durable
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(LedgerError, match="belongs to the process"):
        ledger.debit("a", PLAN, ONE, UNIT)


def test_an_account_in_memory_is_not_copied() -> None:
    """Mutant: a copy that spends the same budget again."""
    ledger = Ledger.in_memory(Budget.pure(1))
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(BudgetError, match="copied"):
            copied(ledger._chain)
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(BudgetError, match="copied"):
            copied(ledger)


def test_a_line_that_could_not_be_read_again_is_not_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a line that is committed before it is followed: the ledger would refuse itself for ever."""
    ledger = Ledger.create(path, total=Budget.pure(1))
    genuine = debits.spend_line
    with monkeypatch.context() as patch:
        patch.setattr(debits, "spend_line", lambda *a: genuine(*a) + b"\nmore")
        with pytest.raises(ValueError, match="no spend"):
            ledger.debit("a", PLAN, ONE, UNIT)
    assert Ledger(path).entries() == ledger.entries() == ()
    ledger.debit("a", PLAN, ONE, UNIT)
