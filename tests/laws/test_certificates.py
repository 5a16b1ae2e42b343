"""Certificates of replace-one prices: those of the planner prove its price, and no other proves too little."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sfumato.errors import PlanError
from sfumato.maps import AlikeMap, BlockMap, MultipleMap
from sfumato.operators import Block, Dense, Family, Identity, LinearOperator, Prefix, Residual, Scaled, Total, Tree
from sfumato.privacy.certified_sums import Products, eliminate_cliques, least_symmetric, merge_classes
from sfumato.privacy.replaced import Certificate
from sfumato.privacy.sensitivity import best_certified, certified_bound
from sfumato.privacy.sums import Bundle, SumOfProducts
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies.certificates import exact_sensitivity, find_certificate, search_certificate
from support.operators import simple
from support.sensitivities import brute_force, cases, columns_of

laws = settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
REPLACE_ONE = PrivacyUnit(Neighbours.REPLACE_ONE)
PERSON = PrivacyUnit(Neighbours.REPLACE_ONE, "id", 3)


def proved(blocks: Any, sizes: Any, unit: PrivacyUnit, power: int, proof: Certificate | None) -> int:
    return certified_bound([b.lowered() for b in blocks], sizes, unit, power, proof)


def same_price(blocks: Any, sizes: Any, powers: tuple[int, ...] = (1, 2)) -> None:
    """What the search found is what its certificate proves, to the unit."""
    for unit, power in itertools.product((REPLACE_ONE, PERSON), powers):
        found = exact_sensitivity(blocks, sizes, unit, power)
        proof = find_certificate(blocks, sizes, unit, power)
        assert proved(blocks, sizes, unit, power, proof) == found.value


def tables(sizes: Any, most: int, multiples: Any, kind: Any = Residual) -> tuple[list[Family], dict[str, int]]:
    names = tuple(f"a{i}" for i in range(len(sizes)))
    out: list[Family] = []
    for k in range(1, most + 1):
        sets = np.array(list(itertools.combinations(range(len(sizes)), k)))
        cells = np.array(sizes, dtype=np.float64)[sets]
        out.append(Family(names, tuple(map(kind, sizes)), sets, np.rint(multiples(cells)).astype(np.int64)))
    return out, dict(zip(names, sizes, strict=True))


# ---- the price of every kind of plan is that of the search -------------------------------------------------


def any_factor(n: int) -> st.SearchStrategy[LinearOperator]:
    plain = [Identity(n), Total(n), Residual(n), Prefix(n), Scaled(Residual(n), -3), Scaled(Identity(n), 2**20)]
    return st.sampled_from(plain) | simple(n, st.integers(-9, 9)) | simple(n, st.integers(-(2**30), 2**30))


@laws
@given(cases(any_factor), st.sampled_from([1, 2]))
def test_small_strategies(case: Any, power: int) -> None:
    """Mutants: ordered pairs across groups forgotten; a weight not squared; a class believed; an inner product of
    equal cells; the zero column of persons forgotten."""
    blocks, sizes = case
    found = exact_sensitivity(blocks, sizes, REPLACE_ONE, power)
    proof = find_certificate(blocks, sizes, REPLACE_ONE, power)
    value = proved(blocks, sizes, REPLACE_ONE, power, proof)
    assert value <= found.value
    assert value >= brute_force(columns_of(blocks, sizes), Neighbours.REPLACE_ONE, 1, power)
    assert value == found.value or not found.exact


FLAT, STEEP = (lambda c: np.full(len(c), 3 + c.shape[1])), (lambda c: 2.0**30 / np.prod(c**0.6, axis=1))


@pytest.mark.parametrize(
    ("sizes", "most", "multiples", "kind"),
    [
        ([10] * 12, 3, FLAT, Residual),
        ([10] * 12, 2, FLAT, Identity),
        ([2] * 5 + [3] * 6 + [7] * 4, 3, STEEP, Residual),
        ([2] * 5 + [3] * 6, 2, FLAT, Identity),
        (list(range(2, 12)), 3, STEEP, Residual),
        (list(range(2, 42)), 2, STEEP, Residual),
        ([3] * 60, 3, STEEP, Residual),
    ],
)
def test_families_of_tables(sizes: Any, most: int, multiples: Any, kind: Any) -> None:
    """Classes, cliques and weights close to products. Mutant: a class whose weights differ."""
    same_price(*tables(sizes, most, multiples, kind), powers=(2,) if len(sizes) > 12 else (1, 2))


def test_chains_graphs_and_matrices() -> None:
    """Few tables of many attributes, split cliques, dense pairs beyond int64, one group of many cells. Seed 3."""
    generator = np.random.default_rng(3)
    names = tuple(f"a{i}" for i in range(30))
    chain = Family(names, tuple(map(Residual, range(2, 32))), np.array([(i, i + 1) for i in range(29)]))
    same_price([chain], dict(zip(names, range(2, 32), strict=True)))
    edges = sorted({tuple(sorted(generator.choice(30, 2, replace=False).tolist())) for _ in range(90)})
    graph = Family(names, tuple(Residual(3) for _ in names), np.array(edges))
    same_price([graph], dict.fromkeys(names, 3))
    for size in (2**6, 2**16, 2**24):
        first, second, third = (Dense(generator.integers(-size, size, (9, 9))) for _ in range(3))
        joint = [Block((("a",), ("b",)), (first, second)), Block((("a",),), (third,)), Block((("b",),), (Prefix(9),))]
        same_price(joint, {"a": 9, "b": 9}, (2,))
    same_price([Block((("a",),), (Tree(200),))], {"a": 200})
    same_price([Block((("a",),), (Prefix(20_000),))], {"a": 20_000})


def test_the_least_that_is_proved_is_kept() -> None:
    """Pairs of forty attributes, proved by products. Mutant: a proposal that proves less taken for the best."""
    families, sizes = tables(list(range(2, 42)), 2, STEEP)
    found, proof = search_certificate(families, sizes, REPLACE_ONE, 2)
    worse = Certificate("apart")
    assert proof is not None
    assert proved(families, sizes, REPLACE_ONE, 2, worse) > found.value
    lowered = [f.lowered() for f in families]
    for order in ((proof, worse), (worse, proof)):
        assert best_certified(lowered, sizes, REPLACE_ONE, 2, lambda _, given=order: given) == (found, proof)


def test_a_pair_of_cells_stands_in_either_order() -> None:
    """One row (1, 3) on a times (3, 1) on b: it is 9 and 1 where a changes one way and b the other.

    Mutant: every pair of cells in one order, for which the row is 3 twice.
    """
    blocks = [Block((("a",), ("b",)), (Dense([[1, 3]]), Dense([[3, 1]])))]
    sizes = {"a": 2, "b": 2}
    assert proved(blocks, sizes, REPLACE_ONE, 2, Certificate("pairs")) == (9 - 1) ** 2
    same_price(blocks, sizes)


# ---- whatever is proposed, no bound is too small -----------------------------------------------------------


@st.composite
def proposals(draw: st.DrawFn, groups: int) -> Certificate:
    """Arbitrary certificates: classes, cliques in any order, and products, most of them wrong."""
    method = draw(st.sampled_from(["apart", "cells", "pairs", "classes", "cliques", "products"]))
    count = draw(st.integers(groups, groups + 4))
    scope = st.lists(st.integers(0, count), max_size=count, unique=True)
    cliques: list[Any] = []
    for chosen in draw(st.lists(scope, max_size=4)):
        kept = draw(st.lists(st.sampled_from(chosen), unique=True)) if chosen else []
        cliques.append((tuple(chosen), tuple(kept)))
    classes = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count).map(tuple))
    units = draw(st.lists(st.integers(1, 9), min_size=1, max_size=5).map(tuple))
    costs = draw(st.lists(st.integers(0, 99), min_size=1, max_size=4).map(tuple))
    return Certificate(method, classes, tuple(cliques), Products(units, costs, draw(st.integers(0, 4))))


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_certificate_proves_too_little(data: st.DataObject) -> None:
    """Mutants: a clique that no bucket takes forgotten; classes not looked at; products that the strategy lacks not
    paid for; a message dropped."""
    factor = data.draw(st.sampled_from([any_factor, lambda n: st.sampled_from([Residual(n), Identity(n)])]))
    blocks, sizes = data.draw(cases(factor))
    proof = data.draw(proposals(len(sizes)))
    power = data.draw(st.sampled_from([1, 2]))
    wanted = brute_force(columns_of(blocks, sizes), Neighbours.REPLACE_ONE, 1, power)
    try:
        value = proved(blocks, sizes, REPLACE_ONE, power, proof)
    except PlanError:
        return
    assert value >= wanted


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_sums_are_bounded_by_any_cliques_and_classes(data: st.DataObject) -> None:
    """Mutants: the states of a kept variable lost; sums beyond int64 wrapped, or rounded down; the pass in floats
    believed without its error; a set counted once that is there twice; weights of a class taken from one set."""
    d = data.draw(st.integers(1, 5))
    two = data.draw(st.booleans())
    states = tuple(2 if two else data.draw(st.integers(1, 4)) for _ in range(d))
    large = data.draw(st.sampled_from([3, 2**20, 2**70]))
    entry = st.integers(-large, large)
    shared = [data.draw(st.lists(entry, min_size=2, max_size=2)) for _ in range(2)]
    features: list[Any] = []
    for v, n in enumerate(states):
        for values in [shared[v % 2]] if two else [data.draw(st.lists(entry, min_size=n, max_size=n))]:
            features.append((v, np.array(values, dtype=object)))
    rows: list[tuple[list[int], int]] = []
    alike = [data.draw(entry) for _ in range(4)]
    for k in range(1, min(d, 3) + 1):
        for chosen in itertools.combinations(range(d), k):
            if data.draw(st.integers(0, 9)):
                weight = alike[sum(v % 2 for v in chosen)] if data.draw(st.integers(0, 19)) else data.draw(entry)
                rows += [(list(chosen), weight)] * data.draw(st.sampled_from([1, 1, 1, 2]))
    by_order = [[r for r in rows if len(r[0]) == k] for k in {len(r[0]) for r in rows}]
    bundles = [Bundle.of([s for s, _ in some], [w for _, w in some]) for some in by_order]
    total = SumOfProducts.of(states, [(dict(enumerate(features)), [1] * len(features), 1)], bundles)
    wanted = max(
        sum(w * math.prod(int(features[f][1][x[features[f][0]]]) for f in s) for s, w in rows)
        for x in itertools.product(*map(range, states))
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sfumato.privacy.sums._CHUNK", data.draw(st.sampled_from([1, 5, 2**21])))
        assert total.largest() == (wanted, True)
        value, exact = total.apart()
        assert value == wanted if exact else value >= wanted
        patch.setattr("sfumato.privacy.sums._MOST_NEAR", 0)
        size = sum(abs(w) * math.prod(int(abs(features[f][1]).max()) for f in s) for s, w in rows)
        value, exact = total.largest()
        assert value == wanted if exact else 0 <= value - wanted <= size * 2.0**-40 + 1
        chain: list[Any] = [(tuple(range(v, d)), tuple(range(v + 1, d))) for v in range(d)]
        split = [((*chosen,), ()) for k in (3, 2, 1) for chosen in itertools.combinations(range(d), k)]
        value, exact = eliminate_cliques(total, split)
        assert value == wanted if exact else value >= wanted
        found, exact = eliminate_cliques(total, chain)
        assert exact or 2 * size >= 2**61
        # in units of a power of two, as fine as int64 allows
        assert found == wanted if exact else 0 <= found - wanted <= (2 * size + 2**9) * 2.0**-60 * 2**8
        if two:
            classes = data.draw(st.sampled_from([tuple(v % 2 for v in range(d)), tuple(range(d)), (0,) * d]))
            try:
                patch.undo()
                assert merge_classes(total, classes).largest() == (wanted, True)
            except PlanError:
                assert len(set(classes)) < d


def test_what_doubles_put_in_the_wrong_order_is_compared_exactly() -> None:
    """Beyond 2^53 the numbers of the first state round to 8 together and of the second to 12; they are 11 and 9.

    Mutants: the pass in floats believed; only what is the largest in floats compared.
    """
    values = [(5, 3), (5, 3), (1, 3)]
    features = tuple((0, np.array([2**53 + v for v in pair], dtype=object)) for pair in values)
    total = SumOfProducts((2,), features, (Bundle.of([(0,), (1,), (2,)], [1, 1, 1]),))
    assert total.largest() == (3 * 2**53 + 11, True)


def test_a_bound_that_is_not_reached_does_not_say_so() -> None:
    """A triangle whose three pairs cannot all differ: two of them do, and each by itself does.

    Mutants: what is proved of a clique whose variable others hold too called reached; the sum of what every product has
    at most called reached, or where only the last products are.
    """
    features = tuple((v, np.array([1, -1], dtype=object)) for v in range(3))
    total = SumOfProducts((2,) * 3, features, (Bundle.of([(0, 1), (0, 2), (1, 2)], [-1] * 3),))
    assert eliminate_cliques(total, [((0, 1, 2), (1, 2)), ((1, 2), ())]) == (1, True)
    assert eliminate_cliques(total, [((0, 1), (1,)), ((0, 2), (2,)), ((1, 2), ())]) == (3, False)
    assert total.apart() == (3, False)
    more = Bundle.of([(0, 1, 2)], [-1])
    assert SumOfProducts((2,) * 3, features, (*total.bundles, more)).apart() == (4, False)
    assert SumOfProducts((2,) * 3, features, (more,)).apart() == (1, True)


def test_products_pay_for_the_sets_that_are_not_there() -> None:
    """A star: one attribute with each of four others. All pairs together fall to -6, the star to -12.

    Mutant: sets that the sum lacks not paid for.
    """
    features = tuple((v, np.array([3, -1], dtype=object)) for v in range(5))
    star = SumOfProducts((2,) * 5, features, (Bundle.of([(0, v) for v in range(1, 5)], [-1] * 4),))
    assert star.largest() == (12, True)
    assert -least_symmetric(star, Products((1,) * 5, (0, 0, 1), 0)) >= 12


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32 - 1))
def test_weights_that_are_no_products_are_bounded_from_below(seed: int) -> None:
    """Also where products are near and deviations pay in few slices, as of attributes of many cells.

    Mutants: deviations paid for as where all numbers are low; a slice's own end taken for the one above; what a feature
    adds counted without its unit; sets that the sum lacks paid for in no slice; deviations of one sign forgotten.
    """
    rng = np.random.default_rng(seed)
    count, top = int(rng.integers(1, 9)), int(rng.integers(1, 4))
    high = rng.integers(1, 30, count)
    low = -(high * rng.uniform(0, 1, count) ** rng.integers(1, 9)).astype(int)
    features = tuple((v, np.array([a, b], dtype=object)) for v, (a, b) in enumerate(zip(high, low, strict=True)))
    units, costs = rng.integers(1, 6, count), rng.integers(0, 40, top + 1)
    bundles = []
    for order in range(1, top + 1):
        sets = [s for s in itertools.combinations(range(count), order) if rng.random() < 0.9]
        near = [costs[order] * math.prod(units[i] for i in s) for s in sets]
        bundles += [Bundle.of(sets, [-max(0, int(w + rng.integers(-3, 4))) for w in near])] if sets else []
    if not bundles:
        return
    total = SumOfProducts((2,) * count, features, tuple(bundles))
    # numbers of one attribute may have a divisor, which is taken out
    proposal = Products(tuple(map(int, units)), tuple(map(int, costs)), int(rng.integers(0, 4)))
    assert -least_symmetric(total, proposal) >= total.largest()[0]


def test_a_small_number_that_is_high_is_seen_in_the_first_slice() -> None:
    """A pair of great weight falls where its small number is high, which hardly moves p_1; a third has a large unit.

    Mutants: how much high numbers add to p_1 taken from a slice's lower end; a gain counted without its own unit.
    """
    ends = ([1, 0], [10**6 + 1, -(10**5)], [1, 0])
    features = tuple((v, np.array(pair, dtype=object)) for v, pair in enumerate(ends))
    alone = Bundle.of([(0,), (1,), (2,)], [-(10**9), -(10**9), -(10**15)])
    total = SumOfProducts((2,) * 3, features, (alone, Bundle.of([(0, 1)], [-(10**6)])))
    wanted = 10**14 + 10**11 - 10**9
    assert total.largest() == (wanted, True)
    assert wanted <= -least_symmetric(total, Products((1, 1, 10**6), (0, 10**9, 0), 0)) <= 2 * wanted


def test_deviations_are_paid_for_where_they_can_matter() -> None:
    """Thirty attributes of many cells: all low is best, and what pairs deviate by costs next to nothing there.

    Mutant: deviations paid for in full in every slice.
    """
    count, rng = 30, np.random.default_rng(3)
    features = tuple((v, np.array([40, -1], dtype=object)) for v in range(count))
    pairs = list(itertools.combinations(range(count), 2))
    weights = [1000 + int(x) for x in rng.integers(-9, 10, len(pairs))]
    alone = Bundle.of([(v,) for v in range(count)], [-(10**6)] * count)
    total = SumOfProducts((2,) * count, features, (Bundle.of(pairs, [-w for w in weights]), alone))
    # all low: any number that is high takes more than all pairs could give
    wanted = 10**6 * count - sum(weights)
    bound = -least_symmetric(total, Products((1,) * count, (0, 10**6, 1000), 0))
    assert wanted <= bound <= wanted * 1.005


# ---- tampering ---------------------------------------------------------------------------------------------


def test_every_kind_of_tampering_is_refused_or_proves_less() -> None:
    """A chain of pairs over six attributes, proved by cliques; and tables of twelve, by classes.

    Mutants: a leftover clique ignored; a message beyond its clique; a class that is left out; a scope that repeats.
    """
    names = tuple(f"a{i}" for i in range(6))
    sizes = dict(zip(names, range(2, 8), strict=True))
    chain = [Family(names, tuple(map(Residual, range(2, 8))), np.array([(i, i + 1) for i in range(5)]))]
    found = exact_sensitivity(chain, sizes, REPLACE_ONE, 2)
    cliques = tuple((((i, i + 1), (i + 1,)) if i < 4 else ((4, 5), ())) for i in range(5))
    proof = Certificate("cliques", cliques=cliques)
    assert proved(chain, sizes, REPLACE_ONE, 2, proof) == found.value
    for i in range(5):
        with pytest.raises(PlanError, match="leave one out"):
            proved(chain, sizes, REPLACE_ONE, 2, replace(proof, cliques=cliques[:i] + cliques[i + 1 :]))
    for wrong in (((0, 0), ()), ((0, 1), (5,)), ((0, 99), ()), ((-1, 0), ())):
        with pytest.raises(PlanError, match="scope of distinct variables"):
            proved(chain, sizes, REPLACE_ONE, 2, replace(proof, cliques=(wrong, *cliques)))
    # separators forgotten: a bound, but a larger one
    loose = tuple((scope, ()) for scope, _ in cliques)
    assert proved(chain, sizes, REPLACE_ONE, 2, replace(proof, cliques=loose)) > found.value
    with pytest.raises(PlanError, match="method"):
        proved(chain, sizes, REPLACE_ONE, 2, Certificate("guess"))  # type: ignore[arg-type]
    families, sizes = tables([3] * 12, 2, FLAT)
    found = exact_sensitivity(families, sizes, REPLACE_ONE, 2)
    proof = find_certificate(families, sizes, REPLACE_ONE, 2)
    assert proof is not None
    assert proof.classes
    multiples = np.array(families[1].multiples)
    multiples[5] += 1
    uneven = [families[0], replace(families[1], multiples=multiples)]
    lacking = [families[0], replace(families[1], sets=families[1].sets[1:], multiples=multiples[1:] * 0 + 5)]
    for blocks, match in ((uneven, "weights tell apart"), (lacking, "sets tell apart")):
        with pytest.raises(PlanError, match=match):
            proved(blocks, sizes, REPLACE_ONE, 2, proof)
    for classes in (proof.classes[1:], tuple(c + 1 for c in proof.classes)):
        with pytest.raises(PlanError, match="number for every attribute"):
            proved(families, sizes, REPLACE_ONE, 2, replace(proof, classes=classes))


def test_features_that_are_the_same_stand_for_one() -> None:
    """A sum found by random search: (0, 5, 6) and (1, 5, 6) are one set of weight -2, so that no class holds.

    Mutant: features that are the same counted as two, so that classes prove 7 of a sum that reaches 9.
    """
    ends = [(0, [1, -1]), (0, [2, -1]), (0, [2, -1]), (1, [2, -1]), (1, [1, -1]), (1, [2, -1]), (2, [1, -1])]
    features = tuple((v, np.array(values, dtype=object)) for v, values in ends)
    total = SumOfProducts((2, 2, 2), features, (Bundle.of([(2, 5, 6), (1, 5, 6), (0, 4, 6)], [-1, -1, -1]),))
    assert total.largest() == (9, True)
    with pytest.raises(PlanError, match="tell apart"):
        merge_classes(total, (0, 1, 0))


def test_blocks_of_nothing_cost_nothing() -> None:
    """Mutant: a group that no block with a weight is over, taken for one with cells."""
    sizes = {"a": 2, "b": 2}
    blocks = [BlockMap((("a",),), (AlikeMap(2),)), BlockMap((("b",),), (MultipleMap(AlikeMap(2), 0),))]
    for method in ("apart", "pairs", "classes"):
        proof = Certificate(method, (0, 1, 2))
        assert (
            certified_bound(blocks, sizes, REPLACE_ONE, 2, proof)
            == certified_bound(blocks, sizes, REPLACE_ONE, 1, proof)
            == 2
        )
