"""R reads what Python wrote: all answers to the last digit, further questions with their errors and intervals."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.publishing import Publication, write_formats

ROOT = Path(__file__).parents[2]
CODE = shutil.which("Rscript")
NEEDED = bool(os.environ.get("SFUMATO_TESTS_NEED_ENGINES"))
pytestmark = pytest.mark.skipif(CODE is None and not NEEDED, reason="Rscript is not installed")

DOMAIN = sf.Domain({"age": sf.Integers(0, 99, width=20), "sex": sf.Categories(["female", "male"])})
COUNTS = np.random.default_rng(5).poisson(50, DOMAIN.shape)
OLD = "sex == 'female' and age >= 60"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("library")
    subprocess.run(
        ["R", "CMD", "INSTALL", "--no-docs", f"--library={place}", str(ROOT / "r")], check=True, capture_output=True
    )
    return place


def read_in_r(library: Path, files: Path, out: Path) -> list[list[dict[str, str]]]:
    out.mkdir()
    ended = subprocess.run(
        ["Rscript", str(ROOT / "r" / "tests" / "read.R"), str(files), str(out)],
        capture_output=True,
        text=True,
        env=os.environ | {"R_LIBS": str(library)},
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.rstrip().endswith("read")
    found = list[list[dict[str, str]]]()
    for name in ("answers.csv", "asked.csv"):
        with (out / name).open(newline="") as handle:
            found.append(list(csv.DictReader(handle)))
    return found


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("budget", [sf.approx(1, "1e-6"), sf.pure(1)], ids=["gaussian", "laplace"])
def test_r_says_what_python_says(library: Path, tmp_path: Path, budget: sf.Budget, neighbours: Any) -> None:
    """Mutants: covariances in another order of the cells; numbers written to six digits."""
    plan = sf.plan(sf.marginals(DOMAIN, upto=2), budget, neighbours=neighbours)
    release = sf.release(plan, sf.Histogram(COUNTS), ledger=None, name="2026")
    told = Publication(title="People", flags={"*": 0.05})
    files = write_formats(release, tmp_path / "files", ["plain"], publication=told)
    found, asked = read_in_r(library, files, tmp_path / "out")
    tables = {"age": ("age",), "sex": ("sex",), "age.sex": ("age", "sex")}
    for name, names in tables.items():
        rows = [row for row in found if row["table"] == name]
        table = release.table(*names)
        for key, values in (("answer", table.values), ("low", table.low), ("high", table.high)):
            assert [float(row[key]) for row in rows] == values.reshape(-1).tolist()
        assert [float(row["standard_error"]) for row in rows] == table.noise_errors().reshape(-1).tolist()
        assert {row["flag"] for row in rows} <= {"", "*"}
    questions = [("sex == 'female'", 0.95), (OLD, 0.9), ("not age < 20", 0.95), ("age < 20 or age >= 20", 0.95)]
    for row, (question, confidence) in zip(asked, questions, strict=True):
        answer = release.ask(question, confidence)
        assert float(row["answer"]) == pytest.approx(answer.value, rel=1e-12, abs=1e-12)
        error = answer.standard_error or 0.0
        assert float(row["standard_error"]) == pytest.approx(error, rel=1e-9, abs=1e-6)
        if plan.budget.kind == "approx":
            for key in ("low", "high"):
                assert float(row[key]) == pytest.approx(getattr(answer, key), rel=1e-9, abs=1e-5)
        else:  # valid for every unimodal law, so never narrower
            assert float(row["low"]) <= answer.low + 1e-6
            assert float(row["high"]) >= answer.high - 1e-6


def test_projected_files_are_not_added_up(library: Path, tmp_path: Path) -> None:
    plan = sf.plan(sf.marginals(DOMAIN, upto=2), sf.approx(1, "1e-6"), neighbours="add-remove")
    release = sf.release(plan, sf.Histogram(COUNTS), ledger=None, name="2026").project()
    files = write_formats(release, tmp_path / "files", ["plain"])
    code = (
        f"library(sfumato); r <- read_release('{files}'); print(names(release_table(r, 'age', 'sex')));"
        "tryCatch(ask(r, sex == 'male'), error = function(e) cat(conditionMessage(e)))"
    )
    ended = subprocess.run(
        ["Rscript", "-e", code], capture_output=True, text=True, check=True, env=os.environ | {"R_LIBS": str(library)}
    )
    assert "unprojected" in ended.stdout
    assert "before the projection" in ended.stdout


def test_r_reads_means_and_sums(library: Path, tmp_path: Path) -> None:
    """Mutants: statistics of another measure or grouping; labels in alphabetical order; a refusal that says nothing."""
    domain = sf.Domain(
        {"the ward": sf.Categories(["south", "north", "east"], outside="other", missing="other")},
        measures={"cost": sf.Measure(0, 100), "age": sf.Measure(0, 99)},
    )
    work = sf.stack(both=sf.means(domain, ["cost", "age"], by=["the ward"]), all=sf.means(domain, "cost"))
    wards = np.random.default_rng(3).choice(["south", "north", "east"], 900)
    rows = {"the ward": wards, "cost": np.arange(900) % 100, "age": np.arange(900) % 90}
    plan = sf.plan(work, sf.approx(2, "1e-6"), neighbours="add-remove")
    release = sf.release(plan, pd.DataFrame(rows), ledger=None, name="2026")
    files = write_formats(release, tmp_path / "files", ["plain"])
    code = f"""
    library(sfumato); r <- read_release("{files}"); print(r)
    full <- function(x) {{ n <- vapply(x, is.numeric, NA); x[n] <- lapply(x[n], sprintf, fmt = "%.17g"); x }}
    cost <- measure_table(r, "cost", "the ward")
    stopifnot(identical(levels(cost$`the ward`)[1:3], c("south", "north", "east")), nzchar(attr(cost, "note")))
    write.csv(full(cost), "{tmp_path}/cost.csv", row.names = FALSE)
    write.csv(full(measure_table(r, "cost")), "{tmp_path}/all.csv", row.names = FALSE)
    for (call in expression(measure_table(r, "pay"), measure_table(r, "age"), measure_table(r, "cost", "sex")))
      cat(tryCatch(eval(call), error = conditionMessage), "\n")
    """
    ended = subprocess.run(
        ["Rscript", "-e", code], capture_output=True, text=True, env=os.environ | {"R_LIBS": str(library)}
    )
    assert ended.returncode == 0, ended.stderr
    assert "statistics of cost by the ward" in ended.stdout
    for said in (
        "'pay' is no measure of the release; it has cost, age",
        "no statistics of age of everybody are in the release; it has those by the ward",
        "no statistics of cost by sex are in the release; it has those by the ward; of everybody",
    ):
        assert said in ended.stdout
    for name, by in (("cost", ["the ward"]), ("all", [])):
        with (tmp_path / f"{name}.csv").open(newline="") as handle:
            found = [row for row in csv.DictReader(handle) if row["statistic"] == "mean"]
        told = release.mean("cost", by=by)
        for key, column in (("answer", "mean cost"), *((k, k) for k in ("standard_error", "low", "high"))):
            # (other) has too few records to tell a mean: NA there, None here
            assert [None if row[key] == "NA" else float(row[key]) for row in found] == list(told[column])
