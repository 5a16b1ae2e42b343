"""Filters that keep past counts: their price, their arithmetic, errors and the way back, against dense matrices."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import PlanError
from sfumato.operators import Family, Identity
from sfumato.privacy.noise import RoundedGaussian
from sfumato.privacy.stream_price import MOST_COUNT, StreamTerms, WindowFilter
from sfumato.strategies.periods import Periods, TimeQuestion, parse_question
from sfumato.strategies.time_errors import errors_of_filter
from sfumato.strategies.time_shapes import (
    band_width_for,
    banded_filter,
    binary_tree_filter,
    dense_bound,
    dense_filter,
    mean_bound,
)
from sfumato.strategies.toeplitz import Decoder
from support.streams import drawn_window, filtered, heard

QUESTIONS = ("totals", "increments", "last 3", "decayed 0.7", "ranges")


def test_the_response_bounds_every_pattern() -> None:
    """All patterns of at most k periods, b apart, by brute force, with taps of both signs.

    Mutants: k - 1 columns, the first column for all, products of columns left out where a window holds two.
    """
    rng = np.random.default_rng(1)
    for _ in range(60):
        used = drawn_window(rng, most=4, bits=8)
        n, w, matrix = used.periods, used.taps.shape[1], heard(used)
        for k, b in ((1, 1), (2, w), (3, w), (2, w + 1), (3, max(w - 1, 1))):
            patterns = (
                p
                for size in range(1, min(k, n) + 1)
                for p in itertools.combinations(range(n), size)
                if all(y - x >= b for x, y in itertools.pairwise(p))
            )
            exact = max((matrix[:, list(p)].sum(axis=1) ** 2).sum() for p in patterns)
            assert exact <= used.response(k, b)
    alike = WindowFilter([20], [[7, -5, 3]])
    assert alike.response() == 83
    assert alike.response(4, 3) == 4 * 83


def test_weighed_taps_are_no_larger_than_priced() -> None:
    """Mutant: a floor of what is negative, which makes it larger."""
    rng = np.random.default_rng(2)
    for _ in range(30):
        used = drawn_window(rng, bits=6)
        grain = int(rng.integers(1, 8))
        multiple = int(rng.integers(1, 2**grain + 1))
        sizes = abs(heard(used, multiple, grain))
        assert (sizes * 2**grain <= abs(heard(used)) * multiple).all()
        for period in range(used.periods):
            given = used.coefficients(period, [multiple], grain)[:, 0]
            lags = range(min(period + 1, used.taps.shape[1]))
            assert [given[j] for j in lags] == [heard(used, multiple, grain)[period, period - j] for j in lags]


@pytest.mark.parametrize(
    "changed",
    [
        {"runs": [0, 3]},
        {"runs": [2**20, 1]},
        {"runs": np.zeros(0, dtype=np.int64), "taps": np.zeros((0, 2), dtype=np.int64)},
        {"taps": [[1, 2]]},
        {"taps": [1, 2]},
        {"taps": [[1.0], [2.0]]},
        {"taps": [[2**25], [1]]},
        {"taps": [[-(2**63)], [1]]},
        {"taps": np.ones((2, 4_097), dtype=np.int64)},
        {"taps": np.ones((2, 0), dtype=np.int64)},
    ],
)
def test_a_filter_refuses_what_it_cannot_hold(changed: dict) -> None:
    good = {"runs": [2, 3], "taps": [[3, -4], [1, 0]]}
    assert WindowFilter(**good).periods == 5
    with pytest.raises(PlanError):
        WindowFilter(**good | changed)
    with pytest.raises(PlanError, match="largest count"):
        WindowFilter(**good).check_count(MOST_COUNT + 1)


def answers(inverse: np.ndarray, asked: TimeQuestion, t: int) -> float:
    """The variance of a question at a period, from the inverse."""
    if not asked.ranges:
        return float(((asked.weights(t + 1) @ inverse[: t + 1]) ** 2).sum())
    return float(np.mean([(inverse[s : t + 1].sum(axis=0) ** 2).sum() for s in range(t + 1)]))


@pytest.mark.parametrize("alike", [True, False])
def test_errors_are_those_of_the_dense_inverse(alike: bool) -> None:
    """Mutants: a period off, ranges without the one that is the last period, the taps of another run."""
    rng = np.random.default_rng(3)
    taps = rng.integers(-40, 41, size=(1 if alike else 4, 5))
    taps[:, 0] = 100
    used = WindowFilter([12] if alike else [3, 1, 6, 2], taps)
    inverse = np.linalg.inv(heard(used).astype(float))
    over = errors_of_filter(used)
    for text in QUESTIONS:
        asked = parse_question(text, 12)
        np.testing.assert_allclose(over.of(asked), [answers(inverse, asked, t) for t in range(12)], rtol=1e-9)
        gram = asked.gram(12)
        assert np.isclose(over.mean([(asked, 1.0)]), np.trace(inverse.T @ gram @ inverse), rtol=1e-9)
    for m in (1, 7, 12):
        weights = rng.normal(size=m)
        assert np.isclose(over.variance(weights), ((weights @ inverse[:m]) ** 2).sum(), rtol=1e-9)


def test_the_way_back_finds_the_counts() -> None:
    """Without noise, of tables that weigh less than 1 too. Mutants: a state not moved on, taps of the period asked."""
    total = Family(("a",), (Identity(1),), np.zeros((1, 0), dtype=np.int32), np.array([3])).lowered()
    periods = sf.periods(40, per_person=4, apart=6)
    for used in (banded_filter(periods, 6), binary_tree_filter(sf.periods(40)), WindowFilter([7], [[5]])):
        terms = StreamTerms(used, (total,), 2, RoundedGaussian(Fraction(1)), 1, 1, 10**4)
        counts = np.random.default_rng(1).integers(0, 10**4, size=(used.periods, 1))
        decoder = Decoder(terms)
        for t, y in enumerate(filtered(used, counts, 3, 2)):
            (back,) = decoder.step([y.astype(np.int64)])
            assert abs(back[0] / 3 - counts[t, 0]) < 1e-6


def error(used: WindowFilter, given: Periods) -> float:
    over = errors_of_filter(used)
    worst = given.objective == "worst"
    variance = over.together(given.questions).max() if worst else over.mean(given.questions)
    return float(variance * used.response(given.per_person, given.apart)) ** 0.5


@pytest.mark.parametrize(
    ("given", "most"),
    [
        (sf.periods(365, per_person=12, apart=30, objective="mean"), 11.895),
        (sf.periods(365, per_person=12, apart=30), 13.95),
        (sf.periods(1024, per_person=8, apart=128, objective="mean"), 9.75),
        (sf.periods(60, per_person=5, apart=10), 6.31),
        (sf.periods(1100, per_person=4, apart=40), 11.5),
    ],
)
def test_bands_for_people_in_several_periods(given, most: float) -> None:
    """The least that any band of b was found to err is 11.89, 13.90 in the worst period, and 9.75; poles err 12.83,
    16.1 and 10.46.

    Mutants: a gradient without what columns of length 1 take from it, or of the band's first rows alone; the worst
    period as the mean; columns as a short stream has them.
    """
    width = band_width_for(given)
    assert width == given.apart
    assert error(banded_filter(given, width), given) < most


def test_a_window_is_within_half_a_percent_of_the_best() -> None:
    for n, many in ((256, 12), (300, 7)):
        given = sf.periods(n, ask=f"last {many}", objective="mean")
        bound = dense_bound(given.questions, n)
        assert bound <= error(banded_filter(given, 2 * many + 1), given) < 1.005 * bound


@pytest.mark.parametrize("asked", [("totals",), ("last 5",), ("ranges", "decayed 0.9")])
def test_the_dense_optimum_meets_its_bound(asked: tuple[str, ...]) -> None:
    given = sf.periods(120, ask=asked, objective="mean")
    bound = dense_bound(given.questions, 120)
    assert bound <= error(dense_filter(given), given) < 1.0005 * bound
    assert mean_bound(given.questions, 120) == bound


def test_bounds_of_many_periods_are_those_of_decompositions() -> None:
    """Closed forms beside matrices. Mutants: a range counted twice; the sum of the singular values alone."""
    for text, least in (("totals", 1 - 1e-9), ("ranges", 1 - 1e-9), ("decayed 0.9", 0.999)):
        asked = ((parse_question(text, 400), 1.0),)
        gram = asked[0][0].gram(400)
        values, vectors = np.linalg.eigh(gram)
        roots = np.linalg.norm(vectors**2 @ np.sqrt(values.clip(0)))  # of the diagonal of the root
        bound = mean_bound(asked, 400)
        assert bound is not None
        assert least * roots <= bound <= roots * (1 + 1e-9), (text, bound / roots)


def test_the_tree_is_that_of_the_sources() -> None:
    """Thresholds of 8 values: nodes of M that R uses, sensitivity 2 (4 levels), and sums of at most 3 nodes.

    In general sums take a node for every digit 1 of the period: 10.488 and 7.417 at 1,024, of noise 1 and price 1.
    """
    used = binary_tree_filter(sf.periods(8))
    nodes = (heard(used) != 0).astype(int)
    wanted = [[1, 1], [1, 2], [3, 3], [1, 4], [5, 5], [5, 6], [7, 7], [1, 8]]
    assert [[int(np.flatnonzero(row)[0]) + 1, int(np.flatnonzero(row)[-1]) + 1] for row in nodes] == wanted
    assert max(nodes.sum(axis=0)) == 4
    sums = np.rint(np.tril(np.ones((8, 8))) @ np.linalg.inv(nodes)).astype(int)
    assert sums.min() == 0
    assert sums.sum(axis=1).tolist() == [bin(t).count("1") for t in range(1, 9)]
    assert (sums @ nodes == np.tril(np.ones((8, 8)))).all()
    given = sf.periods(1024)
    scale = binary_tree_filter(given).response() ** 0.5
    totals = np.sqrt(errors_of_filter(binary_tree_filter(given)).totals) * scale
    assert np.isclose(totals.max(), 10.488, atol=1e-3)
    assert np.isclose(np.sqrt((totals**2).mean()), 7.417, atol=1e-3)


def test_strategies_without_structure_refuse_long_streams() -> None:
    for made, given, words in (
        (binary_tree_filter, sf.periods(1_025), "1,024 periods"),
        (binary_tree_filter, sf.periods(10, per_person=2), "one of them"),
        (dense_filter, sf.periods(10), "objective='mean'"),
    ):
        with pytest.raises(PlanError, match=words):
            made(given)


def test_decayed_sums_have_a_bound_at_any_length() -> None:
    """The mean singular value, as a decomposition finds it. Mutants: roots of sums that do not decay, or of the product
    without its corner."""
    for n, rate in ((385, 0.5), (385, 0.99), (600, 0.999999)):
        weights = rate ** np.maximum(0, np.subtract.outer(np.arange(n), np.arange(n))) * np.tri(n)
        exact = np.linalg.svd(weights, compute_uv=False).mean()
        assert mean_bound([(TimeQuestion(rate=rate), 1.0)], n) == pytest.approx(exact, rel=1e-10)
    assert mean_bound([(TimeQuestion(rate=0.99), 1.0), (TimeQuestion(), 1.0)], 385) is None
