"""Lies about releases, each with the check that has to find it. Whoever tells one makes all hashes anew that he can."""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from sfumato import check_forms, check_maps, check_release
from support.forging import Forged


class Lie(NamedTuple):
    """What is changed, which check finds it, of which releases it is told, and what is told again (`publish`)."""

    tell: Callable[[Forged], Any]
    check: str
    kinds: tuple[str, ...]
    last: bool = False  # whether it is told in release.json, after all else
    follow: bool = True  # whether the ledger is made to say what the release says
    rehash: Callable[[Forged], set[int]] | None = None
    anchored: bool = False
    earlier: bool = False  # whether the checker is handed an earlier release of the stream


def _documents(item: Any, name: str) -> Iterator[Any]:
    if isinstance(item, dict):
        if item.get("~class") == name:
            yield item
        for value in item.values():
            yield from _documents(value, name)
    elif isinstance(item, list):
        for value in item:
            yield from _documents(value, name)


def _fraction(value: Fraction) -> dict[str, list[int]]:
    return {"~fraction": [value.numerator, value.denominator]}


def _scale(noise: Any) -> str:
    return "scale" if noise["~class"] == "DiscreteLaplace" else "sigma"


# ---- what is measured ---------------------------------------------------------------------------------------------


def _plan_multiples(f: Forged) -> None:
    for kind in ("Residuals", "PairResiduals", "WeightedTables", "Product", "Canonical", "Spine"):
        for s in _documents(f.plan["strategy"], kind):
            if "multiple" in s:
                s["multiple"] *= 2
            else:
                s["multiples"] = [2 * m for m in s["multiples"]]


def _measured_multiples(f: Forged) -> None:
    for block in f.measured["blocks"]:
        if block["~class"] == "Family":
            block["multiples"] = 2 * block["multiples"]
            continue
        # of tables at levels the last factor holds the multiple
        found = (list(_documents(block["factors"][i], "Scaled")) for i in (0, -1))
        for scaled in next(filter(None, found), []):
            scaled["factor"] *= 2


def _multiples(f: Forged) -> None:
    _plan_multiples(f)
    _measured_multiples(f)


def _one_multiple(f: Forged) -> None:
    block = f.measured["blocks"][-1]
    block["multiples"] = block["multiples"] + np.eye(len(block["multiples"]), dtype=np.int64)[0] * 1
    f.plan["strategy"]["multiples"][-1] = f.plan["strategy"]["multiples"][-1] + np.eye(
        len(f.plan["strategy"]["multiples"][-1]), dtype=np.int64
    )[0] * (10**6)


def _double_column(f: Forged) -> None:
    """A whole column of every factor that is given entry by entry."""
    for where in (f.plan["strategy"], f.measured):
        for dense in _documents(where, "Dense"):
            matrix = dense["matrix"].copy()
            matrix[:, int(np.abs(matrix).sum(axis=0).argmax())] *= 2
            dense["matrix"] = matrix


def _coefficients(*where: str) -> Callable[[Forged], None]:
    """The coefficients of combined queries that some cell meets most of are twice as large."""

    def tell(f: Forged) -> None:
        for part in where:
            for found in _documents({"plan": f.plan["strategy"], "values": f.measured}[part], "Combination"):
                found["matrix"] = 2 * found["matrix"]

    return tell


def _columns_of_toeplitz(f: Forged) -> None:
    """Columns have multiples of their own, in a field that no release had before."""
    for where in (f.plan["strategy"], f.measured):
        for found in _documents(where, "Toeplitz"):
            found["columns"] = np.full(len(found["multiples"]), 2, dtype=np.int64)


def _another_block(f: Forged) -> None:
    f.measured["blocks"].append(copy.deepcopy(f.measured["blocks"][-1]))
    f.measured["values"].append(f.measured["values"][-1])


def _fewer_blocks(f: Forged) -> None:
    del f.measured["blocks"][-1], f.measured["values"][-1]


def _known_measured(f: Forged) -> None:
    """A table that was measured is called public by the plan."""
    multiples = f.plan["strategy"]["multiples"][-1].copy()
    multiples[0] = 0
    f.plan["strategy"]["multiples"][-1] = multiples


def _cut(f: Forged) -> None:
    f.measured["values"][0] = f.measured["values"][0][:-1]


def _real(f: Forged) -> None:
    f.measured["values"][0] = f.measured["values"][0].astype(float)


def _other_attribute(f: Forged) -> None:
    for block in f.measured["blocks"]:
        if block["~class"] == "Family":
            block["names"] = [block["names"][1], block["names"][0], *block["names"][2:]]
        else:
            block["groups"] = [["sex"] if g == ["edu"] else g for g in block["groups"]]


def _know_total(f: Forged) -> None:
    f.measured["total"] = 432


def _another_look(kind: str) -> Callable[[Forged], None]:
    """One look more than the plan paid for, of a kind that it took."""

    def tell(f: Forged) -> None:
        looks = f.doc["measurement"]
        looks.append(copy.deepcopy(next(m for m in looks[::-1] if m["~class"] == kind)))

    return tell


# ---- noise and price ----------------------------------------------------------------------------------------------


def _least(f: Forged) -> Fraction:
    """A scale that is one unit of 2^-20 below what the stated sensitivity needs at the price."""
    found, event = f.plan["sensitivity"], check_release.stored_event_text(f.plan["price"])
    needed = Fraction(check_forms.read_stored_fraction(found["value"])) / Fraction(event.split()[1])
    if event.startswith("zcdp"):
        needed /= 2
    if found["power"] == 2:
        return Fraction(math.isqrt(math.ceil(needed * 2**40)), 2**20) - Fraction(1, 2**20)
    return Fraction(math.ceil(needed * 2**20) - 1, 2**20)


def _less_noise(*where: str) -> Callable[[Forged], None]:
    def tell(f: Forged) -> None:
        for part in where:
            noise = {"plan": f.plan, "values": f.measured}[part]["noise"]
            noise[_scale(noise)] = _fraction(_least(f))

    return tell


def _half_noise(f: Forged) -> None:
    for noise in (f.plan.get("noise"), f.measured["noise"]):
        if noise is not None:
            noise[_scale(noise)] = _fraction(check_forms.read_stored_fraction(noise[_scale(noise)]) / 2)


def _other_law(f: Forged) -> None:
    for noise in (f.plan["noise"], f.measured["noise"]):
        scale = noise.pop(_scale(noise))
        law = "DiscreteGaussian" if noise["~class"] == "RoundedGaussian" else "RoundedGaussian"
        noise |= {"~class": law, "sigma": scale}


def _cheaper(f: Forged) -> None:
    """The price that the ledger is told is a billionth below what the noise costs."""
    found, noise = check_forms.read_stored_fraction(f.plan["sensitivity"]["value"]), f.plan["noise"]
    scale = check_forms.read_stored_fraction(noise[_scale(noise)])
    exact = found / scale ** f.plan["sensitivity"]["power"] / (2 if noise["~class"] == "DiscreteGaussian" else 1)
    name = next(k for k in f.plan["price"] if k != "~class")
    f.plan["price"][name] = _fraction(exact * Fraction(10**9 - 1, 10**9))


def _half_price(f: Forged) -> None:
    name = next(k for k in f.plan["price"] if k != "~class")
    f.plan["price"][name] = _fraction(check_forms.read_stored_fraction(f.plan["price"][name]) / 2)


def _smaller_budget(f: Forged) -> None:
    f.plan["budget"]["parameter"] = _fraction(
        check_forms.read_stored_fraction(f.plan["budget"]["parameter"]) * Fraction(999_999, 10**6)
    )


def _smaller_sensitivity(f: Forged) -> None:
    f.plan["sensitivity"]["value"] = int(check_forms.read_stored_fraction(f.plan["sensitivity"]["value"])) - 1


# ---- whose privacy ------------------------------------------------------------------------------------------------


def _replaced(f: Forged) -> None:
    f.plan["unit"]["neighbours"]["value"] = "replace-one"


def _more_rows(f: Forged) -> None:
    f.plan["unit"]["rows_per_person"] += 1


def _fewer_rows(f: Forged) -> None:
    f.plan["unit"]["rows_per_person"] -= 1


def _plan_cut(times: int) -> Callable[[Forged], None]:
    """The plan says otherwise how often it is counted who had more rows than are counted."""

    def tell(f: Forged) -> None:
        f.plan["cut"] *= times

    return tell


def _nobody(f: Forged) -> None:
    """What was done for persons is said of records."""
    f.plan["unit"] |= {"person": None, "rows_per_person": 1}


def _anybody(f: Forged) -> None:
    """What was done where records stay in their groups is said of all that are replaced."""
    del f.plan["unit"]["within"]


def _groups(*, named: bool) -> Callable[[Forged], None]:
    """Records are replaced within single cells, where nothing but other attributes changes; with a hash that fits."""

    def tell(f: Forged) -> None:
        within = f.plan["unit"]["within"]
        within["codes"] = np.arange(len(within["codes"]))
        if named:
            within["digest"] = check_maps.document_fingerprint([within["attribute"], within["codes"]])

    return tell


def _other_blocks(f: Forged) -> None:
    f.plan["unit"]["within"]["digest"] = f.plan["unit"]["within"]["digest"][:64] + ":" + "0" * 64


def _renamed_groups(f: Forged) -> None:
    f.plan["unit"]["within"]["name"] = "county"


# ---- what release.json says ---------------------------------------------------------------------------------------


def _said(*path: str, value: Any) -> Callable[[Forged], None]:
    def tell(f: Forged) -> None:
        place = f.facts
        for key in path[:-1]:
            place = place[key]
        assert place[path[-1]] != value
        place[path[-1]] = value

    return tell


def _other_file(f: Forged) -> None:
    path = f.release / "measurements.npz"
    path.write_bytes(path.read_bytes() + b"0")


# ---- in another form ----------------------------------------------------------------------------------------------


def _narrow(dtype: str, value: int) -> Callable[[Forged], None]:
    """Entries in a type in which their square, or size, wraps to 0 or below, so that any noise would cover them."""

    def tell(f: Forged) -> None:
        for where in (f.plan["strategy"], f.measured):
            for dense in _documents(where, "Dense"):
                dense["matrix"] = np.zeros_like(dense["matrix"], dtype=dtype)
                dense["matrix"][:, 0] = value

    return tell


def _large(f: Forged) -> None:
    """The same entries in 64 bits: nothing wraps, and the noise does not cover them."""
    _narrow("int64", 65536)(f)


def _scaled_by_a_fraction(f: Forged) -> None:
    """A multiple that was cut to 0, by which all that is measured is free."""
    for scaled in _documents(f.measured, "Scaled"):
        scaled["factor"] = {"~fraction": [scaled["factor"] * 10**6 - 1, 10**6]}


def _real_multiples(f: Forged) -> None:
    """1.999 was cut to 1."""
    for s in (f.plan["strategy"], *f.measured.get("blocks", ())):
        given = s["multiples"]
        s["multiples"] = [m + 0.999 for m in given] if isinstance(given, list) else given + 0.999


def _a_thousand_times(f: Forged) -> None:
    """Every entry a thousand times: what adds them up, as scipy does, has a map a thousand times as large."""
    for where in (f.plan["strategy"], f.measured):
        for dense in _documents(where, "Dense"):
            m = dense.pop("matrix")
            rows, columns = np.nonzero(m)
            sparse = {"data": np.repeat(m[rows, columns], 1000), "indices": np.repeat(columns, 1000)}
            sparse["indptr"] = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(m)) * 1000)])
            dense |= {"~class": "Sparse"} | sparse | {"columns": m.shape[1]}


def _wrapped_looks(f: Forged) -> None:
    """A hundred further looks, called looks at the number of records."""
    look = copy.deepcopy(f.measured)
    look["blocks"] = [{"~class": "Stacked", "pieces": look["blocks"], "title": "", "groups": []}]
    f.doc["measurement"] += [copy.deepcopy(look) for _ in range(100)]


def _unknown(find: Callable[[Forged], Any]) -> Callable[[Forged], None]:
    """A field that nobody knows."""
    return lambda f: find(f).update(zzz=1)


def _granted(text: str) -> Callable[[Forged], None]:
    return lambda f: f.lines[0].__setitem__(1, text)


# ---- the ledger ---------------------------------------------------------------------------------------------------


def _missing(f: Forged) -> None:
    f.lines = [line for line in f.lines if line[2:3] != ["it"]]
    f.add_up()


def _unreleased(f: Forged) -> None:
    f.lines.remove(f.stored)
    f.add_up()


def _reordered(f: Forged) -> None:
    f.lines[1:3], f.lines[3:5] = f.lines[3:5], f.lines[1:3]


def _swapped(f: Forged) -> None:
    """Two lines change places, with numbers and sums that are right."""
    f.lines[2], f.lines[3] = f.lines[3], f.lines[2]
    f.add_up()


def _line(column: int, value: Any) -> Callable[[Forged], None]:
    def tell(f: Forged) -> None:
        new = value(f.spend[column]) if callable(value) else value
        assert f.spend[column] != new
        f.spend[column] = new

    return tell


def _summed(change: Callable[[Forged], Any]) -> Callable[[Forged], None]:
    def tell(f: Forged) -> None:
        change(f)
        f.add_up()

    return tell


def _tenth(text: str) -> str:
    return str(Fraction(text) / 10)


def _twice(f: Forged) -> None:
    """The same line again: what was paid once pays for another look."""
    f.lines.append(list(f.spend))
    f.add_up()


def _stored_twice(f: Forged) -> None:
    f.lines.append(list(f.stored))
    f.add_up()


def _smaller_total(f: Forged) -> None:
    f.lines[0][3] = str(Fraction(f.spend[6]) * Fraction(999, 1000))


def _larger_total(f: Forged) -> None:
    f.lines[0][3] = str(Fraction(f.lines[0][3]) * Fraction(10**9 + 1, 10**9))


def _other_ledger(f: Forged) -> None:
    f.doc["provenance"]["ledger_id"] = hashlib.sha256(b"another").hexdigest()[:32]


def _other_line(f: Forged) -> None:
    f.doc["provenance"]["sequence"] = 1


def _other_unit_before(f: Forged) -> None:
    f.lines[1][10] = (
        f.lines[1][10].replace("add-remove", "x").replace("replace-one", "add-remove").replace("x", "replace-one")
    )


def _other_person_before(f: Forged) -> None:
    relation, person, *rows = json.loads(f.lines[1][10])
    f.lines[1][10] = json.dumps([relation, f"{person}?", *rows])


def _record_before(f: Forged) -> None:
    f.lines[1][10] = json.dumps([json.loads(f.lines[1][10])[0], None, 1])


def _anew(f: Forged) -> None:
    """The whole ledger once more, with another first spend: nothing but an anchor shows it."""
    f.lines[1][7] = "2020-01-01T00:00:00+00:00"


def _spend_line(f: Forged) -> set[int]:
    return {int(f.spend[0])}


# ---- streams ------------------------------------------------------------------------------------------------------


def _tables_of_stream(*where: str) -> Callable[[Forged], None]:
    """The multiples of the last family of tables: of its terms, or of the strategy that the plan describes."""

    def tell(f: Forged) -> None:
        if "terms" in where:
            f.plan["terms"]["families"][-1]["multiples"] = 2 * f.plan["terms"]["families"][-1]["multiples"]
        if "plan" in where:
            f.plan["strategy"]["multiples"][-1] = 2 * f.plan["strategy"]["multiples"][-1]

    return tell


def _filter(name: str, change: Callable[[Any], Any], which: str = "filter") -> Callable[[Forged], None]:
    def tell(f: Forged) -> None:
        found = f.plan["terms"][which]
        found[name] = change(found[name])

    return tell


def _all_as_the_total(f: Forged) -> None:
    """Of all tables the total alone is left, so that none goes through the filter of the others."""
    terms, strategy = f.plan["terms"], f.plan["strategy"]
    terms["families"] = terms["families"][:1]
    for name in ("sets", "multiples"):
        strategy[name] = strategy[name][:1]
    for period in _published(f):
        period["values"] = [period["values"][0], *period["values"][3:]]


def _first(amount: int) -> Callable[[Any], Any]:
    """The first number of an array, so much larger."""

    def change(array: Any) -> Any:
        out = array.copy()
        out.flat[0] += amount
        return out

    return change


def _slower(array: Any) -> Any:
    """The first state forgets an eighth more slowly."""
    out = array.copy()
    out.flat[0] = out.flat[0] * 7 // 8
    return out


def _terms(name: str, change: Callable[[Any], Any], stated: str | None = None) -> Callable[[Forged], None]:
    def tell(f: Forged) -> None:
        f.plan["terms"][name] = change(f.plan["terms"][name])
        if stated is not None:
            f.plan["periods"][stated] = f.plan["terms"][name]

    return tell


def _sigma(f: Forged, factor: Fraction) -> None:
    f.plan["terms"]["noise"]["sigma"] = _fraction(
        check_forms.read_stored_fraction(f.plan["terms"]["noise"]["sigma"]) * factor
    )


def _sigma_larger(f: Forged) -> None:
    _sigma(f, Fraction(2))


def _without_rounding(f: Forged) -> None:
    """The noise covers what the filter responds, to one part in 10^9, and nothing of its floors."""
    terms, sizes, ops = f.plan["terms"], check_release.declared_cell_counts(f.plan), dict[str, Any]()
    blocks = [b for family in terms["families"] for b in check_maps.strategy_blocks(family, sizes, ops)]
    value, _ = check_maps.largest_record_change(blocks, ops, sizes, 2, replace=False, public=False)
    rows = f.plan["unit"]["rows_per_person"]
    response, _ = check_maps.stream_filter_bounds(terms["filter"], terms["participations"], terms["apart"])
    response *= Fraction(value * rows**2, 4 ** (terms["grain"] + terms["filter"]["shift"]))
    needed = response / check_forms.read_stored_fraction(f.plan["price"]["mu_squared"])
    terms["noise"]["sigma"] = _fraction(Fraction(math.isqrt(math.ceil(needed * 2**40)) + 1, 2**20))


def _shorter(f: Forged) -> None:
    """The stream is said to end before its last period that was published."""
    used = f.plan["terms"]["filter"]
    f.plan["periods"]["count"] = 3
    for name in ("runs", "rows", "direct", "carried"):
        used[name] = used[name][:3]


def _published(f: Forged) -> Any:
    return f.doc["published"]


def _period(change: Callable[[Any], Any]) -> Callable[[Forged], None]:
    def tell(f: Forged) -> None:
        change(_published(f)[1])

    return tell


def _other_value(period: Any) -> None:
    period["values"][0] = period["values"][0] + 1


def _short_value(period: Any) -> None:
    period["values"][0] = period["values"][0][:-1]


def _real_value(period: Any) -> None:
    period["values"][0] = period["values"][0].astype(float)


def _look(i: int, change: Callable[[Any], Any]) -> Callable[[Forged], None]:
    """A look of a description."""

    def tell(f: Forged) -> None:
        change(f.doc["looks"][i])

    return tell


def _look_noise(factor: Fraction) -> Callable[[Any], None]:
    def tell(look: Any) -> None:
        noise = look["measured"]["noise"]
        noise[_scale(noise)] = _fraction(check_forms.read_stored_fraction(noise[_scale(noise)]) * factor)

    return tell


def _look_multiples(look: Any) -> None:
    """Of the first block; of a table of two columns by one of its factors."""
    block = look["measured"]["blocks"][0]
    if block["factors"][0]["~class"] == "Scaled":
        block["factors"][0]["factor"] *= 2
    else:
        block["factors"][0] = {"~class": "Scaled", "operator": block["factors"][0], "factor": 2}


def _look_known(look: Any) -> None:
    look["measured"]["total"] = 600


def _look_elsewhere(look: Any) -> None:
    look["grid"]["names"][0] = "zzz"
    for block in look["measured"]["blocks"]:
        block["groups"] = [["zzz" if n == "age" else n for n in group] for group in block["groups"]]


def _look_narrower(look: Any) -> None:
    """A rule says fewer cells than were counted."""
    rule = next(r for r in look["grid"]["rules"] if "edges" in r)
    del rule["edges"][-1]


def _look_no_kinds(look: Any) -> None:
    look["grid"]["rules"][0] = {**look["grid"]["rules"][0], "~class": "Truths", "kind": "boolean"}


def _label_look(change: Callable[[Any], Any]) -> Callable[[Forged], None]:
    def tell(f: Forged) -> None:
        change(f.doc["label_looks"][-1])

    return tell


def _label_noise(look: Any) -> None:
    noise = look["selection"]["noise"]
    noise["sigma"] = _fraction(check_forms.read_stored_fraction(noise["sigma"]) / 2)


def _label_threshold(look: Any) -> None:
    """Lower by a hundredth: what keeps the least delta is found to one part in 2^16."""
    look["selection"]["threshold"] = look["selection"]["threshold"] * 99 // 100


def _label_price(look: Any) -> None:
    look["price"]["mu_squared"] = _fraction(check_forms.read_stored_fraction(look["price"]["mu_squared"]) / 2)


def _label_delta(f: Forged) -> None:
    f.plan["price"]["delta"] = _fraction(check_forms.read_stored_fraction(f.plan["price"]["delta"]) / 2)


def _label_of_nobody(f: Forged) -> None:
    f.doc["labels"]["~map"].append(["age", ["77"]])


def _label_twice(f: Forged) -> None:
    labels = f.doc["labels"]["~map"][0][1]
    labels.append(labels[0])


def _label_column(look: Any) -> None:
    look["attribute"] = "zzz"


def _label_rows(look: Any) -> None:
    look["selection"]["per_person"] += 1


def _label_rows_without_end(look: Any) -> None:
    """Nobody goes through so many numbers. Mutant: all of them are gone through."""
    look["selection"]["per_person"] = 2**70


_PERSONS = ("residuals of persons", "residuals of replaced persons")
_FILTERED = ("stream", "stream, replaced", "stream of persons", "stream of replaced persons")
_LEFT_OUT = ("stream of persons", "stream of replaced persons", "stream of banded persons")
_BANDED = ("stream of banded persons",)
_TOTALS = ("stream of totals of persons",)
_GROUPED = ("stream of persons once per group",)
_OWN = ("stream of persons and their total",)
_STREAMS = (*_FILTERED, *_BANDED, *_TOTALS, *_GROUPED, *_OWN)
_RESIDUALS = ("residuals", "residuals, pure and replaced", "residuals of persons", "public tables")
_MANY = ("many levels, replaced", "many levels within states")
_COMBINED = ("combined", "combined, pure and replaced")
_ALL = (
    *_RESIDUALS,
    "combined",
    "square root",
    "direct",
    "tree",
    "discrete Gaussian",
    "dense, replaced",
    "union",
    "product",
    *_MANY,
)
_SOME = ("residuals", "direct, replaced", "mwem", "count-sketch")
_LINES = (*_SOME, "stream", "description")
_DESCRIBED = ("description", "description, replaced", "description of persons", "description with pairs")
_WITH_LABELS = ("description", "description of persons")
_WITHIN = ("levels within states", "tables within states")

_ROOT = "release.json: "
_FORMS: dict[str, Lie] = {
    "entries of 8 bits": Lie(_narrow("int8", -128), "forms", ("dense, replaced", "dense, pure")),
    "entries of 8 bits whose square wraps": Lie(_narrow("int8", 16), "forms", ("dense, replaced",)),
    "entries of 16 bits": Lie(_narrow("int16", 256), "forms", ("dense, replaced",)),
    "entries of 32 bits": Lie(_narrow("int32", 65536), "forms", ("dense, replaced", "discrete Gaussian")),
    "entries of 64 bits, as large": Lie(_large, "price", ("dense, replaced", "dense, pure")),
    "a multiple is a fraction": Lie(_scaled_by_a_fraction, "forms", ("direct", "tree", "roots")),
    "multiples are real": Lie(_real_multiples, "forms", ("largest error", "stream")),
    "entries a thousand times": Lie(_a_thousand_times, "files", ("dense, replaced", "dense, pure")),
    "a hundred looks, wrapped": Lie(_wrapped_looks, "forms", ("mwem, replaced",)),
    "a grant has another number": Lie(
        _granted('{"mu": "9", "zzz": "1000"}'), "files", ("residuals", "stream"), follow=False
    ),
    "a grant is spelt otherwise": Lie(_granted('{"mu": "18/2"}'), "forms", ("residuals",), follow=False),
    "a grant stands there twice": Lie(_granted('{"mu": "1", "mu": "9"}'), "forms", ("residuals",), follow=False),
    "measurements have another field": Lie(_unknown(lambda f: f.measured), "forms", ("residuals", "mwem", "stream")),
    "noise has another field": Lie(
        _unknown(lambda f: f.measured["noise"]), "forms", ("residuals", "mwem", "count-sketch")
    ),
    "the unit has another field": Lie(_unknown(lambda f: f.plan["unit"]), "forms", ("residuals", "hybrid", "stream")),
    "heavy counts have another field": Lie(_unknown(lambda f: f.plan["stability"]), "forms", ("hybrid",)),
    "periods have another field": Lie(_unknown(lambda f: f.plan["periods"]), "forms", ("stream",)),
    "a period has another field": Lie(_unknown(lambda f: _published(f)[0]), "forms", ("stream",)),
    _ROOT + "the statement": Lie(
        _said("privacy", "statement", value="0.1-DP (pure epsilon)"), "files", ("residuals", "mwem"), last=True
    ),
    _ROOT + "the unit in words": Lie(
        _said("privacy", "unit", value="one family added or removed"), "files", ("residuals", "tree"), last=True
    ),
    _ROOT + "the events": Lie(_said("privacy", "events", value=[]), "files", ("residuals", "mwem"), last=True),
    _ROOT + "the trust model": Lie(
        _said("mechanism", "trust_model", value="local: nobody sees a record"),
        "files",
        ("residuals", "mwem"),
        last=True,
    ),
    _ROOT + "the sampler": Lie(_said("mechanism", "sampler", value="none"), "files", ("residuals",), last=True),
    _ROOT + "the noise": Lie(_said("mechanism", "noise", value={}), "files", ("residuals",), last=True),
    _ROOT + "a further promise": Lie(
        lambda f: f.facts["privacy"].update(also="local"), "files", ("residuals", "mwem"), last=True
    ),
    _ROOT + "a further entry": Lie(lambda f: f.facts.update(zzz=1), "files", ("residuals", "mwem"), last=True),
}

LIES: dict[str, Lie] = _FORMS | {
    "all multiples are twice as large": Lie(
        _multiples, "price", (*_RESIDUALS, *_WITHIN, *_MANY, "levels", "direct", "tree", "product")
    ),
    "one multiple is larger": Lie(_one_multiple, "maps", ("residuals", "public tables")),
    "the plan's multiples are": Lie(_plan_multiples, "maps", (*_RESIDUALS, "tree")),
    "the measured multiples are": Lie(_measured_multiples, "maps", (*_RESIDUALS, "tree")),
    "a column of a factor is doubled": Lie(
        _double_column, "price", ("dense, replaced", "union", "dense, pure", "biased")
    ),
    "coefficients are twice as large": Lie(_coefficients("plan", "values"), "price", ("combined",)),
    "the plan's coefficients are": Lie(_coefficients("plan"), "maps", _COMBINED),
    "the measured coefficients are": Lie(_coefficients("values"), "maps", _COMBINED),
    "columns have multiples": Lie(_columns_of_toeplitz, "price", ("square root",)),
    "more was measured than planned": Lie(_another_block, "maps", ("residuals", "union", "direct", "public tables")),
    "less was measured than planned": Lie(_fewer_blocks, "maps", ("residuals", "union")),
    "a public table was measured": Lie(_known_measured, "maps", ("residuals", "public tables")),
    "other attributes were measured": Lie(_other_attribute, "maps", ("residuals", "union")),
    "values are missing": Lie(_cut, "maps", ("residuals", "tree", "mwem")),
    "values are no integers": Lie(_real, "forms", ("residuals", "tree", "mwem")),
    "the number of records is told": Lie(
        _know_total, "total", ("residuals", "direct", "mwem", "residuals of replaced persons")
    ),
    "one look more was measured": Lie(_another_look("Measurement"), "looks", ("mwem", "mwem, replaced", "boosting")),
    "one query more was chosen": Lie(_another_look("Selection"), "looks", ("mwem", "mwem, replaced", "boosting")),
    "noise is one unit too small": Lie(_less_noise("plan", "values"), "price", _ALL),
    "less noise was drawn": Lie(_less_noise("values"), "price", ("residuals", "tree")),
    "less noise was planned": Lie(_less_noise("plan"), "price", ("residuals", "tree")),
    "noise is half as large": Lie(
        _half_noise, "price", ("mwem", "mwem, replaced", "boosting", "count-sketch", "hybrid")
    ),
    "noise is of another law": Lie(_other_law, "price", ("residuals", "discrete Gaussian", "direct")),
    "the price is below its cost": Lie(_cheaper, "price", _ALL),
    "the price is half": Lie(_half_price, "price", ("mwem", "boosting", "count-sketch", "sparse-project")),
    "the budget stated is smaller": Lie(_smaller_budget, "price", (*_ALL, "mwem", "count-sketch", "hybrid")),
    "the sensitivity stated is smaller": Lie(_smaller_sensitivity, "price", ("residuals", "tree", "dense, replaced")),
    "records are replaced": Lie(_replaced, "price", ("residuals", "direct", "tree", "count-sketch", "mwem")),
    "who was cut is counted twice as often": Lie(_plan_cut(2), "price", _PERSONS),
    "who was cut is counted in secret": Lie(_plan_cut(0), "maps", _PERSONS),
    "who was cut is not counted": Lie(lambda f: f.measured.pop("cut"), "maps", _PERSONS),
    "who was cut is counted in part": Lie(lambda f: f.measured.update(cut=0.5), "forms", _PERSONS),
    "persons have more rows": Lie(_more_rows, "price", ("residuals of persons", "residuals of replaced persons")),
    "persons have fewer rows": Lie(_fewer_rows, "entry", ("residuals of persons",), follow=False),
    "persons are records": Lie(_nobody, "unit", ("residuals of persons",), follow=False),
    "records may go anywhere": Lie(_anybody, "total", _WITHIN),
    "records stay in their blocks": Lie(_groups(named=True), "unit", _WITHIN),
    "records stay in blocks that are hashed as states": Lie(_groups(named=False), "unit", _WITHIN),
    "states are of other blocks": Lie(_other_blocks, "unit", _WITHIN),
    "states are called counties": Lie(_renamed_groups, "unit", _WITHIN),
    "the ledger's line has no groups": Lie(_line(10, '["replace-one", null, 1]'), "unit", _WITHIN, follow=False),
    "release.json: the groups": Lie(_said("privacy", "within", value=[]), "files", _WITHIN, last=True),
    "release.json: the relation": Lie(_said("privacy", "neighbours", value="none"), "files", ("residuals",), last=True),
    "release.json: what is impossible": Lie(
        _said("impossible", value=["sex == 'm'"]), "files", ("residuals, impossible cells",), last=True
    ),
    "release.json: the rows": Lie(_said("privacy", "rows_per_person", value=7), "files", ("mwem",), last=True),
    "release.json: the person": Lie(_said("privacy", "person", value="?"), "files", ("direct",), last=True),
    "release.json: the budget": Lie(_said("privacy", "budget", value={"rho": "1"}), "files", ("tree",), last=True),
    "release.json: the plan": Lie(_said("hashes", "plan", value="0" * 64), "files", ("union",), last=True),
    "release.json: the ledger": Lie(_said("ledger", "id", value="0" * 32), "files", ("residuals",), last=True),
    "release.json: the line": Lie(_said("ledger", "sequence", value=1), "files", ("tree",), last=True),
    "release.json: the name": Lie(_said("name", value="other"), "files", ("mwem",), last=True),
    "release.json: the table": Lie(_said("table", value="other"), "files", ("mwem",), last=True),
    "a file was changed": Lie(_other_file, "files", ("residuals", "tree"), follow=False),
    "the line is missing": Lie(_missing, "entry", ("residuals",), follow=False),
    "the result is not in the ledger": Lie(_unreleased, "entry", _SOME, follow=False),
    "lines were moved": Lie(_reordered, "chain", _LINES, follow=False, rehash=lambda _: set()),
    "lines were moved and made anew": Lie(_swapped, "chain", _LINES, follow=False),
    "the price was edited": Lie(_line(5, _tenth), "chain", _LINES, follow=False, rehash=lambda _: set()),
    "the price was edited, with its hash": Lie(_line(5, _tenth), "chain", _LINES, follow=False, rehash=_spend_line),
    "the price was edited, with all hashes": Lie(_line(5, _tenth), "chain", _LINES, follow=False),
    "less was paid than it cost": Lie(_summed(_line(5, _tenth)), "chain", _LINES, follow=False),
    "the sum is wrong": Lie(_line(6, "1/7"), "chain", ("residuals",), follow=False),
    "the line is of another plan": Lie(_line(3, "0" * 64), "entry", _LINES, follow=False),
    "the line is of another event": Lie(_line(4, "pure 1/100"), "entry", _LINES, follow=False),
    "the line is of another table": Lie(_line(11, "others"), "unit", _LINES, follow=False),
    "the line is of another unit": Lie(_line(10, '["add-remove", "x", 1]'), "unit", _LINES, follow=False),
    "the line before is of another unit": Lie(_other_unit_before, "chain", ("residuals", "tree"), follow=False),
    "the line before is of another person": Lie(_other_person_before, "chain", _PERSONS, follow=False),
    "the line before is of a record": Lie(_record_before, "chain", _PERSONS, follow=False),
    "the result is another": Lie(lambda f: f.stored.__setitem__(9, "0" * 64), "entry", _LINES, follow=False),
    "it was paid in another ledger": Lie(_other_ledger, "entry", _LINES),
    "it was paid by another line": Lie(_other_line, "entry", ("residuals",), follow=False),
    "a line pays twice": Lie(_twice, "chain", _LINES, follow=False),
    "a result is stored twice": Lie(_stored_twice, "chain", ("residuals",), follow=False),
    "the total is overspent": Lie(_smaller_total, "chain", _LINES, follow=False),
    "the total is above its budget": Lie(_larger_total, "chain", _LINES, follow=False),
    "the ledger was made anew": Lie(_anew, "anchor", ("residuals", "mwem", "tree"), follow=False, anchored=True),
    "the ledger was put back": Lie(_unreleased, "anchor", ("residuals", "tree"), follow=False, anchored=True),
    "a stream's multiples are twice as large": Lie(_tables_of_stream("plan", "terms"), "price", _STREAMS),
    "the multiples of a stream's plan are": Lie(_tables_of_stream("plan"), "maps", _STREAMS),
    "the multiples of a stream's terms are": Lie(_tables_of_stream("terms"), "maps", _STREAMS),
    "a stream's noise is a ten-millionth too small": Lie(
        lambda f: _sigma(f, 1 - Fraction(1, 10**7)), "price", (*_FILTERED, *_BANDED, *_TOTALS, *_OWN)
    ),
    "a stream's noise is a tenth too small": Lie(lambda f: _sigma(f, Fraction(9, 10)), "price", _GROUPED),
    "a stream's price is half": Lie(_half_price, "price", _STREAMS),
    "a stream's noise covers no rounding": Lie(_without_rounding, "price", ("stream", "stream of persons")),
    "a direct integer is larger": Lie(_filter("direct", _first(2**27)), "price", _FILTERED),
    "a carried integer is larger": Lie(_filter("carried", _first(2**20)), "price", _FILTERED),
    "a carried integer is negative": Lie(_filter("carried", _first(-(2**40))), "files", _FILTERED),
    "a state decays more slowly": Lie(_filter("decays", _slower), "price", _FILTERED),
    "a state grows": Lie(_filter("decays", _first(2**40)), "files", ("stream",)),
    "a row is larger": Lie(_filter("rows", _first(9)), "price", _FILTERED),
    "less is shifted": Lie(_filter("shift", lambda s: s - 1), "price", _FILTERED),
    "a past count weighs more": Lie(_filter("taps", _first(2**20)), "price", _BANDED),
    "a past count weighs less than it may": Lie(_filter("taps", _first(-(2**30))), "files", _BANDED),
    "a past count of a total weighs more": Lie(_filter("taps", _first(2**22), "total"), "price", _OWN),
    "a total has a filter of other periods": Lie(_filter("runs", _first(1), "total"), "maps", _OWN),
    "all goes through the filter of a total": Lie(_all_as_the_total, "maps", _OWN),
    "the grain is finer": Lie(_terms("grain", lambda g: g - 1), "price", _STREAMS),
    "a person is in more periods": Lie(
        _terms("participations", lambda k: k + 1, "per_person"), "price", ("stream of persons", *_BANDED)
    ),
    "the terms have more periods of a person": Lie(_terms("participations", lambda k: k + 1), "price", _STREAMS),
    "periods of a person are nearer": Lie(_terms("apart", lambda _: 1, "apart"), "price", ("stream of persons",)),
    "nobody can be in so many periods": Lie(
        _terms("apart", lambda _: 10, "apart"), "price", ("stream of persons", *_BANDED)
    ),
    "a stream's records are replaced": Lie(_replaced, "price", ("stream", "stream of persons")),
    "who is left out is counted twice as often": Lie(_terms("cut", lambda a: 2 * a), "price", _LEFT_OUT),
    "who is left out is counted in secret": Lie(_terms("cut", lambda _: 0), "maps", _LEFT_OUT),
    "who is left out is not counted": Lie(_period(lambda p: p["values"].pop()), "maps", _LEFT_OUT),
    "a stream's persons have more rows": Lie(_more_rows, "price", ("stream of persons", "stream of replaced persons")),
    "a period more than was paid for": Lie(_shorter, "looks", ("stream", "stream of replaced persons")),
    "a period stands there twice": Lie(lambda f: _published(f).append(_published(f)[0]), "looks", _STREAMS),
    "a period lacks a value": Lie(_period(_short_value), "maps", _STREAMS),
    "a period's values are no integers": Lie(_period(_real_value), "forms", _STREAMS),
    "a period's number of records is told": Lie(
        _period(lambda p: p.update(total=7)), "total", ("stream", "stream of persons", "stream of replaced persons")
    ),
    "a period's number of records is above the most": Lie(
        _period(lambda p: p.update(total=2**60)), "total", ("stream, replaced",)
    ),
    "periods changed places": Lie(lambda f: _published(f).reverse(), "earlier", _STREAMS, follow=False, earlier=True),
    "a period was left out": Lie(lambda f: _published(f).pop(1), "earlier", _STREAMS, follow=False, earlier=True),
    "a value is another": Lie(_period(_other_value), "earlier", _STREAMS, follow=False, earlier=True),
    "a label is another": Lie(
        _period(lambda p: p.update(label="May")), "earlier", ("stream",), follow=False, earlier=True
    ),
    "noise of a description's first look is half": Lie(_look(0, _look_noise(Fraction(1, 2))), "looks", _DESCRIBED),
    "noise of a description's last look is a millionth too small": Lie(
        _look(-1, _look_noise(1 - Fraction(1, 10**6))), "looks", _DESCRIBED
    ),
    "a description's sums are twice as large": Lie(_look(-1, _look_multiples), "looks", _DESCRIBED),
    "a description has a look more": Lie(
        lambda f: f.doc["looks"].append(copy.deepcopy(f.doc["looks"][-1])), "looks", _DESCRIBED
    ),
    "a description has no look": Lie(lambda f: f.doc["looks"].clear(), "looks", _DESCRIBED),
    "a description's price is half": Lie(_half_price, "looks", _DESCRIBED),
    "a description's records are replaced": Lie(_replaced, "looks", ("description",)),
    "a description's persons have more rows": Lie(_more_rows, "looks", ("description of persons",)),
    "a description's number of records is told": Lie(_look(0, _look_known), "total", _WITH_LABELS),
    "a look is at a column that was not planned": Lie(_look(1, _look_elsewhere), "maps", _DESCRIBED),
    "a rule has fewer cells than were counted": Lie(_look(1, _look_narrower), "maps", _DESCRIBED),
    "the first look is at no kinds": Lie(_look(0, _look_no_kinds), "maps", _DESCRIBED),
    "a description's values are missing": Lie(_cut, "maps", _DESCRIBED),
    "labels were found with half the noise": Lie(_label_look(_label_noise), "price", _WITH_LABELS),
    "labels were found by a lower threshold": Lie(_label_look(_label_threshold), "price", _WITH_LABELS),
    "labels were found at half the price": Lie(_label_look(_label_price), "price", _WITH_LABELS),
    "labels were found at half the delta": Lie(_label_delta, "price", _WITH_LABELS),
    "more labels of a person count than rows": Lie(_label_look(_label_rows), "price", _WITH_LABELS),
    "labels of a person count without end": Lie(_label_look(_label_rows_without_end), "price", _WITH_LABELS),
    "labels were looked for elsewhere": Lie(_label_look(_label_column), "maps", _WITH_LABELS),
    "a label is shown that was not looked for": Lie(_label_of_nobody, "looks", _DESCRIBED),
    "a label is shown twice": Lie(_label_twice, "looks", _WITH_LABELS),
    "profile.json: the result": Lie(_said("hashes", "result", value="0" * 64), "files", _DESCRIBED, last=True),
    "profile.json: the statement": Lie(
        _said("privacy", "statement", value="0.1-DP (pure epsilon)"), "files", _DESCRIBED, last=True
    ),
    "profile.json: the ledger": Lie(_said("ledger", "id", value="0" * 32), "files", _DESCRIBED, last=True),
    "profile.json: a further entry": Lie(lambda f: f.facts.update(zzz=1), "files", _DESCRIBED, last=True),
    "it is of another stream": Lie(_sigma_larger, "earlier", ("stream",), earlier=True),
}
