"""The section [people] of a spec: tables of persons, declared once and read into a source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sfumato.curator.people.tables import Joined, PerPerson, Rows, joined, per_person, rows
from sfumato.curator.rows.samples import spec_table_source
from sfumato.curator.rows.written import NOTATIONS
from sfumato.workloads.reading import Section

_DECLARED = ("key", "numbers", "dates", "booleans", "order")


def spec_person_source(root: Section, folder: Path, person: str | None) -> PerPerson | Joined | None:
    """The source that a spec in a folder makes of tables of persons; None where it has no section [people].

    `person` is the column whose privacy the spec protects. Raises SpecError.
    """
    if "people" not in root:
        return None
    if "source" in root.section("data"):
        raise root.section("data").refuse(
            "the tables of persons are named under [people]; move source there, as [people] source = ... for a table "
            "with a row for each person, or under [people.rows.NAME]",
            "source",
        )
    given = root.section("people")
    given.allow("source", *_DECLARED, *NOTATIONS, "rows", "columns", "joined", "unmatched")
    given.need("key", "it is the column that names persons")
    key = given.text("key") or ""
    if person != key:
        raise given.refuse(f"a table of persons is counted by persons: say person = {key!r} under [privacy]", "key")
    people = _read_rows(given, folder) if "source" in given else None
    listed = given.section("rows")
    tables: dict[str, Rows] = {}
    for name in listed:
        section = listed.section(name)
        section.allow("source", *_DECLARED, *NOTATIONS)
        section.need("source", "it is the table of these rows, a file or an address")
        tables[name] = _read_rows(section, folder)
    columns = given.section("columns")
    for name in columns:
        columns.text(name)
        # each alone, so that a refusal has its line
        with columns.guard(name):
            per_person(people, key=key, columns={name: columns.raw(name)}, **tables)
    with given.guard("rows" if tables else "key"):
        made = per_person(people, key=key, columns={name: columns.raw(name) for name in columns}, **tables)
    if "joined" not in given:
        if "unmatched" in given:
            raise given.refuse("rows are left unmatched where they are joined: say joined = 'visits'", "unmatched")
        return made
    called = given.text("joined") or ""
    if called not in tables:
        raise given.refuse(f"joined names a table under [people.rows], not {called!r}", "joined")
    unmatched: Any = given.text("unmatched") or "drop"
    with given.guard("unmatched" if "unmatched" in given else "joined"):
        return joined(tables[called], made, key=key, unmatched=unmatched)


def _read_rows(section: Section, folder: Path) -> Rows:
    """A table with its declarations, as `sf.rows` takes them."""
    source = spec_table_source(section.part("source", *NOTATIONS), folder)
    dates = section.raw("dates")
    with section.guard("dates"):
        rows(source, dates=() if dates is None else dates)
    with section.guard("numbers"):
        rows(source, numbers=section.section("numbers").values())
    with section.guard("booleans"):
        rows(source, booleans=section.texts("booleans") or ())
    with section.guard(*(["order"] if "order" in section else ["dates"])):
        return rows(
            source,
            key=section.text("key"),
            numbers=section.section("numbers").values(),
            dates=() if dates is None else dates,
            booleans=section.texts("booleans") or (),
            order=section.text("order"),
        )
