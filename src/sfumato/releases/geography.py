"""A release's projection down a tree of places: what it says of every node, and the counts that were settled.

A projection in parts stands in a folder of what is finished: one that was killed goes on from there. The folder has a
manifest, which says of which release and under which choices its parts are; `above.npz`, what was settled before any
part; and of every finished part its counts and, in whole numbers, its records in `microdata/`. Every file appears whole
or not at all, and bears the manifest's digest.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato._util.bundles import UNREADABLE, shorten
from sfumato._util.codec import value_fingerprint
from sfumato._util.display import Progress
from sfumato._util.documents import write_text_atomically
from sfumato._util.files import release_pages
from sfumato.domain import Domain
from sfumato.domain.predicates import compile_predicate
from sfumato.errors import InvalidInput, NotAnswerable, PlanError
from sfumato.operators import Block, Identity, LinearOperator
from sfumato.operators.base import FloatArray
from sfumato.postprocess.geography import Arrays, FamilyTally, LeafCounts, TreeParts, UpperNodes
from sfumato.postprocess.geography_cells import IntArray, LevelBounds, Sets, TableCells, level_limits
from sfumato.postprocess.geography_estimates import (
    FamilyEstimates,
    PlacedCounts,
    Readings,
    TreeEstimates,
    split_among_children,
)
from sfumato.postprocess.projection import Projection
from sfumato.releases.files import write_arrays
from sfumato.releases.modelled import records_of_places
from sfumato.strategies.geography import Spine, level_attribute_position, level_tables, read_levels
from sfumato.strategies.geography_tree import GroupTree, PlaceOrder
from sfumato.strategies.impossible_cells import Allowed
from sfumato.strategies.strategy import KnownGroups
from sfumato.workloads import Workload
from sfumato.workloads.reading import Section

if TYPE_CHECKING:
    from sfumato.releases.release import Release

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
        write_text_atomically(manifest, text)

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


MAX_CELLS = 2**16  # of a table within a unit: a family of thirty children is then 16 MB, and its columns as many
_MAX_SETS = 2**10  # of attributes beside the place: each costs a pass over a family's cells


@dataclass(frozen=True, eq=False, slots=True)
class PlaceLevels:
    """place: the attribute that is asked at levels; levels: their operators; axes: the others, as positions; sets:
    those that are asked of these, as axes of their table; possible: the cells of the table over all of these that
    can hold a record, None where all can."""

    place: int
    levels: tuple[LinearOperator, ...]
    axes: tuple[int, ...]
    sets: tuple[Sets, ...]
    possible: IntArray | None


def levels_asked(work: Workload) -> PlaceLevels | None:
    """What a workload of tables at the levels of one attribute asks; None for any other, and where it is too large."""
    place = level_attribute_position(work)
    if place is None:
        return None
    try:
        levels, asked = level_tables(work, place)
    except PlanError:
        return None
    domain = work.domain
    axes = tuple(sorted({i for _, s in asked for i in s}))
    sizes = [domain.shape[i] for i in axes]
    if not levels or 2 ** len(axes) > _MAX_SETS or math.prod(sizes) > MAX_CELLS:
        return None
    if any(domain.names[place] in tied.attributes for tied in domain.tied):
        # what cannot be in one unit and can in another may leave a family no way to add up
        return None
    mask = domain.possible([domain.names[i] for i in axes])
    possible = None if mask is None else np.flatnonzero(np.broadcast_to(mask, sizes))
    sets = tuple(dict.fromkeys(tuple(axes.index(i) for i in s) for _, s in asked))
    return PlaceLevels(place, levels, axes, sets, possible)


def declared_bounds(root: Section, work: Workload, public: Mapping[tuple[str, ...], Any]) -> dict[Any, Any]:
    """The floors and caps of a spec, as `Release.project` takes them: [[bounds]] with a level, a condition where they
    are of a set of cells, and `least`, `most`, each a number or one for each group.

    Raises SpecError for what is none, and where no table is within them and the public totals of groups.
    """
    out: dict[Any, Any] = {}
    entries = root.sections("bounds")
    for entry in entries:
        entry.allow("level", "where", "least", "most")
        entry.need("level", "it names the level whose groups are bounded")
        name, where = entry.text("level"), entry.text("where")
        if "least" not in entry and "most" not in entry:
            raise entry.refuse("give least, most, or both: a number or one for each group", "level")
        key = name if where is None else (name, where)
        if key in out:
            raise entry.refuse(f"the bounds of {name} are given twice", "level")
        least, most = (
            entry.numbers(k) if isinstance(entry.raw(k), list) else entry.number(k) for k in ("least", "most")
        )
        out[key] = (0 if least is None else least, math.inf if most is None else most)
        with entry.guard("level" if where is None else "where"):
            _check_bounds(work, {key: out[key]}, {})
    if entries:
        with entries[0].guard():
            _check_bounds(work, out, public)
    return out


def _check_bounds(work: Workload, bounds: Mapping[Any, Any], public: Mapping[tuple[str, ...], Any]) -> None:
    """Refuse bounds that no release of a workload could be projected within. public: totals of groups that are known,
    which are floors and caps too. Raises PlanError.
    """
    found = levels_asked(work)
    if found is None:
        raise PlanError("bounds are of groups of a tree; ask for tables at its levels, factors = {...: 'levels'}")
    own = read_bounds(work, found, bounds, integer=False)
    place = work.domain.names[found.place]
    places = PlaceOrder.of(read_levels(found.levels), work.domain.shape[found.place])
    names = [_level_of_codes(work.domain, codes, place) for codes in places.codes]
    rows = dict(own.rows)
    for names_of, counts in public.items():
        if len(names_of) == 1 and names_of[0] in names:
            level = names.index(names_of[0]) + 1
            known = np.asarray(counts, dtype=np.float64)
            held = rows.get(level, np.tile([0.0, np.inf] * 3, (len(places.order[level]), 1))).copy()
            if known.shape == (len(held),):
                held[:, 0], held[:, 1] = np.maximum(held[:, 0], known), np.minimum(held[:, 1], known)
            rows[level] = held
    level_limits(
        places,
        (),
        None,
        LevelBounds(rows, own.inside),
        found.possible,
        partial(group_label, work.domain, place, places),
    )


def _level_of_codes(domain: Domain, codes: IntArray, place: str) -> str | None:
    for name in (place, *domain.levels):
        if domain.owner(name) == place and np.array_equal(_groups_of_level(domain, name), codes):
            return name
    return None


def _groups_of_level(domain: Domain, name: str) -> IntArray:
    own = domain.grouping(name)
    return np.arange(domain.sizes([name])[0]) if own is None else own.groups


def read_bounds(work: Workload, found: PlaceLevels, bounds: Mapping[Any, Any], *, integer: bool) -> LevelBounds:
    """By the number of the level, as whole numbers where counts are `integer`. Raises PlanError for what is none."""
    domain, place = work.domain, work.domain.names[found.place]
    rows: dict[int, NDArray[np.float64]] = {}
    inside: NDArray[np.bool_] | None = None
    codes = read_levels(found.levels)
    for key, given in bounds.items():
        name, where = _split_bound_key(key)
        groups = _groups_of_level(domain, name) if name in domain and domain.owner(name) == place else None
        at = [] if groups is None else [i for i, c in enumerate(codes, 1) if np.array_equal(c, groups)]
        if not at:
            raise PlanError(f"bounds are of groups at the levels of {place} that were asked, not of {name!r}")
        of = name if where is None else f"{name} where {where}"
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise PlanError(
                f"bounds of {of} are a pair, the least and the most records: a number or one for each group"
            )
        count = found.levels[at[0] - 1].shape[0]
        low, high = (_read_bound_row(v, count, of, other=domain[name].has_other) for v in given)
        low = np.maximum(low, 0.0)
        if domain[name].has_other and np.ndim(given[0]) == 0:
            low[-1] = 0.0  # one floor is of the groups that were declared: it must not make people who are nowhere
        if integer:
            low, high = np.ceil(low), np.floor(high)
        column = 0
        if where is not None:
            held = _condition_cells(domain, found, where)
            inside = held if inside is None else inside
            column = 2 if np.array_equal(held, inside) else 4
            if column == 4 and not np.array_equal(~held, inside):
                raise PlanError(
                    f"bounds are of totals, of one set of cells, and of all others: {where!r} is a second set, and "
                    "floors and caps of two sets beside totals do not tell whether any table is left; give one of them"
                )
        own = rows.setdefault(at[0], np.tile([0.0, np.inf] * 3, (count, 1)))
        own[:, column] = np.maximum(own[:, column], low)
        own[:, column + 1] = np.minimum(own[:, column + 1], high)
    return LevelBounds(rows, inside)


def _read_bound_row(given: Any, count: int, of: str, *, other: bool) -> NDArray[np.float64]:
    """(count,) floors or caps, from one number or one for each group. Raises PlanError for anything else."""
    try:
        row = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        row = np.array(np.nan)
    if row.shape not in ((), (count,)) or np.isnan(row).any():
        last = ", '(other)' last" if other else ""
        raise PlanError(
            f"bounds of {of} are one number, or {count:,}: one for each group{last}; not {shorten(given)}. Where "
            "there is no floor give 0, and where there is no cap math.inf"
        )
    return np.broadcast_to(row, (count,))


def group_label(domain: Domain, place: str, places: PlaceOrder, level: int, number: int) -> str:
    """What people call a group of a tree: its level and its label. number: as the level numbers its groups."""
    name = _level_of_codes(domain, places.codes[level - 1], place) if level else None
    return f"group {number} of level {level}" if name is None else f"{name} {domain[name].labels[number]!r}"


def _split_bound_key(key: Any) -> tuple[str, str | None]:
    pair = key if isinstance(key, tuple) else (key, None)
    if len(pair) != 2 or not isinstance(pair[0], str):
        raise PlanError(f"bounds are by a level, or by a level and a condition, not by {key!r}")
    return pair[0], pair[1]


def _condition_cells(domain: Domain, found: PlaceLevels, text: str) -> NDArray[np.bool_]:
    """(cells,) which cells of the table within a unit hold a condition."""
    names = [domain.names[i] for i in found.axes]
    one = compile_predicate(domain, text)
    if not {*one.attributes} <= {*names}:
        raise PlanError(
            f"a bounded set of cells is said by what was asked within units, {', '.join(names) or 'nothing'}, not by "
            f"{text!r}"
        )
    # both in the order of the domain
    sizes = domain.sizes(names)
    spread = [n if a in one.attributes else 1 for a, n in zip(names, sizes, strict=True)]
    return np.ascontiguousarray(np.broadcast_to(one.mask.reshape(spread), sizes)).reshape(-1)


_MAX_LISTED = 10_000_000  # answers held beside the counts, as many as a release writes; beyond, they are read off these
_MAX_HELD = 2**26  # numbers of unprojected tables at the finest level that are held at once: 512 MB
_LEAST = 1e-6  # of a level's largest variance: what has less is as good as known, and rounding cannot tell


def project_down_tree(
    whole: Release,
    total: float | None,
    progress: Progress | None,
    *,
    integer: bool,
    folder: str | os.PathLike[str] | None = None,
    bounds: Mapping[Any, Any] | None = None,
) -> Projection:
    """The projection of a release down its tree.

    bounds: of the records of groups, by level, or by level and condition; folder: for its parts, where a killed one
    goes on.

    Raises PlanError where no levels were asked, InvalidInput for a folder of anything else.
    """
    work = whole.plan.workload
    found = levels_asked(work)
    if found is None:
        raise PlanError(
            "body='spine' is for tables of cells at the levels of one attribute, factors={...: 'levels'} in "
            f"sf.marginals, of at most {MAX_CELLS:,} cells within a unit, none impossible by place; take body='auto'"
        )
    known = [k for k in whole.plan.strategy.known if isinstance(k, KnownGroups)]
    total = float(known[0].counts.sum()) if known else total
    kept_to = read_bounds(work, found, bounds or {}, integer=integer)
    parts = TreeParts(
        _tree_input(whole, found, total, kept_to), found.sets, total, whole=integer, possible=found.possible
    )
    kept = None
    if folder is not None:
        save = _records_writer(work, found) if integer else None
        kept = PartFolder(folder, whole, parts, total, save, kept_to)
    with nullcontext() if kept is None else kept.working():
        leaves, tally = gather_leaves(parts, kept, progress)
    held = _placed_counts(work, found, leaves)
    answers = np.zeros(0)
    if len(work) <= _MAX_LISTED:
        answers = np.concatenate([held.answer(q.block) for q in work.blocks])
    return Projection(
        answers,
        held,
        tally.gap,
        True,
        math.sqrt(tally.moved),
        tally.sweeps,
        "spine",
        True,
        rounded=tally.rounded if integer else None,
        norm="families",
    )


def _tree_input(
    whole: Release, found: PlaceLevels, total: float | None, bounds: LevelBounds
) -> Readings | TreeEstimates:
    strategy = whole.plan.strategy
    # cells that cannot be are left out at the root, and so everywhere
    strategy = strategy.measured if isinstance(strategy, Allowed) else strategy
    if isinstance(strategy, Spine):
        if total is None and () not in strategy.precisions:
            raise NotAnswerable("nothing was measured that says how many records there are; give total=")
        # a level of public totals may lie between those that were asked
        rows = {_level_number(strategy.levels, found.levels[i - 1]): b for i, b in bounds.rows.items()}
        own = LevelBounds(rows, bounds.inside)
        domain = whole.plan.workload.domain
        called = partial(group_label, domain, domain.names[found.place], strategy.places)
        within = level_limits(strategy.places, strategy.totals, total, own, found.possible, called)
        return Readings(strategy, whole.measurement.values, whole.measurement.noise.variance, found.axes, within)
    return _AnsweredTables(whole, found, total, bounds)


def _level_number(levels: Sequence[LinearOperator], wanted: LinearOperator) -> int:
    return next(i for i, f in enumerate(levels, 1) if f.shape == wanted.shape)


def _placed_counts(work: Workload, found: PlaceLevels, leaves: LeafCounts) -> PlacedCounts:
    domain = work.domain
    names = tuple(domain.names[i] for i in found.axes)
    place = domain.names[found.place]
    sizes = domain.sizes(names)
    return PlacedCounts(
        place, domain.shape[found.place], found.levels, names, sizes, leaves.unit, leaves.cell, leaves.count
    )


def _records_writer(work: Workload, found: PlaceLevels) -> Callable[[LeafCounts, Path], None]:
    """What writes the records of a part."""

    def save(part: LeafCounts, path: Path) -> None:
        records_of_places(_placed_counts(work, found, part), work, None).save(path)

    return save


class _AnsweredTables:
    """By the unprojected answers to the tables of any strategy: every residual at the variance that it has there."""

    def __init__(self, whole: Release, found: PlaceLevels, total: float | None, bounds: LevelBounds) -> None:
        domain = whole.plan.workload.domain
        self.places = PlaceOrder.of(read_levels(found.levels), domain.shape[found.place])
        self.cells = TableCells(tuple(domain.shape[i] for i in found.axes))
        units = found.levels[-1].shape[0]
        if units * self.cells.size > _MAX_HELD:
            raise NotAnswerable(
                f"body='spine' would hold {units:,} units by {self.cells.size:,} cells at once; take body='local'"
            )
        self._whole, self._found = whole, found
        called = partial(group_label, domain, domain.names[found.place], self.places)
        within = level_limits(self.places, (), total, bounds, found.possible, called)
        self._limits, self.inside = () if within is None else within.levels, bounds.inside
        self._levels = [self._level(level) for level in range(len(found.levels) + 1)]

    @property
    def tree(self) -> GroupTree:
        return self.places.tree

    def _level(self, level: int) -> FamilyEstimates:
        """Of every node of a level, in the order of the tree."""
        nodes = len(self.places.order[level])
        every = [s for s in self.cells.sets if any(set(s) <= set(a) for a in self._found.sets)]
        tables: dict[Sets, FloatArray] = {}
        variances: dict[Sets, float] = {}
        for s in every:
            block = self._block(level, s)
            try:
                tables[s] = self._whole.answer_block(block).reshape(nodes, -1)
                variances[s] = float(self._whole.variances(block).mean())
            except NotAnswerable:
                continue
        wanted, weights = np.zeros((nodes, self.cells.size)), np.zeros(len(self.cells.sets))
        for j, s in enumerate(self.cells.sets):
            below = [b for b in variances if set(b) <= set(s)]
            if s not in variances or len(below) < 2 ** len(s):
                continue
            rest = {b: math.prod(self.cells.shape[i] for i in s if i not in b) for b in below}
            own = sum((-1) ** (len(s) - len(b)) * variances[b] / rest[b] ** 2 for b in below)
            room = math.prod(1 - 1 / self.cells.shape[i] for i in s)
            if room <= 0:
                continue
            outside = self.cells.size / math.prod(self.cells.shape[i] for i in s)
            spread = (n if i in s else 1 for i, n in enumerate(self.cells.shape))
            flat = np.broadcast_to(tables[s].reshape(nodes, *spread), (nodes, *self.cells.shape)) / outside
            wanted += self.cells.project([t == s for t in self.cells.sets], flat.reshape(nodes, -1))
            variance = max(own / room, _LEAST * max(variances.values()))
            weights[j] = outside / variance if variance > 0 else 0.0
        return FamilyEstimates(self._sorted(level, wanted), weights)

    def _block(self, level: int, axes: Sets) -> Block:
        domain = self._whole.plan.workload.domain
        own = [self._found.axes[i] for i in axes]
        groups = [(domain.names[self._found.place],)] * bool(level) + [(domain.names[i],) for i in own]
        factors: list[LinearOperator] = [self._found.levels[level - 1]] if level else []
        return Block(tuple(groups), (*factors, *(Identity(domain.shape[i]) for i in own)))

    def _sorted(self, level: int, rows: FloatArray) -> FloatArray:
        return self.places.sorted(level, rows)

    def root(self) -> FamilyEstimates:
        top = self._levels[0]
        return FamilyEstimates(top.wanted, top.weights, self._limits[0] if self._limits else None)

    def family(self, level: int, parent: int, counts: FloatArray) -> FamilyEstimates:
        first, last = self.tree.run(level, parent)
        own = self._levels[level]
        means = own.wanted[first:last]
        known = own.weights > 0
        short = self.cells.project(known, (counts - means.sum(axis=0))[None])
        limits = self._limits[level] if self._limits else None
        held = None if limits is None else limits[first:last]
        return FamilyEstimates(
            split_among_children(self.cells, means + short / (last - first), counts, known), own.weights, held
        )
