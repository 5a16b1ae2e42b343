"""The studio offers what can be had: tables that were measured, and a ledger for more than one release."""

from __future__ import annotations

import numpy as np
import pytest

import sfumato as sf
from sfumato.studio.paying import ledger_proposal
from sfumato.studio.reading import release_overview


def test_what_was_measured_is_offered() -> None:
    """Mutants: every attribute offered; every pair."""
    domain = sf.Domain({"age": sf.Integers(0, 3), "sex": sf.Categories(["f", "m"]), "wage": sf.Bins([0, 1, 2])})
    work = sf.marginals(domain, sets=[("age", "sex")])
    plan = sf.plan(work, sf.gdp(1), neighbours="add-remove")
    release = sf.release(plan, sf.Histogram(np.full((4, 2, 2), 9)), ledger=None, name="some")
    found = {a["name"]: a for a in release_overview(release, "some")["attributes"]}
    assert {n: a["table"] for n, a in found.items()} == {"age": True, "sex": True, "wage": False}
    assert {n: a["beside"] for n, a in found.items()} == {"age": ["sex"], "sex": ["age"], "wage": []}
    assert [n for n, a in found.items() if a["distribution"]] == ["age"]


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        ({"epsilon": "0.5", "delta": "1e-6"}, {"epsilon": "1", "delta": "0.000002"}),
        ({"rho": 0.25, "neighbours": "add-remove"}, {"rho": "0.5"}),
        ({"mu": 10}, {"mu": "20"}),
        ({"epsilon": "", "mu": "nan"}, {}),
    ],
)
def test_a_ledger_is_proposed_for_more_than_one_release(kept: dict[str, object], expected: dict[str, str]) -> None:
    """Mutant: this release's budget alone."""
    found = ledger_proposal(kept)
    why = found.pop("why", "")
    assert found == expected
    assert ("three more" in why) == ("mu" in expected)
