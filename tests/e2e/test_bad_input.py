"""The corpus of bad input on the whole road, as a table: case, class, what it raises.

R: refused before any debit, naming the public cause, exit code 2. X: refused, the ledger untouched. T: total rules of
the schema, never an error; C: an error of loading, for the custodian. In every case the ledger's file stays as it is
to the last byte and the table is not touched.

More of the corpus, closer to the code: names, codes, edges and policies in unit/test_domain.py and
unit/workloads/test_schema.py; T and C in unit/curator/test_encoding.py, test_sources.py and e2e/test_neighbours.py;
predicates in unit/workloads/test_predicates.py; spec files in unit/test_specs.py; numbers of budgets in
unit/privacy/test_budget.py; ledger files in unit/privacy/test_ledger.py and test_ledger_tampering.py.
"""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import sfumato as sf
from support.wall import DOMAIN, OTHER, TABLE, WORK, Untouchable, plan
from support.words import plan_with

LINE = sf.Domain({"a": 4})
EYE = sf.queries(np.eye(4), LINE)


@dataclass(frozen=True)
class Place:
    """A folder with a ledger in it, and how a case releases."""

    folder: Path
    ledger: sf.Ledger

    def release(self, found: Any = None, source: Any = None, **options: Any) -> sf.Release:
        table = Untouchable() if source is None else source
        return sf.release(found or plan(), table, **({"ledger": self.ledger} | options))


Case = tuple[str, str, Callable[[Place], object], type[Exception]]


def _planned(**options: Any) -> Callable[[Place], object]:
    return lambda _: plan_with(**({"what": WORK, "budget": sf.gdp(1), "neighbours": "add-remove"} | options))


def _asked(make: Callable[[], object]) -> Callable[[Place], object]:
    return lambda _: make()


def _stored_badly(content: bytes) -> Callable[[Place], object]:
    def load(place: Place) -> object:
        (place.folder / "bad.plan").write_bytes(content)
        try:
            return sf.load(place.folder / "bad.plan")
        finally:
            (place.folder / "bad.plan").unlink()

    return load


def _zipped(**parts: bytes) -> Callable[[Place], object]:
    def load(place: Place) -> object:
        with zipfile.ZipFile(place.folder / "bad.plan", "w", zipfile.ZIP_DEFLATED) as bundle:
            for name, content in parts.items():
                bundle.writestr(name.replace("_", "."), content)
        try:
            return sf.load(place.folder / "bad.plan")
        finally:
            (place.folder / "bad.plan").unlink()

    return load


def _out(make: Callable[[Path], object]) -> Callable[[Place], object]:
    return lambda place: place.release(out=make(place.folder))


def _objects() -> bytes:
    import io

    handle = io.BytesIO()
    np.save(handle, np.array([print], dtype=object), allow_pickle=True)
    return handle.getvalue()


def _each(
    name: str, make: Callable[[Any], object], values: list[Any], error: Any = sf.errors.BudgetError
) -> list[Case]:
    return [(f"{name} {v!r}", "R", _asked(partial(make, v)), error) for v in values]


BUDGETS: list[Case] = [
    *_each("epsilon", sf.pure, [0, -1, "nan", "inf", "1e999", True, None, "", "1_0", "１", 1j]),
    *_each("rho", sf.zcdp, [float("nan"), Decimal("-0.1"), [1]]),
    *_each("delta", partial(sf.approx, 1), [0, 1, -0.5, 2, True, "x"]),
    ("epsilon and rho", "R", _asked(lambda: sf.Budget.from_json({"epsilon": "1", "rho": "1"})), sf.errors.BudgetError),
    ("Gaussian without delta", "R", _planned(budget=sf.pure(1), noise="gaussian"), sf.SfumatoError),
    ("discrete Gaussian for gdp", "R", _planned(noise="discrete-gaussian"), sf.errors.BudgetError),
    ("confidence 95", "R", lambda _: plan().errors(95), sf.errors.InvalidInput),
    ("confidence True", "R", lambda _: plan().errors(True), sf.errors.InvalidInput),
    ("a seed", "R", lambda place: place.release(seed=1), TypeError),
    ("a random state", "R", lambda place: place.release(random_state=1), TypeError),
    ("a ledger of a number", "R", lambda place: place.release(ledger=7), sf.errors.InvalidInput),
    ("no ledger said", "R", lambda _: sf.release(plan(), Untouchable()), TypeError),  # type: ignore[call-arg]
    ("over by 1e-30", "X", lambda p: p.release(plan(sf.zcdp(Fraction(1, 2) + Fraction(1, 10**30)))), sf.BudgetExceeded),
    ("far over", "X", lambda place: place.release(plan(sf.gdp(100))), sf.BudgetExceeded),
    ("no price in it", "X", lambda place: place.release(plan(sf.gdp(1)), ledger=_pure(place)), sf.errors.BudgetError),
]


def _pure(place: Place) -> sf.Ledger:
    return sf.Ledger.in_memory(sf.pure(9))


def _refused(option: str, values: list[Any], **others: Any) -> list[Case]:
    return [(f"{option} {v!r}", "R", _planned(**{option: v}, **others), sf.errors.PlanError) for v in values]


_given = partial(_planned, what=EYE, strategy=np.eye(4))
PLANS: list[Case] = [
    ("neighbours unsaid", "R", _asked(lambda: sf.plan(WORK, sf.gdp(1))), sf.errors.PlanError),  # type: ignore[call-overload]
    *_refused("neighbours", ["bounded", "", None, True, "ADD"]),
    *_refused("mechanism", ["mwem", "", "Laplace", "pmw"]),
    *_refused("objective", ["worst", ""]),
    *_refused("noise", ["normal", ""]),
    *_refused("records", [0, -1, 1.5, True, "7"]),
    *_refused("rows_per_person", [0, -1, True, "2", 10**9], person="who"),
    ("rows without a person", "R", _planned(rows_per_person=2), sf.errors.PlanError),
    ("no workload", "R", _planned(what=np.eye(3)), sf.errors.PlanError),
    ("no budget", "R", _planned(budget=1.0), sf.errors.PlanError),
    ("a reconstruction alone", "R", _planned(reconstruction=np.eye(4)), sf.errors.PlanError),
    ("a strategy of another domain", "R", _planned(strategy=np.eye(4)), sf.SfumatoError),
    ("outside the span", "R", _planned(what=EYE, strategy=np.eye(4)[:2]), sf.errors.NotInRowSpace),
    (
        "a wrong reconstruction",
        "R",
        _given(reconstruction=2 * np.eye(4)),
        sf.errors.NotInRowSpace,
    ),
    (
        "a NaN reconstruction",
        "R",
        _given(reconstruction=np.nan * np.eye(4)),
        sf.errors.PlanError,
    ),
    (
        "replace-one with dropped rows",
        "R",
        _planned(
            what=sf.total(sf.Domain({"x": sf.Booleans(outside="drop", missing="other")})), neighbours="replace-one"
        ),
        sf.errors.PlanError,
    ),
    ("no plan", "R", lambda place: place.release(WORK), sf.errors.PlanError),
    ("a number for a plan", "R", lambda place: place.release(7), sf.errors.PlanError),
]

MATRICES: list[Case] = [
    (what, "R", _asked(lambda m=m: sf.queries(m, LINE)), sf.errors.WorkloadError)
    for what, m in {
        "NaN": [[1, np.nan, 0, 0]],
        "infinite": [[1, np.inf, 0, 0]],
        "no rows": np.zeros((0, 4)),
        "no columns": np.zeros((1, 0)),
        "another width": np.ones((2, 3)),
        "three axes": np.ones((1, 1, 4)),
        "ragged": [[1, 2, 3, 4], [1]],
        "objects": np.array([[1, "x", None, 2]], dtype=object),
        "texts": np.array([["1", "2", "3", "4"]]),
        "complex": np.ones((1, 4)) * 1j,
        "1e300": [[1e300, 1, 1, 1]],
        "1e-300": [[1e-300, 0, 0, 0]],
        "beyond 64 bits": [[2**64, 1, 1, 1]],
        "a text": "1 2 3 4",
        "nothing": None,
        "sparse NaN": sp.csr_array([[np.nan, 0, 0, 1]]),
        "sparse of another width": sp.csr_array([[1, 0]]),
    }.items()
]

WORKLOADS: list[Case] = [
    ("unknown attribute", "R", _asked(lambda: sf.marginals(DOMAIN, sets=[("a", "c")])), sf.errors.InvalidInput),
    ("repeated attribute", "R", _asked(lambda: sf.marginals(DOMAIN, sets=[("a", "a")])), sf.errors.InvalidInput),
    ("order beyond the domain", "R", _asked(lambda: sf.marginals(DOMAIN, order=3)), sf.errors.InvalidInput),
    ("no queries", "R", _asked(lambda: sf.predicates(DOMAIN, [])), sf.errors.WorkloadError),
    ("injection", "R", _asked(lambda: sf.predicates(DOMAIN, ["a > 30; DROP TABLE people"])), sf.errors.WorkloadError),
    (
        "a call",
        "R",
        _asked(lambda: sf.predicates(DOMAIN, ["__import__('os').system('x') == 1"])),
        sf.errors.WorkloadError,
    ),
    ("regex", "R", _asked(lambda: sf.predicates(DOMAIN, ["b ~ 'x.*'"])), sf.errors.WorkloadError),
    (
        "1e5 parentheses",
        "R",
        _asked(lambda: sf.predicates(DOMAIN, ["(" * 10**5 + "a == 1" + ")" * 10**5])),
        sf.errors.WorkloadError,
    ),
    ("a window too wide", "R", _asked(lambda: sf.windows(DOMAIN, "a", width=99)), sf.errors.WorkloadError),
    ("weight 0", "R", _asked(lambda: sf.stack(x=WORK, weights={"x": 0})), sf.errors.WorkloadError),
    ("weight nan", "R", _asked(lambda: sf.stack(x=WORK, weights={"x": float("nan")})), sf.errors.WorkloadError),
    ("weight of no part", "R", _asked(lambda: sf.stack(x=WORK, weights={"y": 1})), sf.errors.WorkloadError),
    ("two domains", "R", _asked(lambda: sf.stack(WORK, EYE)), sf.errors.WorkloadError),
    ("sums of categories", "R", _asked(lambda: sf.sums(DOMAIN, "b")), sf.errors.WorkloadError),
    (
        "a product with itself",
        "R",
        _asked(lambda: sf.identity(DOMAIN, "a") * sf.prefix(DOMAIN, "a")),
        sf.errors.WorkloadError,
    ),
    ("too many cells for any table", "R", lambda place: _wide(place), sf.errors.PlanError),
]


def _wide(place: Place) -> object:
    domain = sf.Domain({f"a{i}": sf.Integers(0, 99, **OTHER) for i in range(4)})
    joint = sf.marginals(domain, order=4)
    return place.release(sf.plan(joint, sf.gdp("0.5"), neighbours="add-remove", mechanism="marginals"))


NAMES = ["", " a", "a ", ".", "..", ".hidden", "a/b", "../a", "a\\b", "a\nb", "a\x00", "x" * 129, "a\u202eb", "e\u0301"]
FILES: list[Case] = [
    *(
        (f"name {n!r}", "R", lambda place, n=n: place.release(name=n), sf.errors.InvalidInput)
        for n in [*NAMES, None, 3, b"a"]
    ),
    *(
        (f"snapshot {n!r}", "R", lambda p, n=n: p.release(snapshot=n), sf.errors.InvalidInput)
        for n in ("", 7, "a\x00", "x" * 999)
    ),
    ("out is a file", "R", _out(lambda f: f / "file"), sf.errors.InvalidInput),
    ("out is full", "R", _out(lambda f: f / "full"), sf.errors.InvalidInput),
    ("out is a link", "R", _out(lambda f: f / "link"), sf.errors.InvalidInput),
    ("out is a broken link", "R", _out(lambda f: f / "broken"), sf.errors.InvalidInput),
    ("out climbs", "R", _out(lambda f: f / "a/../../b"), sf.errors.InvalidInput),
    ("out under a file", "R", _out(lambda f: f / "file/new"), sf.errors.InvalidInput),
    ("out with a NUL", "R", _out(lambda f: str(f / "a\0b")), sf.errors.InvalidInput),
    ("out too long", "R", _out(lambda f: f / ("x" * 300)), sf.errors.InvalidInput),
    ("out too long below", "R", _out(lambda f: f / "new" / ("x" * 300)), sf.errors.InvalidInput),
    ("out is the root", "R", _out(lambda f: "/"), sf.errors.InvalidInput),
    ("out is a number", "R", _out(lambda f: 7), sf.errors.InvalidInput),
    ("out is empty", "R", _out(lambda f: ""), sf.errors.InvalidInput),
    ("out cannot be written", "R", _out(lambda f: "/proc/new"), sf.errors.InvalidInput),
    ("ledger is a folder", "X", lambda p: p.release(ledger=p.folder), sf.errors.LedgerError),
    ("ledger is missing", "X", lambda p: p.release(ledger=p.folder / "none.db"), sf.errors.LedgerError),
    ("ledger is no ledger", "X", lambda p: p.release(ledger=p.folder / "file"), sf.errors.LedgerError),
    ("plan is missing", "R", lambda p: sf.load(p.folder / "none"), sf.errors.InvalidInput),
    ("plan is a folder", "R", lambda p: sf.load(p.folder), sf.errors.InvalidInput),
    ("plan is a pipe", "R", lambda p: sf.load(p.folder / "pipe"), sf.errors.InvalidInput),
    ("plan is a device", "R", lambda _: sf.load("/dev/zero"), sf.errors.InvalidInput),
    ("plan is a number", "R", lambda _: sf.load(7), sf.errors.InvalidInput),  # type: ignore[arg-type]
    ("plan is empty", "R", _stored_badly(b""), sf.errors.InvalidInput),
    ("plan is a pickle", "R", _stored_badly(pickle.dumps({"a": 1})), sf.errors.InvalidInput),
    ("plan is JSON", "R", _stored_badly(b"{}"), sf.errors.InvalidInput),
    ("plan without a document", "R", _zipped(a0_npy=b"x"), sf.errors.InvalidInput),
    ("plan with a foreign part", "R", _zipped(document_json=b"{}", run_py=b"print()"), sf.errors.InvalidInput),
    (
        "plan with an array of objects",
        "R",
        _zipped(document_json=b'{"~array": "a0"}', a0_npy=_objects()),
        sf.errors.InvalidInput,
    ),
    ("plan of another class", "R", _zipped(document_json=b'{"~class": "Identity", "n": 4}'), sf.errors.InvalidInput),
    (
        "plan of a foreign class",
        "R",
        _zipped(document_json=b'{"~class": "Popen", "args": "ls"}'),
        sf.errors.InvalidInput,
    ),
    ("plan nested without end", "R", _zipped(document_json=b"[" * 10**5 + b"]" * 10**5), sf.errors.InvalidInput),
    ("plan with NaN", "R", _zipped(document_json=b"[NaN]"), sf.errors.InvalidInput),
    ("plan that is a bomb", "R", _zipped(document_json=b" " * (300 * 2**20)), sf.errors.InvalidInput),
    ("release is missing", "R", lambda p: sf.load(p.folder / "none"), sf.errors.InvalidInput),
    ("release is a number", "R", lambda _: sf.load(7), sf.errors.InvalidInput),  # type: ignore[arg-type]
]

TEXTS = ["people.txt", "mysql://h/d?table=t", b"t.csv"]
SOURCES: list[Case] = [
    (f"source {s!r}"[:40], "R", lambda place, s=s: place.release(source=s), sf.errors.InvalidInput)
    for s in [*TEXTS, 7, [1, 2], np.ones(15), sf.Histogram([1, 2]), sf.Histogram]
]

CASES = [*BUDGETS, *PLANS, *MATRICES, *WORKLOADS, *FILES, *SOURCES]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("place")
    (folder / "file").write_text("x", encoding="utf-8")
    (folder / "full").mkdir()
    (folder / "full/x").write_text("x", encoding="utf-8")
    (folder / "link").symlink_to(folder / "full")
    (folder / "broken").symlink_to(folder / "absent")
    os.mkfifo(folder / "pipe")
    return Place(folder, sf.Ledger.create(folder / "l.db", total=sf.zcdp("0.5")))


@pytest.mark.parametrize(("kind", "act", "expected"), [c[1:] for c in CASES], ids=[f"{c[1]}: {c[0]}" for c in CASES])
def test_it_is_refused_and_leaves_no_trace(
    kind: str, act: Callable[[Place], object], expected: type[Exception], place: Place
) -> None:
    """Mutants: any refusal taken out, or made after the debit; a draft or a folder left behind."""
    before = (sorted(place.folder.rglob("*")), (place.folder / "l.db").read_bytes())
    with pytest.raises(expected) as refusal:
        act(place)
    if kind == "R" and expected is not TypeError:
        assert isinstance(refusal.value, (sf.errors.InvalidInput, sf.NotAnswerable))
    assert 10 < len(str(refusal.value)) < 1500
    assert (sorted(place.folder.rglob("*")), (place.folder / "l.db").read_bytes()) == before


def test_a_mounted_folder_cannot_take_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Class R. Mutant: it is tried after the debit, and the file system refuses."""
    (tmp_path / "volume").mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda self: self.name == "volume")
    ledger = sf.Ledger.in_memory(sf.gdp(9))
    with pytest.raises(sf.errors.InvalidInput, match="mounted"):
        sf.release(plan(), Untouchable(), ledger=ledger, out=tmp_path / "volume")
    assert ledger.entries() == ()


def test_after_exhaustion_the_ledger_still_answers(tmp_path: Path) -> None:
    """Class X. Mutant: a refused request that harms the ledger."""
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.zcdp("0.5"))
    sf.release(plan(sf.zcdp("0.5")), TABLE, ledger=ledger, name="all")
    for budget in (sf.zcdp("1e-6"), sf.zcdp(1)):
        with pytest.raises(sf.BudgetExceeded) as refusal:
            sf.release(plan(budget), Untouchable(), ledger=ledger, name="more")
        assert refusal.value.remaining == 0
    assert ledger.verify().spent == Fraction(1, 2)


def test_what_looks_odd_but_is_fine() -> None:
    """Accepted: attributes of one cell, rows and columns of zeros, equal queries at the price of one, empty tables."""
    domain, empty = sf.Domain({"one": 1, "a": 3}), sf.Histogram(np.zeros(3))
    rows = np.array([[0, 0, 0], [1, 1, 0], [1, 1, 0], [1, 1, 0]])
    asked = sf.plan(sf.queries(rows, domain, attribute="a"), sf.gdp(1), neighbours="add-remove")
    assert asked.standard_errors() == pytest.approx([0, 1, 1, 1], rel=1e-5)
    result = sf.release(asked, empty, ledger=None)
    assert result.answers[0] == 0
    assert np.ptp(result.answers[1:]) < 1e-9
    tables = sf.plan(sf.marginals(domain, order=1), sf.gdp(1), neighbours="add-remove")
    assert len(sf.release(tables, empty, ledger=None).answers) == 4
