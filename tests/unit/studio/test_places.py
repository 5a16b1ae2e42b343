"""Places in places: declared in the page, read at every level, compared with what some table could have given."""

from __future__ import annotations

from pathlib import Path

import pytest

import sfumato as sf
from sfumato.present.words import round_to_error
from support.studio import SPEC, folder, studio

CODES = "state,county\n" + "".join(f"s{i // 3},c{i}\n" for i in range(6))
ROWS = "geo,sex\n" + "".join(f"c{i % 6},{'female' if i % 3 else 'male'}\n" for i in range(300))
LEVELS = [
    {"place": ["schema", "geo"], "value": {"type": "hierarchy", "values_from": "codes.csv"}},
    {"place": ["schema", "age"], "value": None},
    {"place": ["queries"], "value": None},
    {"place": ["queries", 0], "value": {"name": "all", "sets": [["sex"]], "factors": {"geo": "levels"}}},
]


def test_places_are_declared_and_read_at_every_level(tmp_path: Path) -> None:
    with studio(folder(tmp_path, SPEC, ROWS)) as page:
        (tmp_path / "codes.csv").write_text(CODES, encoding="utf-8")
        found = page.post("change", {"version": page.version, "changes": LEVELS}).json
        assert found["problem"] is None
        assert next(a["levels"] for a in found["attributes"] if a["name"] == "geo") == ["state", "county"]
        assert page.post("ledger", {"budget": {"rho": "1"}, "table": "people"}).status == 200
        assert page.paid("places")["state"] == "done"
        release = sf.load(tmp_path / "releases" / "places")
        for level in ("state", "county"):
            shown = page.post("table", {"name": "places", "attributes": [level, "sex"]}).json
            table = release.table(level, "sex")
            wanted = [
                round_to_error(v, e) for v, e in zip(table.values.ravel(), table.standard_errors.ravel(), strict=True)
            ]
            assert [r[2] for r in shown["blocks"][-1]["rows"]] == wanted
        asked = page.post("ask", {"name": "places", "question": "state == 's1' and sex == 'male'"}).json
        assert asked["exact"] == pytest.approx(release.ask("state == 's1' and sex == 'male'").value)
        before = page.post("project", {"name": "places"}).json
        kinds = {b["type"]: b for b in before["blocks"]}
        assert kinds["sentences"]["texts"]
        assert dict(kinds["facts"]["rows"])


def test_a_stream_is_declared(tmp_path: Path) -> None:
    """And taken out again; what it may not say is refused in the spec's words."""
    with studio(folder(tmp_path)) as page:

        def change(key: str | None, value: object) -> dict[str, object]:
            changes = [{"place": ["stream", *([key] if key else [])], "value": value}]
            return page.post("change", {"version": page.version, "changes": changes}).json

        assert change("periods", {"number": "12"})["stream"] is True
        assert "name the column" in str(change("periods_per_person", {"number": "3"})["problem"])
        assert change(None, None)["stream"] is False
        assert "[stream]" not in page.desk.text
