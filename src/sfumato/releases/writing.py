"""The bulky files of a release: answers as Parquet, tables as CSV, noisy values as plain arrays."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.ground.documents import is_beside, write_atomically
from sfumato.ground.frames import safe_text
from sfumato.ground.scratch import sync_folder
from sfumato.ground.spool import forget, room
from sfumato.operators import Family
from sfumato.plans.predictions import expand
from sfumato.releases.tables import heading
from sfumato.workloads import RECORDS, Workload
from sfumato.workloads.levels import table_names

if TYPE_CHECKING:
    from sfumato.releases.core import Release
    from sfumato.releases.tables import Table

__all__ = [
    "cell_columns",
    "measured_arrays",
    "safe_labels",
    "settled",
    "table_columns",
    "write_arrays",
    "write_csvs",
    "write_parquet",
    "write_parts",
]

_MAX_FILES = 5_000  # tables of their own in a folder: more, a listing of it is of no use
_MAX_PART_ROWS = 1_000_000  # of a file for one part: about what a spreadsheet opens
_LONGEST_NAME = 60  # of a file: with its folder below what all systems take
_COPIED = 2**22  # numbers at once, 32 MB; any such size would do


def _connect() -> Any:
    import duckdb  # noqa: PLC0415  (only where files are written)

    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", "threads": "1"})
    # it would be drawn on stdout, also into a file or a pipe
    # where it is off already, a notebook without widgets refuses to be told so
    if connection.execute("SELECT current_setting('enable_progress_bar')").fetchall() == [(True,)]:
        connection.execute("SET enable_progress_bar = false")
    return connection


def _quoted(path: Path) -> str:
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


def settled(release: Release, path: Path) -> Release:
    """The release with the values that are too many for memory in files of the folder."""
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
        with _connect() as connection:
            connection.register("answers", columns)
            connection.execute(
                f"COPY (SELECT {shown} FROM answers) TO {_quoted(partial)} "
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
    with _connect() as connection:
        for names in tables:
            stem = ".".join(safe[n] for n in names)
            name = stem if stem not in used else f"{stem}.{len(used)}"
            used.add(name)
            connection.register("cells", columns(names))
            target = _quoted(folder / f"{name}.csv")
            connection.execute(f"COPY (SELECT {shown} FROM cells) TO {target} (FORMAT csv, HEADER)")
            connection.unregister("cells")
    _sync(folder)


def _sync(folder: Path) -> None:
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
    with _connect() as connection:
        for part, work in workload.parts.items():
            asked = tuple(q for q in work.blocks if q.unit != RECORDS or not table_names(domain, q.block))
            if not asked or sum(q.rows for q in asked) > _MAX_PART_ROWS:
                continue
            folder.mkdir(exist_ok=True)
            name = _file_name(part)[:_LONGEST_NAME]
            if name.casefold() in used:
                name = f"{name}.{len(used)}"
            used.add(name.casefold())
            connection.register("queries", _queries(release, Workload(domain, asked)))
            target = _quoted(folder / f"{name}.csv")
            connection.execute(f"COPY (SELECT {shown} FROM queries) TO {target} (FORMAT csv, HEADER)")
            connection.unregister("queries")
    if folder.exists():
        _sync(folder)


def cell_columns(table: Table) -> dict[str, Any]:
    """The texts of every cell of a table, one column per attribute."""
    shape = table.values.shape
    columns: dict[str, Any] = {}
    for axis, (name, labels) in enumerate(zip(table.attributes, table.labels, strict=True)):
        texts = np.array([safe_text(t) for t in labels], dtype=object)
        along = texts.reshape(tuple(-1 if i == axis else 1 for i in range(len(shape))))
        columns[heading(safe_text(name))] = np.broadcast_to(along, shape).reshape(-1)
    return columns


def table_columns(table: Table, raw: Table) -> dict[str, Any]:
    """A table beside the unprojected one, rounded to well below the noise."""
    columns = cell_columns(table)
    digits = _digits(raw.standard_errors)
    shown: dict[str, Any] = {"answer": table.values}
    if table.standard_errors is None:
        shown["unprojected"] = raw.values
    shown |= {"standard_error": raw.standard_errors, "low": table.low, "high": table.high}
    for key, values in shown.items():
        columns[key] = np.round(np.ascontiguousarray(values), digits).reshape(-1)
    return columns


def _queries(release: Release, work: Workload) -> dict[str, Any]:
    """Every query of a workload with its answer, rounded to well below the noise."""
    found, blocks = release.ask(work), work.blocks
    units = np.array([safe_text(q.unit) for q in blocks], dtype=object)
    columns: dict[str, Any] = {
        "query": safe_labels(list(found["label"])),
        "unit": np.repeat(units, [q.rows for q in blocks]),
    }
    errors = np.concatenate([expand(np.sqrt(release.variances(q.block)), q) for q in blocks])
    shown: dict[str, Any] = {"answer": found["answer"]}
    if release.projection is not None:
        shown["unprojected"] = np.concatenate([release.raw.answer_block(q.block) for q in blocks])
    shown |= {"standard_error": errors, "low": found["low"], "high": found["high"]}
    digits = _digits(errors)
    return columns | {key: np.round(np.asarray(values, dtype=np.float64), digits) for key, values in shown.items()}


def _digits(errors: Any) -> int:
    """Decimals that keep a ten-thousandth of the smallest standard error; more would only fill the disk."""
    smallest = float(errors[errors > 0].min(initial=1e12))
    return int(np.clip(4 - np.floor(np.log10(smallest)), 0, 15)) if smallest < 1e12 else 6
