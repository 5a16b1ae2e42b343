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
    "wall": ("mechanisms/carry_out.py", "from sfumato.curator.rows.readers import open_table"),
    # whatever a wing imports of the core closes a ring besides, and is an extension
    "core": ("curator/curator.py", "import sfumato.curator.conversations.transcript", "siblings", "extensions"),
    "below": ("plans/plan.py", "import duckdb"),
    "extensions": ("plans/plan.py", "import sfumato.sketches"),
    "siblings": ("workloads/core.py", "from sfumato.workloads.builders import queries"),
}


def contracts() -> dict[str, str]:
    """Names of the contracts by their key in .importlinter."""
    file = configparser.ConfigParser()
    file.read(ROOT / ".importlinter", encoding="utf-8")
    prefix = "importlinter:contract:"
    return {s.removeprefix(prefix): file[s]["name"] for s in file.sections() if s.startswith(prefix)}


def lint(folder: Path) -> str:
    """What import-linter says of a tree."""
    call = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    done = subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def broken(folder: Path) -> set[str]:
    """Keys of the contracts that a tree breaks."""
    said = lint(folder)
    verdicts = {n: re.search(rf"^{re.escape(t)} (KEPT|BROKEN)", said, re.M) for n, t in contracts().items()}
    assert all(verdicts.values()), said
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
    name, line, *others = FORBIDDEN[contract]
    file = tree / "src/sfumato" / name
    file.write_text(f"{file.read_text(encoding='utf-8')}\n{line}\n", encoding="utf-8")
    assert broken(tree) == {contract, *others}


@pytest.mark.parametrize(
    "module",
    [
        "rows.sources",
        "rows.encoding",
        "rows.counting",
        "rows.readers",
        "conversations.transcript",
        "keys.counts",
        "curator",
    ],
)
def test_every_module_that_reads_rows_is_behind_the_wall(module: str, tree: Path) -> None:
    """Mutant: a reader that anybody may import."""
    file = tree / "src/sfumato/releasing.py"
    text = file.read_text(encoding="utf-8")
    file.write_text(f"{text}\nimport sfumato.curator.{module}\n", encoding="utf-8")
    assert broken(tree) == {"wall"}


def listed(key: str) -> list[tuple[str, dict[str, list[str]]]]:
    """The contracts of a type by name, with the modules that they list."""
    file = configparser.ConfigParser()
    file.read(ROOT / ".importlinter", encoding="utf-8")
    found = [file[s] for s in file.sections() if file[s].get("type") == key]
    return [(s["name"], {k: v.split() for k, v in s.items() if k.endswith(("modules", "importers"))}) for s in found]


def add_imports(folder: Path, module: str, imported: list[str]) -> None:
    """Let a module of a tree import others."""
    path = folder / "src" / Path(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    lines = "".join(f"import {name}\n" for name in imported)
    file.write_text(f"{file.read_text(encoding='utf-8')}\n{lines}", encoding="utf-8")


def test_every_line_of_a_contract_still_watches_a_module(tree: Path) -> None:
    """Each module that a contract names is seen red: those that may not be imported, and those that may not import.

    Mutants: a module that moved away from under its line; a line of allowed importers that holds everything.
    """
    wanted: list[str] = []
    for _, lists in listed("forbidden"):
        for module in lists["source_modules"]:
            add_imports(tree, module, lists["forbidden_modules"])
            wanted += [f"{module} is not allowed to import {name}:" for name in lists["forbidden_modules"]]
    outsider = "sfumato.terminal"
    for _, lists in listed("protected"):
        assert not any(outsider == m or outsider.startswith(f"{m}.") for m in lists["allowed_importers"])
        add_imports(tree, outsider, lists["protected_modules"])
        wanted += [f"- {outsider} -> {name} (" for name in lists["protected_modules"]]
    assert len(wanted) >= 70
    said = lint(tree)
    assert [line for line in wanted if line not in said] == []


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
