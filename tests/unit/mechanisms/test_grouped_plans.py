"""Plans for persons whose rows are counted once per group: errors of the optimum, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import sfumato as sf
from sfumato import check_maps
from sfumato.cli import app
from sfumato.errors import PlanError, SpecError
from sfumato.privacy.unit import PrivacyUnit
from sfumato.strategies.certificates import exact_sensitivity
from sfumato.strategies.grouped_residuals import least_largest_under_prices, least_under_prices
from support.grouped import drawn_case, largest_changes

WHO: dict[str, Any] = {"neighbours": "add-remove", "person": "who"}
VISITS = sf.Domain({"sex": 2, "age": 10, "department": 30})
TABLES = [(), ("sex",), ("age",), ("department",), ("sex", "age"), ("sex", "age", "department")]
# noise multiplier 1, every table alike: what a plan errs at each of these, for r rows
OPTIMUM = {
    3: (6.16, 5.54, 5.89, 4.53, 5.30, 3.90),
    8: (15.1, 13.6, 14.4, 8.25, 13.0, 7.10),
    16: (28.6, 25.8, 27.4, 11.8, 24.6, 10.1),
}
# the count of persons who had more rows takes a 401st of the price
CUT = math.sqrt(401 / 400)


def test_a_table_of_100_cells_errs_the_root_of_ten_rows() -> None:
    work = sf.identity(sf.Domain({"department": 100}))
    made = sf.plan(work, sf.zcdp("0.5"), rows_per_person=10, once_per=["department"], **WHO)
    assert made.mechanism == "marginals"
    assert made.mean_error <= 3.09  # with the count of who was cut
    assert math.sqrt(made.noise.variance) / made.cut < 20.1
    assert made.lower_bound is not None
    assert made.mean_error <= made.lower_bound * (1 + 1e-5)
    assert sf.plan(work, sf.zcdp("0.5"), rows_per_person=10, **WHO).mean_error > 10


@pytest.mark.parametrize("rows", [3, 8, 16])
def test_tables_of_visits_err_as_the_coupled_optimum_does(rows: int) -> None:
    work = sf.marginals(VISITS, upto=3)
    made = sf.plan(work, sf.gdp(1), rows_per_person=rows, once_per=["department"], **WHO)
    found = {tuple(t.split(", ")) if t != "(total)" else (): e for t, e in zip(*_errors(made), strict=True)}
    for table, most in zip(TABLES, OPTIMUM[rows], strict=True):
        assert found[table] / CUT <= most * 1.005, table  # the last of three digits
    assert made.lower_bound is not None
    assert made.objective_value <= 1.001 * made.lower_bound
    assert made.objective_value < sf.plan(work, sf.gdp(1), rows_per_person=rows, **WHO).objective_value


def _errors(made: sf.Plan) -> tuple[list[str], list[float]]:
    lines = made.errors().columns
    return list(lines["attributes"]), list(lines["rmse"])


def test_the_optimum_is_no_worse_than_other_weights() -> None:
    """Against many weights at random, and its own proof."""
    random = np.random.default_rng(1)
    for _ in range(20):
        errors, prices = random.random(5) + 0.01, random.random((30, 5)) - 0.3
        prices = np.concatenate([prices, np.full((1, 5), 0.2)])
        best = least_under_prices(errors, prices)
        assert (prices @ best.weights).max() <= 1 + 1e-12
        assert best.lower <= best.upper <= 1.0001 * best.lower
        tried = random.random((2000, 5)) ** 3 + 1e-6
        tried /= (tried @ prices.T).max(axis=1, keepdims=True)
        assert (errors / tried).sum(axis=1).min() >= best.lower


def test_the_least_largest_is_no_worse_than_other_weights() -> None:
    """Mutants: shares that never move; the mean instead."""
    random = np.random.default_rng(2)
    for _ in range(10):
        errors, prices = random.random((4, 5)) + 0.01, random.random((20, 5)) - 0.2
        prices = np.concatenate([prices, np.full((1, 5), 0.2)])
        best = least_largest_under_prices(errors, prices)
        assert (prices @ best.weights).max() <= 1 + 1e-12
        assert best.lower <= best.upper <= 1.001 * best.lower
        tried = random.random((2000, 5)) ** 3 + 1e-6
        tried /= (tried @ prices.T).max(axis=1, keepdims=True)
        assert (errors @ (1 / tried).T).max(axis=0).min() >= best.lower


@pytest.mark.parametrize("rows", [3, 16])
def test_the_largest_error_has_an_optimum_that_is_proved(rows: int) -> None:
    """Mutant: no bound, or that of rows anywhere."""
    made = sf.plan(
        sf.marginals(VISITS, upto=3), sf.gdp(1), rows_per_person=rows, once_per=["department"], objective="max", **WHO
    )
    assert made.lower_bound is not None
    assert made.lower_bound <= made.objective_value <= 1.001 * made.lower_bound


@pytest.mark.parametrize(
    ("cells", "sets", "rows"),
    [((5, 5), [("a",)], 14), ((12, 3), [("a",)], 6), ((5, 2), [("a",)], 7)],
)
def test_bounds_know_that_cells_of_coarser_groups_hold_several_rows(
    cells: tuple[int, int], sets: list[tuple[str, ...]], rows: int
) -> None:
    """Once in each cell of a and b: in one of a lie as many rows as b has cells. Mutant: bounds of the groups alone,
    1.4 to 1.6 times too low."""
    domain = sf.Domain(dict(zip("ab", cells, strict=True)))
    made = sf.plan(sf.marginals(domain, sets=sets), sf.gdp(1), rows_per_person=rows, once_per=["a", "b"], **WHO)
    assert made.lower_bound is not None
    assert made.lower_bound <= made.objective_value <= 1.02 * made.lower_bound


@pytest.mark.parametrize(
    ("work", "options"),
    [
        (sf.marginals(VISITS, upto=2), {"objective": "max"}),
        (sf.marginals(VISITS, upto=2), {"neighbours": "replace-one"}),
        (sf.stack(a=sf.prefix(VISITS, "age"), b=sf.identity(VISITS, "department")), {}),
        (sf.marginals(VISITS, upto=2), {"mechanism": "gaussian"}),
    ],
    ids=["largest", "replaced", "prefix", "direct"],
)
def test_it_errs_no_more_than_rows_anywhere(work: sf.Workload, options: dict[str, Any]) -> None:
    given = WHO | {"rows_per_person": 6} | options
    grouped = sf.plan(work, sf.gdp(1), once_per=["department"], **given)
    assert grouped.objective_value <= sf.plan(work, sf.gdp(1), **given).objective_value * (1 + 1e-6)


def test_many_attributes_are_planned_too() -> None:
    """More than patterns of agreement are listed of: the noise for rows anywhere, at its own price."""
    domain = sf.Domain({f"a{i}": 2 + i % 3 for i in range(20)})
    made = sf.plan(sf.marginals(domain, order=2), sf.gdp(1), rows_per_person=4, once_per=["a1"], **WHO)
    assert made.rmse is not None
    assert made.sensitivity.value > 0


@pytest.mark.parametrize(
    ("what", "options", "told"),
    [
        (VISITS, {}, "questions to come over a domain have no price for once_per"),
        (sf.marginals(VISITS, order=1), {"periods": 4, "once_per": ["ward"]}, "sex, age, department; not ward"),
        (sf.marginals(VISITS, order=1), {"mechanism": "mwem", "records": 1000}, "mechanism='mwem' and a workload have"),
        (sf.marginals(VISITS, order=1), {"mechanism": "projection"}, "mechanism='projection' and a workload have"),
        (sf.marginals(VISITS, order=1), {"public": {("sex",): [3, 4]}}, "tables that are public have no price"),
        (sf.marginals(VISITS, order=1), {"once_per": ["ward"]}, "sex, age, department; not ward"),
        (sf.Keys("text"), {}, "queries over sf.Keys have no price"),
    ],
)
def test_what_has_no_price_refuses_it(what: Any, options: dict[str, Any], told: str) -> None:
    given = WHO | {"rows_per_person": 4, "once_per": ["department"]} | options
    with pytest.raises(PlanError, match=told):
        sf.plan(what, sf.approx(1, "1e-6"), **given)


def test_budgets_are_found_for_it() -> None:
    work = sf.identity(sf.Domain({"department": 100}))
    given = WHO | {"rows_per_person": 10}
    apart = sf.budget_for(work, margin=50, kind="zcdp", once_per=["department"], **given)
    assert float(apart.rho) < 0.12 * float(sf.budget_for(work, margin=50, kind="zcdp", **given).rho)


SPEC = """
[data]
source = "visits.csv"
[schema]
department = {type = "category", values = ["a", "b", "c"], outside = "other", missing = "other"}
sex = {type = "category", values = ["f", "m"], outside = "other", missing = "other"}
[privacy]
mu = 1
neighbours = "add-remove"
person = "who"
rows_per_person = 3
once_per = ["department"]
[[queries]]
upto = 2
"""


def test_a_spec_says_it_and_the_commands_release_it(tmp_path: Path) -> None:
    spec, ledger, out = tmp_path / "spec.toml", tmp_path / "l.db", tmp_path / "out"
    spec.write_text(SPEC)
    (tmp_path / "visits.csv").write_text("who,department,sex\np,a,f\np,a,m\np,b,f\nq,c,m\n")
    read = sf.read_spec(spec)
    assert (read.once_per, read.rows_per_group) == (("department",), 1)
    run = CliRunner().invoke
    planned = run(app, ["plan", str(spec)])
    assert "at most 3 rows, one per department, added or removed" in " ".join(planned.output.split())
    assert run(app, ["ledger", "create", str(ledger), "--mu", "1"]).exit_code == 0
    made = run(app, ["release", str(spec), "--ledger", str(ledger), "--name", "a", "--out", str(out)])
    assert made.exit_code == 0, made.output
    release = sf.load(out)
    assert release.plan.unit == PrivacyUnit("add-remove", "who", 3, once_per=("department",))
    checked = run(app, ["check-release", str(out), "--ledger", str(ledger)])
    assert checked.output.startswith("accepted"), checked.output


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('once_per = ["department"]', 'once_per = ["ward"]', "no attribute is called 'ward'"),
        ("rows_per_person = 3", "rows_per_person = 1", "give rows_per_person above 1, not 1"),
        ('once_per = ["department"]', "rows_per_group = 2", "needs once_per="),
    ],
)
def test_a_spec_that_contradicts_itself_says_where(old: str, new: str, told: str, tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC.replace(old, new))
    with pytest.raises(SpecError, match=told):
        sf.read_spec(spec)


# ---- the stranger's price --------------------------------------------------------------------------------


def stored(block: Any) -> Any:
    """A block as the checker reads it from a file: its multiple, and a document for each factor."""
    return 1, tuple((g, str(np.asarray(f.dense()).tolist())) for g, f in zip(block.groups, block.factors, strict=True))


def test_the_stranger_understates_no_price_and_is_as_sharp() -> None:
    """Mutants: columns of all groups the largest; no phantoms; no pairs; each block's products by themselves."""
    random = np.random.default_rng(5)
    for _ in range(60):
        blocks, sizes, once_per, rows, each = drawn_case(random)
        blocks = [b for b in blocks if isinstance(b, sf.operators.Block)]
        told, ops = [stored(b) for b in blocks], dict[str, Any]()
        for (_, factors), block in zip(told, blocks, strict=True):
            for (_, key), f in zip(factors, block.factors, strict=True):
                kind = type(f).__name__
                matrix = np.asarray(f.dense()).astype(np.int64)
                plain = {"~class": kind, "n": f.shape[1]} if kind in check_maps.ALIKE else None
                ops[key] = check_maps.Doc(plain or {"~class": "Dense", "matrix": matrix})
        true = largest_changes(blocks, sizes, once_per, rows, each)
        for (relation, power), value in true.items():
            replaced = relation == "replace-one"
            found = check_maps.grouped_person_change(told, ops, sizes, power, replaced, rows, [*once_per, each])
            assert found >= value, (relation, power)
            # and whatever was paid for the least of our prices is accepted
            anyhow = check_maps.largest_record_change(told, ops, sizes, power, replaced, False)[0] * rows**power
            unit = PrivacyUnit(relation, "who", rows, once_per=once_per, rows_per_group=each)
            assert min(found, anyhow) <= exact_sensitivity(blocks, sizes, unit, power).value
