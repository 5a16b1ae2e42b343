"""The factorization mechanism: certified optimal dense strategies, their Kronecker products, and stacks of them.

The matrix mechanism [LHR10] with the best strategy. [ENU20, NTZ13, MMHM18]
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sfumato._util.display import Progress
from sfumato.domain import Domain
from sfumato.errors import PlanError
from sfumato.operators import Identity, LinearOperator, Stack, Total
from sfumato.operators.base import FloatArray, single_thread
from sfumato.privacy.unit import Neighbours
from sfumato.strategies import descent, direct, merged_planning
from sfumato.strategies.any_noise import least_error_alone
from sfumato.strategies.dense_blocks import Queries
from sfumato.strategies.dense_dual import optimality_title, pair_bound
from sfumato.strategies.dense_largest import LargestErrorOptimum, optimize_largest, optimize_largest_rows
from sfumato.strategies.dense_optimal import PureStrategy, optimize_dense, optimize_pure, rotate_to_least_l1
from sfumato.strategies.design import Design, Problem
from sfumato.strategies.factors import (
    BIAS_BITS,
    Cells,
    StrategyFactor,
    TotalOnly,
    basis_coefficients,
    quantise,
    rounding_bias,
    row_basis,
)
from sfumato.strategies.product import Product
from sfumato.strategies.stacked import FINE, StackedPiece, column_price, joined_attributes, share_design, weighted_error
from sfumato.strategies.trees import is_ordered
from sfumato.workloads import QueryBlock
from sfumato.workloads.core import block_on_domain

# cells: the certified optimum works on a dense Gram matrix of 32 MB, n^3 operations a step
MAX_DENSE = 2_048
# likewise of ordered queries, one matrix of 128 MB; beyond, buffers are within 2 % of the bound (docs/factorization.md)
MAX_DENSE_ORDERED = 4_096
_TOLERANCE, _TOLERANCE_OF_MANY = 1e-7, 1e-6  # gaps at which a search ends; of many cells a step more takes seconds
MAX_LISTED = 4_096  # joint cells whose distinct columns are searched at once, not some of them after others
MAX_LISTED_ROWS = 2**22  # entries of queries that are written out: 32 MB
MAX_FAMILIES = 24  # tables, each a factorization of its own
MAX_LARGEST = 2**30  # operations of one search for the largest of dense queries
MAX_IMPLICIT = 512  # cells up to which very many ranges take seconds
MAX_REAL = 4  # factors of real coefficients whose rounded product still fits the lattice
_PURE_ROUNDS = 5  # each is a whole search; the best of all is kept, and no optimum is claimed
_BITS = 24  # of an entry, shared by the factors of a product: rounding moves errors by less than is shown
_BASIS_BITS = 28  # finer over an integer basis, which holds the span exactly whatever is rounded
_FINER_BITS = 18  # of a coefficient, beside those of the largest number of a basis that it multiplies

BY_SYMMETRY, OVER_COLUMNS = "the optimum by symmetry", "the optimum over distinct columns of all queries"

_Family = tuple[tuple[str, ...], list[int]]  # attributes, and the numbers of the blocks answered from their table


@dataclass(frozen=True, slots=True)
class _SolvedFactor:
    """One factor before rounding: an exact integer factor, or real coefficients over an integer basis.

    `gap` says how far from its optimum it is at most, infinity where that is not known.
    `bound` is on the root of the sum of the weighted variances, or of the largest where that is the objective;
    `weights` are then those of the queries whose weighted mean it bounds.
    """

    factor: StrategyFactor | None
    coefficients: FloatArray | None
    basis: LinearOperator | None
    bound: float
    bias: float
    weights: FloatArray | None = None
    gap: float = 0.0

    def at(self, scale: float) -> StrategyFactor:
        if self.factor is not None:
            return self.factor
        assert self.coefficients is not None
        return quantise(self.coefficients, self.basis, scale)


def columns_first(problem: Problem) -> bool:
    """Whether queries join attributes, so that the optimum over few columns is nearer than over all joint cells."""
    cells = math.prod(problem.sizes[a] for a in {a for q in problem.workload.blocks for a in q.attributes})
    return bool(joined_attributes(problem.workload)) and (problem.unit.total_is_public or cells <= MAX_LISTED)


def several(problem: Problem) -> bool:
    """Whether no table by itself holds all queries, or it is a product of too many factors to be rounded one by one."""
    blocks = problem.workload.blocks
    return (len(blocks) == 1 and _count_real_factors(blocks[0]) > MAX_REAL) or len(families(problem)) != 1


def near_alone(problem: Problem) -> bool:
    """Whether the optimum over columns is only near it, as parts may be, too: of many queries and a known total."""
    rows = sum(q.rows for q in problem.workload.blocks)
    return problem.unit.total_is_public and rows > merged_planning.MAX_PAIRED


def asks_columns(problem: Problem) -> bool:
    """Whether no table holds all queries, or one that is too large.

    Of marginal tables alone residuals are the optimum.
    """
    tables = families(problem)
    if len(tables) == 1:
        (names, _), few_rows = tables[0], not problem.unit.total_is_public
        if math.prod(problem.sizes[a] for a in names) <= MAX_DENSE or (
            few_rows and direct.asks_few_queries(problem, names, problem.workload.blocks)
        ):
            return False
    return not problem.is_marginal


def over_columns(problem: Problem, progress: Progress | None = None) -> Design:
    """The optimum over the distinct columns of all queries together. Raises PlanError where it does not apply."""
    found = merged_planning.design_merged(problem, progress)
    if problem.noise != "laplace":
        return found
    notes = () if found.bound is None else (laplace_note(problem, found.bound),)
    return replace(found, bound=None, notes=notes)


def families_apart(problem: Problem, progress: Progress | None = None) -> list[Design]:
    """The optimum for each maximal table, the budget split between them. Raises PlanError where there is none."""
    return _design_separate_families(problem, families(problem), progress)


def _design_separate_families(problem: Problem, tables: list[_Family], progress: Progress | None) -> list[Design]:
    """The optimum of each family, the budget shared between them; of several also one product."""
    power = problem.power
    pieces: list[StackedPiece] = []
    bounds: list[float | None] = []
    if not 0 < len(tables) <= MAX_FAMILIES:
        raise PlanError("too many tables to optimise one by one; marginals serve them together")
    for names, members in tables:
        blocks = [problem.workload.blocks[i] for i in members]
        groups, solved = _solve_family(problem, names, blocks, progress)
        piece, bound = _family_piece(problem, groups, solved, members if len(tables) > 1 else [], power)
        pieces.append(piece)
        if problem.unit.total_is_public:
            bound = _pair_bound(problem, names, blocks, solved[0].weights if len(solved) == 1 else None)
        bounds.append(bound)
    proved = [b for b in bounds if b is not None]
    bound = None
    if len(proved) == len(bounds) and (
        problem.unit.neighbours is Neighbours.ADD_REMOVE or problem.unit.total_is_public
    ):
        bound = max(proved) if problem.largest else math.hypot(*proved)
    title = "optimal factorizations"
    design = share_design("factorization", title, pieces, power, bound, largest=problem.largest)
    if problem.noise == "laplace" and bound is not None:
        design = replace(design, bound=None, notes=(laplace_note(problem, bound),))
    if problem.noise == "laplace" and problem.largest:
        # neither is proved the best: what has the least mean may have the least largest error too
        return [design, *_design_separate_families(replace(problem, objective="cells"), tables, progress)]
    # tables that share attributes may be better answered from one product than from strategies of their own
    shared = descent.design_by_descent(problem) if len(tables) > 1 else None
    return [design] if shared is None else [design, shared]


def laplace_note(problem: Problem, bound: float) -> str:
    """What the bound for unit L2 sensitivity proves for Laplace noise.

    Columns and their differences are no longer in L2 than in L1. So a strategy of L1 sensitivity at most
    epsilon times the noise's scale has R B = W only with ||R||_F at least `bound` over that; and from a scale of
    2^20 on the variance of the noise is 2 scale^2, up to 1e-13.

    For noise of any law see `any_noise`.
    """
    epsilon, root = float(problem.budget.laplace_epsilon), problem.unit.rows_per_person * bound * (1 - 1e-6)
    if not problem.largest:
        root /= math.sqrt(problem.total_weight)
    any_law = 0.0 if problem.known else root * least_error_alone(epsilon)
    laplace = math.sqrt(2.0) / epsilon * root
    said = f", and with noise of any law at this epsilon none less than {any_law:.6g}" if any_law > laplace / 10 else ""
    return (
        f"no strategy with independent Laplace noise on this lattice and unbiased linear reconstruction errs less than "
        f"{laplace:.6g} ({'largest' if problem.largest else 'weighted root mean square'}): "
        f"the L2 optimum, seldom near for L1{said}"
    )


def families(problem: Problem) -> list[_Family]:
    """Blocks by maximal attribute set; where that table is too large and joins several blocks, each its own.

    None where there are too many.
    """
    blocks = problem.workload.blocks
    sets = {frozenset(q.attributes) for q in blocks}
    longest = max(map(len, sets))
    # none of the largest sets lies in another, so each would be optimised by itself
    if sum(len(s) == longest for s in sets) > MAX_FAMILIES:
        return []
    maximal = [s for s in sets if not any(s < t for t in sets)]
    order = problem.workload.domain.ordered
    found: dict[tuple[str, ...], list[int]] = {}
    for i, q in enumerate(blocks):
        home = min((s for s in maximal if set(q.attributes) <= s), key=lambda s: (len(s), order(s)))
        found.setdefault(order(home), []).append(i)
    out: list[tuple[tuple[str, ...], list[int]]] = []
    for names, members in found.items():
        cells = math.prod(problem.sizes[a] for a in names)
        if (
            len(members) == 1
            or cells <= MAX_DENSE
            or direct.asks_few_queries(problem, names, [blocks[i] for i in members])
        ):
            out.append((names, members))
        else:
            out += [(order(blocks[i].attributes), [i]) for i in members]
    return sorted(out)


def _count_real_factors(query: QueryBlock) -> int:
    """Factors of a block whose optimum has real coefficients."""
    return sum(not isinstance(f, Identity | Total) for f in query.block.factors)


def _solve_family(
    problem: Problem, names: tuple[str, ...], blocks: list[QueryBlock], progress: Progress | None
) -> tuple[tuple[tuple[str, ...], ...], list[_SolvedFactor]]:
    """The groups of attributes and the optimum of each."""
    if len(blocks) == 1 and (
        _count_real_factors(blocks[0]) <= MAX_REAL or math.prod(problem.sizes[a] for a in names) > MAX_DENSE
    ):
        query = blocks[0].block
        weight = math.sqrt(problem.objective_weight(blocks[0]))
        if not query.factors:
            return ((),), [_SolvedFactor(Cells(1), None, None, weight, 0.0)]
        solved = [_solve_factor(f, [(f, 1.0)], problem, progress) for f in query.factors]
        first = solved[0]
        solved[0] = replace(first, bound=first.bound * weight)
        return query.groups, solved
    # by the symmetry of their cells, the optimum is that of one of them, measured in each
    shared = direct.shared_groups(blocks) if math.prod(problem.sizes[a] for a in names) > MAX_DENSE else ()
    rest = tuple(a for a in names if not any(a in g for g in shared))
    domain = Domain({a: problem.workload.domain[a] for a in rest})
    operators = [
        (block_on_domain(domain, direct.block_beside_groups(q.block, shared)), problem.objective_weight(q))
        for q in blocks
    ]
    whole = operators[0][0] if len(operators) == 1 else Stack(tuple(o for o, _ in operators))
    cells = [_solve_factor(Identity(math.prod(problem.sizes[a] for a in g)), [], problem, progress) for g in shared]
    return (*shared, rest), [*cells, _solve_factor(whole, operators, problem, progress)]


def _solve_factor(
    whole: LinearOperator,
    weighted: Sequence[tuple[LinearOperator, float]],
    problem: Problem,
    progress: Progress | None,
) -> _SolvedFactor:
    """The certified optimum of one group of attributes; for Laplace noise its bound and a strategy of small L1 norm."""
    if isinstance(whole, Identity):
        return _SolvedFactor(Cells(whole.n), None, None, 1.0 if problem.largest else math.sqrt(whole.n), 0.0)
    if isinstance(whole, Total):
        return _SolvedFactor(TotalOnly(whole.n), None, None, 1.0, 0.0)
    cells = whole.shape[1]
    ordered = all(is_ordered(o) for o, _ in weighted)
    limit = MAX_DENSE_ORDERED if ordered else MAX_DENSE
    if cells > limit and direct.is_small_integral(whole):
        best, basis, found = direct.optimize_spanning_rows(
            whole, weighted, largest=problem.largest, laplace=problem.noise == "laplace", progress=progress
        )
        if isinstance(best, LargestErrorOptimum):
            return _SolvedFactor(None, found, basis, best.lower_bound, 0.0, best.rows, best.gap)
        # the largest variance is at least their mean
        bound = best.lower_bound / (math.sqrt(whole.shape[0]) if problem.largest else 1.0)
        return _SolvedFactor(None, found, basis, bound, 0.0, gap=math.inf if problem.largest else best.gap)
    if cells > limit:
        raise PlanError(f"{cells:,} cells are above the limit of {limit:,} for dense optimisation")
    queries, weights = Queries(tuple(weighted)), None
    gram, matrix = queries.whole_gram(), queries.listed(MAX_LISTED_ROWS)
    largest = _solve_largest_error(queries, matrix, progress) if problem.largest else None
    if largest is not None:
        strategy, bound, weights = largest.strategy, largest.lower_bound, largest.rows
        reached, gap = largest.upper_bound * math.sqrt(whole.shape[0]), largest.gap
    else:
        tolerance = _TOLERANCE if cells <= MAX_DENSE else _TOLERANCE_OF_MANY
        best = optimize_dense(gram, matrix=matrix, ordered=ordered, tolerance=tolerance, progress=progress)
        # the largest variance is at least their mean
        strategy, bound = best.strategy, best.lower_bound / (math.sqrt(whole.shape[0]) if problem.largest else 1.0)
        # of what it is not the optimum of, no more is known
        reached, gap = best.upper_bound, math.inf if problem.largest else best.gap
    rank = len(strategy)
    basis = row_basis(gram, whole, rank)
    found = basis_coefficients(strategy, basis)
    if problem.noise == "laplace":
        found, length = rotate_to_least_l1(found, basis)
        if problem.largest and matrix is not None:
            own = found if basis is None else found @ np.asarray(basis.dense(), dtype=np.float64)
            pure = _pure_largest(matrix, weights, own, ordered=ordered)
        else:
            pure = optimize_pure(gram, ordered=ordered)
            pure = pure if pure.value < reached * length else None
        if pure is not None:
            return _SolvedFactor(None, pure.coefficients, pure.basis, bound, 0.0, weights)
    bias = rounding_bias(found, whole) if basis is None and rank < cells else 0.0
    return _SolvedFactor(None, found, basis, bound, bias, weights, gap)


def _solve_largest_error(
    queries: Queries, matrix: FloatArray | None, progress: Progress | None
) -> LargestErrorOptimum | None:
    """The certified optimum of the largest error; None where it takes too long."""
    k, cells = queries.shape
    found = None
    if k > 4 * cells and queries.work <= MAX_LARGEST and cells <= MAX_IMPLICIT:
        found = optimize_largest_rows(queries, progress=progress)
    if found is None and matrix is not None and matrix.size * min(matrix.shape) <= MAX_LARGEST:
        found = optimize_largest(matrix, progress=progress)
    return found


def _pure_largest(
    matrix: FloatArray, weights: FloatArray | None, other: FloatArray, *, ordered: bool
) -> PureStrategy | None:
    """A strategy for Laplace noise whose largest error is small; None where that of `other` is less.

    Every round minimises a weighted mean error, with more weight on what erred most in the round before; the first
    weights are those by which the optimum for Gaussian noise is proved. A search: no optimum is claimed.
    """

    def errors(columns: FloatArray) -> FloatArray:
        with single_thread():
            rows = ((matrix @ np.linalg.pinv(columns)) ** 2).sum(axis=1)
        return np.asarray(rows * float(np.abs(columns).sum(axis=0).max()) ** 2)

    least, best = float(errors(other).max()), None
    share = np.full(len(matrix), 1 / len(matrix)) if weights is None else weights + 1e-3 / len(matrix)
    for _ in range(_PURE_ROUNDS):
        found = optimize_pure((matrix.T * share) @ matrix, ordered=ordered)
        columns = found.coefficients
        if found.basis is not None:
            columns = columns @ np.asarray(found.basis.dense(), dtype=np.float64)
        rows = errors(columns)
        if float(rows.max()) < least:
            least, best = float(rows.max()), found
        share = share * np.sqrt(rows / rows.max())
        share = share / share.sum()
    return best


def _family_piece(
    problem: Problem,
    groups: tuple[tuple[str, ...], ...],
    solved: list[_SolvedFactor],
    members: list[int],
    power: int,
) -> tuple[StackedPiece, float | None]:
    real = [s for s in solved if s.factor is None]
    # coefficients of large numbers are small ones
    large = max((math.log2(max(s.basis.max_abs, 1.0)) for s in real if s.basis is not None), default=0.0)
    wanted = max(_BASIS_BITS, _FINER_BITS + math.ceil(large)) if any(s.basis is not None for s in real) else _BITS
    bits = BIAS_BITS if any(s.bias for s in real) else max(11, (wanted + 2) // max(1, len(real)))
    fixed = [s.at(2.0**bits) for s in solved]
    sizes = tuple(tuple(problem.sizes[a] for a in g) for g in groups)
    names = ", ".join(a for g in groups for a in g) or "the total"
    # where the total is known more is possible
    near = math.inf if problem.unit.total_is_public else math.prod(1 + s.gap for s in solved) - 1
    kind = "an L1 factorization" if power == 1 else optimality_title("factorization", near)
    title = f"{kind} over {names}" if real else f"noise on every cell of {names}"
    bias = sum(s.bias for s in real)
    unit = Product(groups, sizes, tuple(fixed), 1, problem.unit.total_is_public, bias=bias, title=title)
    fine = 2.0 ** (bits * len(real)) if real else FINE
    build = functools.partial(_build_scaled_product, unit, solved, 2.0**bits)
    # at s = 1 the strategy is its normalised form: unit-sized columns
    normal = unit.divisor**2
    # (a piece that stands alone takes the whole budget, so its error need not be known yet)
    error = weighted_error(problem, unit, members) * normal if members else 1.0
    return StackedPiece(build, error, column_price(unit, power), fine), math.prod(s.bound for s in solved)


def _build_scaled_product(unit: Product, solved: list[_SolvedFactor], fixed: float, s: float) -> Product:
    """The strategy at scale s: the first real factor takes up the scale, else the integer multiple does."""
    factors = list(unit.factors)
    multiple = 1
    real = [i for i, x in enumerate(solved) if x.factor is None]
    if real:
        scale = s / fixed ** (len(real) - 1)
        # at the scale of the fixed ones it is one of them
        factors[real[0]] = factors[real[0]] if scale == fixed else solved[real[0]].at(scale)
    else:
        multiple = max(1, round(s))
    return Product(
        unit.groups, unit.sizes, tuple(factors), multiple, unit.public_total, bias=unit.bias, title=unit.title
    )


def _pair_bound(
    problem: Problem, names: tuple[str, ...], blocks: list[QueryBlock], weights: FloatArray | None
) -> float | None:
    """The pair bound of the family's workload, where its table is small enough.

    For the largest error by the given weights on the queries, which are of sum 1, or by equal ones.
    """
    cells = math.prod(problem.sizes[a] for a in names)
    if cells > MAX_DENSE_ORDERED or cells < 2:
        return None
    domain = Domain({a: problem.workload.domain[a] for a in names})
    share = 1 / sum(q.rows for q in blocks) if problem.largest and weights is None else 1.0
    queries = Queries(tuple((block_on_domain(domain, q.block), problem.objective_weight(q) * share) for q in blocks))
    return pair_bound(queries.whole_gram() if weights is None else queries.gram(weights))
