"""The spec for a page: its tables, what every column declares, what is still wrong, and in which question."""

from __future__ import annotations

import math
import re
from typing import Any

from sfumato._util.checks import show_number
from sfumato._util.frames import Frame, safe_text
from sfumato.domain import Measure
from sfumato.errors import InvalidInput, SpecError
from sfumato.present.sections import cell_count_text
from sfumato.privacy.ledger import Ledger
from sfumato.studio import drafts
from sfumato.studio.drafts import still_to_do
from sfumato.studio.workspace import Workspace
from sfumato.terminal import csv_text

_LABELS = 500  # of an attribute, offered while one types
_QUERY = re.compile(r"^(?:line \d+: )?queries\.(\d+)\b[.\w]*:? ?")


def spec_state(desk: Workspace, text: str | None = None) -> dict[str, Any]:
    """Everything that the pages before the payment show, of the spec's file or of another text. No data are read."""
    given = desk.text if text is None else text
    version = drafts.text_version(given)
    try:
        drafts.spec_tables(given)
    except ValueError:
        return {"version": version, "broken": "the spec is not TOML; mend it in an editor"}
    found = desk.state(given, lambda: _declared_state(desk, given))
    header = None if desk.header is None else list(desk.header)
    return {"version": version, "broken": None, "header": header, "absent": list(desk.absent())} | found


def _declared_state(desk: Workspace, text: str) -> dict[str, Any]:
    """What hangs on the text alone, and on the files that it names."""
    tables = drafts.spec_tables(text)
    schema = tables.get("schema")
    columns = {name: _column_state(desk, tables, name) for name in schema} if isinstance(schema, dict) else {}
    found: dict[str, Any] = {
        "spec": drafts.tables_for_page(text),
        "columns": columns,
        "problem": None,
        "todo": None,
        "at": None,
    }
    try:
        spec = desk.spec(text)
    except (InvalidInput, SpecError) as error:
        said = desk.said(error)
        place = _QUERY.match(said)
        found["problem"] = said if place is None else said[place.end() :]
        found["todo"] = desk.placeless(still_to_do(text, said)) if place is None else None
        found["at"] = None if place is None else int(place[1]) - 1
        return found
    domain = spec.domain
    found["cells"] = cell_count_text(math.prod(domain.sizes(domain.dimensions)))
    found["queries"] = f"{len(spec.workload):,}"
    found["stream"] = spec.periods is not None
    found["attributes"] = [
        {"name": n, "size": a.size, "ordered": a.intervals is not None}
        | {"labels": [safe_text(t) for t in a.declared_labels[:_LABELS]] if a.intervals is None else []}
        | {"other": a.has_other}
        | {"levels": [*(level.name for level in a.groupings), *([a.cell_level] if a.cell_level else [])]}
        for n, a in domain.attributes.items()
        if n not in domain.measures
    ]
    found["measures"] = [
        f"{safe_text(n)}, {show_number(m.low)} to {show_number(m.high)}"
        for n, m in domain.attributes.items()
        if isinstance(m, Measure)
    ]
    found["groups"] = [
        {"name": n, "labels": [safe_text(t) for t in domain[n].declared_labels[:_LABELS]], "other": domain[n].has_other}
        for n in domain.levels
    ]
    return found


def _column_state(desk: Workspace, tables: dict[str, Any], name: str) -> dict[str, Any]:
    found = drafts.describe_column(tables, name, desk.places.spec.parent)
    return found | {"error": desk.placeless(found["error"])} if "error" in found else found


def ledger_csv(ledger: Ledger) -> str:
    """Every spend for an outside accountant."""
    rows = ledger.export()
    return csv_text(Frame({name: [row[name] for row in rows] for name in Ledger.EXPORTED}))
