"""Prices of persons whose rows are counted once per group, against all multisets of rows of small tables."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.errors import PlanError
from sfumato.operators import Block, Combination, Identity, Prefix, Residual, Total
from sfumato.privacy import grouped_rows
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies.certificates import exact_sensitivity
from support.grouped import changes_of_persons, drawn_case, largest_changes


def price(blocks, sizes, once_per, rows, each=1, relation="add-remove", power=2):  # type: ignore[no-untyped-def]
    unit = PrivacyUnit(Neighbours(relation), "who", rows, once_per=once_per, rows_per_group=each)
    return exact_sensitivity(blocks, sizes, unit, power).value


def understated(draws: int, seed: int) -> int:
    """How many prices of drawn measurements are below the largest change."""
    random, found = np.random.default_rng(seed), 0
    for _ in range(draws):
        blocks, sizes, once_per, rows, each = drawn_case(random)
        for (relation, power), value in largest_changes(blocks, sizes, once_per, rows, each).items():
            found += price(blocks, sizes, once_per, rows, each, relation, power) < value
    return found


@pytest.mark.parametrize("seed", range(4))
def test_no_price_is_below_the_largest_change(seed: int) -> None:
    assert understated(75, seed) == 0


def test_a_table_over_the_groups_costs_what_its_rows_do_and_a_total_their_square() -> None:
    sizes = {"department": 100, "sex": 2}
    table, whole = Block((("department",),), (Identity(100),)), Block((), ())
    assert price([table], sizes, ("department",), 10) == 10
    assert price([whole], sizes, ("department",), 10) == 100
    assert price([table, whole], sizes, ("department",), 10) == 110
    assert price([table], sizes, ("department",), 10, each=3) == 3 * 9 + 1
    assert price([table], sizes, ("department",), 10, relation="replace-one") == 20
    # more rows than there are groups
    assert price([table], sizes, ("department",), 1000) == 100
    assert price([table], sizes, ("department",), 1000, power=1) == 100


def test_in_a_cell_of_some_of_the_attributes_lie_as_many_rows_as_the_others_have_cells() -> None:
    sizes = {"month": 12, "sex": 2}
    both = ("month", "sex")
    assert price([Block((("month",),), (Identity(12),))], sizes, both, 16) == 8 * 2**2
    assert price([Block((("sex",),), (Identity(2),))], sizes, both, 16) == 12**2 + 4**2
    assert price([Block((both,), (Identity(24),))], sizes, both, 16) == 16


def test_fewer_rows_may_cost_more_than_all() -> None:
    """Residuals of the groups themselves: all groups at once cancel, half of them cost most."""
    sizes, residual = {"department": 30}, [Block((("department",),), (Residual(30),))]
    found = price(residual, sizes, ("department",), 40)
    assert found == max(s * 30 * 29 - s * (s - 1) * 30 for s in range(1, 31)) == 15 * 30 * 15
    assert 30 * 30 * 29 - 30 * 29 * 30 == 0  # what all 30 rows come to


def test_the_price_is_that_of_some_person() -> None:
    """Residuals of the groups' table with its total: some body that exists is as far."""
    sizes = {"d": 4, "e": 2}
    blocks = [Block((("d",),), (Residual(4),)), Block((), ()), Block((("d",), ("e",)), (Residual(4), Total(2)))]
    moved = changes_of_persons(blocks, sizes, ("d",), 3, 1)
    assert price(blocks, sizes, ("d",), 3) == int((moved**2).sum(axis=1).max())


def test_combinations_are_priced_with_what_stands_beside_them() -> None:
    sizes = {"d": 3}
    block = Block((("d",),), (Identity(3),))
    combined = Combination((block,), np.array([[1, -1, 0], [2, 0, 1]]))
    for blocks in ([combined], [combined, block]):
        for (relation, power), value in largest_changes(blocks, sizes, ("d",), 3, 1).items():
            assert price(blocks, sizes, ("d",), 3, 1, relation, power) >= value


def test_it_is_never_dearer_than_rows_anywhere() -> None:
    random = np.random.default_rng(9)
    for _ in range(60):
        blocks, sizes, once_per, rows, each = drawn_case(random)
        for relation in ("add-remove", "replace-one"):
            for power in (1, 2):
                anywhere = exact_sensitivity(blocks, sizes, PrivacyUnit(Neighbours(relation), "who", rows), power)
                assert price(blocks, sizes, once_per, rows, each, relation, power) <= anywhere.value


@pytest.mark.parametrize(
    ("sizes", "once_per", "rows", "true", "pairs"),
    [
        ({"a": 2, "b": 2}, ("a", "b"), 4, 16, 64),
        ({"a": 2, "b": 3}, ("a", "b"), 5, 48, 180),
        ({"a": 3, "b": 4}, ("a", "b"), 5, 360, 600),
    ],
)
def test_phantoms_tell_which_pairs_of_rows_can_lie_together(
    monkeypatch: pytest.MonkeyPatch, sizes: dict[str, int], once_per: tuple[str, ...], rows: int, true: int, pairs: int
) -> None:
    """Residuals of two attributes: not all pairs of rows can differ in both, or in neither. At most 1.25 times too
    dear; `python bench/once_per.py residuals` goes through 1,118 tables."""
    residual = [Block((("a",), ("b",)), (Residual(sizes["a"]), Residual(sizes["b"])))]
    assert largest_changes(residual, sizes, once_per, rows, 1)["add-remove", 2] == true
    assert true <= price(residual, sizes, once_per, rows) <= 1.25 * true

    def none(*_: object) -> int:
        raise PlanError("no phantoms")

    monkeypatch.setattr("sfumato.privacy.grouped_rows.phantom_change", none)
    assert price(residual, sizes, once_per, rows) == pairs


def test_phantoms_prove_whatever_their_weights_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights at random: the price may be dull, and is never too low. Mutant: weights below 0 (the next test)."""
    random = np.random.default_rng(4)
    monkeypatch.setattr(grouped_rows, "_phantom_weights", lambda _, own, *__: random.exponential(1, len(own)).tolist())
    assert understated(40, 11) == 0


def test_phantoms_below_nothing_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the brute force could find a phantom that takes away what is there."""
    monkeypatch.setattr(grouped_rows, "_phantom_weights", lambda _, own, *__: [-1.0] * len(own))
    monkeypatch.setattr("sfumato.privacy.grouped_rows.grouped_change", lambda *_: 2**60)
    monkeypatch.setattr("sfumato.privacy.grouped_rows.paired_change", lambda *_: 2**60)
    assert understated(40, 11) > 0


def test_the_largest_columns_of_the_groups_are_what_laplace_noise_hides() -> None:
    """Prefixes have columns of 20, 19, ... Mutants: the largest column for all; rows of one more group left out."""
    sizes, prefix = {"age": 20, "sex": 2}, Block((("age",),), (Prefix(20),))
    assert price([prefix], sizes, ("age",), 5, power=1) == 20 + 19 + 18 + 17 + 16
    assert price([prefix], sizes, ("age",), 5, each=2, power=1) == 2 * (20 + 19) + 18
    # of persons who are replaced, five rows anywhere tell as much: all at one end, or none
    assert price([prefix], sizes, ("age",), 5, power=1, relation="replace-one") == 5 * 20
    assert price([prefix], sizes, ("sex",), 5, power=1) == 2 * 20
    both = Block((("age",), ("sex",)), (Prefix(20), Identity(2)))
    assert price([both, prefix], sizes, ("age",), 3, power=1) == 2 * (20 + 19 + 18)


def test_attributes_that_are_not_there_are_refused() -> None:
    with pytest.raises(PlanError, match="once_per names ward; the domain has d"):
        price([Block((("d",),), (Identity(3),))], {"d": 3}, ("ward",), 3)


# ---- what the brute force must find ----------------------------------------------------------------------


def test_all_rows_alone_are_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A price of the largest number of rows, instead of the worst, is understated."""

    def all_rows(own: int, joint: int, unit: PrivacyUnit, groups: tuple[int, int]) -> int:
        full, rest = groups
        each = unit.rows_per_group
        return (full * each**2 + rest**2) * own + (full * each + rest) ** 2 * joint

    monkeypatch.setattr(grouped_rows, "_largest_over_rows", all_rows)
    residual = [Block((("d",),), (Residual(4),))]
    assert price(residual, {"d": 4}, ("d",), 6) < largest_changes(residual, {"d": 4}, ("d",), 6, 1)["add-remove", 2]


def test_products_of_different_groups_are_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouped_rows, "_largest_product", lambda *_: 0)
    assert understated(20, 0) > 0


def test_a_replaced_person_is_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the factor of two rows' worth under replaced persons the price is understated."""
    whole = grouped_rows.grouped_change

    def one(products, unit, sizes):  # type: ignore[no-untyped-def]
        return whole(products, PrivacyUnit("add-remove", "who", unit.rows_per_person, None, unit.once_per,
                                           unit.rows_per_group), sizes)  # fmt: skip

    monkeypatch.setattr("sfumato.privacy.grouped_rows.grouped_change", one)
    assert understated(20, 0) > 0
