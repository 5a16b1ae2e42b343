"""Counts of marginals agree with brute force, however they are packed and wherever the records lie."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sfumato.curator import counting
from sfumato.curator.counting import ColumnCounts, TableCounts, TensorCounts
from sfumato.curator.sources import open_source
from sfumato.domain import Bins, Booleans, Categories, Domain, Integers
from sfumato.errors import DomainError, PlanError, SourceError

Sets = list[tuple[str, ...]]


def in_columns(domain: Domain, records: NDArray[np.int64]) -> ColumnCounts:
    kinds = [np.uint8 if s <= 2**8 else np.uint16 if s <= 2**16 else np.uint32 for s in domain.shape]
    return ColumnCounts(domain, len(records), tuple(records[:, i].astype(k) for i, k in enumerate(kinds)))


def in_table(domain: Domain, records: NDArray[np.int64]) -> TableCounts:
    def group(axes: tuple[int, ...]) -> list[NDArray[np.int64]]:
        cells, counts = np.unique(records[:, axes], axis=0, return_counts=True)
        return [*cells.T, counts]

    return TableCounts(domain, len(records), group)


def brute(domain: Domain, records: NDArray[np.int64], names: tuple[str, ...]) -> NDArray[np.int64]:
    table = np.zeros([domain.attributes[n].size for n in names], dtype=np.int64)
    for record in records:
        table[tuple(record[domain.axis(n)] for n in names)] += 1
    return table


@st.composite
def problems(draw: st.DrawFn) -> tuple[Domain, NDArray[np.int64], Sets]:
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 5, 300, 70_000]), min_size=1, max_size=5))
    domain = Domain({f"a{i}": s for i, s in enumerate(shape)})
    record = st.tuples(*(st.one_of(st.integers(0, s - 1), st.just(s - 1)) for s in shape))
    records = np.array(draw(st.lists(record, max_size=60)), dtype=np.int64).reshape(-1, len(shape))
    sets = st.lists(st.sampled_from(domain.names), unique=True, max_size=3).map(tuple)
    small = sets.filter(lambda s: math.prod(domain.sizes(s)) <= 10**6)
    return domain, records, draw(st.lists(small, max_size=8))


@settings(max_examples=60, deadline=None)
@given(problems(), st.sampled_from([in_columns, in_table]), st.sampled_from([1, 7, 131_072]))
def test_counts_agree_with_brute_force(
    problem: tuple[Domain, NDArray[np.int64], Sets], store: object, chunk: int
) -> None:
    domain, records, sets = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "_CHUNK_ROWS", chunk)
        found = store(domain, records).count(sets)
    assert set(found) == set(sets)
    for names in sets:
        assert found[names].dtype == np.int64
        np.testing.assert_array_equal(found[names], brute(domain, records, names))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 2**32 - 1))
def test_a_tensor_is_summed(shape: list[int], seed: int) -> None:
    domain = Domain({f"a{i}": s for i, s in enumerate(shape)})
    tensor = np.random.default_rng(seed).integers(0, 9, shape)
    sets = [s for k in range(len(shape) + 1) for s in itertools.permutations(domain.names, k)]
    for names, table in TensorCounts(domain, int(tensor.sum()), tensor).count(sets).items():
        axes = [domain.axis(n) for n in names]
        others = tuple(i for i in range(len(shape)) if i not in axes)
        np.testing.assert_array_equal(table, tensor.sum(axis=others).transpose(np.argsort(np.argsort(axes))))


def check_packing(shape: list[int], sets: list[tuple[int, ...]], effort: int) -> int:
    """Every set is answered once, by a block that holds it and is small unless it was asked; the number of blocks."""
    blocks = list(counting._pack(shape, sets, effort))
    for block, members in blocks:
        assert block == tuple(sorted(set(block)))
        assert block in members or math.prod(shape[a] for a in block) <= counting._MAX_BLOCK_CELLS
        assert members
        assert all(set(member) <= set(block) for member in members)
    assert sorted(m for _, members in blocks for m in members) == sorted(sets)
    return len(blocks)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=70),
    st.integers(0, 10**9),
    st.data(),
)
def test_packing_answers_every_set_once(shape: list[int], effort: int, data: st.DataObject) -> None:
    axis = st.integers(0, len(shape) - 1)
    axes = st.frozensets(axis, max_size=3).map(lambda s: tuple(sorted(s)))
    check_packing(shape, data.draw(st.lists(axes, unique=True, max_size=30)), effort)


@pytest.mark.parametrize(
    ("size", "rows", "most"), [(8, 10**6, 80), (8, 10**9, 40), (20, 10**6, 160), (70, 10**9, 455), (8, 1000, 455)]
)
def test_packing_saves_passes_over_the_records(size: int, rows: int, most: int) -> None:
    triples = list(itertools.combinations(range(15), 3))
    assert len(triples) == 455
    assert check_packing([size] * 15, triples, rows) <= most


def test_packing_more_attributes_than_bits_in_a_word() -> None:
    pairs = list(itertools.combinations(range(60, 75), 2))
    assert check_packing([3] * 80, pairs, 10**6) < 10
    assert check_packing([3] * 80, [(63, 64), (64, 65), (63,), (65,)], 10**6) == 1


def test_order_is_as_asked_and_sets_may_repeat() -> None:
    domain = Domain({"a": 2, "b": 3})
    counts = in_columns(domain, np.array([[0, 2], [1, 1], [1, 1]]))
    found = counts.count([("b", "a"), ("a", "b"), ("a", "b")])
    assert found[("b", "a")].tolist() == [[0, 0], [0, 2], [1, 0]]
    assert found[("a", "b")].tolist() == [[0, 0, 1], [0, 2, 0]]
    assert found[("b", "a")].flags.c_contiguous


def test_no_records_and_no_sets() -> None:
    domain = Domain({"a": 2, "b": 3})
    empty = in_columns(domain, np.zeros((0, 2), dtype=np.int64))
    assert empty.count([]) == {}
    assert empty.count([("a", "b"), ()])[("a", "b")].tolist() == [[0, 0, 0], [0, 0, 0]]
    assert int(empty.count([()])[()]) == 0
    assert empty.count([()])[()].shape == ()


def test_refusals_come_before_counting() -> None:
    domain = Domain({"a": 10_000, "b": 10_000})

    def never(axes: tuple[int, ...]) -> list[NDArray[np.int64]]:
        raise AssertionError(axes)

    counts = TableCounts(domain, 5, never)
    with pytest.raises(PlanError, match="the table of a, b has 100,000,000 cells; at most 50,000,000"):
        counts.count([("a",), ("a", "b")])
    with pytest.raises(DomainError, match="no attribute is called 'c'"):
        counts.count([("c",)])
    with pytest.raises(DomainError, match="named twice"):
        counts.count([("a", "a")])
    with pytest.raises(PlanError, match="at most"):
        counting.check_countable(domain, [("b", "a")])


@pytest.mark.parametrize("change", [1, -1])
def test_a_table_that_does_not_add_up_is_refused_without_numbers(change: int) -> None:
    domain = Domain({"a": 4})
    group = lambda axes: [np.array([1, 2]), np.array([3, 4321 + change])]  # noqa: E731
    with pytest.raises(SourceError, match="the table of a does not add up to the number of records") as refusal:
        TableCounts(domain, 4324, group).count([("a",)])
    assert "43" not in str(refusal.value)


def test_private_numbers_do_not_print() -> None:
    domain = Domain({"a": 4})
    records = np.full((4321, 1), 3)
    for counts in (
        in_columns(domain, records),
        in_table(domain, records),
        TensorCounts(domain, 4321, np.array([4321, 0, 0, 0])),
    ):
        assert "4321" not in repr(counts)
        assert "4,321" not in repr(counts)


def test_in_duckdb_and_in_memory_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    both = {"outside": "drop", "missing": "other"}
    domain = Domain(
        {
            "a": Integers(0, 299, **both),
            "b": Bins([0, 1, 2], **both),
            "c": Categories(["x", "y"], **both),
            "d": Booleans(**both),
        }
    )
    rng = np.random.default_rng(5)
    table = pa.table(
        {
            "a": rng.integers(-5, 310, 5000),
            "b": rng.normal(1, 1, 5000),
            "c": rng.choice(["x", "y", "z"], 5000),
            "d": rng.integers(0, 2, 5000),
        }
    )
    sets = [s for k in range(4) for s in itertools.combinations(domain.names, k)]
    memory = open_source(table, domain)
    monkeypatch.setattr("sfumato.curator.sources.MEMORY_LIMIT", 0)
    database = open_source(table, domain)
    assert isinstance(memory, ColumnCounts)
    assert isinstance(database, TableCounts)
    assert memory.rows == database.rows < 5000
    expected = memory.count(sets)
    for names, found in database.count(sets).items():
        np.testing.assert_array_equal(found, expected[names])
