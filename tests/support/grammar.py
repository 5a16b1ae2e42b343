"""Lies that nobody thought of: every field of a stored release, changed in every way in which its type can be.

A stored document is walked; a place in it, a change that fits what stands there, and whether the ledger follows are
drawn. What is said in another form, or says something else, must be accepted by nobody, but for what is `FREE`.
"""

from __future__ import annotations

import copy
import io
import json
import math
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import sfumato as sf
from sfumato import check_forms
from support.forging import Forged, verdict

FREE: dict[str, str] = {
    "Provenance.created": "a label: no guarantee, answer or error follows from when a release was made",
    "Provenance.versions": "a label, of what made it",
    "Provenance.snapshot": "a label of the table's state, by which its maker pools releases",
    "Plan.notes": "what the planner says of its choice",
    "Plan.considered": "what the planner compared; errors of answers follow from strategy and noise",
    "Plan.records": "a guess at the number of records that the planner was given",
    "Plan.bound": "what no strategy beats; errors of answers follow from strategy and noise",
    "Plan.objective": "what was made small; errors of answers follow from strategy and noise",
    "Plan.forecast": "what a projection was thought to gain before there were data",
    "Plan.alone": "what parts would err alone",
    "CoursePlan.notes": "as of plans of one look",
    "CoursePlan.considered": "as of plans of one look",
    "CoursePlan.records": "as of plans of one look",
    "CoursePlan.rmse": "a guess before data, said to be one",
    "KeyPlan.considered": "as of plans of tables",
    "KeyPlan.records": "as of plans of tables",
    "KeyPlan.size": "the size of query that candidates were compared at",
    "StreamPlan.notes": "as of plans of tables",
    "StreamPlan.considered": "as of plans of tables",
    "StreamPlan.records": "as of plans of tables",
    "StreamPlan.bound": "as of plans of tables",
    "StreamPlan.objective": "as of plans of tables",
    "StreamTerms.certificate": "how a sensitivity is proved quickly; one that proves too little is refused",
    "Sensitivity.exact": "a bound says less; one that is larger than what the checker finds is not called exact",
    "Release.projection": "what was made of the values, which stand beside it; the checker does not follow it",
    "StreamRelease.published": "nothing public binds a stream's values; the checker says so, and --earlier holds them",
    "ProfilePlan.records": "about how many records there are: how well columns will be known was told for it",
    "ProfilePlan.share_error": "what was thought before there were data",
    "ProfilePlan.rank_error": "likewise",
    "ProfilePlan.label_count": "likewise",
    "ProfilePlan.pair_value": "likewise",
    "ModelRelease.model": "what was made of the values, as a projection is",
    "ModelRelease.gap": "as the model",
}
"""What may say something else in an accepted release, in its own form, and why."""
SAID = ("error", "workload", "cautions", "projection", "model_gap", "post_processing", "mechanism.strategy")
SAID += ("mechanism.record_limit", "mechanism.looks", "other")
SAID += ("expected", "records", "columns", "pairs")  # of a description
"""What release.json says and the stranger's checker has no way to derive; `sf.load` derives it."""


class Place(NamedTuple):
    """Where something stands: what holds it, under which key, whose field it is, and fields further up."""

    holder: Any
    key: Any
    field: str
    above: tuple[str, ...]

    @property
    def value(self) -> Any:
        return self.holder[self.key]

    @property
    def free(self) -> bool:
        return not FREE.keys().isdisjoint(self.above)


def places(holder: Any, key: Any, field: str = "", above: tuple[str, ...] = ()) -> Iterator[Place]:
    """Every place of a document, from the outside in."""
    value = holder[key]
    yield Place(holder, key, field, above)
    if isinstance(value, dict) and "~class" in value:
        for name in value:
            if name != "~class":
                own = f"{value['~class']}.{name}"
                yield from places(value, name, own, (*above, own))
    elif isinstance(value, dict):
        for name in value:
            if name in ("~map",):
                yield from places(value, name, field, above)
    elif isinstance(value, list):
        for i in range(len(value)):
            yield from places(value, i, field, above)


Change = Callable[[Any], Any]
FORM = "in another form"
VALUE = "another value"

_ANY: dict[str, Change] = {
    "null": lambda v: None,
    "wrapped in a list": lambda v: [v],
    "wrapped in a map": lambda v: {"~map": [["x", v]]},
    "a float": lambda v: 1.5,
    "nan": lambda v: {"~float": "nan"},
    "infinite": lambda v: {"~float": "inf"},
    "an object": lambda v: {},
    "an unknown class": lambda v: {"~class": "Trust"},
    "an array that is not there": lambda v: {"~array": "a9999"},
    "a word": lambda v: "zzz",
    "true": lambda v: True,
    "an empty list": lambda v: [],
}
_INTEGER: dict[str, Change] = {
    "one more": lambda v: v + 1,
    "one less": lambda v: v - 1,
    "twice": lambda v: 2 * v,
    "a thousand times": lambda v: 1000 * v,
    "zero": lambda v: 0,
    "with the other sign": lambda v: -v,
    "beyond 64 bits": lambda v: v + 2**64,
}
_INTEGER_FORM: dict[str, Change] = {
    "a whole float": lambda v: float(v) if abs(v) < 2**1000 else 1.0,
    "a number as text": str,
    "a whole fraction": lambda v: {"~fraction": [v, 1]},
    "hexadecimal text": lambda v: {"~integer": hex(v)},
}
_FRACTION: dict[str, Change] = {
    "a little more": lambda v: _ratio(v[0] * 10**9 + 1, v[1] * 10**9),
    "a little less": lambda v: _ratio(v[0] * 10**9 - 1, v[1] * 10**9),
    "half": lambda v: _ratio(v[0], v[1] * 2),
    "twice as much": lambda v: _ratio(v[0] * 2, v[1]),
    "no amount": lambda v: _ratio(0, 1),
    "a negative amount": lambda v: _ratio(-v[0], v[1]),
}
_FRACTION_FORM: dict[str, Change] = {
    "not in lowest terms": lambda v: {"~fraction": [2 * v[0], 2 * v[1]]},
    "two negatives": lambda v: {"~fraction": [-v[0], -v[1]]},
    "three numbers": lambda v: {"~fraction": [*v, 1]},
    "one number": lambda v: {"~fraction": [v[0]]},
    "over zero": lambda v: {"~fraction": [v[0], 0]},
    "of floats": lambda v: {"~fraction": [v[0] + 0.5, v[1]]},
    "of text": lambda v: {"~fraction": [str(v[0]), str(v[1])]},
    "rounded to a float": lambda v: v[0] / v[1],
    "cut to a whole": lambda v: v[0] // v[1],
    "with a comment": lambda v: {"~fraction": v, "zzz": 1},
}
_FLOAT: dict[str, Change] = {
    "twice that float": lambda v: 2 * v + 1,
    "that float negated": lambda v: -v - 1,
}
_TEXT: dict[str, Change] = {"another text": lambda v: v + "x", "an empty text": lambda v: ""}
_LIST: dict[str, Change] = {
    "its last twice": lambda v: [*v, copy.deepcopy(v[-1])],
    "its last missing": lambda v: v[:-1],
    "turned round": lambda v: v[::-1],
    "no entries": lambda v: [],
}
_LIST_FORM: dict[str, Change] = {"a null at its end": lambda v: [*v, None], "numbered": lambda v: dict(enumerate(v))}
_DOCUMENT_FORM: dict[str, Change] = {
    "a field more": lambda v: v | {"zzz": 1},
    "a field less": lambda v: {k: x for k, x in v.items() if k != [*v][-1]},
    "a field renamed": lambda v: {(k if k != [*v][-1] else k + "_"): x for k, x in v.items()},
    "fields turned round": lambda v: dict(reversed(v.items())),
    "of no class": lambda v: {k: x for k, x in v.items() if k != "~class"},
    "of another class": lambda v: v | {"~class": "Selection" if v["~class"] != "Selection" else "Total"},
    "with a map": lambda v: v | {"~map": []},
}
_ARRAY: dict[str, Change] = {
    "an entry more by one": lambda a: _edited(a, lambda x: x + 1),
    "all twice": lambda a: a * 2,
    "all negated": lambda a: -a,
    "all zero": lambda a: a * 0,
    "one entry less": lambda a: a[:-1],
    "its last entry twice": lambda a: np.concatenate([a, a[-1:]]),
    "in another order": lambda a: a[::-1],
    "without entries": lambda a: a[:0],
}
_ARRAY_FORM: dict[str, Change] = {
    **{f"as {t}": (lambda a, t=t: a.astype(t)) for t in ("int8", "int16", "int32", "uint8", "float32", "float64")},
    **{f"of {t}": (lambda a, t=t: a.astype(t)) for t in ("uint64", "bool", "int64", ">i8", ">f8", "complex128")},
    "in one more axis": lambda a: a[None],
    "as nested lists": lambda a: a.tolist(),
    "holding nan": lambda a: _edited(a.astype(float), lambda x: np.nan),
}


def _ratio(a: int, b: int) -> Any:
    g = math.gcd(a, b)
    return {"~fraction": [a // g, b // g]}


def _edited(array: Any, change: Change) -> Any:
    out = array.copy()
    if out.size:
        out.flat[0] = change(out.flat[0])
    return out


def changes(value: Any) -> Iterator[tuple[str, str, Change]]:
    """All that can be done to what stands in a place: whether its form changes, how that is called, and how."""
    if isinstance(value, np.ndarray):
        mine = [(VALUE, {k: c for k, c in _ARRAY.items() if value.ndim and value.dtype != bool}), (FORM, _ARRAY_FORM)]
    elif value is None:
        mine = [(VALUE, {"zero where nothing was": lambda v: 0, "text where nothing was": lambda v: "x"})]
    elif isinstance(value, bool):
        mine = [(VALUE, {"the opposite": lambda v: not v}), (FORM, {"a bool as a number": int, "a bool as text": str})]
    elif isinstance(value, int):
        mine = [(VALUE, _INTEGER), (FORM, _INTEGER_FORM)]
    elif isinstance(value, float):
        mine = [(VALUE, _FLOAT), (FORM, {"a float as text": str})]
    elif isinstance(value, str):
        mine = [(VALUE, _TEXT), (FORM, {"letters": list})]
    elif isinstance(value, list):
        mine = [(VALUE, _LIST if value else {}), (FORM, _LIST_FORM)]
    elif "~fraction" in value:
        held = value["~fraction"]
        mine = [
            (kind, {k: (lambda _, c=c: c(held)) for k, c in some.items()})
            for kind, some in ((VALUE, _FRACTION), (FORM, _FRACTION_FORM))
        ]
    elif "~class" in value:
        mine = [(FORM, _DOCUMENT_FORM)]
    else:
        mine = []
    yield from ((kind, name, change) for kind, some in mine for name, change in some.items())
    yield from ((VALUE, name, change) for name, change in _ANY.items())


class Told(NamedTuple):
    """A lie that was drawn: field, change, whether of form, whether the ledger follows, and whether it is free."""

    field: str
    change: str
    form: str
    follow: bool
    free: bool
    forged: Forged


def tell(release: Path, ledger: Path, place: Path, rng: np.random.Generator) -> Told | None:
    """Draw a lie about a release and publish it; None where what was drawn changes nothing."""
    forged = Forged(release, ledger, place)
    root = {"it": forged.doc}
    by = dict[str, list[Place]]()
    for found in places(root, "it"):
        by.setdefault(found.field, []).append(found)
    field = str(rng.choice(sorted(by)))  # every field alike, however often it occurs
    at = by[field][int(rng.integers(len(by[field])))]
    options = list(changes(at.value))
    form, name, change = options[int(rng.integers(len(options)))]
    before = at.value
    with np.errstate(all="ignore"):
        after = change(copy.deepcopy(before))
    if _same(before, after):
        return None
    if name in _ANY:
        form = VALUE if _fits(after, at.field) or type(after) is type(before) is not dict else FORM
    at.holder[at.key] = after
    if not isinstance(root["it"], dict) or "plan" not in root["it"]:
        return None
    forged.doc = root["it"]
    free = at.free
    if name == "a field less" and _may_lack(before):  # as releases of earlier versions do: the default is said
        form, free = VALUE, free or f"{before['~class']}.{[*before][-1]}" in FREE
    follow = bool(form == FORM and rng.random() < 0.7)
    with suppress(Exception):  # what has no form may have no price or name, and the ledger stays as it is
        if follow:
            forged.tell_ledger()
    try:
        forged.publish()
    except Exception:
        return None
    return Told(at.field, name, form, follow, free and form == VALUE, forged)


def _may_lack(document: dict[str, Any]) -> bool:
    """Whether a document's last field is one that may be missing."""
    return f"{[*document][-1]}?" in (f for f, _ in check_forms._FORMS.get(document["~class"], []))  # pyright: ignore[reportPrivateUsage]


def _fits(value: Any, field: str) -> bool:
    """Whether a value is one of its field's own form, so that it may be said."""
    name, _, own = field.partition(".")
    for f, form in check_forms._FORMS.get(name, []):  # pyright: ignore[reportPrivateUsage]
        if f.rstrip("?") == own:
            with suppress(ValueError):
                check_forms._FormReader({}).holds(value, form, "", 0)  # pyright: ignore[reportPrivateUsage]
                return True
    return False


def _same(a: Any, b: Any) -> bool:
    text = [io.StringIO(), io.StringIO()]
    for value, into in ((a, text[0]), (b, text[1])):
        into.write(
            json.dumps(value, default=lambda x: [str(getattr(x, "dtype", "")), np.asarray(x).tolist()].__repr__())
        )
    return text[0].getvalue() == text[1].getvalue()


def files(release: Path, ledger: Path, place: Path, rng: np.random.Generator) -> Told | None:
    """Draw a lie in the zip, or in what release.json says, with hashes that fit."""
    forged = Forged(release, ledger, place)
    if forged.facts and rng.random() < 0.7:
        return _facts(forged, rng)
    forged.publish()
    with zipfile.ZipFile(forged.bundle) as bundle:
        parts = [(n, bundle.read(n)) for n in bundle.namelist()]
    text = parts[0][1].decode()
    name, edited = [
        ("an array more", [*parts, ("a9999.npy", parts[-1][1] if len(parts) > 1 else b"")]),
        ("a text more", [*parts, ("readme.txt", b"zzz")]),
        ("the document twice", [*parts, parts[0]]),
        ("an array less", parts[:-1]),
        ("a name twice", [(parts[0][0], text.replace("{", '{"~class": "Release", ', 1).encode()), *parts[1:]]),
        ("a number that is none", [(parts[0][0], text.replace("null", "NaN", 1).encode()), *parts[1:]]),
    ][int(rng.integers(6))]
    if [n for n, _ in edited] == [n for n, _ in parts] and edited == parts:
        return None
    import warnings

    with warnings.catch_warnings(), zipfile.ZipFile(forged.bundle, "w") as bundle:
        warnings.simplefilter("ignore")
        for n, held in edited:
            bundle.writestr(n, held)
    if "files" in forged.facts:
        import hashlib

        forged.facts["files"]["release.sfumato"] = hashlib.sha256(forged.bundle.read_bytes()).hexdigest()
        forged.said_in.write_text(json.dumps(forged.facts))
    return Told("the zip", name, FORM, follow=False, free=False, forged=forged)


def _facts(forged: Forged, rng: np.random.Generator) -> Told | None:
    path = list[str]()

    def edit(f: Forged) -> None:
        holder: Any = f.facts
        while True:
            keys = [k for k in (holder if isinstance(holder, dict) else range(len(holder))) if k != "files"]
            key = keys[int(rng.integers(len(keys)))]
            path.append(str(key))
            if isinstance(holder[key], dict | list) and holder[key] and rng.random() < 0.8:
                holder = holder[key]
                continue
            break
        form, name, change = (options := list(changes(holder[key])))[int(rng.integers(len(options)))]
        path.append(name)
        after = change(copy.deepcopy(holder[key]))
        path.append("" if _same(holder[key], after) else form)
        holder[key] = after

    try:
        forged.publish(then=edit)
    except Exception:
        return None
    *where, name, form = path
    if not form:
        return None
    field = ".".join(where)
    return Told(f"release.json: {field}", name, form, follow=False, free=False, forged=forged)


def judged(told: Told) -> tuple[str, bool]:
    """What the checker says of a lie, and whether the library loads it."""
    found = verdict(told.forged.release, told.forged.ledger)[0]
    try:
        sf.load(told.forged.release)
        loads = True
    except (sf.errors.SfumatoError, Warning):
        loads = False
    return found, loads


def said_alone(told: Told) -> bool:
    """Whether it is said in release.json of what the stranger's checker cannot derive."""
    said = told.field.removeprefix("release.json: ")
    return said != told.field and said.startswith(SAID)


def derived(told: Told) -> bool:
    """Whether `sf.load` holds what is said alone; where entries are missing, a version's first days said it."""
    return said_alone(told) and told.change not in ("an object", "wrapped in a map")


def accepted(told: Told, found: str) -> bool:
    """Whether a lie was accepted that is none of what is free."""
    return found == "accepted" and not told.free and not said_alone(told)
