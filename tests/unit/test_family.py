"""Families of blocks: what the arrays say is what their blocks say, one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato._util.codec import decode_value, encode_value, value_fingerprint
from sfumato.errors import WorkloadError
from sfumato.operators import Dense, Family, Identity, LinearOperator, Prefix, Residual, Total

NAMES = ("a", "b", "c", "d")
FACTORS: tuple[LinearOperator, ...] = (Residual(3), Residual(3), Dense(np.array([[1, -2], [3, 4], [5, 6]])), Prefix(4))


@st.composite
def families(draw: st.DrawFn) -> Family:
    order = draw(st.integers(0, 4))
    every = list(itertools.combinations(range(4), order))
    chosen = draw(st.lists(st.sampled_from(every), min_size=1, unique=True))
    multiples = draw(st.none() | st.lists(st.integers(1, 2**40), min_size=len(chosen), max_size=len(chosen)))
    sets = np.array(chosen, dtype=np.int64).reshape(len(chosen), order)
    return Family(NAMES, FACTORS, sets, None if multiples is None else np.array(multiples))


@given(families(), st.randoms(use_true_random=False))
def test_a_family_is_its_blocks(family: Family, random: object) -> None:
    """Mutants: multiples of other sets, axes out of order, starts without the first block, rows for cells."""
    blocks = list(family.blocks())
    assert [b.attributes for b in blocks] == [family.set_names(i) for i in range(len(family))]
    assert family.rows_each.tolist() == [b.rows for b in blocks]
    assert family.rows == sum(b.rows for b in blocks)
    largest = max(int(np.abs(b.operator.dense()).max()) for b in blocks)
    assert largest <= family.max_abs <= largest * (1 + 1e-9)
    numbers = np.random.default_rng(random.randint(0, 2**30))  # type: ignore[attr-defined]
    tables = [numbers.integers(-(2**50), 2**50, [f.shape[1] for f in b.factors if f.shape[1] > 1]) for b in blocks]
    into = np.zeros(family.rows, dtype=np.int64)
    groups = family.alike()
    assert sorted(i for g in groups for i in g.tolist()) == list(range(len(family)))
    for group in groups:
        family.place(group, family.apply(group, np.stack([tables[i] for i in group])), into)
    wanted = [b.operator.matvec(t.reshape(-1)) for b, t in zip(blocks, tables, strict=True)]
    assert into.tolist() == np.concatenate(wanted).tolist()
    assert value_fingerprint(decode_value(*encode_value(family))) == value_fingerprint(family)


def test_sets_with_the_same_factors_are_taken_together() -> None:
    family = Family(NAMES, FACTORS, np.array([[0, 2], [0, 3], [1, 2]]))
    assert [g.tolist() for g in family.alike()] == [[0, 2], [1]]
    assert sorted(g.tolist() for g in family.alike([1, 2])) == [[0], [1]]


def test_fit_and_use() -> None:
    family = Family(NAMES, FACTORS, np.array([[0, 2]]))
    family.check({"a": 3, "c": 2})
    assert family.attributes == ("a", "c")
    with pytest.raises(WorkloadError, match="needs 5 columns"):
        family.check({"a": 5, "c": 2})
    with pytest.raises(WorkloadError, match="no attribute is called"):
        family.check({"a": 3})


@pytest.mark.parametrize(
    ("sets", "multiples", "message"),
    [
        (np.array([[1, 0]]), None, "ascending"),
        (np.array([[0, 0]]), None, "ascending"),
        (np.array([[0, 4]]), None, "ascending"),
        (np.array([[-1, 0]]), None, "ascending"),
        (np.array([[0, 1], [0, 1]]), None, "twice"),
        (np.empty((0, 2), dtype=int), None, "count, order"),
        (np.array([0, 1]), None, "count, order"),
        (np.array([[0.0, 1.0]]), None, "whole numbers"),
        (np.array([[0, 1]]), np.array([0]), "positive multiple"),
        (np.array([[0, 1]]), np.array([2**62]), "positive multiple"),
        (np.array([[0, 1]]), np.array([1, 2]), "positive multiple"),
        (np.array([[0, 1]]), np.array([1.5]), "whole numbers"),
    ],
)
def test_what_is_no_family_is_refused(sets: np.ndarray, multiples: np.ndarray | None, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        Family(NAMES, FACTORS, sets, multiples)


def test_names_and_factors_go_together() -> None:
    with pytest.raises(WorkloadError, match="one factor per attribute"):
        Family(("a", "b"), (Identity(2),), np.array([[0]]))
    with pytest.raises(WorkloadError, match="named once"):
        Family(("a", "a"), (Identity(2), Total(2)), np.array([[0]]))


def test_tables_beyond_63_bits_are_refused() -> None:
    names = tuple(f"a{i}" for i in range(8))
    family = Family(names, (Identity(1000),) * 8, np.arange(8)[None])
    with pytest.raises(WorkloadError, match="63 bits"):
        _ = family.rows
