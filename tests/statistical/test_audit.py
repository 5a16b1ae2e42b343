"""An audit of the promise itself, from outside: samples over two neighbouring tables, an event, and what it betrays.

One histogram over a million cells is a million copies of one small mechanism: without records in one world, with one
record in every cell in the other. The audit chooses an event on one half of the samples and bounds its probabilities
on the other half (Clopper and Pearson), so nothing is assumed about the noise. What must be accepted fails by chance
with probability 2 ALPHA, six times; what must be rejected with 3e-10 in one case and far less in the others: 9e-10
in all.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import sfumato as sf
from sfumato.curator import Curator
from sfumato.operators import Block, Identity, Scaled
from sfumato.privacy.accounting import GaussianEvent, PureEvent
from sfumato.privacy.noise import DiscreteLaplace, RoundedGaussian
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies.certificates import exact_sensitivity
from support.audits import Worlds, audit, gaussian, pure

CELLS = 1_000_000
LINE = sf.Domain({"cell": sf.Integers(0, CELLS - 1)})
UNIT = PrivacyUnit(Neighbours.ADD_REMOVE)
CELL = (("cell",),)

# ---- what is looked at ---------------------------------------------------------------------------------------


def value(y: NDArray[Any]) -> NDArray[Any]:
    return y[:, 0]


def parity(y: NDArray[Any]) -> NDArray[Any]:
    return y[:, 0] % 2


def change(y: NDArray[Any]) -> NDArray[Any]:
    return y[:, -1] - y[:, 0]


def weighted(y: NDArray[Any]) -> NDArray[Any]:
    return y[:, 0] + 2 * y[:, -1]


def low_bits(y: NDArray[Any]) -> NDArray[Any]:
    """Small floats that are no multiple of 2^-53: sums of one and a double cannot be."""
    return ((np.abs(y[:, 0]) < 0.25) & (y[:, 0] * 2.0**53 % 1 != 0)).astype(np.int64)


# ---- the mechanisms ------------------------------------------------------------------------------------------


def released(budget: sf.Budget, mechanism: str) -> Worlds:
    """What sf.release measures of an empty table and of one with a record in every cell."""
    plan = sf.plan(sf.identity(LINE), budget, neighbours="add-remove", mechanism=mechanism)
    tables = (np.zeros(CELLS, dtype=np.int64), np.ones(CELLS, dtype=np.int64))
    zero, one = (sf.release(plan, sf.Histogram(t), ledger=None).measurement.values[0][:, None] for t in tables)
    return zero, one


def measured(blocks: list[Block], power: int) -> tuple[Worlds, float]:
    """Several blocks measured together by the curator, one column each, and what is promised of them."""
    size = exact_sensitivity(blocks, {"cell": CELLS}, UNIT, power).value
    law: Any = DiscreteLaplace(size) if power == 1 else RoundedGaussian(size)
    price = PureEvent(Fraction(1)) if power == 1 else GaussianEvent(Fraction(1, size))
    worlds: list[NDArray[Any]] = []
    for count in (0, 1):
        table, ledger = sf.Histogram(np.full(CELLS, count)), sf.Ledger.in_memory(sf.zcdp(1))
        found, _ = Curator(table, LINE, UNIT, ledger).measure(blocks, law, price, name="n", plan_hash="h")
        worlds.append(np.stack(found.values, axis=1))
    return (worlds[0], worlds[1]), 1.0 if power == 1 else size**-0.5


# ---- accepted and rejected -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "loss", "mechanism"), [(sf.pure, pure, "laplace"), (sf.gdp, gaussian, "gaussian")], ids=["pure", "gdp"]
)
def test_the_exact_mechanism_is_accepted_and_five_percent_more_is_not(budget: Any, loss: Any, mechanism: str) -> None:
    """Mutants: a sensitivity 5 % too small; noise a twentieth too narrow.

    A mechanism at 1.05 times the parameter is what a sensitivity mistaken by 5 % would give at the parameter 1.
    """
    assert 0.9 < audit(released(budget(1), mechanism), loss, (value, parity)) <= 1
    assert audit(released(budget("1.05"), mechanism), loss, (value, parity)) > 1


@pytest.mark.parametrize(("loss", "power"), [(pure, 1), (gaussian, 2)])
def test_noise_is_not_reused_between_blocks(loss: Any, power: int) -> None:
    """Mutants: one draw for several blocks (the control below); blocks priced one by one.

    A cell and its double are measured together. Their difference must hide the record too.
    """
    blocks = [Block(CELL, (Identity(CELLS),)), Block(CELL, (Scaled(Identity(CELLS), 2),))]
    worlds, promised = measured(blocks, power)
    features = (value, change, weighted)
    assert 0.4 * promised < audit(worlds, loss, features) <= promised
    reused = [np.stack([y[:, 0], y[:, 0] + x], axis=1) for x, y in enumerate(worlds)]
    assert audit((reused[0], reused[1]), loss, features) > 2


@pytest.mark.parametrize(("loss", "draw"), [(pure, "laplace"), (gaussian, "normal")])
def test_the_audit_finds_the_low_bits_of_floating_point_noise(loss: Any, draw: str) -> None:
    """A positive control: float noise of the right scale betrays a record that its law would hide."""
    noise = getattr(np.random.default_rng(), draw)
    zero, one = (x + noise(0.0, 1.0, CELLS)[:, None] for x in (0.0, 1.0))
    assert audit((zero, one), loss, (value,)) <= 1
    assert audit((zero, one), loss, (value, low_bits)) > 2
