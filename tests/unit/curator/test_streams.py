"""The door of streams: its order, what it refuses before a look, and what finds a store that was changed."""

from __future__ import annotations

import copy
import os
import pickle
import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.curator import Curator
from sfumato.curator.streams import PublicStream, measuring, open_public_stream, resume_stream
from sfumato.curator.streams import curator as streaming
from sfumato.curator.streams import state as states
from sfumato.curator.streams.measuring import measure_period
from sfumato.curator.streams.state import FORMAT, period_line, read_stream_lines
from sfumato.curator.streams.stored import is_stream, read_stream
from sfumato.errors import (
    BudgetError,
    BudgetExceeded,
    DomainError,
    InvalidInput,
    LedgerCorrupted,
    LedgerError,
    NameTaken,
    NotWritten,
    PlanError,
    SourceError,
)
from sfumato.operators import Family, Residual
from sfumato.privacy.accounting import GaussianEvent, ZcdpEvent
from sfumato.privacy.chain import FileChain
from sfumato.privacy.noise import RoundedGaussian
from sfumato.privacy.stream_price import StreamTerms
from sfumato.privacy.unit import PrivacyUnit
from support.insecure_bits import InsecureTestBits
from support.streams import PERIODS, UNIT, exact, filtered, own_total, price, terms

DOMAIN = sf.Domain({"a": 2, "b": 3})
RESIDUALS = (Residual(2), Residual(3))
HASH = "0" * 64
TABLES = np.random.default_rng(1).integers(0, 50, size=(PERIODS + 1, 2, 3))


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(10**8))
    return tmp_path / "l.db"


def curator(ledger: Path, unit: PrivacyUnit = UNIT, domain: sf.Domain = DOMAIN) -> Curator:
    return Curator(None, domain, unit, sf.Ledger(ledger))


def opened(ledger: Path, of: StreamTerms | None = None, unit: PrivacyUnit = UNIT, **options: Any) -> PublicStream:
    given = terms() if of is None else of
    place = {"name": "s", "plan_hash": HASH, "store": ledger.with_name("s.db")} | options
    return open_public_stream(curator(ledger, unit), given, price(given, unit), **place)[0]


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("most", [1000, 30])
def test_what_is_published_is_what_is_priced_however_often_it_is_resumed(ledger: Path, most: int, *, own: bool) -> None:
    """With noise of 0. Mutants: a state of another period, a period counted twice, no cut, a state of zero; that of a
    total with a filter of its own not kept."""
    of = own_total(terms(most=most)) if own else terms(most=most)
    opened(ledger, of)
    for t, wanted in enumerate(exact(of, TABLES[:PERIODS])):
        found = resume_stream(curator(ledger), ledger.with_name("s.db")).append(sf.Histogram(TABLES[t]), f"p{t}")
        assert (np.concatenate(found.values) == wanted).all()
    kept = read_stream(ledger.with_name("s.db"))
    assert [p.label for p in kept.published] == [f"p{t}" for t in range(PERIODS)]
    again = resume_stream(curator(ledger), ledger.with_name("s.db"))
    with pytest.raises(BudgetError, match="all 6 periods"):
        again.append(sf.Histogram(TABLES[-1]), "one more")


def test_two_that_append_in_turn_go_on_from_each_other(ledger: Path, monkeypatch: Any) -> None:
    """With noise of 0, and a period that fails in the middle. Mutants: the state that was written last taken for that
    in force; one that was changed, for a period that failed, taken again.
    """
    of = terms()
    both = opened(ledger, of), resume_stream(curator(ledger), ledger.with_name("s.db"))
    for t, wanted in enumerate(exact(of, TABLES[:PERIODS])):
        one = both[(0, 1, 1, 0, 0, 1)[t]]
        if t == 4:  # after a period of its own; in 1 and 3 the other one was the last
            with monkeypatch.context() as broken:
                broken.setattr(streaming, "measure_period", spoiled)
                with pytest.raises(NotWritten):
                    one.append(sf.Histogram(TABLES[t]), f"p{t}")
        assert (np.concatenate(one.append(sf.Histogram(TABLES[t]), f"p{t}").values) == wanted).all()


def spoiled(of: StreamTerms, period: int, counts: Any, starts: Any, states: list[np.ndarray], **options: Any) -> Any:
    """Fails when all is changed."""
    states[0] += 1
    raise MemoryError


@pytest.mark.parametrize("chunk", [1, 2, 3, 4, 5, 8, 11, 12, 100])
def test_tables_in_pieces_are_filtered_as_whole_ones(chunk: int, monkeypatch: Any) -> None:
    """Tables of as many cells, of which none weighs as much as another.

    Mutants: a piece at the beginning of its table; states of a copy that are not kept; factors of another table; no
    last piece."""
    monkeypatch.setattr(measuring, "_CHUNK", chunk)
    weights, sets = [4, 2, 1, 3], np.arange(4, dtype=np.int32)[:, None]
    family = Family(tuple("abcd"), (Residual(5),) * 4, sets, weights).lowered()
    of = replace(terms(), families=(family,))
    (starts,) = measuring.first_cells(of, (5, 5, 5, 5))
    states, order = np.zeros((2, 2, 20), dtype=np.int64), np.array([2, 0, 3, 1])
    tables = np.random.default_rng(3).integers(0, 50, size=(PERIODS, 4, 5))
    wanted = [filtered(of.filter, tables[:, i], m, of.grain) for i, m in enumerate(weights)]
    for t in range(PERIODS):
        factors = of.filter.coefficients(t, [weights[i] for i in order], of.grain)
        found = measuring._filter_tables(of.filter, t, factors, tables[t][order], starts[order], states).reshape(4, 5)
        assert all((found[k] == wanted[i][t]).all() for k, i in enumerate(order))


def test_a_period_that_is_published_is_returned_without_a_look(ledger: Path) -> None:
    """Mutants: the source opened first; new noise for a label; another label taken for it."""
    found = opened(ledger, terms(Fraction(2**30)))
    first = found.append(sf.Histogram(TABLES[0]), "p0")
    for source in ("no such file", None, sf.Histogram(TABLES[1]), 3):
        again = found.append(source, "p0")
        assert [v.tolist() for v in again.values] == [v.tolist() for v in first.values]
    assert len(found.published) == 1
    assert resume_stream(curator(ledger), ledger.with_name("s.db")).append("no such file", "p0").label == "p0"


def test_every_period_and_every_opening_has_noise_of_its_own(tmp_path: Path, ledger: Path) -> None:
    """Of the same table. Mutants: one draw for all periods; a seed."""
    values = []
    for name in ("one", "two"):
        found = opened(ledger, terms(Fraction(2**40)), name=name, store=tmp_path / name)
        values += [v for t in range(PERIODS) for v in found.append(sf.Histogram(TABLES[0]), f"p{t}").values]
    every = np.concatenate(values).tolist()
    assert len(set(every)) == len(every) == 2 * PERIODS * 12


def test_what_is_refused_is_refused_before_anything_is_spent(tmp_path: Path, ledger: Path) -> None:
    """Mutants: a price that is not checked; the debit first; a store made before the refusal."""
    of, place = terms(), {"name": "s", "plan_hash": HASH}
    mine, cost = curator(ledger), price(terms())
    less = GaussianEvent(cost.mu_squared * Fraction(999, 1000))
    other = sf.Domain({"a": 2, "c": 3})
    for opening, error in (
        (lambda: open_public_stream(mine, of, less, **place), PlanError),
        (lambda: open_public_stream(mine, of, ZcdpEvent(cost.mu_squared), **place), PlanError),
        (lambda: open_public_stream(curator(ledger, domain=other), of, cost, **place), PlanError),
        (lambda: open_public_stream(curator(ledger, domain=sf.Domain({"a": 2, "b": 4})), of, cost, **place), Exception),
        (lambda: open_public_stream(mine, of, GaussianEvent(10**18), **place), BudgetExceeded),
        (lambda: open_public_stream(mine, of.filter, cost, **place), PlanError),
        (lambda: open_public_stream(mine, of, cost, name="s", plan_hash="a:b"), InvalidInput),
        (lambda: open_public_stream(mine, of, cost, store=ledger, **place), InvalidInput),
        (lambda: open_public_stream(mine, of, cost, store=tmp_path / "no" / "s.db", **place), InvalidInput),
        (lambda: open_public_stream(mine, of, cost, store=tmp_path / ".." / "s.db", **place), InvalidInput),
        (lambda: open_public_stream(_memory_with_bits(), of, cost, store=tmp_path / "s.db", **place), PlanError),
    ):
        with pytest.raises(error):
            opening()
    (tmp_path / "s.db.odd").write_text("of another")
    with pytest.raises(InvalidInput, match=r"s\.db\.odd exists"):
        open_public_stream(mine, of, cost, store=tmp_path / "s.db", **place)
    (tmp_path / "s.db.odd").unlink()
    assert not sf.Ledger(ledger).entries()
    assert not (tmp_path / "s.db").exists()
    opened(ledger)
    with pytest.raises(NameTaken):
        open_public_stream(mine, of, cost, store=tmp_path / "other.db", **place)
    assert not (tmp_path / "other.db").exists()


def _memory_with_bits() -> Curator:
    return Curator(None, DOMAIN, UNIT, sf.Ledger.in_memory(sf.gdp(10**9)), insecure_bits=InsecureTestBits(1))


def test_a_stream_in_memory_is_the_same(monkeypatch: Any) -> None:
    """Mutants: a state that the next period does not see; a failed period that changed it."""
    of = terms()
    made, receipt = open_public_stream(_memory_with_bits(), of, price(of), name="s", plan_hash=HASH)

    def broken(*given: Any, **options: Any) -> None:
        measure_period(*given, **options)
        raise MemoryError

    for t, wanted in enumerate(exact(of, TABLES[:PERIODS])):
        with monkeypatch.context() as patch:
            patch.setattr("sfumato.curator.streams.curator.measure_period", broken)
            with pytest.raises(NotWritten):
                made.append(sf.Histogram(TABLES[t]), f"p{t}")
        assert (np.concatenate(made.append(sf.Histogram(TABLES[t]), f"p{t}").values) == wanted).all()
    assert made.anchor is None
    assert receipt.sequence == made.paid[0]


def test_what_is_told_of_a_stream_is_a_copy_of_what_it_measures_by() -> None:
    """Its arrays can be changed. Mutant: the terms themselves told, so that a multiple is what was not paid for."""
    of = terms()
    made, _ = open_public_stream(_memory_with_bits(), of, price(of), name="s", plan_hash=HASH)
    for family in made.terms.families:
        assert family.multiples is not None
        family.multiples[:] = 2**of.grain
    made.terms.filter.runs[:] = 1
    for t, wanted in enumerate(exact(of, TABLES[:PERIODS])):
        assert (np.concatenate(made.append(sf.Histogram(TABLES[t]), f"p{t}").values) == wanted).all()


def test_no_period_is_measured_within_another() -> None:
    """In memory, too: two draws for one period would cost what one does. Who proposes what is counted is not trusted.

    Mutant: the lock of a stream in memory lets its own thread in again."""
    inner: list[Any] = []

    def packing(shape: Any, sets: Any, rows: int) -> Any:
        inner.append(made.append(sf.Histogram(TABLES[1]), "inside"))
        raise AssertionError

    of = terms()
    rows = pd.DataFrame({"a": [0, 1], "b": [0, 2]})
    declared = {n: sf.Integers(0, k, outside="clamp", missing="other") for n, k in (("a", 0), ("b", 1))}
    held = Curator(None, sf.Domain(declared), UNIT, sf.Ledger.in_memory(sf.gdp(10**8)), packing=packing)
    made, _ = open_public_stream(held, of, price(of, UNIT), name="s", plan_hash=HASH)
    made.append(rows, "outside")
    assert [p.label for p in made.published] == ["outside"]
    assert not inner


def test_a_period_that_fails_is_not_there_and_can_be_appended_again(ledger: Path, monkeypatch: Any) -> None:
    """At every step behind the look. Mutants: a state written in place; a label taken by a failure; its text told."""
    of = terms()
    found = opened(ledger, of)
    wanted = list(exact(of, TABLES[:PERIODS]))
    for t in range(3):
        for target, name, error, raised in (
            ("sfumato.curator.streams.curator.measure_period", None, ValueError("17 records"), NotWritten),
            (states.FileStates, "write", LedgerError("no room"), LedgerError),
        ):
            with monkeypatch.context() as patch:

                def fail(*_: Any, error: Exception = error, **__: Any) -> None:
                    raise error

                patch.setattr(target, fail) if name is None else patch.setattr(target, name, fail)
                with pytest.raises(raised) as told:
                    found.append(sf.Histogram(TABLES[t]), f"p{t}")
                assert "17" not in str(told.value)
        assert len(found.published) == t
        assert (np.concatenate(found.append(sf.Histogram(TABLES[t]), f"p{t}").values) == wanted[t]).all()


def test_a_table_that_cannot_be_loaded_is_told_to_the_custodian_alone(ledger: Path) -> None:
    found = opened(ledger)
    with pytest.raises((SourceError, InvalidInput)):
        found.append("no such file.csv", "p0")
    with pytest.raises(InvalidInput):
        found.append(sf.Histogram([1, 2]), "p0")
    assert not found.published
    for label in ("", "a\nb", 3, None, "x" * 300):
        with pytest.raises(DomainError):
            found.append(sf.Histogram(TABLES[0]), label)  # type: ignore[arg-type]


def test_where_the_number_of_records_is_public_a_period_of_too_many_is_refused(ledger: Path) -> None:
    """Mutants: a cut in place of the refusal, which would cost more; a total that is not told."""
    unit, of = PrivacyUnit("replace-one"), terms(most=100, total=False)
    found = opened(ledger, of, unit)
    table = np.array([[90, 1, 2], [3, 2, 2]])
    period = found.append(sf.Histogram(table), "p0")
    assert period.total == 100
    assert (np.concatenate(period.values) == next(exact(of, table[None]))).all()
    table[0, 0] += 1
    with pytest.raises(SourceError, match="at most 100 records"):
        found.append(sf.Histogram(table), "p1")
    assert len(found.published) == 1


def test_files_are_for_the_custodian_alone(ledger: Path) -> None:
    """Mutants: mode 0644; a file that others may read used; two states kept."""
    found = opened(ledger)
    store = ledger.with_name("s.db")
    for t in range(3):
        found.append(sf.Histogram(TABLES[t]), f"p{t}")
        there = [p for p in (store, store.with_name("s.db.even"), store.with_name("s.db.odd")) if p.exists()]
        assert len(there) == 2
        assert all(p.stat().st_mode & 0o777 == 0o600 for p in there)
    store.chmod(0o644)
    with pytest.raises(LedgerError, match="open to others"):
        resume_stream(curator(ledger), store)


def test_a_store_that_was_changed_or_put_back_is_found(tmp_path: Path, ledger: Path) -> None:
    """Mutants: a state believed; an anchor not compared; both states of one name."""
    found, store = opened(ledger), tmp_path / "s.db"
    odd, even = store.with_name("s.db.odd"), store.with_name("s.db.even")
    found.append(sf.Histogram(TABLES[0]), "p0")
    for p in (store, odd):
        shutil.copy(p, tmp_path / f"{p.name}.old")
    anchors = [found.anchor]
    found.append(sf.Histogram(TABLES[1]), "p1")
    anchors.append(found.anchor)
    good = even.read_bytes()

    def resumed(anchor: str | None = None) -> PublicStream:
        return resume_stream(curator(ledger), store, anchor=anchor)

    even.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(LedgerCorrupted, match="changed or put back"):
        resumed()
    even.write_bytes(good[:-8])
    with pytest.raises(LedgerCorrupted):
        resumed()
    even.write_bytes((tmp_path / "s.db.odd.old").read_bytes())  # the state of another period
    with pytest.raises(LedgerCorrupted):
        resumed()
    even.unlink()
    with pytest.raises(LedgerError, match="cannot be read"):
        resumed()
    even.write_bytes(good)
    even.chmod(0o600)
    assert len(resumed(anchors[0]).published) == len(resumed(anchors[1]).published) == 2
    # put back as a whole it is a stream in good order, which would draw noise for p1 again: the anchor finds it
    shutil.copy(tmp_path / "s.db.old", store)
    with pytest.raises(LedgerError):
        resumed()
    shutil.copy(tmp_path / "s.db.odd.old", odd)
    assert len(resumed().published) == 1
    with pytest.raises(LedgerCorrupted, match="rolled back"):
        resumed(anchors[1])


def test_it_is_resumed_under_its_own_ledger_domain_and_unit(tmp_path: Path, ledger: Path) -> None:
    """Mutants: a file believed about who paid; a price of the store in place of the ledger's."""
    opened(ledger)
    store = ledger.with_name("s.db")
    other = tmp_path / "other.db"
    sf.Ledger.create(other, total=sf.gdp(10**8))
    with pytest.raises(LedgerError, match="another ledger"):
        resume_stream(curator(other), store)
    with pytest.raises(PlanError, match="another domain or privacy unit"):
        resume_stream(curator(ledger, PrivacyUnit("add-remove", "id")), store)
    with pytest.raises(PlanError, match="another domain or privacy unit"):
        resume_stream(curator(ledger, domain=sf.Domain({"a": 2, "b": 4})), store)
    shutil.copy(ledger, tmp_path / "foreign.db")
    (tmp_path / "foreign.db").chmod(0o600)
    with pytest.raises(LedgerError, match="is not a sfumato stream"):
        resume_stream(curator(ledger), tmp_path / "foreign.db")
    assert is_stream(store)
    assert not is_stream(ledger)


def test_it_is_not_copied_and_belongs_to_one_process(ledger: Path) -> None:
    found = opened(ledger)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(BudgetError):
            copied(found)
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            found.append(sf.Histogram(TABLES[0]), "p0")
        except BudgetError:
            os.write(writing, b"refused")
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(writing)
    assert os.read(reading, 100) == b"refused"


def test_foreign_terms_are_not_believed(ledger: Path) -> None:
    """Mutant: terms taken as they are, not built anew by the library's own constructors."""

    class Cheap(StreamTerms):
        def fits(self, *_: object) -> bool:
            return True

    of = terms()
    own = Cheap(of.filter, of.families, of.grain, of.noise, 1, 1, of.most)
    with pytest.raises(PlanError):
        open_public_stream(curator(ledger), own, GaussianEvent(Fraction(1)), name="s", plan_hash=HASH)
    lying = replace(of, filter=replace(of.filter))
    lying.filter.__dict__["response"] = lambda *_: 1
    with pytest.raises(PlanError, match="costs more"):
        open_public_stream(curator(ledger), lying, GaussianEvent(price(of).mu_squared / 2), name="s", plan_hash=HASH)
    changed = replace(of)
    object.__setattr__(changed, "noise", RoundedGaussian(Fraction(1, 1000)))
    found, _ = open_public_stream(curator(ledger), changed, price(of), name="s", plan_hash=HASH)
    object.__setattr__(changed, "noise", None)
    assert found.terms.noise.sigma == Fraction(1, 1000)


def test_lines_that_do_not_follow_are_refused(ledger: Path) -> None:
    """Whoever knows the key could write them. Mutants: a label twice, a period too many, other values."""
    found = opened(ledger)
    standing = FileChain(ledger.with_name("s.db"), FORMAT, read_stream_lines).read().state
    good = found.append(sf.Histogram(TABLES[0]), "p0")
    one = period_line(good, "d")
    assert read_stream_lines(standing, [one]).published[0].label == "p0"
    for bad in (
        [one, one],
        [period_line(replace(good, label=str(t)), "d") for t in range(PERIODS + 1)],
        [period_line(replace(good, values=good.values[1:]), "d")],
    ):
        with pytest.raises(ValueError, match="period"):
            read_stream_lines(standing, bad)
