"""Workloads as values: products in any order, stacks, weights, labels, and blocks made by hand."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato._util.codec import decode_value, encode_value, value_fingerprint
from sfumato.domain import Domain, Integers
from sfumato.errors import InvalidInput, WorkloadError
from sfumato.operators import Block, Dense, Identity, Kronecker, LinearOperator, Prefix, Scaled, Total
from sfumato.workloads import (
    QueryBlock,
    Workload,
    identity,
    marginals,
    predicates,
    prefix,
    queries,
    ranges,
    sums,
    total,
)
from sfumato.workloads.core import block_on_domain, exact_weight
from support.operators import simple, written_out

DOMAIN = Domain({"a": 3, "b": 2, "c": 4})
SIZES = dict(zip(DOMAIN.names, DOMAIN.shape, strict=True))


def rows_of(block: Block) -> Any:
    """The rows of a block over the whole domain, by definition: products of entries, other attributes summed out."""
    matrices = [written_out(f) for f in block.factors]
    columns: list[Any] = []
    for cell in itertools.product(*map(range, DOMAIN.shape)):
        at = dict(zip(DOMAIN.names, cell, strict=True))
        column = [1]
        for group, matrix in zip(block.groups, matrices, strict=True):
            place = 0
            for name in group:
                place = place * SIZES[name] + at[name]
            column = [p * v for p in column for v in matrix[:, place].tolist()]
        columns.append(np.array(column, dtype=object))
    return np.stack(columns, axis=1)


@st.composite
def blocks(draw: st.DrawFn, names: tuple[str, ...] = DOMAIN.names) -> Block:
    """Any block: attributes in any order, some joined, some left out, perhaps a group without attributes."""
    order = draw(st.permutations(names))[: draw(st.integers(0, len(names)))]
    cut = draw(st.integers(0, len(order)))
    groups = [tuple(order[:cut])] if cut else []
    groups += [(n,) for n in order[cut:]]
    factors = [draw(simple(math.prod(SIZES[n] for n in g), st.integers(-3, 3))) for g in groups]
    if draw(st.booleans()):
        groups.insert(0, ())
        factors.insert(0, Scaled(Identity(1), 3))
    return Block(tuple(groups), tuple(factors))


@settings(deadline=None)
@given(st.lists(blocks(), min_size=1, max_size=3), st.data())
def test_answers_are_those_of_the_rows(given_blocks: list[Block], data: st.DataObject) -> None:
    """Mutant: a block whose attributes stand in another order than the domain's, answered in the domain's."""
    work = Workload(DOMAIN, tuple(QueryBlock(f"part {i}", b) for i, b in enumerate(given_blocks)))
    rows = np.concatenate([rows_of(b) for b in given_blocks])
    counts = np.array(data.draw(st.lists(st.integers(0, 99), min_size=DOMAIN.size, max_size=DOMAIN.size)))
    wanted = (rows @ counts.astype(object)).tolist()
    assert work.answer(counts).tolist() == wanted
    assert work.answer(counts.reshape(DOMAIN.shape)).tolist() == wanted
    assert work.operator.dense().tolist() == rows.tolist()
    assert len(work.labels()) == len(work) == len(rows)
    assert np.array_equal(work.operator.gram().dense(), rows.T @ rows)
    assert [len(w) for w in work.parts.values()] == [len(rows_of(b)) for b in given_blocks]
    back = decode_value(*encode_value(work))
    assert value_fingerprint(back) == value_fingerprint(work)
    assert back.answer(counts).tolist() == wanted


@settings(deadline=None)
@given(blocks(("a", "c")), blocks(("b",)))
def test_products_in_either_order_are_one(left: Block, right: Block) -> None:
    """Mutant: rows in the order in which the product was written, labels in the domain's."""
    first, second = (Workload(DOMAIN, (QueryBlock("p", b),)) for b in (left, right))
    one, other = first * second, second * first
    counts = np.arange(DOMAIN.size)
    groups = [g for g in one.blocks[0].block.groups if g]
    assert [g[0] for g in groups] == sorted(g[0] for g in groups)
    assert one.answer(counts).tolist() == (rows_of(one.blocks[0].block) @ counts).tolist()
    if not (() in left.groups and () in right.groups):
        assert one.answer(counts).tolist() == other.answer(counts).tolist()
        assert one.labels() == other.labels()
    assert len(one) == len(first) * len(second)


def test_products_multiply_weights_and_keep_labels() -> None:
    left = prefix(DOMAIN, "c").named("left", 3)
    right = (identity(DOMAIN, "a") + total(DOMAIN)).named("right", "1/2")
    work = left * right
    assert work.weights == {"left x right": Fraction(3, 2)}
    assert work.labels()[:3] == ["a = 0, c up to 0", "a = 0, c up to 1", "a = 0, c up to 2"]
    assert work.labels()[-1] == "c up to 3"
    own = queries(np.eye(2), DOMAIN, "b", labels=["no", "yes"]) * left
    assert own.labels()[:2] == ["no, c up to 0", "no, c up to 1"]
    assert (left.named("x") * right.named("x")).weights == {"x": Fraction(3, 2)}
    assert (total(DOMAIN) * total(DOMAIN)).labels() == ["total"]
    three = identity(DOMAIN, "c") * predicates(DOMAIN, ["b == 1"]) * ranges(DOMAIN, "a")
    assert three.labels()[0] == "a from 0 to 0, b == 1, c = 0"


def test_products_that_do_not_exist_are_refused() -> None:
    with pytest.raises(WorkloadError, match="disjoint"):
        prefix(DOMAIN, "a") * identity(DOMAIN, "a", "b")
    with pytest.raises(WorkloadError, match="sums"):
        sums(DOMAIN, "a") * sums(DOMAIN, "b")
    other = Domain({"a": 3, "b": 2, "c": Integers(1, 4)})
    turned = Domain({"b": 2, "a": 3, "c": 4})
    for domain in (other, turned):
        with pytest.raises(WorkloadError, match="different domains"):
            prefix(DOMAIN, "a") * prefix(domain, "b")
        with pytest.raises(WorkloadError, match="different domains"):
            prefix(DOMAIN, "a") + prefix(domain, "b")
    for bad in (3, None, "x"):
        with pytest.raises(TypeError):
            prefix(DOMAIN, "a") * bad  # type: ignore[operator]
        with pytest.raises(TypeError):
            prefix(DOMAIN, "a") + bad  # type: ignore[operator]


def test_units() -> None:
    work = sums(DOMAIN, "a", by="b") + identity(DOMAIN, "c")
    assert work.units == ("a", "records")
    assert (identity(DOMAIN, "c") * sums(DOMAIN, "a")).units == ("a",)


@pytest.mark.parametrize(
    ("given_weight", "exact"),
    [
        (1, Fraction(1)),
        (0.1, Fraction(1, 10)),
        (np.float64(0.1), Fraction(1, 10)),
        ("0.1", Fraction(1, 10)),
        ("1/3", Fraction(1, 3)),
        ("1e-3", Fraction(1, 1000)),
        (Decimal("2.50"), Fraction(5, 2)),
        (Fraction(2, 7), Fraction(2, 7)),
        (10**100, Fraction(10**100)),
    ],
)
def test_weights_are_exact(given_weight: Any, exact: Fraction) -> None:
    assert exact_weight(given_weight) == exact
    assert QueryBlock("p", Block((), ()), given_weight).weight == exact
    assert total(DOMAIN).named("p", given_weight).weights == {"p": exact}


@pytest.mark.parametrize(
    "bad",
    [
        0,
        -1,
        True,
        False,
        np.True_,
        None,
        math.nan,
        math.inf,
        "",
        "x",
        "nan",
        "1/0",
        "0",
        "-1",
        [1],
        1j,
        10**101,
        "1e999999999",
        "1e-999999999",
        Decimal("1e999999999"),
        Decimal("NaN"),
        "9" * 5000,
        1e-300,
    ],
    ids=lambda v: repr(v)[:20] if not isinstance(v, int) else str(v)[:5],
)
def test_weights_that_are_none_are_refused(bad: Any) -> None:
    """Mutant: a long exponent written out in full, which takes all memory."""
    with pytest.raises(WorkloadError):
        exact_weight(bad)


def test_parts_by_hand() -> None:
    block = Block((("a",),), (Identity(3),))
    for bad in (
        lambda: QueryBlock("", block),
        lambda: QueryBlock("a\u200b", block),
        lambda: QueryBlock("p", block, 0),  # type: ignore[arg-type]
        lambda: QueryBlock("p", block, labels=(("x",),)),
        lambda: QueryBlock("p", block, labels=(None, None)),
        lambda: QueryBlock("p", block, labels=(("x", "y", "z"), None)),
        lambda: Workload(DOMAIN, ()),
        lambda: Workload(DOMAIN, (QueryBlock("p", Block((("d",),), (Identity(3),))),)),
        lambda: Workload(DOMAIN, (QueryBlock("p", Block((("b",),), (Identity(3),))),)),
        lambda: Workload(DOMAIN, (QueryBlock("p", Block((("a", "b"),), (Identity(3),))),)),
        lambda: Workload(DOMAIN, (QueryBlock("p", Block(((),), (Identity(3),))),)),
    ):
        with pytest.raises(InvalidInput):
            bad()
    # names of parts are made of names of attributes, which may be long
    long = Domain({"x" * 256: 2, "y" * 256: 2, "z" * 256: 2})
    part = prefix(long, "x" * 256, by=["y" * 256, "z" * 256])
    assert len(next(iter(part.parts))) > 768


def test_labels_of_every_kind() -> None:
    joined = queries(Identity(24), DOMAIN)
    assert joined.labels()[5] == "a = 0, b = 1, c = 1"
    by_hand = Workload(
        DOMAIN,
        (
            QueryBlock("p", Block(((), ("a",)), (Dense([[1], [2]]), Total(3)))),
            QueryBlock("q", Block((("a",),), (Total(3),))),
            QueryBlock("r", Block((("b",),), (Dense([[1, 2]]),))),
        ),
    )
    assert by_hand.labels() == ["total query 0", "total query 1", "total", "b query 0"]
    assert by_hand.block_labels(by_hand.blocks[0]) == ["total query 0", "total query 1"]


def test_sizes_beyond_any_memory() -> None:
    """Mutants: len() of more queries than fit a machine word inside repr; a dense form nobody asked for."""
    domain = Domain({f"a{i}": 10**6 for i in range(20)})
    work = identity(domain)
    assert work.shape == (10**120, 10**120)
    assert "about 10^120 queries" in repr(work)
    with pytest.raises(WorkloadError, match="too many"):
        work.labels()
    with pytest.raises(WorkloadError, match="about 10"):
        work.answer([1, 2, 3])
    assert isinstance(work.operator, LinearOperator)
    pairs = marginals(domain, 2)
    assert pairs.shape[0] == 190 * 10**12
    assert str(190 * 10**12)[:3] in repr(pairs).replace(",", "")
    with pytest.raises(WorkloadError, match="dense"):
        pairs.operator.gram().dense()


@pytest.mark.parametrize(
    "counts",
    [np.zeros(23), np.zeros((3, 2)), np.zeros((2, 3, 4)), np.zeros((24, 1)), [[1], [2, 3]], "x", None, [None] * 24, 3],
    ids=lambda v: str(v)[:20],
)
def test_counts_of_another_shape_are_refused(counts: Any) -> None:
    with pytest.raises(WorkloadError):
        identity(DOMAIN).answer(counts)


def test_structure_is_kept() -> None:
    """Mutant: a product of factors over single attributes that is answered through joined tables."""
    operator = block_on_domain(DOMAIN, Block((("a",), ("c",)), (Prefix(3), Identity(4))))
    assert operator == Kronecker((Prefix(3), Total(2), Identity(4)))
    assert block_on_domain(Domain({"a": 3}), Block((("a",),), (Prefix(3),))) == Prefix(3)
    assert block_on_domain(Domain({"a": 3}), Block((), ())) == Total(3)
    assert repr(prefix(DOMAIN, "a")) == "Workload(3 queries over 24 cells; prefix a: 3)"
