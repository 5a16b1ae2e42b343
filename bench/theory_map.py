"""The table of docs/theory.md: python bench/theory_map.py

What is known of the least error by workload, who proved it, and what sfumato's plans err. Bounds are evaluated here
from the formulas of the papers, sfumato's numbers come from plans; a test compares the page with what this prints.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

import sfumato as sf

ADD: dict[str, Any] = {"neighbours": "add-remove"}
SWAP: dict[str, Any] = {"neighbours": "replace-one"}
EPSILON = sf.approx(1, "1e-6")


class Row(NamedTuple):
    """A line of the table."""

    workload: str
    upper: str
    lower: str
    who: str
    ours: str


def number(value: float) -> str:
    """Four digits, thousands with commas."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def line(m: int) -> sf.Domain:
    return sf.Domain({"t": m})


def at_one(work: sf.Workload, **options: Any) -> sf.Plan:
    """A plan at noise multiplier 1, one record added or removed."""
    return sf.plan(work, sf.gdp(1), **(ADD | options))


def beside(plan: sf.Plan) -> str:
    """The error of a plan and the bound that it states."""
    assert plan.lower_bound is not None
    return f"{number(plan.objective_value)}, proved {number(plan.lower_bound)}"


def counting(m: int, constant: float) -> float:
    """ln m / pi and a constant, as bounds of prefixes are stated."""
    return math.log(m) / math.pi + constant


def singular(F: np.ndarray) -> float:
    """The bound of singular values: their sum over the root of rows times columns."""
    return float(np.linalg.svd(F, compute_uv=False).sum() / math.sqrt(F.size))


def prefixes(m: int) -> np.ndarray:
    return np.tril(np.ones((m, m)))


def tables(d: int, order: int) -> float:
    """The least error of all tables of `order` of d yes-no attributes, as the sum over sets of attributes [XZK23]."""
    asked, total = math.comb(d, order) * 2**order, 0.0
    for size in range(order + 1):
        price = Fraction(1, 2**size)
        # each of the tables that hold a set of this size weighs all its cells alike
        weight = math.comb(d - size, order - size) * 2**order * price / Fraction(4) ** (order - size)
        total += math.comb(d, size) * math.sqrt(price * weight)
    return total / math.sqrt(asked)


def disjoint() -> Row:
    m = 1_024
    plan = at_one(sf.identity(line(m), "t"))
    return Row(f"{m:,} disjoint counts", "1", number(singular(np.eye(m))), "[DMNS06]; [LM13]", beside(plan))


def prefixes_in_the_mean() -> Row:
    m = 65_536
    upper, lower = number(counting(m, 0.748)), number(counting(m, 0.701))
    shown = f"ln m/π + .748 + o(1): {upper}", f"ln m/π + .701 + o(1): {lower}"
    return Row(f"prefixes of {m:,} cells, mean", *shown, "[HKU26]", beside(at_one(sf.prefix(line(m), "t"))))


def prefixes_at_worst() -> Row:
    m = 1_024
    upper, lower = number(counting(m, 0.846)), number(counting(m, 0.701))
    shown = f"ln m/π + .846 + o(1): {upper}", f"ln m/π + .701 + o(1): {lower}"
    plan = at_one(sf.prefix(line(m), "t"), objective="max")
    return Row(f"prefixes of {m:,} cells, worst", *shown, "[HKU26], before [MNT20]", beside(plan))


def ranges() -> Row:
    m = 1_024
    F = np.array([[low <= cell <= high for cell in range(32)] for low in range(32) for high in range(low, 32)], float)
    small, plan = at_one(sf.ranges(line(32), "t")), at_one(sf.ranges(line(m), "t"))
    tree = at_one(sf.ranges(line(m), "t"), strategy="tree")
    shown = f"tree, least squares: {number(tree.rmse)}", f"singular values, at 32: {number(singular(F))}"
    return Row(
        f"all ranges of {m:,} cells, mean", *shown, "[HRMS10]; [LM13]", f"{beside(plan)}; at 32: {number(small.rmse)}"
    )


def marginals() -> Row:
    d, order = 10, 3
    value = number(tables(d, order))
    plan = at_one(sf.marginals(sf.Domain({f"x{i}": 2 for i in range(d)}), order=order))
    return Row(f"all {order}-way tables of {d} yes-no attributes", value, value, "[XZK23], [LNT25]", beside(plan))


def products() -> Row:
    domain = sf.Domain({"a": 32, "b": 32})
    plan = at_one(sf.prefix(domain, "a") * sf.prefix(domain, "b"))
    one = sf.factorization(prefixes(32))
    shown = f"γ²: {number(one.upper_bound**2)}", f"γ²: {number(one.lower_bound**2)}"
    return Row("prefixes × prefixes, 32 cells each", *shown, "[LNT25], up to lower orders", beside(plan))


def parities() -> Row:
    d = 6
    plan = at_one(sf.parities(d))
    root = number(math.sqrt(2**d))
    return Row(f"all parities of {d} attributes", f"√m: {root}", f"√m: {root}", "[LM13]", beside(plan))


def disjunctions() -> Row:
    d = 6
    work = sf.disjunctions(d)
    F = np.array([work.answer(cell) for cell in np.eye(2**d)]).T
    found, near = sf.factorization(F), sf.factorization(F, approximate=0.1)
    shown = f"noise on cells: {number(at_one(work, strategy='cells').rmse)}", f"singular values: {number(singular(F))}"
    ours = f"{number(found.upper_bound)}, proved {number(found.lower_bound)}; bias .1: {number(near.upper_bound)}"
    return Row(f"disjunctions of {d} attributes", *shown, "[ENU20]; with bias [TUV12]", ours)


def replaced() -> Row:
    m = 8
    taught = 2 * sf.factorization(prefixes(m)).upper_bound
    plan = sf.plan(sf.prefix(line(m), "t"), sf.gdp(1), **SWAP)
    return Row(f"prefixes of {m} cells, a record replaced", f"2γ: {number(taught)}", "–", "[SmithUllman]", beside(plan))


def periods() -> Row:
    T = 1_048_576
    plan = sf.plan(sf.total(line(4)), sf.gdp(1), **ADD, periods=T)
    worst = max(plan.standard_errors("totals", t)[0] for t in (1, 2**10, 2**18, 2**19, T))
    upper, lower = number(counting(T, 0.846)), number(counting(T, 0.701))
    shown = f"ln T/π + .846 + o(1): {upper}", f"ln T/π + .701 + o(1): {lower}"
    return Row(f"totals of {T:,} periods, worst", *shown, "[HKU26]; few numbers kept [DMPST24]", number(worst))


def one_way() -> Row:
    d, share = 100, "0.01"
    work = sf.marginals(sf.Domain({f"x{i}": 2 for i in range(d)}), order=1)
    n = sf.records_for(work, EPSILON, **SWAP, error=float(share))
    shown = "√d c/α", "Ω(√(d ln(1/δ)) / (α ε))"
    return Row(f"one-way tables of {d} attributes, mean error {share}", *shown, "[DKMMN06]; [SU15]", f"{n:,} records")


def many_on_average() -> Row:
    work = sf.queries(np.random.default_rng(0).choice([0, 1], size=(512, 128)))
    projected, plain = (
        sf.records_for(work, EPSILON, **SWAP, error=0.25, mechanism=mechanism) for mechanism in ("projection", "auto")
    )
    shown = "σ ℓ*/(k α²)", "Ω̃(√d ln k / (α² ε)), worst query"
    ours = f"{projected:,} records; unbiased {plain:,}"
    return Row("512 random queries over 128 cells, mean error .25", *shown, "[NTZ13]; [BUV14]", ours)


def one_by_one() -> Row:
    alpha = sf.mechanisms.pmw.least_alpha(1024, 2_000, 10**6, EPSILON)
    shown = "Õ((ln m)^¼ (ln k)^½ / √(n ε))", "the same but for logarithms"
    name = "2,000 questions one by one, 1,024 cells, 10^6 records, worst"
    return Row(name, *shown, "[HR10]; [BUV14]", f"α = {alpha:.4f}, with its constant")


def quantiles() -> Row:
    plan = sf.plan(sf.prefix(line(256), "t"), sf.pure(1), **ADD)
    shown = "O((ln ψ + ln² k) / ε) in rank", "–"
    return Row("all quantiles over 256 cells, ε = 1", *shown, "[IBKACP25]", f"{number(plan.rmse)} in rank, any k")


def sparse() -> Row:
    plan = sf.plan(sf.Keys("item"), sf.pure(1), **ADD, mechanism="histogram")
    shown = "Õ(ln k √(s ln(1/δ)) / ε)", "–"
    return Row("64 of 2^60 keys, ε = 1", *shown, "[BR11]", f"{number(plan.error(64))} records, δ = 0, any k")


def local() -> Row:
    plan = sf.plan(sf.prefix(line(32), "t"), sf.pure(1), trust="local", records=100_000)
    assert plan.lower_bound is not None
    shown = "O(γ √n / ε), some bias", "tight but for logarithms, without interaction"
    ours = f"{number(plan.rmse)} records, proved {number(plan.lower_bound)}"
    return Row("prefixes of 32 cells, no curator, 100,000 persons, ε = 1", *shown, "[ENU20]", ours)


ROWS: tuple[Callable[[], Row], ...] = (
    disjoint,
    prefixes_in_the_mean,
    prefixes_at_worst,
    periods,
    ranges,
    marginals,
    products,
    parities,
    disjunctions,
    replaced,
    one_way,
    many_on_average,
    one_by_one,
    quantiles,
    sparse,
    local,
)


def table() -> str:
    """The table in Markdown."""
    head = ["workload", "best known, or taught", "nothing errs less than", "who", "sfumato"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(make()) + " |" for make in ROWS)])


if __name__ == "__main__":
    print(table())
