"""The wall: nothing is read before it can be paid for, nothing is believed that can be derived, only noise comes out.

Every test names the mutants that it was seen to fail on.
"""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections.abc import Callable
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.curator import Curator, curator
from sfumato.curator import curator as holding
from sfumato.curator.rows import counting
from sfumato.maps import AlikeMap, BlockMap, DenseMap, FamilyMap
from sfumato.maps.structured import RangesMap
from sfumato.operators import (
    AllRange,
    Block,
    Dense,
    Family,
    Identity,
    Kronecker,
    LinearOperator,
    Prefix,
    Residual,
    Scaled,
    Total,
)
from sfumato.privacy.accounting import Event, GaussianEvent, PureEvent, ZcdpEvent
from sfumato.privacy.certified_sums import Products
from sfumato.privacy.noise import DiscreteGaussian, DiscreteLaplace, NoiseLaw, RoundedGaussian
from sfumato.privacy.replaced import Certificate
from sfumato.privacy.sensitivity import Sensitivity
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies.certificates import exact_sensitivity, find_certificate
from support.insecure_bits import InsecureTestBits
from support.wall import COUNTS, DOMAIN, OTHER, TABLE, WORK, Touched, Untouchable, plan, with_unit

ROOT = Path(__file__).parents[2]
ADD_REMOVE = PrivacyUnit(Neighbours.ADD_REMOVE)
LINE = sf.Domain({"a": sf.Integers(0, 3)})
CELLS = Block((("a",),), (Identity(4),))


def line_curator(ledger: sf.Ledger | None = None, unit: PrivacyUnit = ADD_REMOVE, source: Any = None) -> Curator:
    counts = sf.Histogram([1, 2, 3, 4]) if source is None else source
    return Curator(counts, LINE, unit, ledger or sf.Ledger.in_memory(sf.zcdp(10**6)))


# ---- nothing is read that cannot be paid for -------------------------------------------------------------


def _twice_measured(found: sf.Plan) -> sf.Plan:
    strategy: Any = found.strategy
    return replace(found, strategy=replace(strategy, multiples=tuple(2 * m for m in strategy.multiples)))


def _dropping(found: sf.Plan) -> sf.Plan:
    domain = sf.Domain({"a": sf.Integers(0, 4, outside="drop", missing="drop"), "b": DOMAIN["b"]})
    work = sf.Workload(domain, found.workload.blocks)
    return with_unit(replace(found, workload=work), neighbours=Neighbours.REPLACE_ONE)


def _larger_domain(found: sf.Plan) -> sf.Plan:
    domain = sf.Domain({"a": sf.Integers(0, 9, **OTHER), "b": DOMAIN["b"]})
    return replace(found, workload=sf.marginals(domain, upto=2))


def _less(price: Event) -> Event:
    return GaussianEvent(price.mu_squared * Fraction(999, 1000)) if isinstance(price, GaussianEvent) else price


TAMPERED: dict[str, tuple[Callable[[sf.Plan], sf.Plan], str]] = {
    "more is measured": (_twice_measured, "another sensitivity"),
    "more is measured, and said so": (
        lambda p: replace(_twice_measured(p), sensitivity=replace(p.sensitivity, value=4 * p.sensitivity.value)),
        "costs more than the price",
    ),
    "less noise": (lambda p: replace(p, noise=RoundedGaussian(p.noise.sigma / 2)), "costs more"),  # type: ignore[attr-defined]
    "another noise law": (lambda p: replace(p, noise=DiscreteGaussian(2**40)), "costs more"),
    "a lower price": (lambda p: replace(p, price=_less(p.price)), "costs more"),
    "a lower price and budget": (lambda p: replace(p, price=_less(p.price), budget=sf.gdp("0.9995")), "costs more"),
    "a higher price": (lambda p: replace(p, price=GaussianEvent(Fraction(101, 100))), "above the budget"),
    "a lower budget": (lambda p: replace(p, budget=sf.gdp("0.99")), "above the budget"),
    "a price of another kind": (lambda p: replace(p, price=PureEvent(Fraction(1, 2))), "costs more"),
    "no price": (lambda p: replace(p, price=GaussianEvent(Fraction(0))), "costs more"),
    "a smaller sensitivity": (lambda p: replace(p, sensitivity=Sensitivity(2, 1, True)), "another sensitivity"),
    "other neighbours": (lambda p: with_unit(p, neighbours=Neighbours.REPLACE_ONE), "another sensitivity"),
    "more rows a person": (lambda p: with_unit(p, person="who", rows_per_person=2), "another sensitivity"),
    "replace-one of dropped rows": (_dropping, "drops rows"),
    "a larger domain": (_larger_domain, "cannot be carried out|needs 4 columns|columns, not"),
    "no strategy": (lambda p: replace(p, strategy=p.workload), "the plan's strategy is a Workload"),  # type: ignore[arg-type]
    "nothing measured": (lambda p: replace(p, strategy=replace(p.strategy, sets=(), multiples=())), "cannot be"),  # type: ignore[type-var]
}


@pytest.mark.parametrize("how", TAMPERED)
def test_a_tampered_plan_is_refused_before_the_table_is_touched(how: str, tmp_path: Path) -> None:
    """As it stands and from its file.

    Mutants: the plan's price, sensitivity or budget believed; the table opened before the price is derived.
    """
    tamper, message = TAMPERED[how]
    tampered = tamper(plan())
    tampered.save(tmp_path / "p.plan")
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(100))
    before = (tmp_path / "l.db").read_bytes()
    with pytest.raises((sf.errors.PlanError, sf.errors.WorkloadError), match=message):
        sf.release(tampered, Untouchable(), ledger=ledger, out=tmp_path / "new/r")
    refused = (sf.errors.InvalidInput, sf.errors.PlanError, sf.errors.WorkloadError)
    with pytest.raises(refused, match=f"{message}|contradicts itself|no Strategy"):  # many a file is not even loaded
        sf.release(sf.load(tmp_path / "p.plan"), Untouchable(), ledger=ledger, out=tmp_path / "new/r")
    assert (tmp_path / "l.db").read_bytes() == before
    assert {f.name for f in tmp_path.iterdir()} == {"p.plan", "l.db"}


def test_a_plan_that_could_not_be_stored_is_refused_before_it_is_paid_for() -> None:
    """Mutants: a plan of a derived class, or with a foreign value in it, found out when its release is written."""

    class Derived(sf.Plan):
        pass

    made = plan()
    values = {f.name: getattr(made, f.name) for f in fields(made)}
    ledger = sf.Ledger.in_memory(sf.gdp(100))
    for wrong in (Derived(**values), replace(made, notes=(object(),))):  # type: ignore[arg-type]
        with pytest.raises(sf.errors.PlanError):
            sf.release(wrong, Untouchable(), ledger=ledger)
    assert ledger.entries() == ()


def test_an_honest_plan_is_carried_out_from_its_file(tmp_path: Path) -> None:
    """The control of the test above: the same road without tampering reaches the table, and then the release."""
    plan().save(tmp_path / "p.plan")
    loaded = sf.load(tmp_path / "p.plan")
    ledger = sf.Ledger.in_memory(sf.gdp(100))
    with pytest.raises(Touched):
        sf.release(loaded, Untouchable(), ledger=ledger)
    assert ledger.entries() == ()
    found = sf.release(loaded, TABLE, ledger=ledger)
    assert np.abs(found.answers - WORK.answer(COUNTS)).max() < 100


def test_what_the_ledger_would_not_pay_is_refused_before_the_table_is_touched(tmp_path: Path) -> None:
    """Mutant: the ledger asked only at the debit, when the table was read."""
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(1))
    with pytest.raises(sf.BudgetExceeded):
        sf.release(plan(sf.gdp("1.0000000001")), Untouchable(), ledger=ledger)
    with pytest.raises(sf.errors.BudgetError, match="no price"):
        sf.release(
            plan(sf.zcdp("0.1"), mechanism=sf.mechanisms.auto(noise="discrete-gaussian")), Untouchable(), ledger=ledger
        )
    for name in ("", "a/b", " a", "x" * 129, 5):
        with pytest.raises(sf.errors.InvalidInput, match="name"):
            sf.release(plan(), Untouchable(), ledger=ledger, name=name)  # type: ignore[arg-type]
    sf.release(plan(sf.gdp("0.5")), TABLE, ledger=ledger, name="n")
    with pytest.raises(sf.errors.NameTaken):
        sf.release(plan(), Untouchable(), ledger=ledger, name="n")
    for whole in (ledger.entries(), sf.Ledger(tmp_path / "l.db").entries()):
        assert [e.name for e in whole if e.kind == "spend"] == ["n"]
    damaged = bytearray((tmp_path / "l.db").read_bytes())
    place = damaged.rfind(b"gaussian 1/4")
    damaged[place : place + 12] = b"gaussian 1/9"
    (tmp_path / "l.db").write_bytes(damaged)
    with pytest.raises(sf.errors.LedgerCorrupted):
        sf.release(plan(sf.gdp("0.1")), Untouchable(), ledger=tmp_path / "l.db", name="m")


def test_what_cannot_be_computed_is_refused_before_it_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: no dry run; no limit to cells or values: counting, operators or memory then refuse after the debit."""
    wide = sf.Domain({"a": sf.Integers(0, 5_999), "b": sf.Integers(0, 11_999)})
    ledger = sf.Ledger.in_memory(sf.gdp(100))
    # what the wall cannot lower is not planned either
    with pytest.raises(sf.errors.PlanError, match="too many to be measured"):
        sf.plan(sf.ranges(wide, "a"), sf.gdp(1), neighbours="add-remove", strategy="queries")
    holder = Curator(Untouchable(), wide, ADD_REMOVE, ledger)
    ranges = Block((("a",),), (AllRange(6_000),))
    with pytest.raises(sf.errors.PlanError, match="too many to be measured"):
        holder.measure([ranges], RoundedGaussian(1), GaussianEvent(Fraction(10**9)), name="n", plan_hash="h")
    joint = Block((("a",), ("b",)), (Total(6_000), Total(12_000)))
    pairs = Block((("a",), ()), (AllRange(6_000), Dense(np.ones((28, 1)))))
    for block, message in ((joint, "at most 67,108,864 can be counted"), (pairs, "504,084,000 values would be")):
        with pytest.raises(sf.errors.PlanError, match=message):
            holder.measure([block], RoundedGaussian(1), GaussianEvent(Fraction(1)), name="n", plan_hash="h")

    def refuses(*_: Any) -> Any:
        raise sf.errors.WorkloadError("there is no memory")

    monkeypatch.setattr("sfumato.maps.base._CHECKED_ENTRIES", 0)
    monkeypatch.setattr(RangesMap, "apply", refuses)
    family = Family(wide.names, (Prefix(6_000), Identity(12_000)), np.array([[0]]))
    for sums in (Block((("a",),), (Prefix(6_000),)), family):
        with pytest.raises(sf.errors.WorkloadError, match="no memory"):
            holder.measure([sums], RoundedGaussian(1), GaussianEvent(Fraction(10**4)), name="n", plan_hash="h")
    assert ledger.entries() == ()


def test_a_wrong_certificate_is_refused_before_the_table_is_touched() -> None:
    """A chain of pairs over six attributes under replace-one, at exactly its price: its own certificate pays, no other.

    Mutants: a certificate's bound believed; the price of the plan believed where there is a certificate; a clique that
    is left out forgotten; classes not looked at; a certificate that does not fit passed over.
    """
    names = tuple(f"a{i}" for i in range(6))
    sizes = dict(zip(names, range(2, 8), strict=True))
    pairs = np.array([(i, i + 1) for i in range(5)])
    chain = [Family(names, tuple(map(Residual, sizes.values())), pairs)]
    unit = PrivacyUnit(Neighbours.REPLACE_ONE)
    found = exact_sensitivity(chain, sizes, unit, 2)
    proof = find_certificate(chain, sizes, unit, 2)
    assert proof is not None
    assert proof.method == "classes"
    cliques = tuple((((i, i + 1), (i + 1,)) if i < 4 else ((4, 5), ())) for i in range(5))
    right = [proof, Certificate("cliques", cliques=cliques)]
    wrong = [
        *(Certificate("cliques", cliques=cliques[:i] + cliques[i + 1 :]) for i in range(5)),
        Certificate("cliques", cliques=tuple((scope, ()) for scope, _ in cliques)),
        Certificate("classes", (0,) * len(proof.classes)),
        Certificate("classes", proof.classes[1:]),
        Certificate("products", products=Products((1,) * 6, (0, 0, 0), 0)),
        *(Certificate("products"), Certificate("apart"), Certificate("cells"), Certificate("guess"), None),  # type: ignore[arg-type]
    ]
    domain = sf.Domain({n: sf.Integers(0, k - 1) for n, k in sizes.items()})
    ledger = sf.Ledger.in_memory(sf.gdp(10**6))
    held = Curator(Untouchable(), domain, unit, ledger)
    price = GaussianEvent(Fraction(found.value))

    def paid(by: Certificate | None, stated: Sensitivity | None) -> None:
        held.measure(chain, RoundedGaussian(1), price, name="n", plan_hash="h", stated=stated, certificate=by)

    for proof, stated in itertools.product(right, (found, None)):
        with pytest.raises(Touched):  # paid for, so the table is opened
            paid(proof, stated)
    for other, stated in (*itertools.product(wrong, (found, None)), *((g, replace(found, value=1)) for g in right)):
        with pytest.raises(sf.errors.PlanError):
            paid(other, stated)
    assert ledger.entries() == ()


class Cheap(AlikeMap):
    """A map that states half of what its columns hold."""

    def column_sums(self, power: int) -> Any:
        return super().column_sums(power) // 2


@pytest.mark.parametrize(
    "made",
    [lambda: BlockMap((("a",),), (Cheap(4, 2),)), lambda: Block((("a",),), (Scaled(Identity(4), 2),)), lambda: None],
)
def test_what_lowers_is_not_believed(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: maps taken as they were handed over; a lowered block that is none of maps."""
    monkeypatch.setattr(Block, "lowered", lambda _: made())
    ledger = sf.Ledger.in_memory(sf.gdp(100))
    with pytest.raises(sf.errors.PlanError):
        line_curator(ledger, source=Untouchable()).measure(
            [CELLS], RoundedGaussian(1), GaussianEvent(Fraction(2)), name="n", plan_hash="h"
        )
    assert ledger.entries() == ()


# ---- the price is derived --------------------------------------------------------------------------------

FACTORS: list[LinearOperator] = [
    *(Identity(4), Total(4), Prefix(4), Scaled(Prefix(4), -3), AllRange(4)),
    *(Dense([[2, -1, 0, 5], [1, 1, -7, 1]]), Dense(np.ones((5, 4))), Kronecker((Prefix(2), Dense([[1, -1]])))),
]


def brute(blocks: list[Block], unit: PrivacyUnit, power: int) -> int:
    """The largest change over all pairs of neighbours, from dense matrices and the definition."""
    matrix = np.vstack([np.asarray(b.operator.dense(), dtype=object) for b in blocks])
    columns = [tuple(matrix[:, j]) for j in range(matrix.shape[1])]
    none = (0,) * len(matrix)
    pairs = [(none, c) for c in columns]
    if unit.neighbours is Neighbours.REPLACE_ONE:
        pairs = [*itertools.product(columns, repeat=2), *(pairs if unit.person else [])]
    return max(sum(abs(x - y) ** power for x, y in zip(*p, strict=True)) for p in pairs) * unit.rows_per_person**power


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(FACTORS), min_size=1, max_size=3),
    st.sampled_from(list(Neighbours)),
    st.sampled_from([0, 1, 3]),  # 0: rows are the unit
    st.sampled_from(["gaussian", "laplace", "discrete"]),
    st.sampled_from([Fraction(7, 2), Fraction(1000)]),
)
def test_the_curator_accepts_exactly_what_the_price_pays_for(
    factors: list[LinearOperator], relation: Neighbours, rows: int, law: str, scale: Fraction
) -> None:
    """Mutants: row sums for column norms; replace-one priced as add-remove; the zero column forgotten for persons;
    rows_per_person for its square; `<` for `<=`; rho for 2 rho; blocks priced one by one."""
    blocks = [Block((("a",),), (f,)) for f in factors]
    unit = PrivacyUnit(relation, "who" if rows else None, rows or 1)
    size = brute(blocks, unit, 1 if law == "laplace" else 2)
    assume(size > 0)
    noise: NoiseLaw
    if law == "laplace":
        noise, price, less = DiscreteLaplace(scale), PureEvent(size / scale), PureEvent((size - 1) / scale)
    elif law == "discrete":
        noise = DiscreteGaussian(scale)
        price, less = (ZcdpEvent(Fraction(s) / (2 * scale**2)) for s in (size, size - Fraction(1, 10**9)))
    else:
        noise = RoundedGaussian(scale)
        price, less = (GaussianEvent(Fraction(s) / scale**2) for s in (size, size - Fraction(1, 10**9)))
    ledger = sf.Ledger.in_memory(sf.zcdp(10**9))
    untouched = line_curator(ledger, unit, Untouchable())
    with pytest.raises(sf.errors.PlanError, match="costs more"):
        untouched.measure(blocks, noise, less, name="n", plan_hash="h")
    assert ledger.entries() == ()
    with pytest.raises(Touched):
        untouched.measure(blocks, noise, price, name="n", plan_hash="h")


class Understated(LinearOperator):
    """A user's operator with a wrong idea of its own columns."""

    shape = (4, 4)  # type: ignore[assignment]
    integral = True  # type: ignore[assignment]
    max_abs = 1000  # type: ignore[assignment]

    def apply(self, vectors: Any) -> Any:
        return 1000 * vectors

    apply_transpose = apply

    def column_sums(self, power: int) -> Any:
        return np.ones(4, dtype=object)


class Quiet(RoundedGaussian):
    """A law that says it has noise."""

    def sample(self, size: int, source: Any = None) -> Any:
        return np.zeros(size, dtype=np.int64)


class Modest(Block):
    """A block that is priced by its factors and applies something else."""

    @property
    def operator(self) -> LinearOperator:
        return Scaled(Identity(4), 1000)


class Free(GaussianEvent):
    """A price that tells the ledger something else."""


@pytest.mark.parametrize(
    ("block", "noise", "price"),
    [
        (Block((("a",),), (Understated(),)), RoundedGaussian(1), GaussianEvent(Fraction(1))),
        (Block((("a",),), (Scaled(Understated(), 1),)), RoundedGaussian(1), GaussianEvent(Fraction(1))),
        (CELLS, Quiet(Fraction(1)), GaussianEvent(Fraction(1))),
        (Modest((("a",),), (Identity(4),)), RoundedGaussian(1), GaussianEvent(Fraction(1))),
        (CELLS, RoundedGaussian(1), Free(Fraction(1))),
    ],
    ids=["operator", "operator inside", "noise", "block", "price"],
)
def test_foreign_classes_are_not_believed(block: Block, noise: NoiseLaw, price: Event) -> None:
    """Mutant: `_own` left out: an operator, law, block or price of the caller then says what it likes."""
    ledger = sf.Ledger.in_memory(sf.gdp(100))
    with pytest.raises(sf.errors.PlanError, match="library's own"):
        line_curator(ledger, source=Untouchable()).measure([block], noise, price, name="n", plan_hash="h")
    assert ledger.entries() == ()


class Amount:
    """A number that says once that it is a flag, of which no copy is made, and then a fraction of any size."""

    numerator, denominator = _numerator, _denominator = 0, 1
    asked = 0

    @property
    def __class__(self) -> Any:
        self.asked += 1
        return bool if self.asked == 1 else Fraction

    def __mul__(self, other: Any) -> Any:
        return self

    def __lt__(self, other: Any) -> bool:
        return False

    def __ge__(self, other: Any) -> bool:
        return True

    __gt__ = __lt__

    def __str__(self) -> str:
        return "0"


def test_of_what_class_a_value_is_it_does_not_say_itself() -> None:
    """Mutant: values told apart by isinstance, which believes `__class__`: exact counts then came out for nothing."""
    price, ledger = GaussianEvent(Fraction(1)), sf.Ledger.in_memory(sf.gdp("1e-9"))
    object.__setattr__(price, "mu_squared", Amount())
    with pytest.raises(sf.errors.PlanError, match="library's own"):
        line_curator(ledger, source=Untouchable()).measure(
            [CELLS], RoundedGaussian(Fraction(1, 2**10)), price, name="n", plan_hash="h"
        )
    assert ledger.entries() == ()


def test_who_proposes_what_is_counted_changes_nothing_that_was_priced() -> None:
    """Of two sets one costs nothing, and is exchanged for the other, of which its multiple would cost 2^60.

    Mutant: the sets that are measured handed to whoever proposes what is counted.
    """

    def packing(shape: Any, sets: Any, rows: int) -> Any:
        sets[0][0] = 1
        return counting.one_block_per_set(shape, sets, rows)

    free = DenseMap(np.zeros((2, 2), dtype=np.int64))
    asked = FamilyMap(("a", "b"), (free, AlikeMap(2)), np.array([[0], [1]], dtype=np.int32), np.array([2**30, 1]))
    domain = sf.Domain({name: sf.Integers(0, 0, outside="other", missing="other") for name in ("a", "b")})
    frame = pd.DataFrame({"a": [0] * 9, "b": [0] * 4 + [5] * 5})
    held = Curator(frame, domain, ADD_REMOVE, sf.Ledger.in_memory(sf.gdp(1)), packing=packing)
    found, _ = held.measure([asked], RoundedGaussian(1), GaussianEvent(Fraction(1)), name="n", plan_hash="h")
    assert np.abs(found.values[0]).max() < 100


def test_a_foreign_operator_may_be_asked_and_is_measured_as_its_matrix() -> None:
    """Mutant: `as_operator` passes it on; its release is then refused, or priced by its own word."""
    found = sf.plan(sf.queries(Understated(), LINE), sf.gdp(1), neighbours="add-remove", mechanism="gaussian")
    assert found.rmse == pytest.approx(1000, rel=1e-3)
    assert len(sf.release(found, sf.Histogram([1, 2, 3, 4]), ledger=None).answers) == 4


def test_a_block_altered_after_its_birth_is_built_anew() -> None:
    """Mutant: `_own` left out: the curator then measures what no constructor would have let pass."""
    block = Block((("a",),), (Scaled(Identity(4), 1),))
    object.__setattr__(block.factors[0], "factor", True)
    with pytest.raises(sf.errors.PlanError, match="True"):
        line_curator().measure([block], RoundedGaussian(1), GaussianEvent(Fraction(1)), name="n", plan_hash="h")


# ---- the order of steps ----------------------------------------------------------------------------------


def test_debit_then_look_then_noise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Mutants: the debit after the look; noise drawn before the debit; encoding after the debit."""
    steps: list[str] = []

    def note(owner: Any, name: str, step: str) -> None:
        real = getattr(owner, name)

        def noted(*args: Any, **options: Any) -> Any:
            steps.append(step)
            return real(*args, **options)

        monkeypatch.setattr(owner, name, noted)

    note(curator, "certified_bound", "price")
    note(holding, "open_source", "read the table")
    note(sf.Ledger, "debit", "debit")
    note(counting.TensorCounts, "_tables", "look")
    note(NoiseLaw, "sample", "noise")
    note(sf.Ledger, "mark_released", "record")
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(100))
    sf.release(plan(), TABLE, ledger=ledger, out=tmp_path / "r")
    # one draw for every few tables
    assert [s for s, _ in itertools.groupby(steps)] == ["price", "read the table", "debit", "look", "noise", "record"]


def test_a_debit_is_on_disk_before_the_look(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Mutants: the debit after the look; what failed, or its text, passed on; a class that says nothing was spent."""

    def explode(*_: Any) -> Any:
        seen.append([e.name for e in sf.Ledger(tmp_path / "l.db").unreleased()])
        raise RuntimeError("7 persons of 4321")

    seen: list[list[str]] = []
    monkeypatch.setattr(counting.TensorCounts, "_tables", explode)
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(100))
    with pytest.raises(sf.errors.NotWritten, match="entry 1") as failure:
        sf.release(plan(), TABLE, ledger=ledger, name="n", out=tmp_path / "r")
    assert seen == [["n"]]
    assert "4321" not in str(failure.value)
    assert failure.value.__context__ is None
    assert [e.name for e in ledger.unreleased()] == ["n"]
    assert ledger.spent == 1
    assert not (tmp_path / "r").exists()


# ---- what comes out ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("budget", [sf.gdp(1), sf.pure(1)], ids=str)
def test_only_integers_and_a_public_total_come_out(budget: sf.Budget, relation: str) -> None:
    """Mutants: floats measured; the number of records beside an add-remove release, or where persons hold several."""
    found = sf.release(plan(budget, relation), TABLE, ledger=None).measurement
    assert all(v.dtype == np.int64 and v.shape == (b.rows,) for b, v in zip(found.blocks, found.values, strict=True))
    assert found.total == (sum(COUNTS) if relation == "replace-one" else None)
    with pytest.raises(sf.errors.InvalidInput, match="int64"):
        replace(found, values=tuple(v.astype(float) for v in found.values))


def test_the_total_of_persons_stays_inside() -> None:
    """Mutants: `total_is_public` for every replace-one, or for persons of one row: the nameless are not counted."""
    import pandas as pd

    people = pd.DataFrame({"who": ["p", "p", "q", None], "a": [0, 1, 2, 3], "b": ["x", "y", "x", "y"]})
    for rows in (1, 2):
        found = plan(neighbours="replace-one", person="who", rows_per_person=rows)
        assert sf.release(found, people, ledger=None).measurement.total is None
    assert sf.release(plan(neighbours="replace-one"), people, ledger=None).measurement.total == 4


def test_arithmetic_wraps_without_a_word_on_any_data() -> None:
    """Mutants: a cast from float, which saturates; scalar arithmetic, which warns; a check of the counts' size."""
    # the last rows come to the ends of the words, so that noise of either sign carries them over
    ends = [[0, 0, 2**61, 2**61], [0, 0, 2**61, 2**61 - 1]] * 8
    rows = [[2**40, 1, 3, 2**62], [1, -(2**61), 0, 5], *ends]
    full, empty = [2**51, 2**51 + 7, 3, 1], [0, 0, 0, 0]
    seen: list[list[int]] = []
    for counts in (full, empty):
        ledger, bits = sf.Ledger.in_memory(sf.gdp(10**9)), InsecureTestBits(5)
        holder = Curator(sf.Histogram(counts), LINE, ADD_REMOVE, ledger, insecure_bits=bits)
        price, block = GaussianEvent(Fraction(2**127, 2**100)), Block((("a",),), (Dense(rows),))
        with warnings.catch_warnings(), np.errstate(all="raise"):
            warnings.simplefilter("error")
            found, _ = holder.measure([block], RoundedGaussian(2**50), price, name="n", plan_hash="h")
        seen.append(found.values[0].tolist())
    exact = [sum(a * n for a, n in zip(row, full, strict=True)) for row in rows]
    assert max(map(abs, exact)) > 2**64
    assert all((one - zero - e) % 2**64 == 0 for one, zero, e in zip(*seen, exact, strict=True))


def test_reproducible_bits_are_out_of_reach(tmp_path: Path) -> None:
    """Mutants: a seed in sf.release; a durable ledger that takes reproducible bits."""
    taken = " ".join(inspect.signature(sf.release).parameters)
    assert taken == "plan source ledger name out table snapshot publication progress"
    users = [p.name for p in (ROOT / "src").rglob("*.py") if "insecure" in p.read_text(encoding="utf-8")]
    assert users == ["curator.py"]
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(100))
    with pytest.raises(sf.errors.PlanError, match="for tests"):
        Curator(TABLE, DOMAIN, ADD_REMOVE, ledger, insecure_bits=InsecureTestBits(1))


def test_a_curator_shows_no_count() -> None:
    """Mutant: a default repr."""
    holder, cells = Curator(TABLE, DOMAIN, ADD_REMOVE, sf.Ledger.in_memory(sf.gdp(9))), Block((("b",),), (Identity(3),))
    found, _ = holder.measure([cells], RoundedGaussian(1), GaussianEvent(Fraction(1)), name="n", plan_hash="h")
    shown = f"{holder!r}{holder._holding!r}{holder._holding.counts!r}{found!r}{TABLE!r}"
    assert not any(str(n) in shown for n in (sum(COUNTS), *np.reshape(COUNTS, (5, 3)).sum(axis=0)))
