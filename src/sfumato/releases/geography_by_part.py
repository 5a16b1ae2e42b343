"""A projection down a tree in parts, in a folder of what is finished: one that was killed goes on from there.

The folder has a manifest, which says of which release and under which choices its parts are; `above.npz`, what was
settled before any part; and of every finished part its counts and, in whole numbers, its records in `microdata/`. Every
file appears whole or not at all, and bears the manifest's digest.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato._util.bundles import UNREADABLE
from sfumato._util.codec import value_fingerprint
from sfumato._util.display import Progress
from sfumato._util.documents import write_atomically
from sfumato._util.files import release_pages
from sfumato.errors import InvalidInput
from sfumato.postprocess.geography import FamilyTally
from sfumato.postprocess.geography_cells import LevelBounds
from sfumato.postprocess.geography_parts import Arrays, LeafCounts, TreeParts, UpperNodes
from sfumato.releases.files import write_arrays

if TYPE_CHECKING:
    from sfumato.releases.release import Release

__all__ = ["PartFolder", "gather_leaves", "hold_folder_lock"]


try:
    import fcntl
except ImportError:  # no POSIX: folders are not locked
    fcntl = None


_MANIFEST, _ABOVE = "manifest.json", "above.npz"
_LOOKED = 2**8  # of the values of every block: another release's noise differs in nearly all, so few would do
_STATED = 2  # how the folder is laid out


class PartFolder:
    """A folder for the parts of one projection, new or with some of them.

    save: what writes the records of a part to a file, None where no records are written.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        release: Release,
        parts: TreeParts,
        total: float | None,
        save: Callable[[LeafCounts, Path], None] | None,
        bounds: LevelBounds,
    ) -> None:
        self._path, self._save = Path(folder), save
        facts: dict[str, Any] = {
            "parts": len(parts.runs),
            "layout": _STATED,
            "release": _release_digest(release),
            "name": release.provenance.name,
            "total": total,
            **({"bounds": value_fingerprint((dict(bounds.rows), bounds.inside))} if bounds.rows else {}),
            "integer": parts.whole,
            "level": parts.level,
            "runs": parts.runs,
        }
        text = json.dumps(facts, sort_keys=True) + "\n"
        self._own = np.frombuffer(hashlib.sha256(text.encode()).digest(), dtype=np.uint8)
        self._text = text

    @contextmanager
    def working(self) -> Generator[None]:
        """For the time of a block the folder is there and this projection's alone; a process that dies gives it up.

        Raises InvalidInput where the folder cannot be written, holds anything else, or another projection works in it.
        """
        refusal = f"{self._path} cannot keep the parts of a projection"
        with ExitStack() as held:
            try:
                self._path.mkdir(parents=True, exist_ok=True)
                held.enter_context(hold_folder_lock(self._path))
                self._begin(self._text)
            except BlockingIOError:
                raise InvalidInput(
                    f"{self._path} is at work: another projection writes its parts there; wait for its end, or choose "
                    "another folder"
                ) from None
            except (OSError, ValueError) as error:
                raise InvalidInput(f"{refusal}: {error}") from error
            yield

    def _begin(self, text: str) -> None:
        path, manifest = self._path, self._path / _MANIFEST
        if manifest.is_file():
            if manifest.read_text(encoding="utf-8") != text:
                raise InvalidInput(
                    f"{path} holds parts of another projection, of another release or with another total=, bounds= or "
                    "integer=; choose another folder"
                )
            return
        if any(p for p in path.iterdir() if not p.name.startswith(".")):
            raise InvalidInput(f"{path} exists and holds no parts of a projection; choose another folder")
        if self._save is not None:
            (path / "microdata").mkdir(exist_ok=True)
        write_atomically(manifest, functools.partial(_write_plain_text, text))

    def above(self, make: Callable[[], UpperNodes]) -> UpperNodes:
        """What is settled before any part: as it was, or made and kept."""
        held = self._read(_ABOVE)
        if held is not None:
            return UpperNodes.of(held)
        made = make()
        self._write(_ABOVE, made.arrays())
        return made

    def part(self, number: int, make: Callable[[], LeafCounts]) -> LeafCounts:
        """A part: as it was, or made and kept."""
        name, records = f"part-{number:05}.npz", self._path / "microdata" / f"part-{number:05}.parquet"
        held = self._read(name)
        if held is not None and (self._save is None or records.is_file()):
            return LeafCounts.of(held)
        made = make()
        if self._save is not None:
            records.unlink(missing_ok=True)
            self._save(made, records)
        # the part's own file comes last: where it is, all of it is
        self._write(name, made.arrays())
        return made

    def _write(self, name: str, arrays: Arrays) -> None:
        write_arrays(self._path / name, {**arrays, "of": self._own})

    def _read(self, name: str) -> Arrays | None:
        """None for what is not there, is damaged, or belongs to another projection."""
        try:
            with (self._path / name).open("rb") as handle, np.load(handle, allow_pickle=False) as found:
                held = {k: found[k] for k in found.files}
        except UNREADABLE:
            return None
        return held if np.array_equal(held.pop("of", np.zeros(0)), self._own) else None


@contextmanager
def hold_folder_lock(path: Path) -> Generator[None]:
    """Hold a folder's lock for the time of a block; the kernel gives it up when the process dies, however it dies.

    A file system that locks no folders has nothing held. Raises BlockingIOError where another block holds it, of this
    process or of another.
    """
    if fcntl is None:
        yield
        return
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if isinstance(error, BlockingIOError):
                raise
        yield
    finally:
        os.close(folder)


def _write_plain_text(text: str, path: Path) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def gather_leaves(
    parts: TreeParts, kept: PartFolder | None, progress: Progress | None
) -> tuple[LeafCounts, FamilyTally]:
    """All leaves of a tree, and of all families that were settled."""

    def make_above() -> UpperNodes:
        return parts.above(progress)

    above = make_above() if kept is None else kept.above(make_above)
    tally, found = above.tally, list[LeafCounts]()
    for number in range(len(parts.runs)):

        def make(number: int = number, tally: FamilyTally = tally) -> LeafCounts:
            return parts.part(number, above, tally, progress)

        own = make() if kept is None else kept.part(number, make)
        tally = tally.plus(own.tally)
        found.append(own)
    unit, cell, count = (np.concatenate([getattr(p, name) for p in found]) for name in ("unit", "cell", "count"))
    return LeafCounts(unit, cell, count, tally), tally


def _release_digest(release: Release) -> str:
    """Tells releases apart: the plan, and some of the values of every block, whose noise no other release has."""
    digest = hashlib.sha256(f"{release.plan.fingerprint}:{release.measurement.total}".encode())
    for values in release.measurement.values:
        some = values[:: max(1, len(values) // _LOOKED)]
        digest.update(f"{len(values)}:".encode() + np.ascontiguousarray(some).tobytes())
        release_pages(values)
    return digest.hexdigest()
