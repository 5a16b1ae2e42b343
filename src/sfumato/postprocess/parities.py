"""Between answers about two-valued attributes and the matrix of their parities."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.errors import InvalidInput, NotAnswerable
from sfumato.operators.base import FloatArray, LinearOperator, real_array, single_thread
from sfumato.postprocess.correlation import (
    EPS,
    Anderson,
    feasible_correlation,
    nearest_tetrahedra,
    pair_coordinates,
    scatter_pairs,
    tetrahedron_support,
)
from sfumato.workloads import QueryFamily, Workload

# rows (1, y): a query of an attribute's cells (f_0, f_1) is (f_0 + f_1)/2 times the total plus (f_1 - f_0)/2 times y
_TO_PARITIES = np.array([[0.5, -0.5], [0.5, 0.5]])
_ORTHOGONAL = 1e-12  # relative to all products: what rounding of orthogonal columns leaves is near 1e-16


def parity_matrix(
    work: Workload, answers: ArrayLike, total: float, variances: ArrayLike | None = None
) -> tuple[FloatArray, FloatArray]:
    """(D, D) matrix A and weights W with sum of (answer - F Y)^2 = constant + sum over i < j of W (Y - A)^2.

    answers: (k,) noisy answers of queries about at most two attributes each, all of two cells. total: the number of
    records, public. variances: (k,) positive, alike within each table, by which squares are divided; none if not
    given. Row i + 1 of the matrices is attribute i of the domain, y being 1 in its second cell and -1 in its
    first; entries that no query tells of have weight 0.

    The sum has that form where the queries of a table tell of its parities without mixing them: whole tables and
    differences of cells do, single cells of two attributes do not. Raises NotAnswerable for others, InvalidInput
    for numbers that cannot be.
    """
    values = _read_vector(answers, work.shape[0], "answers")
    noise = np.ones(len(values)) if variances is None else _read_vector(variances, len(values), "variances")
    if noise.min() <= 0:
        raise InvalidInput("variances must be positive")
    size, total = len(work.domain.names) + 1, _check_record_total(total)
    sums, weight = np.zeros(size * size), np.zeros(size * size)
    for part in _parity_parts(work):
        products = part.columns @ part.columns.T
        mixed = np.abs(products - np.diag(np.diag(products))).max(initial=0.0)
        if mixed > _ORTHOGONAL * float(np.trace(products)):
            raise NotAnswerable(
                "some queries mix parities, so their errors are not those of single entries: ask for whole tables"
            )
        own = noise[part.rows]
        if float(np.abs(own - own[:, :1]).max()) > 1e-9 * float(own.max()):
            raise InvalidInput("variances must be alike within each table; give none to weigh all answers alike")
        told = (values[part.rows] - total * part.constant) @ part.columns.T / own[:, :1]
        np.add.at(sums, part.places, total * told)
        np.add.at(weight, part.places, total**2 * np.diag(products) / own[:, :1])
    matrix = np.divide(sums, weight, where=weight > 0, out=np.zeros(size * size)).reshape(size, size)
    matrix, weight = matrix + matrix.T, weight.reshape(size, size)
    np.fill_diagonal(matrix, 1.0)
    return matrix, weight + weight.T


def parity_answers(work: Workload, matrix: ArrayLike, total: float) -> FloatArray:
    """(k,) the answers of a workload of tables over at most two attributes of two cells, from their parities.

    matrix and total as in `parity_matrix`. Any factors will do. Raises NotAnswerable for other tables.
    """
    size = len(work.domain.names) + 1
    entries = real_array(matrix, "the matrix of parities").astype(np.float64)
    if entries.shape != (size, size):
        raise InvalidInput(f"{size - 1} attributes have parities of shape {(size, size)}, not {entries.shape}")
    total = _check_record_total(total)
    out = np.zeros(work.shape[0])
    for part in _parity_parts(work):
        out[part.rows] = total * (entries.reshape(-1)[part.places] @ part.columns + part.constant)
    return out


def parity_adjoint(work: Workload) -> tuple[FloatArray, Callable[[FloatArray], FloatArray]]:
    """(c, G): answers of one record's parities Y are c + F Y, and G(y), (D, D) symmetric, is F^T y over i < j.

    So the answers (k,) have <y, answers> = <y, c> + sum over i < j of G(y)_ij Y_ij. Raises as `parity_answers`.
    """
    size, parts = len(work.domain.names) + 1, list(_parity_parts(work))
    constant = np.zeros(work.shape[0])
    for part in parts:
        constant[part.rows] = part.constant

    def adjoint(direction: FloatArray) -> FloatArray:
        sums = np.zeros(size * size)
        for part in parts:
            np.add.at(sums, part.places, direction[part.rows] @ part.columns.T)
        found = sums.reshape(size, size)
        return found + found.T

    return constant, adjoint


@dataclass(frozen=True, slots=True)
class _ParityTables:
    """Tables of the same queries. rows: (tables, r) of the answers. places: (tables, p) entries i < j in the flat
    matrix. columns: (p, r) what each adds to the answers, as shares; constant: (r,) what the total adds."""

    rows: NDArray[np.intp]
    places: NDArray[np.intp]
    columns: FloatArray
    constant: FloatArray


def _parity_parts(work: Workload) -> Iterator[_ParityTables]:
    size, start = len(work.domain.names) + 1, 0
    for item in work.items:
        if isinstance(item, QueryFamily):
            family = item.family
            for chosen in family.alike():
                sets = family.sets[chosen].astype(np.intp) + 1
                rows = start + family.starts[chosen][:, None] + np.arange(int(family.rows_each[chosen[0]]))
                factors = [(column, family.factors[i - 1]) for column, i in enumerate(sets[0].tolist())]
                yield _parity_part(rows, sets, factors, size)
        else:
            block = item.block
            if any(len(g) > 1 for g in block.groups):
                raise NotAnswerable(f"{item.part!r} joins attributes in one matrix; give a factor for each")
            places = {g[0]: column for column, g in enumerate(g for g in block.groups if g)}
            sets = np.array([[1 + work.domain.axis(n) for n in places]], dtype=np.intp)
            factors = [(places[g[0]] if g else -1, f) for g, f in zip(block.groups, block.factors, strict=True)]
            yield _parity_part(start + np.arange(item.rows)[None, :], sets, factors, size)
        start += item.rows


def _parity_part(
    rows: NDArray[np.intp], sets: NDArray[np.intp], factors: list[tuple[int, LinearOperator]], size: int
) -> _ParityTables:
    """The queries of some tables by their parities: a product over the factors of total and y."""
    terms: dict[tuple[int, ...], FloatArray] = {(): np.ones(1)}
    for column, factor in factors:
        entries = factor.dense().astype(np.float64)
        if column < 0:
            terms = {k: _flat_outer_product(v, entries[:, 0]) for k, v in terms.items()}
            continue
        if entries.shape[1] != 2:
            raise NotAnswerable(f"an attribute has {entries.shape[1]:,} cells; parities are of attributes with two")
        whole, sign = (entries @ _TO_PARITIES).T
        wider = {(*k, column): _flat_outer_product(v, sign) for k, v in terms.items()} if sign.any() else {}
        terms = {k: _flat_outer_product(v, whole) for k, v in terms.items()} | wider
        if max(map(len, terms)) > 2:
            raise NotAnswerable("a query is about more than two attributes; parities of one or two are projected")
    constant = terms.pop(())
    kept = {k: v for k, v in terms.items() if v.any()}
    ends = [sets[:, list(k)] if len(k) == 2 else np.pad(sets[:, list(k)], ((0, 0), (1, 0))) for k in kept]
    places = [e.min(axis=1) * size + e.max(axis=1) for e in ends]
    return _ParityTables(
        rows,
        np.stack(places, axis=1) if places else np.zeros((len(sets), 0), dtype=np.intp),
        np.array(list(kept.values())).reshape(len(kept), len(constant)),
        constant,
    )


def _flat_outer_product(first: FloatArray, second: FloatArray) -> FloatArray:
    return np.multiply.outer(first, second).reshape(-1)


def _read_vector(given: ArrayLike, length: int, what: str) -> FloatArray:
    array = real_array(given, what).astype(np.float64)
    if array.shape != (length,):
        raise InvalidInput(f"{what} must be of shape ({length:,},), not {array.shape}")
    if not np.isfinite(array).all():
        raise InvalidInput(f"{what} must be finite")
    return array


def _check_record_total(total: float) -> float:
    if isinstance(total, bool) or not isinstance(total, (int, float, np.integer, np.floating)):
        raise InvalidInput(f"total is the number of records, not {total!r}")
    if not (np.isfinite(total) and total > 0):
        raise InvalidInput(f"total is the number of records, a positive number, not {total!r}")
    return float(total)


_TOLERANCE = 1e-5  # of the sum of |objective|: the bound is proved whatever it is, so it is all that is lost
_MAX_ITERATIONS = 1000  # for each penalty; what ends here still has its proved bound
# times the objective's length: any penalty converges, and which is fast depends on the objective
_PENALTIES = (1.0, 3.0, 0.3)
_CHECK = 10  # a proof takes an eigendecomposition, as a step does: a tenth more
_RELAX = 1.6  # alternating directions converge for all of (0, 2), and over-relaxed ones as a rule sooner
_MEMORY = 10  # a small system to solve at each step; Anderson's acceleration is used with some 5 to 10


@dataclass(frozen=True, slots=True, eq=False)
class Extreme:
    """A possible matrix (D, D), its `value` sum over i < j of objective Y, and a proved `bound` on that of any."""

    matrix: FloatArray
    value: float
    bound: float


def most_correlated(objective: FloatArray, *, local: bool = False, tolerance: float = _TOLERANCE) -> Extreme:
    """The correlation matrix Y of largest sum over i < j of objective_ij Y_ij, the objective (D, D) and symmetric.

    Stops once bound - value is at most `tolerance` times the sum of |objective| over i < j (which no value exceeds), or
    after 1,000 iterations for each of three penalties: the bound says how good the matrix is in any case.
    """
    given = 0.5 * (objective + objective.T)
    np.fill_diagonal(given, 0.0)
    most = 0.5 * float(np.abs(given).sum())
    best = Extreme(np.eye(len(given)), 0.0, most)
    with single_thread():
        for factor in _PENALTIES if most > 0 else ():
            best = _split_extreme(given, best, local and len(given) > 2, factor, tolerance * most)
            if best.bound - best.value <= tolerance * most:
                break
    return best


def _split_extreme(objective: FloatArray, best: Extreme, local: bool, factor: float, enough: float) -> Extreme:
    """Alternating directions on copies of the matrix and of each pair's three entries, as `tetrahedra.split` has them.

    The penalty is proportional to the length of the objective, so that a step moves entries by about their size. The
    best matrix and the least bound are kept, of all iterations and of `best`.
    """
    size = len(objective)
    pairs = (size - 1) * (size - 2) // 2 if local else 0
    penalty = factor * float(np.linalg.norm(objective)) / size
    count = 1.0 + scatter_pairs(size, np.ones((pairs, 3)))
    vector = _flatten_copies(
        np.eye(size) + objective / penalty, pair_coordinates(np.eye(size)) if local else np.zeros((0, 3))
    )
    accelerated = Anderson(len(vector), _MEMORY)
    for iteration in range(1, _MAX_ITERATIONS + 1):
        whole, held = _unflatten_copies(vector, size)
        values, vectors = np.linalg.eigh(whole)
        kept = vectors[:, values > 0]
        possible = (kept * values[values > 0]) @ kept.T
        inside = nearest_tetrahedra(held)
        if iteration % _CHECK == 0:
            tried = (feasible_correlation(possible, local), _best_sign_cut(objective, possible))
            matrix = max(tried, key=lambda m: _objective_value(objective, m))
            bound = _extreme_bound(objective, matrix, penalty * (held - inside) if local else None)
            matrix = max(best.matrix, matrix, key=lambda m: _objective_value(objective, m))
            value = _objective_value(objective, matrix)
            best = Extreme(matrix, value, max(value, min(best.bound, bound)))
            if best.bound - best.value <= enough:
                break
        joint = (objective / penalty + 2 * possible - whole + scatter_pairs(size, 2 * inside - held)) / count
        np.fill_diagonal(joint, 1.0)
        seen = pair_coordinates(joint) if local else inside
        vector = accelerated.next(vector, _RELAX * _flatten_copies(joint - possible, seen - inside))
    return best


def _objective_value(objective: FloatArray, matrix: FloatArray) -> float:
    return 0.5 * float(np.sum(objective * matrix))


def _best_sign_cut(objective: FloatArray, matrix: FloatArray) -> FloatArray:
    """The best of the records whose signs are those of a row: a corner of what tables can give, so of both bodies."""
    signs = np.where(matrix >= 0, 1.0, -1.0)
    chosen = signs[int(np.einsum("ri,ij,rj->r", signs, objective, signs).argmax())]
    return np.multiply.outer(chosen, chosen)


def _extreme_bound(objective: FloatArray, matrix: FloatArray, normals: FloatArray | None) -> float:
    """What no matrix of the body exceeds, by `certificate.Problem.proof` with the objective in place of the residual.

    The closer `matrix` is to the best one, and `normals` (pairs, 3) to those of its pair tables, the closer the bound.
    """
    slope, excess = objective, 0.0
    if normals is not None:
        slope = objective - scatter_pairs(len(objective), normals)
        excess = float(tetrahedron_support(normals).sum()) + len(objective) * EPS * float(np.abs(normals).sum())
    dual = np.einsum("ij,ji->i", slope, matrix)
    slack = np.diag(dual) - slope
    lacks = max(0.0, len(objective) * EPS * float(np.linalg.norm(slack)) - float(np.linalg.eigvalsh(slack)[0]))
    return 0.5 * (float(dual.sum()) + lacks * len(objective)) + excess


def _flatten_copies(whole: FloatArray, pairs: FloatArray) -> FloatArray:
    """Both copies as one vector whose squared length counts every pair of entries twice, as the matrix does."""
    return np.concatenate([whole.reshape(-1), np.sqrt(2) * pairs.reshape(-1)])


def _unflatten_copies(vector: FloatArray, size: int) -> tuple[FloatArray, FloatArray]:
    whole = vector[: size * size].reshape(size, size)
    return 0.5 * (whole + whole.T), vector[size * size :].reshape(-1, 3) / np.sqrt(2)
