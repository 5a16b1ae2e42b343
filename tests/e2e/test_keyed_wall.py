"""The wall before universes of keys: paid before read, derived not believed, and nothing of the keys but the sketch.

Every test names the mutants that it was seen to fail on.
"""

from __future__ import annotations

import itertools
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
from sfumato.plans.keys import KeyPlan
from sfumato.privacy.accounting import ApproxEvent, PureEvent
from sfumato.privacy.keyed import Stability
from sfumato.privacy.noise import DiscreteLaplace, NoiseLaw, RoundedGaussian
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.sketches import Buckets, Signs
from support.wall import Touched, Untouchable
from support.words import plan_with

KEYS = sf.Keys()
APPROX = sf.approx(1, "1e-6")
DATA = sf.KeyCounts([5, 2**59, 77, 5], [100_000, 200_000, 3, 1])
UNIT = PrivacyUnit(Neighbours.ADD_REMOVE)


def plan(mechanism: str = "hybrid", neighbours: str = "add-remove", budget: sf.Budget = APPROX) -> KeyPlan:
    own: dict[str, dict[str, Any]] = {
        "histogram": {"queries": [[5, 6], [77]]},
        "sparse-project": {"dimension": 60},
    }
    options = own.get(mechanism, {"width": 64})
    return plan_with(KEYS, budget, neighbours=neighbours, mechanism=mechanism, **options)


def ledger(budget: sf.Budget = APPROX, currency: str | None = "epsilon") -> sf.Ledger:
    return sf.Ledger.in_memory(budget, currency)


# ---- nothing is read that cannot be paid for -------------------------------------------------------------


def _stability(found: KeyPlan, **changes: Any) -> KeyPlan:
    assert found.stability is not None
    return replace(found, stability=replace(found.stability, **changes))


TAMPERED: dict[str, Callable[[KeyPlan], KeyPlan]] = {
    "a lower threshold": lambda p: _stability(p, threshold=106),
    "less noise on keys": lambda p: _stability(p, noise=DiscreteLaplace(7)),
    "less noise": lambda p: replace(p, noise=DiscreteLaplace(1)),
    "another noise": lambda p: replace(p, noise=RoundedGaussian(2**40)),
    "a lower epsilon": lambda p: replace(p, price=ApproxEvent(Fraction(999, 1000), Fraction(1, 10**6))),
    "a lower delta": lambda p: replace(p, price=ApproxEvent(Fraction(1), Fraction(1, 10**7))),
    "no delta": lambda p: replace(p, price=PureEvent(Fraction(1))),
    "a higher epsilon": lambda p: replace(p, price=ApproxEvent(Fraction(2), Fraction(1, 10**6))),
    "a higher delta": lambda p: replace(p, price=ApproxEvent(Fraction(1), Fraction(1, 10**5))),
    "a budget without delta": lambda p: replace(p, budget=sf.pure(1)),
    "other neighbours": lambda p: replace(p, unit=PrivacyUnit(Neighbours.REPLACE_ONE)),
    "persons": lambda p: replace(p, unit=PrivacyUnit(Neighbours.ADD_REMOVE, "who", 2)),
    "more signs": lambda p: replace(p, map=Signs.draw(600)),
    "no map": lambda p: replace(p, map=p.keys),  # type: ignore[arg-type]
    "no law": lambda p: replace(p, noise=p.keys),  # type: ignore[arg-type]
    "no keys": lambda p: replace(p, keys=p.unit),  # type: ignore[arg-type]
    "foreign parts": lambda p: replace(p, map=object()),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("how", TAMPERED)
def test_a_tampered_plan_is_refused_before_the_source_is_touched(how: str) -> None:
    """Mutants: the plan's price or threshold believed; the source opened before the price is derived."""
    account = ledger(sf.approx(100, "0.1"))
    with pytest.raises(sf.errors.InvalidInput):
        sf.release(TAMPERED[how](plan()), Untouchable(), ledger=account)
    assert account.entries() == ()


def test_an_honest_plan_is_carried_out_from_its_file(tmp_path: Path) -> None:
    """The control of the test above."""
    for mechanism in ("hybrid", "count-sketch", "histogram", "sparse-project"):
        plan(mechanism).save(tmp_path / "p")
        found = sf.load(tmp_path / "p")
        with pytest.raises(Touched):
            sf.release(found, Untouchable(), ledger=None)
        assert sf.release(found, DATA, ledger=None).ask([5]).value == pytest.approx(100_001, abs=250_000)


def test_the_ledger_adds_epsilons_and_deltas() -> None:
    """Mutants: the delta of an event not added up; one of the two not compared; delta taken by any ledger."""
    account = ledger(sf.approx(2, "15e-7"))
    sf.release(plan(), DATA, ledger=account, name="one")
    entry = account.find("one")
    assert entry is not None
    assert entry.event == ApproxEvent(Fraction(1), Fraction(1, 10**6))
    assert (account.remaining, account.delta_remaining) == (1, Fraction(1, 2 * 10**6))
    with pytest.raises(sf.BudgetExceeded, match="of delta"):
        sf.release(plan(), Untouchable(), ledger=account, name="two")
    assert not account.quote(plan()).fits
    sf.release(plan("count-sketch"), DATA, ledger=account, name="two")
    with pytest.raises(sf.BudgetExceeded, match="of epsilon"):
        sf.release(plan("count-sketch", budget=sf.pure("0.01")), Untouchable(), ledger=account, name="three")
    for other in (sf.pure(10), sf.gdp(10), sf.zcdp(10), sf.approx(10, "0.1")):
        assert sf.Ledger.in_memory(other).delta_remaining == 0
        with pytest.raises((sf.errors.BudgetError, sf.BudgetExceeded), match="delta"):
            sf.release(plan(), Untouchable(), ledger=sf.Ledger.in_memory(other))


def test_a_ledger_of_deltas_lasts_and_is_checked(tmp_path: Path) -> None:
    """Mutants: the total of deltas lost in the file; a chain that adds up epsilons alone."""
    made = sf.Ledger.create(tmp_path / "l.db", total=APPROX, currency="epsilon")
    sf.release(plan(), DATA, ledger=made, out=tmp_path / "s")
    again = sf.Ledger(tmp_path / "l.db")
    assert (again.remaining, again.delta_remaining, again.epsilon_left()) == (0, 0, 0)
    assert again.export()[0]["delta"] == "1/1000000"
    assert again.verify().unreleased == ()
    for total, currency in ((sf.pure(1), "rho"), (sf.gdp(1), "rho"), (sf.gdp(1), "epsilon"), (APPROX, "euro")):
        with pytest.raises(sf.errors.BudgetError, match="adds"):
            sf.Ledger.in_memory(total, currency)


def test_foreign_classes_are_not_believed() -> None:
    """Mutant: `_own` left out: a map or law of the caller then says what it likes."""

    class Modest(Buckets):
        def largest(self, power: int) -> int:
            return 0

    class Quiet(DiscreteLaplace):
        def sample(self, size: int, source: Any = None) -> Any:
            return np.zeros(size, dtype=np.int64)

    class Low(Stability):
        @property
        def delta(self) -> Fraction:
            return Fraction(0)

    parts: dict[str, Any] = {
        "map": Modest(64, np.array([1], dtype=np.uint64)),
        "noise": Quiet(Fraction(8, 7)),
        "stability": Low(DiscreteLaplace(8), 107),
        "keys": type("Odd", (sf.Keys,), {})(),
    }
    account = ledger(sf.approx(100, "0.1"))
    for name, part in parts.items():
        with pytest.raises(sf.errors.PlanError, match=r"cannot be carried out|library's own"):
            sf.release(replace(plan(), **{name: part}), Untouchable(), ledger=account)
        p = plan()
        given = {"map": p.map, "noise": p.noise, "stability": p.stability, "keys": p.keys, name: part}
        with pytest.raises(sf.errors.PlanError, match="library's own"):
            KeyCurator(Untouchable(), given["keys"], UNIT, account).measure(
                given["map"], given["noise"], p.price, given["stability"], name="n", plan_hash="h"
            )
    assert account.entries() == ()


# ---- the order of steps ----------------------------------------------------------------------------------


def test_debit_then_look_then_noise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Mutants: the debit after the look; noise drawn before the debit; the source opened before the ledger agrees."""
    steps: list[str] = []

    def note(owner: Any, name: str, step: str) -> None:
        real = getattr(owner, name)

        def noted(*args: Any, **options: Any) -> Any:
            steps.append(step)
            return real(*args, **options)

        monkeypatch.setattr(owner, name, noted)

    note(keyed, "costs_at_most", "price")
    note(sf.Ledger, "expect", "ask")
    note(keyed, "open_keys", "read")
    note(sf.Ledger, "debit", "debit")
    note(keyed, "_heavy_hitters", "look")
    note(NoiseLaw, "sample", "noise")
    note(sf.Ledger, "mark_released", "record")
    sf.release(plan(), DATA, ledger=ledger(), out=tmp_path / "s")
    assert [s for s, _ in itertools.groupby(steps)] == ["price", "ask", "read", "debit", "look", "noise", "record"]


def test_a_debit_is_on_disk_before_the_look(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Mutants: the debit after the look; what failed, or its text, passed on."""

    def explode(*_: Any) -> Any:
        seen.append([e.name for e in sf.Ledger(tmp_path / "l.db").unreleased()])
        raise RuntimeError("key 4321")

    seen: list[list[str]] = []
    monkeypatch.setattr(keyed, "_heavy_hitters", explode)
    account = sf.Ledger.create(tmp_path / "l.db", total=APPROX, currency="epsilon")
    with pytest.raises(sf.errors.NotWritten, match="entry 1") as failure:
        sf.release(plan(), DATA, ledger=account, name="n", out=tmp_path / "s")
    assert seen == [["n"]]
    assert "4321" not in str(failure.value)
    assert failure.value.__context__ is None
    assert account.spent == 1
    assert {f.name for f in tmp_path.iterdir()} == {"l.db"}


# ---- what comes out ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["hybrid", "count-sketch", "histogram", "sparse-project"])
def test_only_noisy_integers_and_sorted_heavy_keys_come_out(mechanism: str) -> None:
    """Mutants: heavy keys by count or as they came; exact counts shown; keys below the threshold shown."""
    keys = np.random.default_rng(1).permutation(2000) * 2**48
    counts = np.where(np.arange(2000) % 2, 1, 10_000)
    found = sf.release(plan(mechanism), sf.KeyCounts(keys, counts), ledger=None).measurement
    assert found.values.dtype == np.int64
    heavy = keys[counts > 1] if mechanism == "hybrid" else []
    assert found.heavy.tolist() == sorted(heavy)
    assert (found.heavy_counts == 10_000).sum() <= 0.2 * len(heavy)


def test_keys_are_shown_from_the_threshold_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: a lower threshold than the plan's; `>` for `>=`; the noise left out of the comparison."""
    made = plan()
    assert made.stability is not None
    top = made.stability.threshold
    source = sf.KeyCounts([1, 2, 3, 4], [top - 2, top - 1, top, top + 1])
    for shift, shown in ((0, [3, 4]), (1, [2, 3, 4]), (-2, [])):
        for draw in ("sample", "saturated"):
            monkeypatch.setattr(NoiseLaw, draw, lambda _, size, __=None, shift=shift: np.full(size, shift))
        found = sf.release(made, source, ledger=None).measurement
        assert found.heavy.tolist() == shown
        assert found.heavy_counts.tolist() == [top - 3 + k + shift for k in shown]


def test_what_is_shown_is_subtracted_from_the_sketch() -> None:
    """Mutants: the exact count subtracted; nothing subtracted. The noisy count then is off by the histogram's noise."""
    # one bucket, and almost no noise but the histogram's: shown and rest add up to the count
    found = plan(budget=sf.approx(1000, "1e-6"))
    made = replace(found, map=Buckets(1, np.array([1], dtype=np.uint64)))
    out = [sf.release(made, sf.KeyCounts([9], [5000]), ledger=None) for _ in range(5)]
    assert [o.ask([9]).value for o in out] == [5000] * 5
    assert all(o.measurement.heavy.size == 1 for o in out)


def test_nothing_shows_keys_or_counts(tmp_path: Path) -> None:
    """Mutants: a default repr; a message that quotes a key; the text keys of heavy hitters."""
    holder = KeyCurator(DATA, KEYS, UNIT, ledger())
    p = plan()
    holder.measure(p.map, p.noise, p.price, p.stability, name="n", plan_hash="h")
    shown = f"{holder!r}{holder._table!r}{DATA!r}{sf.release(p, DATA, ledger=None).measurement!r}"
    assert not any(str(n) in shown for n in (2**59, 77, 100_000, 100_001, 200_000, 300_004))
    (tmp_path / "t.csv").write_text("key\nsecret\n")
    with pytest.raises(sf.errors.SourceError) as failure:
        sf.release(
            sf.plan(sf.Keys("url", "text"), sf.pure(1), neighbours="add-remove"), tmp_path / "t.csv", ledger=None
        )
    assert "secret" not in str(failure.value)


# ---- the same name, and files --------------------------------------------------------------------------------


def test_a_stored_sketch_is_read_back_free(tmp_path: Path) -> None:
    """Mutants: measured again under a taken name; another plan's file returned; an existing file overwritten."""
    account, made = ledger(sf.approx(3, "3e-6")), plan()
    first = sf.release(made, DATA, ledger=account, name="n", out=tmp_path / "s")
    again = sf.release(made, Untouchable(), ledger=account, name="n", out=tmp_path / "s")
    assert again.measurement.values.tolist() == first.measurement.values.tolist()
    assert sf.load(tmp_path / "s").ask([5]) == first.ask([5])
    assert account.spent == 1
    for given, out in ((made, None), (made, tmp_path / "other"), (plan(), tmp_path / "s")):
        with pytest.raises(sf.errors.NameTaken):
            sf.release(given, Untouchable(), ledger=account, name="n", out=out)
    (tmp_path / "link").symlink_to(tmp_path / "s")
    for bad in (tmp_path / "s", tmp_path, tmp_path / "link", tmp_path / "no/s", tmp_path / "../x", 5, "a\0b"):
        with pytest.raises(sf.errors.InvalidInput):
            sf.release(made, Untouchable(), ledger=account, name="m", out=bad)  # type: ignore[arg-type]
    assert account.spent == 1
    (tmp_path / "f").write_bytes(b"nothing")
    with pytest.raises(sf.errors.InvalidInput):
        sf.load(tmp_path / "f")
