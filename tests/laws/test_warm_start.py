"""Where the search for an ordered workload begins: from coarser domains, nearer where an evaluation is dear."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.operators import AllRange, LinearOperator, Prefix
from sfumato.strategies import dense_dual as dual
from sfumato.strategies.dense_optimal import read_problem


def energy(operator: LinearOperator) -> float:
    """About the relative distance of the first point from the optimum."""
    problem, _ = read_problem(np.asarray(operator.gram().dense(), dtype=np.float64), None)
    blocks = [part.block for part in problem.parts()]
    return dual._evaluate_dual(blocks, dual.warm_start(blocks), 1e-12).energy


@pytest.mark.parametrize("operator", [AllRange(2_048), Prefix(1_024), Prefix(1_201)], ids=str)
def test_what_coarser_steps_missed_is_foreseen(operator: LinearOperator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: nothing is; the ends follow their place on the whole; what a step missed is lost in a loose one."""
    plain = energy(operator)
    monkeypatch.setattr(dual, "_MANY_ORDERED", 1_024)
    assert energy(operator) < plain / 20
