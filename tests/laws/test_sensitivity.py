"""Sensitivities against brute force: every pair of neighbouring tables of a small domain, in Python integers."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sfumato.errors import PlanError, WorkloadError
from sfumato.operators import AllRange, Block, Dense, Identity, LinearOperator, Prefix, Residual, Scaled, Total, Tree
from sfumato.privacy import columns as columns_module
from sfumato.privacy import replaced as replaced_module
from sfumato.privacy import sensitivity as sensitivity_module
from sfumato.privacy import sums as sums_module
from sfumato.privacy.replaced import Certificate
from sfumato.privacy.sensitivity import Sensitivity
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies import certificates as proposals_module
from sfumato.strategies.certificates import exact_sensitivity
from support.operators import dense, operators, simple
from support.sensitivities import Case, brute_force, cases, columns_of

laws = settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])
ADD_REMOVE = PrivacyUnit(Neighbours.ADD_REMOVE)
REPLACE_ONE = PrivacyUnit(Neighbours.REPLACE_ONE)
LARGE = st.integers(-(2**30), 2**30)


# ---- strategies ------------------------------------------------------------------------------------------


def nested(n: int) -> st.SearchStrategy[LinearOperator]:
    return operators(n, 1, real=False)


def alike(n: int) -> st.SearchStrategy[LinearOperator]:
    """Exchangeable factors, as marginals and their residuals have."""
    plain = [Identity(n), Total(n), Residual(n)]
    return st.sampled_from([*plain, *(Scaled(f, k) for f in plain for k in (-3, 2**20))])


def binary(n: int) -> st.SearchStrategy[LinearOperator]:
    suffix = Dense(np.tril(np.ones((n, n), dtype=np.int64)))
    plain = [Identity(n), Total(n), Prefix(n), suffix, AllRange(n), Tree(n), Tree(n, 3, root=False)]
    return st.sampled_from([*plain, *(Scaled(f, 3) for f in plain)])


def large(n: int) -> st.SearchStrategy[LinearOperator]:
    """Entries whose squares, products and sums leave int64."""
    factor = st.one_of(simple(n, LARGE), dense(2, n, st.integers(-(2**62), 2**62)))
    return st.builds(Scaled, factor, st.integers(-(2**30), 2**30)) | factor


KINDS = {"nested": nested, "alike": alike, "binary": binary, "large": large}


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize("kind", KINDS)
@laws
@given(data=st.data())
def test_one_row_a_person(kind: str, neighbours: Neighbours, power: int, data: st.DataObject) -> None:
    """Mutants: row sums for column norms; replace-one used as add/remove; twice the norm instead of the distance of
    a pair; unordered pairs across groups; int64 wrap; rows over no attribute forgotten."""
    blocks, sizes = data.draw(cases(KINDS[kind]))
    wanted = brute_force(columns_of(blocks, sizes), neighbours, 1, power)
    found = exact_sensitivity(blocks, sizes, PrivacyUnit(neighbours), power)
    if kind == "large" and neighbours is Neighbours.REPLACE_ONE and power == 1:
        # products of entries may leave int64; then it is a bound
        assert found.value == wanted if found.exact else found.value >= wanted
    else:
        assert found == Sensitivity(power, wanted, exact=True)


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("neighbours", list(Neighbours))
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_several_rows_a_person(neighbours: Neighbours, power: int, data: st.DataObject) -> None:
    """Mutants: c instead of c^2; replace-one without the zero column, where a person leaves fewer rows than before."""
    factor = data.draw(st.sampled_from([nested, alike, binary]))
    blocks, sizes = data.draw(cases(factor, most_cells=4))
    for rows in (1, 3):
        wanted = brute_force(columns_of(blocks, sizes), neighbours, rows, power, persons=True)
        unit = PrivacyUnit(neighbours, "person", rows)
        assert exact_sensitivity(blocks, sizes, unit, power) == Sensitivity(power, wanted, exact=True)


def test_the_zero_column_joins_when_rows_may_vanish() -> None:
    """All records share one value: replacing a record changes nothing, replacing a person does."""
    blocks = [Block((("a",),), (Total(4),))]
    assert exact_sensitivity(blocks, {"a": 4}, REPLACE_ONE, 2).value == 0
    assert exact_sensitivity(blocks, {"a": 4}, PrivacyUnit(Neighbours.REPLACE_ONE, "id"), 2).value == 1
    assert exact_sensitivity(blocks, {"a": 4}, PrivacyUnit(Neighbours.REPLACE_ONE, "id", 3), 2).value == 9
    assert exact_sensitivity(blocks, {"a": 4}, PrivacyUnit(Neighbours.REPLACE_ONE, "id", 3), 1).value == 3
    assert exact_sensitivity(blocks, {"a": 4}, PrivacyUnit(Neighbours.ADD_REMOVE, "id", 3), 2).value == 9


@pytest.mark.parametrize("turned", [False, True])
def test_pairs_stand_in_either_order(turned: bool) -> None:
    """Mutant: only pairs (u, v) with u <= v in every group; the farthest here is (0, 1) from (1, 0), or the reverse."""
    rising, falling = Dense([[1, 3]]), Dense([[3, 1]])
    suffix, prefix = Dense([[1, 0, 0], [1, 1, 0], [1, 1, 1]]), Dense([[0, 0, 1], [0, 1, 1], [1, 1, 1]])
    for first, second in ((falling, rising), (prefix, suffix)):
        factors = (second, first) if turned else (first, second)
        blocks = [Block((("a",), ("b",)), factors)]
        sizes = {"a": first.shape[1], "b": first.shape[1]}
        for power in (1, 2):
            wanted = brute_force(columns_of(blocks, sizes), Neighbours.REPLACE_ONE, 1, power)
            assert exact_sensitivity(blocks, sizes, REPLACE_ONE, power) == Sensitivity(power, wanted, exact=True)


def test_products_within_a_joined_group() -> None:
    """Mutants: int64 wrap where the Grams of two factors of one joined group are multiplied; axes out of order."""
    joined = Block((("b", "a"),), (Dense(np.arange(12).reshape(2, 6)),))
    apart = Block((("a",), ("b",)), (Dense([[2**30, -(2**30) + 1]]), Dense([[2**30 - 3, 5, -(2**29)]])))
    sizes = {"a": 2, "b": 3}
    for blocks in ([joined, apart], [apart, joined]):
        for neighbours in Neighbours:
            wanted = brute_force(columns_of(blocks, sizes), neighbours, 1, 2)
            assert exact_sensitivity(blocks, sizes, PrivacyUnit(neighbours), 2) == Sensitivity(2, wanted, exact=True)


# ---- where the exact search ends -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("power", [1, 2])
@laws
@given(data=st.data())
def test_bounds_where_the_search_is_cut_short(kind: str, power: int, data: st.DataObject) -> None:
    """Mutants: a bound from one column for a pair; the float value of an unfinished search taken for the largest."""
    blocks, sizes = data.draw(cases(KINDS[kind]))
    columns = columns_of(blocks, sizes)
    limits = data.draw(st.sampled_from(["work", "ties", "cells"]))
    with pytest.MonkeyPatch.context() as patch:
        if limits == "work":
            patch.setattr(sums_module, "_MOST_WORK", 0)
            patch.setattr(proposals_module, "_MAX_PATTERNS", 0)
            patch.setattr(proposals_module, "MOST_PATTERNS", 0)
        elif limits == "ties":
            patch.setattr(sums_module, "_MOST_NEAR", 0)
        else:
            patch.setattr(columns_module, "_MOST_CELLS_HUGE", 0)
            for name in ("_MOST_CELLS_ALONE", "_MOST_CELLS_JOINT"):
                patch.setattr(replaced_module, name, 0)
        if limits != "ties":
            patch.setattr(replaced_module, "DENSE_LIMIT", 0)
        for neighbours in Neighbours:
            found = exact_sensitivity(blocks, sizes, PrivacyUnit(neighbours), power)
            wanted = brute_force(columns, neighbours, 1, power)
            assert found.value == wanted if found.exact else found.value >= wanted


def test_bounds_are_not_needlessly_far() -> None:
    """Non-negative entries: no pair is farther than twice the largest column."""
    n = 20_000
    far = exact_sensitivity([Block((("a",),), (Prefix(n),))], {"a": n}, REPLACE_ONE, 2)
    assert far == Sensitivity(2, 2 * n, exact=False)


# ---- constants known from theory (mathematics, section S3) -------------------------------------------------


def of(operator: LinearOperator) -> Case:
    return [Block((("a",),), (operator,))], {"a": operator.shape[1]}


@pytest.mark.parametrize("n", [1, 2, 8, 100])
def test_prefixes(n: int) -> None:
    for power in (1, 2):
        assert exact_sensitivity(*of(Prefix(n)), ADD_REMOVE, power) == Sensitivity(power, n, exact=True)
        assert exact_sensitivity(*of(Prefix(n)), REPLACE_ONE, power) == Sensitivity(power, n - 1, exact=True)


def test_all_ranges() -> None:
    for power in (1, 2):
        assert exact_sensitivity(*of(AllRange(8)), ADD_REMOVE, power) == Sensitivity(power, 20, exact=True)


@pytest.mark.parametrize("levels", [0, 1, 3, 6])
def test_trees(levels: int) -> None:
    tree = of(Tree(2**levels))
    for power in (1, 2):
        assert exact_sensitivity(*tree, ADD_REMOVE, power) == Sensitivity(power, levels + 1, exact=True)
        assert exact_sensitivity(*tree, REPLACE_ONE, power) == Sensitivity(power, 2 * levels, exact=True)


@pytest.mark.parametrize(("d", "w"), [(4, 2), (5, 3), (14, 2), (30, 2)])
def test_marginals(d: int, w: int) -> None:
    names = [f"a{i}" for i in range(d)]
    blocks = [Block(tuple((n,) for n in c), (Identity(3),) * w) for c in itertools.combinations(names, w)]
    sizes = dict.fromkeys(names, 3)
    for power in (1, 2):
        assert exact_sensitivity(blocks, sizes, ADD_REMOVE, power) == Sensitivity(power, math.comb(d, w), exact=True)
        assert exact_sensitivity(blocks, sizes, REPLACE_ONE, power).value == 2 * math.comb(d, w)


def test_residuals() -> None:
    sizes = {"a": 4, "b": 3}
    both = [Block((("a",), ("b",)), (Residual(4), Residual(3)))]
    assert exact_sensitivity(both, sizes, ADD_REMOVE, 2).value == 4 * 3 * 3 * 2
    assert exact_sensitivity(both, sizes, ADD_REMOVE, 1).value == 2 * 3 * 2 * 2


# ---- refusals and corners --------------------------------------------------------------------------------


def test_nothing_measured_costs_nothing() -> None:
    for unit in (ADD_REMOVE, REPLACE_ONE):
        assert exact_sensitivity([], {"a": 3}, unit, 2) == Sensitivity(2, 0, exact=True)
    total = [Block((), ())]
    assert exact_sensitivity(total, {"a": 3}, ADD_REMOVE, 2) == Sensitivity(2, 1, exact=True)
    assert exact_sensitivity(total, {"a": 3}, REPLACE_ONE, 2) == Sensitivity(2, 0, exact=True)
    zero = [Block((("a",),), (Scaled(Identity(3), 0),))]
    assert exact_sensitivity(zero, {"a": 3}, REPLACE_ONE, 2) == Sensitivity(2, 0, exact=True)


def test_large_domains_stay_cheap() -> None:
    """Mutant: a square of a million cells for factors whose cells are all alike."""
    n = 10**6
    sizes = {"a": n, "b": n}
    blocks = [Block((("a",), ("b",)), (Identity(n), Residual(n)))]
    assert exact_sensitivity(blocks, sizes, REPLACE_ONE, 2) == Sensitivity(2, 2 * n * n, exact=True)
    joined = [Block((("a", "b"),), (Identity(10**6),))]
    assert exact_sensitivity(joined, {"a": 1000, "b": 1000}, REPLACE_ONE, 2) == Sensitivity(2, 2, exact=True)
    assert exact_sensitivity([Block((("a",),), (Tree(n),))], sizes, ADD_REMOVE, 2).exact


@pytest.mark.parametrize("power", [0, 3, True, 1.0, "2", None])
def test_other_powers_are_refused(power: Any) -> None:
    with pytest.raises(PlanError):
        exact_sensitivity(*of(Identity(2)), ADD_REMOVE, power)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(PlanError, match="quantise"):
        exact_sensitivity(*of(Dense([[0.5, 1.0]])), ADD_REMOVE, 2)
    with pytest.raises(PlanError, match="quantise"):
        exact_sensitivity(*of(Scaled(Identity(2), 2.0)), ADD_REMOVE, 2)
    for sizes in ({"a": 3}, {"b": 2}):
        with pytest.raises(WorkloadError):
            exact_sensitivity([Block((("a",),), (Identity(2),))], sizes, REPLACE_ONE, 2)


def test_the_relation_is_read_and_never_guessed() -> None:
    """Mutant: the text 'add-remove' kept as it is, and then taken for replace-one."""
    blocks = of(Total(3))
    assert exact_sensitivity(*blocks, PrivacyUnit("add-remove"), 2).value == 1  # type: ignore[arg-type]
    assert exact_sensitivity(*blocks, PrivacyUnit("replace-one"), 2).value == 0  # type: ignore[arg-type]
    for bad in (None, True, "swap", "ADD_REMOVE", 1):
        with pytest.raises(PlanError):
            PrivacyUnit(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [0, -1, True, 1.0, "2", 10**6 + 1, None])
def test_rows_per_person_are_a_sensible_number(rows: Any) -> None:
    with pytest.raises(PlanError):
        PrivacyUnit(Neighbours.ADD_REMOVE, "id", rows)


def test_units_describe_themselves() -> None:
    with pytest.raises(PlanError, match="person"):
        PrivacyUnit(Neighbours.ADD_REMOVE, rows_per_person=2)
    for person in ("", 3):
        with pytest.raises(PlanError):
            PrivacyUnit(Neighbours.ADD_REMOVE, person)  # type: ignore[arg-type]
    assert PrivacyUnit(Neighbours.ADD_REMOVE).describe() == "one record added or removed"
    several = PrivacyUnit(Neighbours.REPLACE_ONE, "id", 4)
    assert several.describe() == "one person (column 'id') with at most 4 rows replaced by another"
    assert [PrivacyUnit(n).total_is_public for n in Neighbours] == [False, True]
    assert not several.total_is_public
    # a person may leave no row that bears the name
    assert not PrivacyUnit(Neighbours.REPLACE_ONE, "id").total_is_public


def test_all_pairs_are_not_proposed_where_they_would_end_in_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inner products beyond int64 of many cells are refused at the wall, after seconds: the price is the same without.

    Mutant: the proposal left out of few cells too, whose pairs are looked at with Python's integers.
    """
    numbers = np.random.default_rng(7).integers(2**30, 2**31, (3, 410))
    numbers[0] *= 4
    tried: list[str] = []
    bound = replaced_module.ColumnPairs.bound

    def told(pairs: replaced_module.ColumnPairs, given: Certificate) -> tuple[int, bool]:
        tried.append(given.method)
        return bound(pairs, given)

    for cells, proposed in ((410, 0), (40, 1)):
        blocks = [Block((("a",),), (Dense(numbers[:, :cells]),))]
        tried.clear()
        with monkeypatch.context() as patched:
            patched.setattr(replaced_module.ColumnPairs, "bound", told)
            found = exact_sensitivity(blocks, {"a": cells}, REPLACE_ONE, 2)
            assert tried.count("cells") == proposed
            patched.setattr(proposals_module, "_cell_pairs_overflow", lambda _: False)
            assert found == exact_sensitivity(blocks, {"a": cells}, REPLACE_ONE, 2)


@pytest.mark.parametrize("most", [2**63, 8])
@pytest.mark.parametrize("seed", range(40))
def test_what_cells_have_is_found_without_going_through_them(
    seed: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: numbers of cells that overflow; one entry of a table taken for another's of the same place."""
    monkeypatch.setattr(sensitivity_module, "INT64", most)
    random = np.random.default_rng(seed)
    shape = random.integers(1, 5, random.integers(1, 4))
    tables: list[Any] = []
    for _ in range(random.integers(2, 6)):
        own = np.where(random.random(len(shape)) < 0.6, shape, 1)
        values = np.array([0, 1, 2**40, 2**70], dtype=object)[: random.integers(1, 5)]
        tables.append(values[random.integers(0, len(values), own)])
    each = [t.reshape(-1).tolist() for t in np.broadcast_arrays(*tables)]
    assert sensitivity_module._distinct_entries(tables) == sorted({*zip(*each, strict=True)}, reverse=True)
