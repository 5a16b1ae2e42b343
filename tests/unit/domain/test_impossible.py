"""Cells that no record can be in: which they are, and where a record in one is counted."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato._util.codec import decode_value, encode_value, value_fingerprint
from sfumato.cells import Grid, Moves
from sfumato.domain.impossible import Tied
from sfumato.errors import DomainError, SpecError
from sfumato.workloads.schema import spec_text
from support.impossible import ATTRIBUTES, drawn

OTHER: dict[str, Any] = {"outside": "other", "missing": "other"}
PLACE = sf.Hierarchy({"06": ["1", "2"], "36": ["3"]}, ["state", "county"], **OTHER)


@pytest.mark.parametrize("seed", range(20))
def test_a_cell_is_possible_where_a_record_can_be(seed: int) -> None:
    """Over every set of attributes and levels, by listing all records that no predicate holds for.

    Mutants: predicates that share attributes taken one by one; a sum over attributes for "any"; axes not in the order
    of the names; a level's group possible only if all of its cells are.
    """
    domain = drawn(seed)
    bad = np.zeros(domain.shape, dtype=bool)
    for text in domain.impossible:
        mask = sf.predicates(domain, [text]).blocks[0].block
        along = np.asarray(mask.operator.dense())[0].reshape([domain[a].size for a in mask.attributes]) > 0
        order = [mask.attributes.index(a) for a in domain.names if a in mask.attributes]
        bad |= along.transpose(order).reshape([domain[a].size if a in mask.attributes else 1 for a in domain.names])
    places = np.argwhere(~bad)
    rng = np.random.default_rng(seed)
    for _ in range(12):
        names = list(rng.permutation(["state" if n == "h" and rng.random() < 0.5 else n for n in domain.names]))
        names = [str(n) for n in names[: int(rng.integers(1, 5))]]
        expected = np.zeros(domain.sizes(names), dtype=bool)
        for cell in places:
            at = []
            for n in names:
                level, i = domain.grouping(n), cell[domain.axis(domain.owner(n))]
                at.append(int(i) if level is None else int(level.groups[i]))
            expected[tuple(at)] = True
        found = domain.possible(names)
        assert (found is None) == expected.all()
        assert found is None or np.array_equal(found, expected)


@pytest.mark.parametrize("seed", range(20))
def test_records_move_as_little_as_they_can(seed: int) -> None:
    """To cells that can be; those that can be stay; fewest attributes change, and a place only if it has no other way.

    Mutants: the first possible cell for the nearest; places moved like other attributes; targets that move again.
    """
    domain = drawn(seed)
    for m in domain.moves():
        names = [domain.names[a] for a in m.axes]
        possible = domain.possible(names)
        assert possible is not None
        flat = possible.reshape(-1)
        assert flat[m.cells].all()
        assert np.array_equal(np.flatnonzero(m.cells == np.arange(len(flat))), np.flatnonzero(flat))
        cells = np.stack(np.unravel_index(np.arange(len(flat)), possible.shape), axis=1)
        fixed = [i for i, n in enumerate(names) if n == "h"]
        for start in np.flatnonzero(~flat):
            far = (cells[flat] != cells[start]).sum(axis=1)
            kept = (cells[flat][:, fixed] == cells[start][fixed]).all(axis=1)
            target = cells[m.cells[start]]
            if kept.any():
                assert (target[fixed] == cells[start][fixed]).all()
                assert (target != cells[start]).sum() == far[kept].min()
            else:
                assert (target != cells[start]).sum() >= far.min()


def test_the_rule_in_full() -> None:
    """The last attribute first, the nearest number, the lower of two, `(other)` last."""
    ages = sf.Integers(0, 4, **OTHER)

    def goes(impossible: list[str], **cells: int) -> tuple[int, ...]:
        attributes = {"age": ages, "sex": sf.Categories(["f", "m"], **OTHER), "place": PLACE}
        domain = sf.Domain(attributes, impossible)
        columns = {i: np.array([cells[n]]) for i, n in enumerate(domain.names)}
        return tuple(int(c[0]) for c in domain.grid.moved(columns).values())

    assert goes(["age == 2 and sex == 'm'"], age=2, sex=1, place=0) == (2, 0, 0)
    assert goes(["age == 2"], age=2, sex=1, place=3) == (1, 1, 3)
    assert goes(["0 <= age <= 2"], age=0, sex=1, place=3) == (3, 1, 3)
    assert goes(["age >= 0"], age=0, sex=1, place=3) == (5, 1, 3)
    assert goes(["age == 4"], age=4, sex=1, place=3) == (3, 1, 3)
    assert goes(["state == '06' and sex == 'm'"], age=4, sex=1, place=0) == (4, 0, 0)
    assert goes(["county == '2'"], age=4, sex=1, place=1) == (4, 1, 0)
    assert goes(["county == '2' and age != 1 or age == 1 and sex != 'f'"], age=3, sex=2, place=1) == (1, 0, 1)


def test_a_domain_with_them_is_stored_and_told_apart() -> None:
    plain, known = (sf.Domain(ATTRIBUTES, texts) for texts in ((), ("a >= 2 and  b",)))
    assert known.impossible == ("a >= 2 and b",)
    assert plain != known
    assert hash(plain) != hash(known)
    assert known == sf.Domain(ATTRIBUTES, ["a >= 2 and b"]) == decode_value(*encode_value(known))
    assert value_fingerprint(plain) != value_fingerprint(known)
    assert "impossible" not in encode_value(plain)[0]
    assert "moves" not in encode_value(plain.grid)[0]
    assert repr(known).endswith("; 1 impossible)")
    with pytest.raises(sf.errors.WorkloadError):
        sf.stack(sf.total(plain), sf.total(known))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("a >= 2", "is a list of predicates"),
        (["a >="], "impossible: expected"),
        (["nobody == 1"], "no attribute is called 'nobody'"),
        ([3], "a predicate must be a non-empty text"),
        (["a >= 2 and not a >= 2"], "holds for no cell"),
        (["b", "b"], "said twice"),
        (["b", "not b"], "leave no cell"),
    ],
)
def test_declarations_that_say_nothing_are_refused(texts: Any, message: str) -> None:
    with pytest.raises(DomainError, match=message):
        sf.Domain(ATTRIBUTES, texts)


def test_groups_too_large_are_refused() -> None:
    wide = {"x": 4000, "y": 4000, "z": 2}
    with pytest.raises(DomainError, match="may have 10,000,000 cells jointly: x has 4,000, y has 4,000, z has 2"):
        sf.Domain(wide, ["x == 1 and z == 1", "y == 1 and z == 1"])
    assert len(sf.Domain(wide, ["x == 1 and z == 1", "y == 1"]).tied) == 2


def test_a_spec_declares_them(tmp_path: Any) -> None:
    text = spec_text(sf.Domain({"b": sf.Booleans(**OTHER), "place": PLACE}, ["b and state == '06'", 'county == "3"']))
    rest = "[privacy]\nrho = '0.5'\nneighbours = 'add-remove'\n[[queries]]\nidentity = ['b']\n"
    path = tmp_path / "spec.toml"
    path.write_text(text + rest)
    assert sf.read_spec(path).domain.impossible == ("b and state == '06'", 'county == "3"')
    for wrong, message in (("impossible = ['c']", "no attribute is called"), ("possible = []", "no such key")):
        path.write_text(text.partition("[domain]")[0] + f"[domain]\n{wrong}\n" + rest)
        with pytest.raises(SpecError, match=rf"line \d+.*{message}"):
            sf.read_spec(path)


def test_what_is_moved_holds_together() -> None:
    """The wall builds these anew. Mutants: a map of too few cells; cells that are not there; one attribute twice."""
    grid = sf.Domain({"x": 2, "y": 3}).grid
    right = Moves((0, 1), np.array([1, 1, 2, 3, 4, 5]))
    assert Grid(grid.names, grid.rules, (right,)).moves == (right,)
    for wrong in ((0, 1, 2), (0, 1, 2, 3, 4, 6), (-1, 1, 2, 3, 4, 5)):
        with pytest.raises(DomainError):
            Grid(grid.names, grid.rules, (Moves((0, 1), np.array(wrong)),))
    for moves in ((right, Moves((1,), np.arange(3))), (Tied(("x",), np.ones(2, dtype=bool)),)):
        with pytest.raises((DomainError, AttributeError)):
            Grid(grid.names, grid.rules, moves)  # pyright: ignore[reportArgumentType]
    for axes in ((), (-1,), (True,), [0]):
        with pytest.raises(DomainError):
            Moves(axes, np.arange(2))  # pyright: ignore[reportArgumentType]


def test_tables_are_mended_as_records_are() -> None:
    """`sf.simulate` looks at the table that a release would see."""
    domain = drawn(3)
    rng = np.random.default_rng(3)
    counts = rng.integers(0, 4, domain.shape)
    expected = np.zeros(domain.shape, dtype=np.int64)
    for cell in itertools.product(*map(range, domain.shape)):
        moved = domain.grid.moved({i: np.array([c]) for i, c in enumerate(cell)})
        expected[tuple(int(moved[i][0]) for i in range(len(cell)))] += counts[cell]
    assert np.array_equal(domain.grid.mended(counts), expected)
