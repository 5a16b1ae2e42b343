"""Every builder against sums over a random table of counts, with and without extra cells."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from sfumato.domain import Bins, Booleans, Categories, Domain, Integers
from sfumato.operators import AllRange, Dense, Kronecker, LinearOperator, Prefix, Residual, Sparse
from sfumato.workloads import (
    Workload,
    identity,
    marginals,
    predicates,
    prefix,
    queries,
    ranges,
    stack,
    sums,
    total,
    windows,
)
from sfumato.workloads.builders import as_operator

BARE = Domain(
    {
        "age": Integers(0, 9, width=2),
        "sex": Categories({"1": "f", "2": "m"}),
        "wage": Bins([0, 10, 20, 50]),
        "ok": Booleans(),
    }
)
EXTRA = Domain(
    {
        "age": Integers(0, 9, width=2, outside="other"),
        "sex": Categories({"1": "f", "2": "m"}, missing="other"),
        "wage": Bins([0, 10, 20, 50], outside="clamp", missing="other"),
        "ok": Booleans(missing="drop"),
    }
)
DOMAINS = pytest.mark.parametrize("domain", [BARE, EXTRA], ids=["bare", "extra"])
Cell = dict[str, int]


def table_of(domain: Domain) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.random.default_rng(7).integers(0, 1000, domain.shape)


def count(domain: Domain, satisfies: Callable[[Cell], float]) -> float:
    """The sum over all cells of the table, each counted as `satisfies` says."""
    counts = table_of(domain)
    cells = itertools.product(*(range(n) for n in domain.shape))
    return sum(int(counts[c]) * satisfies(dict(zip(domain.names, c, strict=True))) for c in cells)


def check(work: Workload, wanted: list[tuple[str | None, Callable[[Cell], float]]]) -> None:
    """Answers, shape and labels of a workload, query by query."""
    domain = work.domain
    counts = table_of(domain)
    answers = work.answer(counts)
    assert work.shape == (len(wanted), domain.size)
    assert len(work) == len(wanted)
    assert answers.shape == (len(wanted),)
    assert np.array_equal(work.answer(counts.reshape(-1)), answers)
    labels = work.labels()
    assert len(labels) == len(wanted)
    for answer, label, (text, satisfies) in zip(answers.tolist(), labels, wanted, strict=True):
        assert math.isclose(answer, count(domain, satisfies), rel_tol=1e-12)
        assert text is None or label == text
    assert len(set(labels)) == len(labels)


def is_in(**where: range | int) -> Callable[[Cell], float]:
    """Whether each named attribute's cell is the one given, or lies in the range given."""
    ranges_ = {n: r if isinstance(r, range) else range(r, r + 1) for n, r in where.items()}
    return lambda cell: float(all(cell[n] in r for n, r in ranges_.items()))


@DOMAINS
def test_identity(domain: Domain) -> None:
    sizes = domain.sizes(("sex", "ok"))
    wanted = [
        (f"sex = {domain['sex'].labels[i]}, ok = {domain['ok'].labels[j]}", is_in(sex=i, ok=j))
        for i, j in itertools.product(*map(range, sizes))
    ]
    check(identity(domain, "sex", "ok"), wanted)
    # whichever way they are named
    check(identity(domain, "ok", "sex"), wanted)
    everything = identity(domain)
    assert everything.answer(table_of(domain)).tolist() == table_of(domain).reshape(-1).tolist()
    assert everything.blocks[0].is_marginal


@DOMAINS
def test_total(domain: Domain) -> None:
    check(total(domain), [("total", lambda _: 1.0)])
    assert total(domain).blocks[0].is_marginal


@DOMAINS
def test_marginals(domain: Domain) -> None:
    pairs = list(itertools.combinations(domain.names, 2))
    work = marginals(domain, 2)
    assert [q.attributes for q in work.blocks] == pairs
    counts = table_of(domain)
    wanted = [
        counts.sum(axis=tuple(i for i, n in enumerate(domain.names) if n not in pair)).reshape(-1) for pair in pairs
    ]
    assert work.answer(counts).tolist() == np.concatenate(wanted).tolist()
    assert list(work.parts) == ["marginals"]
    upto = marginals(domain, upto=2)
    assert [q.attributes for q in upto.blocks] == [(), *((n,) for n in domain.names), *pairs]
    assert upto.answer(counts)[0] == counts.sum()
    named = marginals(domain, sets=[("ok", "age"), ["sex"], []])
    assert [q.attributes for q in named.blocks] == [("age", "ok"), ("sex",), ()]
    assert marginals(domain, 0).answer(counts).tolist() == [counts.sum()]
    assert marginals(domain, 4).shape == (domain.size, domain.size)


def test_marginal_weights() -> None:
    work = marginals(BARE, upto=2, weights={2: "1/3", ("sex", "age"): 5, "ok": 0.1})
    weight = {q.attributes: q.weight for q in work.blocks}
    assert weight[("age", "wage")] == Fraction(1, 3)
    assert weight[("age", "sex")] == 5
    assert weight[("ok",)] == Fraction(1, 10)
    assert weight[("age",)] == weight[()] == 1


@DOMAINS
def test_prefix(domain: Domain) -> None:
    """Mutant: the extra cell counted as the last one of the order."""
    labels = domain["wage"].labels
    wanted = [(f"wage up to {labels[t]}", is_in(wage=range(t + 1))) for t in range(3)]
    check(prefix(domain, "wage"), wanted)
    by = [
        (f"sex = {s}, wage up to {labels[t]}", is_in(sex=i, wage=range(t + 1)))
        for (i, s), t in itertools.product(enumerate(domain["sex"].labels), range(3))
    ]
    for names in ("sex", ["sex"], ("sex",), iter(["sex"])):
        work = prefix(domain, "wage", by=names)  # type: ignore[arg-type]
        check(work, by)
        assert list(work.parts) == ["prefix wage by sex"]


@DOMAINS
def test_ranges(domain: Domain) -> None:
    labels = domain["age"].labels
    wanted = [
        (f"age from {labels[s]} to {labels[t]}", is_in(age=range(s, t + 1))) for s in range(5) for t in range(s, 5)
    ]
    check(ranges(domain, "age"), wanted)
    # attributes in the domain's order: the ranges of age come before what they are counted by
    by = [(None, is_in(age=range(s, t + 1), ok=k)) for s in range(5) for t in range(s, 5) for k in range(2)]
    check(ranges(domain, "age", by="ok"), by)


@DOMAINS
def test_windows(domain: Domain) -> None:
    labels = domain["age"].labels
    wanted = [(f"age from {labels[s]} to {labels[s + 1]}", is_in(age=range(s, s + 2))) for s in range(4)]
    check(windows(domain, "age", 2), wanted)
    check(windows(domain, "age", 5), [(f"age from {labels[0]} to {labels[4]}", is_in(age=range(5)))])
    two = [
        (None, is_in(age=range(s, s + 2), sex=i, ok=k))
        for s, i, k in itertools.product(range(4), range(domain["sex"].size), range(2))
    ]
    check(windows(domain, "age", 2, by=["ok", "sex"]), two)


@DOMAINS
def test_sums(domain: Domain) -> None:
    """Mutant: the midpoint of the extra cell."""
    middle = [5.0, 15.0, 35.0, 0.0]
    work = sums(domain, "wage")
    check(work, [("sum of wage", lambda c: middle[c["wage"]])])
    assert work.units == ("wage",)
    assert not work.blocks[0].is_marginal
    by = sums(domain, "wage", by=["sex"])
    assert by.units == ("wage",)
    labels = domain["sex"].labels
    check(
        by,
        [
            (f"sex = {labels[i]}, sum of wage", lambda c, i=i: middle[c["wage"]] * (c["sex"] == i))
            for i in range(domain["sex"].size)
        ],
    )
    own = [1, 2.5, -4]
    check(sums(domain, "wage", own), [("sum of wage", lambda c: [*own, 0][c["wage"]])])
    if domain is EXTRA:
        check(sums(domain, "wage", [*own, 100]), [(None, lambda c: [*own, 100][c["wage"]])])
    check(sums(domain, "sex", [0, 1]), [(None, lambda c: [0, 1, 0][c["sex"]])])
    ages = sums(domain, "age", by="sex")
    check(
        ages,
        [
            (None, lambda c, i=i: [0.5, 2.5, 4.5, 6.5, 8.5, 0][c["age"]] * (c["sex"] == i))
            for i in range(domain["sex"].size)
        ],
    )


@DOMAINS
def test_predicates(domain: Domain) -> None:
    texts = ["age >= 4 and sex == 'f'", "sex == 'm' or ok", "not wage < 20", "age in (0, 1) or wage >= 20"]
    if domain is BARE:
        texts[3] = "age <= 1 or wage >= 20"
    else:
        texts[3] = "age < 2 or wage >= 20"
    other = {n: domain[n].declared_size for n in domain.names}

    def test(text: str, c: Cell) -> bool:
        age, sex, wage, ok = (c[n] for n in ("age", "sex", "wage", "ok"))
        return {
            texts[0]: 2 <= age < other["age"] and sex == 0,
            texts[1]: sex == 1 or ok == 1,
            texts[2]: wage not in (0, 1),
            texts[3]: age == 0 or wage == 2,
        }[text]

    work = predicates(domain, texts)
    check(work, [(t, lambda c, t=t: float(test(t, c))) for t in texts])
    # conjunctions keep one small factor per attribute
    assert [len(q.block.factors) for q in work.blocks] == [2, 1, 1, 1]
    with_ok = predicates(domain, [texts[0]]) * identity(domain, "ok")
    check(with_ok, [(None, lambda c, k=k: float(test(texts[0], c) and c["ok"] == k)) for k in range(2)])


def matrices() -> dict[str, Any]:
    dense = np.array([[1, 0, 2, 0, -1], [0.5, 0, 0, 0, 0]])
    return {
        "list": dense.tolist(),
        "float": dense,
        "float32": dense.astype(np.float32),
        "csr": sp.csr_array(dense),
        "coo matrix": sp.coo_matrix(dense),
        "operator": Dense(dense),
    }


@pytest.mark.parametrize("kind", matrices())
def test_queries_over_one_attribute(kind: str) -> None:
    dense = matrices()["float"]
    work = queries(matrices()[kind], BARE, "age")
    check(work, [(f"age query {i}", lambda c, i=i: dense[i, c["age"]]) for i in range(2)])
    labelled = queries(matrices()[kind], BARE, attribute="age", labels=["first", "second"])
    check(labelled, [(t, lambda c, i=i: dense[i, c["age"]]) for i, t in enumerate(["first", "second"])])
    by = labelled * identity(BARE, "sex")
    check(by, [(None, lambda c, i=i, s=s: dense[i, c["age"]] * (c["sex"] == s)) for i in range(2) for s in range(2)])


def test_queries_over_the_whole_domain() -> None:
    matrix = np.random.default_rng(1).integers(-2, 3, (3, BARE.size))
    work = queries(matrix, BARE)
    assert work.answer(table_of(BARE)).tolist() == (matrix @ table_of(BARE).reshape(-1)).tolist()
    assert work.labels()[2] == "age x sex x wage x ok query 2"
    assert np.array_equal(work.operator.dense(), matrix)


def test_queries_without_a_domain() -> None:
    work = queries([[1, 1, 0], [0, 1, 1]])
    assert work.domain == Domain({"cell": 3})
    assert work.answer([1, 2, 4]).tolist() == [3, 6]
    assert work.labels() == ["cell query 0", "cell query 1"]
    assert queries([1, 1, 0]).shape == (1, 3)
    assert queries(np.eye(3), attribute="x").domain == Domain({"x": 3})
    assert queries(Prefix(3)).labels() == ["cell up to 0", "cell up to 1", "cell up to 2"]
    zero = queries(np.zeros((2, 3)))
    assert zero.answer([1, 2, 3]).tolist() == [0, 0]


class Plus(LinearOperator):
    """A user's own operator: all ones, with a lie about its columns."""

    @property
    def shape(self) -> tuple[int, int]:
        return (2, 3)

    @property
    def integral(self) -> bool:
        return True

    @property
    def max_abs(self) -> int:
        return 1

    def apply(self, vectors: Any) -> Any:
        return np.repeat(vectors.sum(axis=0, keepdims=True), 2, axis=0)

    def apply_transpose(self, vectors: Any) -> Any:
        return np.repeat(vectors.sum(axis=0, keepdims=True), 3, axis=0)

    def column_sums(self, power: int) -> Any:
        return np.zeros(3, dtype=object)


def test_foreign_operators_become_matrices() -> None:
    """Mutant: what a foreign class says of itself decides the price."""
    operator = as_operator(Plus())
    assert isinstance(operator, Dense)
    assert operator.column_sums(2).tolist() == [2, 2, 2]
    assert isinstance(as_operator(sp.eye_array(3)), Sparse)
    nested = Kronecker((Residual(2), AllRange(3)))
    assert as_operator(nested) is nested
    assert as_operator(Kronecker((Residual(2), Plus()))).shape == (4, 6)


def test_stacks_and_weights() -> None:
    work = stack(
        total(BARE), main=marginals(BARE, 1), pairs=marginals(BARE, 2), weights={"main": "0.5", "total": Decimal(2)}
    )
    assert list(work.parts) == ["total", "main", "pairs"]
    assert work.weights == {"total": 2, "main": Fraction(1, 2), "pairs": 1}
    counts = table_of(BARE)
    parts = [total(BARE), marginals(BARE, 1), marginals(BARE, 2)]
    assert work.answer(counts).tolist() == np.concatenate([p.answer(counts) for p in parts]).tolist()
    assert work.parts["main"].answer(counts).tolist() == parts[1].answer(counts).tolist()
    again = stack(work, weights={"main": 3})
    assert again.weights["main"] == Fraction(3, 2)
    assert (parts[0] + parts[1]).labels() == [*parts[0].labels(), *parts[1].labels()]
