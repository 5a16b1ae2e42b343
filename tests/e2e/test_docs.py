"""What README and docs print runs as printed: Python, command lines and specs; and what they name exists."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import sfumato as sf
from sfumato.cli import command
from sfumato.jobs import read_job
from sfumato.plans.plan import Plan
from sfumato.releasing import plan_from_spec
from support.forked import served
from support.scripts import script

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
LANGUAGES = {"python", "sh", "toml", "text", "output", "output noisy"}  # text: a drawing

NOT_RUN = {
    ("README.md", "make demo"): "sets up an environment and runs this very suite; the demo is run by test_demo.py",
    ("start.md", "make demo"): "sets up an environment and runs the demo, which test_demo.py runs",
    ("CONTRIBUTING.md", "make setup"): "sets up an environment and runs tests of this very suite",
    ("CONTRIBUTING.md", "sed"): "breaks the sources to see a test fail; test_house.py does the same to a copy",
    ("CONTRIBUTING.md", "make style"): "runs this very suite",
}
"""Shell blocks that are not run, by page and first words, and why: nothing else is left out."""

PEOPLE = "age,sex\n" + "".join(f"{20 + i % 70},{'female' if i % 3 else 'male'}\n" for i in range(300))
ITEMS = "item\n" + "".join(f"{i % 40}\n" for i in range(500))
SCHEMA = """
[schema.age]
type = "integer"
min = 0
max = 99
width = 5
outside = "clamp"
missing = "other"
"""
SEX = """
[schema.sex]
type = "category"
values = ["female", "male"]
outside = "other"
missing = "other"
"""
ASKED = """
[[queries]]
name = "tables"
upto = 2
[[queries]]
name = "cdf"
prefix = "age"
by = ["sex"]
"""
PRIVACY = """
[privacy]
epsilon = 1
delta = "1e-6"
neighbours = "add-remove"
"""
SPEC = '[data]\nsource = "people.csv"\n' + SCHEMA + SEX + PRIVACY + ASKED
REGION = """
[schema.region]
type = "category"
values = ["north", "east", "south", "west"]
outside = "drop"
missing = "drop"
"""


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page in order."""
    out: list[Block] = []
    opened: tuple[int, str] | None = None
    held: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("```"):
            held.append(line)
        elif opened is None:
            opened, held = (number, line[3:].strip()), []
        else:
            out.append(Block(page, opened[0], opened[1], "\n".join(held) + "\n"))
            opened = None
    assert opened is None, f"{page.name}: the block of line {opened} has no end"
    return out


def written(*languages: str) -> list[Path]:
    """Pages with blocks of these languages that are run."""
    return [p for p in PAGES if any(b.language in languages and not is_left_out(b) for b in blocks(p))]


def is_left_out(block: Block) -> bool:
    return any(block.page.name == page and block.text.startswith(start) for page, start in NOT_RUN)


def names(page: Path) -> str:
    return page.name


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=names)
def test_every_block_is_of_a_language_that_runs(page: Path) -> None:
    assert {b.language for b in blocks(page)} <= LANGUAGES


def test_blocks_that_are_not_run_are_there() -> None:
    for page, start in NOT_RUN:
        assert any(b.page.name == page and b.text.startswith(start) for p in PAGES for b in blocks(p)), (page, start)


@pytest.mark.parametrize("page", written("python", "toml"), ids=names)
def test_code_and_specs_run_in_order(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A spec may use the files that the code above it wrote, and is planned; an output is what the code prints."""
    monkeypatch.chdir(tmp_path)
    serve(page, monkeypatch, request)
    Path("people.csv").write_text(PEOPLE, encoding="utf-8")
    scope: dict[str, object] = {}
    for block in blocks(page):
        if block.language == "python":
            capsys.readouterr()
            exec(compile("\n" * block.line + block.text, str(page), "exec"), scope)
        elif block.language == "toml":
            check_spec(block)
        elif block.language.startswith("output"):
            told, printed = block.text, capsys.readouterr().out
            if block.language == "output noisy":  # each run has its own noise
                told, printed = _without_numbers(told), _without_numbers(printed)
            assert [line.split() for line in printed.splitlines()] == [line.split() for line in told.splitlines()]


def _without_numbers(text: str) -> str:
    return re.sub(r"[-+]?\d[\d,.]*", "#", text)


def serve(page: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """What a page speaks of is there: files that a script draws; a server, with the database that it names."""
    if page.name == "hospital.md":
        script("bench/hospital.py").write_tables()
    if page.name == "spark.md":
        request.getfixturevalue("spark")
    if page.name != "engines.md":
        return
    running = request.getfixturevalue("postgres")
    rows = ", ".join(f"({age}, '{sex}')" for age, sex in (line.split(",") for line in PEOPLE.splitlines()[1:]))
    running.run("DROP DATABASE IF EXISTS office", "CREATE DATABASE office")
    running.run("CREATE TABLE people (age int, sex text)", f"INSERT INTO people VALUES {rows}", database="office")
    monkeypatch.setenv("PGHOST", str(running.folder))
    monkeypatch.setenv("PGUSER", "postgres")


def check_spec(block: Block) -> None:
    """A spec, or a part of one, is read and planned, and says of the plan what it printed; a job is read."""
    said, text = tomllib.loads(block.text), block.text
    if "job" in said:
        Path("printed.toml").write_text(text, encoding="utf-8")
        assert len(read_job("printed.toml").tables) == len(said["tables"])
        return
    missing = {"privacy": PRIVACY, "schema": SCHEMA + SEX + REGION * ("region" in text), "queries": ASKED}
    if "schema" in said and "sex" not in said["schema"]:
        text += SEX
    for section, added in missing.items():
        text += added * (section not in said)
    Path("printed.toml").write_text(text, encoding="utf-8")
    spec = sf.read_spec("printed.toml")
    found = plan_from_spec(spec)
    asked = said.get("plan", {})
    assert found.mechanism == asked.get("mechanism", found.mechanism)
    assert found.records == asked.get("records", found.records)
    if "public" in said:
        without = text.replace(block.text, "")
        Path("without.toml").write_text(without, encoding="utf-8")
        plain = plan_from_spec(sf.read_spec("without.toml"))
        assert isinstance(found, Plan)
        assert isinstance(plain, Plan)
        assert found.rmse < plain.rmse
    for name, attribute in said.get("schema", {}).items():
        for level in attribute.get("levels", {}):
            assert level in spec.domain.levels or level in spec.domain.names, (name, level)


@pytest.mark.parametrize("page", written("sh"), ids=names)
def test_command_lines_run_in_order(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, typed: list[str]
) -> None:
    """In a shell, in a folder with the files that the page speaks of: whoever types does not run its Python."""
    serve(page, monkeypatch, request)
    shell = tmp_path / "work"
    prepare(shell, " ".join(b.text for b in blocks(page)), typed)
    if page.name == "streams.md":
        for week in range(1, 4):
            rows = "".join(f"{i},{20 + (i * week) % 70},{'north' if i % 3 else 'east'}\n" for i in range(50))
            (shell / f"week-{week:02}.csv").write_text("id,age,region\n" + rows, encoding="utf-8")
        (spec,) = (b.text for b in blocks(page) if b.language == "toml")
        (shell / "deaths.toml").write_text(spec, encoding="utf-8")
    ran = 0
    for block in blocks(page):
        if block.language != "sh" or is_left_out(block):
            continue
        path = f"{shell / '.bin'}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["sh", "-eu", "-c", block.text],
            cwd=shell,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src"), "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{page.name}, line {block.line}:\n{done.stdout}\n{done.stderr}"
        ran += block.text.count("sfumato ")
    assert ran > 0


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """What a shell runs for `sfumato`."""
    with served(tmp_path_factory.mktemp("served")) as words:
        yield words


def prepare(folder: Path, typed: str, words: list[str]) -> None:
    """What is there before a page's first command: tables, specs, and what its commands use but do not make."""
    (folder / ".bin").mkdir(parents=True)
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "activate").write_text("sfumato --help > help.txt\n", encoding="utf-8")
    command = folder / ".bin" / "sfumato"
    run = shlex.join(words)
    # after `init` the blanks are refused, and whoever read the page fills them in
    fill = 'if [ "$1" = init ]; then ! $0 plan people.toml 2> blanks.txt; grep -q blank blanks.txt'
    command.write_text(f'#!/bin/sh\nset -e\n{run} "$@"\n{fill}; cp filled.toml people.toml; fi\n', encoding="utf-8")
    command.chmod(0o755)
    (folder / "people.csv").write_text(PEOPLE, encoding="utf-8")
    (folder / "items.csv").write_text(ITEMS, encoding="utf-8")
    data = resources.files("sfumato.data")
    for name in ("adult.toml", "adult.parquet"):
        (folder / name).write_bytes((data / name).read_bytes())
    (folder / ("filled.toml" if "sfumato init" in typed else "people.toml")).write_text(SPEC, encoding="utf-8")
    if "budget.db" in typed and "ledger create budget.db" not in typed:
        sf.Ledger.create(folder / "budget.db", total=sf.approx(2, "1e-6"))


def test_command_lines_within_sentences_name_what_exists() -> None:
    """Every `sfumato command --option` between backticks is a command with that option."""
    checked = 0
    for page in PAGES:
        prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for quoted in re.findall(r"`sfumato ([^`]+)`", prose):
            place: Any = command()
            words = shlex.split(quoted)
            while words and hasattr(place, "commands"):
                name = words.pop(0)
                assert name in place.commands, f"{page.name}: sfumato {quoted}"
                place = place.commands[name]
            known = {o for p in place.params for o in (*p.opts, *p.secondary_opts)} | {"--help"}
            options = {w.split("=")[0] for w in words if w.startswith("-")}
            assert options <= known, f"{page.name}: sfumato {quoted}: {sorted(options - known)}"
            checked += 1
    assert checked >= 5


def test_links_lead_somewhere() -> None:
    """Of pages, files and headings within them."""
    checked = 0
    for page in PAGES:
        prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", prose):
            if re.match(r"[a-z]+:", target):
                continue
            file, _, heading = target.partition("#")
            there = (page.parent / file) if file else page
            assert there.exists(), f"{page.name}: {target}"
            if heading:
                lines = re.findall(r"^#+ (.*)$", there.read_text(encoding="utf-8"), re.MULTILINE)
                slugs = {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}
                assert heading in slugs, f"{page.name}: {target}"
            checked += 1
    assert checked > 50


SOURCES = {"Notes", "SmithUllman", "Tutunov", "Nikolov", "Brown"}  # lecture notes have no year


def test_every_reference_key_is_resolved() -> None:
    """A [Key20] in a docstring, a page or a test must be found in docs/references.md, where it stands once."""
    listed = re.findall(r"^\| (\w+) \|", (ROOT / "docs/references.md").read_text(encoding="utf-8"), re.MULTILINE)
    listed = [key for key in listed if key != "key"]
    known = set(listed)
    assert sorted(known) == sorted(listed)
    assert known >= SOURCES
    used: set[str] = set()
    for file in [*(f for room in ("src", "tests", "bench") for f in (ROOT / room).rglob("*.py")), *PAGES]:
        for cited in re.findall(r"\[([A-Z][A-Za-z]*\d\d\b[^\]\[]*)\]", file.read_text(encoding="utf-8")):
            used |= set(re.findall(r"\b[A-Z][A-Za-z]+\d\d\b", cited))
    assert len(used) > 60
    assert used - {"Key20"} <= known, f"not in docs/references.md: {sorted(used - known)}"


def test_files_that_are_named_exist() -> None:
    """Of src, tests, bench, docs and scripts; `privacy/local.py` is one of the package."""
    checked = 0
    for page in [*PAGES, ROOT / "bench" / "RESULTS.md"]:
        for named in re.findall(
            r"(?<![\w/.:~-])((?:[\w.-]+/)+[\w-]+\.(?:py|md|toml|svg))\b", page.read_text(encoding="utf-8")
        ):
            roots = (ROOT, page.parent, ROOT / "docs", ROOT / "src", ROOT / "src" / "sfumato")
            assert any((root / named).exists() for root in roots), f"{page.name}: {named}"
            checked += 1
    assert checked > 60
