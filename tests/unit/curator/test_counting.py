"""Counts of marginals agree with brute force, however they are packed and wherever the records lie."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sfumato.curator.rows import counting, loading
from sfumato.curator.rows import counting as summing
from sfumato.curator.rows.counting import (
    ColumnCounts,
    Counts,
    TensorCounts,
    check_countable,
    cluster_blocks,
)
from sfumato.curator.rows.loading import FileCounts
from sfumato.curator.rows.sources import open_source
from sfumato.domain import Bins, Booleans, Categories, Domain, Integers
from sfumato.errors import DomainError, PlanError, SourceError
from sfumato.plans.packing import pack_tables

Families = list[NDArray[np.int32]]
IntArray = NDArray[np.int64]


def plain(shape: Sequence[int]) -> Domain:
    return Domain({f"a{i}": s for i, s in enumerate(shape)})


def in_columns(domain: Domain, records: IntArray, packing: Any = pack_tables) -> ColumnCounts:
    kinds = [np.uint8 if s <= 2**8 else np.uint16 if s <= 2**16 else np.uint32 for s in domain.shape]
    return ColumnCounts(
        domain.grid, len(records), (tuple(records[:, i].astype(k) for i, k in enumerate(kinds)),), packing=packing
    )


def in_files(domain: Domain, records: IntArray, packing: Any = pack_tables) -> FileCounts:
    (columns,) = in_columns(domain, records).chunks
    step = loading._READ_ROWS  # pyright: ignore[reportPrivateUsage]
    chunks = [[c[start : start + step] for c in columns] for start in range(0, len(records), step)]
    return FileCounts(domain.grid, len(records), chunks, packing=packing)


def in_tensor(domain: Domain, records: IntArray) -> TensorCounts:
    flat = np.ravel_multi_index(tuple(records.T), domain.shape)
    return TensorCounts(domain, len(records), np.bincount(flat, minlength=domain.size).reshape(domain.shape))


def family(sets: Sequence[Sequence[int]], order: int) -> NDArray[np.int32]:
    return np.array(sets, dtype=np.int32).reshape(len(sets), order)


def combinations(count: int, order: int) -> NDArray[np.int32]:
    return family(list(itertools.combinations(range(count), order)), order)


def brute(shape: Sequence[int], records: IntArray, axes: Sequence[int]) -> IntArray:
    sizes = [shape[a] for a in axes]
    if not axes:
        return np.array(len(records))
    edges = [np.arange(n + 1) - 0.5 for n in sizes]
    return np.histogramdd(records[:, list(axes)], edges)[0].astype(np.int64)


def check_stream(counts: Counts, domain: Domain, records: IntArray, sets: Families) -> None:
    """Every set once, with the counts of brute force, in batches that are the receiver's to keep."""
    batches = list(counts.stream(sets))
    seen = Counter((f, p) for f, positions, _ in batches for p in positions.tolist())
    assert seen == Counter((f, p) for f, one in enumerate(sets) for p in range(len(one)))
    for f, positions, tables in batches:
        assert tables.dtype == np.int64
        assert tables.size <= 2**20 or len(tables) == 1
        assert len(tables) == len(positions)
        for p, table in zip(positions.tolist(), tables, strict=True):
            np.testing.assert_array_equal(table, brute(domain.shape, records, sets[f][p].tolist()))
    for i, (_, _, one) in enumerate(batches):
        assert one.flags.writeable
        assert not any(np.shares_memory(one, other) for _, _, other in batches[:i])


@st.composite
def problems(draw: st.DrawFn, sizes: Sequence[int], attributes: int) -> tuple[Domain, IntArray, Families]:
    shape = draw(st.lists(st.sampled_from(sizes), min_size=1, max_size=attributes))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    records = rng.integers(0, shape, (draw(st.integers(0, 60)), len(shape)))
    if draw(st.booleans()):
        records = np.where(rng.random(records.shape) < 0.5, np.array(shape) - 1, records)
    axes = st.sets(st.integers(0, len(shape) - 1), max_size=4).map(lambda s: tuple(sorted(s)))
    small = axes.filter(lambda s: math.prod(shape[a] for a in s) <= 10**5)
    chosen = draw(st.lists(st.lists(small, unique=True, max_size=12), max_size=3))
    by_order = [[s for s in one if len(s) == k] for one in chosen for k in {len(s) for s in one}]
    return plain(shape), records, [family(f, len(f[0])) for f in by_order]


@settings(max_examples=150, deadline=None)
@given(
    problems([1, 2, 3, 5, 300, 70_000], 6),
    st.sampled_from([in_columns, in_files]),
    st.sampled_from([(1, 1), (7, 20), (2**16, 2**18)]),
    st.sampled_from([0, 100, 10**9]),
)
def test_streamed_records_agree_with_brute_force(
    problem: tuple[Domain, IntArray, Families], store: Any, chunks: tuple[int, int], effort: int
) -> None:
    """Whatever number of records the packing is made for."""
    domain, records, sets = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "_CHUNK_ROWS", chunks[0])
        patch.setattr(loading, "_READ_ROWS", chunks[1])
        packed = store(domain, records, lambda shape, sets, rows: pack_tables(shape, sets, effort))
        check_stream(packed, domain, records, sets)


@settings(max_examples=80, deadline=None)
@given(problems([1, 2, 3, 5], 6), st.booleans())
def test_a_streamed_tensor_agrees_with_brute_force(problem: tuple[Domain, IntArray, Families], whole: bool) -> None:
    domain, records, sets = problem
    sets += [combinations(len(domain.shape), len(domain.shape))] * whole
    check_stream(in_tensor(domain, records), domain, records, sets)


@pytest.mark.parametrize("store", [in_columns, in_files])
@pytest.mark.parametrize(
    ("shape", "rows", "orders"),
    [
        ([3] * 24, 20_000, (3, 2, 1, 0)),
        ([3] * 24, 10, (2, 3)),
        ([2] * 30, 5_000, (3, 2, 1)),
        ([2, 7, 3, 40, 2, 5, 9, 2, 11, 3, 4, 2], 9_000, (1, 3)),
        ([4] * 70, 3_000, (2, 1, 0)),
        ([2] * 14, 70_000, (5, 0)),
        ([10] * 26, 200, (3,)),
    ],
)
def test_complete_families_are_streamed(store: Any, shape: list[int], rows: int, orders: tuple[int, ...]) -> None:
    domain = plain(shape)
    rng = np.random.default_rng(3)
    records = (rng.random((rows, len(shape))) ** 2 * shape).astype(np.int64)
    sets = [combinations(len(shape), k) for k in orders]
    found = [np.zeros(len(s), dtype=bool) for s in sets]
    for f, positions, tables in store(domain, records).stream(sets):
        assert not found[f][positions].any()
        found[f][positions] = True
        assert tables.size <= 2**20
        assert (tables.reshape(len(tables), -1).sum(axis=1) == rows).all()
        for i in rng.choice(len(positions), size=min(3, len(positions)), replace=False):
            np.testing.assert_array_equal(tables[i], brute(shape, records, sets[f][positions[i]].tolist()))
    assert all(f.all() for f in found)


def test_batches_are_of_a_size_to_work_with() -> None:
    """A hundred attributes, whose tables together would take a gigabyte and a half."""
    domain = plain([10] * 100)
    records = np.random.default_rng(1).integers(0, 10, (50, 100))
    sets = [combinations(100, k) for k in (3, 2, 1, 0)]
    cells = [tables.size for _, _, tables in in_columns(domain, records).stream(sets)]
    assert sum(cells) == 161_700_000 + 495_000 + 1_000 + 1
    assert max(cells) <= 2**20
    assert len(cells) < sum(cells) / 2**17 + 50


def test_tables_of_many_shapes_are_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summing, "_LEAST_CELLS", 2**30)
    monkeypatch.setattr(summing, "_MOST_CELLS", 500)
    domain = plain([2, 3, 4, 5, 6, 7, 8, 9])
    records = np.random.default_rng(1).integers(0, domain.shape, (40, 8))
    held: list[int] = []
    real = summing.Outbox.put

    def put(self: summing.Outbox, *given: Any) -> Any:
        yield from real(self, *given)
        held.append(sum(self._cells.values()))

    monkeypatch.setattr(summing.Outbox, "put", put)
    sets = [combinations(8, k) for k in (3, 2)]
    check_stream(in_columns(domain, records), domain, records, sets)
    assert len(held) == 56 + 28
    assert max(held) <= 500


def test_what_is_held_does_not_swell_a_batch() -> None:
    outbox = summing.Outbox()
    assert list(outbox.put(0, np.array([0]), np.ones((1, 2**16), dtype=np.int64))) == []
    found = list(outbox.put(0, np.arange(1, 17), np.ones((16, 2**16), dtype=np.int64)))
    assert [(f, p.tolist(), t.shape) for f, p, t in [*found, *outbox.rest()]] == [
        (0, [0], (1, 2**16)),
        (0, list(range(1, 17)), (16, 2**16)),
    ]


def test_a_pass_over_the_records_counts_no_more_cells_than_it_may() -> None:
    shape = [3, 5, 7, 40, 60, 2, 90, 11, 30, 200]
    sets = [combinations(10, k) for k in (3, 2, 1, 0)]
    packed = cluster_blocks(shape, sets, *pack_tables(shape, sets, 500))
    passes = list(counting.counting_passes(packed, 20_000))
    cells = [[len(p.blocks) * math.prod(p.sizes) for p in parts] for parts in passes]
    assert all(
        sum(c) <= 20_000 or (len(c) == 1 and len(parts[0].blocks) == 1) for c, parts in zip(cells, passes, strict=True)
    )
    assert sum(map(sum, cells)) == sum(len(p.blocks) * math.prod(p.sizes) for p in packed)
    assert len(passes) < 2 * sum(map(sum, cells)) / 20_000 + 2


def test_a_tensor_is_not_handed_out_itself() -> None:
    domain = plain([3, 4])
    counts = in_tensor(domain, np.array([[0, 1], [2, 3]]))
    ((_, _, tables),) = counts.stream([combinations(2, 2)])
    tables[...] = 7
    assert int(counts.tensor.sum()) == 2


def test_no_records_and_no_sets() -> None:
    domain = plain([2, 3])
    for store in (in_columns, in_files, in_tensor):
        empty = store(domain, np.zeros((0, 2), dtype=np.int64))
        assert list(empty.stream([])) == []
        assert list(empty.stream([family([], 2), family([], 0)])) == []
        check_stream(empty, domain, np.zeros((0, 2)), [combinations(2, k) for k in (2, 1, 0)])
        assert empty.count([]) == {}
        assert empty.count([("a0", "a1"), ()])[("a0", "a1")].tolist() == [[0, 0, 0], [0, 0, 0]]
        assert empty.count([()])[()].shape == ()


def test_wide_keys_and_wide_sets() -> None:
    """65,536 cells do not fit sixteen bits as a factor; 32 attributes are more than bits of a small word."""
    domain = plain([1, 2**16])
    records = np.array([[0, 2**16 - 1], [0, 5], [0, 5]])
    check_stream(in_columns(domain, records), domain, records, [combinations(2, 2)])
    domain = plain([1] * 30 + [2, 3])
    records = np.random.default_rng(1).integers(0, domain.shape, (20, 32))
    whole = in_columns(domain, records).count([domain.names])[domain.names]
    np.testing.assert_array_equal(whole.reshape(2, 3), brute([2, 3], records[:, 30:], [0, 1]))


def test_count_is_ordered_as_asked_and_sets_may_repeat() -> None:
    domain = Domain({"a": 2, "b": 3})
    records = np.array([[0, 2], [1, 1], [1, 1]])
    for store in (in_columns, in_files, in_tensor):
        found = store(domain, records).count([("b", "a"), ("a", "b"), ("a", "b"), ()])
        assert found[("b", "a")].tolist() == [[0, 0], [0, 2], [1, 0]]
        assert found[("a", "b")].tolist() == [[0, 0, 1], [0, 2, 0]]
        assert found[("b", "a")].flags.c_contiguous
        assert int(found[()]) == 3


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 2**32 - 1))
def test_count_in_every_order(shape: list[int], seed: int) -> None:
    domain = plain(shape)
    tensor = np.random.default_rng(seed).integers(0, 9, shape)
    sets = [s for k in range(len(shape) + 1) for s in itertools.permutations(domain.names, k)]
    for names, table in TensorCounts(domain, int(tensor.sum()), tensor).count(sets).items():
        axes = [domain.axis(n) for n in names]
        others = tuple(i for i in range(len(shape)) if i not in axes)
        np.testing.assert_array_equal(table, tensor.sum(axis=others).transpose(np.argsort(np.argsort(axes))))


def test_refusals_come_before_counting() -> None:
    class Never(list[Sequence[IntArray]]):
        def __iter__(self) -> Iterator[Sequence[IntArray]]:
            raise AssertionError

    domain = Domain({"a": 10_000, "b": 10_000})
    counts = FileCounts(domain.grid, 5, Never())
    with pytest.raises(PlanError, match="the table of a, b has 100,000,000 cells; at most 67,108,864"):
        counts.stream([combinations(2, 1), combinations(2, 2)])
    with pytest.raises(DomainError, match="no attribute is called 'c'"):
        counts.count([("c",)])
    with pytest.raises(DomainError, match="named twice"):
        counts.count([("a", "a")])
    with pytest.raises(PlanError, match="at most"):
        check_countable(domain, [combinations(2, 2)])
    with pytest.raises(PlanError, match="a table of 33 attributes is asked; at most 32"):
        check_countable(plain([1] * 33), [combinations(33, 33)])
    check_countable(domain, [family([], 2), combinations(2, 1), combinations(2, 0)])


@pytest.mark.parametrize("found", [[1, 2, 2], [1, 2, 2, 3, 3]])
def test_a_table_that_does_not_add_up_is_refused_without_numbers(found: list[int]) -> None:
    counts = FileCounts(plain([7]).grid, 4, [[np.array(found, dtype=np.uint8)]])
    with pytest.raises(SourceError, match="the table of a0 does not add up to the number of records") as refusal:
        list(counts.stream([combinations(1, 1)]))
    assert "4" not in str(refusal.value)


@pytest.mark.parametrize("rows", [5, 200_000])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_cells_that_do_not_exist_are_refused_without_numbers(rows: int, order: int) -> None:
    """Also where they fall into the table of the next block, or into none."""
    domain = plain([3, 3, 3])
    columns = tuple(np.full(rows, 27, dtype=np.uint8) for _ in range(3))
    with pytest.raises(SourceError, match="does not add up to the number of records") as refusal:
        list(ColumnCounts(domain.grid, rows, (columns,)).stream([combinations(3, order)]))
    assert "27" not in str(refusal.value)
    assert refusal.value.__context__ is None
    tensor = TensorCounts(domain, rows, np.full((3, 3, 3), 1))
    with pytest.raises(SourceError, match="does not add up"):
        list(tensor.stream([combinations(3, order)]))


def test_private_numbers_do_not_print() -> None:
    domain = plain([4])
    records = np.full((4321, 1), 3)
    for store in (in_columns, in_files, in_tensor):
        assert "4321" not in repr(store(domain, records))
        assert "4,321" not in repr(store(domain, records))


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
    monkeypatch.setattr("sfumato.curator.rows.loading.MEMORY_LIMIT", 0)
    monkeypatch.setattr(loading, "_READ_ROWS", 700)
    database = open_source(table, domain)
    assert isinstance(memory, ColumnCounts)
    assert isinstance(database, FileCounts)
    assert memory.rows == database.rows < 5000
    expected = memory.count(sets)
    for names, found in database.count(sets).items():
        np.testing.assert_array_equal(found, expected[names])
