"""What hands could make of measures beside what a plan asks: the curator and the stranger's checker refuse it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato import check_release
from sfumato.check_maps import Cannot, Doc
from sfumato.curator import by_part
from sfumato.curator.by_part import ByPartCurator
from sfumato.curator.curator import Curator
from sfumato.errors import PlanError
from sfumato.maps import AlikeMap, BlockMap, DenseMap, FamilyMap
from sfumato.privacy.accounting import GaussianEvent
from sfumato.privacy.noise import RoundedGaussian
from sfumato.privacy.sensitivity import certified_bound
from sfumato.privacy.unit import Neighbours, PrivacyUnit

DOMAIN = sf.Domain({"a": sf.Categories(["x", "y"], outside="other", missing="other")}, measures={"m": sf.Measure(0, 1)})
SQUARES = BlockMap((("m",),), (DenseMap(np.array([[0, 0, 1, 0]])),))
NOISE, PRICE = RoundedGaussian(Fraction(2**16)), GaussianEvent(Fraction(10**6))


def _frame(numbers: Sequence[float]) -> pd.DataFrame:
    return pd.DataFrame({"a": list("xxyyxy"), "m": numbers})


def _ledger() -> sf.Ledger:
    return sf.Ledger.in_memory(total=sf.gdp(10**4))


def test_multiples_beside_measures_do_not_wrap() -> None:
    """Mutant: products of int64, by which a multiple of 2^40 + 1 is priced as 1."""
    sizes = DOMAIN.grid.sizes()
    for multiple, large in ((1, False), (2**37, False), (2**38, True), (2**40 + 1, True)):
        family = FamilyMap(("a", "m"), (AlikeMap(3), AlikeMap(4)), np.array([[0]]), np.array([multiple]))
        unit = PrivacyUnit(Neighbours.ADD_REMOVE)
        if large:
            with pytest.raises(PlanError, match="too large"):
                certified_bound([family, SQUARES], sizes, unit, 2, None, ("m",))
        else:
            price = certified_bound([family, SQUARES], sizes, unit, 2, None, ("m",))
            assert price >= (multiple * 2**24) ** 2


def test_parts_are_not_counted_beside_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a table in parts whose records are 1 beside sums in which they are 2^24."""
    monkeypatch.setattr(by_part, "MAX_CELLS", 2)
    blocks = [BlockMap((("a",),), (AlikeMap(3),)), SQUARES]
    ledger = _ledger()
    curator = ByPartCurator(_frame([1.0] * 6), DOMAIN, PrivacyUnit(Neighbours.ADD_REMOVE), ledger)
    with pytest.raises(PlanError, match="in parts"):
        curator.measure(blocks, NOISE, PRICE, name="q", plan_hash="h")
    assert not [e for e in ledger.entries() if e.kind == "spend"]


def test_no_proposal_counts_the_codes_of_a_measure() -> None:
    """What is packed decides how long counting takes, and nothing else. Mutant: a proposal over a measure's axis, which
    fails after the debit for some records and not for others."""

    def packed(shape: Sequence[int], sets: Sequence[Any], rows: int) -> Any:
        del rows
        blocks = np.tile([0, 1], (sum(map(len, sets)), 1))
        assert len(shape) == 2
        return blocks, [np.arange(len(s)) for s in sets]

    for numbers in ([0.0] * 6, [0.0] * 5 + [0.7]):
        unit = PrivacyUnit(Neighbours.REPLACE_ONE)
        curator = Curator(_frame(numbers), DOMAIN, unit, _ledger(), packing=packed)
        quiet = RoundedGaussian(Fraction(1, 64))
        found, _ = curator.measure([BlockMap((("a",),), (AlikeMap(3),))], quiet, PRICE, name="q", plan_hash="h")
        assert found.values[0].tolist() == [3, 3, 0]


def _documents() -> tuple[Doc, Doc, Doc]:
    """A plan over the domain, and a map of its measure as a block and inside a combination."""
    attributes = [
        ("a", Doc({"~class": "Integers", "low": 0, "high": 1, "width": 1, "outside": "other", "missing": "other"})),
        ("m", Doc({"~class": "Measure", "low": 0, "high": 1, "outside": "clamp", "missing": "other"})),
    ]
    domain = Doc({"attributes": Doc({"~map": attributes})})
    plan = Doc({"workload": Doc({"domain": domain}), "unit": Doc({"within": None}), "cut": None})
    factor = Doc({"~class": "Dense", "matrix": np.array([[0, 0, 1, 0]])})
    block = Doc({"~class": "BlockMap", "groups": [["m"]], "factors": [factor]})
    return plan, block, Doc({"~class": "CombinationMap", "blocks": [block], "matrix": np.array([[1]])})


def _check() -> check_release.Check:
    found = check_release.Check.__new__(check_release.Check)
    found.wrong, found.unknown, found.believed, found.held = [], [], [], set()
    return found


def test_a_stranger_is_not_fooled_by_a_measure_inside_a_combination() -> None:
    """Noise of 2 on a sum of squares costs 2^46 and not 1 / 4. Mutant: combinations priced as if a record were 1."""
    plan, _, combined = _documents()
    noise = Doc({"~class": "RoundedGaussian", "sigma": 2})
    values = [np.zeros(1, np.int64)]
    held = Doc({"~class": "Measurement", "blocks": [combined], "values": values, "noise": noise, "total": None})
    with pytest.raises(Cannot, match="measures"):
        _check().measured(held, "gaussian 1/4", plan, ["add-remove", None, 1])


def test_a_stranger_does_not_check_a_stream_of_measures() -> None:
    """Mutant: a stream's tables of a measure priced as if a record were 1."""
    plan, _, _ = _documents()
    with pytest.raises(Cannot, match="measures"):
        _check().stream(Doc(plan | {"terms": Doc({})}), [], ["add-remove", None, 1])
