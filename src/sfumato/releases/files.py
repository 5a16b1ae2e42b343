"""A release on disk: JSON for people and programs, Parquet and CSV for answers, plain arrays for measurements."""

from __future__ import annotations

import hashlib
import json
import math
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InvalidInput
from sfumato.ground.codec import fingerprint
from sfumato.ground.documents import is_beside, read_document, sync_folder, write_atomically, write_document
from sfumato.ground.scratch import Place
from sfumato.ground.spool import forget, room
from sfumato.releases.writing import write_answers, write_measurements, write_parts, write_tables

if TYPE_CHECKING:
    from sfumato.estimate.projection import Projection
    from sfumato.releases.core import Provenance, Release
    from sfumato.releases.modelled import ModelRelease
    from sfumato.workloads import Workload

__all__ = [
    "BUNDLE",
    "MAX_LISTED",
    "Draft",
    "check_folder",
    "describe",
    "describe_as",
    "load_release",
    "result_hash",
    "save_release",
    "seal",
    "write_release",
]

MAX_LISTED = 10_000_000
BUNDLE = "release.sfumato"
_COPIED = 2**22


def check_folder(folder: str | os.PathLike[str]) -> Path:
    """The folder a release can be written to; refused where it exists with other content, or is a symlink."""
    try:
        path = Path(folder)
        if ".." in path.parts or not path.name:
            raise InvalidInput(f"{path}: an output folder has a name of its own and must not climb with '..'")
        if path.is_symlink() or any(p.is_symlink() for p in path.parents if not p.is_absolute()):
            raise InvalidInput(f"{path} is a symbolic link; name the folder itself")
        if path.is_mount() or (path.exists() and (not path.is_dir() or any(path.iterdir()))):
            raise InvalidInput(f"{path} exists and is not an empty folder, or is a mounted one; choose another name")
    except InvalidInput:
        raise
    except (OSError, TypeError, ValueError) as error:
        raise InvalidInput(f"a release cannot be written to {folder!r}: {error}") from error
    return path


class Draft:
    """A folder beside the wanted one, which takes that name once it is complete or goes without a trace.

    Making it proves that the place can be written to, before a budget is spent on what goes there. Two
    drafts of one name are two folders; the second to be published is refused by the file system. What a killed
    process left goes when the next draft of that name is made.
    Used in a `with` statement, at whose end it is published or gone. Raises InvalidInput where no release
    could be written.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = check_folder(folder)
        self._made = [p for p in self.folder.parents if not p.exists()]
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self._place = Place(self.folder)
        except (OSError, ValueError) as error:
            self._leave()
            raise InvalidInput(f"{self.folder} cannot be written: {error}") from error
        self.partial = self._place.path

    def publish(self) -> None:
        """Give the folder its name, durably. Raises OSError where the name was taken in the meantime."""
        sync_folder(self.partial)
        self.partial.rename(self.folder)
        sync_folder(self.folder.parent)

    def __enter__(self) -> Draft:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def discard(self) -> None:
        """Remove what was not published, and the folders made for it."""
        self._place.remove()
        self._leave()

    def _leave(self) -> None:
        for parent in self._made:
            with suppress(OSError):  # not empty: something was published there
                parent.rmdir()


class Described(Protocol):
    """A plan as far as any release states it."""

    @property
    def workload(self) -> Workload: ...

    def facts(self) -> dict[str, Any]: ...


def describe(release: Release) -> dict[str, Any]:
    """The public facts of a release as plain JSON values."""
    projected = {} if release.projection is None else {"projection": _projected(release.projection)}
    doubts = {"cautions": [c.facts() for c in release.cautions]}
    processing = {"post_processing": _processing(release), **projected, **doubts}
    return describe_as(release.plan, release.provenance, processing)


def describe_as(plan: Described, p: Provenance, processing: dict[str, Any]) -> dict[str, Any]:
    """The public facts of a release of any kind of plan; `processing` says what was done with what came out."""
    k, m = plan.workload.shape
    known = plan.facts()
    known["mechanism"] |= {
        "sampler": "exact integer law from the operating system's generator; no seed",
        "trust_model": "central: the custodian holds the table",
    }
    return {
        "format": "sfumato release 1",
        "name": p.name,
        "created": p.created,
        **known,
        "workload": {"queries": k, "cells": str(m), "parts": {n: len(w) for n, w in plan.workload.parts.items()}},
        "ledger": {
            "one_shot": p.one_shot,
            "id": p.ledger_id,
            "sequence": p.sequence,
            "anchor": p.anchor,
        },
        "table": p.table,
        "snapshot": p.snapshot,
        **processing,
        "versions": dict(p.versions),
    }


def _processing(release: Release) -> str:
    """What was done with the measured values, in words."""
    unbiased = release.plan.bias_records is None
    linear = "least squares" if unbiased else "linear"
    if release.projection is None:
        return f"{linear}; answers are {'unbiased and ' if unbiased else ''}not rounded or clipped"
    return (
        f"{linear}, then projected {release.projection.describe()}; errors stated are those of the unprojected "
        "answers, which stand beside the projected ones; intervals hold for these"
    )


def _projected(found: Projection) -> dict[str, Any]:
    """What a projection did and what is proved of it, as plain JSON values."""
    return {
        "body": found.body,
        "norm": found.norm,
        "moved": found.moved,
        "gap": found.gap if math.isfinite(found.gap) else None,
        "certified": found.certified,
        "realisable": found.realisable,
        "rounded": found.rounded,
        "iterations": found.iterations,
        "rungs": [{"name": r.name, "queries": r.queries, "moved": r.moved, "gap": r.gap} for r in found.rungs],
    }


def result_hash(release: Release | ModelRelease) -> str:
    """SHA-256 of the measured values, or of all that came out of several looks."""
    return fingerprint(release.measurement)


def save_release(release: Release, folder: str | os.PathLike[str]) -> None:
    """Write a release: release.sfumato (all of it), release.json, answers.parquet, tables/ and parts/ with CSV files,
    measurements.npz.

    The folder appears at once and complete, or not at all. Above ten million answers only the
    measurements and the JSON are written. Raises InvalidInput for a folder that cannot be written.
    """
    with Draft(folder) as draft:
        write_release(release, draft.partial)
        draft.publish()


def write_release(release: Release, path: Path) -> None:
    """Write the files of a release into an empty folder; `release.json`, which names them, comes last."""
    facts = describe(release)
    release = _settled(release, path)
    write_document(path / BUNDLE, release, beside=True)
    write_measurements(release, path / "measurements.npz")
    if len(release.workload) <= MAX_LISTED:
        write_answers(release, path / "answers.parquet", facts)
        write_tables(release, path / "tables")
        write_parts(release, path / "parts")
    seal(path, facts)


def seal(path: Path, facts: dict[str, Any]) -> None:
    """Write release.json, which names the files of a finished release and their hashes."""
    facts["files"] = {
        str(f.relative_to(path)): _sha256(f) for f in sorted(path.rglob("*")) if f.is_file() and f.parent == path
    }
    text = json.dumps(facts, indent=2, ensure_ascii=True) + "\n"
    write_atomically(path / "release.json", lambda partial: _write_text(partial, text))


def _settled(release: Release, path: Path) -> Release:
    """The same release with the values that are too many for memory in files of the folder."""
    values: list[NDArray[np.int64]] = []
    for i, given in enumerate(release.measurement.values):
        if not isinstance(given, np.memmap) or is_beside(given, path) is not None:
            values.append(given)
            continue
        copy = room(len(given), path / f"values-{i}.npy", limit=0)
        for start in range(0, len(given), _COPIED):
            copy[start : start + _COPIED] = given[start : start + _COPIED]
            forget(copy)
            forget(given)
        values.append(copy)
    for array in values:
        if isinstance(array, np.memmap):
            array.flush()
    return replace(release, measurement=replace(release.measurement, values=tuple(values)))


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def load_release(folder: str | os.PathLike[str]) -> Release | ModelRelease:
    """Read a release that was saved; refused where files are missing or changed."""
    try:
        path = Path(folder)
        facts = json.loads((path / "release.json").read_text(encoding="utf-8"))
        needed = {BUNDLE, *(f.name for f in path.glob("values-*.npy"))}
        expected = {path / name: facts["files"][name] for name in needed}
        changed = [f for f, digest in expected.items() if _sha256(f) != digest]
    except (AttributeError, OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{folder} holds no finished release: {error}") from error
    if changed:
        raise InvalidInput(f"{changed[0]} was changed after it was written; its hash does not match release.json")
    # the release's own class, which this module is below of, is found by its stored name
    stored = read_document(path / BUNDLE, object, beside=True)
    if type(stored).__name__ not in ("Release", "ModelRelease"):
        raise InvalidInput(f"{path / BUNDLE} holds no release")
    return stored
