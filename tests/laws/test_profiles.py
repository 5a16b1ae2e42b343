"""What a description costs: of small ones every look by every pair of cells, added up and held against the price."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.mechanisms import profiles
from sfumato.privacy.noise import DiscreteLaplace
from sfumato.releases.profiles import Profile, ProfileLook

CASES: list[tuple[Any, str, Any]] = [
    (sf.approx(30, "1e-6", thresholds="5e-7"), "add-remove", "0.3"),
    (sf.gdp(5), "replace-one", Fraction(1, 7)),
    (sf.zcdp(9), "add-remove", "0.5"),
    (sf.pure(40), "replace-one", "0.5"),
    (sf.pure(40), "add-remove", "0"),
]


def described(budget: Any, neighbours: str, pairs: Any) -> Profile:
    rng = np.random.default_rng(4)
    rows = {n: rng.random(900) < 0.4 for n in ("a", "b", "c")}
    return sf.describe(pa.table(rows), budget, ledger=None, records=900, neighbours=neighbours, pairs=pairs)


def changed(look: ProfileLook, power: int, *, replaced: bool) -> int:
    """The most that one record changes, from every cell of all columns together and every pair of these."""
    sizes = look.grid.sizes()
    columns: list[np.ndarray] = []
    for cells in product(*(range(n) for n in sizes.values())):
        at, parts = dict(zip(sizes, cells, strict=True)), []
        for block in look.measured.blocks:
            part = np.ones(1)
            for group, factor in zip(block.groups, block.factors, strict=True):  # type: ignore[union-attr]
                (name,) = group
                part = np.kron(part, factor.rows(0, factor.shape[0])[:, at[name]])
            parts.append(part)
        columns.append(np.concatenate(parts).astype(np.int64))
    matrix = np.array(columns)
    found = int((abs(matrix) ** power).sum(axis=1).max())
    if replaced:
        found = max(found, *(int((abs(matrix - row) ** power).sum(axis=1).max()) for row in matrix))
    return found


def spent(found: Profile) -> Fraction:
    """What all looks cost by what they change, in the currency of the price."""
    total, replaced = Fraction(0), found.plan.unit.neighbours.value == "replace-one"
    for look in found.looks:
        law = look.measured.noise
        power = 1 if isinstance(law, DiscreteLaplace) else 2
        scale = law.scale if isinstance(law, DiscreteLaplace) else law.sigma
        twice = 2 if found.plan.budget.kind == "zcdp" else 1
        total += Fraction(changed(look, power, replaced=replaced)) / (twice * scale**power)
    return total + sum((k.price.mu_squared for k in found.label_looks), Fraction(0))


def whole(found: Profile) -> Fraction:
    price: Any = found.plan.price
    return next(getattr(price, n) for n in ("epsilon", "rho", "mu_squared") if hasattr(price, n))


@pytest.mark.parametrize(("budget", "neighbours", "pairs"), CASES)
def test_all_looks_together_cost_at_most_the_price(budget: Any, neighbours: str, pairs: Any) -> None:
    """Mutants: a pair of columns costs nothing of its own; records are not replaced; pairs on top of the price."""
    found = described(budget, neighbours, pairs)
    assert len(found.looks) == (3 if Fraction(pairs) else 2)
    assert found.pairs or not Fraction(pairs)
    # nearly nothing is left over, but for the third look, for booleans have none
    assert float(whole(found)) * 0.98 < float(spent(found)) <= whole(found)


def test_a_look_that_is_paid_for_as_one_table_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall finds what a look costs from its maps. Mutant: it believes the noise."""
    kept = profiles.noise_of

    def too_small(price: Any, value: int) -> Any:
        return kept(price, 1 if value == 3 else value)  # three pairs of columns

    monkeypatch.setattr(profiles, "noise_of", too_small)
    with pytest.raises(sf.errors.SfumatoError, match="price"):
        described(sf.gdp(5), "add-remove", "0.3")
