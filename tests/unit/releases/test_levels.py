"""A release over levels: rows of a table in, tables, statistics and files by level out."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sfumato as sf

POLICIES: dict[str, Any] = {"outside": "other", "missing": "other"}
ROWS = [(f"{s:02d}", f"{s:02d}{c:03d}") for s in range(1, 4) for c in range(1, 3 + s)]
LABELS = {"state": {"01": "Alabama", "02": "Alaska"}}
DOMAIN = sf.Domain(
    {
        "place": sf.Hierarchy(ROWS, ["state", "county"], LABELS, **POLICIES),
        "sex": sf.Categories(["f", "m"], **POLICIES),
        "age": sf.Integers(0, 39, 5, levels={"decade": 10, "phase": [0, 20, 40]}, outside="clamp", missing="other"),
    }
)
WORK = sf.stack(
    tables=sf.marginals(DOMAIN, sets=[("state", "sex"), ("county", "age"), ("phase", "state")]),
    nested=sf.hierarchy(DOMAIN, "place", by=["sex"]),
)
CODES = [code for _, code in ROWS]


def people() -> pd.DataFrame:
    """Every cell of the domain in some number of rows, with codes and ages that are none among them."""
    cells = itertools.product([*CODES, "01", "99999", None], ["f", "m", ""], range(-1, 42, 3))
    rows = [c for i, c in enumerate(cells) for _ in range(i % 5)]
    return pd.DataFrame(rows, columns=["place", "sex", "age"])


PEOPLE = people()
STATES = PEOPLE.place.where(PEOPLE.place.isin(CODES)).str[:2].map({**LABELS["state"], "03": "03"}).fillna("(other)")
SEXES = PEOPLE.sex.where(PEOPLE.sex.isin(["f", "m"])).fillna("(other)")
PHASES = (PEOPLE.age >= 20).map({False: "[0, 20)", True: "[20, 40)"})


def counted(*columns: pd.Series) -> dict[tuple[str, ...], int]:
    found: dict[tuple[str, ...], int] = {}
    for row in zip(*columns, strict=True):
        found[row] = found.get(row, 0) + 1
    return found


@pytest.fixture(scope="module", params=["marginals", "gaussian", "factorization", "laplace"])
def sharp(request: pytest.FixtureRequest) -> sf.Release:
    """A release so precise that every answer is the truth but for hundredths."""
    budget = sf.pure(10**6) if request.param == "laplace" else sf.gdp(10**4)
    plan = sf.plan(WORK, budget, neighbours="add-remove", mechanism=request.param)
    return sf.release(plan, PEOPLE, ledger=None)


def close(table: sf.Table, truth: dict[tuple[str, ...], int]) -> None:
    for cell, labels in enumerate(itertools.product(*table.labels)):
        assert table.values.reshape(-1)[cell] == pytest.approx(truth.get(labels, 0), abs=0.1), labels


def test_tables_by_level_are_those_of_the_rows(sharp: sf.Release) -> None:
    close(sharp.table("state", "sex"), counted(STATES, SEXES))
    close(sharp.table("sex", "state"), counted(SEXES, STATES))
    close(sharp.table("state"), counted(STATES))
    counties = PEOPLE.place.where(PEOPLE.place.isin(CODES)).fillna("(other)")
    close(sharp.table("county"), counted(counties))
    assert sharp.table("county", "sex").attributes == ("county", "sex")
    assert np.allclose(sharp.table("county").values, sharp.table("place").values)
    assert sharp.table("state").labels == (("Alabama", "Alaska", "03", "(other)"),)
    with pytest.raises(sf.errors.DomainError, match="levels of one attribute"):
        sharp.table("state", "county")


def test_answers_are_those_of_the_workload(sharp: sf.Release) -> None:
    truth = {("state", "sex"): counted(STATES, SEXES), ("state", "phase"): counted(STATES, PHASES)}
    for label, answer in zip(sharp.labels(), sharp.answers.tolist(), strict=True):
        names, values = zip(*(part.split(" = ") for part in label.split(", ", 1)), strict=True)
        if names in truth:
            assert answer == pytest.approx(truth[names].get(values, 0), abs=0.1)


def test_questions_and_statistics_take_levels(sharp: sf.Release) -> None:
    asked = sharp.ask("state == 'Alabama' and sex == 'f'")
    assert asked.value == pytest.approx(counted(STATES, SEXES)["Alabama", "f"], abs=0.1)
    shares = sharp.share("sex", within="state").rows()
    truth, states = counted(STATES, SEXES), counted(STATES)
    for row in shares:
        key = (row["state"], row["sex"])
        assert row["share"] == pytest.approx(truth.get(key, 0) / states[key[0],], abs=1e-3)
    phases = counted(STATES, PHASES)
    for row in sharp.cdf("phase", by="state").rows():
        expected = 1.0 if "20, 40" in row["phase"] else phases[row["state"], "[0, 20)"] / states[row["state"],]
        assert row["share"] == pytest.approx(expected, abs=1e-3)
    assert sharp.mean("decade", by="state")["mean decade"][0] > 0


def test_errors_and_files_name_the_levels(sharp: sf.Release, tmp_path: Path) -> None:
    names = sharp.plan.errors()["attributes"]
    assert names == ["state, sex", "place, age", "state, phase", "state, sex", "place, sex"]
    sharp.save(tmp_path / "r")
    again = sf.load(tmp_path / "r")
    assert np.array_equal(again.table("state").values, sharp.table("state").values)
    assert again.plan.workload.domain == DOMAIN
    written = {p.name for p in (tmp_path / "r/tables").iterdir()}
    assert written == {
        "state.sex.csv",
        "place.age.csv",
        "state.phase.csv",
        "state.sex.3.csv",
        "place.sex.csv",
    }
    first = (tmp_path / "r/tables/state.sex.csv").read_text().splitlines()[0]
    assert first.startswith("state,sex,answer")


def test_batches_hold_tables_by_level(sharp: sf.Release) -> None:
    found = {
        names: (batch.values[i], batch.standard_errors)
        for batch in sharp.batches()
        for i, names in enumerate(batch.attributes)
    }
    assert set(found) == {("state", "sex"), ("place", "age"), ("state", "phase"), ("place", "sex")}
    for names, (values, errors) in found.items():
        table = sharp.table(*names)
        assert np.allclose(values, table.values)
        assert np.allclose(np.broadcast_to(errors, (1, *values.shape))[0], table.standard_errors)
    assert [t.attributes for t in sharp.tables()] == [n for b in sharp.batches() for n in b.attributes]


def test_prediction_is_observation_for_tables_by_level() -> None:
    """The standard errors of level tables are those of the release's answers, by simulation at 3,000 repetitions."""
    counts = np.arange(DOMAIN.size).reshape(DOMAIN.shape) % 7
    plan = sf.plan(WORK, sf.gdp(1), neighbours="add-remove", mechanism="marginals")
    found = sf.simulate(plan, counts, repetitions=3000, rng=3)
    ratio = found.per_query_rmse / plan.standard_errors()
    # the rmse of 3,000 draws is within 1.3 % of the deviation, one standard deviation; 480 queries
    assert np.abs(ratio - 1).max() < 0.08
    assert abs(found.rmse / plan.rmse - 1) < 0.02


def test_the_report_names_levels(tmp_path: Path) -> None:
    plan = sf.plan(WORK, sf.gdp(1), neighbours="add-remove")
    sf.release(plan, PEOPLE, ledger=None, out=tmp_path / "out")
    page = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert "state × sex" in page
    assert "Alabama" in page


def test_the_file_of_noisy_measurements_needs_nothing_beside_it(tmp_path: Path) -> None:
    """Levels, multiples, noise and the order of groups, of a codes file in no order. Mutants: groups by name; a level
    more; the multiple of another block."""
    rng = np.random.default_rng(3)
    codes = [(f"s{i // 200}", f"c{i // 40}", f"b{i}") for i in range(400)]
    rng.shuffle(codes)
    place = sf.Hierarchy([tuple(c) for c in codes], levels=["state", "county", "block"], outside="drop", missing="drop")
    domain = sf.Domain({"place": place, "sex": sf.Categories(["f", "m"], outside="drop", missing="drop")})
    work = sf.marginals(domain, sets=[[], ["sex"]], factors={"place": "levels"})
    plan = sf.plan(work, sf.zcdp(50), neighbours="add-remove", mechanism="marginals")
    blocks, sexes = rng.integers(0, 400, 30_000) ** 2 // 400, rng.integers(0, 2, 30_000)
    rows = pd.DataFrame({"place": [codes[b][2] for b in blocks], "sex": np.array(["f", "m"])[sexes]})
    sf.release(plan, rows, ledger=None, name="n", out=tmp_path / "n")
    measured = np.load(tmp_path / "n" / "measurements.npz")
    levels = {0: [()] * 400, 1: [(c[0],) for c in codes], 2: [c[1:2] for c in codes], 3: [c[2:] for c in codes]}
    counts = np.zeros((400, 2))
    np.add.at(counts, (blocks, sexes), 1)
    assert len(measured["levels"]) == len(measured["multiples"]) == sum(k.startswith("values_") for k in measured) > 4
    for k, (level, multiple) in enumerate(zip(measured["levels"], measured["multiples"], strict=True)):
        groups = list(dict.fromkeys(levels[int(level)]))
        truth = np.zeros((len(groups), 2))
        np.add.at(truth, [groups.index(g) for g in levels[int(level)]], counts)
        wanted = truth if "sex" in str(measured[f"blocks_{k}"]) else truth.sum(axis=1)
        off = measured[f"values_{k}"] / multiple - wanted.reshape(-1)
        assert np.abs(off).max() < 6 * np.sqrt(measured["noise_variance"]) / multiple
        assert np.abs(off).max() < 15
