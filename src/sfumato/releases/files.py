"""A release on disk: JSON for people and programs, Parquet and CSV for answers, plain arrays for measurements."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato._util.documents import (
    file_name_beside,
    read_document,
    write_atomically,
    write_document,
    write_text_atomically,
)
from sfumato._util.files import PAID, ScratchFolder, abandoned_folders, allocate_zeros, release_pages, sync_folder
from sfumato._util.frames import safe_text
from sfumato.domain import Domain
from sfumato.errors import InvalidInput
from sfumato.operators import Family
from sfumato.plans.predictions import expand_to_queries
from sfumato.releases.ends import column_heading
from sfumato.workloads import RECORDS, Workload
from sfumato.workloads.levels import table_names

if TYPE_CHECKING:
    from sfumato.releases.modelled import ModelRelease
    from sfumato.releases.release import Release
    from sfumato.releases.released import ReleaseBase, WorkloadRelease
    from sfumato.releases.tables import Table

_MAX_FILES = 5_000  # tables of their own in a folder: more, a listing of it is of no use
_MAX_PART_ROWS = 1_000_000  # of a file for one part: about what a spreadsheet opens
_LONGEST_NAME = 60  # of a file: with its folder below what all systems take
_COPIED = 2**22  # numbers at once, 32 MB; any such size would do


def _connect_duckdb() -> Any:
    import duckdb  # noqa: PLC0415  (only where files are written)

    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", "threads": "1"})
    # it would be drawn on stdout, also into a file or a pipe
    # where it is off already, a notebook without widgets refuses to be told so
    if connection.execute("SELECT current_setting('enable_progress_bar')").fetchall() == [(True,)]:
        connection.execute("SET enable_progress_bar = false")
    return connection


def _sql_quote(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def measured_arrays(release: Release) -> dict[str, Any]:
    """The integer noisy values with the attributes of every block and the variance of their noise, publishable.

    Values that are too many for memory are in files values-i.npy instead.
    """
    arrays: dict[str, Any] = {"noise_variance": np.array(release.measurement.noise.variance)}
    arrays |= release.plan.strategy.legend
    for i, (block, values) in enumerate(zip(release.measurement.blocks, release.measurement.values, strict=True)):
        names = [block.set_names(j) for j in range(len(block))] if isinstance(block, Family) else [block.attributes]
        arrays[f"blocks_{i}"] = np.array(["*".join(n) or "total" for n in names], dtype=np.str_)
        if not isinstance(values, np.memmap):
            arrays[f"values_{i}"] = values
    total = [] if release.measurement.total is None else [release.measurement.total]
    return {"public_total": np.array(total), **arrays}


def store_mapped_values(release: Release, path: Path) -> Release:
    """The release with the values that are too many for memory in files of the folder."""
    values: list[NDArray[np.int64]] = []
    for i, given in enumerate(release.measurement.values):
        if not isinstance(given, np.memmap) or file_name_beside(given, path) is not None:
            values.append(given)
            continue
        copy = allocate_zeros(len(given), path / f"values-{i}.npy", limit=0)
        for start in range(0, len(given), _COPIED):
            copy[start : start + _COPIED] = given[start : start + _COPIED]
            release_pages(copy)
            release_pages(given)
        values.append(copy)
    for array in values:
        if isinstance(array, np.memmap):
            array.flush()
    return replace(release, measurement=replace(release.measurement, values=tuple(values)))


def write_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """Named arrays in one .npz file."""

    def write(partial: Path) -> None:
        with partial.open("wb") as handle:
            np.savez(handle, **arrays)

    write_atomically(path, write)


def write_parquet(columns: dict[str, Any], path: Path, facts: dict[str, Any], shown: str = "*") -> None:
    """Columns as one Parquet file, with the facts in its key-value metadata."""
    note = json.dumps(facts, ensure_ascii=True).replace("'", "''")

    def write(partial: Path) -> None:
        with _connect_duckdb() as connection:
            connection.register("answers", columns)
            connection.execute(
                f"COPY (SELECT {shown} FROM answers) TO {_sql_quote(partial)} "
                f"(FORMAT parquet, COMPRESSION zstd, KV_METADATA {{sfumato: '{note}'}})"
            )

    write_atomically(path, write)


def safe_labels(labels: list[str]) -> Any:
    """All labels, defused: whether a text is dangerous depends on its start and on unprintable characters."""
    heads = {t[:1] for t in labels}
    if "".join(labels).isprintable() and all(safe_text(h + "a") == h + "a" for h in heads):
        return np.array(labels, dtype=object)
    return np.array([safe_text(t) for t in labels], dtype=object)


def write_csvs(
    domain: Domain,
    workload: Workload,
    folder: Path,
    columns: Callable[[tuple[str, ...]], dict[str, Any]],
    shown: str = "*",
) -> None:
    """One CSV of these columns per marginal table of a workload, among at most 5,000."""
    if workload.tables > _MAX_FILES:
        return
    tables = [names for q in workload.blocks if q.unit == RECORDS and (names := table_names(domain, q.block))]
    if not tables:
        return
    folder.mkdir(exist_ok=True)
    safe = {n: _file_name(n) for n in (*domain.names, *domain.levels)}
    used: set[str] = set()
    with _connect_duckdb() as connection:
        for names in tables:
            stem = ".".join(safe[n] for n in names)
            name = stem if stem not in used else f"{stem}.{len(used)}"
            used.add(name)
            connection.register("cells", columns(names))
            target = _sql_quote(folder / f"{name}.csv")
            connection.execute(f"COPY (SELECT {shown} FROM cells) TO {target} (FORMAT csv, HEADER)")
            connection.unregister("cells")
    _sync_files(folder)


def _sync_files(folder: Path) -> None:
    """Have the files of a folder on stable storage: the release counts as stored only when release.json follows."""
    if hasattr(os, "sync"):
        os.sync()  # all at once, so that little is left to wait for one by one
    for path in folder.iterdir():
        with path.open("rb+") as handle:
            os.fsync(handle.fileno())
    sync_folder(folder)


def _file_name(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in text)


def write_parts(release: Release, shown: str, folder: Path) -> None:
    """parts/: one CSV per part of what it asks besides marginal tables: distributions, sums, single queries, the total.

    One row per query. A part of more than a million such queries is in answers.parquet alone, as are all where there
    are more than 5,000 tables.
    """
    domain, workload = release.plan.workload.domain, release.workload
    if workload.tables > _MAX_FILES:
        return
    used: set[str] = set()
    with _connect_duckdb() as connection:
        for part, work in workload.parts.items():
            asked = tuple(q for q in work.blocks if q.unit != RECORDS or not table_names(domain, q.block))
            if not asked or sum(q.rows for q in asked) > _MAX_PART_ROWS:
                continue
            folder.mkdir(exist_ok=True)
            name = _file_name(part)[:_LONGEST_NAME]
            if name.casefold() in used:
                name = f"{name}.{len(used)}"
            used.add(name.casefold())
            connection.register("queries", _query_columns(release, Workload(domain, asked)))
            target = _sql_quote(folder / f"{name}.csv")
            connection.execute(f"COPY (SELECT {shown} FROM queries) TO {target} (FORMAT csv, HEADER)")
            connection.unregister("queries")
    if folder.exists():
        _sync_files(folder)


def cell_columns(table: Table) -> dict[str, Any]:
    """The texts of every cell of a table, one column per attribute."""
    shape = table.values.shape
    columns: dict[str, Any] = {}
    for axis, (name, labels) in enumerate(zip(table.attributes, table.labels, strict=True)):
        texts = np.array([safe_text(t) for t in labels], dtype=object)
        along = texts.reshape(tuple(-1 if i == axis else 1 for i in range(len(shape))))
        columns[column_heading(safe_text(name))] = np.broadcast_to(along, shape).reshape(-1)
    return columns


def table_columns(table: Table, raw: Table) -> dict[str, Any]:
    """A table beside the unprojected one, rounded to well below the noise."""
    columns = cell_columns(table)
    digits = _decimals_of_errors(raw.standard_errors)
    shown: dict[str, Any] = {"answer": table.values}
    if table.standard_errors is None:
        shown["unprojected"] = raw.values
    shown |= {"standard_error": raw.standard_errors, "low": table.low, "high": table.high}
    for key, values in shown.items():
        columns[key] = np.round(np.ascontiguousarray(values), digits).reshape(-1)
    return columns


def _query_columns(release: Release, work: Workload) -> dict[str, Any]:
    """Every query of a workload with its answer, rounded to well below the noise."""
    found, blocks = release.ask(work), work.blocks
    units = np.array([safe_text(q.unit) for q in blocks], dtype=object)
    columns: dict[str, Any] = {
        "query": safe_labels(list(found["label"])),
        "unit": np.repeat(units, [q.rows for q in blocks]),
    }
    errors = np.concatenate([expand_to_queries(np.sqrt(release.variances(q.block)), q) for q in blocks])
    shown: dict[str, Any] = {"answer": found["answer"]}
    if release.projection is not None:
        shown["unprojected"] = np.concatenate([release.raw.answer_block(q.block) for q in blocks])
    shown |= {"standard_error": errors, "low": found["low"], "high": found["high"]}
    digits = _decimals_of_errors(errors)
    return columns | {key: np.round(np.asarray(values, dtype=np.float64), digits) for key, values in shown.items()}


def _decimals_of_errors(errors: Any) -> int:
    """Decimals that keep a ten-thousandth of the smallest standard error; more would only fill the disk."""
    smallest = float(errors[errors > 0].min(initial=1e12))
    return int(np.clip(4 - np.floor(np.log10(smallest)), 0, 15)) if smallest < 1e12 else 6


_FACTS = 100_000  # queries of a release of which all that release.json says is worked out again when it is loaded
_WORDS = (
    *("mechanism", "error", "post_processing", "cautions", "other", "cut_persons"),
    *("projection", "model_gap", "table"),
)
"""What other versions said in other words, or did not say. All else binds: privacy, hashes, the ledger's place."""
_LATER = frozenset({"error.any_noise_bound", "error.serves", "other"})
"""What files of the first days of this version lack: they have some of its words and not all."""
MAX_LISTED = 10_000_000  # answers in one file: with their labels a gigabyte in memory
BUNDLE = "release.sfumato"


def check_folder(folder: str | os.PathLike[str]) -> Path:
    """The folder a release can be written to; refused where it exists with other content, or is a symlink."""
    with _output_path(folder, "folder") as path:
        if path.is_symlink() or any(p.is_symlink() for p in path.parents if not p.is_absolute()):
            raise InvalidInput(f"{path} is a symbolic link; name the folder itself")
        if path.is_mount() or (path.exists() and (not path.is_dir() or any(path.iterdir()))):
            raise InvalidInput(f"{path} exists and is not an empty folder, or is a mounted one; choose another name")
    return path


@contextmanager
def _output_path(given: str | os.PathLike[str], what: str) -> Generator[Path]:
    """The path of an output to look at. Raises InvalidInput for one that climbs, or that cannot be looked at."""
    try:
        path = Path(given)
        if ".." in path.parts or not path.name:
            raise InvalidInput(f"{path}: an output {what} has a name of its own and must not climb with '..'")
        yield path
    except InvalidInput:
        raise
    except (OSError, TypeError, ValueError) as error:
        raise InvalidInput(f"a release cannot be written to {given!r}: {error}") from error


class Draft:
    """A folder beside the wanted one, which takes that name once it is complete or goes without a trace.

    Making it proves that the place can be written to, before a budget is spent on what goes there. Two
    drafts of one name are two folders; the second to be published is refused by the file system. What a killed
    process left goes when the next draft of that name is made; of one that is `paid` for by a ledger, only what holds
    no release yet. Used in a `with` statement, at whose end it is published or gone, or lies there to be finished.
    Raises InvalidInput where no release could be written.
    """

    def __init__(self, folder: str | os.PathLike[str], *, paid: bool = False) -> None:
        self.folder, self._paid = check_folder(folder), paid
        self._made = [p for p in self.folder.parents if not p.exists()]
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self._place = _place_beside(self.folder, BUNDLE, paid)
        except (OSError, ValueError) as error:
            self._leave()
            raise InvalidInput(f"{self.folder} cannot be written: {error}") from error
        self.partial = self._place.path

    def keep(self, release: WorkloadRelease) -> None:
        """Write a release to it, and publish it."""
        write_release(release, self.partial)
        self.publish()

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
        """Remove what was not published, and the folders made for it; but a release that was paid for stays."""
        _keep_or_remove(self._place, BUNDLE, self._paid)
        self._leave()

    def _leave(self) -> None:
        for parent in self._made:
            with suppress(OSError):  # not empty: something was published there
                parent.rmdir()


class ReleaseFile:
    """A single file for a release, refused before a budget is spent on what goes there unless it can be made."""

    partial = None

    def __init__(self, path: str | os.PathLike[str], *, paid: bool = False) -> None:
        self.path, self._paid = check_file(path), paid
        try:
            exists = self.path.exists()
            self._place = _place_beside(self.path, self.path.name, paid)
        except (OSError, ValueError) as error:
            raise InvalidInput(f"{self.path} cannot be written: {error}; its folder must exist") from error
        if exists:
            self._place.remove()
            raise InvalidInput(f"{self.path} exists; choose another name")

    def __enter__(self) -> ReleaseFile:
        return self

    def __exit__(self, *_: object) -> None:
        """A file appears complete or not at all; what was paid for lies there to be finished."""
        _keep_or_remove(self._place, self.path.name, self._paid)

    def keep(self, release: ReleaseBase) -> None:
        """Write a release to it."""
        made = self._place.path / self.path.name
        release.save(made)
        made.replace(self.path)
        sync_folder(self.path.parent)


def _place_beside(target: Path, name: str, paid: bool) -> ScratchFolder:
    """A place beside a target."""
    if not paid:
        return ScratchFolder(target)
    sweep_leftovers(target, name)
    return ScratchFolder(target, ending=PAID)


def sweep_leftovers(target: Path, name: str) -> None:
    """Take away what was left beside a target of paid releases and holds no whole file of that name."""
    with abandoned_folders(target, PAID) as places:
        for path in places:
            if not _complete_files(path, name):
                shutil.rmtree(path, ignore_errors=True)


def _keep_or_remove(place: ScratchFolder, name: str, paid: bool) -> None:
    if paid and _complete_files(place.path, name):
        place.release()
    else:
        place.remove()


def _complete_files(place: Path, name: str) -> list[Path]:
    """The files of that name in a place, under the name of their own or of a draft, that came to their end."""
    return [f for f in sorted(place.rglob(name)) if f.is_file() and zipfile.is_zipfile(f)]


@contextmanager
def unfinished_releases(target: Path, name: str) -> Generator[dict[Path, Path]]:
    """What is left beside a target of releases that were paid for: the files of that name, each with its place."""
    with abandoned_folders(target, PAID) as places:
        yield {file: place for place in places for file in _complete_files(place, name)}


def check_file(path: str | os.PathLike[str]) -> Path:
    """The file a release can be written to. Raises InvalidInput for a link, a folder, or a path that climbs."""
    with _output_path(path, "file") as place:
        if place.is_symlink() or place.is_dir():
            raise InvalidInput(f"{place} is a symbolic link or a folder; name a file")
    return place


def save_release(release: WorkloadRelease, folder: str | os.PathLike[str]) -> None:
    """Write a release to a folder; see `WorkloadRelease.save`."""
    with Draft(folder) as draft:
        draft.keep(release)


@dataclass(frozen=True, slots=True)
class Contents:
    """What the folder of a release holds: the release as it is stored there, arrays of all that came out, and answers.

    `columns` gives those of answers.parquet, `cells` those of a marginal table's file, of both of which `shown` says in
    SQL what is written; `parts` writes what is no marginal table.
    """

    stored: WorkloadRelease
    arrays: dict[str, Any]
    columns: Callable[[], dict[str, Any]]
    cells: Callable[[tuple[str, ...]], dict[str, Any]]
    shown: str = "*"
    parts: Callable[[Path], None] | None = None


def write_release(release: WorkloadRelease, path: Path) -> None:
    """Write the files of a release into an empty folder; `release.json`, which names them, comes last."""
    facts, held = release.facts(), release.contents(path)
    write_document(path / BUNDLE, held.stored, beside=True)
    write_arrays(path / "measurements.npz", held.arrays)
    work = held.stored.workload
    if len(work) <= MAX_LISTED:
        write_parquet(held.columns(), path / "answers.parquet", facts, held.shown)
        write_csvs(work.domain, work, path / "tables", held.cells, held.shown)
        if held.parts is not None:
            held.parts(path / "parts")
    _write_release_json(path, facts)


def _write_release_json(path: Path, facts: dict[str, Any]) -> None:
    """Write release.json, which names the files of a finished release and their hashes."""
    facts["files"] = {
        str(f.relative_to(path)): _sha256_of_file(f)
        for f in sorted(path.rglob("*"))
        if f.is_file() and f.parent == path
    }
    text = json.dumps(facts, indent=2, ensure_ascii=True) + "\n"
    write_text_atomically(path / "release.json", text)


def _sha256_of_file(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def load_release(folder: str | os.PathLike[str]) -> Release | ModelRelease:
    """Read a release that was saved; refused where files are missing or changed."""
    try:
        path = Path(folder)
        facts = json.loads((path / "release.json").read_text(encoding="utf-8"))
        needed = {BUNDLE, *(f.name for f in path.glob("values-*.npy"))}
        expected = {path / name: facts["files"][name] for name in needed}
        changed = [f for f, digest in expected.items() if _sha256_of_file(f) != digest]
    except (AttributeError, OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{folder} holds no finished release: {error}") from error
    if changed:
        raise InvalidInput(f"{changed[0]} was changed after it was written; its hash does not match release.json")
    stored = read_bundle(path / BUNDLE)
    if len(stored.plan.workload) > _FACTS:  # errors of very many queries take minutes: what binds the plan is compared
        if facts["hashes"]["plan"] != stored.plan.fingerprint:
            raise InvalidInput(f"release.json of {path} is of another plan")
        return stored
    check_facts(path / "release.json", facts, stored.facts())
    return stored


def read_bundle(path: Path) -> Release | ModelRelease:
    """The release that a file of a folder is, whatever else there is. Raises InvalidInput."""
    # the release's own class, which this module is below of, is found by its stored name
    stored = read_document(path, object, beside=True)
    if type(stored).__name__ not in ("Release", "ModelRelease"):
        raise InvalidInput(f"{path} holds no release")
    return stored


def check_facts(path: Path, said: Any, facts: dict[str, Any]) -> None:
    """Refuse a release.json that says something else than the release, apart from words that versions changed."""
    if not isinstance(said, dict):
        raise InvalidInput(f"{path.name} of {path.parent} says nothing of the release")
    lacking, same = _missing_keys(said, facts), facts["versions"].get("sfumato") == metadata.version("sfumato")
    free = () if same and (not lacking or lacking - _LATER) else _WORDS
    said = _with_present_bound(said, facts)
    for key in facts.keys() | said.keys() - {"files"}:
        if key not in free and not _equal_json(said.get(key), facts.get(key)):
            raise InvalidInput(f"{path.name} of {path.parent} says something else of {key} than the release")


def _with_present_bound(said: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """With the bound for all laws of noise that is proved today, where less was proved when the file was written."""
    error, today = said.get("error"), facts.get("error")  # a description's file has none
    if not isinstance(error, dict) or not isinstance(today, dict):
        return said
    now = today.get("any_noise_bound")
    if not isinstance(now, float):
        return said
    before = error.get("any_noise_bound")
    older = isinstance(before, float) and 0 < before < now
    return said | {"error": error | {"any_noise_bound": now}} if older else said


def _missing_keys(said: object, facts: object, place: str = "") -> set[str]:
    """The names of what is said today and not there."""
    if not isinstance(said, dict) or not isinstance(facts, dict):
        return set()
    deeper = (_missing_keys(said[key], facts[key], f"{place}{key}.") for key in facts if key in said)
    return {place + key for key in facts if key not in said}.union(*deeper)


def _equal_json(a: object, b: object) -> bool:
    """Whether two JSON values are the same, numbers that were computed to a millionth."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal_json(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_equal_json, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 1e-6 * max(abs(a), abs(b), 1e-9)
    return type(a) is type(b) and a == b
