"""Answers about two-valued attributes and their matrix of parities, there and back; the error of what is projected."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

import sfumato as sf
from sfumato.errors import InvalidInput, NotAnswerable
from sfumato.postprocess.correlation import nearest_correlation
from sfumato.postprocess.parities import parity_answers, parity_matrix

Floats = NDArray[np.float64]

DIFFERENCE = np.array([[-1, 1]])
BOTH = np.array([[1, 1], [1, -1]])
FIRST = np.array([[1, 0]])


def domain(d: int) -> sf.Domain:
    return sf.Domain({f"a{i}": sf.Booleans() for i in range(d)})


def table(d: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], Floats]:
    """Counts over 2^d cells, and their parities: y is 1 in an attribute's second cell."""
    counts = rng.integers(0, 9, 2**d)
    y = np.array([[1, *(2 * bit - 1 for bit in cell)] for cell in itertools.product((0, 1), repeat=d)], dtype=float)
    return counts, (y.T * counts) @ y / counts.sum()


def asked(d: int) -> dict[str, sf.Workload]:
    whole = domain(d)
    return {
        "pairs": sf.marginals(whole, order=2),
        "up to two": sf.marginals(whole, upto=2, weights={1: 3}),
        "differences": sf.marginals(whole, upto=2, factors=dict.fromkeys(whole.names, DIFFERENCE)),
        "hadamard": sf.marginals(whole, order=2, factors=dict.fromkeys(whole.names, BOTH)),
        "single cells": sf.marginals(whole, order=1, factors=dict.fromkeys(whole.names, FIRST)),
        "mixed": sf.marginals(whole, order=2, factors={"a0": DIFFERENCE, "a1": BOTH}),
        "few": sf.stack(sf.identity(whole, "a2", "a0"), sf.total(whole), sf.marginals(whole, order=1)),
    }


@pytest.mark.parametrize("name", list(asked(3)))
def test_answers_become_parities_and_parities_answers(name: str) -> None:
    rng = np.random.default_rng(7)
    work = asked(4)[name]
    counts, truth = table(4, rng)
    total = int(counts.sum())
    answers = work.answer(counts)
    np.testing.assert_allclose(parity_answers(work, truth, total), answers, rtol=1e-12)
    matrix, weight = parity_matrix(work, answers, total)
    known = weight > 0
    np.testing.assert_allclose(matrix[known], truth[known], rtol=1e-12)
    assert np.array_equal(weight, weight.T)
    assert not np.diag(weight).any()


@pytest.mark.parametrize("name", list(asked(3)))
def test_distances_between_answers_are_distances_between_parities(name: str) -> None:
    rng = np.random.default_rng(8)
    work, total = asked(4)[name], 70.5
    noisy = rng.normal(10, 5, work.shape[0])
    per_block = [rng.uniform(0.5, 2) * np.ones(q.rows) for q in work.blocks]
    for variances in (None, np.concatenate(per_block)):
        matrix, weight = parity_matrix(work, noisy, total, variances)
        left = []
        for _ in range(3):
            other = rng.uniform(-1, 1, (5, 5))
            other = (other + other.T) / 2
            away = noisy - parity_answers(work, other, total)
            near = 0.5 * np.sum(weight * (other - matrix) ** 2)
            left.append(np.sum(away**2 / (1 if variances is None else variances)) - near)
        np.testing.assert_allclose(left, left[0], rtol=1e-9, atol=1e-8)


def test_the_tables_of_a_release_come_nearer() -> None:
    rng = np.random.default_rng(10)
    d, n = 8, 60
    x = rng.random((n, d)) < rng.uniform(0.05, 0.3, d)
    counts = np.zeros(2**d, dtype=np.int64)
    np.add.at(counts, x @ (2 ** np.arange(d - 1, -1, -1)), 1)
    work = sf.marginals(domain(d), order=2)
    truth = work.answer(counts)
    noisy = truth + rng.normal(0, 15, len(truth))
    matrix, weight = parity_matrix(work, noisy, n)
    for local in (False, True):
        found = nearest_correlation(matrix, weight, local=local)
        projected = parity_answers(work, found.matrix, n)
        assert np.linalg.norm(projected - truth) < 0.6 * np.linalg.norm(noisy - truth)
        assert not local or projected.min() > -1e-9 * n


MANY = sf.Domain({"a": sf.Booleans(), "b": sf.Booleans(), "c": 3})


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (sf.marginals(domain(3), order=3), "more than two attributes"),
        (sf.marginals(MANY, order=1), "3 cells"),
        (sf.conjunctions(2), "mix parities"),
        (sf.queries(np.eye(8), domain(3)), "a factor for each"),
    ],
    ids=["three", "cells", "mixed", "joint"],
)
def test_workloads_without_a_matrix_of_parities(work: sf.Workload, words: str) -> None:
    with pytest.raises(NotAnswerable, match=words):
        parity_matrix(work, np.zeros(work.shape[0]), 10)


def test_refusals() -> None:
    work = sf.marginals(domain(2), order=2)
    for answers, total, variances, words in (
        (np.zeros(3), 10, None, "shape"),
        (np.full(4, math.nan), 10, None, "finite"),
        (np.zeros(4), 0, None, "positive number"),
        (np.zeros(4), True, None, "number of records"),
        (np.zeros(4), 10, [1, 1, 1, 2], "alike"),
        (np.zeros(4), 10, [1, 1, 1, 0], "positive"),
    ):
        with pytest.raises(InvalidInput, match=words):
            parity_matrix(work, answers, total, variances)
    with pytest.raises(InvalidInput, match="shape"):
        parity_answers(work, np.eye(4), 10)


@pytest.mark.parametrize("sigma", [0.05, 2.0])
def test_the_bound_holds_on_average(sigma: float) -> None:
    rng = np.random.default_rng(12)
    size, errors = 25, []
    pairs = np.triu_indices(size, 1)
    for _ in range(10):
        y = np.sign(rng.standard_normal((40, size)))
        truth = y.T @ y / 40
        noise = np.triu(sigma * rng.standard_normal((size, size)), 1)
        errors.append(np.mean((nearest_correlation(truth + noise + noise.T).matrix - truth)[pairs] ** 2))
    # the expected squared error is at most E max over Y of <noise, Y> [NTZ13], and that at most sigma D^1.5
    bound = min(sigma, math.sqrt(2 * sigma * math.sqrt(size) / (size - 1)))
    assert np.mean(errors) ** 0.5 < bound <= sigma
    assert sigma < 1 or bound < 0.6 * sigma
