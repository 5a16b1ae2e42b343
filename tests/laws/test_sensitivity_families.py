"""Sensitivities of families of blocks: against brute force, against the blocks one by one, and at full size."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sfumato.errors import PlanError, WorkloadError
from sfumato.maps import AlikeMap
from sfumato.operators import Block, Dense, Family, Identity, LinearOperator, Prefix, Residual, Scaled, Total
from sfumato.privacy import certified_sums as products_module
from sfumato.privacy import columns as columns_module
from sfumato.privacy import replaced as replaced_module
from sfumato.privacy import sensitivity as sensitivity_module
from sfumato.privacy import sums as sums_module
from sfumato.privacy.certified_sums import Products, least_symmetric, merge_classes
from sfumato.privacy.replaced import Changes
from sfumato.privacy.sensitivity import Sensitivity
from sfumato.privacy.sums import Bundle, SumOfProducts
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies import certificates as proposals_module
from sfumato.strategies.certificates import exact_sensitivity, fit_products, propose_change_certificates
from support.operators import simple
from support.sensitivities import NAMES, blocks_over, brute_force, columns_of, expanded

laws = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
ADD_REMOVE = PrivacyUnit(Neighbours.ADD_REMOVE)
REPLACE_ONE = PrivacyUnit(Neighbours.REPLACE_ONE)
MULTIPLE = st.sampled_from([1, 2, 3, 5, 2**31, 2**31 + 1, 2**61 + 3])
Strategy = list[Block | Family]


# ---- strategies ------------------------------------------------------------------------------------------


def plain(n: int) -> st.SearchStrategy[LinearOperator]:
    return st.sampled_from([Residual(n), Identity(n), Total(n), Scaled(Residual(n), -3), Scaled(Identity(n), 2**20)])


def matrices(n: int) -> st.SearchStrategy[LinearOperator]:
    return plain(n) | simple(n, st.integers(-3, 3)) | st.builds(Scaled, simple(n, st.integers(-3, 3)), st.just(2**40))


FACTORS = {"residuals": lambda n: st.just(Residual(n)), "plain": plain, "matrices": matrices}


@st.composite
def families(draw: st.DrawFn, sizes: dict[str, int], factor: Any) -> Family:
    """Some sets of one order over all attributes and some that no set names."""
    names = tuple(draw(st.permutations([*sizes, "unused"])))
    factors = tuple(draw(factor(sizes.get(n, 2))) for n in names)
    usable = [i for i, n in enumerate(names) if n in sizes]
    order = draw(st.integers(0, len(usable)))
    every = list(itertools.combinations(usable, order))
    sets = draw(st.lists(st.sampled_from(every), min_size=1, max_size=len(every), unique=True))
    multiples = draw(st.none() | st.lists(MULTIPLE, min_size=len(sets), max_size=len(sets)))
    array = np.array(sets, dtype=np.int64).reshape(len(sets), order)
    return Family(names, factors, array, None if multiples is None else np.array(multiples))


@st.composite
def mixed(draw: st.DrawFn, factor: Any, most_cells: int = 12) -> tuple[Strategy, dict[str, int]]:
    sizes = {n: draw(st.integers(1, 4)) for n in NAMES[: draw(st.integers(1, 3))]}
    while math.prod(sizes.values()) > most_cells:
        sizes[max(sizes, key=lambda n: sizes[n])] -= 1
    made = draw(st.lists(families(sizes, factor), min_size=1, max_size=3))
    return [*made, *draw(st.lists(blocks_over(sizes, factor), max_size=2))], sizes


# ---- brute force and the blocks one by one ---------------------------------------------------------------


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize("kind", FACTORS)
@laws
@given(data=st.data())
def test_one_row_a_person(kind: str, neighbours: Neighbours, power: int, data: st.DataObject) -> None:
    """Mutants: int64 wrap; the sign of an inner product; multiples not squared; attributes that a factor joins
    taken for separate ones; factors of equal columns forgotten; sets that occur twice counted once."""
    blocks, sizes = data.draw(mixed(FACTORS[kind]))
    wanted = brute_force(columns_of(blocks, sizes), neighbours, 1, power)
    found = exact_sensitivity(blocks, sizes, PrivacyUnit(neighbours), power)
    if kind == "matrices" and neighbours is Neighbours.REPLACE_ONE and power == 1:
        # products of entries may leave int64; then it is a bound
        assert found.value == wanted if found.exact else found.value >= wanted
    else:
        assert found == Sensitivity(power, wanted, exact=True)


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("neighbours", list(Neighbours))
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_several_rows_a_person(neighbours: Neighbours, power: int, data: st.DataObject) -> None:
    """Mutant: replace-one without the zero column, where a person may leave fewer rows than before."""
    blocks, sizes = data.draw(mixed(plain, most_cells=4))
    for rows in (1, 2):
        wanted = brute_force(columns_of(blocks, sizes), neighbours, rows, power, persons=True)
        unit = PrivacyUnit(neighbours, "person", rows)
        assert exact_sensitivity(blocks, sizes, unit, power) == Sensitivity(power, wanted, exact=True)


@pytest.mark.parametrize("kind", FACTORS)
@pytest.mark.parametrize("power", [1, 2])
@laws
@given(data=st.data())
def test_bounds_where_nothing_is_searched(kind: str, power: int, data: st.DataObject) -> None:
    """Mutants: inner products of other cells left out; norms of one pair that differ; a column's bound for a pair."""
    blocks, sizes = data.draw(mixed(FACTORS[kind]))
    columns = columns_of(blocks, sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sums_module, "_MOST_WORK", 0)
        patch.setattr(proposals_module, "_MAX_PATTERNS", 0)
        patch.setattr(proposals_module, "MOST_PATTERNS", 0)
        patch.setattr(replaced_module, "DENSE_LIMIT", 0)
        patch.setattr(proposals_module, "_MAX_TABLES", data.draw(st.sampled_from([0, 100])))
        patch.setattr(replaced_module, "_MOST_ABSOLUTE", data.draw(st.sampled_from([0, 1000])))
        patch.setattr(columns_module, "_MOST_CELLS_HUGE", data.draw(st.sampled_from([0, 100])))
        for name in ("_MOST_CELLS_ALONE", "_MOST_CELLS_JOINT"):
            patch.setattr(replaced_module, name, data.draw(st.sampled_from([0, 100])))
        for neighbours in Neighbours:
            found = exact_sensitivity(blocks, sizes, PrivacyUnit(neighbours), power)
            wanted = brute_force(columns, neighbours, 1, power)
            assert found.value == wanted if found.exact else found.value >= wanted


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("neighbours", list(Neighbours))
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_family_is_its_blocks(neighbours: Neighbours, power: int, data: st.DataObject) -> None:
    d = data.draw(st.integers(4, 7))
    names = tuple(f"a{i}" for i in range(d))
    sizes = {n: data.draw(st.integers(1, 5)) for n in names}
    factors = tuple(data.draw(plain(sizes[n])) for n in names)
    blocks: Strategy = []
    for order in data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=3, unique=True)):
        sets = np.array(list(itertools.combinations(range(d), order)), dtype=np.int64)
        multiples = data.draw(st.lists(MULTIPLE, min_size=len(sets), max_size=len(sets)))
        blocks.append(Family(names, factors, sets, np.array(multiples)))
    unit = PrivacyUnit(neighbours)
    assert exact_sensitivity(blocks, sizes, unit, power) == exact_sensitivity(expanded(blocks), sizes, unit, power)


def test_what_does_not_fit_is_refused() -> None:
    sets = np.array([[0], [1]])
    with pytest.raises(PlanError, match="quantise"):
        exact_sensitivity(
            [Family(("a", "b"), (Residual(2), Dense([[0.5, 1.0]])), sets)], {"a": 2, "b": 2}, ADD_REMOVE, 2
        )
    for sizes in ({"a": 2}, {"a": 2, "b": 3}):
        with pytest.raises(WorkloadError):
            exact_sensitivity([Family(("a", "b"), (Residual(2), Residual(2)), sets)], sizes, REPLACE_ONE, 2)
    # what no set names does not matter
    unused = Family(("a", "b"), (Residual(2), Dense([[0.5, 1.0]])), sets[:1])
    assert exact_sensitivity([unused], {"a": 2}, REPLACE_ONE, 2) == Sensitivity(2, 8, exact=True)


# ---- which attributes change ------------------------------------------------------------------------------


@st.composite
def changes(draw: st.DrawFn, most: int = 7) -> SumOfProducts:
    """Minus inner products over attributes of few classes, most sets of a type with the same weight."""
    d = draw(st.integers(1, most))
    numbers = [(90, -10), (6, -3), (2, -2), (1, 0), (20, -5), (5, 3), (2**40, -(2**20))]
    pairs = draw(st.lists(st.sampled_from(numbers), min_size=1, max_size=3, unique=True))
    own = [draw(st.integers(0, len(pairs) - 1)) for _ in range(d)]
    bundles: list[Bundle] = []
    for order in draw(st.lists(st.integers(1, min(d, 3)), min_size=1, max_size=3)):
        sets = [s for s in itertools.combinations(range(d), order) if draw(st.integers(0, 9))]
        weight = [draw(st.integers(1, 9)) * draw(st.sampled_from([1, 2**70])) for _ in range(3)]
        weights = [weight[max(own[i] for i in s)] for s in sets]
        for _ in range(draw(st.integers(0, 1)) if sets else 0):
            weights[draw(st.integers(0, len(sets) - 1))] += 1
        if sets:
            bundles.append(Bundle.of(sets, weights))
    features = {v: (v, np.array(pairs[k], dtype=object)) for v, k in enumerate(own)}
    return SumOfProducts.of([2] * d, [(features, [1] * d, -1)], bundles)


def farthest(given: SumOfProducts) -> int:
    """The largest value by trying all sets of attributes."""
    rows = [row for sets, weights in given.bundles for row in zip(sets.tolist(), weights.tolist(), strict=True)]
    return max(
        sum(w * math.prod(int(given.features[f][1][changed[given.features[f][0]]]) for f in s) for s, w in rows)
        for changed in itertools.product((0, 1), repeat=len(given.states))
    )


def proved(given: SumOfProducts) -> dict[str, list[tuple[int, bool]]]:
    """What each method that is proposed proves; classes that look alike need not be, and are refused then."""
    out: dict[str, list[tuple[int, bool]]] = {}
    for proposed in propose_change_certificates(given):
        with suppress(PlanError):
            out.setdefault(proposed.method, []).append(Changes(1, 0, given, exact=True).bound(proposed))
    return out


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(changes(), st.data())
def test_classes_of_attributes(case: SumOfProducts, data: st.DataObject) -> None:
    """Mutants: classes believed without looking at the weights, at the number of sets, at sets that occur twice."""
    assume(case.bundles)
    wanted = farthest(case)
    # classes of one attribute each never fail
    assert set(proved(case)["classes"]) == {(wanted, True)}
    count = data.draw(st.integers(1, len(case.states)))
    guess = np.array([data.draw(st.integers(0, count - 1)) for _ in case.states])
    guess = np.unique(guess, return_inverse=True)[1].tolist()
    with pytest.MonkeyPatch.context() as patch:
        # whatever is proposed, what is not invariant is found out
        patch.setattr(sums_module, "_CHUNK", data.draw(st.sampled_from([1, 5, 2**21])))
        with suppress(PlanError):
            assert merge_classes(case, guess).largest() == (wanted, True)


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(changes(), st.integers(1, 6))
def test_elimination(case: SumOfProducts, width: int) -> None:
    """Mutants: rounded to the nearest; a split bucket called exact; an attribute eliminated twice."""
    assume(case.bundles)
    wanted = farthest(case)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proposals_module, "_WIDTHS", (width, width))
        for value, exact in proved(case).get("cliques", []):
            assert value == wanted if exact else value >= wanted


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(changes(), st.sampled_from([2, 5, 200]), st.data())
def test_bounds_from_products(case: SumOfProducts, slices: int, data: st.DataObject) -> None:
    """Mutants: sets that the strategy lacks not paid for; deviations of one sign forgotten; the square of an interval
    around 0; intervals that are open at an end. The proposal may be any."""
    assume(case.bundles)
    wanted = farthest(case)
    given = fit_products(case)
    assume(given is not None)
    assert given is not None
    if data.draw(st.booleans()):
        units = tuple(data.draw(st.integers(1, 50)) for _ in given.units)
        costs = (0, *(data.draw(st.integers(0, 9)) for _ in given.costs[1:]))
        given = Products(units, costs, data.draw(st.integers(0, 5)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products_module, "_SLICES", slices)
        assert -least_symmetric(case, given) >= wanted
    for value, exact in (found for some in proved(case).values() for found in some):
        assert value == wanted if exact else value >= wanted


def test_weights_below_their_product_are_paid_for() -> None:
    """Three attributes, the last pair with less weight than its product; mutant: only weights above it cost."""
    features = tuple((v, np.array([6, -3], dtype=object)) for v in range(3))
    case = SumOfProducts((2,) * 3, features, (Bundle.of([(0, 1), (0, 2), (1, 2)], [-7, -7, -1]),))
    assert farthest(case) == 7 * 18 + 7 * 18 - 9
    assert -least_symmetric(case, Products((1, 1, 1), (0, 0, 63), 0)) >= farthest(case)


def refuse(*_: object) -> None:
    raise PlanError("not looked at")


def test_two_factors_of_one_attribute_choose_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells that one factor cannot tell apart and another can; mutant: both at their least inner product together."""
    coarse, fine, signed = Dense([[1, 1, 0], [0, 0, 1]]), Dense(np.eye(3, dtype=np.int64)), Dense([[1, -1]])
    blocks = [Block((("a",), ("b",)), (coarse, signed)), Block((("a",),), (fine,))]
    monkeypatch.setattr(replaced_module, "_pairs_of_cells", refuse)
    found = exact_sensitivity(blocks, {"a": 3, "b": 2}, REPLACE_ONE, 2)
    assert found == Sensitivity(2, 6, exact=False)
    assert brute_force(columns_of(blocks, {"a": 3, "b": 2}), Neighbours.REPLACE_ONE, 1, 2) == 6


def test_the_largest_column_may_be_below_the_sum_of_largest_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: more taken off than both norms of a pair can lack."""
    blocks = [Block((("a",),), (Dense([row]),)) for row in ([3, -1], [-1, 3])]
    monkeypatch.setattr(replaced_module, "_pairs_of_cells", refuse)
    monkeypatch.setattr(replaced_module, "_MOST_CELLS_ALONE", 0)
    assert exact_sensitivity(blocks, {"a": 2}, REPLACE_ONE, 2) == Sensitivity(2, 32, exact=False)


@laws
@given(st.lists(st.sampled_from([2, 3, 5]), min_size=1, max_size=3))
def test_tables_of_absolute_differences(sizes: list[int]) -> None:
    """Mutant: positions in the wrong place; rows of equal entries counted once."""
    table = replaced_module._absolute_distance_table([AlikeMap(n, n, -1).pairs() for n in sizes])
    matrices = [[[n * (i == j) - 1 for j in range(n)] for i in range(n)] for n in sizes]
    for changed in itertools.product((0, 1), repeat=len(sizes)):
        cells = [(0, c) for c in changed]
        pairs = [
            [math.prod(r[c[k]] for r, c in zip(row, cells, strict=True)) for k in (0, 1)]
            for row in itertools.product(*matrices)
        ]
        assert table[changed] == sum(abs(a - b) for a, b in pairs)


# ---- at full size -----------------------------------------------------------------------------------------


def all_tables(sizes: Sequence[int], most: int, multiples: Any) -> tuple[list[Family], dict[str, int]]:
    """Residuals of all tables over at most `most` attributes, multiples by a function of the sets' sizes."""
    names = tuple(f"a{i}" for i in range(len(sizes)))
    out: list[Family] = []
    for k in range(1, most + 1):
        count = math.comb(len(sizes), k)
        flat = itertools.chain.from_iterable(itertools.combinations(range(len(sizes)), k))
        sets = np.fromiter(flat, dtype=np.int64, count=count * k).reshape(count, k)
        cells = np.array(sizes, dtype=np.float64)[sets]
        out.append(Family(names, tuple(map(Residual, sizes)), sets, np.rint(multiples(cells)).astype(np.int64)))
    return out, dict(zip(names, sizes, strict=True))


@pytest.mark.parametrize("d", [10, 100])
def test_equal_attributes_at_any_number(d: int) -> None:
    """Ten cells each, all tables up to three ways, against the closed form in the number t of changed attributes."""
    weights = (1, 987_654_321, 123_456_789, 2**45 + 1)
    families, sizes = all_tables([10] * d, 3, lambda cells: np.full(len(cells), weights[cells.shape[1]]))
    column = sum(weights[k] ** 2 * math.comb(d, k) * 90**k for k in (1, 2, 3))
    assert exact_sensitivity(families, sizes, ADD_REMOVE, 2) == Sensitivity(2, column, exact=True)
    best = 0
    for t in range(d + 1):
        value = 0
        for k, j in itertools.product((1, 2, 3), range(4)):
            if j <= k:
                count = math.comb(t, j) * math.comb(d - t, k - j)
                value += 2 * weights[k] ** 2 * count * (90**k - (-10) ** j * 90 ** (k - j))
        best = max(best, value)
    assert exact_sensitivity(families, sizes, REPLACE_ONE, 2) == Sensitivity(2, best, exact=True)
    person = PrivacyUnit(Neighbours.REPLACE_ONE, "id", 3)
    assert exact_sensitivity(families, sizes, person, 2) == Sensitivity(2, 9 * max(best, column), exact=True)
    # one set with another multiple leaves two classes
    multiples = np.array(families[-1].multiples)
    multiples[17] += 1
    families[-1] = Family(families[-1].names, families[-1].factors, families[-1].sets, multiples)
    assert exact_sensitivity(families, sizes, REPLACE_ONE, 2).value > best
    assert exact_sensitivity(families, sizes, REPLACE_ONE, 2).exact


def test_the_bound_is_close_where_all_attributes_differ() -> None:
    """Sixty attributes of 2 to 61 cells: within 0.1 % of a pair that a plain search finds."""
    for most in (2, 3):
        families, sizes = all_tables(range(2, 62), most, lambda cells: 2.0**40 / np.prod(cells**0.75, axis=1))
        found = exact_sensitivity(families, sizes, REPLACE_ONE, 2)
        column = exact_sensitivity(families, sizes, ADD_REMOVE, 2).value
        assert not found.exact
        # a pair that is nearly at right angles is nowhere far below twice the column
        assert 2 * column < found.value < 2 * column * (1.001 if most == 3 else 1.003)


def test_the_bound_is_close_for_other_contrasts() -> None:
    """Prefix-like factors of 40 attributes, where a pair of cells has any inner product."""
    names = tuple(f"a{i}" for i in range(40))
    factors = tuple(Dense(20 * np.tril(np.ones((n, n), dtype=np.int64)) - 10) for n in [5, 7] * 20)
    sets = np.array(list(itertools.combinations(range(40), 2)))
    sizes = dict(zip(names, [5, 7] * 20, strict=True))
    found = exact_sensitivity([Family(names, factors, sets)], sizes, REPLACE_ONE, 2)
    column = exact_sensitivity([Family(names, factors, sets)], sizes, ADD_REMOVE, 2).value
    assert found.value < 2.1 * column


def test_few_tables_among_many_attributes_are_exact() -> None:
    """A chain of pairs over sixty attributes of different sizes, and a star; mutant: only two in a row looked at."""
    names = tuple(f"a{i}" for i in range(60))
    factors = tuple(map(Residual, range(2, 62)))
    sizes = dict(zip(names, range(2, 62), strict=True))
    values = [(n * (n - 1), -n) for n in range(2, 62)]
    chain = Family(names, factors, np.array([(i, i + 1) for i in range(59)]))
    best = (0, 0)
    for own, after in itertools.pairwise(values):
        step = [[2 * (own[0] * after[0] - own[a] * after[b]) for b in (0, 1)] for a in (0, 1)]
        best = (max(best[a] + step[a][0] for a in (0, 1)), max(best[a] + step[a][1] for a in (0, 1)))
    assert exact_sensitivity([chain], sizes, REPLACE_ONE, 2) == Sensitivity(2, max(best), exact=True)
    star = Family(names, factors, np.array([(i, 59) for i in range(59)]))
    last, others = values[-1], values[:-1]
    centre = [sum(max(2 * (last[0] * o[0] - last[a] * o[b]) for b in (0, 1)) for o in others) for a in (0, 1)]
    assert exact_sensitivity([star], sizes, REPLACE_ONE, 2) == Sensitivity(2, max(centre), exact=True)


def test_a_zero_block_of_any_multiple() -> None:
    """Mutant: a multiple that leaves int64 where the block's entries are all 0."""
    zero = Block((("a",), ("b",)), (Scaled(Dense([[0, 0]]), 2**80), Identity(1)))
    joint = Block((("a", "b"),), (Residual(2),))
    assert exact_sensitivity([zero, joint], {"a": 2, "b": 1}, REPLACE_ONE, 1) == Sensitivity(1, 4, exact=True)
    assert exact_sensitivity([zero, joint], {"a": 2, "b": 1}, REPLACE_ONE, 2) == Sensitivity(2, 8, exact=True)


def test_prefixes_and_residuals_together() -> None:
    factors = (Prefix(30), *(Residual(n) for n in (3, 4, 5)))
    names = ("age", "a", "b", "c")
    sizes = {"age": 30, "a": 3, "b": 4, "c": 5}
    family = Family(names, factors, np.array(list(itertools.combinations(range(4), 2))), np.array([3, 1, 4, 1, 5, 9]))
    found = exact_sensitivity([family], sizes, REPLACE_ONE, 2)
    assert found == exact_sensitivity(list(family.blocks()), sizes, REPLACE_ONE, 2)
    assert found.exact


@pytest.mark.parametrize("same", [True, False])
def test_matrices_that_are_equal_are_one_and_others_are_not(same: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal matrices of several families are told by their entries, so that few patterns of them are looked at, and
    what is proved is the largest distance. Mutants: told by their shape; by their first row; by object alone."""
    rng = np.random.default_rng(4)
    sizes = {"a": 5, "b": 4}
    entries = {n: rng.integers(-3, 4, (k - 1, k)) for n, k in sizes.items()}
    other = entries["a"] if same else np.vstack([entries["a"][:1], rng.integers(-3, 4, (3, 5))])
    blocks = [
        Block((("a",), ("b",)), (Dense(entries["a"]), Dense(entries["b"]))),
        Block((("a",),), (Scaled(Dense(other.copy()), 2),)),
        Block((("b",),), (Dense(entries["b"].copy()),)),
    ]
    seen: list[int] = []
    counted = sensitivity_module.group_patterns

    def noted(terms: Any, tables: Any, signs: Any) -> SumOfProducts:
        seen.append(len(terms.slots))
        return counted(terms, tables, signs)

    for module in (sensitivity_module, replaced_module):
        monkeypatch.setattr(module, "group_patterns", noted)
    found = exact_sensitivity(blocks, sizes, REPLACE_ONE, 2)
    assert found == Sensitivity(2, brute_force(columns_of(blocks, sizes), Neighbours.REPLACE_ONE, 1, 2), exact=True)
    assert set(seen) == {2 if same else 3}
