"""The stranger's checker: it accepts what was made, and finds lies, however well their makers recompute hashes."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from sfumato import check_maps, check_release
from sfumato.privacy.ledger import Ledger
from support.forging import Forged, verdict
from support.lies import LIES
from support.released import PLANS, SKETCHES, STREAMS, made

OLD = Path(__file__).parents[1] / "fixtures" / "0.1" / "released"


@pytest.mark.parametrize("kind", [*PLANS, *SKETCHES, *STREAMS])
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
    earlier = release.with_name("earlier.sfumato") if told.earlier else None
    found, checks, reasons = verdict(forged.release, forged.ledger, anchor, earlier)
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


def test_what_is_too_large_to_look_at_is_said_with_why_and_what_to_do(
    honest: Callable[[str], tuple[Path, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: a bound above what was paid is accepted, or called a lie."""
    monkeypatch.setattr(check_maps, "MOST", 8)
    found, wrong, (reason,) = verdict(*honest("many levels, replaced"))
    assert (found, wrong) == ("not checked", set())
    for said in ("sensitivity of", "was paid", "too many cells", "the bound is", "plan under add-remove"):
        assert said in reason


@pytest.mark.parametrize("half", [check_release, check_maps])
def test_each_half_imports_numpy_and_the_standard_library_and_stays_short(half: ModuleType) -> None:
    """And the upper half the lower. 400 is every line: what a stranger reads at a sitting.

    Mutants: an import of sfumato; a checker that grows beyond what a stranger reads.
    """
    text = Path(half.__file__ or "").read_text(encoding="utf-8")
    tree = ast.parse(text)
    imported = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    given = [(n.module, a.name) for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names]
    ours = {("sfumato", "check_maps")} if half is check_release else set[tuple[str, str]]()
    assert {g for g in given if (g[0] or ".").partition(".")[0] not in sys.stdlib_module_names} == ours
    assert {*imported} - sys.stdlib_module_names == {"numpy", *(name for _, name in ours)}
    assert text.count("\n") <= 402  # two lines since then count the cells of days
