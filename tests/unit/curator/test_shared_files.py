"""What other threads and processes may do to a store: its lock, its growth, the rights on it, its debit.

Mutants named were seen to fail.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.curator import Curator
from sfumato.curator.conversations import open_conversation
from sfumato.curator.keys import KeyCurator
from sfumato.curator.keys.store import KeyStore
from sfumato.curator.keys.stored import is_histogram
from sfumato.curator.selecting import select
from sfumato.interactive import session_status
from sfumato.operators import Block, Dense
from sfumato.privacy.accounting import BoundedRangeEvent, GaussianEvent, PureEvent, ZcdpEvent
from sfumato.privacy.chain import Turn
from sfumato.privacy.noise import DiscreteLaplace, NoiseLaw, RoundedGaussian
from sfumato.privacy.selection import Candidates
from sfumato.sketches.maps import Listed
from support.conversations import COST, HASH, TERMS, UNIT, high, opened, question
from support.wall import DOMAIN, Untouchable

KEYS = sf.KeyCounts(np.array([5, 77]), np.array([100_000, 3]))
LAW, PRICE = DiscreteLaplace(Fraction(1)), PureEvent(Fraction(1))
TAKE = "BEGIN IMMEDIATE"
WRITE = "CREATE TABLE more (x); DROP TABLE more"


@pytest.fixture
def ledger(tmp_path: Path) -> sf.Ledger:
    return sf.Ledger.create(tmp_path / "l.db", total=sf.zcdp(10**6))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "c.db"


def elsewhere(store: Path, statements: str) -> bool:
    """Whether another process, which does not wait, may do this to the file."""
    code = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).executescript(sys.argv[2])"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, str(store), statements], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 or "database is locked" in done.stderr, done.stderr
    return done.returncode == 0


def look_by_hand(store: Path) -> None:
    """On POSIX this gives up every lock that the process has on the file."""
    store.read_bytes()


def status(store: Path) -> None:
    with suppress(sf.SfumatoError):  # it is no session's
        session_status(store)


def asking(ledger: sf.Ledger, store: Path) -> Callable[[Callable[[], object]], object]:
    """A conversation, asked while something happens."""
    asked = opened(ledger, store)
    return lambda happens: asked.ask(lambda steps: (happens(), high(steps))[1])


def counting(ledger: sf.Ledger, store: Path) -> Callable[[Callable[[], object]], object]:
    """A histogram, asked for a key while something happens."""
    keys = KeyCurator(KEYS, sf.Keys(), UNIT, ledger)
    histogram, _ = keys.histogram(LAW, PRICE, name="n", plan_hash=HASH, store=store)

    def ask(happens: Callable[[], object]) -> object:
        with pytest.MonkeyPatch.context() as patch:
            sample = NoiseLaw.sample

            def draw(law: NoiseLaw, size: int) -> Any:
                happens()
                return sample(law, size)

            patch.setattr(NoiseLaw, "sample", draw)
            return histogram.counts(np.array([5], dtype=np.uint64))

    return ask


@pytest.mark.parametrize("kind", [asking, counting])
@pytest.mark.parametrize("look", [is_histogram, status])
def test_looking_at_a_file_leaves_its_lock_alone(
    kind: Callable[..., Any], look: Callable[[Path], object], ledger: sf.Ledger, store: Path
) -> None:
    """Mutant: the kind of a file read from its first bytes, and the file closed: another process then took a turn
    within the turn, and two answers came of one noisy threshold."""
    free: list[bool] = []
    kind(ledger, store)(lambda: (look(store), free.append(elsewhere(store, TAKE))))
    assert free == [False]
    assert elsewhere(store, TAKE)
    assert is_histogram(store) is (kind is counting)


@pytest.mark.skipif(os.name != "posix", reason="elsewhere locks belong to descriptors")
@pytest.mark.parametrize("kind", [asking, counting])
def test_a_turn_that_lost_its_lock_gives_nothing(kind: Callable[..., Any], ledger: sf.Ledger, store: Path) -> None:
    """Mutant: a commit over what another process has written in the meantime."""
    ask, done = kind(ledger, store), list[bool]()
    with pytest.raises(sf.errors.LedgerError, match="its lock was lost"):
        ask(lambda: (look_by_hand(store), done.append(elsewhere(store, WRITE))))
    assert done == [True]
    with sqlite3.connect(store) as connection:
        assert connection.execute("SELECT count(*) FROM lines").fetchone()[0] == 1 + (kind is asking)
    connection.close()
    ask(lambda: None)  # and it goes on


@pytest.mark.skipif(os.name != "posix", reason="elsewhere locks belong to descriptors")
def test_a_debit_that_lost_its_lock_is_none(ledger: sf.Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: as above. A debit over another's would spend twice."""
    genuine = Turn.append

    def append(*args: Any) -> None:
        look_by_hand(tmp_path / "l.db")
        elsewhere(tmp_path / "l.db", WRITE)
        genuine(*args)

    with monkeypatch.context() as patch:
        patch.setattr(Turn, "append", append)
        with pytest.raises(sf.errors.LedgerError, match="its lock was lost"):
            ledger.debit("a", HASH, ZcdpEvent(Fraction(1)), UNIT)
    assert ledger.entries() == ()


def test_a_file_put_back_before_every_question_answers_once(ledger: sf.Ledger, store: Path) -> None:
    """Mutant: an object that has not seen its own last step, so that one epoch answers without end."""
    asked, old = opened(ledger, store), store.with_name("old.db")
    shutil.copy2(store, old)
    asked.ask(high)
    for _ in range(2):
        os.replace(shutil.copy2(old, store.with_name("again.db")), store)
        with pytest.raises(sf.errors.LedgerCorrupted, match="put back"):
            asked.ask(high)


def test_a_payment_is_seen_by_who_made_it(ledger: sf.Ledger, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a first threshold that can be taken back unseen, and drawn anew."""
    genuine = sf.Ledger.debit

    def debit(self: sf.Ledger, *args: Any) -> Any:
        shutil.copy2(store, store.with_name("old.db"))
        return genuine(self, *args)

    monkeypatch.setattr(sf.Ledger, "debit", debit)
    asked = opened(ledger, store)
    os.replace(store.with_name("old.db"), store)
    with pytest.raises(sf.errors.LedgerCorrupted, match="put back"):
        asked.ask(high)


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620])
def test_a_histogram_open_to_others_is_refused(mode: int, ledger: sf.Ledger, store: Path) -> None:
    """Mutant: rights looked at for conversations alone. Its salt and digest confirm a guess of the table."""
    counting(ledger, store)
    store.chmod(mode)
    for use in (
        lambda: KeyStore(store),
        lambda: KeyCurator(Untouchable(), sf.Keys(), UNIT, ledger).resume_histogram(store),
        lambda: session_status(store),
    ):
        with pytest.raises(sf.errors.LedgerError, match="open to others"):
            use()
    store.chmod(0o600)
    assert KeyStore(store).opening.name == "n"


HASHED = f"{HASH[:32]}:{HASH[:32]}"
BLOCKS = (Block((("a",),), (Dense(np.ones((1, 5), dtype=np.int64)),)),)
BOUGHT: dict[str, Callable[[Curator, KeyCurator, Path], object]] = {
    "converse": lambda c, _, p: open_conversation(c, TERMS, COST, name="n", plan_hash=HASHED),
    "converse in a file": lambda c, _, p: open_conversation(c, TERMS, COST, name="n", plan_hash=HASHED, store=p),
    "measure": lambda c, _, p: c.measure(
        BLOCKS, RoundedGaussian(Fraction(1)), GaussianEvent(Fraction(10)), name="n", plan_hash=HASHED
    ),
    "select": lambda c, _, p: select(
        c,
        Candidates(BLOCKS, *(np.ones(1, dtype=np.int64) for _ in range(3))),
        BoundedRangeEvent(Fraction(1)),
        name="n",
        plan_hash=HASHED,
    ),
    "prepaid": lambda c, _, p: c.prepaid(ZcdpEvent(Fraction(1)), name="n", plan_hash=HASHED),
    "measure by keys": lambda _, k, p: k.measure(
        Listed(np.array([5], dtype=np.uint64)), LAW, PRICE, None, name="n", plan_hash=HASHED
    ),
    "histogram": lambda _, k, p: k.histogram(LAW, PRICE, name="n", plan_hash=HASHED),
    "histogram in a file": lambda _, k, p: k.histogram(LAW, PRICE, name="n", plan_hash=HASHED, store=p),
    "converse over keys": lambda _, k, p: k.converse(TERMS, COST, name="n", plan_hash=HASHED),
}


@pytest.mark.parametrize("door", BOUGHT)
def test_no_door_pays_under_the_hash_of_a_file(door: str, ledger: sf.Ledger, store: Path) -> None:
    """Mutant: a plan_hash believed, so that a file whose opening was cut short goes on for another's debit."""
    source: Any = Untouchable()
    with pytest.raises(sf.errors.InvalidInput, match="no ':'"):
        BOUGHT[door](Curator(source, DOMAIN, UNIT, ledger), KeyCurator(source, sf.Keys(), UNIT, ledger), store)
    assert ledger.entries() == ()
    assert not store.exists()


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "mine"),
        sqlite3.OperationalError("mine"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "mine"),
        KeyError("mine"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_what_forming_a_question_raises_passes_as_it_is(
    error: Exception, kept: bool, ledger: sf.Ledger, store: Path
) -> None:
    """Mutants: an error of the caller's own read as damage of the file; a turn kept open by it."""
    asked = opened(ledger, store if kept else None)

    def form(_: Any) -> Any:
        raise error

    with pytest.raises(type(error)) as failure:
        asked.ask(form)
    assert failure.value is error
    assert (error.__cause__, error.__context__) == (None, None)
    assert (asked.asked, asked.remaining) == (0, 3)
    assert asked.ask(lambda _: question()).above
