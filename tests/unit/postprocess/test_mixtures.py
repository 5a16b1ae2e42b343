"""Noisy pairs denoised by models: each part against brute force on small tables, and the whole."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from sfumato.errors import InvalidInput
from sfumato.postprocess import denoising as adapted
from sfumato.postprocess import mixtures as fitting
from sfumato.postprocess.consistency import ResidualNoise
from sfumato.postprocess.denoising import Adapted, denoise_pairs
from sfumato.postprocess.mixtures import (
    Forest,
    Objective,
    fit_forest,
    fit_mixture,
    kept_shares,
    read_triples,
    restore_triples,
)
from sfumato.postprocess.noisy_pairs import (
    Components,
    MeasurementHalves,
    NoisyPairs,
    most_even_table,
    read_noisy,
    split_in_halves,
)

Floats = NDArray[np.float64]
SIZES = (2, 3, 4, 1)


def pairs_of(joint: Floats) -> dict[tuple[int, int], Floats]:
    d = joint.ndim
    return {
        (a, b): joint.sum(axis=tuple(i for i in range(d) if i not in (a, b)))
        for a, b in itertools.combinations(range(d), 2)
    }


def noise_of(d: int, one: float, pair: float) -> ResidualNoise:
    twos = np.array(list(itertools.combinations(range(d), 2)), dtype=np.int32)
    ones = np.arange(d, dtype=np.int32)[:, None]
    sets = (np.empty((0, 0), dtype=np.int32), ones, twos)
    return ResidualNoise(sets, (np.empty(0), np.full(d, one), np.full(len(twos), pair)))


def some_joint(sizes: Sequence[int] = SIZES, seed: int = 0, total: float = 100.0) -> Floats:
    joint = np.random.default_rng(seed).dirichlet(np.full(math.prod(sizes), 0.3)).reshape(tuple(sizes))
    return joint * total


def noisy(joint: Floats, one: float = 2.0, pair: float = 3.0) -> NoisyPairs:
    tables = pairs_of(joint)
    return read_noisy(joint.shape, list(tables), list(tables.values()), noise_of(joint.ndim, one, pair), None)


def measured(joint: Floats, one: float, pair: float, seed: int) -> dict[tuple[int, int], Floats]:
    """Pairs with noise of the residuals' law, built table by table."""
    random = np.random.default_rng(seed)
    ones = [math.sqrt(one) * random.standard_normal(n) for n in joint.shape]
    ones = [z - z.mean() for z in ones]
    out: dict[tuple[int, int], Floats] = {}
    for (a, b), table in pairs_of(joint).items():
        z = math.sqrt(pair) * random.standard_normal(table.shape)
        z = z - z.mean(axis=0) - z.mean(axis=1, keepdims=True) + z.mean()
        out[a, b] = table + z + ones[a][:, None] / joint.shape[b] + ones[b] / joint.shape[a]
    return out


def test_components_hold_the_tables_and_nothing_else() -> None:
    joint = some_joint()
    held = noisy(joint)
    tables = held.total * held.stack.tables(held.values)
    for (a, b), table in pairs_of(joint).items():
        np.testing.assert_allclose(tables[held.stack.slice(a), held.stack.slice(b)], table, atol=1e-12)
    assert held.total == pytest.approx(100.0)


def test_the_inner_product_is_the_density_of_residual_noise() -> None:
    held = noisy(some_joint())
    wanted = 0.0
    for a, b in held.stack.places:
        found = held.values.pairs[held.stack.slice(a), held.stack.slice(b)]
        wanted += float((100 * found**2 * 100).sum()) / 3
    for a, n in enumerate(SIZES):
        share = some_joint().sum(axis=tuple(i for i in range(4) if i != a))
        wanted += float(((share - 100 / n) ** 2).sum()) / 2
    assert held.inner(held.values, held.values) == pytest.approx(wanted)


def test_deviations_are_those_of_the_tables_cells() -> None:
    held, random = noisy(some_joint()), np.random.default_rng(1)
    seen = np.mean([(z.pairs + z.ones[:, None] * held.stack.even + held.stack.even[:, None] * z.ones) ** 2
                    for z in (held.noise(random) for _ in range(4000))], axis=0)  # fmt: skip
    apart = held.stack.apart & (held.stack.owner[:, None] < 3) & (held.stack.owner < 3)
    np.testing.assert_allclose(seen[apart], held.deviations()[apart] ** 2, rtol=0.15)


@pytest.mark.parametrize("many", [0, 512])
def test_the_gradient_of_a_mixture_is_that_of_differences(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: cells beside those of a smaller attribute, which fill its block up, not set to zero."""
    monkeypatch.setattr(fitting, "_MANY", many)
    held, random = noisy(some_joint()), np.random.default_rng(2)
    base = np.full(held.stack.count, 0.25)
    goal = Objective(MeasurementHalves(held, held.values, held.values), base, 7.0, 0, np.float64)
    assert (goal.blocks is None) == (many > 0)
    # many small attributes: their pairs cost less
    assert Objective(goal.halves, base, 7.0, 100).blocks is None
    logits, weights = random.standard_normal((3, held.stack.count)), random.standard_normal(3)
    by_logit, by_weight = goal(logits, weights)
    step = 1e-6
    for k, c in itertools.product(range(3), range(held.stack.count)):
        moved = np.zeros_like(logits)
        moved[k, c] = step
        slope = (goal.value(logits + moved, weights) - goal.value(logits - moved, weights)) / (2 * step)
        assert by_logit[k, c] == pytest.approx(slope, rel=1e-5, abs=1e-4)
    for k in range(3):
        moved = np.zeros(3)
        moved[k] = step
        slope = (goal.value(logits, weights + moved) - goal.value(logits, weights - moved)) / (2 * step)
        assert by_weight[k] == pytest.approx(slope, rel=1e-5, abs=1e-4)


def test_the_objective_is_half_the_squared_distance_and_the_records_for_the_product() -> None:
    held, random = noisy(some_joint()), np.random.default_rng(3)
    base = held.stack.simplex(held.values.ones)
    goal = Objective(MeasurementHalves(held, held.values, held.values), base, 5.0, 0, np.float64)
    w, shares = goal.mixture(random.standard_normal((2, held.stack.count)), random.standard_normal(2))
    each = [[p[held.stack.slice(i)] for i in range(4)] for p in shares]
    joint = sum((v * np.einsum("a,b,c,d->abcd", *e) for v, e in zip(w, each, strict=True)), np.zeros(SIZES))
    away = noisy(100 * joint).values.plus(held.values, -1.0)
    cost = sum(v * float((p * np.log(p / np.maximum(base, 1e-6))).sum()) for v, p in zip(w, shares, strict=True))
    assert goal.value(np.log(shares), np.log(w)) == pytest.approx(held.inner(away, away) / 2 + 5 * cost)


@pytest.mark.parametrize("many", [0, 512])
def test_the_loss_of_a_mixture_is_that_of_its_tables(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: the fitted half in place of the one held out; pairs counted once in place of twice."""
    monkeypatch.setattr(fitting, "_MANY", many)
    held, random = noisy(some_joint((4, 3, 2, 3))), np.random.default_rng(4)
    base = held.stack.simplex(held.values.ones)
    for part in split_in_halves(held, 2, 0):
        goal = Objective(part, base, 5.0, 0, np.float64)
        at = random.standard_normal((3, held.stack.count)), random.standard_normal(3)
        assert goal.loss(*at) == pytest.approx(part.loss(goal.components(*at)))


def test_a_fit_says_whether_noise_held_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A way that turned back once, and then went on to its last step, was not held back.

    Mutants: always false, so no penalty above the least is ever tried; true for every way that ever turned.
    """
    part = split_in_halves(noisy(some_joint()), 1, 0)[0]
    base = part.noisy.stack.simplex(part.fitted.ones)
    turned = [-1, -2, 0, 0, *(-i for i in range(3, 200))]
    for losses, least, back in (
        ([-min(i, 200 - i) for i in range(200)], -50, False),
        ([-min(i, 6 - i) for i in range(200)], -3, True),
        (turned, None, False),
    ):
        told = iter(losses)
        monkeypatch.setattr(Objective, "loss", lambda *_, told=told: float(next(told)))
        found = fit_mixture(part, base, 50.0, 5, 0)
        assert least is None or found[0] == least
        assert found[3] == back


def test_penalties_are_tried_where_noise_holds_the_first_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: the search goes on though the loss of every mixture fell to its last step."""
    joint = some_joint((4, 5, 3, 4), seed=8, total=10_000.0)
    tried: list[float] = []
    back = False

    def fit(*given: Any) -> Any:
        tried.append(given[2])
        return (*fit_mixture(*given)[:3], back)

    monkeypatch.setattr(adapted, "fit_mixture", fit)
    released(joint, 50.0**2, 50.0**2)
    assert set(tried) == {50.0}
    assert len(tried) == 8
    back = True
    released(joint, 50.0**2, 50.0**2)
    assert {50.0, 100.0} <= set(tried)


def test_halves_are_independent_and_add_up() -> None:
    held = noisy(some_joint())
    members = 2000
    parts = split_in_halves(held, members, 0)
    first = np.array([p.fitted.pairs[0, 2] - held.values.pairs[0, 2] for p in parts])
    second = np.array([p.held_out.pairs[0, 2] - held.values.pairs[0, 2] for p in parts])
    own = 3.0 / 100**2 * (1 - 1 / 2) * (1 - 1 / 3)
    # given y, the halves move against each other just as much as y's own noise moves both
    assert float(np.mean(first * second)) == pytest.approx(-own, rel=0.15)
    assert own + float(np.mean(first**2)) == pytest.approx(1.25 * own, rel=0.05)
    assert own + float(np.mean(second**2)) == pytest.approx(5 * own, rel=0.15)
    for p in parts[:5]:
        both = Components(p.fitted.ones / 1.25, p.fitted.pairs / 1.25).plus(p.held_out, 0.2)
        np.testing.assert_allclose(both.pairs, held.values.pairs, atol=1e-12)
        np.testing.assert_allclose(both.ones, held.values.ones, atol=1e-12)
    np.testing.assert_allclose(np.mean([p.fitted.pairs for p in parts], axis=0), held.values.pairs, atol=1e-12)


def test_few_members_have_noise_of_the_same_size() -> None:
    held = noisy(some_joint())
    some = [p.fitted.pairs[0, 2] - held.values.pairs[0, 2] for s in range(1500) for p in split_in_halves(held, 2, s)]
    assert np.mean(np.square(some)) == pytest.approx(0.25 * 3.0 / 100**2 / 3, rel=0.15)


def test_the_held_out_half_ranks_by_the_true_distance() -> None:
    joint = some_joint()
    exact, other = noisy(joint).values, noisy(some_joint(seed=5)).values
    found: list[float] = []
    for seed in range(200):
        tables = measured(joint, 2.0, 3.0, seed)
        held = read_noisy(SIZES, list(tables), list(tables.values()), noise_of(4, 2.0, 3.0), 100.0)
        part = split_in_halves(held, 1, seed)[0]
        found.append(part.loss(other) - part.loss(exact))
    away = other.plus(exact, -1.0)
    wanted, spread = noisy(joint).inner(away, away), float(np.std(found)) / math.sqrt(200)
    assert abs(float(np.mean(found)) - wanted) < 4 * spread < 0.2 * wanted


def test_a_table_from_its_pairs_is_the_exact_maximum_of_entropy() -> None:
    joint = some_joint((2, 3, 2), seed=4, total=1.0) + 0.02
    pairs = pairs_of(joint)
    maps = np.concatenate([
        np.stack([pairs_of(e)[p].reshape(-1) for e in np.eye(12).reshape(12, 2, 3, 2)], axis=1) for p in pairs
    ])  # fmt: skip
    told = np.concatenate([t.reshape(-1) for t in pairs.values()])
    dual = minimize(
        lambda m: (float(np.exp(maps.T @ m).sum() - told @ m), maps @ np.exp(maps.T @ m) - told),
        np.zeros(len(told)), jac=True, method="BFGS", options={"gtol": 1e-10},
    )  # fmt: skip
    found = most_even_table((2, 3, 2), pairs, tolerance=1e-12, rounds=5000)
    np.testing.assert_allclose(found.reshape(-1), np.exp(maps.T @ dual.x), atol=1e-7)
    np.testing.assert_allclose(most_even_table((2, 3, 2), pairs, joint), joint)


def test_the_pairs_of_a_forest_are_those_of_its_joint() -> None:
    held = noisy(some_joint())
    p = [held.stack.simplex(held.values.ones)[held.stack.slice(i)] for i in range(4)]
    first, second = (t / 100 for t in (pairs_of(some_joint())[0, 1].T, pairs_of(some_joint())[0, 2]))
    forest = Forest(np.concatenate(p), ((1, 0), (0, 2)), (first, second))
    joint = np.einsum("ba,ac,d->abcd", first, second / p[0][:, None], p[3])
    found = forest.pairs(held.stack)
    for (a, b), table in pairs_of(joint).items():
        np.testing.assert_allclose(found[held.stack.slice(a), held.stack.slice(b)], table, atol=1e-12)


def test_a_forest_of_exact_tables_is_the_chain_they_come_from() -> None:
    random = np.random.default_rng(6)
    first, second = random.dirichlet(np.full(3, 0.4), 3), random.dirichlet(np.full(3, 0.4), 3)
    joint = np.einsum("a,ab,bc->abc", np.array([0.2, 0.3, 0.5]), first, second) * 1e4
    held = noisy(joint, 1.0, 1.0)
    forest = fit_forest(held, held.values)
    assert {frozenset(e) for e in forest.edges} == {frozenset((0, 1)), frozenset((1, 2))}
    away = forest.components(held.stack).plus(held.values, -1.0)
    assert float(np.abs(away.pairs).max()) < 2e-3
    shares = [random.dirichlet(np.full(3, 0.4)) for _ in range(3)]
    alone = noisy(np.einsum("a,b,c->abc", *shares) * 1e4, 1.0, 1.0)
    assert fit_forest(alone, alone.values).edges == ()
    loud = noisy(joint, 1e8, 1e8)
    assert fit_forest(loud, loud.values).edges == ()


def test_what_is_given_back_is_the_bias_and_not_the_noise() -> None:
    random = np.random.default_rng(7)
    levels = np.repeat([0.1, 8.0], 5000)
    bias = np.where(levels > 1, 2.0, 0.0) * random.standard_normal(10_000)
    noise, z = random.standard_normal((2, 10_000))
    first, second = ([bias + noise + s * a * z for s in (1, -1)] for a in (0.5, -2.0))
    found = kept_shares(levels, np.ones(10_000), first, second)
    assert set(found[:5000].tolist()) == {0.0}
    assert float(found[5000]) == pytest.approx(4 / 5.25, abs=0.05)


def released(joint: Floats, one: float, pair: float, seed: int = 0) -> Adapted:
    tables = measured(joint, one, pair, seed)
    return denoise_pairs(joint.shape, list(tables), list(tables.values()), noise_of(joint.ndim, one, pair), joint.sum())


def away(found: Adapted, joint: Floats) -> float:
    return float(np.mean([np.abs(found.table(p) - t).sum() for p, t in pairs_of(joint).items()])) / joint.sum()


def test_adapted_tables_agree_and_are_near_what_the_data_say() -> None:
    joint = some_joint((4, 5, 3, 4), seed=8, total=10_000.0)
    found = released(joint, 50.0**2, 50.0**2)
    for a, b, c in itertools.permutations(range(4), 3):
        table = found.table((a, b))
        assert table.min() >= 0
        np.testing.assert_allclose(table.sum(axis=1), found.table((a, c)).sum(axis=1), atol=1e-6)
        np.testing.assert_allclose(table, found.table((b, a)).T)
        np.testing.assert_allclose(found.table((a, b, c)).sum(axis=2), table, atol=3.0)
    assert found.table((2,)).sum() == pytest.approx(float(found.table(()))) == pytest.approx(10_000.0)
    ones = [found.table((a,)) / 1e4 for a in range(4)]
    alone = np.mean([np.abs(np.outer(ones[a], ones[b]) * 1e4 - t).sum() for (a, b), t in pairs_of(joint).items()])
    assert away(found, joint) < 0.5 * alone / 1e4
    assert found.chosen == "mixture"
    assert found.predicted["blend"] <= min(found.predicted[k] for k in found.weights) + 1e-9
    again = released(joint, 50.0**2, 50.0**2)
    for p, t in found.pairs.items():
        np.testing.assert_array_equal(t, again.pairs[p])


def test_tables_with_little_noise_are_not_made_worse() -> None:
    """Mutant: the models without the noisy tables themselves, which by these seeds err 1 % more than raw ones."""
    joint = some_joint((4, 5, 3, 4), seed=8, total=10_000.0)
    errors: list[tuple[float, float]] = []
    for seed in range(8):
        raw = measured(joint, 50.0**2, 50.0**2, seed)
        off = np.mean([np.abs(t - raw[p]).sum() for p, t in pairs_of(joint).items()]) / 1e4
        errors.append((away(released(joint, 50.0**2, 50.0**2, seed), joint), float(off)))
    ours, plain = np.mean(errors, axis=0)
    assert ours < plain


def test_nothing_is_made_of_noise_and_nothing_lost_without_it() -> None:
    random = np.random.default_rng(9)
    shares = [random.dirichlet(np.full(n, 2.0)) for n in (4, 5, 3)]
    alone = np.einsum("a,b,c->abc", *shares) * 1e4
    found = released(alone, 20.0**2, 500.0**2)
    assert away(found, alone) < 0.05
    joint = some_joint((4, 5, 3), seed=10, total=1e6)
    found = released(joint, 1.0, 1.0)
    assert away(found, joint) < 1e-4


def test_what_pairs_do_not_say_of_a_triple_is_borne_out() -> None:
    """Mutant: the variance of the noise not taken off."""
    joint = some_joint((4, 5, 6), seed=12, total=1e5)
    pairs, axes = pairs_of(joint), (0, 1, 2)
    implied = most_even_table(joint.shape, pairs)
    random, errors = np.random.default_rng(3), list[list[float]]()
    for deviation in (1e-3, 100.0, 1e5):
        rest = random.standard_normal(joint.shape)
        for axis in range(3):
            rest = rest - rest.mean(axis=axis, keepdims=True)
        noisy = joint + deviation * rest
        tables, triples = restore_triples(joint.shape, pairs, {axes: (noisy, deviation**2)}, 1e5)
        assert triples[axes].min() >= 0
        for p, t in pairs_of(triples[axes]).items():
            np.testing.assert_allclose(t, tables[p], atol=1.0)
            np.testing.assert_allclose(t, pairs[p], atol=1.0 + 0.4 * min(deviation, 100.0))
        errors.append([float(np.abs(t - joint).sum()) for t in (triples[axes], noisy, implied)])
    assert errors[0][0] < 2 * errors[0][1] + 1
    assert errors[1][0] < 0.9 * min(errors[1][1:])
    assert errors[2][0] < 1.1 * errors[2][2]


def test_triples_that_do_not_fit_are_refused() -> None:
    plain = noise_of(3, 1.0, 1.0)
    held = ResidualNoise((*plain.sets, np.array([[0, 1, 2]], dtype=np.int32)), (*plain.variances, np.array([2.0])))
    table = np.arange(24.0).reshape(4, 3, 2)
    found = read_triples((2, 3, 4), [((2, 1, 0), table)], held)
    np.testing.assert_array_equal(found[0, 1, 2][0], table.transpose(2, 1, 0))
    assert found[0, 1, 2][1] == 2.0
    for given, noise in (
        ([((0, 1, 2), table)], held),
        ([((0, 1, 1), table)], held),
        ([((0, 1, 2, 3), table)], held),
        ([((2, 1, 0), np.full(table.shape, np.nan))], held),
        ([((2, 1, 0), table)], plain),
        ([((2, 1, 0), table), ((2, 1, 0), table)], held),
    ):
        with pytest.raises(InvalidInput, match="table over"):
            read_triples((2, 3, 4), given, noise)


def test_records_are_drawn_from_the_blend() -> None:
    joint = some_joint((4, 5, 3), seed=11, total=20_000.0)
    found = released(joint, 30.0**2, 30.0**2)
    codes = found.draw(20_000)
    counted = np.zeros(joint.shape)
    np.add.at(counted, tuple(codes.T), 1)
    np.testing.assert_array_equal(codes, found.draw(20_000))
    made = np.mean([np.abs(t - found.table(p)).sum() for p, t in pairs_of(counted).items()]) / 20_000
    assert made < 0.08


@pytest.mark.parametrize(
    ("sets", "values", "noise", "total"),
    [
        ([(0, 1)], [np.ones((2, 3))], noise_of(2, 1, 1), 0.0),
        ([(0, 1)], [np.ones((3, 2))], noise_of(2, 1, 1), None),
        ([(0, 1)], [np.full((2, 3), np.nan)], noise_of(2, 1, 1), None),
        ([(0, 0)], [np.ones((2, 2))], noise_of(2, 1, 1), None),
        ([(0, 1), (1, 0)], [np.ones((2, 3)), np.ones((3, 2))], noise_of(2, 1, 1), None),
        ([(0,)], [np.ones(2)], noise_of(2, 1, 1), None),
        ([(0, 1)], [np.ones((2, 3))], noise_of(2, 0, 1), None),
        ([(0, 1)], [np.ones((2, 3))], noise_of(1, 1, 1), None),
    ],
)
def test_what_does_not_fit_is_refused(
    sets: list[tuple[int, ...]], values: list[Floats], noise: ResidualNoise, total: float | None
) -> None:
    with pytest.raises(InvalidInput):
        denoise_pairs((2, 3), sets, values, noise, total)


def test_a_table_of_what_is_no_attribute_is_refused() -> None:
    found = released(some_joint((2, 3), total=100.0), 1.0, 1.0)
    for axes in ((0, 0), (0, 2), (-1,)):
        with pytest.raises(InvalidInput, match="distinct positions below 2"):
            found.table(axes)
