"""The separation oracle: hyperplanes hold all corners on one side, and what is inside is a mixture of corners."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

import sfumato as sf
from sfumato.errors import InvalidInput

BITS = sf.Domain({f"c{i}": sf.Booleans() for i in range(3)})
PAIRS = sf.marginals(BITS, order=2)
CORNERS = np.array([PAIRS.answer(cell.reshape(2, 2, 2)) for cell in np.eye(8)])


def is_mixture(point: np.ndarray) -> bool:
    """By linear programming: whether nonnegative weights of the corners that add up to 1 give the point."""
    rows = np.vstack([CORNERS.T, np.ones(8)])
    return linprog(np.zeros(8), A_eq=rows, b_eq=np.append(point, 1.0), bounds=(0, None), method="highs").status == 0


@pytest.mark.parametrize(("body", "seed"), [("auto", 0), ("auto", 1), ("hull", 2), ("hull", 3), ("exact", 5)])
def test_points_are_inside_or_cut_off(body: str, seed: int) -> None:
    """Mutants: the normal turned; a point near the body called inside."""
    rng = np.random.default_rng(seed)
    oracle = sf.width(PAIRS, body, draws=2).separation_oracle
    within = rng.dirichlet(np.full(8, 0.3)) @ CORNERS
    if body != "exact":  # which comes as near only in seconds
        found = oracle(within)
        assert found.inside
        assert found.normal is None
        assert is_mixture(found.nearest)
    off = 1e-3 * rng.standard_normal(len(within))
    for point in (within + off, within + 100 * off):
        found = oracle(point)
        assert not found.inside
        assert not is_mixture(point)
        assert np.linalg.norm(found.normal) == pytest.approx(1)
        assert (CORNERS @ found.normal <= found.bound + 1e-12).all()
        assert found.normal @ point == pytest.approx(found.bound + found.margin)
        assert found.margin <= found.distance * (1 + 1e-9)
        assert found.distance <= 1.01 * found.margin


def test_moments_hold_what_no_table_gives() -> None:
    """Three signs that all disagree in pairs: correlations of -1/3 are possible to a table, those of -1/2 to a matrix
    alone, and those below to neither (the relaxation L of [Nikolov] is strictly larger)."""

    def answers(correlation: float) -> np.ndarray:
        equal, unlike = (1 + correlation) / 4, (1 - correlation) / 4
        return np.tile([equal, unlike, unlike, equal], 3)

    for correlation, hull, sdp in (
        (-0.33, True, True),
        (-0.34, False, True),
        (-0.49, False, True),
        (-0.51, False, False),
    ):
        found = {
            body: sf.width(PAIRS, body, draws=2).separation_oracle(answers(correlation)).inside
            for body in ("hull", "sdp", "local")
        }
        assert found == {"hull": hull, "sdp": sdp, "local": True}
        assert is_mixture(answers(correlation)) == hull


def test_agreement_alone_cuts_off_what_does_not_add_up() -> None:
    table = np.full(12, 1 / 4)
    table[0] += 0.01
    found = sf.width(PAIRS, "local", draws=2).separation_oracle(table)
    assert not found.inside
    # of tables that agree and hold one record
    for pair in itertools.product(range(8), repeat=2):
        assert found.normal @ CORNERS[list(pair)].mean(axis=0) <= found.bound + 1e-12


def test_refusals() -> None:
    for point in (np.zeros(11), np.full(12, np.nan)):
        with pytest.raises(InvalidInput, match="12 finite numbers"):
            sf.width(PAIRS, draws=2).separation_oracle(point)
    with pytest.raises(InvalidInput, match="known total"):
        sf.width(PAIRS, "cone").separation_oracle(np.zeros(12))
