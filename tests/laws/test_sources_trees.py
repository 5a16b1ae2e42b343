"""The mechanisms of the textbooks as plans: sums of fewest nodes against brute force, and published constants. [HRMS10]

Mutants seen to fail: the last block of a domain taken for a part; a block left out that does not repeat its child; the
root measured under replace-one; the multiple for its square; a block that an extra cell spoils taken for whole; a total
used by plain sums; one branching for another; a comparison that chooses, drops reasons or lists twice.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import NotAnswerable, PlanError
from sfumato.operators import AllRange, Block, Dense, Identity, Padded, Prefix, Tree, Window
from sfumato.planner.planning import compared
from sfumato.strategies.trees import Canonical
from support.reconstructions import check_covariances, reconstruction, reconstructions
from support.words import plan_with

TREES = [Tree(n, b, root) for n in (1, 2, 3, 7, 8, 9, 13, 33) for b in (2, 3, 4, 16) for root in (True, False)]


def asked(operator: Any) -> Block:
    return Block((("t",),), (operator,))


def fewest(tree: Tree, operator: Any) -> np.ndarray:
    """R by brute force: the measured blocks inside a range that lie in no larger one inside it."""
    nodes, ranges = tree.dense(), operator.dense()
    size = nodes.sum(axis=1)
    inside = ranges @ nodes.T == size
    larger = (nodes @ nodes.T == size[:, None]) & (size[None, :] > size[:, None])
    return inside & ~((inside.astype(int) @ larger.T.astype(int)) > 0)


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_sums_of_fewest_nodes_are_the_largest_blocks_inside(tree: Tree) -> None:
    """R B = W, R y, the powers of its rows, and what is said of all ranges without listing them."""
    strategy, n = Canonical("t", tree, 3), tree.n
    values = np.random.default_rng().integers(-(2**40), 2**40, tree.shape[0])
    padded = [Padded(AllRange(n - 1))] if n > 1 else []
    for operator in (AllRange(n), Prefix(n), Identity(n), Window(n, n), *padded):
        exact = fewest(tree, operator)
        assert (exact @ tree.dense() == operator.dense()).all()
        assert np.allclose(reconstruction(strategy, asked(operator)), exact / 3)
        assert np.allclose(strategy.answer(strategy.estimate([values], None), asked(operator)), exact @ values / 3)
        for power in (2, 4):
            np.testing.assert_allclose(strategy.row_powers(asked(operator), power), exact.sum(axis=1) / 3.0**power)


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_all_ranges_together_are_as_one_by_one(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an extra cell follows the order, too: some blocks then hold it and are of no use."""
    monkeypatch.setattr("sfumato.strategies.trees._LISTED", 0)
    for last in range(max(1, tree.n - 9), tree.n + 1):
        operator = AllRange(last) if last == tree.n else Padded(AllRange(last), tree.n - last)
        counts = fewest(tree, operator).sum(axis=1)
        found = Canonical("t", tree, 3).row_errors(asked(operator))
        assert found == (pytest.approx(counts.mean() / 9), pytest.approx(counts.max() / 9))


def test_ranges_that_are_too_many_to_list(monkeypatch: pytest.MonkeyPatch) -> None:
    domain = sf.Domain({"t": 100})
    listed = plan_with(sf.ranges(domain, "t"), sf.gdp(1), neighbours="add-remove", strategy="tree-3", **CANONICAL)
    monkeypatch.setattr("sfumato.strategies.trees._LISTED", 10)
    summed = plan_with(sf.ranges(domain, "t"), sf.gdp(1), neighbours="add-remove", strategy="tree-3", **CANONICAL)
    assert summed.rmse == pytest.approx(listed.rmse, rel=1e-12)
    assert summed.max_standard_error == pytest.approx(listed.max_standard_error, rel=1e-12)
    with pytest.raises(PlanError, match="too many"):
        summed.standard_errors()


def test_cells_of_a_wide_domain_are_a_tree_without_inner_nodes() -> None:
    """All ranges of 8,000 cells are not listed: their mean length is (n + 2) / 3."""
    work = sf.ranges(sf.Domain({"t": 8_000}), "t")
    made = sf.plan(work, sf.gdp(1), neighbours="add-remove", strategy="cells")
    assert made.rmse == pytest.approx(math.sqrt(8_002 / 3), rel=1e-6)
    assert made.max_standard_error == pytest.approx(math.sqrt(8_000), rel=1e-6)


CANONICAL: dict[str, Any] = {"reconstruction": "canonical"}


def test_covariances_are_the_shared_nodes() -> None:
    strategy = Canonical("t", Tree(11, 3), 2)
    blocks = [asked(Prefix(11)), asked(AllRange(11)), asked(Padded(Window(10, 4))), Block((), ())]
    check_covariances(strategy, blocks, reconstructions(strategy, blocks))


def test_other_questions_are_refused() -> None:
    strategy = Canonical("t", Tree(4))
    for block in (asked(Dense(np.eye(4))), Block((("u",),), (Prefix(4),)), Block((("t",), ("u",)), (Prefix(4),) * 2)):
        with pytest.raises(NotAnswerable, match="ranges of t"):
            strategy.check(block)


# -- by name ---------------------------------------------------------------------------------------------

# rmse at noise multiplier 1, add-remove: mathematics.md S6, where 4.59450 is printed as 4.595
PREFIX = {
    8: (2.828, 2.121, 2.550, 1.656, 1.739, 1.826, 1.586, 1.4944),
    64: (8, 5.701, 4.5945, 2.518, 2.584, 3.192, 2.230, 2.0999),
    256: (16, 11.34, 6.003, 3.102, 3.194, 3.997, 2.669, 2.5244),
}
RANGES = {8: (1.805, 1.495), 64: (3.015, 2.302), 256: (3.835, 2.9014)}
COLUMNS: list[dict[str, Any]] = [
    {"strategy": "queries"},
    {"strategy": "cells"},
    {"strategy": "tree", **CANONICAL},
    {"strategy": "tree"},
    {"strategy": "tree-4"},
    {"strategy": "tree-16"},
    {"strategy": "square-root"},
    {"mechanism": "factorization"},
]


@pytest.mark.parametrize("n", [8, 64, 256])
def test_published_constants_of_prefixes_and_ranges(n: int) -> None:
    domain = sf.Domain({"t": n})
    for options, expected in zip(COLUMNS, PREFIX[n], strict=True):
        made = plan_with(sf.prefix(domain, "t"), sf.gdp(1), neighbours="add-remove", **options)
        assert made.rmse == pytest.approx(expected, rel=6e-4), options
    for options, expected in zip((COLUMNS[3], COLUMNS[-1]), RANGES[n], strict=True):
        made = plan_with(sf.ranges(domain, "t"), sf.gdp(1), neighbours="add-remove", **options)
        assert made.rmse == pytest.approx(expected, rel=6e-4), options


@pytest.mark.parametrize("n", [8, 64, 1024])
def test_the_binary_tree_in_closed_form(n: int) -> None:
    """Prefixes of 2^L cells: on average L/2 + 1/n ones in the digits of 1 to n, times L + 1 levels with a record."""
    levels = int(math.log2(n))
    made = sf.plan(
        sf.prefix(sf.Domain({"t": n}), "t"), sf.gdp(1), neighbours="add-remove", strategy="tree", **CANONICAL
    )
    assert made.rmse**2 == pytest.approx((levels / 2 + 1 / n) * (levels + 1), rel=1e-6)
    assert made.max_standard_error**2 == pytest.approx(levels * (levels + 1), rel=1e-6)
    ranges = sf.plan(
        sf.ranges(sf.Domain({"t": n}), "t"), sf.gdp(1), neighbours="add-remove", strategy="tree", **CANONICAL
    )
    assert ranges.max_standard_error**2 == pytest.approx((2 * levels - 2) * (levels + 1), rel=1e-6)


PLAIN: dict[str, Any] = {"strategy": "cells", **CANONICAL}


def test_a_public_total_is_not_measured() -> None:
    """Under replace-one the tree has no root: the last prefix is the sum of both halves."""
    work = sf.prefix(sf.Domain({"t": 8}), "t")
    made = plan_with(work, sf.gdp(1), neighbours="replace-one", strategy="tree", **CANONICAL)
    assert sum(b.rows for b in made.strategy.blocks) == 14
    # 6 nodes differ between two records of different halves, which takes the root of 6 for one node
    np.testing.assert_allclose(made.standard_errors() ** 2 / 6, [1, 1, 2, 1, 2, 2, 3, 2], rtol=1e-6)


SIMULATED = [*COLUMNS[:7], PLAIN, {"strategy": "normalised-square-root"}]


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("options", SIMULATED, ids=lambda o: "-".join(o.values()))
def test_what_is_predicted_is_what_is_seen(options: dict[str, Any], relation: str) -> None:
    """Mean squares of 1,500 releases, and no bias, at 7.13 standard deviations (two-sided 1e-12)."""
    repetitions, domain = 1_500, sf.Domain({"t": 11})
    work = sf.stack(cdf=sf.prefix(domain, "t"), ranges=sf.windows(domain, "t", 3), weights={"cdf": 2})
    budget = sf.gdp(1) if "square" in options["strategy"] else sf.zcdp("0.4")
    found = plan_with(work, budget, neighbours=relation, **options)
    seen = sf.simulate(found, np.arange(11) * 5, repetitions=repetitions, rng=np.random.default_rng())
    errors = found.standard_errors()
    noisy = errors > 1e-6
    ratio = (seen.per_query_rmse[noisy] / errors[noisy]) ** 2
    assert np.abs(ratio - 1).max() < 7.13 * math.sqrt(2 / repetitions)
    assert np.abs(seen.mean_error[noisy] / errors[noisy]).max() < 7.13 / math.sqrt(repetitions)
    assert np.abs(seen.per_query_rmse[~noisy]).max(initial=0.0) < 1e-6


def test_a_binary_tree_is_released_stored_and_asked(tmp_path: Path) -> None:
    domain = sf.Domain({"t": 40, "u": 2})
    made = plan_with(sf.prefix(domain, "t"), sf.pure(1), neighbours="replace-one", strategy="tree", **CANONICAL)
    made.save(tmp_path / "a.plan")
    assert sf.load(tmp_path / "a.plan").fingerprint == made.fingerprint
    counts = np.arange(80).reshape(40, 2)
    done = sf.release(made, sf.Histogram(counts), ledger=None, out=tmp_path / "out")
    error = done.answers - counts.sum(axis=1).cumsum()
    assert (np.abs(error) < 30 * made.standard_errors()).all()
    assert (sf.load(tmp_path / "out").answers == done.answers).all()
    with pytest.raises(sf.SfumatoError):
        done.ask("u == 1")


def test_names_that_do_not_fit_are_refused() -> None:
    """Saying what was given, what is allowed and what to do."""
    domain = sf.Domain({"t": 8, "u": 3})
    work = sf.prefix(domain, "t")
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (work, {"strategy": "wood"}, "tree-4"),
        (work, {"strategy": "tree-0"}, "tree-4"),
        (work, {"strategy": "tree-1"}, "branches"),
        (work, {"strategy": "tree", "reconstruction": "best"}, "canonical"),
        (work, {"strategy": "queries", **CANONICAL}, "sums cells"),
        (work, {"strategy": "square-root", "noise": "laplace"}, "Gaussian"),
        (work, {"strategy": "square-root", "lattice": "unit"}, "lattice"),
        (sf.marginals(domain, order=2), {"strategy": "square-root"}, "ordered"),
        (sf.marginals(domain, order=2), {"strategy": "tree"}, "ordered"),
        (sf.prefix(domain, "t", by=["u"]), {"strategy": "tree", **CANONICAL}, "one ordered attribute"),
        (sf.total(domain), {"strategy": "cells"}, "no attribute"),
    ]
    for asked_, options, words in cases:
        with pytest.raises(sf.SfumatoError, match=words):
            plan_with(asked_, sf.gdp(1), neighbours="add-remove", **options)
    known = {("t",): [1] * 8}
    with pytest.raises(PlanError, match="public"):
        sf.plan(work, sf.gdp(1), neighbours="add-remove", strategy="tree", public=known)


# -- side by side ----------------------------------------------------------------------------------------


def test_every_mechanism_is_compared_and_the_choice_stays() -> None:
    work = sf.prefix(sf.Domain({"t": 16}), "t")
    plain = sf.plan(work, sf.gdp(1), neighbours="replace-one")
    made = compared(work, sf.gdp(1), neighbours="replace-one")
    assert made.fingerprint == plain.fingerprint
    assert made.lower_bound == plain.lower_bound
    refused = made.candidates.rows()[-1]
    assert (refused["mechanism"], refused["rmse"]) == ("approximate", None)
    lines = [r for r in made.candidates.rows() if r["objective_value"] is not None]
    assert {r["mechanism"] for r in made.candidates.rows()[len(lines) :]} == {"laplace", "approximate"}
    values = [r["objective_value"] for r in lines]
    assert values == sorted(values)
    assert len({r["strategy"] for r in lines}) == len(lines) >= 11
    by_note = {r["strategy"]: r["note"] for r in lines}
    assert by_note["noise on every cell of t"] == "errs 1.27 times as much"
    listed = {r["strategy"]: r["rmse"] for r in lines}
    for options in [*COLUMNS[:7], PLAIN]:
        one = plan_with(work, sf.gdp(1), neighbours="replace-one", **options)
        assert listed[one.strategy.summary] == one.rmse


def test_a_comparison_with_one_mechanism_asked_for_shows_the_others() -> None:
    work = sf.prefix(sf.Domain({"t": 16}), "t")
    made = compared(work, sf.gdp(1), neighbours="add-remove", mechanism="tree")
    assert made.mechanism == "tree"
    notes = {r["note"] for r in made.candidates.rows() if r["mechanism"] == "factorization"}
    assert notes == {"errs less, but was not asked for"}
    assert sum(r["note"] == "chosen" for r in made.candidates.rows()) == 1


def test_a_biased_mechanism_is_compared_where_the_records_are_stated() -> None:
    work = sf.disjunctions(3)
    few = compared(work, sf.approx(1, "1e-6"), neighbours="add-remove", records=20)
    assert few.mechanism == "factorization"
    notes = {r["mechanism"]: r["note"] for r in few.candidates.rows()}
    assert notes["approximate"] == "errs less, but was not asked for"


def _is_refused(row: dict[str, Any]) -> bool:
    """Whether a line is of a mechanism that does not apply, not of one of its searches."""
    return row["rmse"] is None and not row["strategy"]


def test_what_does_not_apply_is_listed_with_its_reason() -> None:
    domain = sf.Domain({"a": 3, "b": 4})
    made = compared(sf.marginals(domain, upto=2), sf.pure(1), neighbours="add-remove")
    reasons = {r["mechanism"]: r["note"] for r in made.candidates.rows() if _is_refused(r)}
    assert set(reasons) >= {"tree", "tree-4", "tree-16", "tree (canonical)", "square-root"}
    assert "none is asked" in reasons["tree-4"]
    many = sf.marginals(sf.Domain({f"a{i}": 2 for i in range(24)}), upto=3)
    made = compared(many, sf.gdp(1), neighbours="add-remove")
    reasons = {r["mechanism"]: r["note"] for r in made.candidates.rows() if _is_refused(r)}
    assert "2,000 tables" in reasons["queries"]
    wide = compared(sf.prefix(sf.Domain({"t": 5_000}), "t"), sf.pure(1), neighbours="add-remove")
    reasons = {r["mechanism"]: r["note"] for r in wide.candidates.rows() if _is_refused(r)}
    assert set(reasons) == {"factorization", "approximate", "square-root", "normalised-square-root"}
    assert "limit" in reasons["factorization"]
