"""Streams as people use them: opened, resumed and loaded by the words of the card, answered over time, stored."""

from __future__ import annotations

from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import BudgetError, InvalidInput, LedgerError, NotAnswerable, PlanError
from sfumato.interactive.streams import Stream
from sfumato.plans.streams import StreamPlan
from sfumato.releases.streams import StreamAnswer, StreamRelease

DOMAIN = sf.Domain({"age": sf.Integers(0, 3, outside="clamp", missing="other"), "sex": 2})
WORK = sf.marginals(DOMAIN, upto=2)
SHAPE = DOMAIN.shape
TABLES = np.random.default_rng(1).integers(0, 10_000, size=(12, *SHAPE))


def planned(periods: int = 12, **options: Any) -> StreamPlan:
    return sf.plan(WORK, sf.gdp(1), **({"neighbours": "add-remove", "periods": periods} | options))


def filled(tmp_path: Path, count: int, **options: Any) -> tuple[Stream, dict[str, Any]]:
    """A stream of some periods, and how it is opened again."""
    sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(1))
    how = {"ledger": tmp_path / "l.db", "name": "deaths", "store": tmp_path / "d.stream"}
    found = sf.open(planned(**options), **how)
    for t in range(count):
        found.append(sf.Histogram(TABLES[t]), period=f"2026-{t + 1:02}")
    return found, how


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_answers_over_time_are_near_and_say_how_near(tmp_path: Path, relation: str) -> None:
    """Within 8 standard errors of the truth: every question, both relations. Mutants: a period too many or too few,
    the total of another period, errors of another question."""
    found, _ = filled(tmp_path, 9, neighbours=relation)
    truths = (
        (found.totals, TABLES[:9].sum(axis=0)),
        (found.increments, TABLES[8]),
        (found.between("2026-03", "2026-06"), TABLES[2:6].sum(axis=0)),
        (found.between("2026-03", "2026-03"), TABLES[2]),
        (found.last(4), TABLES[5:9].sum(axis=0)),
        (found.append("gone", "2026-02"), TABLES[1]),
    )
    for answer, truth in truths:
        assert type(answer) is StreamAnswer
        wanted = np.concatenate([q.block.operator.matvec(_margin(truth, q.attributes)) for q in WORK.blocks])
        errors = answer.standard_errors()
        assert errors is not None
        assert (abs(answer.answers - wanted) <= 8 * errors + 1e-3).all()
        assert errors.max() < 20
    np.testing.assert_allclose(found.totals.standard_errors(), found.plan.standard_errors("totals", 9))
    np.testing.assert_allclose(found.last(4).standard_errors(), found.plan.standard_errors("last 4", 9))
    assert found.totals.standard_errors().max() < 0.75 * found.last(1).standard_errors().max() * 3
    asked = found.ask("age >= 2")
    assert abs(asked.value - TABLES[:9, 2:4].sum()) < 8 * asked.standard_error
    every = found.over_time()
    assert (
        abs(np.array(every["value"]) - TABLES[:9].sum(axis=(1, 2)).cumsum()).max()
        <= 8 * max(every["standard_error"]) + 1e-3
    )
    line = found.over_time("age >= 2", increments=True)
    assert list(line["period"]) == list(found.periods)
    assert abs(np.array(line["value"]) - TABLES[:9, 2:4].sum(axis=(1, 2))).max() < 8 * max(line["standard_error"])


def _margin(table: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    axes = [("age", "sex").index(a) for a in names]
    return table.sum(axis=tuple(i for i in range(2) if i not in axes)).reshape(-1)


def test_the_same_call_goes_on_and_spends_nothing(tmp_path: Path) -> None:
    """Mutants: a second debit; a store of another plan or name taken; an anchor dropped."""
    found, how = filled(tmp_path, 3)
    before, anchor = found.totals.answers, found.anchor
    for again in (
        sf.open(planned(), **how),
        sf.open(planned(), anchor=anchor, **how),
        sf.load(how["store"], ledger=how["ledger"]),
    ):
        assert again.totals.answers.tolist() == before.tolist()
        assert again.periods == found.periods
    assert [e.kind for e in sf.Ledger(how["ledger"]).entries()] == ["spend", "released"]
    again.append(sf.Histogram(TABLES[3]), period="2026-04")
    assert found.periods[-1] == "2026-04"  # what another has appended is seen
    assert found.totals.answers.tolist() == again.totals.answers.tolist()
    with pytest.raises(InvalidInput, match="another plan"):
        sf.open(planned(13), **how)
    with pytest.raises(InvalidInput, match="keeps the stream 'deaths'"):
        sf.open(planned(), **(how | {"name": "births"}))
    with pytest.raises(InvalidInput, match="which ledger paid"):
        sf.load(how["store"])
    with pytest.raises(InvalidInput, match="leave source out"):
        sf.load(how["store"], ledger=how["ledger"], source="t.csv")
    with pytest.raises(LedgerError):
        sf.load(how["store"], ledger=how["ledger"], anchor="1:" + "0" * 64)


def test_a_release_holds_all_that_is_public_and_nothing_else(tmp_path: Path) -> None:
    """Mutants: a state or a key in it; answers that differ once it is loaded."""
    found, how = filled(tmp_path, 5)
    found.release().save(tmp_path / "public")
    loaded = sf.load(tmp_path / "public")
    assert type(loaded) is StreamRelease
    assert loaded.result_hash == found.release().result_hash
    assert loaded.totals.answers.tolist() == found.totals.answers.tolist()
    assert loaded.between("2026-02", "2026-03").answers.tolist() == found.between("2026-02", "2026-03").answers.tolist()
    secret = (how["store"].with_name("d.stream.odd")).read_bytes()
    public = (tmp_path / "public").read_bytes()
    assert secret[:64] not in public
    text = str(loaded)
    assert "5 of 12 periods, '2026-01' to '2026-05'" in text


def test_decayed_sums_have_the_errors_that_are_planned(tmp_path: Path) -> None:
    """By hand, from the periods; of an open stream and of its release. Mutants: the oldest counts most; a rate that
    begins a period late; the error of totals."""
    found, _ = filled(tmp_path, 5)
    periods = [found.between(p, p).answers for p in found.periods]
    wanted = sum(0.5**k * answers for k, answers in enumerate(reversed(periods)))
    answer = found.decayed("0.5")
    np.testing.assert_allclose(answer.answers, wanted, rtol=1e-9)
    errors = found.plan.standard_errors("decayed 0.5", 5)
    np.testing.assert_allclose(answer.standard_errors(), errors, rtol=1e-9)
    assert (errors < found.plan.standard_errors("totals", 5)).all()
    assert found.release().decayed(0.5).answers.tolist() == answer.answers.tolist()
    for rate in ("1", "-0.5", "often"):
        with pytest.raises(PlanError, match="question over time"):
            found.decayed(rate)
    (tmp_path / "other").mkdir()
    with pytest.raises(NotAnswerable, match="no period is published"):
        filled(tmp_path / "other", 0)[0].decayed("0.5")


def test_a_decayed_sum_is_no_whole_number_of_records(tmp_path: Path) -> None:
    found, _ = filled(tmp_path, 2, neighbours="replace-one")
    with pytest.raises(NotAnswerable, match="records in part"):
        found.decayed("0.5")


def test_intervals_over_time_that_hold_together(tmp_path: Path) -> None:
    """Of as many periods as are published. Mutants: those of one; of all that were paid for; the union bound."""
    found, _ = filled(tmp_path, 5)
    one, all_ = found.over_time(), found.over_time(simultaneous=True)
    assert one["value"] == all_["value"]
    level = NormalDist().inv_cdf((1 + 0.95 ** (1 / 5)) / 2)
    for low, high, error in zip(all_["low"], all_["high"], all_["standard_error"], strict=True):
        assert abs((high - low) / 2 / error - level) < 1e-6


def test_one_answer_is_not_stored_as_if_it_were_a_release(tmp_path: Path) -> None:
    """It would state a measurement that was never priced by itself. Mutant: saved."""
    found, _ = filled(tmp_path, 2)
    for answer in (found.totals, found.increments, found.totals.project()):
        with pytest.raises(InvalidInput, match="part of a stream"):
            answer.save(tmp_path / "one")
    assert not (tmp_path / "one").exists()


def test_answers_project_and_keep_their_intervals(tmp_path: Path) -> None:
    found, _ = filled(tmp_path, 4)
    near = found.totals.project()
    assert near.answers.min() >= 0
    assert (near.intervals().low <= near.answers).all()


def test_what_is_not_published_is_not_answered(tmp_path: Path) -> None:
    found, _ = filled(tmp_path, 0)
    for asked in (lambda: found.totals, lambda: found.increments, lambda: found.between("a", "b")):
        with pytest.raises(NotAnswerable, match="published"):
            asked()
    found.append(sf.Histogram(TABLES[0]), "one")
    found.append(sf.Histogram(TABLES[1]), "two")
    for asked in (lambda: found.last(3), lambda: found.last(0), lambda: found.between("two", "one")):
        with pytest.raises(NotAnswerable):
            asked()
    assert found.status() == {"mechanism": "continual", "periods": 2, "periods_left": 10, "last": "two"}


def test_opening_refuses_what_does_nothing(tmp_path: Path) -> None:
    for options, words in (
        ({"source": sf.Histogram(TABLES[0])}, "one by one"),
        ({"anchor": "1:" + "0" * 64}, "leave it out"),
        ({"store": tmp_path / "s"}, "kept in one"),
    ):
        with pytest.raises((InvalidInput, PlanError), match=words):
            sf.open(planned(), **({"ledger": None, "name": "x"} | options))
    alone = sf.open(planned(), ledger=None, name="x")
    assert alone.append(sf.Histogram(TABLES[0]), "one").answers.size == len(WORK)
    assert alone.anchor is None


def _records(folder: Path, name: str, rows: list[str]) -> str:
    path = folder / f"{name}.csv"
    path.write_text("id,kind\n" + "".join(f"{row}\n" for row in rows), encoding="utf-8")
    return str(path)


def _kinds(tmp_path: Path, name: str = "k", periods: int = 4, **options: Any) -> Stream:
    domain = sf.Domain({"kind": sf.Categories(["flu", "cold"], outside="other", missing="other")})
    plan = sf.plan(
        sf.marginals(domain, upto=1), sf.gdp("1000"), **({"neighbours": "add-remove", "periods": periods} | options)
    )
    sf.Ledger.create(tmp_path / f"{name}.db", total=sf.gdp("1000"))
    return sf.open(plan, ledger=tmp_path / f"{name}.db", name=name, store=tmp_path / name)


def test_what_comes_late_counts_where_it_comes_and_what_is_new_is_other(tmp_path: Path) -> None:
    """With next to no noise. A category that appears in the middle is in the declared (other); an empty table is a
    period; a label that is left out takes none. Mutants: a period skipped for a label; a new category dropped."""
    found = _kinds(tmp_path)
    found.append(_records(tmp_path, "1", ["1,flu", "2,cold"]), "2026-W01")
    found.append(_records(tmp_path, "2", []), "2026-W02")
    found.append(_records(tmp_path, "4", ["3,flu", "4,measles", "5,flu"]), "2026-W04")
    wanted = {"2026-W01": [1, 1, 0], "2026-W02": [0, 0, 0], "2026-W04": [2, 0, 1]}
    for label, counts in wanted.items():
        assert found.between(label, label).table("kind").values.round(1).tolist() == counts
    assert found.totals.table("kind").labels == (("flu", "cold", "(other)"),)
    assert found.status()["periods_left"] == 1
    late = found.append(_records(tmp_path, "late", ["6,cold"]), "2026-W01 late")
    assert late.table("kind").values.round(1).tolist() == [0, 1, 0]
    assert found.between("2026-W01", "2026-W01").table("kind").values.round(1).tolist() == wanted["2026-W01"]


def test_after_the_last_period_another_stream_goes_on_and_totals_add(tmp_path: Path) -> None:
    first = _kinds(tmp_path, "first", 2)
    for t in range(2):
        first.append(_records(tmp_path, f"{t}", ["1,flu", "2,cold"]), f"p{t}")
    with pytest.raises(BudgetError, match="open another stream, whose totals add"):
        first.append(_records(tmp_path, "more", ["1,flu"]), "p2")
    second = _kinds(tmp_path, "second", 2)
    second.append(_records(tmp_path, "more", ["1,flu"]), "p2")
    both = first.totals.table("kind").values + second.totals.table("kind").values
    assert both.round(1).tolist() == [3, 2, 0]


def test_whoever_comes_again_is_counted_once_unless_it_is_promised(tmp_path: Path) -> None:
    """Mutants: enforcement by rows; the promise enforced."""
    rows = ["ada,flu", "bob,cold"]
    for promised, wanted in ((False, [1, 1, 0]), (True, [2, 2, 0])):
        found = _kinds(tmp_path, f"{promised}", person="id", periods=sf.periods(4, promised=promised))
        for t in range(2):
            found.append(_records(tmp_path, f"{t}", rows), f"p{t}")
        assert found.totals.table("kind").values.round(1).tolist() == wanted
        assert ("enforced: rows" in str(found.plan)) != promised


def test_a_correction_takes_nothing_back_and_pure_budgets_are_refused(tmp_path: Path) -> None:
    """What is impossible is said with what is possible. Mutants: a count taken out; a stream without Gaussian noise."""
    with pytest.raises(InvalidInput, match="no entry may be negative"):
        sf.Histogram([-1, 0, 0])
    with pytest.raises(PlanError, match=r"sf.approx, sf.zcdp or sf.gdp, or\s+release every period by itself"):
        sf.plan(WORK, sf.pure(1), neighbours="add-remove", periods=4)
    said = str(planned(neighbours="replace-one"))
    assert "replaced within its period; to hide its period too name person=, or plan with add-remove" in said


def test_a_plot_is_a_line_in_its_band(tmp_path: Path) -> None:
    """Mutants: totals for increments; a predicate that is dropped."""
    pytest.importorskip("altair")
    found, _ = filled(tmp_path, 5)
    for question, increments in (("total", False), ("age >= 2", True)):
        drawn = found.plot(question, increments=increments).to_dict()
        rows = next(iter(drawn["datasets"].values())) if "datasets" in drawn else drawn["data"]["values"]
        wanted = found.over_time(None if question == "total" else question, increments=increments)
        assert [row["value"] for row in rows] == list(wanted["value"])
        assert [row["period"] for row in rows] == list(found.periods)
        assert {layer["mark"]["type"] for layer in drawn["layer"]} == {"area", "line"}


def test_periods_that_are_not_there_are_told_apart() -> None:
    """Before the first one, none, too many, and in the wrong order."""
    domain = sf.Domain({"a": 3})
    stream = sf.open(sf.plan(sf.identity(domain), sf.gdp(1), neighbours="add-remove", periods=4), ledger=None)
    for ask in (lambda: stream.totals, lambda: stream.last(1)):
        with pytest.raises(NotAnswerable, match="no period is published; append the first one"):
            ask()
    for label in ("one", "two"):
        stream.append(sf.Histogram([1, 2, 3]), label)
    with pytest.raises(NotAnswerable, match=r"periods 1 to 2 are published, and none of them were asked for"):
        stream.last(0)
    with pytest.raises(
        NotAnswerable, match=r"periods 1 to 2 are published, and 9 were asked for; ask for 1 to 2 of them"
    ):
        stream.last(9)
    with pytest.raises(NotAnswerable, match="the earlier label first"):
        stream.between("two", "one")
