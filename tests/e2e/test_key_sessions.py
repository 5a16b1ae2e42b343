"""Sessions over universes of keys: what they answer, what they promise, and what they refuse.

Every test names the mutants that it was seen to fail on. Chances of a false alarm are below 1e-9.
"""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.curator.keys import KeyCurator
from sfumato.interactive import opening, session_status
from sfumato.interactive.key_plans import plan_sparse
from sfumato.privacy.accounting import GaussianEvent, PureEvent
from sfumato.privacy.conversation_price import Terms
from sfumato.privacy.keyed import KeyQuestion
from sfumato.privacy.noise import DiscreteLaplace, RoundedGaussian
from sfumato.privacy.selection import Epochs
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.sketches import Listed
from support.wall import Untouchable
from support.words import open_with, plan_with

KEYS = sf.Keys()
PURE = sf.pure(1)
COUNTED = np.random.default_rng(3).choice(2**60, 300, replace=False)
COUNTS = np.random.default_rng(4).multinomial(100_000, np.random.default_rng(5).dirichlet(np.full(300, 0.05)))
DATA = sf.KeyCounts(COUNTED, COUNTS)
ADD = PrivacyUnit(Neighbours.ADD_REMOVE)


def session(
    mechanism: str, *, source: Any = DATA, keys: sf.Keys = KEYS, budget: sf.Budget = PURE, **options: Any
) -> Any:
    common: dict[str, Any] = {"neighbours": "add-remove", "ledger": None, "mechanism": mechanism}
    return open_with(source, keys, budget, **(common | options))


def words(*keys: int) -> Any:
    return np.array(keys, dtype=np.uint64)


# ---- the lazy histogram ---------------------------------------------------------------------------------------------


def test_a_histogram_answers_sums_with_the_error_it_states() -> None:
    """Mutants: weights left out or in the caller's order; a variance of one key for all; absent keys without noise."""
    errors: list[float] = []
    inside, draws = 0, np.random.default_rng(6)
    with session("histogram") as s:
        for start in range(0, 40_000, 8):
            absent = (np.arange(start, start + 6) * 2**40 + 1).tolist()
            present = int(draws.integers(300))
            keys, weights = [absent[0], int(COUNTED[present]), *absent[1:]], [1, 2, -1, 0.5, 1, 1, -3]
            answer = s.ask(keys, weights) if start < 300 * 8 else s.ask(absent, [1, -1, 0.5, 1, 1, -3])
            truth = 2 * int(COUNTS[present]) if start < 300 * 8 else 0
            assert answer.guaranteed
            assert answer.how == "histogram"
            errors.append((answer.value - truth) / answer.standard_error)
            inside += answer.low <= truth <= answer.high
        assert s.status()["keys"] > 30_000 - 300
    assert abs(np.mean(np.square(errors[300:])) - 1) < 0.13
    assert abs(inside / len(errors) - 0.95) < 0.022


def test_noise_follows_the_budget_the_neighbours_and_the_ledger() -> None:
    """Mutants: replace-one with the noise of add-remove; a budget overspent by the law of another currency."""
    plans = {
        name: session("histogram", **options).plan
        for name, options in {
            "add": {},
            "swap": {"neighbours": "replace-one"},
            "zcdp": {"budget": sf.zcdp("0.5")},
            "approx": {"budget": sf.approx(1, "1e-6")},
            "gauss": {"budget": sf.approx(1, "1e-6"), "ledger": sf.Ledger.in_memory(sf.approx(1, "1e-6"))},
            "epsilons": {
                "budget": sf.approx(1, "1e-6"),
                "ledger": sf.Ledger.in_memory(sf.approx(1, "1e-6"), currency="epsilon"),
            },
        }.items()
    }
    for name, scale in (("add", 1), ("swap", 2), ("approx", 1), ("epsilons", 1)):
        assert plans[name].noise == DiscreteLaplace(scale)
        assert plans[name].price == PureEvent(1)
    assert isinstance(plans["gauss"].price, GaussianEvent)
    assert math.sqrt(plans["gauss"].noise.variance) == pytest.approx(4.2347, rel=1e-3)
    assert isinstance(plans["zcdp"].noise, RoundedGaussian)
    assert plans["zcdp"].noise.sigma == 1
    assert "drawn once" in str(plans["add"])
    for kept, budget in (("add", PURE), ("gauss", sf.approx(1, "1e-6"))):
        planned = plan_with(
            KEYS,
            budget,
            neighbours="add-remove",
            mechanism="histogram",
            currency=sf.Ledger.in_memory(budget).currency.value,
        )
        assert (planned.noise, planned.price) == (plans[kept].noise, plans[kept].price)
    several = session("histogram", source=_table(), person="who", rows_per_person=3)
    assert several.plan.noise == DiscreteLaplace(3)


def _table() -> Any:
    import pandas as pd

    return pd.DataFrame({"key": [5, 5, 5, 5, 6, 7], "who": ["a", "a", "a", "a", "b", None]})


def test_texts_are_asked_for_by_name() -> None:
    """Mutant: texts told apart by another hash than the table's."""
    source = sf.KeyCounts(np.array(["tea", "coffee", "tea"], dtype=object), [40_000, 10_000, 1])
    with session("histogram", source=source, keys=sf.Keys("drink", "text")) as s:
        assert s.ask(["tea"]).value == pytest.approx(40_001, abs=60)
        assert s.ask(["coffee", "milk"], [2, 1]).value == pytest.approx(20_000, abs=120)
        assert s.ask(["tea"]) == s.ask(["tea"])


def test_a_stored_session_goes_on_and_can_be_published(tmp_path: Path) -> None:
    """Mutants: a resumed session that draws anew; a release with keys that were not asked, or with exact counts."""
    import pandas as pd

    pd.DataFrame({"key": np.repeat([5, 9], [3000, 20])}).to_csv(tmp_path / "t.csv", index=False)
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.pure(2))
    options: dict[str, Any] = {"source": tmp_path / "t.csv", "ledger": tmp_path / "l.db", "store": tmp_path / "s.db"}
    first = session("histogram", **options)
    with pytest.raises(sf.errors.WorkloadError, match="no key"):
        first.release()
    answers = [first.ask([5]), first.ask([5, 8]), first.ask([8, 10])]
    again = sf.load(tmp_path / "s.db", ledger=tmp_path / "l.db")
    assert [again.ask([5]), again.ask([5, 8]), again.ask([8, 10])] == answers
    assert again.ask([9]).value == pytest.approx(20, abs=40)
    status = session_status(tmp_path / "s.db")
    assert (status["mechanism"], status["keys"], status["name"]) == ("histogram", 4, "session")
    assert json.dumps(status)
    before = (tmp_path / "s.db").read_bytes()
    again.ask([77])
    anchor = session_status(tmp_path / "s.db")["anchor"]
    (tmp_path / "s.db").write_bytes(before)
    with pytest.raises(sf.errors.LedgerCorrupted, match="rolled back"):
        sf.load(tmp_path / "s.db", ledger=tmp_path / "l.db", anchor=anchor)
    again = sf.load(tmp_path / "s.db", ledger=tmp_path / "l.db", anchor=status["anchor"])
    assert again.anchor == status["anchor"]
    assert session("histogram").anchor is None
    assert (ledger.spent, ledger.unreleased()) == (1, ())
    released = again.release()
    released.save(tmp_path / "r")
    found = sf.load(tmp_path / "r")
    assert found.ask([5, 8]).value == answers[1].value
    assert found.ask([5, 8]).standard_error == answers[1].standard_error
    assert isinstance(found.measurement.map, Listed)
    assert found.measurement.map.elements.tolist() == [5, 8, 9, 10]
    with pytest.raises(sf.errors.WorkloadError, match="not among"):
        found.ask([11])
    pd.DataFrame({"key": np.repeat([5, 9], [3000, 21])}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(sf.errors.SourceError, match="not the one"):
        sf.load(tmp_path / "s.db", ledger=tmp_path / "l.db")


@pytest.mark.parametrize(("mechanism", "options"), [("histogram", {}), ("sparse-mw", {"records": 10**5, "size": 4})])
def test_what_the_ledger_could_not_be_told_is_paid_for_and_goes_on(
    mechanism: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: the ledger's own error passed on, which reads as if nothing had been spent."""

    def refuse(*_: Any) -> None:
        raise sf.errors.LedgerError("the disk is full")

    ledger, store = sf.Ledger.create(tmp_path / "l.db", total=PURE), tmp_path / "s"
    with monkeypatch.context() as patch:
        patch.setattr(sf.Ledger, "mark_released", refuse)
        with pytest.raises(sf.errors.NotWritten, match=r"paid for and kept.*the disk is full.*sf.open"):
            session(mechanism, ledger=ledger, store=store, **options)
    assert (ledger.spent, ledger.remaining) == (1, 0)
    with session(mechanism, ledger=ledger, store=store, **options) as again:
        assert again.ask([1, 2]).how in ("histogram", "hypothesis", "measured")


@pytest.mark.parametrize("mechanism", ["histogram", "sparse-mw"])
def test_a_file_put_back_while_it_is_resumed_is_found(
    mechanism: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: an anchor that is held against the first reading alone."""
    ledger, store = tmp_path / "l.db", tmp_path / "s.db"
    sf.Ledger.create(ledger, total=PURE)
    sizes = {"records": 100_000, "size": 2} if mechanism == "sparse-mw" else {}
    made = session(mechanism, ledger=ledger, store=store, **sizes)
    made.ask([5])
    old, before = store.read_bytes(), made.anchor
    made.ask([6])
    assert made.anchor == session_status(store)["anchor"] != before
    read = opening.read_histogram if mechanism == "histogram" else opening.read_transcript

    def late(*given: Any, **more: Any) -> Any:
        found = read(*given, **more)
        store.write_bytes(old)
        return found

    monkeypatch.setattr(opening, read.__name__, late)
    with pytest.raises(sf.errors.LedgerCorrupted, match="rolled back"):
        sf.load(store, ledger=ledger, source=DATA, anchor=made.anchor)
    assert sf.load(store, ledger=ledger, source=DATA, anchor=before).anchor == before


# ---- sparse multiplicative weights -----------------------------------------------------------------------------------


def test_a_question_of_keys_moves_by_one_record() -> None:
    """By brute force over neighbours. Mutants: keys that are counted twice; replace-one taken to move two."""
    tables = [t for t in itertools.product(range(3), repeat=3) if sum(t) <= 3]
    sets = [words(*s) for n in (1, 2, 3) for s in itertools.combinations((0, 1, 2), n)]
    for keys in sets:
        question = KeyQuestion(keys, 1, 2)
        for x, y in itertools.permutations(tables, 2):
            change = sorted(b - a for a, b in zip(x, y, strict=True) if a != b)
            if change in ([1], [-1], [-1, 1]):
                one, other = (question.scores([sum(t[int(k)] for k in keys)])[0] for t in (x, y))
                assert abs(one - other) <= 1
    assert KeyQuestion(words(0, 2), 4, 3).scores([9, 1]) == [2, 0]
    for bad in (words(2, 1), words(1, 1), words(), np.array([1, 2]), words(2**61)):
        with pytest.raises(sf.errors.PlanError):
            KeyQuestion(bad, 0, 0)
    for numbers in ((0.5, 0), (0, True)):
        with pytest.raises(sf.errors.PlanError):
            KeyQuestion(words(1), *numbers)  # type: ignore[arg-type]


def test_a_conversation_about_keys_is_paid_for_its_persons() -> None:
    """Mutants: rows of a person left out of what score or answer move; a foreign class believed."""
    epochs = Epochs(5, Fraction(1))
    question = KeyQuestion(words(5), 0, 0)

    class Modest(KeyQuestion):
        def scores(self, answers: Any) -> list[int]:
            return [1000 * a for a in answers]

    for rows, moves, answers, fits in ((1, 1, 1, True), (2, 1, 2, False), (2, 2, 1, False), (2, 2, 2, True)):
        unit = PrivacyUnit(Neighbours.ADD_REMOVE, "who", rows)
        curator = KeyCurator(_table(), KEYS, unit, sf.Ledger.in_memory(sf.zcdp(1000)))
        terms = Terms(Epochs(5, Fraction(1), moves), DiscreteLaplace(1), answers)
        made, _ = curator.converse(terms, terms.cost(PureEvent), name="n", plan_hash="h")
        if fits:
            assert made.ask(lambda steps: question).question.elements.tolist() == [5]
            with pytest.raises(sf.errors.PlanError, match="library's own"):
                made.ask(lambda steps: Modest(words(5), 0, 0))
            continue
        with pytest.raises(sf.errors.PlanError, match="move by up to 2"):
            made.ask(lambda steps: question)
    cheap = KeyCurator(Untouchable(), KEYS, ADD, sf.Ledger.in_memory(sf.zcdp(1000)))
    with pytest.raises(sf.errors.PlanError, match="costs more"):
        cheap.converse(Terms(epochs, DiscreteLaplace(1)), PureEvent(9), name="n", plan_hash="h")


def test_sparse_weights_answer_within_what_they_promise(tmp_path: Path) -> None:
    """Mutants: the estimate left out of the score; an update with the wrong sign; easy answers told as measured."""
    sf.Ledger.create(tmp_path / "l.db", total=sf.approx(1, "1e-6"))
    options: dict[str, Any] = {"records": 120_000, "size": 20, "questions": 300, "beta": 1e-9}
    options |= {"ledger": tmp_path / "l.db", "store": tmp_path / "s.db", "budget": sf.approx(1, "1e-6")}
    made = session("sparse-mw", **options)
    plan, asked = made.plan, list[Any]()
    heavy, draws = COUNTED[np.argsort(-COUNTS)], np.random.default_rng(7)
    for i in range(60):
        # the heaviest key with others, half of which occur, so that some questions are hard
        keys = np.unique([heavy[i % 3], *draws.choice(COUNTED, 8), *draws.integers(0, 2**60, 8)])[:20]
        truth = int(COUNTS[np.isin(COUNTED, keys)].sum())
        if i == 30:
            made = sf.load(tmp_path / "s.db", ledger=tmp_path / "l.db", source=DATA)
        answer = made.ask(keys)
        asked.append(answer)
        assert answer.guaranteed
        assert abs(answer.value - truth) <= (plan.easy_bound if answer.how == "hypothesis" else plan.hard_bound)
        assert answer.bound == (plan.easy_bound if answer.how == "hypothesis" else plan.hard_bound)
    status = made.status()
    kinds = [a.how for a in asked]
    assert {*kinds} == {"hypothesis", "measured"}
    assert (status["hard"], status["easy"]) == (kinds.count("measured"), kinds.count("hypothesis"))
    assert status["updates_left"] == plan.updates - kinds.count("measured")
    assert session_status(tmp_path / "s.db")["hard"] == status["hard"]


def test_weights_learn_what_was_measured_and_end() -> None:
    """Mutants: no update; answers after the last update that claim a guarantee; a belief that differs when replayed."""
    made = session("sparse-mw", records=100_000, size=2, updates=3, threshold=100, budget=sf.pure(300))
    heavy = COUNTED[np.argsort(-COUNTS)][:8].tolist()
    truths = {k: int(COUNTS[list(COUNTED).index(k)]) for k in heavy}
    first = made.ask(heavy[:2])
    assert first.how == "measured"
    again = made.ask(heavy[:2])
    assert again.how == "hypothesis"
    assert abs(again.value - truths[heavy[0]] - truths[heavy[1]]) < 200
    answers = [made.ask([k]) for k in heavy[2:]]
    assert [a.how for a in answers[-2:]] == ["exhausted"] * 2
    assert not any(a.guaranteed or a.bound for a in answers if a.how == "exhausted")
    assert made.status()["exhausted"]
    assert "exhausted" in made.explain()
    steps = made._conversation.steps
    replayed = type(made)(made.plan, made._conversation)
    assert replayed.ask([heavy[5]]).value == made.ask([heavy[5]]).value
    assert sum(s.above for s in steps) == 3


def test_bounds_are_for_so_many_questions() -> None:
    """Mutant: a guarantee beyond the questions that bounds were made for."""
    made = session("sparse-mw", records=100_000, size=1, questions=2)
    answers = [made.ask([k]) for k in (1, 2, 3)]
    assert [a.guaranteed for a in answers] == [True, True, False]
    assert made.status()["guaranteed_questions"] == 0


def test_the_plan_says_that_a_histogram_errs_less() -> None:
    """S12.8: dominated. Mutant: advice that does not compare."""
    for records in (10**4, 10**6):
        made = plan_sparse(KEYS, sf.approx(1, "1e-6"), ADD, records=records, size=64)
        assert "errs less" in str(made)
        assert made.slots == 64 * made.updates
    assert (
        sf.plan(
            KEYS, PURE, neighbours="add-remove", records=10**4, mechanism=sf.mechanisms.sparse_mw(size=64)
        ).mechanism
        == "sparse-mw"
    )
    tiny = plan_sparse(KEYS, PURE, ADD, records=10**4, size=2**20, updates=1, threshold=1, questions=1)
    assert "would err" in tiny.advice


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_what_is_no_question_is_refused_and_costs_nothing() -> None:
    for mechanism in ("histogram", "sparse-mw"):
        limits: dict[str, Any] = {} if mechanism == "histogram" else {"records": 10, "size": 3}
        made = session(mechanism, **limits)
        for bad in ([1, 1], [-1], [2**60], ["a"], 5, [0.5]):
            with pytest.raises(sf.errors.WorkloadError):
                made.ask(bad)
        with pytest.raises(sf.errors.WorkloadError):
            made.ask([1, 2], [1])
        assert made.status().get("keys", 0) == made.status()["questions"] or made.status()["questions"] is None
    with pytest.raises(sf.errors.WorkloadError, match="weight 1"):
        made.ask([1], [2])
    with pytest.raises(sf.errors.WorkloadError, match="1 to 3 keys"):
        made.ask([1, 2, 3, 4])
    assert made.status()["questions"] == 0


@pytest.mark.parametrize(
    ("mechanism", "options", "text"),
    [
        ("pmw", {}, "'histogram', 'sparse-mw'"),
        ("histogram", {"updates": 5}, "sparse-mw"),
        ("histogram", {"size": 5}, "sparse-mw"),
        ("sparse-mw", {}, "records="),
        ("sparse-mw", {"records": 10}, "size="),
        ("sparse-mw", {"records": 10, "size": 0}, "size="),
        ("sparse-mw", {"records": 10, "size": 2, "alpha": 0.1}, "cannot be promised"),
        ("sparse-mw", {"records": 10, "size": 2, "alpha": 0.1, "updates": 3}, "alpha sets"),
        ("sparse-mw", {"records": 10, "size": 2, "threshold": 0}, "threshold"),
        ("sparse-mw", {"records": 10, "size": 2, "beta": 95}, "beta"),
    ],
)
def test_what_is_no_session_is_refused_before_anything_is_read(
    mechanism: str, options: dict[str, Any], text: str
) -> None:
    account = sf.Ledger.in_memory(PURE)
    with pytest.raises(sf.errors.InvalidInput, match=text):
        session(mechanism, source="no-such-file.csv", ledger=account, **options)
    assert account.entries() == ()


def test_very_many_keys_are_kept_at_once(tmp_path: Path) -> None:
    """Mutant: pages of one transaction that outgrow SQLite's cache lock the file while it is being checked."""
    ledger, store = sf.Ledger.create(tmp_path / "l.db", total=PURE), tmp_path / "s"
    with session("histogram", ledger=ledger, store=store) as asked:
        assert asked.ask(np.arange(400_000)).how == "histogram"
