"""Disjunctions, conjunctions and parities against records counted one by one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import WorkloadError

Builder = Callable[[int], sf.Workload]
MEANINGS: dict[str, tuple[Builder, Callable[[tuple[bool, ...]], float]]] = {
    "disjunctions": (sf.disjunctions, lambda chosen: float(any(chosen))),
    "conjunctions": (sf.conjunctions, lambda chosen: float(all(chosen))),
    "parities": (sf.parities, lambda chosen: (-1.0) ** sum(chosen)),
}
KINDS = pytest.mark.parametrize("kind", list(MEANINGS))


@KINDS
@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_every_subset_of_every_record(kind: str, d: int) -> None:
    build, meaning = MEANINGS[kind]
    work = build(d)
    assert work.shape == (2**d, 2**d)
    assert list(work.parts) == [kind]
    records = list(itertools.product((False, True), repeat=d))
    expected = [
        [meaning(tuple(itertools.compress(record, chosen))) for record in records]
        for chosen in itertools.product((False, True), repeat=d)
    ]
    assert np.array_equal(work.operator.dense(), expected)
    counts = np.arange(2**d) ** 2
    assert np.array_equal(work.answer(counts), np.array(expected) @ counts)


def test_labels_name_the_attributes() -> None:
    assert sf.disjunctions(2).labels() == ["nothing", "x2", "x1", "x1 or x2"]
    assert sf.conjunctions(2).labels() == ["total", "x2", "x1", "x1, x2"]
    assert sf.parities(2).labels() == ["total", "x2", "x1", "x1, x2"]


@pytest.mark.parametrize(
    ("work", "rmse"),
    [
        (sf.disjunctions(3), 1.468),
        (sf.disjunctions(4), 1.814),
        (sf.disjunctions(5), 2.167),
        (sf.conjunctions(4), 1.714),
        (sf.parities(4), 4.0),
    ],
    ids=["disjunctions 3", "disjunctions 4", "disjunctions 5", "conjunctions 4", "parities 4"],
)
def test_constants_of_the_literature(work: sf.Workload, rmse: float) -> None:
    found = sf.plan(work, sf.gdp(1), neighbours="add-remove", mechanism="factorization")
    assert found.rmse == pytest.approx(rmse, abs=6e-4)


def test_nonempty_disjunctions_are_a_slice() -> None:
    rows = np.asarray(sf.disjunctions(6).operator.dense())[1:]
    assert sf.factorization(rows).upper_bound == pytest.approx(2.560, abs=1e-3)


def test_parities_have_orthogonal_rows() -> None:
    dense = np.asarray(sf.parities(4).operator.dense())
    assert np.array_equal(dense @ dense.T, 16 * np.eye(16))


def test_wide_products_stay_structured() -> None:
    work = sf.conjunctions(20)
    assert work.shape == (2**20, 2**20)
    x = np.zeros(2**20)
    x[-1] = 1.0
    assert work.answer(x).sum() == math.ldexp(1, 20)


@KINDS
@pytest.mark.parametrize("d", [0, -1, True, 2.0, "3", 64])
def test_refusals(kind: str, d: object) -> None:
    with pytest.raises(WorkloadError, match="number of binary attributes"):
        MEANINGS[kind][0](d)  # type: ignore[arg-type]
