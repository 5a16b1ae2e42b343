"""Questions over levels: the same as over cells, with the cells of each group added up."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.domain.predicates import compile_predicate
from sfumato.errors import DomainError, InvalidInput, WorkloadError
from sfumato.operators import Grouping, Identity
from sfumato.specs import read_spec
from sfumato.workloads.levels import (
    family_names,
    is_table_family,
    lift_to_attribute,
    names_asked,
    table_block,
    table_names,
)

POLICIES: dict[str, Any] = {"outside": "other", "missing": "other"}
ROWS = [("06", "c1"), ("36", "n1"), ("06", "c2"), ("36", "n2"), ("06", "c3")]
DOMAIN = sf.Domain(
    {
        "age": sf.Integers(0, 7, levels={"pair": 2, "phase": [0, 2, 6, 8]}, outside="clamp", missing="drop"),
        "sex": sf.Categories({"1": "female", "2": "male"}),
        "place": sf.Hierarchy(ROWS, ["state", "county"], {"state": {"06": "California"}}, **POLICIES),
    }
)
X = np.arange(DOMAIN.size).reshape(DOMAIN.shape) ** 2 % 101
STATE = np.array([0, 1, 0, 1, 0, 2])
PAIR, PHASE = np.arange(8) // 2, np.array([0, 0, 1, 1, 1, 1, 2, 2])


def grouped(table: np.ndarray, groups: np.ndarray, axis: int) -> np.ndarray:
    parts = [table.compress(groups == g, axis=axis).sum(axis=axis) for g in range(groups.max() + 1)]
    return np.stack(parts, axis=axis)


def test_tables_over_levels_are_sums_of_the_tables_over_cells() -> None:
    """Against numpy: every choice of a level or the cells per attribute, in any order of the names."""
    axes: list[list[tuple[str, np.ndarray | None]]] = [
        [("age", None), ("pair", PAIR), ("phase", PHASE)],
        [("sex", None)],
        [("place", None), ("county", None), ("state", STATE)],
    ]
    for choice in itertools.product(*([None, *a] for a in axes)):
        names = [c[0] for c in choice if c is not None]
        table = X
        for axis, chosen in enumerate(choice):
            if chosen is None:
                table = table.sum(axis=axis, keepdims=True)
            elif chosen[1] is not None:
                table = grouped(table, chosen[1], axis)
        for order in itertools.permutations(names):
            work = sf.marginals(DOMAIN, sets=[order])
            assert np.array_equal(work.answer(X), table.reshape(-1))
            if names:
                assert np.array_equal(sf.identity(DOMAIN, *order).answer(X), table.reshape(-1))
                assert sf.identity(DOMAIN, *order).labels() == work.labels()


def test_labels_name_the_level_and_its_groups() -> None:
    work = sf.marginals(DOMAIN, sets=[("sex", "state"), ("place",), ("phase",)])
    assert work.labels() == [
        *(f"sex = {s}, state = {p}" for s in ("female", "male") for p in ("California", "36", "(other)")),
        *(f"place = {c}" for c in ("c1", "n1", "c2", "n2", "c3", "(other)")),
        *(f"phase = {p}" for p in ("[0, 2)", "[2, 6)", "[6, 8)")),
    ]
    assert [names_asked(DOMAIN, q.block) for q in work.blocks] == [("sex", "state"), ("place",), ("phase",)]
    assert family_names(DOMAIN, work.items[0].family) == [("sex", "state")]  # type: ignore[union-attr]
    assert sf.identity(DOMAIN, "pair").labels() == [f"pair = {a}..{a + 1}" for a in (0, 2, 4, 6)]


def test_sets_of_one_kind_are_one_family() -> None:
    sets = [("state", "sex"), ("state", "age"), ("county", "sex"), ("state", "phase"), ("state",)]
    work = sf.marginals(DOMAIN, sets=sets)
    assert [len(i.family) for i in work.items] == [2, 1, 1, 1]  # type: ignore[union-attr]
    whole = [sf.identity(DOMAIN, *s).answer(X) for s in sets]
    assert np.array_equal(work.answer(X), np.concatenate(whole))


def test_weights_name_sets_of_levels() -> None:
    sets = [("state", "sex"), ("state", "age"), ("county", "sex")]
    work = sf.marginals(DOMAIN, sets=sets, weights={("sex", "state"): 3, ("place", "sex"): 5})
    assert [int(q.weight) for q in work.blocks] == [3, 1, 5]
    for key in (("state", "pair"), ("state",), ("place", "age")):
        with pytest.raises(WorkloadError, match="no marginal of this workload"):
            sf.marginals(DOMAIN, sets=sets, weights={key: 2})
    with pytest.raises(WorkloadError, match="twice"):
        sf.marginals(DOMAIN, sets=sets, weights={("county", "sex"): 2, ("place", "sex"): 2})


def test_a_hierarchy_asks_every_level_and_no_total() -> None:
    work = sf.hierarchy(DOMAIN, "place", by=["sex"])
    wanted = [sf.identity(DOMAIN, "sex", level) for level in ("state", "county")]
    assert work.labels() == [text for w in wanted for text in w.labels()]
    assert np.array_equal(work.answer(X), np.concatenate([w.answer(X) for w in wanted]))
    assert list(work.parts) == ["hierarchy place by sex"]
    age = sf.hierarchy(DOMAIN, "age")
    assert [q.rows for q in age.blocks] == [3, 4, 8]
    factors = sf.marginals(DOMAIN, sets=[("place",), ("age",)], factors={"place": "hierarchy", "age": "hierarchy"})
    assert factors.labels() == [*sf.hierarchy(DOMAIN, "place").labels(), *age.labels()]
    both = np.concatenate([sf.hierarchy(DOMAIN, "place").answer(X), age.answer(X)])
    assert np.array_equal(factors.answer(X), both)
    pairs = sf.marginals(DOMAIN, 2, factors={"place": "state"})
    assert pairs.labels() == sf.marginals(DOMAIN, sets=[("age", "sex"), ("age", "state"), ("sex", "state")]).labels()
    for bad in ("state", "sex"):
        with pytest.raises(InvalidInput):
            sf.hierarchy(DOMAIN, bad)
    with pytest.raises(WorkloadError, match="has no levels"):
        sf.marginals(DOMAIN, 1, factors={"sex": "hierarchy"})
    with pytest.raises(WorkloadError, match="'levels' of one attribute"):
        sf.marginals(DOMAIN, 1, factors={"sex": "state"})


def test_every_kind_of_question_takes_a_level() -> None:
    table = grouped(X, PAIR, 0)
    prefix = sf.prefix(DOMAIN, "pair", by=["state"])
    by_state = grouped(table.sum(axis=1), STATE, 1)
    assert np.array_equal(prefix.answer(X), by_state.cumsum(axis=0).reshape(-1))
    assert prefix.labels()[:2] == ["pair up to 0..1, state = California", "pair up to 0..1, state = 36"]
    assert list(prefix.parts) == ["prefix pair by state"]
    assert np.array_equal(sf.prefix(DOMAIN, "state").answer(X), grouped(X.sum(axis=(0, 1)), STATE, 0)[:2].cumsum())
    assert sf.prefix(DOMAIN, "county").labels()[0] == "place up to c1"
    ranges = sf.ranges(DOMAIN, "phase")
    assert ranges.labels()[1] == "phase from [0, 2) to [2, 6)"
    assert ranges.answer(X)[1] == X[:6].sum()
    assert sf.windows(DOMAIN, "pair", 2).labels()[-1] == "pair from 4..5 to 6..7"
    sums = sf.sums(DOMAIN, "pair", by="state")
    assert np.allclose(sums.answer(X), np.array([0.5, 2.5, 4.5, 6.5]) @ by_state)
    assert sums.units == ("age",)
    matrix = np.array([[1, -1, 0]])
    assert sf.queries(matrix, DOMAIN, "state").answer(X) == [matrix[0] @ grouped(X.sum(axis=(0, 1)), STATE, 0)]
    product = sf.identity(DOMAIN, "state") * sf.prefix(DOMAIN, "age")
    assert np.array_equal(product.answer(X), grouped(X.sum(axis=1), STATE, 1).cumsum(axis=0).reshape(-1))


@pytest.mark.parametrize(
    "ask",
    [
        lambda: sf.marginals(DOMAIN, sets=[("state", "county")]),
        lambda: sf.marginals(DOMAIN, sets=[("place", "sex", "state")]),
        lambda: sf.prefix(DOMAIN, "age", by=["pair"]),
        lambda: sf.prefix(DOMAIN, "age", by="age"),
        lambda: sf.identity(DOMAIN, "pair", "phase"),
        lambda: sf.hierarchy(DOMAIN, "place", by=["state"]),
        lambda: sf.identity(DOMAIN, "state") * sf.identity(DOMAIN, "county"),
        lambda: sf.marginals(DOMAIN, sets=[("place", "sex"), ("sex", "county")]),
        lambda: sf.marginals(DOMAIN, sets=[("town",)]),
        lambda: sf.marginals(DOMAIN, 1, factors={"state": "prefix"}),
    ],
)
def test_two_levels_of_one_attribute_make_no_table(ask: Any) -> None:
    with pytest.raises(InvalidInput):
        ask()


def test_one_table_cannot_name_two_levels_and_says_why() -> None:
    with pytest.raises(DomainError, match=r"'state' and 'county' are levels of one attribute, 'place'; name the finer"):
        sf.marginals(DOMAIN, sets=[("state", "county")])


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("state == '06'", [0, 2, 4]),
        ("state == 'California'", [0, 2, 4]),
        ("state != '06'", [1, 3, 5]),
        ("state in ('06', '(other)')", [0, 2, 4, 5]),
        ("state not in ('36')", [0, 2, 4, 5]),
        ("county == 'c2'", [2]),
        ("place == 'c2'", [2]),
        ("state == '06' and county != 'c2'", [0, 4]),
        ("state == '36' or place == 'c1'", [0, 1, 3]),
        ("not state == '36'", [0, 2, 4, 5]),
    ],
)
def test_predicates_over_levels(text: str, cells: list[int]) -> None:
    compiled = compile_predicate(DOMAIN, text)
    assert compiled.attributes == ("place",)
    assert np.flatnonzero(compiled.mask).tolist() == cells
    assert sf.predicates(DOMAIN, [text]).answer(X) == [X[:, :, cells].sum()]


def test_predicates_join_levels_of_several_attributes() -> None:
    work = sf.predicates(DOMAIN, ["pair >= 4 and state == '06'", "2 <= phase < 6 or sex == 'male'", "pair == 3"][:2])
    truth = [X[4:][:, :, STATE == 0].sum(), X[2:6].sum() + X[:2, 1].sum() + X[6:, 1].sum()]
    assert work.answer(X).tolist() == truth
    for text, message in [
        ("pair >= 3", "divides the cell 2..3 of pair; ask pair >= 2 or pair >= 4"),
        ("state == '07'", "state has no '07'"),
        ("state > '06'", "state has no order; compare it with ==, != or in, as in state == 'California'"),
        ("stat == '06'", "did you mean 'state'"),
        ("state", "expected a comparison of state, as in state == 'California'"),
    ]:
        with pytest.raises(WorkloadError, match="(?s)" + message.replace("(", "[(]").replace("..", "[.][.]")):
            compile_predicate(DOMAIN, text)


def test_helpers_hand_out_the_cells_themselves_where_there_is_no_level() -> None:
    assert lift_to_attribute(DOMAIN, "county") == lift_to_attribute(DOMAIN, "place") == ("place", Identity(6))
    assert lift_to_attribute(DOMAIN, "state") == ("place", Grouping(STATE, 3))
    assert table_block(DOMAIN, ["state", "age"]).groups == (("place",), ("age",))


def test_a_block_is_a_table_where_its_rows_are_all_cells_of_named_axes() -> None:
    """Mutant: a grouping that is no level of the domain taken for a table, whose cells would be others."""
    works = {
        ("state", "sex"): sf.identity(DOMAIN, "sex", "state"),
        ("place",): sf.identity(DOMAIN, "county"),
        (): sf.total(DOMAIN),
    }
    for names, work in works.items():
        found = table_names(DOMAIN, work.blocks[0].block)
        assert found is not None
        assert sorted(found) == sorted(names)
    own = Grouping(np.array([0, 0, 0, 0, 1, 1]), 2)
    for work in (sf.prefix(DOMAIN, "state"), sf.queries(own, DOMAIN, "place"), sf.prefix(DOMAIN, "age")):
        assert table_names(DOMAIN, work.blocks[0].block) is None
    families = [
        i.family
        for w in (
            sf.marginals(DOMAIN, sets=[("state", "sex")]),
            sf.marginals(DOMAIN, 1),
            sf.marginals(DOMAIN, 1, factors={"place": own}),
            sf.marginals(DOMAIN, 1, factors={"age": "prefix"}),
        )
        for i in w.items
    ]
    assert [is_table_family(DOMAIN, f) for f in families] == [True, True, False, False]  # type: ignore[arg-type]
    assert sf.queries(own, DOMAIN, "place").labels() == ["place query 0", "place query 1"]


SPEC = """
[schema_defaults]
outside = "other"
missing = "other"
[schema.place]
type = "hierarchy"
levels = ["state", "county"]
values_from = "codes.csv"
[schema.age]
type = "integer"
min = 0
max = 7
levels = { pair = 2 }
[privacy]
rho = 1
neighbours = "add-remove"
[[queries]]
sets = [["state", "age"], ["county"]]
[[queries]]
hierarchy = "place"
by = ["pair"]
[[queries]]
prefix = "age"
by = "state"
[[queries]]
where = ["state == '06' and pair >= 2"]
"""


def test_spec_files_name_levels(tmp_path: Any) -> None:
    (tmp_path / "codes.csv").write_text("state,county\n" + "".join(f"{s},{c}\n" for s, c in ROWS))
    path = tmp_path / "spec.toml"
    path.write_text(SPEC)
    spec = read_spec(path)
    by_hand = sf.stack(
        sf.marginals(spec.domain, sets=[("state", "age"), ("county",)]),
        sf.hierarchy(spec.domain, "place", by=["pair"]),
        sf.prefix(spec.domain, "age", by="state"),
        sf.predicates(spec.domain, ["state == '06' and pair >= 2"]),
    )
    assert spec.workload.labels() == by_hand.labels()
    for bad, line, message in [
        ('["state", "county"]', 18, "levels of one attribute"),
        ('["stat"]', 18, "did you mean 'state'"),
    ]:
        path.write_text(SPEC.replace('[["state", "age"], ["county"]]', f"[{bad}]"))
        with pytest.raises(sf.errors.SpecError, match=message) as caught:
            read_spec(path)
        assert caught.value.line == line
