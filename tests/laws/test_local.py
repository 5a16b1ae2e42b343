"""The local model: the law of a report by exact enumeration of what the device does, and what the server reads off it.

Mutants named were seen to fail.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.local.collecting import answer_reports, report_cells
from sfumato.local.plan import LocalPlan
from sfumato.local.questions import SLOTS, LocalReconstruction, Questions, centred_optimum, truth_share
from sfumato.privacy.amounts import exp_bounds
from sfumato.privacy.local import lie_digits, randomized_response
from support.insecure_bits import ScriptedTestBits

TRUE, LIE = 2**64 - 1, 0
EPSILONS = [Fraction(1, 3), Fraction(1), Fraction(9, 2)]
Linear = tuple[Fraction, Fraction]
"""a E + b, E = e^epsilon; probabilities are over the common E + g - 1."""


def small_plan(labels: int, epsilon: Fraction) -> LocalPlan:
    """Five cells, unlike questions with unlike probabilities."""
    table = np.array([[0, 1, 1, 0, 1], [1, 0, 1, 1, 0], [0, 0, 1, 1, 1], [1, 1, 0, 1, 0], [0, 1, 0, 0, 0]])
    if labels > 2:
        table = (table + np.array([[0, 1, 2, 0, 1]]) * np.array([[0], [1], [1], [2], [1]])) % labels
    questions = Questions.of(table, labels, np.array([0.3, 0.2, 0.2, 0.17, 0.13]))
    return LocalPlan(sf.identity(sf.Domain({"a": 5}), "a"), epsilon, 100, "designed", questions)


def law(plan: LocalPlan, cell: int) -> dict[int, Linear]:
    """The probability of every report: all words of the question at once, each outcome of the coin, each other label.

    How the words of the coin fall is `test_the_coin`'s matter.
    """
    g = plan.questions.labels
    mask = (1 << (g - 2).bit_length()) - 1
    cells = np.full(SLOTS, cell, dtype=np.int64)
    found: defaultdict[int, Linear] = defaultdict(lambda: (Fraction(0), Fraction(0)))
    for coin, other in itertools.product((TRUE, LIE), range(min(mask + 1, g - 1))):
        script = np.concatenate(
            [np.arange(SLOTS, dtype=np.uint64), np.full(SLOTS, coin, np.uint64), np.full(SLOTS, other, np.uint64)]
        )
        bits = ScriptedTestBits(script.tolist())
        reports = report_cells(plan, cells, bits)
        assert bits.overdrawn == 0
        share = Fraction(1, SLOTS * (g - 1))
        for report, times in zip(*np.unique(reports, return_counts=True), strict=True):
            a, b = found[int(report)]
            weight = int(times) * share
            found[int(report)] = (a + weight, b) if coin == TRUE else (a, b + weight * (g - 1))
    return dict(found)


def within(p: Linear, q: Linear, epsilon: Fraction) -> bool | None:
    """Whether p <= E q: None where they are equal as polynomials in E, proved by an enclosure of E else."""
    (a, b), (c, d) = p, q
    terms = (c, d - a, -b)  # c E^2 + (d - a) E - b >= 0
    if not any(terms):
        return None
    low, high = exp_bounds(epsilon, 256)
    least = sum(t * (low if t > 0 else high) ** n for t, n in zip(terms, (2, 1, 0), strict=True))
    most = sum(t * (high if t > 0 else low) ** n for t, n in zip(terms, (2, 1, 0), strict=True))
    assert least > 0 or most < 0
    return least > 0


@pytest.mark.parametrize("labels", [2, 3, 4, 5])
@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
def test_the_law_of_a_report(labels: int, epsilon: Fraction) -> None:
    """All pairs of records, all reports: a ratio of e^epsilon at most, which is attained, and a law that sums to 1.

    Mutants: the question drawn again until its label is not 0; the truth told with e^eps / (1 + e^eps) whatever g;
    a lie that may be the truth; the lie shifted by the label's parity.
    """
    plan = small_plan(labels, epsilon)
    laws = [law(plan, j) for j in range(5)]
    q = plan.questions
    attained = False
    for j, found in enumerate(laws):
        assert set(found) == set(range(plan.outcomes))
        total = [sum(x[i] for x in found.values()) for i in (0, 1)]
        assert total == [1, labels - 1]
        for report, chance in found.items():
            s, c = divmod(report, labels)
            p = Fraction(int(q.counts[s]), SLOTS)
            assert chance == ((p, Fraction(0)) if q.table[s, j] == c else (Fraction(0), p))
    for first, second in itertools.permutations(laws, 2):
        for report in range(plan.outcomes):
            fits = within(first[report], second[report], epsilon)
            assert fits is not False
            attained |= fits is None
    assert attained


@pytest.mark.parametrize("labels", [2, 3, 7, 1000])
@pytest.mark.parametrize("epsilon", [Fraction(1, 1000), *EPSILONS, Fraction(30)], ids=str)
def test_the_coin(labels: int, epsilon: Fraction) -> None:
    """A word below the first 64 digits of (g - 1) / (E + g - 1) is a lie, one above is not, one equal waits for more.

    Mutant: the edge from a float.
    """
    low, high = (Fraction(labels - 1) / (e + labels - 1) for e in reversed(exp_bounds(epsilon, 400)))
    first, second = (int(low * 2**n) for n in (64, 128))
    assert (first, second) == (int(high * 2**64), int(high * 2**128))
    second %= 2**64

    def lied(*coin: int) -> bool:
        bits = ScriptedTestBits(coin)
        return int(randomized_response(np.zeros(1, dtype=np.int64), labels, epsilon, bits)[0]) != 0

    assert lied(max(0, first - 1)) or not first
    assert not lied(first + 1)
    assert not lied(first, second + 1)
    if second:
        assert lied(first, second - 1)
    assert lie_digits(labels, epsilon, 2) == first << 64 | second


def test_no_word_depends_on_the_record() -> None:
    """As many words for a truth as for any other. Mutant: another label drawn by liars alone."""
    for g in (2, 3, 5):
        taken = set[int]()
        for truth, word in itertools.product(range(g), (0, 2**63)):
            bits = ScriptedTestBits([], rest=word)
            randomized_response(np.array([truth]), g, Fraction(1), bits)
            taken.add(bits.overdrawn)
        assert taken == {2}


# ---- what the server reads -------------------------------------------------------------------------------


def random_questions(rng: np.random.Generator, cells: int, labels: int, count: int) -> Questions:
    return Questions.of(rng.integers(0, labels, (count, cells)), labels, rng.random(count) + 0.2)


@pytest.mark.parametrize("labels", [2, 3, 6])
def test_answers_are_unbiased_and_variances_exact(labels: int) -> None:
    """Against the law of every report, enumerated. Mutants: the offset left out; t for t squared; 1/g left out."""
    rng = np.random.default_rng(labels)
    epsilon, cells = 0.8, 6
    q = random_questions(rng, cells, labels, 40)
    queries = rng.standard_normal((9, cells)) + 1.0
    reading = LocalReconstruction(q, queries, epsilon)
    top = math.exp(epsilon)
    said = np.empty((q.outcomes, 9))
    for i in range(q.outcomes):
        tally = np.zeros(q.outcomes, dtype=np.int64)
        tally[i] = 1
        said[i] = reading.answers(tally.reshape(-1, labels))
    for j in range(cells):
        chances = np.ones((len(q.table), labels))
        chances[np.arange(len(q.table)), q.table[:, j]] = top
        chances = (chances * q.weights[:, None] / (top + labels - 1)).reshape(-1)
        assert chances.sum() == pytest.approx(1, rel=1e-12)
        np.testing.assert_allclose(chances @ said, queries[:, j], atol=1e-10)
        exact = chances @ said**2 - queries[:, j] ** 2
        np.testing.assert_allclose(reading.variances(0, 9)[:, j], exact, rtol=1e-9)


def test_least_squares_is_the_least() -> None:
    """No other reconstruction with R G + beta 1ᵀ = F has less noise r G r."""
    rng = np.random.default_rng(3)
    q = random_questions(rng, 5, 2, 12)
    queries = rng.standard_normal((4, 5))
    reading = LocalReconstruction(q, queries, 1.0)
    moment = reading.moment
    best = np.einsum("ij,jk,ik->i", reading.rows, moment, reading.rows)
    for _ in range(200):
        shift = rng.standard_normal(4) * 0.1
        other = (queries - (reading.offset + shift)[:, None]) @ np.linalg.pinv(moment)
        assert (np.einsum("ij,jk,ik->i", other, moment, other) >= best - 1e-9).all()


# ---- the bound -------------------------------------------------------------------------------------------


def worst_variance(channel: np.ndarray, queries: np.ndarray) -> float:
    """The least, over unbiased vectors, of the sum of variances for uniform records, at its worst cell."""
    mean = channel.mean(axis=1)
    whole = (channel / mean[:, None]).T @ channel
    vectors = queries @ np.linalg.pinv(whole) @ (channel / mean[:, None]).T
    np.testing.assert_allclose(vectors @ channel, queries, atol=1e-8)
    return float(((vectors**2).sum(axis=0) @ channel - (queries**2).sum(axis=0)).max())


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.5])
def test_no_channel_beats_the_bound(epsilon: float) -> None:
    """Random extreme channels of three kinds. Mutants: c without its 4; what cells vary not taken off."""
    rng = np.random.default_rng(0)
    top = math.exp(epsilon)
    for trial in range(30):
        m = int(rng.integers(3, 8))
        queries = rng.standard_normal((int(rng.integers(1, 9)), m)) + rng.standard_normal()
        bound = centred_optimum(queries.T @ queries).bound(epsilon)
        g = m if trial % 3 == 0 else int(rng.integers(2, m))
        tables = [np.arange(m)] if g == m else [rng.integers(0, g, m) for _ in range(6 * m)]
        rows = [np.where(t == c, top, 1.0) / (top + g - 1) / len(tables) for t in tables for c in range(g)]
        assert worst_variance(np.array(rows), queries) >= bound * (1 - 1e-6)


def test_the_bound_is_near_for_cells_and_below_for_one_bit() -> None:
    """One bit: randomized response has variance E / (E - 1)^2; the bound c / 4 - 1 / 4 cannot know that it is best."""
    top = math.exp(1.0)
    found = centred_optimum(np.diag([1.0, 0.0]))
    assert found.bound(1.0) == pytest.approx(top / (top - 1) ** 2 - 1 / 4, rel=1e-3)
    plan = sf.plan(sf.identity(sf.Domain({"a": 2}), "a"), sf.pure(1), trust="local", records=1)
    assert plan.rmse**2 == pytest.approx(top / (top - 1) ** 2, rel=1e-9)
    cells = sf.plan(sf.identity(sf.Domain({"a": 30}), "a"), sf.pure(1), trust="local", records=1)
    assert cells.lower_bound is not None
    assert cells.lower_bound < cells.rmse < 1.05 * cells.lower_bound


def test_the_centred_norm_is_enclosed() -> None:
    """Weights on the cells give both bounds; for all cells alike they are known: (1 - 1/m) m of the identity."""
    found = centred_optimum(np.eye(12))
    assert found.lower == pytest.approx(11 / math.sqrt(12), rel=1e-9)
    assert found.upper == pytest.approx(found.lower, rel=1e-9)
    queries = np.tri(16)
    near = centred_optimum(queries.T @ queries)
    assert near.lower <= near.upper <= near.lower * 1.002
    assert float((near.strategy**2).sum(axis=0).max()) <= 1 + 1e-12


def test_hadamard_and_hashing_are_what_the_books_say() -> None:
    """Variance of a cell that nobody is in: (E + g - 1)^2 / ((E - 1)^2 (g - 1)), times 1 - 1/m as n is known."""
    top = math.exp(1.0)
    for reporter, g, m in (("hadamard", 2, 64), ("hashing", 3, 81)):
        plan = sf.plan(
            sf.identity(sf.Domain({"a": m}), "a"),
            sf.pure(1),
            trust="local",
            records=1,
            mechanism=sf.mechanisms.local(reporter=reporter),
        )
        assert plan.questions.labels == g
        assert truth_share(1.0, g) == pytest.approx((top - 1) / (top + g - 1))
        constant = (top + g - 1) ** 2 / ((top - 1) ** 2 * (g - 1))
        absent = plan.reading.variances(0, m)[0, 1:].mean()
        assert absent == pytest.approx(constant * (1 - 1 / m), rel=0.03)


def test_marginals_find_their_parities() -> None:
    """3-way tables of five bits: two labels reach the factorization norm itself, by parities of degree up to 3."""
    work = sf.marginals(sf.Domain({f"b{i}": 2 for i in range(5)}), order=3)
    plan: Any = sf.plan(work, sf.pure(1), trust="local", records=1, mechanism=sf.mechanisms.local(reporter="designed"))
    two = next(c for c in plan.considered if c.labels == 2)
    gram = plan.reading.queries.T @ plan.reading.queries
    best = centred_optimum(gram).lower ** 2 / math.tanh(0.5) ** 2 / len(work)
    moved = float(np.mean((plan.reading.queries - 1 / 8) ** 2))
    assert (best - moved) * (1 - 1e-6) <= two.rmse**2 <= (best - moved) * 1.005


def test_collect_counts_every_report_once() -> None:
    plan = small_plan(3, Fraction(1))
    cells = np.arange(5).repeat([3, 0, 5, 1, 2]).astype(np.int64)
    reports = report_cells(plan, cells)
    release = answer_reports(plan, reports)
    assert release.reports == 11
    assert (release.tally.reshape(-1) == np.bincount(reports, minlength=plan.outcomes)).all()
    shuffled = answer_reports(plan, sorted(reports.tolist()))
    np.testing.assert_array_equal(shuffled.answers, release.answers)
    assert release.answers.sum() == pytest.approx(11)
