"""Widths against closed forms, support functions against brute force, and the promise in these words."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr

import sfumato as sf
from sfumato.errors import InvalidInput
from sfumato.postprocess.correlation import pair_coordinates, pair_tables
from sfumato.postprocess.parities import most_correlated

BITS = sf.Domain({f"x{i}": sf.Booleans() for i in range(4)})
MIXED = sf.Domain({"a": 3, "b": 2, "c": 4})


def _length(k: int) -> float:
    """E |g| in k dimensions."""
    return math.sqrt(2) * math.gamma((k + 1) / 2) / math.gamma(k / 2)


def _largest(k: int, *, absolute: bool) -> float:
    """E of the largest of k independent normal numbers, or of their absolute values, by integration."""
    if absolute:
        return quad(lambda t: 1 - (2 * ndtr(t) - 1) ** k, 0, 12)[0]
    return quad(lambda t: 1 - ndtr(t) ** k - ndtr(-t) ** k, 0, 12)[0]


CUBE = sf.queries(np.array(list(itertools.product([0, 1], repeat=6))).T)
CROSS = sf.queries(np.hstack([np.eye(7), -np.eye(7)]))
CLOSED = {
    # E of the sum of the positive ones of 6 normal numbers
    "cube": (CUBE, "hull", 6 / math.sqrt(2 * math.pi)),
    "simplex": (sf.identity(sf.Domain({"a": 9})), "simplex", _largest(9, absolute=False)),
    "cross-polytope": (CROSS, "hull", _largest(7, absolute=True)),
    # one attribute of two cells: the largest of g_1, g_2, whose halves of sums cancel
    "segment": (sf.identity(sf.Domain({"a": 2})), "local", 1 / math.sqrt(math.pi)),
    # two independent tables: widths of products add up
    "product": (sf.marginals(MIXED, order=1), "local", sum(_largest(n, absolute=False) for n in (3, 2, 4))),
    # a correlation of two attributes and their means, measured as cells: corners of a simplex
    "pair": (sf.marginals(sf.Domain({"a": 2, "b": 2}), order=2), "sdp+local", _largest(4, absolute=False)),
}


@pytest.mark.parametrize("case", CLOSED)
def test_widths_of_known_bodies(case: str) -> None:
    """Within four standard errors. Mutants: c_k for c_(k+1); one direction without its opposite counted as a width."""
    work, body, wanted = CLOSED[case]
    found = sf.width(work, body, draws=1500 if body in ("hull", "simplex") else 120, rng=5)
    assert found.body == body
    assert abs(found.gaussian - wanted) <= 4 * found.gaussian_error + found.slack
    assert 0 < found.gaussian_error < 0.06 * wanted
    assert found.mean == pytest.approx(found.gaussian / _length(len(work)), rel=1e-12)
    assert found.mean_error == pytest.approx(found.gaussian_error / _length(len(work)), rel=1e-12)


def test_widths_do_not_change_when_the_body_is_moved() -> None:
    """Exactly, by opposite directions: a column of ones is the same number in every answer."""
    moved = sf.queries(np.array(list(itertools.product([0, 1], repeat=6))).T + 1000.0)
    assert sf.width(moved, draws=50).gaussian == pytest.approx(sf.width(CUBE, draws=50).gaussian, rel=1e-9)


def _points(work: sf.Workload) -> np.ndarray:
    """(m, k) the answers of every single record."""
    return np.array([work.answer(x) for x in np.eye(work.domain.size, dtype=int)])


EXACT = {
    "simplex": sf.identity(MIXED, "a", "c"),
    "isotonic": sf.prefix(sf.Domain({"t": 7}), "t"),
    "hull": sf.stack(sf.marginals(MIXED, order=2), sf.prefix(MIXED, "c", by=["b"])),
    "exact": sf.stack(sf.marginals(MIXED, upto=2), sf.sums(MIXED, "c", values=[1, -2, 5, 0])),
    # tables that form a tree: what agrees is possible
    "local": sf.marginals(MIXED, sets=[("a", "b"), ("b", "c"), ()]),
    # means and pairs of up to three two-valued attributes: what is possible for pairs is possible
    "sdp+local": sf.marginals(sf.Domain({"a": 2, "b": 2}), upto=2),
}


@pytest.mark.parametrize("body", EXACT)
def test_support_functions_equal_brute_force(body: str) -> None:
    """The largest product over all single records. Mutants: the smallest; a transposed marginal; no constant part."""
    work, rng = EXACT[body], np.random.default_rng(3)
    points = _points(work)
    found = sf.width(work, body, draws=2)
    for direction in rng.standard_normal((12, len(work))):
        wanted = float((points @ direction).max())
        reach = found.reach(direction)
        off = 2e-5 * np.abs(direction).sum()
        assert abs(reach.value - wanted) <= off
        assert reach.value <= wanted + 1e-9 * np.abs(direction).sum()
        assert wanted - 1e-9 <= reach.bound <= wanted + off
        assert found.support(direction) == reach.value
        assert reach.point is not None
        assert float(direction @ reach.point) == pytest.approx(reach.value, abs=1e-9)
        if body != "sdp+local":
            assert np.abs(points - reach.point).max(axis=1).min() < 1e-7, "no corner of the body"


def test_larger_bodies_reach_farther() -> None:
    """hull <= sdp+local <= sdp, and <= local, in every direction; strictly in some, as tables around a cycle agree."""
    work, rng = sf.marginals(BITS, order=2), np.random.default_rng(4)
    reach = {b: sf.width(work, b, draws=2).reach for b in ("hull", "exact", "sdp+local", "sdp", "local")}
    beyond = dict.fromkeys(("sdp", "local"), 0.0)
    for direction in rng.standard_normal((15, len(work))):
        found = {b: r(direction) for b, r in reach.items()}
        assert found["exact"].value == pytest.approx(found["hull"].value)
        assert found["hull"].value <= found["sdp+local"].bound + 1e-9
        for larger in ("sdp", "local"):
            assert found["sdp+local"].value <= found[larger].bound + 1e-9
            beyond[larger] = max(beyond[larger], found[larger].value - found["hull"].bound)
    assert min(beyond.values()) > 0.02


def test_correlations_reach_what_a_grid_of_angles_does() -> None:
    """Three unit vectors: the elliptope of order 3 by its extreme points, cos a, cos b and cos(a + b) in pairs."""
    rng = np.random.default_rng(8)
    angle = np.linspace(0, 2 * np.pi, 721)
    a, b = np.meshgrid(angle, angle)
    for _ in range(10):
        pull = rng.standard_normal((3, 3))
        pull = pull + pull.T
        found = most_correlated(pull)
        wanted = float((pull[0, 1] * np.cos(a) + pull[1, 2] * np.cos(b) + pull[0, 2] * np.cos(a + b)).max())
        assert wanted - 1e-3 <= found.value <= found.bound
        assert found.bound <= wanted + 1e-3
        assert np.linalg.eigvalsh(found.matrix)[0] > -1e-9
        assert np.diag(found.matrix) == pytest.approx(1)
        near = most_correlated(pull, local=True)
        assert pair_tables(pair_coordinates(near.matrix)).min() > -1e-9
        signs = np.array([(1, s, t) for s in (1, -1) for t in (1, -1)])
        corners = [0.5 * float(np.sum((pull - np.diag(np.diag(pull))) * np.outer(s, s))) for s in signs]
        # with its tetrahedron the elliptope of order 3 is the hull of its four corners
        assert abs(near.value - max(corners)) < 1e-3


def test_a_cone_is_infinitely_wide() -> None:
    found = sf.width(sf.marginals(MIXED, order=1), "cone")
    assert math.isinf(found.gaussian)
    assert math.isinf(found.mean)
    assert found.support(np.ones(9)) == math.inf
    assert found.farthest(np.ones(9)) is None
    assert found.support(-np.ones(9)) == 0.0
    assert not np.any(found.farthest(-np.ones(9)))


def test_the_width_is_what_the_projection_mechanism_promises() -> None:
    """The forecast of the mechanism as taught is that of sf.width; simulated errors keep to it."""
    rng = np.random.default_rng(2)
    work = sf.queries(rng.choice([-1, 1], size=(96, 40)))
    budget, n = sf.approx(1, "1e-6"), 60
    plan = sf.plan(work, budget, neighbours="replace-one", mechanism="projection", strategy="queries", records=n)
    assert plan.forecast is not None
    assert plan.forecast.width is not None
    wide = sf.width(work, draws=500)
    sigma = plan.forecast.raw
    assert plan.forecast.width == pytest.approx(sigma * wide.gaussian, rel=0.12)
    assert plan.forecast.width >= sigma * (wide.gaussian - 3 * wide.gaussian_error)
    assert plan.forecast.bound == pytest.approx(wide.error(sigma, n), rel=0.08)
    x = np.zeros(40, dtype=int)
    x[:3] = n // 3
    assert sf.simulate(plan, x, 30).rmse <= wide.error(sigma, n)
    assert wide.error(1e-6, n) == 1e-6


def test_refusals() -> None:
    for options, message in [
        ({"body": "mixtures"}, "no body"),
        ({"body": "ball"}, "must be one of"),
        ({"draws": 1}, "from 2"),
        ({"body": "sdp"}, "two"),
        ({"body": "local", "work": sf.prefix(MIXED, "c")}, "whole marginal tables"),
        ({"work": 3}, "needs a workload"),
    ]:
        given = {"work": sf.marginals(MIXED, order=2)} | options
        with pytest.raises((InvalidInput, sf.NotAnswerable), match=message):
            sf.width(**given)  # type: ignore[arg-type]
    wide = sf.width(sf.marginals(sf.Domain({"a": 150, "b": 150}), order=2), draws=2)
    with pytest.raises(InvalidInput, match="finite numbers"):
        wide.support(np.ones(3))
    with pytest.raises(InvalidInput, match="linear program"):
        sf.width(sf.marginals(sf.Domain({"a": 150, "b": 150}), order=2), "local")
    with pytest.raises(InvalidInput, match="positive number"):
        wide.error(0.0, 5)
