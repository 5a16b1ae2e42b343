"""Releases whose noisy values are too many for memory: they live in files, a few tables at a time in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sfumato as sf
from sfumato import spool
from sfumato.errors import InvalidInput

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
    loaded = sf.load_release(tmp_path / "r")
    assert (loaded.answers == release.answers).all()
    _check(loaded)
    loaded.save(tmp_path / "copy")
    assert (sf.load_release(tmp_path / "copy").answers == release.answers).all()
    names = {p.name for p in (tmp_path / "r").iterdir()}
    assert {"values-2.npy", "values-3.npy", "release.sfumato", "release.json"} <= names


def test_values_in_nameless_files(plan: sf.Plan, little_memory: None, tmp_path: Path) -> None:
    """Without a folder nothing is left behind; saving later writes the files."""
    release = sf.release(plan, sf.Histogram(X), ledger=None)
    assert isinstance(release.measurement.values[3], np.memmap)
    _check(release)
    release.save(tmp_path / "later")
    assert (sf.load_release(tmp_path / "later").answers == release.answers).all()


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
        sf.load_release(tmp_path / "r")


def test_a_room_keeps_what_is_written_when_its_memory_is_given_back(tmp_path: Path) -> None:
    for path in (None, tmp_path / "values-0.npy"):
        array = spool.room(1000, path, limit=10)
        array[:] = np.arange(1000)
        spool.forget(array)
        assert array.tolist() == list(range(1000))
    spool.forget(np.zeros(3))
    spool.forget(None)
