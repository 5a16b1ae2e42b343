"""Spec files: the domain, the questions, the budget and the table, declared once and read into typed values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn, cast

from sfumato._util.checks import check_distinct, suggest_name
from sfumato.curator.people import Joined, PerPerson
from sfumato.curator.people.declared import spec_person_source
from sfumato.curator.rows.samples import spec_table_source
from sfumato.curator.rows.written import Source
from sfumato.domain import Domain
from sfumato.domain.predicates import compile_predicate
from sfumato.errors import WorkloadError
from sfumato.mechanisms.registry import Mechanism, make_mechanism, mechanism_class
from sfumato.privacy.budget import Budget
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.releases import load_release
from sfumato.releases.geography import declared_bounds
from sfumato.releases.publication import Publication, publication_from_root
from sfumato.strategies.design import DEFAULT_OBJECTIVE, OBJECTIVES
from sfumato.strategies.geography_tree import neighbour_relation, read_unit
from sfumato.strategies.periods import Periods, read_stream_section
from sfumato.workloads import (
    Workload,
    gaps,
    hierarchy,
    identity,
    marginals,
    means,
    moments,
    predicates,
    prefix,
    ranges,
    stack,
    sums,
    total,
    windows,
)
from sfumato.workloads.reading import Section, read_toml
from sfumato.workloads.schema import read_schema

_MAX_QUERIES = 1_000  # more tables [[queries]] are not written by hand; a program has the library
# each alone, so that a value that no budget may have is refused on its own line
_PARAMETERS: dict[str, Callable[[Any], Budget]] = {
    "epsilon": Budget.pure,
    "delta": lambda delta: Budget.approx(1, delta),
    "thresholds": lambda aside: Budget.approx(1, "0.9", thresholds=aside),
    "rho": Budget.zcdp,
    "mu": Budget.gdp,
}


@dataclass(frozen=True, slots=True)
class Spec:
    r"""The declarations of a spec file. `sf.read_spec` reads one.

    Args:
        domain: The attributes.
        workload: The queries.
        budget: What may be spent.
        source: The table as a path or an address, whose relative paths start at the spec's folder; an `sf.Source` where
            the spec says how it is written; what `sf.per_person` or `sf.joined` makes where it has a section [people];
            or None.
        table: The public name of the table for the ledger, or None.
        neighbours: The relation, as in `sf.plan`; a text where records are replaced within groups.
        person: The column that says whose record a row is, or None.
        rows_per_person: How many rows of each person are counted at most.
        mechanism: The mechanism as a value, with the options that stand beside it.
        objective: As in `sf.plan`.
        records: As in `sf.plan`.
        path: The spec file.
        public: Public tables, as in `sf.plan`, by tuples of names.
        margins: The half-widths of 95 % intervals that parts should have, by part.
        periods: The periods of a stream, or None where the tables come once.
        bounds: Floors and caps, as `Release.project` takes them.
        once_per: Attributes of whose joint cells each holds at most `rows_per_group` counted rows of a person.
        rows_per_group: How many that are.
        publication: What readers are told besides, or None.

    >>> from pathlib import Path
    >>> lines = ["[schema.adult]", "type = 'boolean'", "outside = 'other'", "missing = 'other'"]
    >>> lines += ["[privacy]", "rho = '0.5'", "neighbours = 'add-remove'", "[[queries]]", "identity = ['adult']"]
    >>> written = Path("spec.toml").write_text("\n".join(lines))
    >>> spec = sf.read_spec("spec.toml")
    >>> spec.workload
    Workload(3 queries over 3 cells; identity: 3)
    >>> spec.budget == sf.zcdp("0.5"), spec.neighbours
    (True, <Neighbours.ADD_REMOVE: 'add-remove'>)
    """

    domain: Domain
    workload: Workload
    budget: Budget
    source: str | Source | PerPerson | Joined | None
    table: str | None
    neighbours: Neighbours | str
    person: str | None
    rows_per_person: int
    mechanism: Mechanism[Any]
    objective: str
    records: int | None
    path: Path
    public: Mapping[tuple[str, ...], Any]
    margins: Mapping[str, float]
    periods: Periods | None = None
    bounds: Mapping[Any, Any] = field(default_factory=dict[Any, Any])
    once_per: tuple[str, ...] = ()
    rows_per_group: int = 1
    publication: Publication | None = None


def read_spec(path: str | PathLike[str]) -> Spec:
    r"""Read a spec file; no data are read.

    Args:
        path: A TOML file.

    Returns:
        The declarations.

    Raises:
        SpecError: The file cannot be read or states what is not allowed; the message has the line where there is one.

    >>> from pathlib import Path
    >>> written = Path("spec.toml").write_text("[schema.age]\ntype = 'complex'\n")
    >>> sf.read_spec("spec.toml")
    Traceback (most recent call last):
        ...
    sfumato.errors.SpecError: line 2: schema.age.type: no type is called 'complex'; there are integer, number, date,
    category, hierarchy, boolean
    """
    return spec_from_root_table(read_toml(path), Path(path))


def spec_from_root_table(root: Section, place: Path) -> Spec:
    """What the root table of a spec declares whose file is, or will be, at a place. Raises SpecError."""
    root.allow(
        "data",
        "people",
        "schema",
        "schema_defaults",
        "measures",
        "domain",
        "privacy",
        "queries",
        "plan",
        "public",
        "bounds",
        "stream",
        "publication",
    )
    root.refuse_blanks()
    domain = read_schema(root, place.parent)
    budget, unit = _read_privacy(root, domain)
    plan = root.section("plan")
    mechanism = _read_mechanism(plan, place.parent)
    objective = plan.text("objective") or DEFAULT_OBJECTIVE
    if objective not in (*OBJECTIVES, "mean"):
        raise plan.refuse(f"must be 'tables', 'cells' or 'max', not {objective!r}", "objective")
    records = plan.whole("records")
    if records is not None and records < 1:
        raise plan.refuse(f"must be at least 1, not {records}", "records")
    workload, margins = _read_workload(root, domain)
    over, public = read_stream_section(root, unit), _read_public_tables(root, domain)
    bounds = declared_bounds(root, workload, public)
    table = spec_table_source(root.section("data"), place.parent)
    for what, given in (("margins", margins), ("bounds", bounds)):
        if over is not None and given:
            raise root.section("stream").refuse(f"{what} are of tables that are released once; take them out")
    return Spec(
        domain=domain,
        workload=workload,
        budget=budget,
        source=spec_person_source(root, place.parent, unit.person) or table,
        table=root.section("data").text("table"),
        neighbours=neighbour_relation(unit) if unit.within else unit.neighbours,
        person=unit.person,
        rows_per_person=unit.rows_per_person,
        once_per=unit.once_per,
        rows_per_group=unit.rows_per_group,
        mechanism=mechanism,
        objective=objective,
        records=records,
        path=place,
        public=public,
        margins=margins,
        periods=over,
        bounds=bounds,
        publication=publication_from_root(root),
    )


def _read_mechanism(plan: Section, folder: Path) -> Mechanism[Any]:
    """The mechanism with its options, which stand beside its name; of a release the folder beside the spec."""
    name = plan.text("mechanism") or "auto"
    with plan.guard("mechanism"):
        own = [f.name for f in fields(mechanism_class(name))]  # pyright: ignore[reportArgumentType]  (all are dataclasses)
    plan.allow("mechanism", "objective", "records", *own)
    given = {key: plan.raw(key) for key in own if key in plan}
    if "after" in given:
        with plan.guard("after"):
            given["after"] = load_release(folder / (plan.text("after") or ""))
    with plan.guard(*list(given)[:1] or ["mechanism"]):
        return make_mechanism(name, **given)


def _read_privacy(root: Section, domain: Domain) -> tuple[Budget, PrivacyUnit]:
    privacy = root.section("privacy")
    privacy.allow(*_PARAMETERS, "neighbours", "person", "rows_per_person", "once_per", "rows_per_group")
    given = {key: privacy.raw(key) for key in privacy if key in _PARAMETERS}
    for key, value in given.items():
        with privacy.guard(key):
            _PARAMETERS[key](value)
    with privacy.guard(*list(given)[-1:]):
        budget = Budget.from_json(given)
    privacy.need("neighbours", "it is 'add-remove' or 'replace-one'")
    text = privacy.text("neighbours") or ""
    with privacy.guard("neighbours"):
        read_unit(text, None, 1, domain)
    rows = privacy.whole("rows_per_person")
    with privacy.guard("rows_per_person" if rows is not None else "person"):
        unit = read_unit(text, privacy.text("person"), 1 if rows is None else rows, domain)
    given_groups = [k for k in ("once_per", "rows_per_group") if k in privacy]
    if given_groups:
        once_per = tuple(_attribute_names(privacy, domain, "once_per"))
        each = privacy.whole("rows_per_group")
        with privacy.guard(given_groups[0]):
            unit = replace(unit, once_per=once_per, rows_per_group=1 if each is None else each)
    if unit.neighbours is Neighbours.REPLACE_ONE:
        for name, attribute in domain.attributes.items():
            for policy in ("outside", "missing"):
                if getattr(attribute, policy) == "drop":
                    _refuse_drop(root, name, policy)
    return budget, unit


def _refuse_drop(root: Section, name: str, policy: str) -> NoReturn:
    table = root.section("schema").section(name)
    declared = table if policy in table else root.section("schema_defaults")
    raise declared.refuse(
        f"{name} cannot have {policy} = 'drop' with neighbours = 'replace-one', which treats the number of records "
        "counted as public: a replaced record that is dropped would change it; use 'other' here, or 'add-remove'",
        policy,
    )


def _read_public_tables(root: Section, domain: Domain) -> dict[tuple[str, ...], Any]:
    """Tables known from elsewhere: [[public]] with the attributes and the counts, nested by attribute."""
    out: dict[tuple[str, ...], Any] = {}
    for entry in root.sections("public"):
        entry.allow("table", "counts")
        entry.need("table", "it lists the attributes of a table that is known from elsewhere")
        entry.need("counts", "they are its counts, nested by attribute")
        names = tuple(_attribute_names(entry, domain, "table"))
        if names in out:
            raise entry.refuse(f"the table of {', '.join(names)} is given twice", "table")
        out[names] = entry.items("counts")
    return out


def _read_workload(root: Section, domain: Domain) -> tuple[Workload, dict[str, float]]:
    """The queries of all entries, and the margins of those that have one."""
    entries = root.sections("queries")
    if not 1 <= len(entries) <= _MAX_QUERIES:
        raise root.refuse(f"between 1 and {_MAX_QUERIES:,} tables [[queries]] are allowed, not {len(entries):,}")
    names = [entry.text("name") for entry in entries]
    taken: set[str] = set()
    for entry, name in zip(entries, names, strict=True):
        if name is not None:
            with entry.guard("name"):
                check_distinct([*taken, name], "queries")
            taken.add(name)
    given_names = frozenset(taken)
    works: list[Workload] = []
    margins: dict[str, float] = {}
    for entry, name in zip(entries, names, strict=True):
        work = _read_query(entry, domain)
        if name is None:
            own = work.items[0].part
            # named counts that nobody grouped are one part: alone each would count like all tables of another
            shared = "where" in entry and "margin" not in entry and own not in given_names and own not in margins
            name = own if shared else _unused_part_name(own, taken)
            taken.add(name)
        with entry.guard("name"):
            work = work.named(name)
        if "weight" in entry:
            entry.number("weight")
            with entry.guard("weight"):
                work = work.named(name, entry.raw("weight"))
        margin = entry.number("margin")
        if margin is not None:
            if not 0 < margin < math.inf:
                raise entry.refuse(f"must be a positive number, in the unit of the answers, not {margin!r}", "margin")
            margins[name] = float(margin)
        works.append(work)
    return stack(*works), margins


def _unused_part_name(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name} {number}"
    return free


def _read_query(entry: Section, domain: Domain) -> Workload:
    kinds = [key for key in entry if key in QUERIES]
    if len(kinds) != 1:
        other = next((k for k in entry if not kinds and k not in ("name", "weight", "margin")), None)
        given = f"one of {', '.join(QUERIES)}; it has {', '.join(kinds) or 'none'}"
        if other is not None:
            given = f"one question; {other!r} is none of them; {suggest_name(other, QUERIES)}"
        raise entry.refuse(f"every table [[queries]] asks exactly {given}", *kinds[1:2])
    build, options = QUERIES[kinds[0]]
    entry.allow("name", "weight", "margin", kinds[0], *options)
    with entry.guard(kinds[0]):
        return build(entry, domain)


def _known_attribute(entry: Section, domain: Domain, name: object, *keys: str | int) -> str:
    if not isinstance(name, str):
        raise entry.refuse(f"must be the name of an attribute in quotes, not {name!r}", *keys)
    if name not in domain:
        raise entry.refuse(
            f"no attribute is called {name!r}; {suggest_name(name, (*domain.names, *domain.levels))}", *keys
        )
    return name


def _attribute_names(entry: Section, domain: Domain, key: str) -> list[str]:
    """The attributes listed under a key, which is a list of names or one name."""
    given = entry.raw(key)
    if isinstance(given, str):
        return [_known_attribute(entry, domain, given, key)]
    return [_known_attribute(entry, domain, name, key, i) for i, name in enumerate(entry.items(key) or ())]


def _read_table_sets(entry: Section, domain: Domain) -> Workload:
    sets: list[list[str]] = []
    for i, names in enumerate(entry.items("sets") or ()):
        if not isinstance(names, list):
            raise entry.refuse(f'must be a list of names, as in sets = [["age", "sex"]], not {names!r}', "sets", i)
        sets.append([_known_attribute(entry, domain, name, "sets", i) for name in names])
    return marginals(domain, sets=sets, factors=_read_table_factors(entry, domain))


def _read_table_factors(entry: Section, domain: Domain) -> dict[str, Any] | None:
    """What is asked of single attributes inside marginal tables."""
    if "factors" not in entry:
        return None
    given = entry.section("factors")
    out: dict[str, Any] = {}
    for name in given:
        _known_attribute(given, domain, name, name)
        kind = given.raw(name)
        with given.guard(name):
            out[name] = tuple(kind) if isinstance(kind, list) else kind
            marginals(domain, sets=[[] if kind == "levels" else [name]], factors=out)
    return out


def _tables_reader(key: str) -> Callable[[Section, Domain], Workload]:
    """All marginal tables of an order, or up to one."""

    def read(entry: Section, domain: Domain) -> Workload:
        order, factors = entry.whole(key), _read_table_factors(entry, domain)
        if key == "upto":
            return marginals(domain, upto=order, factors=factors)
        return marginals(domain, order, factors=factors)

    return read


def _ordered_queries_reader(key: str, build: Callable[..., Workload]) -> Callable[[Section, Domain], Workload]:
    """Queries along one attribute, by others."""

    def read(entry: Section, domain: Domain) -> Workload:
        given: dict[str, Any] = {"by": _attribute_names(entry, domain, "by")}
        if key == "windows":
            entry.need("width", "it is the number of neighbouring cells of each window")
            given["width"] = entry.whole("width")
        if "values" in entry:
            given["values"] = entry.numbers("values")
        if "label" in entry:
            given["name"] = entry.text("label")
        if "power" in entry:
            given["power"] = entry.whole("power")
        if "centre" in entry:
            given["centre"] = entry.number("centre")
        return build(domain, _known_attribute(entry, domain, entry.raw(key), key), **given)

    return read


def _summed(key: str, build: Callable[..., Workload]) -> Callable[[Section, Domain], Workload]:
    """Means or moments of one measure or of several, by attributes."""

    def read(entry: Section, domain: Domain) -> Workload:
        return build(domain, _attribute_names(entry, domain, key), by=_attribute_names(entry, domain, "by"))

    return read


def _means(entry: Section, domain: Domain) -> Workload:
    """Means, of numbers that may be cut at knots."""
    clip = entry.text("clip")
    names, by = _attribute_names(entry, domain, "means"), _attribute_names(entry, domain, "by")
    with entry.guard("clip" if "clip" in entry else "means"):
        return means(domain, names, by=by, clip=cast(Any, clip))


def _gaps(entry: Section, domain: Domain) -> Workload:
    """Gaps of one measure at some of its knots."""
    name, at = _known_attribute(entry, domain, entry.raw("gaps"), "gaps"), entry.raw("at") if "at" in entry else None
    with entry.guard("at" if "at" in entry else "gaps"):
        return gaps(domain, name, at=cast(Any, at), by=_attribute_names(entry, domain, "by"))


def _read_predicates(entry: Section, domain: Domain) -> Workload:
    texts = entry.texts("where") or []
    try:
        return predicates(domain, texts)
    except WorkloadError:
        for i, text in enumerate(texts):
            with entry.guard("where", i):
                compile_predicate(domain, text)
        raise


def _read_identity(entry: Section, domain: Domain) -> Workload:
    names = _attribute_names(entry, domain, "identity")
    if not names:
        raise entry.refuse("name at least one attribute", "identity")
    return identity(domain, *names)


def _read_total(entry: Section, domain: Domain) -> Workload:
    if entry.raw("total") is not True:
        raise entry.refuse("write total = true, or leave it out", "total")
    return total(domain)


# What a [[queries]] table may ask: how it is read, and the keys that go with it; a builder of workloads is one line.
QUERIES: dict[str, tuple[Callable[[Section, Domain], Workload], tuple[str, ...]]] = {
    "marginals": (_tables_reader("marginals"), ("factors",)),
    "upto": (_tables_reader("upto"), ("factors",)),
    "sets": (_read_table_sets, ("factors",)),
    "prefix": (_ordered_queries_reader("prefix", prefix), ("by",)),
    "ranges": (_ordered_queries_reader("ranges", ranges), ("by",)),
    "windows": (_ordered_queries_reader("windows", windows), ("by", "width")),
    "hierarchy": (_ordered_queries_reader("hierarchy", hierarchy), ("by",)),
    "sums": (_ordered_queries_reader("sums", sums), ("by", "values", "label", "power", "centre")),
    "means": (_means, ("by", "clip")),
    "gaps": (_gaps, ("by", "at")),
    "moments": (_summed("moments", moments), ("by",)),
    "identity": (_read_identity, ()),
    "total": (_read_total, ()),
    "where": (_read_predicates, ()),
}
