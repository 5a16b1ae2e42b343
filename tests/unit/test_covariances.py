"""What may be asked of the covariances of a plan or a release, and what is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import sfumato as sf

DOMAIN = sf.Domain(
    {
        "age": sf.Integers(0, 9),
        "sex": sf.Categories(["f", "m"]),
        "pay": sf.Bins([0, 10, 20, 50, 100]),
        "place": sf.Integers(0, 2),
    }
)
COUNTS = (np.arange(DOMAIN.size).reshape(DOMAIN.shape) * 37) % 90
TABLES = sf.marginals(DOMAIN, upto=2)
MIXED = sf.stack(cdf=sf.prefix(DOMAIN, "age", by=["sex"]), rest=sf.marginals(DOMAIN, order=2))


def _plan(work: sf.Workload = TABLES, mechanism: str = "marginals", neighbours: str = "add-remove") -> sf.Plan:
    return sf.plan(work, sf.gdp(1), neighbours=neighbours, mechanism=mechanism)  # type: ignore[arg-type]


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("mechanism", ["marginals", "factorization", "gaussian", "laplace", "tree"])
def test_the_diagonal_holds_the_variances(mechanism: str, neighbours: str) -> None:
    """Mutants: the variance of the noise twice, or its deviation."""
    try:
        plan = _plan(MIXED, mechanism, neighbours)
    except sf.errors.PlanError:
        assert mechanism == "tree"
        plan = _plan(MIXED.parts["cdf"], mechanism, neighbours)
    covariance = plan.covariance(plan.workload)
    assert covariance.shape == (len(plan.workload), len(plan.workload))
    assert np.sqrt(np.diag(covariance)) == pytest.approx(plan.standard_errors(), rel=1e-9, abs=1e-6)
    assert np.linalg.eigvalsh(covariance).min() > -1e-9 * covariance.max()
    np.testing.assert_array_equal(covariance, covariance.T)


def test_questions_are_tables_predicates_or_workloads() -> None:
    plan = _plan()
    release = sf.release(plan, sf.Histogram(COUNTS), ledger=None)
    table = plan.covariance(("sex", "age"), ("pay",))
    assert table.shape == (20, 4)
    whole = plan.covariance(sf.identity(DOMAIN, "age", "sex"), sf.identity(DOMAIN, "pay"))
    assert table.reshape(2, 10, 4).transpose(1, 0, 2).reshape(20, 4) == pytest.approx(whole)
    cell = plan.covariance("sex == 'm' and age == 3", "pay >= 50")
    assert cell.shape == (1, 1)
    assert cell[0, 0] == pytest.approx(table[13, 3])
    assert plan.covariance((), ()) == pytest.approx(plan.standard_errors()[0] ** 2)
    for first, second in itertools.product([("sex", "age"), "age < 4", sf.prefix(DOMAIN, "age")], [("place",), None]):
        np.testing.assert_array_equal(release.covariance(first, second), plan.covariance(first, second))
    assert str(release.table_covariances(("age",), ("age",))) == str(plan.table_covariances(("age",), ("age",)))


def test_sums_of_answers_have_the_variances_that_ask_states() -> None:
    """A linear statistic of several tables, two ways: asked as one query, and summed by its covariances."""
    plan = _plan()
    release = sf.release(plan, sf.Histogram(COUNTS), ledger=None)
    pair = sf.Domain({n: DOMAIN[n] for n in ("age", "sex")})
    difference = np.zeros((10, 2))
    difference[3, 1], difference[7, 0] = 1, -1
    answer = release.ask(sf.queries(difference.reshape(1, -1), pair))
    cells = release.covariance(("age", "sex")).reshape(10, 2, 10, 2)
    variance = cells[3, 1, 3, 1] + cells[7, 0, 7, 0] - 2 * cells[3, 1, 7, 0]
    assert answer["standard_error"][0] == pytest.approx(np.sqrt(variance))
    assert variance < cells[3, 1, 3, 1] + cells[7, 0, 7, 0]
    table = release.table("age", "sex").values
    assert answer["answer"][0] == pytest.approx(table[3, 1] - table[7, 0])
    # a predicate that is no product: cells of a table summed
    asked = release.ask("age <= 2 and sex == 'f' or age >= 8 and sex == 'm'")
    w = np.zeros((10, 2))
    w[:3, 0], w[8:, 1] = 1, 1
    assert asked.standard_error**2 == pytest.approx(np.einsum("ij,ijkl,kl", w, cells, w))
    # over the attributes of several tables
    ages, places = np.arange(10) >= 5, np.arange(3) == 1
    first = release.ask("age >= 5").standard_error ** 2
    second = release.ask("place == 1").standard_error ** 2
    between = ages @ release.covariance(("age",), ("place",)) @ places
    assert release.covariance("age >= 5", "place == 1")[0, 0] == pytest.approx(between)
    joined = np.zeros((10, 3))
    joined[ages] += 1
    joined[:, places] -= 1
    domain = sf.Domain({n: DOMAIN[n] for n in ("age", "place")})
    difference_of_sums = release.ask(sf.queries(joined.reshape(1, -1), domain))["standard_error"][0] ** 2
    assert difference_of_sums == pytest.approx(first + second - 2 * between)


def test_the_compact_form_is_the_table_of_all() -> None:
    plan = _plan()
    frame = plan.table_covariances(("sex", "age"), ("age", "pay"))
    assert list(frame.columns) == ["age", "covariance"]
    assert frame["age"] == ["same", "different"]
    full = plan.covariance(("sex", "age"), ("age", "pay"))
    assert frame["covariance"] == pytest.approx([full[0, 0], full[0, 4]])
    both = plan.table_covariances(("sex", "age"), ("age", "sex"))
    assert [(r["sex"], r["age"]) for r in both.rows()] == list(itertools.product(("same", "different"), repeat=2))
    cells = plan.covariance(("age", "sex"))
    assert both["covariance"] == pytest.approx([cells[0, 0], cells[0, 2], cells[0, 1], cells[0, 3]])
    assert plan.table_covariances((), ("pay",)).rows() == [
        {"covariance": pytest.approx(plan.covariance((), ("pay",))[0, 0])}
    ]


def test_the_compact_form_of_a_table_too_large_to_list() -> None:
    domain = sf.Domain({f"a{i}": 1_000 for i in range(3)})
    plan = _plan(sf.marginals(domain, order=3))
    names = ("a0", "a1", "a2")
    frame = plan.table_covariances(names, names)
    assert len(frame) == 8
    assert frame["covariance"][0] == pytest.approx(plan.max_standard_error**2)
    with pytest.raises(sf.errors.PlanError, match="table_covariances"):
        plan.covariance(names)


def test_groups_of_cells_are_not_alike() -> None:
    """Mutant: a level's groups taken for the cells of its attribute."""
    domain = sf.Domain({"age": sf.Integers(0, 5, levels={"half": [0, 2, 6]}), "sex": sf.Categories(["f", "m"])})
    plan = _plan(sf.marginals(domain, upto=2))
    with pytest.raises(sf.errors.PlanError, match="take covariance"):
        plan.table_covariances(("half",), ("age",))
    with pytest.raises(sf.errors.PlanError, match="take covariance"):
        plan.table_covariances(("sex",), ("half", "sex"))
    cells = plan.covariance(("age",))
    sums = np.array([[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1]])
    assert plan.covariance(("half",)) == pytest.approx(sums @ cells @ sums.T)
    assert plan.covariance(("half",), ("age",)) == pytest.approx(sums @ cells)


def test_refusals() -> None:
    plan = _plan()
    with pytest.raises(sf.NotAnswerable, match="age, pay, sex"):
        plan.covariance(("age", "sex", "pay"), ("age",))
    with pytest.raises(sf.NotAnswerable, match="age, pay, sex"):
        plan.covariance(("age",), ("age", "sex", "pay"))
    with pytest.raises(sf.NotAnswerable, match="age, pay, sex"):
        plan.table_covariances(("age",), ("age", "sex", "pay"))
    with pytest.raises(sf.errors.DomainError, match="height"):
        plan.covariance(("height",))
    with pytest.raises(sf.errors.WorkloadError):
        plan.covariance("age")
    with pytest.raises(sf.errors.PlanError, match="not 3"):
        plan.covariance(3)  # type: ignore[arg-type]
    with pytest.raises(sf.errors.PlanError, match="not 'age'"):
        plan.table_covariances("age", "sex")
    other = sf.Domain({"age": sf.Integers(0, 8)})
    with pytest.raises(sf.errors.PlanError, match="another domain: age"):
        plan.covariance(sf.prefix(other, "age"))
    tilted = _plan(MIXED)
    assert "tilted" in tilted.strategy.summary
    with pytest.raises(sf.errors.PlanError, match="take covariance"):
        tilted.table_covariances(("age", "sex"), ("age",))
    assert len(tilted.table_covariances(("pay", "sex"), ("place", "sex"))) == 2
