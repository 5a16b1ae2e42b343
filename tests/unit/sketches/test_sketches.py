"""Field arithmetic against Python's integers, keys and their rules, maps against their definitions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato._util.codec import decode_value, encode_value
from sfumato.errors import DomainError, PlanError, WorkloadError
from sfumato.sketches import Buckets, KeyMap, Keys, Listed, Signs, predict
from sfumato.sketches.maps import PRIME, draw_coefficients, evaluate_polynomial, hash_texts, multiply_field

EDGES = [0, 1, 2, 2**30 - 1, 2**30, 2**31 - 1, 2**31, 2**31 + 1, 2**60 - 1, 2**60, PRIME - 2**31, PRIME - 2, PRIME - 1]
elements = st.one_of(st.sampled_from(EDGES), st.integers(0, PRIME - 1))


def words(values: Any) -> Any:
    return np.array(values, dtype=np.uint64)


def drawn(count: int, seed: int = 5) -> Any:
    return np.unique(np.random.default_rng(seed).integers(0, 2**60, count, dtype=np.uint64))


# ---- the field -------------------------------------------------------------------------------------------------


def test_products_at_the_edges_are_those_of_integers() -> None:
    """Mutant: a split at another bit."""
    a, b = (words(v) for v in zip(*itertools.product(EDGES, repeat=2), strict=True))
    expected = [x * y % PRIME for x, y in itertools.product(EDGES, repeat=2)]
    assert multiply_field(a, b).tolist() == expected


@given(st.lists(elements, min_size=1, max_size=6), st.lists(elements, min_size=1, max_size=6))
def test_polynomials_are_those_of_integers(coefficients: list[int], points: list[int]) -> None:
    expected = [sum(c * x**i for i, c in enumerate(coefficients[::-1])) % PRIME for x in points]
    assert evaluate_polynomial(words(coefficients), words(points)).tolist() == expected
    assert evaluate_polynomial(words([coefficients] * 2), words(points)).tolist() == [expected] * 2


def test_the_prime_itself_is_zero() -> None:
    """Mutant: the last subtraction `>` for `>=`."""
    assert evaluate_polynomial(words([1, PRIME - 5]), words([5, 6])).tolist() == [0, 1]


@given(st.lists(st.binary(max_size=30), max_size=8), elements)
def test_hashes_of_texts_are_polynomials_of_their_bytes(texts: list[bytes], point: int) -> None:
    """Mutants: the length left out (trailing zeros then vanish); chunks of eight bytes."""

    def one(text: bytes) -> int:
        value = len(text)
        for i in range(0, len(text), 7):
            value = (value * point + int.from_bytes(text[i : i + 7], "little")) % PRIME
        return value

    assert hash_texts(texts, point).tolist() == [one(t) for t in texts]


def test_coefficients_are_field_elements_and_fresh() -> None:
    one, other = draw_coefficients(2, 500), draw_coefficients(2, 500)
    assert one.shape == (2, 500)
    assert not (one == other).any()
    assert PRIME // 2 < one.max() < PRIME


# ---- keys --------------------------------------------------------------------------------------------------------


def test_keys_outside_the_universe_are_left_out_and_never_raise() -> None:
    """Mutants: negative numbers wrapped; 2^60 taken; empty or long texts taken."""
    found, places = Keys().elements(np.array([5, -1, 2**60 - 1, 2**60, 2**62]))
    assert (found.tolist(), places.tolist()) == ([5, 2**60 - 1], [0, 2])
    assert Keys().elements(np.array([2**63], dtype=np.uint64))[0].size == 0
    assert Keys().elements(np.array([-1, 7], dtype=np.int8))[0].tolist() == [7]
    text = Keys("url", "text")
    found, places = text.elements(["a", "", None, "b" * 1024, "c" * 1025, 5, "\ud800", "a"])
    assert places.tolist() == [0, 3, 6, 7]
    assert found[0] == found[3]
    assert len(set(found.tolist())) == 3


@pytest.mark.parametrize(
    ("column", "kind", "point"),
    [("", "integer", None), ("a\u200b", "integer", None), ("a", "real", None), ("a", "integer", 5), ("a", "text", -1)],
)
def test_other_keys_are_refused(column: str, kind: str, point: int | None) -> None:
    with pytest.raises(DomainError):
        Keys(column, kind, point)


@pytest.mark.parametrize(
    ("keys", "weights"),
    [([1, 1], None), ([-1], None), ([1.5], None), (5, None), ([2**70], None), ([[1]], None), (["a"], None)]
    + [([1, 2], w) for w in ([1], [1, np.nan], [1, np.inf], ["a", "b"], [[1, 2]], [1, 1e200], [[1], [1, 2]])],
)
def test_queries_that_are_none_are_refused(keys: Any, weights: Any) -> None:
    with pytest.raises(WorkloadError):
        Keys().query(keys, weights)


def test_a_query_is_sorted_with_its_weights() -> None:
    found, weights = Keys().query([9, 2, 4], [1, -2, 0.5])
    assert (found.tolist(), weights.tolist()) == ([2, 4, 9], [-2, 0.5, 1])
    text = Keys("url", "text")
    assert text.query(["x", "y"], None)[1].tolist() == [1, 1]
    with pytest.raises(WorkloadError, match="outside the universe"):
        text.query(["x", ""], None)
    with pytest.raises(WorkloadError, match="list or array of texts"):
        text.query("xy", None)


# ---- maps --------------------------------------------------------------------------------------------------------

MAPS: dict[str, KeyMap] = {
    "buckets": Buckets(8, words([3, 1, 4, 1 << 59])),
    "signs": Signs(70, words([[2, 7, 1, 8 << 50], [2, 8, 1, 8 << 51]])),
    "listed": Listed(words([3, 5, 2**59])),
}


@pytest.mark.parametrize("name", MAPS)
def test_maps_are_linear_and_read_off_what_they_wrote(name: str) -> None:
    """Mutants: a sign that differs between `apply` and `at`; `at` without the scale of the projection."""
    found = MAPS[name]
    some, counts = words([3, 5, 2**59]), np.array([7, -2, 11])
    units = np.stack([found.apply(some[i : i + 1], np.ones(1, dtype=np.int64)) for i in range(3)], axis=1)
    table = found.apply(some, counts)
    assert table.tolist() == (units @ counts).tolist()
    assert table.dtype == np.int64
    weights = np.array([1.0, 0.5, -2.0])
    rows, reading = found.at(some, weights)
    dense = np.zeros(found.rows)
    dense[rows] = reading
    assert len(set(rows.tolist())) == len(rows)
    assert dense == pytest.approx(units @ weights * (1 / found.rows if name == "signs" else 1))
    again = decode_value(*encode_value(found))
    assert again.apply(some, counts).tolist() == table.tolist()
    assert found.apply(some[:0], counts[:0]).tolist() == [0] * found.rows


def test_wrap_around_is_silent_and_modular() -> None:
    """Mutant: sums in floating-point, which saturate or round."""
    some, big = words([1, 2, 3]), np.array([2**62, 2**62 + 1, -(2**62) - 5])
    for found in MAPS.values():
        small = found.apply(some, big % 1009)
        assert ((found.apply(some, big) - small - found.apply(some, big - big % 1009)) == 0).all()


@pytest.mark.parametrize("make", [lambda: Buckets.draw(256), lambda: Signs.draw(240)], ids=["buckets", "signs"])
def test_without_noise_the_variance_over_hashes_is_the_stated_one(make: Any) -> None:
    """Mutants: bucket and sign from the same bit; one polynomial for all blocks of signs; 1 / T left out.

    150 hashes and 20 queries; the mean square is within 20 % but with negligible probability.
    """
    keys = drawn(300)
    counts = np.random.default_rng(3).integers(1, 5, len(keys))
    squares: list[float] = []
    for _ in range(150):
        found = make()
        table = found.apply(keys, counts)
        for start in range(0, 280, 14):
            query = np.sort(np.concatenate([keys[start : start + 5], drawn(5, start + 99)]))
            truth = counts[np.isin(keys, query)].sum()
            rows, reading = found.at(query, np.ones(len(query)))
            squares.append(float((reading @ table[rows] - truth) ** 2))
    squared, inside = float(counts @ counts), 12.5
    expected = (10 * squared + inside**2 - 2 * 5 * squared / len(keys)) / make().shrinkage
    assert np.mean(squares) == pytest.approx(expected, rel=0.2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Buckets(7, words([1])),
        lambda: Buckets(2**27, words([1])),
        lambda: Buckets(8, words([PRIME])),
        lambda: Buckets(8, np.array([1])),
        lambda: Buckets(True, words([1])),
        lambda: Signs(61, words([[1]])),
        lambda: Signs(0, words([[1]])),
        lambda: Listed(words([])),
        lambda: Listed(words([2, 1])),
        lambda: Listed(words([1, 1])),
    ],
)
def test_maps_that_are_none_are_refused(make: Any) -> None:
    with pytest.raises(WorkloadError):
        make()


# ---- formulas ----------------------------------------------------------------------------------------------------


def test_dimensions() -> None:
    """S12.4: 5,603 signs balance 100,000 distinct records at noise 4.2246789; the paper's number is out of reach."""
    variance = 4.2246789**2
    assert predict.projection_dimension(100_000, variance) == 5603
    assert predict.projection_dimension(1, variance, queries=1000) == int(32 * np.log(80_000)) + 1
    paper = predict.paper_parameters(64, 100_000, 1000, 1, 1e-6)
    # T of the paper as it stands there, with tau = beta / (4 k): three terms that are one square
    n, m, tau = 100_000.0, 64, 0.05 / (4 * 1000)
    terms = m**1.5 / 2 + n**4 / (2 * np.sqrt(m)) + np.sqrt(m) * n**2
    assert paper.dimension == pytest.approx(4 * 64**2 * np.log(1 / tau) * terms, rel=1e-12)
    assert paper.dimension == pytest.approx(1.156e24, rel=1e-3)
    assert paper.laplace_scale == pytest.approx(10.513, abs=1e-3)
    assert paper.independence == predict.independence(1000, paper.dimension, 0.05) > 100
    # n = 4,000, m = 256, k = 2,000: T = 897 at balance 4
    assert predict.projection_dimension(4000, variance, 2000, balance=4) == 897
    with pytest.raises(PlanError):
        predict.paper_parameters(0, 1, 1, 1, 1e-6)


@pytest.mark.parametrize(("scale", "threshold"), [(0.5, 3), (2.0, 28), (8.0, 107)])
def test_the_residual_rate_is_the_largest_expected_square_per_record(scale: float, threshold: int) -> None:
    q = np.exp(-1 / scale)
    z = np.arange(-2000, 2001)
    p = (1 - q) / (1 + q) * q ** np.abs(z)
    rates = [float(p @ np.where(c + z >= threshold, z * z, c * c)) / c for c in range(1, threshold + 100)]
    assert predict.residual_rate(scale, threshold) == pytest.approx(max(rates), rel=1e-9)
