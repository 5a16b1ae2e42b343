"""Predicates: compiled masks against brute force over representative values, and every refusal."""

from __future__ import annotations

import math
import operator
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sfumato.domain import OTHER, Bins, Booleans, Categories, Domain, Integers
from sfumato.domain.predicates import compile_predicate
from sfumato.errors import WorkloadError
from sfumato.workloads import predicates

OPS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
FLIPPED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

DOMAIN = Domain(
    {
        "age": Integers(0, 99, width=5, outside="clamp", missing="other"),
        "wages": Bins([0, 10_000, 25_000, 50_000.5], outside="other", missing="other"),
        "sex": Categories({"1": "female", "2": "male"}, outside="other", missing="other"),
        "employed": Booleans(),
        "odd `name`": Categories(["it's", "06", "7"], outside="drop", missing="drop"),
        "year": Integers(-2, 5, outside="drop", missing="drop"),
    }
)


def mask(text: str) -> np.ndarray:
    return compile_predicate(DOMAIN, text).mask


# ── brute force ──────────────────────────────────────────────────────────────────────────────────


def values_of(attribute) -> list[list]:
    """Representative values of each declared cell: all whole numbers, or both ends and the middle of a bin.

    The last bin holds its upper edge too."""
    if isinstance(attribute, Integers):
        return [list(range(a, b)) for a, b in attribute.intervals]
    if isinstance(attribute, Bins):
        found = [[a, (a + b) / 2, math.nextafter(b, a)] for a, b in attribute.intervals]
        found[-1].append(attribute.edges[-1])
        return found
    if isinstance(attribute, Booleans):
        return [[False], [True]]
    return [[label] for label in attribute.declared_labels]


def flips_within(attribute, op: str, constant) -> bool:
    """Whether the declared values, with their end, tell where an order comparison changes."""
    if isinstance(attribute, Bins):
        return attribute.edges[0] <= constant <= attribute.edges[-1]
    scan = range(attribute.low - 20, attribute.high + 21)
    flip = next(v for v in scan if OPS[op](v, constant) != OPS[op](v - 1, constant))
    return attribute.low <= flip <= attribute.high + 1


def expected(attribute, op: str, constants: list) -> list[bool] | None:
    """One truth value per cell of a comparison, or of membership (op "=="); None where it must be refused."""
    if op == "!=":
        same = expected(attribute, "==", constants)
        return None if same is None else [not truth for truth in same]
    others = [c for c in constants if c == OTHER]
    if others and (not attribute.has_other or op != "=="):
        return None
    plain = [c for c in constants if c != OTHER]
    cells = values_of(attribute)
    if op == "==":
        everything = [v for cell in cells for v in cell]
        if isinstance(attribute, Bins) and plain:
            return None
        if not all(c in everything for c in plain):
            return None
        truth = [{v in plain for v in cell} for cell in cells]
    else:
        if not attribute.ordered or not flips_within(attribute, op, constants[0]):
            return None
        truth = [{OPS[op](v, constants[0]) for v in cell} for cell in cells]
        if attribute.outside == "clamp" and truth == [{False}] * len(truth):
            return None
    if any(len(t) > 1 for t in truth):
        return None
    return [t.pop() for t in truth] + [bool(others)] * attribute.has_other


def written(constant) -> str:
    if isinstance(constant, bool):
        return str(constant).lower()
    if isinstance(constant, str):
        return "'" + constant.replace("'", "''") + "'"
    return repr(constant)


def name_written(name: str) -> str:
    return name if name.isidentifier() else "`" + name.replace("`", "``") + "`"


@st.composite
def domains(draw) -> Domain:
    policies = {
        "outside": st.sampled_from([None, "other", "clamp", "drop"]),
        "missing": st.sampled_from([None, "other"]),
    }
    low = draw(st.integers(-5, 5))
    width = draw(st.integers(1, 4))
    integers = Integers(low, low + draw(st.integers(0, 12)), width, **{k: draw(s) for k, s in policies.items()})
    edges = draw(st.lists(st.sampled_from([-2, -0.5, 0, 0.1, 0.3, 1, 2.5, 7]), min_size=2, max_size=5, unique=True))
    bins = Bins(sorted(edges), **{k: draw(s) for k, s in policies.items()})
    missing = draw(st.sampled_from([None, "other"]))
    categories = Categories(["a", "it's", 'say "so"', "06"][: draw(st.integers(1, 4))], missing=missing)
    booleans = Booleans(missing=draw(st.sampled_from([None, "other"])))
    attributes = {"n": integers, "x y": bins, "kind": categories, "flag": booleans}
    order = draw(st.permutations(list(attributes)))
    return Domain({name: attributes[name] for name in order})


def constants_for(attribute) -> st.SearchStrategy:
    if isinstance(attribute, Integers):
        edges = [e for pair in attribute.intervals for e in pair]
        return st.one_of(
            st.sampled_from([*edges, *(e - 1 for e in edges)]),
            st.integers(attribute.low - 3, attribute.high + 4),
            st.just(OTHER),
            st.just(attribute.low + 0.5),
        )
    if isinstance(attribute, Bins):
        return st.one_of(st.sampled_from(list(attribute.edges)), st.sampled_from([-3, 0.05, 0.2, 8, OTHER]))
    if isinstance(attribute, Booleans):
        return st.sampled_from([True, False, OTHER])
    return st.sampled_from([*attribute.declared_labels, *attribute.declared_labels, OTHER, "nobody"])


@st.composite
def single_tests(draw, domain: Domain):
    """(text, attribute name, expected truth per cell or None)."""
    name = draw(st.sampled_from(domain.names))
    attribute = domain[name]
    constants = constants_for(attribute)
    form = draw(st.sampled_from(["compare", "flipped", "in", "not in", "bare"]))
    if form == "bare":
        if not isinstance(attribute, Booleans):
            return name_written(name), name, None
        return name_written(name), name, expected(attribute, "==", [True])
    if form in ("in", "not in"):
        chosen = draw(st.lists(constants, min_size=1, max_size=6))
        text = f"{name_written(name)} {form} ({', '.join(map(written, chosen))})"
        return text, name, expected(attribute, "!=" if form == "not in" else "==", chosen)
    op, constant = draw(st.sampled_from(list(OPS))), draw(constants)
    sides = [name_written(name), op, written(constant)]
    if form == "flipped":
        sides = [sides[2], FLIPPED[op], sides[0]]
    return draw(st.sampled_from([" ", "", "\n\t"])).join(sides), name, expected(attribute, op, [constant])


@st.composite
def compounds(draw, domain: Domain, depth: int):
    """(text, names used, evaluator from cell positions to truth), made of tests that are allowed."""
    if depth == 0 or draw(st.integers(0, 4)) == 4:
        text, name, truth = draw(single_tests(domain).filter(lambda test: test[2] is not None))
        return text, {name}, lambda cell: truth[cell[name]]
    how = draw(st.sampled_from(["and", "or", "not"]))
    left_text, left_names, left = draw(compounds(domain, depth - 1))
    if how == "not":
        return f"not ({left_text})", left_names, lambda cell: not left(cell)
    right_text, right_names, right = draw(compounds(domain, depth - 1))
    join = all if how == "and" else any
    return f"({left_text}) {how} ({right_text})", left_names | right_names, lambda cell: join([left(cell), right(cell)])


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_test_equals_brute_force_or_is_refused_where_it_divides_a_cell(data):
    domain = data.draw(domains())
    text, name, truth = data.draw(single_tests(domain))
    if truth is None:
        with pytest.raises(WorkloadError, match=r"character \d+ of the predicate"):
            compile_predicate(domain, text)
    else:
        compiled = compile_predicate(domain, text)
        assert compiled.attributes == (name,)
        assert compiled.mask.tolist() == truth


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(st.data())
def test_compounds_equal_brute_force_over_cells(data):
    domain = data.draw(domains())
    text, names, evaluate = data.draw(compounds(domain, 3))
    compiled = compile_predicate(domain, text)
    assert compiled.attributes == tuple(n for n in domain.names if n in names)
    assert compiled.mask.shape == domain.sizes(compiled.attributes)
    for cell in np.ndindex(compiled.mask.shape):
        assert compiled.mask[cell] == evaluate(dict(zip(compiled.attributes, cell, strict=True)))


def test_precedence_is_not_then_and_then_or():
    assert np.array_equal(
        mask("not employed and year < 0 or sex == 'male'"), mask("((not employed) and (year < 0)) or (sex == 'male')")
    )
    assert np.array_equal(
        mask("sex == 'male' or year < 0 and not employed"), mask("(sex == 'male') or ((year < 0) and (not employed))")
    )


WORDS = ["age", "sex", "wages", "employed", "year", "5", "20", "'male'", "and", "or", "not", "in", "true", "`x`"]
MARKS = ["(", ")", ",", "<", ">=", "==", ";", "'", "\x00"]


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS + MARKS), max_size=12).map(" ".join)))
def test_any_text_compiles_or_is_refused_with_its_place(text):
    try:
        compiled = compile_predicate(DOMAIN, text)
    except WorkloadError as error:
        refusal = str(error)
    else:
        refusal = None
        assert compile_predicate(DOMAIN, compiled.text).text == compiled.text
    assert refusal is None or re.search(r"character \d+ of the predicate|non-empty text", refusal)


# ── what is allowed ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("age > 64", "age >= 65"),
        ("age <= 64.5", "age < 65"),
        ("20 <= age <= 64", "age >= 20 and age < 65"),
        ("65 > age >= 20", "20 <= age and 65 > age"),
        ("age in (60, 61, 62, 63, 64)", "60 <= age < 65"),
        ("sex == 'female'", "sex == 1"),
        ("sex == 'female'", 'sex == "1"'),
        ("sex != 'female'", "not (sex == 'female')"),
        ("sex not in ('female', 'male')", "sex == '(other)'"),
        ("'male' == sex", "sex in ('male',)"),
        ("`odd ``name``` == 06", "`odd ``name``` == '06'"),
        ("`odd ``name``` == 7.0", "`odd ``name``` == '7'"),
        ("employed", "employed == true"),
        ("NOT employed", "employed == 'false'"),
        ("wages < 10_000", "wages < 1e4"),
        ("wages <= 50000.5", "wages >= 0"),
        ("year == -2", "year < -1"),
        ("not not employed", "employed"),
    ],
)
def test_equivalent_texts(text, same):
    assert np.array_equal(mask(text), mask(same))


def test_the_extra_cell_satisfies_no_comparison_but_complements_hold():
    assert not mask("age >= 0")[-1]
    assert mask("age >= 0")[:-1].all()
    assert mask("not (age >= 65)")[-1]
    assert mask("sex != 'female'").tolist() == [False, True, True]
    assert mask("sex == '(other)'").tolist() == [False, False, True]
    assert mask("age in ('(other)')").sum() == 1


def test_the_last_cell_of_a_clamped_attribute_counts_as_its_own_values():
    assert mask("age >= 95").sum() == 1
    assert mask("0 <= age <= 99").sum() == 20


def test_constant_predicates_still_name_their_attributes():
    compiled = compile_predicate(DOMAIN, "year >= -2 or year < -2")
    assert compiled.attributes == ("year",)
    assert compiled.mask.all()


def test_attributes_come_in_domain_order_and_text_with_single_spaces():
    compiled = compile_predicate(DOMAIN, "  sex ==\n 'male'   and age>=65 ")
    assert compiled.attributes == ("age", "sex")
    assert compiled.text == "sex == 'male' and age>=65"
    assert compiled.mask.shape == (21, 3)
    assert not compiled.mask.flags.writeable


def test_decimal_constants_meet_decimal_edges():
    domain = Domain({"x": Bins.regular(0, 1, 0.1)})
    for i in range(1, 10):
        assert compile_predicate(domain, f"x < 0.{i}").mask.sum() == i


def test_large_domains_are_judged_by_the_attributes_named():
    domain = Domain({"a": 4000, "b": 4000, "c": 2})
    assert compile_predicate(domain, "a < 10 and c == 1").mask.shape == (4000, 2)
    with pytest.raises(WorkloadError, match=r"10,000,000 cells jointly.*a has 4,000, b has 4,000"):
        compile_predicate(domain, "a < 10 or b < 10")


def test_nesting_of_fifty_is_allowed_and_no_more():
    assert mask("(" * 50 + "employed" + ")" * 50).tolist() == [False, True]
    assert mask("not " * 50 + "employed").tolist() == [False, True]
    for deep in ("(" * 51 + "employed" + ")" * 51, "not " * 51 + "employed", "(not " * 26 + "employed" + ")" * 26):
        with pytest.raises(WorkloadError, match="nested 50 deep"):
            mask(deep)


# ── what is refused ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age >= 62", "divides the cell 60..64 of age; ask age >= 60 or age >= 65 (character 8"),
        ("age <= 60", "ask age < 60 or age < 65"),
        ("age == 62", "ask for the whole cell, 60 <= age < 65"),
        ("age in (60, 61)", "60..64"),
        ("age >= 120", "beyond the values declared for age, 0..99"),
        ("age == -1", "beyond the values declared for age, 0..99"),
        ("age >= 100", "age is clamped to 0..99"),
        ("age < 0", "age is clamped to 0..99"),
        ("age >= 1e999", "beyond the values declared for age"),
        ("wages > 1e308", "beyond the values declared for wages, [0, 50000.5]"),
        ("wages > -1e999", "beyond the values declared for wages"),
        ("wages <= 10000", "divides the cell [10000, 25000) of wages; ask wages < 10000 or wages < 25000"),
        ("wages > 0", "divides the cell [0, 10000)"),
        ("wages == 10000", "10000 <= wages < 25000"),
        ("wages == 99999", "part of the cell"),
        ("65 <= age < 20", "reversed"),
        ("20 < age > 5", "chained only as a range"),
        ("'a' == sex == 'b'", "chained only as a range"),
        ("year == 1.5", "whole numbers only"),
        ("age >= '65'", "compared with numbers"),
        ("age == true", "compared with numbers"),
        ("age < '(other)'", "compared with numbers"),
        ("sex == true", "not true or false"),
        ("sex < 'male'", "no order"),
        ("employed >= true", "no order"),
        ("employed == 1", "Allowed: 'false', 'true'"),
        ("employed == '(other)'", "no extra cell"),
        ("sex == 'femal'", "did you mean 'female'? Allowed: 'female', 'male'"),
        ("sex == female", "write it in quotes: 'female'"),
        ("sex in (female)", "write texts in quotes: 'female'"),
        ("sexx == 'male'", "did you mean 'sex'?"),
        ("AGE >= 65", "did you mean 'age'?"),
        ("age == sex", "not attributes alone"),
        ("1 < 2", "not constants alone"),
        ("true", "not constants alone"),
        ("age", "expected a comparison of age"),
        ("age is null", "expected a comparison of age"),
        ("employed employed", "expected 'and', 'or' or the end"),
        ("employed)", "expected 'and', 'or' or the end"),
        ("(employed", "expected ')'"),
        ("age >=", "not the end"),
        ("and employed", "not and"),
        ("sex in 'male'", "expected '('"),
        ("sex in ()", "expected a constant"),
        ("sex in ('male'", "expected ')'"),
        ("sex not 'male'", "expected 'in' after 'not'"),
        ("sex = 'male'", "write == (character 5"),
        ("sex <> 'male'", "write !="),
        ("employed && employed", "write and"),
        ("age in [1, 2]", "write a list in ()"),
        ("age % 2 == 0", "there is no arithmetic, no function"),
        ("age.between(1, 2)", "there is no arithmetic, no function"),
        ("!employed", "write not"),
        ("sex == 'male", "a closing '; inside a text it is written twice"),
        ("`age >= 5", "a closing `"),
        ("age >= 65abc", "'65abc' has no meaning"),
        ("age >= ６５", "'６５' has no meaning"),
        ("age >= 5 - 3", "has no meaning"),
        ("age > 30; DROP TABLE people", "';' has no meaning here; a name with odd characters is written in backquotes"),
        ("__import__('os')", "no attribute is called '__import__'"),
        ("age.real >= 65", "'.real' has no meaning"),
        ("age >= 65\x00", "'\\x00' has no meaning"),
        ("age\u202e >= 65", "'\\u202e' has no meaning"),
        ("", "non-empty text"),
        ("(" * 100_000, "at most 10,000 characters, not 100,000"),
        ("(" * 9_000, "at most 5,000 words and marks"),
        ("(" * 4_000, "nested 50 deep"),
    ],
)
def test_refusals(text, message):
    with pytest.raises(WorkloadError, match=re.escape(message)):
        mask(text)


@pytest.mark.parametrize("text", [None, 5, b"age >= 65", ["age >= 65"], Fraction(1)])
def test_what_is_no_text_is_refused(text):
    with pytest.raises(WorkloadError, match="must be a non-empty text"):
        compile_predicate(DOMAIN, text)


def test_messages_point_at_the_place_in_a_long_text():
    text = " or ".join(["age >= 65"] * 40) + " or sex == 'alien'"
    with pytest.raises(WorkloadError) as caught:
        mask(text)
    assert f"character {text.index(chr(39)) + 1}" in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_name_of_several_words_says_how_it_is_written():
    domain = Domain({"part time": Booleans()})
    with pytest.raises(WorkloadError, match="written in backquotes: `part time`"):
        compile_predicate(domain, "part time == 'yes'")
    assert compile_predicate(domain, "`part time`").text == "`part time`"


def test_names_of_predicates_are_said_another_way() -> None:
    with pytest.raises(WorkloadError, match="for names, stack them"):
        predicates(Domain({"age": 5}), {"heavy": "age > 2"})  # type: ignore[arg-type]
