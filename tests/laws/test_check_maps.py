"""The stranger's half about maps: columns of combined queries and bounds of filters, against every cell and period."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from sfumato import check_maps
from sfumato.check_maps import Doc
from support.streams import drawn, drawn_window, heard
from support.streams import response as entry

NAMES = "abcd"


def _drawn_blocks(rng: np.random.Generator, sizes: dict[str, int]) -> list[Any]:
    """Blocks of small matrices over groups of one or two attributes, some over none."""
    out: list[Any] = []
    for _ in range(int(rng.integers(1, 5))):
        names = [str(n) for n in rng.permutation([*NAMES])[: int(rng.integers(0, 5))]]
        groups: list[list[str]] = []
        while names:
            many = int(rng.integers(1, 3))
            groups, names = [*groups, names[:many]], names[many:]
        cells = [int(np.prod([sizes[a] for a in g])) for g in groups]
        maps = [rng.integers(-1, 2, (int(rng.integers(1, 4)), n)) for n in cells]
        out.append(Doc(groups=groups, factors=[Doc({"~class": "Dense", "matrix": m}) for m in maps]))
    return out


@pytest.mark.parametrize("seed", range(100))
def test_distinct_columns_are_those_of_all_cells(seed: int) -> None:
    """Mutants: cells told apart by joint factors alone are one; a group that factors join is gone through by halves."""
    rng = np.random.default_rng([55, seed])
    sizes = {a: int(rng.integers(1, 5)) for a in NAMES}
    blocks = _drawn_blocks(rng, sizes)
    columns: list[Any] = []
    for cell in itertools.product(*(range(sizes[a]) for a in NAMES)):
        at, parts = dict(zip(NAMES, cell, strict=True)), list[Any]()
        for b in blocks:
            column = np.ones(1, dtype=int)
            for group, f in zip(b.groups, b.factors, strict=True):
                i = np.ravel_multi_index([at[a] for a in group], [sizes[a] for a in group])
                column = np.kron(column, f.matrix[:, i])
            parts.append(column)
        columns.append(np.concatenate(parts))
    expected = np.unique(np.array(columns).T, axis=1)
    found = check_maps.distinct(blocks, sizes)
    assert found.shape == expected.shape
    assert np.array_equal(np.unique(found, axis=1), expected)


@pytest.mark.parametrize("seed", range(60))
def test_bounds_of_filters_are_above_the_truth_and_near_it(seed: int) -> None:
    """Response: the largest over all patterns, in rationals. Rounding: the lemma's sums, in rationals.

    Mutants: a column is left out; the worst pattern begins later; a state's error begins a period late.
    """
    rng = np.random.default_rng([56, seed])
    used = drawn(rng, alike=seed % 2 == 0)
    n = used.periods
    times = int(rng.integers(1, n + 1)) if seed % 2 == 0 else 1
    apart = int(rng.integers(1, (n - 1) // (times - 1) + 1)) if times > 1 else 1
    entries = [[entry(used, t, u) * 2**used.shift for u in range(n)] for t in range(n)]
    patterns = [
        p
        for p in itertools.combinations(range(n), times)
        if all(later - before >= apart for before, later in itertools.pairwise(p))
    ]
    response = max(sum((sum(row[u] for u in p)) ** 2 for row in entries) for p in patterns)
    kept = [1 - Fraction(e, 2**g) for e, g in used.decays.tolist()]
    off = [sum((sum((th**k for k in range(t - 1)), Fraction()) for th in kept), Fraction()) for t in range(n)]
    rows = np.repeat(used.rows, used.runs).tolist()
    rounding = sum((1 + Fraction(r, 2**used.shift) * o) ** 2 for r, o in zip(rows, off, strict=True))
    fields = ("decays", "shift", "runs", "rows", "direct", "carried")
    found = check_maps.over_time(Doc({k: getattr(used, k) for k in fields}), times, apart)
    assert response <= found[0] <= response * (1 + Fraction(1, 2**29)) + 2
    assert rounding <= found[1] <= rounding * (1 + Fraction(1, 2**29))
    assert found[0] <= used.response(times, apart)
    assert found[1] <= used.rounding_squared()


def test_sums_of_counts_over_time_are_found_again() -> None:
    """Of taps: all patterns by brute force, and what is none. Mutants: a period left out; taps that hold two let in."""
    rng = np.random.default_rng(60)
    for _ in range(30):
        used = drawn_window(rng, most=4, bits=8)
        w = used.taps.shape[1]
        file = Doc({"runs": used.runs, "taps": used.taps})
        matrix = heard(used)
        for times, apart in ((1, 1), (2, w), (3, w + 1)):
            patterns = (
                p
                for p in itertools.combinations(range(used.periods), min(times, used.periods))
                if all(later - before >= apart for before, later in itertools.pairwise(p))
            )
            most = max(((matrix[:, list(p)].sum(axis=1) ** 2).sum() for p in patterns), default=0)
            assert most <= check_maps.over_time(file, times, apart)[0] == used.response(times, apart)
        assert check_maps.over_time(file, 1, 1)[1] == 0
        if w > 1:
            with pytest.raises(check_maps.Cannot, match="holds"):
                check_maps.over_time(file, 2, w - 1)
        for taps in (used.taps * 2**25 + 2**25, used.taps[:, :0], used.taps.astype(float), used.taps[:-1]):
            with pytest.raises(ValueError, match="other integers"):
                check_maps.over_time(Doc({"runs": used.runs, "taps": taps}), 1, 1)


def test_entries_of_a_combination_that_could_wrap_are_exact_or_refused() -> None:
    """Mutant: products in 64 bits without a look at what they could reach."""
    one = Doc(groups=[["a"]], factors=[Doc({"~class": "Dense", "matrix": np.full((2, 3), 2**40)})])
    whole = Doc({"~class": "Combination", "blocks": [one], "matrix": np.array([[2**30, 2**30]])})
    assert check_maps.combined(whole, {"a": 3}).matrix.tolist() == [[2**71]]
    two = Doc(groups=[["a"], ["b"]], factors=[f for f in one.factors for _ in range(2)])
    with pytest.raises(check_maps.Cannot, match="beyond"):
        check_maps.distinct([two], {"a": 3, "b": 3})
