"""What plans decide is what it was: integer maps, sensitivities, noise, prices and fingerprints of a golden file.

A change that is not meant to change plans changes nothing here. One that is writes the file anew (`python -m
support.golden`, in the folder tests) and says in its commit which plans it changed, and why: a release that
was paid for is found again by its plan's fingerprint.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.local.plan import REPORTERS
from sfumato.mechanisms import MECHANISMS
from support.golden.cases import BUDGETS, CASES, RELATIONS
from support.golden.file import FILE, differences, read, where
from support.golden.said import Unknown, maps, say, tell

GOLDEN = read()
PLANS = GOLDEN["plans"]
HERE = where()
MOST_BYTES = 300_000
WASTED = Fraction(1, 1_000)  # of a price at most, by rounding multiples to integers


@pytest.mark.parametrize("name", CASES)
def test_a_plan_is_what_it_was(name: str) -> None:
    """Mutants: a sensitivity one too large; a multiple of residuals changed; another hash of a key; a sampler that
    takes its words in another order; a price rounded to a double; a field added; a threshold moved; the cells left
    out of a tree."""
    written = PLANS[name].get("where", GOLDEN["where"])
    assert not differences(PLANS[name], tell(CASES[name]()), here=written == HERE)


def test_the_file_holds_every_case_and_every_kind() -> None:
    """Mutants: a case taken out; a mechanism that no case asks for; a file that grew without bound."""
    assert list(PLANS) == list(CASES)
    assert FILE.stat().st_size < MOST_BYTES
    exact = [p["exact"] for p in PLANS.values()]
    found = {e.get("mechanism", e.get("reporter")) for e in exact} | {n.partition(":")[0] for n in PLANS}
    assert found >= {*MECHANISMS, *REPORTERS, "lazy histogram"} - {"local"}
    assert {e["objective"] for e in exact if "objective" in e} == {"tables", "cells", "max"}
    for kind in (*BUDGETS, *RELATIONS):
        assert sum(f" {kind}" in n or n.endswith(kind) for n in PLANS) >= 10, kind
    # what is compared everywhere is the rule, what a search found the exception
    assert sum("searched" not in p for p in PLANS.values()) >= 250


@pytest.mark.parametrize("name", [n for n, p in PLANS.items() if "power" in p["exact"]])
def test_stored_sensitivities_make_the_stored_prices(name: str) -> None:
    """The file by itself: sensitivity and scale give the price, which is spent but for what integers round away.

    Mutant: a sensitivity, a scale or a price in the file changed by hand.
    """
    stored = PLANS[name]["exact"] | PLANS[name].get("searched", {})
    (law, scale), (event, price) = (tuple(stored[part].values()) for part in ("noise", "price"))
    spent = {
        ("RoundedGaussian", "GaussianEvent"): lambda: stored["sensitivity"] / Fraction(scale) ** 2,
        ("DiscreteGaussian", "ZcdpEvent"): lambda: stored["sensitivity"] / Fraction(scale) ** 2 / 2,
        ("DiscreteLaplace", "PureEvent"): lambda: stored["sensitivity"] / Fraction(scale),
    }[law, event]()
    assert Fraction(price) * (1 - WASTED) <= spent <= Fraction(price)


def _changed(stored: dict[str, Any], **changes: Any) -> list[str]:
    told = {"exact": stored["exact"] | changes, "floats": dict(stored["floats"])}
    return differences(stored, told, here=False)


def test_every_difference_is_said() -> None:
    """Mutants: a comparison of the keys that both have; floats compared as texts or not at all."""
    stored = {"exact": {"sensitivity": 4, "power": 2}, "floats": {"rmse": 1.5, "margin": "inf"}}
    assert _changed(stored) == []
    assert _changed(stored, sensitivity=5) == ["sensitivity was 4 and is 5"]
    assert _changed(stored, more=1) == ["more is new: write the file anew"]
    for floats in ({"rmse": 1.5}, {"rmse": 1.5 + 1e-8, "margin": "inf"}, {"rmse": 1.5, "margin": 3.0}):
        assert differences(stored, {"exact": stored["exact"], "floats": floats}, here=False)
    assert not differences(
        stored, {"exact": stored["exact"], "floats": {"rmse": 1.5 + 1e-10, "margin": "inf"}}, here=True
    )
    searched = stored | {"searched": {"maps": "old"}}
    told = {"exact": stored["exact"] | {"maps": "new"}, "floats": stored["floats"]}
    assert differences(searched, told, here=True)
    assert not differences(searched, told, here=False)


def test_what_is_of_an_unknown_kind_is_refused() -> None:
    """Mutant: a digest that skips what it does not know, so that a new kind of map is never compared."""
    for use in (lambda: tell(object()), lambda: maps([object()]), lambda: say(object()), lambda: say(np.array(["x"]))):
        with pytest.raises(Unknown):
            use()
    with pytest.raises(Unknown):
        maps([sf.queries(np.array([[0.5, 1.0]])).blocks[0].block])
