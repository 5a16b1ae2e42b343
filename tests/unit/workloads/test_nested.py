"""The same tables of all records and within the groups of every level of one attribute."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import DomainError, WorkloadError
from sfumato.specs import read_spec
from sfumato.workloads.levels import names_asked

ROWS = [("06", "c1"), ("36", "n1"), ("06", "c2"), ("36", "n2"), ("06", "c3")]
PLACE = sf.Hierarchy(ROWS, ["state", "county"], outside="other")
DOMAIN = sf.Domain({"age": 3, "place": PLACE, "sex": 2})
X = np.arange(DOMAIN.size).reshape(DOMAIN.shape) ** 2 % 101
SETS: list[tuple[str, ...]] = [(), ("sex",), ("sex", "age")]


def asked(work: sf.Workload) -> list[tuple[str, tuple[str, ...], Fraction]]:
    return [(q.part, names_asked(work.domain, q.block), q.weight) for q in work.blocks]


def test_every_table_is_asked_of_all_records_and_of_the_groups_of_every_level() -> None:
    work = sf.marginals(DOMAIN, sets=SETS, factors={"place": "levels"})
    assert [(part, names) for part, names, _ in asked(work)] == [
        ("all place", ()),
        ("all place", ("sex",)),
        ("all place", ("age", "sex")),
        ("state", ("state",)),
        ("state", ("state", "sex")),
        ("state", ("age", "state", "sex")),
        ("county", ("place",)),
        ("county", ("place", "sex")),
        ("county", ("age", "place", "sex")),
    ]
    apart = [sf.identity(DOMAIN, *names) if names else sf.total(DOMAIN) for _, names, _ in asked(work)]
    assert np.array_equal(work.answer(X), np.concatenate([w.answer(X) for w in apart]))


def test_orders_count_the_other_attributes() -> None:
    every = sf.marginals(DOMAIN, upto=2, factors={"place": "levels"})
    assert every.parts["state"].tables == 4
    assert every.shape == (12 * (1 + 3 + 6), 36)
    two = sf.marginals(DOMAIN, order=2, factors={"place": "levels"})
    assert [names for _, names, _ in asked(two)] == [("age", "sex"), ("age", "state", "sex"), ("age", "place", "sex")]


def test_other_attributes_keep_factors_of_their_own() -> None:
    work = sf.marginals(DOMAIN, order=1, factors={"place": "levels", "age": "prefix"})
    assert work.parts["all place"].labels()[:2] == ["age up to 0", "age up to 1"]


def test_a_weight_goes_for_every_level_and_one_with_a_level_for_that_alone() -> None:
    """Mutants: the general weight wins; an order counts the place."""
    weights: dict[Any, object] = {("sex",): 4, ("sex", "state"): 9, 2: 7, ("county",): 3}
    work = sf.marginals(DOMAIN, sets=SETS, weights=weights, factors={"place": "levels"})
    assert [int(w) for _, _, w in asked(work)] == [1, 4, 7, 1, 9, 7, 3, 4, 7]


def test_a_level_of_one_group_is_all_records() -> None:
    place = sf.Hierarchy([("us", *row) for row in ROWS], ["nation", "state", "county"])
    work = sf.marginals(sf.Domain({"place": place, "sex": 2}), upto=1, factors={"place": "levels"})
    assert list(work.parts) == ["nation", "state", "county"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sets": [("place", "sex")], "factors": {"place": "levels"}}, "names place or a level of it"),
        ({"sets": [("state",)], "factors": {"place": "levels"}}, "names place or a level of it"),
        ({"upto": 1, "factors": {"sex": "levels"}}, "sex has no levels"),
        ({"upto": 3, "factors": {"place": "levels"}}, "from 0 to 2"),
        ({"upto": 1, "factors": {"place": "levels", "sex": "levels"}}, "one attribute at a time"),
        ({"upto": 1, "weights": {("age", "sex"): 2}, "factors": {"place": "levels"}}, "no marginal of this workload"),
        ({"upto": 1, "weights": {2: 2}, "factors": {"place": "levels"}}, "no marginal of this workload"),
        ({"upto": 1, "weights": {("sex",): 2, "sex": 3}, "factors": {"place": "levels"}}, "twice"),
        ({"sets": "sex", "factors": {"place": "levels"}}, "a list of lists"),
    ],
)
def test_refusals(given: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        sf.marginals(DOMAIN, **given)


def test_a_level_is_no_attribute_to_ask_at_levels() -> None:
    with pytest.raises(DomainError, match="name the attribute"):
        sf.marginals(DOMAIN, upto=1, factors={"state": "levels"})


SPEC = """
[schema_defaults]
outside = "other"
missing = "other"
[schema.place]
type = "hierarchy"
levels = ["state", "county"]
values_from = "codes.csv"
[schema.sex]
type = "category"
values = ["f", "m"]
[privacy]
rho = 0.5
neighbours = "add-remove"
[[queries]]
sets = [[], ["sex"]]
factors = { place = "levels", sex = "identity" }
"""


def test_a_spec_asks_for_levels(tmp_path: Path) -> None:
    (tmp_path / "codes.csv").write_text("state,county\n" + "".join(f"{s},{c}\n" for s, c in ROWS))
    (tmp_path / "spec.toml").write_text(SPEC)
    spec = read_spec(tmp_path / "spec.toml")
    by_hand = sf.marginals(spec.domain, sets=[[], ["sex"]], factors={"place": "levels"})
    assert spec.workload.labels() == by_hand.labels()
