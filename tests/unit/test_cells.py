"""What the wall keeps of a domain: rules that are consistent in themselves, whoever declared them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sfumato._util.codec import value_fingerprint
from sfumato.cells import Codes, Edges, Grid, Truths, Wholes
from sfumato.curator import Curator
from sfumato.domain import Bins, Booleans, Categories, Domain, Hierarchy, Integers
from sfumato.errors import DomainError, PlanError
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger import Ledger
from sfumato.privacy.unit import Neighbours, PrivacyUnit

UNIT = PrivacyUnit(Neighbours.REPLACE_ONE)
ATTRIBUTES: dict[str, Any] = {
    "whole": Integers(3, 12, width=4, outside="clamp", missing="other", levels={"wide": 8}),
    "edges": Bins([0, 1.5, 10], outside="other", missing="other"),
    "codes": Categories({"1": "one", "2": "two"}, outside="other"),
    "truth": Booleans(missing="drop"),
    "place": Hierarchy({"a": ["a1", "a2"], "b": ["b1"]}, levels=["state", "county"]),
}


def test_a_grid_has_the_cells_of_its_domain() -> None:
    """Mutants: a policy lost on the way; the extra cell forgotten; levels' codes for the finest."""
    domain = Domain(ATTRIBUTES)
    grid = domain.grid
    assert (grid.names, grid.shape, grid.size, grid.drops) == (domain.names, domain.shape, domain.size, domain.drops)
    assert grid.shape == (4, 3, 3, 2, 3)
    for rule, attribute in zip(grid.rules, domain.attributes.values(), strict=True):
        assert (rule.kind, rule.outside, rule.missing) == (attribute.kind, attribute.outside, attribute.missing)
        assert (rule.size, rule.drops) == (attribute.size, attribute.drops)
    assert Grid.of(grid) is grid
    assert value_fingerprint(Grid.of(domain)) == value_fingerprint(grid)
    assert grid.rules[4] == Codes(kind="hierarchy", codes=("a1", "a2", "b1"), edition=1)


def test_names_of_another_class_are_plain_texts() -> None:
    grid = Domain({np.str_("a"): 2}).grid
    assert grid.names == ("a",)
    assert type(grid.names[0]) is str


@pytest.mark.parametrize(
    "make",
    [
        lambda: Codes(kind="category", codes=()),
        lambda: Codes(kind="category", codes=("a", "a")),
        lambda: Codes(kind="category", codes=("a", "")),
        lambda: Codes(kind="category", codes=("a",), outside="clamp"),
        lambda: Truths(kind="boolean", missing="clamp"),
        lambda: Wholes(kind="integer", low=1, high=0, width=1),
        lambda: Wholes(kind="integer", low=0, high=2**53, width=1),
        lambda: Wholes(kind="integer", low=0, high=1, width=0),
        lambda: Wholes(kind="integer", low=0, high=1, width=True),
        lambda: Edges(kind="number", edges=(0,)),
        lambda: Edges(kind="number", edges=(0, 0)),
        lambda: Edges(kind="number", edges=(0, float("nan"), 1)),
        lambda: Edges(kind="number", edges=(0, float("inf"))),
        lambda: Grid((), ()),
        lambda: Grid(("a", "a"), (Truths(kind="boolean"),) * 2),
        lambda: Grid(("a",), (Truths(kind="boolean"),) * 2),
        lambda: Grid(("a",), (Booleans(),)),  # type: ignore[arg-type]
        lambda: Grid(("a",), (Wholes(kind="integer", low=0, high=10**7, width=1),)),
        lambda: Grid.of("a"),
    ],
)
def test_what_is_no_grid_is_refused(make: Any) -> None:
    """Mutants: any of the checks left out."""
    with pytest.raises(DomainError):
        make()


def test_the_wall_takes_no_word_of_a_domain() -> None:
    """Mutants: a grid that is not built anew; a domain's own `drops` or sizes believed."""

    class Liar(Domain):
        drops = False  # type: ignore[assignment]
        shape = (1,)  # type: ignore[assignment]

    ledger = Ledger.in_memory(Budget.gdp(1))
    with pytest.raises(PlanError, match="drops rows"):
        Curator(None, Liar({"a": Booleans(outside="other", missing="drop")}), UNIT, ledger)
    forged = Domain({"a": Booleans(outside="other", missing="other")}).grid
    object.__setattr__(forged.rules[0], "outside", "nothing")

    class Forger:
        grid = forged

    for given in (Forger(), None, forged):
        with pytest.raises(PlanError):
            Curator(None, given, UNIT, ledger)
