"""The studio over a spec with a measure: it is listed, planned, paid and read, and no table is offered of it."""

from __future__ import annotations

from pathlib import Path

from support.studio import Studio, folder, studio

SPEC = """
[data]
source = "people.csv"
table = "people"

[schema.sex]
type = "category"
values = ["female", "male"]
outside = "other"
missing = "other"

[measures.cost]
min = 0
max = 100

[privacy]
rho = 0.5
neighbours = "add-remove"

[[queries]]
name = "main"
moments = "cost"
by = ["sex"]
"""
ROWS = "sex,cost\n" + "".join(f"{'female' if i % 3 else 'male'},{i % 77}.5\n" for i in range(300))


def _read(page: Studio) -> None:
    told = page.page("/table").json["data"]
    assert told["problem"] is None
    assert told["measures"] == ["cost, 0 to 100"]
    assert [a["name"] for a in told["attributes"]] == ["sex"]
    assert told["cells"] == "3"


def test_a_spec_with_a_measure_is_planned_paid_and_read(tmp_path: Path) -> None:
    """Mutants: a measure offered as an attribute of three cells; its codes counted as cells; its mean left out."""
    with studio(folder(tmp_path / "a", SPEC, ROWS)) as page:
        _read(page)
        assert page.post("ledger", {"budget": {"rho": "1"}, "table": "people"}).status == 200
        assert page.paid("2026-11")["state"] == "done"
        shown = page.page("/read?name=2026-11")
        assert shown.status == 200
        assert "Sums, means and variances of measures" in shown.text
        assert "lowmiddlehigh" not in shown.text.replace('","', "")
        refused = page.post("table", {"name": "2026-11", "attributes": ["cost"]})
        assert refused.status == 400
        assert "no attribute" in refused.json["error"]
