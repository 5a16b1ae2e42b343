"""Releases whose noisy values are too many for memory: they live in files, a few tables at a time in memory."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato._util import files as spool
from sfumato._util.codec import value_fingerprint
from sfumato._util.documents import read_document, write_document
from sfumato.curator import Curator
from sfumato.curator.rows.counting import TensorCounts
from sfumato.errors import InvalidInput, NotWritten

DOMAIN = sf.Domain({"a": 3, "b": 4, "c": 2, "d": 3})
WORK = sf.marginals(DOMAIN, upto=3)
X = np.random.default_rng(2).integers(0, 30, DOMAIN.shape)


@pytest.fixture
def plan() -> sf.Plan:
    return sf.plan(WORK, sf.gdp(1), neighbours="add-remove", mechanism="marginals")


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "IN_MEMORY", 20)


def _check(release: sf.Release) -> None:
    """Batches, answers and single tables are the same numbers, and near the truth."""
    seen: dict[tuple[str, ...], np.ndarray] = {}
    for batch in release.batches():
        for names, values in zip(batch.attributes, batch.values, strict=True):
            seen[names] = values
            errors = np.broadcast_to(batch.standard_errors, batch.values.shape)[0]
            np.testing.assert_allclose(errors, release.table(*names).standard_errors)
    assert list(seen) == [q.attributes for q in sorted(WORK.blocks, key=lambda q: len(q.attributes))] or len(seen) == 15
    for names, values in seen.items():
        np.testing.assert_allclose(values, release.table(*names).values, atol=1e-9)
    joined = np.concatenate([seen[q.attributes].reshape(-1) for q in WORK.blocks])
    np.testing.assert_allclose(release.answers, joined, atol=1e-9)
    assert np.abs(release.answers - WORK.answer(X)).max() < 10 * release.plan.max_standard_error


def test_values_in_files_are_the_same_release(plan: sf.Plan, little_memory: None, tmp_path: Path) -> None:
    release = sf.release(plan, sf.Histogram(X), ledger=None, out=tmp_path / "r")
    assert isinstance(release.measurement.values[2], np.memmap)
    assert isinstance(release.measurement.values[0], np.ndarray)
    _check(release)
    loaded = sf.load(tmp_path / "r")
    assert (loaded.answers == release.answers).all()
    _check(loaded)
    loaded.save(tmp_path / "copy")
    assert (sf.load(tmp_path / "copy").answers == release.answers).all()
    names = {p.name for p in (tmp_path / "r").iterdir()}
    assert {"values-2.npy", "values-3.npy", "release.sfumato", "release.json"} <= names


def test_values_in_nameless_files(plan: sf.Plan, little_memory: None, tmp_path: Path) -> None:
    """Without a folder nothing is left behind; saving later writes the files."""
    release = sf.release(plan, sf.Histogram(X), ledger=None)
    assert isinstance(release.measurement.values[3], np.memmap)
    _check(release)
    release.save(tmp_path / "later")
    assert (sf.load(tmp_path / "later").answers == release.answers).all()


def test_values_in_memory(plan: sf.Plan) -> None:
    _check(sf.release(plan, sf.Histogram(X), ledger=None))


@pytest.mark.parametrize("change", ["flip", "missing", "link", "foreign"])
def test_changed_files_are_refused(plan: sf.Plan, little_memory: None, tmp_path: Path, change: str) -> None:
    sf.release(plan, sf.Histogram(X), ledger=None, out=tmp_path / "r")
    path = tmp_path / "r" / "values-3.npy"
    stored = path.read_bytes()
    if change == "flip":
        path.write_bytes(stored[:-1] + bytes([stored[-1] ^ 1]))
    elif change == "missing":
        path.unlink()
    elif change == "link":
        (tmp_path / "elsewhere").write_bytes(stored)
        path.unlink()
        path.symlink_to(tmp_path / "elsewhere")
    else:
        np.save(path, np.array(["text"]))
    with pytest.raises(InvalidInput):
        sf.load(tmp_path / "r")


def test_a_room_keeps_what_is_written_when_its_memory_is_given_back(tmp_path: Path) -> None:
    for path in (None, tmp_path / "values-0.npy"):
        array = spool.allocate_zeros(1000, path, limit=10)
        array[:] = np.arange(1000)
        spool.release_pages(array)
        assert array.tolist() == list(range(1000))
    spool.release_pages(np.zeros(3))
    spool.release_pages(None)


@pytest.mark.parametrize("where", ["relative", "linked parent", "absolute"])
def test_paid_values_survive_any_spelling_of_the_folder(
    plan: sf.Plan, little_memory: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Mutants: paths compared as texts, so that a file is opened for writing over itself; names joined twice."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real").mkdir()
    (tmp_path / "via").symlink_to(tmp_path / "real")
    out = {"relative": Path("r"), "linked parent": tmp_path / "via" / "r", "absolute": tmp_path / "r"}[where]
    drawn: list[str] = []
    look = Curator._look

    def noted(self: Curator, *args: Any) -> Any:
        found = look(self, *args)
        drawn.append(value_fingerprint(found))
        return found

    monkeypatch.setattr(Curator, "_look", noted)
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(2))
    release = sf.release(plan, sf.Histogram(X), ledger=ledger, name="n", out=out)
    assert value_fingerprint(release.measurement) == drawn[0]
    assert value_fingerprint(sf.load(out).measurement) == drawn[0]
    again = sf.release(plan, sf.Histogram(X), ledger=ledger, name="n", out=out)
    assert (again.answers == release.answers).all()
    assert len(drawn) == 1


def test_no_room_is_refused_before_the_debit(
    plan: sf.Plan, little_memory: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: sparse files, whose writing kills the process once the disk is full; the debit before the room."""

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(spool.os, "posix_fallocate", full)
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(2))
    with pytest.raises(InvalidInput, match="no room"):
        sf.release(plan, sf.Histogram(X), ledger=ledger, name="n", out=tmp_path / "r")
    assert ledger.spent == 0
    assert {p.name for p in tmp_path.iterdir()} <= {"l.db", "l.db-journal"}


def test_another_measurement_does_not_write_over_values(plan: sf.Plan, little_memory: None, tmp_path: Path) -> None:
    """Mutant: files opened for writing whether they exist or not."""
    ledger = sf.Ledger.in_memory(sf.gdp(9))
    curator = Curator(sf.Histogram(X), DOMAIN, plan.unit, ledger)
    first, _ = curator.measure(plan.strategy.blocks, plan.noise, plan.price, name="a", plan_hash="h", folder=tmp_path)
    before = value_fingerprint(first)
    with pytest.raises(InvalidInput, match="no room"):
        curator.measure(plan.strategy.blocks, plan.noise, plan.price, name="b", plan_hash="h", folder=tmp_path)
    assert value_fingerprint(first) == before
    assert [e.name for e in ledger.entries()] == ["a"]


def test_values_that_were_not_counted_are_never_released(plan: sf.Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a source that leaves out a batch; what memory held there would be published without noise."""
    stream = TensorCounts.stream

    def short(self: TensorCounts, sets: Any) -> Any:
        return itertools.islice(stream(self, sets), 2)

    monkeypatch.setattr(TensorCounts, "stream", short)
    with pytest.raises(NotWritten):
        sf.release(plan, sf.Histogram(X), ledger=None)


def test_only_whole_files_of_a_release_are_left_beside_a_document(tmp_path: Path) -> None:
    """Mutants: a slice stored as its whole file; files beside any document."""
    whole = spool.allocate_zeros(10, tmp_path / "values-0.npy", limit=0)
    whole[:] = np.arange(10)
    whole.flush()
    write_document(tmp_path / "slice", (whole[4:7],), beside=True)
    assert read_document(tmp_path / "slice", tuple, beside=True)[0].tolist() == [4, 5, 6]
    write_document(tmp_path / "whole", (whole,), beside=True)
    assert read_document(tmp_path / "whole", tuple, beside=True)[0].tolist() == list(range(10))
    with pytest.raises(InvalidInput, match="files beside"):
        read_document(tmp_path / "whole", tuple)
    write_document(tmp_path / "inside", (whole,))
    assert read_document(tmp_path / "inside", tuple)[0].tolist() == list(range(10))


def test_a_fingerprint_leaves_private_changes_alone(tmp_path: Path) -> None:
    """Mutant: pages of a private mapping given back, and with them what was written there."""
    np.save(tmp_path / "a.npy", np.ones(2000, dtype=np.int64))
    private = np.load(tmp_path / "a.npy", mmap_mode="c")
    private[:] = 5
    value_fingerprint((private,))
    assert set(private.tolist()) == {5}
