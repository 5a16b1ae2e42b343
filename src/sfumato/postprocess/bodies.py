"""The bodies, one function each, and the function that chooses among them. [NTZ13, DNT15]"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sfumato._util.display import Progress, show_progress
from sfumato.errors import InvalidInput
from sfumato.operators import Prefix
from sfumato.operators.base import FloatArray
from sfumato.postprocess.cones import project_onto_hull, project_onto_simplex, whitening_map
from sfumato.postprocess.consistency import Zeros, project_onto_local
from sfumato.postprocess.correlation import nearest_correlation
from sfumato.postprocess.denoising import AdaptedTables, denoise_pairs
from sfumato.postprocess.oracles import find_oracle, starting_records
from sfumato.postprocess.parities import parity_answers, parity_matrix
from sfumato.postprocess.possible import CellCounts, PairMoments, RecordCounts, TableCounts
from sfumato.postprocess.projection import Projection, Task, joint_attributes, possible_operator, read_task
from sfumato.postprocess.records import fit_records
from sfumato.workloads import Workload

BODIES = ("auto", "simplex", "isotonic", "hull", "cone", "local", "sdp", "sdp+local", "exact", "mixtures")
"""What `body=` accepts."""
_HULL_CELLS = 2**20  # 8 MB a vector; "auto" takes the hull up to here, by name it goes on to _MAX_CELLS
_HULL_WORK = 2**22  # cells times tables: what one step of the search reads and writes
_HULL_TABLES = 200  # each is gone through once more in every step, at Python's cost
_MAX_CELLS = 2**24  # 128 MB a vector of cells, of which a search holds a handful
_UNAWARE = ("sdp", "sdp+local")  # refused where cells are declared impossible
_ALIKE = 1e-9  # relative: variances that differ by rounding alone are one
_STARTED = 2_000  # records that a search begins with
_ROUNDS = 25  # of a search: more fit the noise rather than the table


def project(
    answers: ArrayLike,
    work: Workload,
    *,
    body: str = "auto",
    covariance: Any = None,
    total: float | None = None,
    space: str | None = None,
    progress: Progress | None = None,
) -> Projection:
    """The nearest answers to noisy ones that a table could have given.

    Cells that the domain declares impossible are 0 in it.

    Args:
        answers: (k,) noisy answers to `work`.
        work: The queries.
        body: What answers must lie in: "simplex" (the queries are cells of one table), "isotonic" (prefix counts),
            "hull" (answers of nonnegative cells), "cone" (the same without a total), "local" (marginal tables that
            agree on their common attributes), "sdp" and "sdp+local" (pairs of attributes with two cells), "exact"
            (weighted records), or "auto". "mixtures" is not a body: tables of one to three attributes with the noise of
            residuals are denoised by models that are fitted to them. That usually comes nearer to the truth than any
            body where noise is large; no more is promised.
        covariance: (k,) variances or a (k, k) matrix of the noise, which weights the norm (generalised least squares).
            Without it all answers weigh the same.
        total: The known number of records (1 for normalised answers). None where it is not known: then any total is
            allowed, never a guessed one.
        space: Which norm is meant: "answers", all alike, or "measurements", by the covariance. It follows from
            `covariance`, unless given.
        progress: Called with the number of steps done and the relative gap; None shows it in notebooks alone.

    Returns:
        The projected answers, the counts that have them, and what is proved of their distance from the nearest ones.

    Raises:
        InvalidInput: There is no such body, it does not take these queries, or an argument is not allowed.
        WorkloadError: The answers or the covariance are no arrays of numbers.

    Guarantee:
        Post-processing: it costs no privacy. In the projected norm the result is never farther from the truth than
        `answers` are, where the truth lies in the body.

    Source:
        [NTZ13], [DNT15]

    >>> work = sf.identity(sf.Domain({"age": 3}))
    >>> found = sf.project([3.0, -1.0, 4.0], work, total=6)
    >>> found
    <Projection onto 'simplex': 3 answers, moved 1.225, gap 0>
    >>> found.answers
    array([2.5, 0. , 3.5])
    >>> cdf = sf.prefix(sf.Domain({"age": 3}), "age")
    >>> sf.project([2.0, 1.0, 6.0], cdf).answers
    array([1.5, 1.5, 6. ])
    """
    with show_progress("projecting", progress) as told:
        task = read_task(answers, work, covariance, total, space, told)
        if body not in BODIES:
            raise InvalidInput(f"body must be one of {', '.join(BODIES)}, not {body!r}")
        chosen = _choose_body(task) if body == "auto" else body
        if task.possible is not None and chosen in _UNAWARE:
            raise InvalidInput(
                f"body={chosen!r} is about moments, which do not know of cells that are declared impossible; take "
                "'local', 'hull', 'cone' or 'exact'"
            )
        if task.residuals is not None and chosen not in ("local", "mixtures"):
            raise InvalidInput(f"the noise of residuals weights body='local' and 'mixtures' alone, not {chosen!r}")
        found = _SOLVERS[chosen](task)
    # how far models move answers is stated in the plain norm
    return found if covariance is None or chosen == "mixtures" else replace(found, norm="noise")


def _choose_body(task: Task) -> str:
    """The body that fits best, given how the answers are weighted."""
    if task.residuals is not None:
        return "local"
    simple = task.covariance is None or task.covariance.ndim == 1
    best = automatic_body(task.work, task.total)
    if best == "isotonic" and task.possible is not None:
        return "hull"
    return best if simple or best not in ("simplex", "isotonic") else "hull"


def automatic_body(work: Workload, total: float | None, *, tables: bool = False) -> str:
    """The body that "auto" takes: the exact hull while its cells can be listed, else the smallest larger one.

    `tables` says that the whole tables which the queries lie in can be asked instead of them.
    """
    if _is_single_table(work):
        return "simplex"
    if _is_prefix_workload(work):
        return "isotonic"
    names = joint_attributes(work)
    cells = math.prod(work.domain.sizes(names))
    if cells <= _HULL_CELLS and work.tables <= _HULL_TABLES and cells * work.tables <= _HULL_WORK:
        return "hull"
    if all(i.is_marginal for i in work.items):
        small = all(work.domain[a].size == 2 for a in names) and work.domain.possible(names) is None
        pairs = max(i.order for i in work.items) <= 2
        return "sdp" if small and pairs and total else "local"
    if tables:
        return "local"
    if cells <= _MAX_CELLS:
        return "hull"
    raise InvalidInput(
        f"no body takes these queries over {cells:,} cells by itself: whole marginal tables take body='local'; "
        "body='exact' fits weighted records to any queries"
    )


def _is_single_table(work: Workload) -> bool:
    """Whether the queries are the cells of one marginal table."""
    return work.tables == 1 and work.items[0].is_marginal


def _is_prefix_workload(work: Workload) -> bool:
    """Whether the queries are all prefix counts of one attribute."""
    if work.tables != 1:
        return False
    factors = work.blocks[0].block.factors
    return len(factors) == 1 and isinstance(factors[0], Prefix)


def _project_simplex(task: Task) -> Projection:
    if not _is_single_table(task.work):
        raise InvalidInput("body='simplex' takes the cells of one table; for other queries take body='hull'")
    if task.covariance is not None and task.covariance.ndim != 1:
        return _project_hull(task)
    white = whitening_map(task.covariance, len(task.answers))
    found = project_onto_simplex(task.answers, task.total, None if white is None else 1 / white**2, task.possible)
    query = task.work.blocks[0]
    values = found.reshape(task.work.domain.sizes(query.attributes))
    away = (found - task.answers) * (1.0 if white is None else white)
    moved = float(np.linalg.norm(away))
    return Projection(found, CellCounts(query.attributes, values), 0.0, True, moved, 1, "simplex", True)


def _project_isotonic(task: Task) -> Projection:
    from scipy.optimize import isotonic_regression  # noqa: PLC0415  (heavy)

    if not _is_prefix_workload(task.work):
        raise InvalidInput("body='isotonic' takes sf.prefix of one attribute; for other queries take body='hull'")
    if task.possible is not None or (task.covariance is not None and task.covariance.ndim != 1):
        return _project_hull(task)
    white = whitening_map(task.covariance, len(task.answers))
    weights = np.ones(len(task.answers)) if white is None else white**2
    free = slice(None) if task.total is None else slice(0, -1)
    rising = (
        np.empty(0)
        if len(task.answers[free]) == 0
        else isotonic_regression(task.answers[free], weights=weights[free]).x
    )
    # the least squares within bounds are those without, clipped
    found = np.clip(rising, 0.0, task.total)
    if task.total is not None:
        found = np.append(found, task.total)
    cells = np.diff(found, prepend=0.0)
    moved = math.sqrt(float(weights @ (found - task.answers) ** 2))
    return Projection(found, CellCounts(task.names, cells), 0.0, True, moved, 1, "isotonic", True)


def _project_hull(task: Task) -> Projection:
    if task.cells > _MAX_CELLS:
        raise InvalidInput(
            f"the queries' attributes have {task.cells:,} cells, above the limit of {_MAX_CELLS:,} for the hull; "
            "take body='local' for marginal tables, 'sdp' for pairs of two-valued attributes, or 'exact'"
        )
    white = whitening_map(task.covariance, len(task.answers))
    operator, kept = possible_operator(task.work)
    done = project_onto_hull(operator, task.answers, task.total, white, progress=task.progress)
    away = done.fitted - task.answers
    if white is not None:
        away = white * away if white.ndim == 1 else white @ away
    cells = done.cells
    if kept is not None:
        cells = np.zeros(task.cells)
        cells[kept] = done.cells
    held = CellCounts(task.names, cells.reshape(task.work.domain.sizes(task.names)))
    name = "cone" if task.total is None else "hull"
    return Projection(done.fitted, held, done.gap, True, float(np.linalg.norm(away)), done.iterations, name, True)


def _project_cone(task: Task) -> Projection:
    if task.total is not None:
        raise InvalidInput("body='cone' allows any total; leave total= out, or take body='hull'")
    return _project_hull(task)


def _project_records(task: Task) -> Projection:
    if task.covariance is not None and task.covariance.ndim != 1:
        raise InvalidInput("body='exact' weights answers by their variances; give covariance= of shape (k,)")
    white = whitening_map(task.covariance, len(task.answers))
    names = task.names
    sizes = task.work.domain.sizes(names)
    blocks = [(tuple(names.index(a) for a in q.attributes), q.block.operator) for q in task.work.blocks]
    oracle = find_oracle(sizes, [axes for axes, _ in blocks], moves := task.work.domain.moves(names))
    lower = 0.0
    if not oracle.exact and white is None and task.possible is None and all(q.is_marginal for q in task.work.blocks):
        # tables that merely agree are a larger body: what is at least as far from it is as far from this one
        outer = _project_local(task)
        lower = max(0.0, outer.moved - math.sqrt(outer.gap)) ** 2
    done = fit_records(
        blocks,
        sizes,
        task.answers,
        task.total,
        oracle,
        starting_records(sizes, _attribute_shares(task), _STARTED if not oracle.exact else 16, moves),
        white=white,
        lower=lower,
        tolerance=1e-7 if oracle.exact else 1e-3,
        rounds=500 if oracle.exact else _ROUNDS,
        progress=task.progress,
    )
    away = (done.fitted - task.answers) * (1.0 if white is None else white)
    held = RecordCounts(names, sizes, done.codes, done.weights)
    return Projection(done.fitted, held, done.gap, True, float(np.linalg.norm(away)), done.iterations, "exact", True)


def _attribute_shares(task: Task) -> list[FloatArray | None]:
    """Shares of the cells of every attribute, from the tables that are asked."""
    sums: dict[str, FloatArray] = {}
    start = 0
    for q in task.work.blocks:
        given = task.answers[start : start + q.rows]
        start += q.rows
        if not q.is_marginal:
            continue
        table = given.reshape(task.work.domain.sizes(q.attributes))
        for i, a in enumerate(q.attributes):
            one = table.sum(axis=tuple(j for j in range(table.ndim) if j != i))
            sums[a] = sums.get(a, 0.0) + one
    found = [np.maximum(sums[a], 0.0) if a in sums else None for a in task.names]
    return [None if s is None or s.sum() <= 0 else s / s.sum() for s in found]


def _project_local(task: Task) -> Projection:
    queries = task.work.blocks
    if not all(q.is_marginal for q in queries):
        raise InvalidInput("body='local' takes whole marginal tables (sf.marginals); for other queries take 'exact'")
    names, sizes = task.names, task.work.domain.sizes(task.names)
    shapes = [task.work.domain.sizes(q.attributes) for q in queries]
    ends = np.cumsum([0, *(q.rows for q in queries)])
    places = list(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True))
    spread: Any = task.residuals or 1.0
    if task.covariance is not None:
        if task.covariance.ndim != 1:
            raise InvalidInput("body='local' weights tables by their variances; give covariance= of shape (k,)")
        whitening_map(task.covariance, len(task.answers))
        if any(np.ptp(task.covariance[a:b]) > _ALIKE * task.covariance[a] for a, b in places):
            raise InvalidInput("body='local' needs variances that are alike within each table; for others take 'exact'")
        spread = np.array([task.covariance[a] for a, _ in places])
    values = [task.answers[a:b].reshape(s) for (a, b), s in zip(places, shapes, strict=True)]
    sets = [tuple(names.index(a) for a in q.attributes) for q in queries]
    done = project_onto_local(
        sizes, sets, values, spread, task.total, progress=task.progress, zeros=Zeros.of(task.work.domain, names)
    )
    held = TableCounts(tuple(q.attributes for q in queries), tuple(done.tables))
    fitted = np.concatenate([t.reshape(-1) for t in done.tables])
    whole = len(queries) == 1
    return Projection(fitted, held, done.gap, done.certified, done.moved, done.iterations, "local", whole)


def _project_mixtures(task: Task) -> Projection:
    queries = task.work.blocks
    if task.residuals is None or not all(q.is_marginal and len(q.attributes) <= 3 for q in queries):
        raise InvalidInput(
            "body='mixtures' takes tables of one to three attributes with covariance= the noise of their residuals, as "
            "release.project has it for marginal tables; for others take body='local'"
        )
    names, told = task.names, task.progress
    ends = np.cumsum([q.rows for q in queries])[:-1]
    values = [
        v.reshape(task.work.domain.sizes(q.attributes))
        for v, q in zip(np.split(task.answers, ends), queries, strict=True)
    ]
    sets = [tuple(names.index(a) for a in q.attributes) for q in queries]
    step = None if told is None else functools.partial(_report_step, told, itertools.count(1))
    zeros = Zeros.of(task.work.domain, names)
    done = denoise_pairs(
        task.work.domain.sizes(names), sets, values, task.residuals, task.total, progress=step, zeros=zeros
    )
    held = AdaptedTables(names, done)
    fitted = np.concatenate([held.table(q.attributes).reshape(-1) for q in queries])
    moved = float(np.linalg.norm(fitted - task.answers))
    return Projection(fitted, held, math.inf, False, moved, len(done.models), "mixtures", False)


def _report_step(told: Progress, steps: Iterator[int], stage: str, share: float) -> None:
    """Report one more step of denoising; how far it is from its end is not known as a gap."""
    del stage, share
    told(next(steps), math.nan)


def _project_sdp(task: Task, *, pairwise: bool = False) -> Projection:
    if not task.total:
        raise InvalidInput("body='sdp' needs total=, the known number of records; without one take body='local'")
    if task.covariance is not None and task.covariance.ndim != 1:
        raise InvalidInput("body='sdp' weights tables by their variances; give covariance= of shape (k,)")
    matrix, weights = parity_matrix(task.work, task.answers, task.total, task.covariance)
    done = nearest_correlation(matrix, weights, local=pairwise, progress=task.progress)
    held = PairMoments(task.work.domain.names, done.matrix * task.total)
    fitted = parity_answers(task.work, done.matrix, task.total)
    body = "sdp+local" if pairwise else "sdp"
    return Projection(fitted, held, done.gap, True, done.moved, done.iterations, body, False)


_SOLVERS: dict[str, Callable[[Task], Projection]] = {
    "simplex": _project_simplex,
    "isotonic": _project_isotonic,
    "hull": _project_hull,
    "cone": _project_cone,
    "exact": _project_records,
    "local": _project_local,
    "mixtures": _project_mixtures,
    "sdp": _project_sdp,
    "sdp+local": functools.partial(_project_sdp, pairwise=True),
}
