"""The notebooks of examples/ run, in one kernel, and are kept as they were executed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.scripts import script

PATHS = script("scripts/notebooks.py").notebook_paths()
MOST = 120  # CPU-seconds of all notebooks together
CLOCK = """import resource
print(sum(sum(resource.getrusage(w)[:2]) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))"""


def test_every_kind_of_user_has_one_and_the_course_follows() -> None:
    assert [p.stem[2:] for p in PATHS] == [
        "analyst",
        "data-scientist",
        "privacy-officer",
        "researcher",
        "teacher",
        "labour-economist",
        "epidemiologist",
        "noise-and-histograms",
        "trees-and-ranges",
        "factorization",
        "marginals-and-projection",
        "average-to-worst",
        "sparse-queries",
    ]


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_notebooks_are_kept_executed_and_load_nothing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "/tmp/" not in text
    assert "Warning" not in text
    assert "cdn" not in text
    outputs = [o for c in json.loads(text)["cells"] if c["cell_type"] == "code" for o in c["outputs"]]
    assert len(outputs) > 4
    assert all(o["output_type"] != "error" for o in outputs)
    assert "not found" not in text


@pytest.mark.filterwarnings("ignore")  # what the kernel's own packages say
def test_notebooks_run() -> None:
    pytest.importorskip("ipykernel")
    pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    notebooks = [nbformat.read(p, as_version=4) for p in PATHS]
    clock = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CLOCK)])
    whole = script("scripts/notebooks.py").executed([*notebooks, clock])
    texts = [o.get("text", "") for c in whole.cells if c.cell_type == "code" for o in c.outputs]
    assert any("accepted" in t for t in texts)  # the stranger of the privacy officer
    assert float(texts[-1]) < MOST
