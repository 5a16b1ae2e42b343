"""The stranger's half about maps: columns of combined queries and bounds of filters, against every cell and period."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from sfumato import check_maps
from sfumato.check_maps import Doc
from support.seeded import draws
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


@pytest.mark.parametrize("seed", range(draws(40)))
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
    found = check_maps.distinct_block_columns(blocks, sizes)
    assert found.shape == expected.shape
    assert np.array_equal(np.unique(found, axis=1), expected)


def _tree(rng: np.random.Generator, cells: int) -> list[Any]:
    """Groups of cells inside groups, some of one cell or one group, twice the same, numbered with gaps or as cells."""
    out = [Doc({"~class": "Identity", "n": cells})] if rng.random() < 0.7 else []
    codes = np.arange(cells)
    for _ in range(int(rng.integers(0, 4))):
        codes = rng.integers(0, rng.integers(1, 6), 12)[codes] * int(rng.integers(1, 3))
        out.append(Doc({"~class": "Grouping", "codes": codes, "groups": int(codes.max()) + int(rng.integers(1, 3))}))
    if rng.random() < 0.4:
        loose = rng.integers(
            -int(rng.integers(2)), int(rng.integers(1, 4)), cells
        )  # lies in none, and a cell may be in no group of it
        out.append(Doc({"~class": "Grouping", "codes": loose, "groups": 3}))
    return [*out, Doc({"~class": "Total", "n": cells})]


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("seed", range(draws(50)))
def test_tables_and_residuals_on_trees_cost_what_all_pairs_say(seed: int, power: int, replace: bool) -> None:
    """Brute force over all cells and pairs of cells, of the same group where only these replace each other.

    Mutants: two that differ in the narrowest groups alone are never looked at; nor those that differ in the widest;
    pairs that lie in other groups count; groups that do not lie in each other are taken to; cells of no group count.
    """
    rng = np.random.default_rng([98, seed])
    sizes = {"place": int(rng.integers(1, 9)), "a": int(rng.integers(1, 4)), "b": int(rng.integers(2, 4))}
    tree, others = _tree(rng, sizes["place"]), ("Identity", "Residual", "Total")
    ops, blocks, matrices = dict[str, Any](), list[Any](), list[Any]()
    for _ in range(int(rng.integers(1, 7))):
        held, joint = list[Any](), np.ones((1, 1), dtype=object)
        for name, n in sizes.items():
            kind = others[int(rng.integers(3 if rng.random() < 0.3 else 2))]
            op = tree[int(rng.integers(len(tree)))] if name == "place" else Doc({"~class": kind, "n": n})
            present = rng.random() < 0.7
            held += [((name,), check_maps.document_fingerprint(op))] if present else []
            ops |= {held[-1][1]: op} if present else {}
            joint = np.kron(
                joint, check_maps.map_entries(op).astype(object) if present else np.ones((1, n), dtype=object)
            )
        blocks.append((int(rng.integers(1, 5)), tuple(held)))
        matrices.append(blocks[-1][0] * joint)
    given = [op.codes for op in tree if op.codes is not None and op.codes.min() >= 0]
    codes = given[-1] if given and seed % 4 else rng.integers(0, 2, sizes["place"])
    within = Doc(attribute="place", codes=codes) if seed % 2 and replace else None
    near = np.repeat(np.zeros(sizes["place"]) if within is None else codes, sizes["a"] * sizes["b"])
    whole, public = np.concatenate(matrices), bool(rng.random() < 0.5) or within is not None
    expected = 0 if replace and public else int((abs(whole) ** power).sum(axis=0).max())
    for u, v in itertools.product(range(whole.shape[1] if replace else 0), repeat=2):
        expected = max(expected, int((abs(whole[:, u] - whole[:, v]) ** power).sum()) if near[u] == near[v] else 0)
    assert check_maps.largest_record_change(blocks, ops, sizes, power, replace, public, within) == (expected, True)


def test_a_tree_of_any_size_is_priced_and_a_map_too_large_to_write_out_is_not() -> None:
    """300,000 places, 100,001 groups: as twelve are. Mutants: groups are written out; other fields are let be."""
    found = list[tuple[int, bool]]()
    for n in (300_000, 12):
        levels = [np.arange(n) // 3, np.arange(n) // (n // 4)]
        tree = [Doc({"~class": "Grouping", "codes": c, "groups": int(c.max()) + 2}) for c in levels]
        kinds = [*tree, Doc({"~class": "Identity", "n": n}), Doc({"~class": "Residual", "n": 3})]
        ops = {str(i): op for i, op in enumerate(kinds)}
        assert [check_maps.map_shape(op) for op in tree] == [(op.groups, n) for op in tree]
        blocks = [(2, ((("place",), "0"), (("a",), "3"))), (3, ((("place",), "1"),)), (1, ((("place",), "2"),))]
        found.append(check_maps.largest_record_change(blocks, ops, {"place": n, "a": 3}, 2, True, True))
        if n > 12:
            with pytest.raises(check_maps.Cannot, match="so many cells"):
                check_maps.map_entries(tree[0])
    assert found[0] == found[1]
    assert found[0][1]
    joint = Doc({"~class": "Identity", "n": 6})
    blocks, near = [(1, ((("place", "a"), "0"),))], Doc(attribute="place", codes=np.array([0, 0, 1]))
    assert check_maps.largest_record_change(blocks, {"0": joint}, {"place": 3, "a": 2}, 2, True, True, near) == (
        2,
        True,
    )
    with pytest.raises(check_maps.Cannot, match="weights"):
        check_maps.map_shape(Doc({"~class": "Grouping", "codes": np.zeros(3), "groups": 1, "weights": np.ones(3)}))


def _dense(matrix: Any) -> Any:
    return Doc({"~class": "Dense", "matrix": matrix})


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "uint8", "uint64", "float64", "bool"])
def test_entries_of_any_type_but_64_bits_are_refused(dtype: str) -> None:
    """abs(-128) and 16 ** 2 are -128 and 0 in 8 bits. Mutant: entries are taken as they are stored."""
    with pytest.raises(ValueError, match="64 bits"):
        check_maps.map_entries(_dense(np.ones((1, 2), dtype=dtype)))


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("entry", [128, 256, 65536, 2**31, 2**32, 2**62, 2**63 - 1, -(2**63) + 1])
def test_powers_of_large_entries_are_exact(entry: int, power: int) -> None:
    """Mutant: powers in 64 bits without a look at whether they fit."""
    op = _dense(np.array([[entry, 1], [entry, 0], [entry, -1]]))
    assert check_maps.column_power_sums(op, power).tolist() == [3 * abs(entry) ** power, 2]
    ops = {"k": op}
    found = check_maps.largest_record_change([(3, ((("a",), "k"),))], ops, {"a": 2}, power, False, False)
    assert found == (3 * (3 * abs(entry)) ** power if power == 1 else 3 * (3 * entry) ** 2, True)


def test_what_readers_could_read_in_two_ways_is_refused() -> None:
    """Mutants: an entry twice counts once; multiples are cut; a place before the first is one from the end."""
    array = np.array
    good = Doc(
        {"~class": "Sparse", "data": array([5, 7]), "indices": array([0, 2]), "indptr": array([0, 2, 2])}, columns=3
    )
    assert check_maps.map_entries(good).tolist() == [[5, 0, 7], [0, 0, 0]]
    for change in (
        {"data": array([5] * 1000), "indices": array([0] * 1000), "indptr": array([0, 1000])},
        {"indices": array([2, 0])},
        {"indices": array([0, 3])},
        {"indices": array([-1, 2])},
        {"indptr": array([0, 1])},
        {"indptr": array([1, 2])},
        {"indptr": array([0, 3, 2])},
    ):
        with pytest.raises(ValueError, match="sparse"):
            check_maps.map_entries(Doc(good | change))
    for factor in (0.5, True, "2", {"~fraction": [999_999, 10**6]}):
        with pytest.raises(ValueError, match="whole number"):
            check_maps.map_entries(Doc({"~class": "Scaled", "operator": good, "factor": factor}))
    with pytest.raises(ValueError, match="not there"):
        check_maps.map_shape(Doc({"~class": "Grouping", "codes": array([0, -2]), "groups": 1}))
    family = Doc({"~class": "Family", "names": ["a"], "factors": [good], "sets": array([[-1]]), "multiples": None})
    with pytest.raises(ValueError, match="not there"):
        check_maps.strategy_blocks(family, {"a": 3}, {})


@pytest.mark.parametrize("seed", range(draws(20)))
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
    found = check_maps.stream_filter_bounds(Doc({k: getattr(used, k) for k in fields}), times, apart)
    assert response <= found[0] <= response * (1 + Fraction(1, 2**29)) + 2
    assert rounding <= found[1] <= rounding * (1 + Fraction(1, 2**29))
    assert found[0] <= used.response(times, apart)
    assert found[1] <= used.rounding_squared()


def test_windows_that_hold_several_periods_of_a_person_are_found_again() -> None:
    """All patterns by brute force, of totals and of what may be opposed, at a table's share; as the wall prices them.

    Mutants: as many periods as there may be alone; signs of what may be opposed; taps that are rounded up."""
    rng = np.random.default_rng(61)
    for _ in range(30):
        used, multiple = drawn_window(rng, most=6, bits=12), int(rng.integers(1, 9))
        file, matrix = Doc({"runs": used.runs, "taps": used.taps}), heard(used, multiple, 3)
        for times, apart in ((2, 1), (3, 2)):
            patterns = [
                p
                for size in range(1, min(times, used.periods) + 1)
                for p in itertools.combinations(range(used.periods), size)
                if all(later - before >= apart for before, later in itertools.pairwise(p))
            ]
            for signs in ([1], [1, -1]):
                most = max(
                    ((matrix[:, list(p)] @ np.array([1, *s], dtype=object)) ** 2).sum()
                    for p in patterns
                    for s in itertools.product(signs, repeat=len(p) - 1)
                )
                found = check_maps.shared_window_bound(file, times, apart, multiple, 3, len(signs) == 1)
                # the wall counts taps beyond the last period too
                assert most <= found <= used.scaled(multiple, 3).response(times, apart, alike=len(signs) == 1)
    with pytest.raises(check_maps.Cannot, match="so many periods"):
        check_maps.shared_window_bound(Doc({"runs": np.array([2_000]), "taps": used.taps[:1]}), 2, 1, 1, 0, True)


def test_sums_of_counts_over_time_are_found_again() -> None:
    """Of taps: all patterns by brute force, and what is none. Mutant: a period left out."""
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
            assert most <= check_maps.stream_filter_bounds(file, times, apart)[0] == used.response(times, apart)
        assert check_maps.stream_filter_bounds(file, 1, 1)[1] == 0
        for taps in (used.taps * 2**25 + 2**25, used.taps[:, :0], used.taps.astype(float), used.taps[:-1]):
            with pytest.raises(ValueError, match="other integers"):
                check_maps.stream_filter_bounds(Doc({"runs": used.runs, "taps": taps}), 1, 1)


def test_entries_of_a_combination_that_could_wrap_are_exact_or_refused() -> None:
    """Mutant: products in 64 bits without a look at what they could reach."""
    one = Doc(groups=[["a"]], factors=[Doc({"~class": "Dense", "matrix": np.full((2, 3), 2**40)})])
    whole = Doc({"~class": "Combination", "blocks": [one], "matrix": np.array([[2**30, 2**30]])})
    assert check_maps.combined_block_map(whole, {"a": 3}).matrix.tolist() == [[2**71]]
    two = Doc(groups=[["a"], ["b"]], factors=[f for f in one.factors for _ in range(2)])
    with pytest.raises(check_maps.Cannot, match="beyond"):
        check_maps.distinct_block_columns([two], {"a": 3, "b": 3})
