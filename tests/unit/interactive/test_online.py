"""Sessions of private multiplicative weights through the public door: what is asked, paid, remembered and refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import LedgerError, WorkloadError
from sfumato.interactive import opening, session_status
from sfumato.interactive.opening import OnlineSession
from support.sessions import COUNTS, DOMAIN, GENEROUS, RECORDS, SURE, TABLE, conversing, opened, stored
from support.words import plan_with


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_answers_keep_to_their_bounds_and_say_how_they_were_come_by(neighbours: str) -> None:
    with opened(neighbours, updates=40, threshold=600, beta=SURE) as asked:
        for i in range(16):
            found = asked.ask(f"x <= {i} and y == 'b'")
            exact = float(COUNTS[: i + 1, 1].sum())
            assert found.how in ("hypothesis", "measured")
            assert found.guaranteed
            assert found.bound is not None
            assert found.bound == (asked.plan.hard_bound if found.how == "measured" else asked.plan.easy_bound)
            assert (found.standard_error is None) == (found.how == "hypothesis")
            assert abs(found.value - exact) <= found.bound
            assert found.low == found.value - found.bound
            assert found.high == found.value + found.bound
        state = asked.status()
        assert state["questions"] == 16 == asked.asked
        assert state["easy"] + state["hard"] == 16
        assert state["updates_used"] == state["hard"] > 0
        assert state["updates_left"] == asked.remaining == 40 - state["hard"]
        assert asked.hypothesis.sum() == pytest.approx(RECORDS, rel=0.02)


def test_the_penalty_is_the_threshold() -> None:
    """Mutant: a threshold that is not penalised. A gap of half of it is easy, a gap of twice it is hard, at 8-GDP."""
    half = np.zeros(48, dtype=np.int64)
    half[:24], half[24:] = 50_000 // 24, 50_000 // 24
    half[0] += RECORDS - half.sum()
    gap = 4000
    half[:24] += gap // 24
    half[24:] -= gap // 24
    for threshold, how in ((2 * gap, "hypothesis"), (gap // 2, "measured")):
        mechanism = sf.mechanisms.pmw(updates=5, threshold=threshold)
        asked = sf.open(
            sf.plan(DOMAIN, GENEROUS, neighbours="replace-one", records=RECORDS, mechanism=mechanism),
            sf.Histogram(half),
            ledger=None,
        )
        assert asked.ask("x < 8").how == how


def test_the_usual_threshold_grows_as_updates_are_used_up() -> None:
    """Mutant: a promise that grows."""
    plan = sf.plan(DOMAIN, GENEROUS, neighbours="replace-one", records=RECORDS, mechanism=sf.mechanisms.pmw(updates=10))
    assert plan.growing
    assert [plan.threshold_after(u) for u in (0, 5)] == [plan.threshold] * 2
    assert plan.threshold_after(10) == 4 * plan.threshold
    assert plan.threshold_after(8) == round(plan.threshold * 4**0.6)
    for options in ({"threshold": 900}, {"alpha": "least"}):
        given: dict[str, Any] = {"neighbours": "replace-one", "records": 10_000, **options}
        fixed = plan_with(DOMAIN, sf.gdp("0.5"), mechanism="pmw", **given)
        assert fixed.threshold_after(fixed.updates) == fixed.threshold
        assert (fixed.refit >= 2 * fixed.bounds.g) == (fixed.alpha is not None)


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_a_bound_is_that_of_the_threshold_in_force(neighbours: str) -> None:
    """Mutants: a bound of the first threshold; the purchase counted as an update."""
    table = np.zeros(48, dtype=np.int64)
    table[[0, 16, 31, 47]] = 30_000, 30_000, 30_000, 10_000
    given: dict[str, Any] = {"neighbours": neighbours, "records": RECORDS, "updates": 4, "threshold": 2000}
    plan = replace(plan_with(DOMAIN, GENEROUS, mechanism="pmw", **given), growing=True)
    asked = OnlineSession(plan, conversing(plan, table))
    assert asked.ask("x >= 0").bound == 2000 + plan.bounds.v
    for cell in (0, 16, 31):
        assert asked.ask(f"x == {cell // 3} and y == '{'abc'[cell % 3]}'").how == "measured"
    found = asked.ask("x >= 0")
    assert (found.how, found.bound) == ("hypothesis", 4000 + plan.bounds.v)
    assert asked.status()["easy_bound"] == found.bound


def test_two_who_begin_at_once_buy_the_number_of_records_once() -> None:
    """Mutant: a purchase without a look at what was said meanwhile."""
    plan = sf.plan(
        DOMAIN,
        GENEROUS,
        neighbours="add-remove",
        records=RECORDS,
        mechanism=sf.mechanisms.pmw(updates=3, threshold=1000),
    )
    conversation = conversing(plan, TABLE)
    first = OnlineSession(plan, conversation)
    assert first.hypothesis.sum() > 0

    class Late:
        """A conversation as it was seen before the other session spoke."""

        seen = False

        def __getattr__(self, name: str) -> Any:
            if name == "steps" and not self.seen:
                self.seen = True
                return ()
            return getattr(conversation, name)

    second = OnlineSession(plan, Late())  # type: ignore[arg-type]
    assert second.hypothesis.tobytes() == first.hypothesis.tobytes()
    assert conversation.asked == 1


def test_an_update_moves_the_hypothesis_toward_the_answer() -> None:
    """Mutant: the sign of the update."""
    asked = opened(updates=5, threshold=10)
    found = asked.ask("y == 'a'")
    assert found.how == "measured"
    told = asked.hypothesis.reshape(16, 3)[:, 0].sum()
    assert abs(told - found.value) < 0.1 * abs(RECORDS / 3 - found.value) + 200
    # what the question does not tell apart stays alike
    assert np.ptp(asked.hypothesis.reshape(16, 3), axis=0).max() < 1e-6


def test_the_total_is_bought_where_it_is_private() -> None:
    """Mutant: records= taken for the number of records."""
    asked = opened("add-remove", records=30_000, updates=6, threshold=1000)
    assert asked.plan.updates == asked.remaining == 6
    assert asked.plan.terms.epochs.count == 7
    assert asked.hypothesis.sum() == pytest.approx(RECORDS, abs=100)
    found = asked.ask("x >= 0")
    assert found.how == "hypothesis"
    assert abs(found.value - RECORDS) < 100
    assert asked.status()["questions"] == asked.asked == 1
    assert asked.remaining == asked.status()["updates_left"] == 6


def test_an_interrupted_purchase_is_made_once(tmp_path: Path) -> None:
    first, place = stored(tmp_path, neighbours="add-remove", updates=3, threshold=1000)
    assert session_status(place)["updates_left"] == first.remaining == 3
    second = sf.load(place, ledger=tmp_path / "budget.db", source=sf.Histogram(TABLE))
    assert isinstance(second, OnlineSession)
    assert second.hypothesis.sum() == first.hypothesis.sum() == pytest.approx(RECORDS, abs=100)
    assert (first.asked, first.remaining) == (second.asked, second.remaining) == (0, 3)


def test_a_persons_rows_move_answers_together(tmp_path: Path) -> None:
    rows = "\n".join(f"{i % 400},{i % 16},{'abc'[i % 3]}" for i in range(1200))
    (tmp_path / "rows.csv").write_text(f"who,x,y\n{rows}\n", encoding="utf-8")
    domain = sf.Domain(
        {
            "x": sf.Integers(0, 15, outside="other", missing="other"),
            "y": sf.Categories(["a", "b", "c"], outside="other", missing="other"),
        }
    )
    for neighbours in ("add-remove", "replace-one"):
        asked = sf.open(
            sf.plan(
                domain,
                GENEROUS,
                neighbours=neighbours,
                records=1000,
                person="who",
                rows_per_person=3,
                mechanism=sf.mechanisms.pmw(updates=8, threshold=40, beta=SURE),
            ),
            tmp_path / "rows.csv",
            ledger=None,
        )
        # under replace-one, too, a person may have fewer rows than another: the number of rows is private
        assert asked.plan.buys
        assert asked.plan.terms.move == 3
        found = asked.ask("x < 8")
        assert found.bound is not None
        assert abs(found.value - 600) <= found.bound


def test_the_number_of_records_is_read_where_it_is_public() -> None:
    asked = opened(records=None, updates=3)
    assert asked.plan.records == RECORDS
    with pytest.raises(sf.errors.PlanError, match="public under replace-one; plan with that"):
        opened(records=RECORDS + 1)
    ledger = sf.Ledger.in_memory(GENEROUS)
    opened(records=None, updates=3, ledger=ledger, name="n" * 128)
    assert ledger.remaining == 0
    assert [e.price for e in ledger.entries() if e.kind == "spend"] == [0, 64]


def test_once_exhausted_answers_are_the_hypothesis_and_claim_nothing() -> None:
    """Mutant: exhausted answers that are called guaranteed."""
    asked = opened(updates=1, threshold=1)
    assert asked.ask("x == 3").how == "measured"
    assert asked.remaining == 0
    before = asked.hypothesis.copy()
    for i in range(16):
        found = asked.ask(f"x == {i}")
        assert (found.how, found.guaranteed, found.bound, found.low, found.standard_error) == (
            "exhausted",
            False,
            None,
            None,
            None,
        )
        assert found.value == round(before.reshape(16, 3)[i].sum())
    assert asked.asked == 1
    assert "without any guarantee" in asked.explain()
    assert asked.status()["exhausted"]
    assert asked.status()["guaranteed_questions"] == 0


def test_questions_beyond_the_number_promised_are_answered_without_the_promise() -> None:
    asked = opened(updates=5, threshold=50_000, questions=2)
    assert [asked.ask("x == 3").guaranteed for _ in range(4)] == [True, True, False, False]


def test_a_workload_is_one_question_a_row() -> None:
    asked = opened(updates=30, threshold=300, beta=SURE)
    found = asked.ask(sf.marginals(DOMAIN, 1))
    assert [f.label for f in found] == sf.marginals(DOMAIN, 1).labels()
    assert asked.asked == 19
    exact = [*COUNTS.sum(1), *COUNTS.sum(0)]
    assert max(abs(f.value - e) for f, e in zip(found, exact, strict=True)) <= asked.plan.easy_bound


def test_wrong_questions_are_refused_and_cost_nothing() -> None:
    asked = opened(updates=3, threshold=1)
    other = sf.Domain({"z": 4})
    for question, error in (
        ("z == 1", WorkloadError),
        ("x == 1; drop", WorkloadError),
        (sf.queries(np.full((1, 16), 0.5), DOMAIN, "x"), WorkloadError),
        (sf.queries(np.arange(16)[None], DOMAIN, "x"), WorkloadError),
        (sf.queries(np.tile([1, -1], 8)[None], DOMAIN, "x"), WorkloadError),
        (sf.stack(sf.marginals(DOMAIN, 1), sf.queries(np.full((1, 16), 2), DOMAIN, "x")), WorkloadError),
        (sf.total(other), sf.SfumatoError),
    ):
        with pytest.raises(error):
            asked.ask(question)
    assert asked.asked == 0
    assert asked.remaining == 3
    wide = opened(updates=3, threshold=1, span=15)
    assert wide.ask(sf.queries(np.arange(16)[None], DOMAIN, "x"))[0].how == "measured"
    # one record moves a signed count no further than an unsigned one, where it is added or removed
    signed = opened("add-remove", updates=3, threshold=1).ask(sf.queries(np.tile([1, -1], 8)[None], DOMAIN, "x"))
    exact = float((COUNTS.sum(1) * np.tile([1, -1], 8)).sum())
    assert abs(signed[0].value - exact) < 1000


def test_the_whole_budget_is_debited_at_the_opening_and_nothing_later() -> None:
    for total in (sf.zcdp("0.3"), sf.gdp(2), sf.pure(3), sf.approx(2, "1e-6")):
        ledger = sf.Ledger.in_memory(total)
        asked = opened("add-remove", total, ledger=ledger, updates=4, threshold=5)
        assert ledger.remaining == 0
        asked.ask(sf.marginals(DOMAIN, 1))
        assert len([e for e in ledger.entries() if e.kind == "spend"]) == 1
    ledger = sf.Ledger.in_memory(sf.zcdp("0.3"))
    with pytest.raises(sf.BudgetExceeded):
        opened("add-remove", sf.zcdp("0.4"), ledger=ledger)
    assert ledger.remaining == Fraction(3, 10)


def test_a_stored_session_goes_on_where_it_was(tmp_path: Path) -> None:
    """Mutant: a hypothesis that is not replayed."""
    first, place = stored(tmp_path, updates=12, threshold=300)
    told = [first.ask(f"x <= {i}") for i in range(8)]
    second = sf.load(place, ledger=tmp_path / "budget.db", source=sf.Histogram(TABLE))
    assert isinstance(second, OnlineSession)
    assert second.hypothesis.tobytes() == first.hypothesis.tobytes()
    assert second.status() == first.status()
    assert second.plan.fingerprint == first.plan.fingerprint
    # both go on, in turn, and follow each other
    told += [second.ask("y == 'c'"), first.ask("y == 'a'")]
    assert first.asked == second.asked == 10 == len(told)
    assert second.hypothesis.tobytes() == first.hypothesis.tobytes()
    assert session_status(place)["questions"] == 10
    assert sf.Ledger(tmp_path / "budget.db").remaining == 0
    with pytest.raises(sf.errors.SourceError):
        sf.load(place, ledger=tmp_path / "budget.db", source=sf.Histogram(np.roll(TABLE, 1)))
    with pytest.raises(sf.errors.InvalidInput, match="does not remember its table"):
        sf.load(place, ledger=tmp_path / "budget.db")
    _an_older_copy_is_found(place, second)
    sf.Ledger.create(tmp_path / "other.db", total=GENEROUS)
    with pytest.raises(LedgerError):
        sf.load(place, ledger=tmp_path / "other.db", source=sf.Histogram(TABLE))


def _an_older_copy_is_found(place: Path, asked: OnlineSession) -> None:
    """Also where it is put back between the two readings. Mutant: an anchor that the conversation is not held to."""
    ledger, before, old = place.parent / "budget.db", asked.anchor, place.read_bytes()
    assert asked.ask("x <= 9").value is not None
    assert asked.anchor == session_status(place)["anchor"] != before
    newest, new = asked.anchor, place.read_bytes()

    real = opening.read_transcript

    def read(store: Any, anchor: str | None = None, **more: Any) -> Any:
        found = real(store, anchor, **more)
        place.write_bytes(old)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "read_transcript", read)
        with pytest.raises(sf.errors.LedgerCorrupted, match="rolled back"):
            sf.load(place, ledger=ledger, source=sf.Histogram(TABLE), anchor=newest)
    with pytest.raises(sf.errors.LedgerCorrupted, match="rolled back"):
        sf.load(place, ledger=ledger, source=sf.Histogram(TABLE), anchor=newest)
    place.write_bytes(new)


def test_the_promise_of_alpha() -> None:
    """Mutants: a promise that ignores the records; updates that run out."""
    asked = opened(budget=sf.gdp("0.5"), alpha="least", questions=50, beta=SURE)
    plan = asked.plan
    assert plan.alpha is not None
    assert plan.alpha == plan.threshold + plan.bounds.v
    assert "the updates last" in plan.explain()
    for i in range(16):
        found = asked.ask(f"x == {i} or y == 'b'")
        exact = float(COUNTS[i].sum() + COUNTS[:, 1].sum() - COUNTS[i, 1])
        assert abs(found.value - exact) <= plan.alpha
    assert asked.remaining
    smaller = sf.plan(
        DOMAIN,
        sf.gdp("0.5"),
        neighbours="replace-one",
        records=RECORDS // 10,
        mechanism=sf.mechanisms.pmw(alpha="least", beta=SURE, questions=50),
    )
    assert smaller.alpha is not None
    assert smaller.alpha / smaller.records > 1.5 * plan.alpha / plan.records
    with pytest.raises(sf.errors.PlanError, match="cannot be promised"):
        opened(budget=sf.gdp("0.5"), alpha=plan.alpha / RECORDS / 2, questions=50, beta=SURE)
    with pytest.raises(sf.errors.PlanError, match="sets the updates"):
        opened(alpha=0.5, updates=3)
