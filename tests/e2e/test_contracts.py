"""The import contracts and the private names hold; each was seen red: a forbidden line in a copy breaks it alone."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# contract: (file, the forbidden line); each breaks its own contract and no other
FORBIDDEN = {
    "floors": ("sketches/keys.py", "import sfumato.domain"),
    "wall": ("mechanisms/run.py", "from sfumato.wall.rows.readers import open_table"),
    "below": ("plans/plan.py", "import duckdb"),
    "siblings": ("workloads/core.py", "from sfumato.workloads.builders import queries"),
}


def contracts() -> dict[str, str]:
    """Names of the contracts by their key in .importlinter."""
    file = configparser.ConfigParser()
    file.read(ROOT / ".importlinter", encoding="utf-8")
    prefix = "importlinter:contract:"
    return {s.removeprefix(prefix): file[s]["name"] for s in file.sections() if s.startswith(prefix)}


def broken(folder: Path) -> set[str]:
    """Keys of the contracts that a tree breaks."""
    call = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    done = subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    verdicts = {n: re.search(rf"^{re.escape(t)} (KEPT|BROKEN)", done.stdout, re.M) for n, t in contracts().items()}
    assert all(verdicts.values()), done.stdout + done.stderr
    return {name for name, found in verdicts.items() if found is not None and found[1] == "BROKEN"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".importlinter", tmp_path)
    return tmp_path


def test_every_contract_holds_and_has_a_line_that_breaks_it(tree: Path) -> None:
    assert broken(tree) == set()
    assert set(FORBIDDEN) == set(contracts())


@pytest.mark.parametrize("contract", FORBIDDEN)
def test_a_forbidden_line_breaks_its_contract(contract: str, tree: Path) -> None:
    """Mutants: a module taken out of a contract's list; a contract that is not checked at all."""
    name, line = FORBIDDEN[contract]
    file = tree / "src/sfumato" / name
    file.write_text(f"{file.read_text(encoding='utf-8')}\n{line}\n", encoding="utf-8")
    assert broken(tree) == {contract}


@pytest.mark.parametrize(
    "module", ["rows.sources", "rows.encoding", "rows.counting", "rows.readers", "talk.filed", "keys.counts"]
)
def test_every_module_that_reads_rows_is_behind_the_wall(module: str, tree: Path) -> None:
    """Mutant: a reader that anybody may import."""
    file = tree / "src/sfumato/releasing.py"
    text = file.read_text(encoding="utf-8")
    file.write_text(f"{text}\nimport sfumato.wall.{module}\n", encoding="utf-8")
    assert broken(tree) == {"wall"}


RULES = {
    "SLF001": "def _peek(curator):\n    return curator._counts\n",
    "TID251": "import random\n",
    "T201": "print(1)\n",
}


@pytest.mark.parametrize("rule", RULES)
def test_private_names_other_randomness_and_prints_are_refused(rule: str, tree: Path) -> None:
    """Mutant: a rule taken out of pyproject.toml, or a file's exemption that nobody needs."""
    shutil.copy(ROOT / "pyproject.toml", tree)
    call = [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format=concise", "src"]

    def found() -> str:
        done = subprocess.run(call, cwd=tree, capture_output=True, text=True, check=False)
        return "\n".join(x for x in done.stdout.splitlines() if any(r in x for r in RULES))

    assert found() == ""
    (tree / "src/sfumato/mechanisms/peek.py").write_text(RULES[rule], encoding="utf-8")
    assert re.search(rf"mechanisms/peek\.py:\d+:\d+: {rule}", found())
