"""What the doors of the wall really import, counted: what must be right for privacy, so that nothing joins it unseen.

Counted are lines of code, without blank lines, comments and documentation, of every module that importing and running
a door may load: imports inside functions, names of modules in registries and the packages around them included. What
stands under `if TYPE_CHECKING:` is not: it never runs.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from sfumato.curator.engines.registry import ENGINES
from support.closure import SRC, closure, code_lines, lines, modules

ROOT = Path(__file__).parents[2]
CORE = {"sfumato.curator.curator"}
MAPS = {"sfumato.maps.structured", "sfumato.maps.toeplitz"}
MEASURE = CORE | MAPS  # no door imports these maps: plans bring them, or a file names them
CHOOSE = {"sfumato.curator.selecting"}
WINGS = {"sfumato.curator.conversations", "sfumato.curator.keys"}
OVER_TIME = {"sfumato.curator.streams"}
LONG = {"sfumato.curator.by_part"}
LABELS = {"sfumato.curator.labels"}
STEPS = {"sfumato.curator.steps"}
PERSONS = {"sfumato.curator.people.opening", "sfumato.curator.people"}
# What importing the door loads: it measures a histogram, or records that are counted, of one row a person that may come
# or go. The goal is 2,500.
# 7 of the lines are the column that a measure reads, if another than its own; 7 that codes may count by prefixes.
# 17 more are the columns whose texts are read together, 20 that a look which takes sums of measures alone says so
# before it reads. 1 lets a door through that has a price for rows that are counted once per group. 10 tell millions of
# cells of joined attributes apart by small numbers, which took a fifth of a gigabyte as rows of Python's integers. 4
# write the letters of texts into the ledger, whatever these show of themselves; 6 let no line of a chain in memory be
# written within another. 22 hold groups in which records are replaced against the cells of the table; 3 go by the type
# of a value, not by what it says of its class, and hand out copies. 2 read numbers of other classes as plain ones.
MOST_CORE = 3_914
# What is loaded beside it, by what is measured, each a reading of its own.
PARTS = {
    "maps": MAPS,
    "rows": {"sfumato.curator.rows.loading"},
    "replaced": {"sfumato.privacy.replaced"},
    "groups": {"sfumato.privacy.grouped_rows"},
    "measures": {"sfumato.privacy.measures", "sfumato.curator.rows.shares", "sfumato.curator.rows.sums"},
}
# Of measures 117 take sums as rows are read, with the SQL for it; of rows 21 hand them on and keep whole numbers whole,
# 8 read frames again that have too many rows for it, 2 refuse columns of spans of time by their type. Of replaced
# records 9 let weights that are no products pay for it only where they can matter, which took three quarters of a
# price's slack; 90 look at classes of pairs of cells where factors join attributes: without them combinations over many
# cells are priced up to twice too high.
MOST_PARTS_OF_DOOR = {"maps": 235, "rows": 1_397, "replaced": 581, "groups": 325, "measures": 356}
# All of this together: 15 of the lines are the imports of two files more, since few plans need their maps.
MOST_MEASURE = 6_702
MOST_CHOOSE = 375
# The goal of the wings is 1,600. 320 of the lines are check_forms.py, a table of what a file may hold and its reader,
# by which stores that go on are read: what may be built from a file is closed, field by field. 70 more see to it that
# an opening that was cut short is paid for once and goes on.
# 35 count keys that are texts by their texts, so that they can be shown (decision 0178).
# 11 show heavy keys by Gaussian noise too. 1 lets nobody set a histogram's noise; 1 has the form of sums of cells.
MOST_WINGS = 2_172
# Of streams, 620 in wall/, 75 of which see to it that nobody is counted too often: the rest is what they cost, and
# bundles and names, which other wings have too.
# 40 more go on with an opening that was cut short, and keep files of one size.
# 9 in the wall count few rows of each group, and 46 price them: each table by itself where counts are cut, and windows
# that hold several periods of a person, column by column. 1 tells persons apart by the name that their rows have.
# 36 let the total go through a filter of its own: 18 in the wall keep its state, the others price it.
MOST_STREAMS = 1_564  # with check_forms.py, as the wings
MOST_STREAMS_IN_WALL = 718
# What measuring long tables in parts adds to `measure`: how their records are found, and the price's own check again.
MOST_PARTS = 110
# What a table made of several adds: a language with its types, its SQL, and how tables are read together.
# 85 of them say the same statements to an engine that counts where the rows lie.
MOST_PERSONS = 1_170
# What finding labels adds: the law, and the labels of each person; 330 of these are check_forms.py and bundles, as in
# the wings. What was shown lies in the file of several looks, below. 25 take lines that an engine made where its rows
# lie. 32 look for prefixes of labels first; 60 add up the noisy sums of rounds, and see that each adds up those before
# it. 24 find labels of several columns, and their beginnings.
MOST_LABELS = 898
# What several looks from one debit add: their file, and 330 of check_forms.py and bundles, as in the wings. 7 refuse a
# look while nothing is known of the one before.
MOST_STEPS = 640
# What an engine adds to `measure`: its own files, and what it shares with its like.
MOST_ENGINE = 430
# 110 of them bring what several tables tell of a person to one part, and see that all of it came, labels too.
MOST_SHARED = 508
# What those that hand rows over share (streams.py), and those that count where the rows lie (partitions.py, kernel.py).
SHARED = {f"sfumato.curator.engines.{name}" for name in ("streams", "partitions", "kernel")}


@cache
def doors() -> dict[str, set[str]]:
    """The modules of each: those that measuring loads, what choosing adds to them, what the wings of conversations and
    keys add to both, and what streams, and long tables, add to measuring alone."""
    core = closure(MEASURE)
    least = closure(CORE, late=False)
    parts = {name: closure(roots, late=False) - least for name, roots in PARTS.items()}
    choosing = closure(CHOOSE) - core
    wings = closure(WINGS) - core - choosing
    over_time, long, persons, labels, steps = (
        closure(door) - core for door in (OVER_TIME, LONG, PERSONS, LABELS, STEPS)
    )
    added = {"choose": choosing, "wings": wings, "streams": over_time, "parts": long, "persons": persons}
    added |= {"labels": labels, "steps": steps}
    return {"measure": core, "core": least, **parts, **added}


BOUNDS = {
    "measure": MOST_MEASURE,
    "core": MOST_CORE,
    **MOST_PARTS_OF_DOOR,
    "choose": MOST_CHOOSE,
    "wings": MOST_WINGS,
    "streams": MOST_STREAMS,
    "parts": MOST_PARTS,
    "persons": MOST_PERSONS,
    "labels": MOST_LABELS,
    "steps": MOST_STEPS,
}
LEAST = {"parts": 80}  # one file; of the others 100, so that a count of nothing is seen


@pytest.mark.parametrize("door", BOUNDS)
def test_a_door_imports_no_more_than_can_be_read(door: str) -> None:
    found = doors()[door]
    assert LEAST.get(door, 100) < lines(found) <= BOUNDS[door], sorted(found)


def test_streams_are_short_behind_the_wall() -> None:
    found = {m for m in doors()["streams"] if m.startswith("sfumato.curator.")}
    assert 100 < lines(found) <= MOST_STREAMS_IN_WALL


def test_an_engine_is_counted_by_itself_and_loaded_by_no_door() -> None:
    """Mutants: an engine that everybody loads; one whose file is small because of all that it imports."""
    core = doors()["measure"]
    registry = "sfumato.curator.engines.registry"
    assert not [m for part in doors().values() for m in part if m.startswith("sfumato.curator.engines")]
    for engine in {module for module, _ in ENGINES.values()}:
        found = closure({engine}) - core
        assert 100 < lines(found - SHARED) <= MOST_ENGINE, (engine, sorted(found))
        assert 50 < lines(found & SHARED) <= MOST_SHARED, (engine, sorted(found))
        assert all(m.startswith("sfumato.curator.engines") for m in found)
        assert registry not in found
    every = closure({registry}) - core
    assert lines({registry}) < 25
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    known = modules()
    _same_files(page, "engines", [known[m] for m in every if code_lines(known[m])])


def test_one_import_more_is_seen(tmp_path: Path) -> None:
    """Mutants: imports inside functions, of a name out of a package, or by a registry's text, that are not followed."""
    shutil.copytree(SRC, tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.js", "*.parquet"))
    file = tmp_path / "src/sfumato/curator/curator.py"
    text = file.read_text(encoding="utf-8")
    known = modules(tmp_path / "src")
    for line in (
        "import sfumato.planner.planning",
        "def late():\n    from sfumato.planner import planning",
        "def late():\n    from ..planner import planning",
        "LATER = {'choose': 'sfumato.planner.planning'}",
    ):
        file.write_text(f"{text}\n{line}\n", encoding="utf-8")
        found = closure(MEASURE, tmp_path / "src")
        assert {"sfumato.planner.planning", "sfumato.planner"} <= found
        assert sum(code_lines(known[n]) for n in found) > 2 * MOST_MEASURE
    file.write_text(f"{text}\nif TYPE_CHECKING:\n    import sfumato.planner.planning\n", encoding="utf-8")
    assert closure(MEASURE, tmp_path / "src") == closure(MEASURE)


def test_the_core_imports_no_other_door_and_nobody_the_public_page() -> None:
    found = doors()
    others = re.compile(
        r"sfumato\.(curator\.(conversations|keys|labels|steps|streams|selecting|by_part|people)|mechanisms|planner|plans)"
    )
    assert not [m for m in found["measure"] if others.match(m)]
    assert not [m for m in found["measure"] | found["choose"] if m.startswith(("sfumato.domain", "sfumato.sketches"))]
    page = re.compile(r"^\s*(from sfumato import|import sfumato\b(?!\.))", re.MULTILINE)
    known = modules()
    assert not [m for part in found.values() for m in part if page.search(known[m].read_text(encoding="utf-8"))]


def test_no_door_imports_by_a_name_that_is_made_at_run_time() -> None:
    """Such an import could not be counted."""
    known = modules()
    for part in doors().values():
        for module in part:
            tree = ast.parse(known[module].read_text(encoding="utf-8"))
            names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
            names |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names}
            assert not names & {"importlib", "import_module", "__import__", "exec", "eval", "runpy"}, module


def test_the_door_and_its_parts_are_all_that_measuring_loads() -> None:
    found = doors()
    assert found["measure"] == found["core"].union(*(found[part] for part in PARTS))


MEASURED = """
import sys
import sfumato
public = {*sys.modules}
from sfumato.curator import Curator, Histogram
from sfumato.domain import Categories, Domain, Measure
from sfumato.maps import AlikeMap, BlockMap
from sfumato.privacy.accounting import GaussianEvent
from sfumato.privacy.budget import Budget
from sfumato.privacy.ledger import Ledger
from sfumato.privacy.noise import RoundedGaussian
from sfumato.privacy.unit import Neighbours, PrivacyUnit

domain = Domain({"a": Categories(["x", "y"], outside="other", missing="other"), **MORE})
blocks = [BlockMap((("a",),), (AlikeMap(3),)), *BLOCKS]
unit = PrivacyUnit(Neighbours.NEIGHBOURS, **UNIT)
curator = Curator(SOURCE, domain, unit, Ledger.in_memory(Budget.gdp(9)))
curator.measure(blocks, RoundedGaussian(2**40), GaussianEvent(1), name="n", plan_hash="0" * 64)
print(*[m for m in sys.modules if m.startswith("sfumato.") and m not in public])
"""
HISTOGRAM = "Histogram([3, 4, 5])"
TABLE = '__import__("pyarrow").table({"a": ["x", "y", "x"], "who": ["i", "j", "k"], "m": [1.0, 2.0, 3.0]})'
RUNS = "__import__('sfumato.maps.structured').maps.structured.RangesMap([0], [2], 3)"
WAYS = {
    "histogram": ({}, set()),
    "runs": ({"BLOCKS": f"[BlockMap((('a',),), ({RUNS},))]"}, {"maps"}),
    "rows": ({"SOURCE": TABLE}, {"rows"}),
    "replaced": ({"NEIGHBOURS": "REPLACE_ONE"}, {"replaced"}),
    "groups": (
        {"SOURCE": TABLE, "UNIT": '{"person": "who", "rows_per_person": 2, "once_per": ("a",)}'},
        {"rows", "groups"},
    ),
    "measures": (
        {"SOURCE": TABLE, "MORE": '{"m": Measure(0, 4)}', "BLOCKS": '[BlockMap((("m",),), (AlikeMap(4),))]'},
        {"rows", "measures"},
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_measurement_loads_no_part_that_it_does_not_need(way: str) -> None:
    """In a process of its own. Mutants: any of the imports inside functions moved to the top of its file."""
    given, needed = WAYS[way]
    words = {"MORE": "{}", "BLOCKS": "[]", "NEIGHBOURS": "ADD_REMOVE", "UNIT": "{}", "SOURCE": HISTOGRAM, **given}
    program = MEASURED
    for word, value in words.items():
        program = re.sub(rf"\b{word}\b", value, program)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=900)
    assert ran.returncode == 0, ran.stderr
    loaded = set(ran.stdout.split())
    assert {part for part, roots in PARTS.items() if roots & loaded} == needed


@pytest.mark.parametrize("door", [d for d in BOUNDS if d != "measure"])
def test_the_page_says_of_every_file_why_it_is_trusted(door: str) -> None:
    """docs/architecture.md lists exactly the files with code."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    known = modules()
    _same_files(page, door, [known[m] for m in doors()[door] if code_lines(known[m])])


def _same_files(page: str, name: str, trusted: list[Path]) -> None:
    (table,) = re.findall(rf"<!-- closure: {name} -->\n(.*?)\n\n", page, flags=re.DOTALL)
    rows = [row.split("|")[1:3] for row in table.splitlines()[2:]]
    named = [n for files, _ in rows for n in re.findall(r"`([\w/]+\.py)`", files)]
    assert all(len(why.split()) > 3 for _, why in rows)
    assert sorted(named) == sorted(p.relative_to(SRC / "sfumato").as_posix() for p in trusted)
