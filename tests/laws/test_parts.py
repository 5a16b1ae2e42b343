"""A tree that is settled in parts: the same counts as at once, and the same after a kill as without one."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import InvalidInput, PlanError
from sfumato.plans.plan import price_design
from sfumato.postprocess import geography as parts_module
from sfumato.postprocess.geography_estimates import PlacedCounts, Readings
from sfumato.postprocess.projection import largest_tables
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.releases.release import Release
from sfumato.strategies.design import Problem
from sfumato.strategies.geography import Spine
from sfumato.strategies.geography_planning import design_geography
from sfumato.strategies.impossible_cells import condition_on_impossible
from support.places import grown, nested

SETS = [[], ["a0"], ["a0", "a1"]]


def released(seed: int, fans: tuple[int, ...], residual: bool = False) -> Release:
    rng = np.random.default_rng(seed)
    rows = grown(fans, rng, 0.6)
    sets = [["a0"], ["a1"]] if residual else SETS
    work = nested([rows[i] for i in rng.permutation(len(rows))], (2, 3), sets, before=seed % 2)
    x = rng.poisson(rng.gamma(0.3, 4, work.domain.shape))
    unit = PrivacyUnit(Neighbours.REPLACE_ONE if seed == 3 else Neighbours.ADD_REMOVE)
    asked = Problem(work, sf.gdp(1), unit, "gaussian")
    plan = price_design(design_geography(asked)[0], asked)
    assert isinstance(plan.strategy, Spine)
    return sf.release(plan, sf.Histogram(x), ledger=None)


def held(release: Release) -> PlacedCounts:
    assert release.projection is not None
    found = release.projection.possible
    assert isinstance(found, PlacedCounts)
    return found


def parted(monkeypatch: pytest.MonkeyPatch, units: int = 6) -> None:
    monkeypatch.setattr(parts_module, "_WHOLE", 0)
    monkeypatch.setattr(parts_module, "_UNITS", units)


@pytest.mark.parametrize("seed", range(5))
def test_parts_come_to_what_the_whole_tree_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of random trees of three and four levels, in real numbers at every level, tables and residuals.

    Mutants: what is measured of a branch's top counted again above; a branch that reads its neighbour's leaves;
    the second look fitted from one branch, or left out.
    """
    release = released(seed, ((3, 4, 5), (2, 3, 2, 4))[seed % 2], residual=seed % 4 == 1)
    whole = release.project()
    parted(monkeypatch)
    assert len(_runs(release)) > 1
    apart = release.project()
    assert whole.projection is not None
    assert apart.projection is not None
    scale = 1 + np.abs(whole.answers)
    assert (np.abs(apart.answers - whole.answers) < 1e-6 * scale).all()
    assert apart.projection.gap == pytest.approx(whole.projection.gap, rel=1e-3, abs=1e-9)
    assert apart.projection.moved == pytest.approx(whole.projection.moved, rel=1e-6)
    counted = release.project(integer=True)
    assert counted.answers.min() >= 0
    assert (counted.answers == np.rint(counted.answers)).all()


def _runs(release: Release) -> tuple[tuple[int, int], ...]:
    strategy = release.plan.strategy
    assert isinstance(strategy, Spine)
    read = Readings(strategy, release.measurement.values, 1.0, [i for i in range(3) if i != strategy.place])
    found = parts_module.TreeParts(read, [()], None, whole=True, possible=None)
    assert found.level > 0
    return found.runs


class Killed(BaseException):
    """As the interrupt of a process."""


class Killer:
    """Progress that is told so many times, and no more."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __call__(self, done: int, worst: float) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed(f"{done} {worst}")


@pytest.mark.parametrize("integer", [False, True])
def test_a_killed_projection_ends_as_one_that_was_not(
    integer: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed again and again in the middle of a part, to the bit; finished parts are not settled again.

    Mutants: parts that are there made again; progress from zero in every part.
    """
    release = released(2, (3, 4, 4, 3))
    parted(monkeypatch, units=25)
    told: list[int] = []
    plain = release.project(integer=integer, progress=lambda done, _: told.append(done))
    folder, kills = tmp_path / "parts", 0
    found = None
    while found is None:
        try:
            found = release.project(integer=integer, folder=folder, progress=Killer(5 + 2 * kills))
        except Killed:
            kills += 1
    assert kills > 2
    ours, theirs = held(found), held(plain)
    for name in ("unit", "cell", "count"):
        assert np.array_equal(getattr(ours, name), getattr(theirs, name))
    assert found.projection is not None
    assert plain.projection is not None
    assert found.projection.describe() == plain.projection.describe()
    assert told == sorted(told)
    again: list[int] = []
    release.project(integer=integer, folder=folder, progress=lambda done, _: again.append(done))
    assert again == []
    if integer:
        files = str(folder / "microdata" / "*.parquet")
        rows = duckdb.connect().execute(f"SELECT place, a0, count(*) FROM '{files}' GROUP BY ALL").fetchall()
        table = plain.table("place", "a0")
        wanted = {
            (p, a): int(table.values[i, j])
            for i, p in enumerate(table.labels[0])
            for j, a in enumerate(table.labels[1])
            if table.values[i, j]
        }
        assert {(p, a): n for p, a, n in rows} == wanted


def test_a_folder_keeps_the_parts_of_one_projection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: parts taken from another release, or from another choice; a part believed whose records are missing."""
    release, other = released(2, (3, 4, 5)), released(2, (3, 4, 5))
    parted(monkeypatch)
    folder = tmp_path / "parts"
    found = release.project(integer=True, folder=folder)
    for call in (
        lambda: other.project(integer=True, folder=folder),
        lambda: release.project(folder=folder),
        lambda: release.project(integer=True, total=7, folder=folder),
    ):
        with pytest.raises(InvalidInput, match="another projection"):
            call()
    part = sorted(folder.glob("part-*.npz"))[1]
    part.write_bytes(part.read_bytes()[:100])
    theirs = tmp_path / "theirs"
    other.project(integer=True, folder=theirs)
    sorted(folder.glob("part-*.npz"))[0].write_bytes(sorted(theirs.glob("part-*.npz"))[0].read_bytes())
    sorted(folder.glob("microdata/*.parquet"))[2].unlink()
    again = release.project(integer=True, folder=folder)
    assert np.array_equal(held(again).count, held(found).count)
    assert np.array_equal(held(again).cell, held(found).cell)
    assert len(list(folder.glob("microdata/*.parquet"))) == len(list(folder.glob("part-*.npz"))) > 2
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "mine.txt").write_text("mine")
    with pytest.raises(InvalidInput, match="holds no parts"):
        release.project(folder=foreign)
    with pytest.raises(PlanError, match="no parts"):
        release.project("local", folder=tmp_path / "none")


def test_two_projections_do_not_work_in_one_folder(tmp_path: Path) -> None:
    """While one is at work another is refused, in another process as well; it may once the first has ended or died.

    Mutants: no lock; a lock that stays when the work has failed; one that a process leaves behind when it is killed.
    """
    release, folder = released(1, (2, 3)), tmp_path / "parts"
    refused: list[str] = []

    def second(_: int, __: float) -> None:
        with pytest.raises(InvalidInput, match="is at work"):
            release.project(integer=True, folder=folder)
        refused.append("once")
        raise Killed("first")

    with pytest.raises(Killed):
        release.project(integer=True, folder=folder, progress=second)
    assert refused == ["once"]
    script = (
        "import sys, time; from pathlib import Path; from sfumato.releases.geography import hold_folder_lock\n"
        "with hold_folder_lock(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"
    )
    other = subprocess.Popen([sys.executable, "-c", script, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(InvalidInput, match="is at work"):
            release.project(integer=True, folder=folder)
    finally:
        other.kill()
        other.communicate()
    assert release.project(integer=True, folder=folder).answers.min() >= 0


def test_one_part_is_kept_too(tmp_path: Path) -> None:
    """A small tree is one part; an interrupt leaves nothing half."""
    release = released(1, (2, 3))
    found = release.project(integer=True, folder=tmp_path / "parts")
    again = release.project(integer=True, folder=tmp_path / "parts")
    assert np.array_equal(found.answers, again.answers)
    assert len(list((tmp_path / "parts").glob("part-*.npz"))) == 1


def test_what_is_known_of_cells_that_cannot_be_is_used() -> None:
    """The total is that of least squares under the zeros. Mutant: that of what was measured alone."""
    rows = grown((3, 4, 5), np.random.default_rng(1), 0.6)
    place = {"place": sf.Hierarchy(rows, levels=["L0", "L1", "L2"])}
    domain = sf.Domain(place | {"a0": 2, "a1": 3}, impossible=["a0 == 1 and a1 >= 1"])
    work = sf.marginals(domain, sets=SETS, factors={"place": "levels"})
    asked = Problem(work, sf.gdp(1), PrivacyUnit(Neighbours.ADD_REMOVE), "gaussian")
    plan = price_design(design_geography(asked)[0], asked)
    under = condition_on_impossible(plan.strategy, domain, largest_tables(work), [q.block for q in work.blocks])
    x = np.random.default_rng(2).poisson(3.0, domain.shape)
    x[:, 1, 1:] = 0
    release = sf.release(replace(plan, strategy=under), sf.Histogram(x), ledger=None)
    whole = release.project()
    assert float(whole.table().values) == pytest.approx(float(release.table().values), abs=1e-6)
    assert np.abs(whole.table("a0", "a1").values[1, 1:]).max() == 0
