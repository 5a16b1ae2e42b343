"""The stranger's checker: it accepts what was made, and finds lies, however well their makers recompute hashes."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from sfumato import check_release
from sfumato.privacy.ledger import Ledger
from support.forging import Forged, verdict
from support.lies import LIES
from support.released import PLANS, SKETCHES, made

OLD = Path(__file__).parents[1] / "fixtures" / "0.1" / "released"


@pytest.mark.parametrize("kind", [*PLANS, *SKETCHES])
def test_a_release_of_every_kind_is_accepted(kind: str, tmp_path: Path) -> None:
    assert verdict(*made(kind, tmp_path)) == ("accepted", set(), [])


def test_a_release_of_0_1_is_accepted() -> None:
    assert verdict(OLD / "release", OLD / "budget.db") == ("accepted", set(), [])


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    @cache
    def of(kind: str) -> tuple[Path, Path]:
        return made(kind, tmp_path_factory.mktemp("honest"))

    return of


@pytest.mark.parametrize(("lie", "kind"), [(lie, kind) for lie, told in LIES.items() for kind in told.kinds])
def test_a_lie_is_found_by_the_check_that_is_meant_to(
    lie: str, kind: str, honest: Callable[[str], tuple[Path, Path]], tmp_path: Path
) -> None:
    """Mutants: each check left out lets its lies through."""
    told, (release, ledger) = LIES[lie], honest(kind)
    forged = Forged(release, ledger, tmp_path / "forged")
    anchor = Ledger(ledger).verify().anchor if told.anchored else None
    if not told.last:
        told.tell(forged)
    if told.follow:
        forged.tell_ledger()
    forged.publish(told.rehash and told.rehash(forged), told.tell if told.last else None)
    found, checks, reasons = verdict(forged.release, forged.ledger, anchor)
    assert found == "rejected"
    assert told.check in checks, reasons


def test_there_are_a_hundred_lies_and_nothing_is_found_where_none_is_told(
    honest: Callable[[str], tuple[Path, Path]], tmp_path: Path
) -> None:
    assert sum(len(told.kinds) for told in LIES.values()) >= 100
    for i, kind in enumerate(sorted({kind for told in LIES.values() for kind in told.kinds})):
        release, ledger = honest(kind)
        forged = Forged(release, ledger, tmp_path / str(i))
        forged.tell_ledger()
        assert verdict(forged.publish().release, forged.ledger, None) == ("accepted", set(), [])
        anchor = Ledger(ledger).verify().anchor
        assert verdict(release, ledger, anchor) == ("accepted", set(), [])


def test_it_imports_numpy_and_the_standard_library_and_stays_short() -> None:
    """Lines of code are counted as CI counts them: without docstrings, comments and blanks. 475 is every line.

    Mutants: an import of sfumato; a checker that grows beyond what a stranger reads.
    """
    text = Path(check_release.__file__).read_text(encoding="utf-8")
    tree = ast.parse(text)
    imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    imported |= {n.module or "." for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= {"numpy", *sys.stdlib_module_names}
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    written = [n.body[0] for n in ast.walk(tree) if isinstance(n, kinds) and ast.get_docstring(n) is not None]
    said = {line for n in written for line in range(n.lineno, (n.end_lineno or n.lineno) + 1)}
    lines = [i for i, line in enumerate(text.splitlines(), 1) if line.strip() and not line.strip().startswith("#")]
    # thirteen of them for a later kind of map, the combinations
    assert len(set(lines) - said) <= 402
    assert text.count("\n") <= 490
