"""What a release measured and the most that it changes with one record: the third of a stranger's check about maps.

`check_release.py`, which lies beside this file, holds what is found here against noise, price and ledger;
`check_forms.py`, also beside it, has seen to the form of every document before. Nothing else is imported but numpy and
the standard library. Every map is written out anew from its stored document, in integers: those of 64 bits where
no power, sum or product of them can leave these, else Python's own.
"""

import json
import math
from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from hashlib import sha256
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np

if __package__:
    from sfumato.check_forms import whole
else:  # by itself, with the others beside it
    from check_forms import whole  # pyright: ignore[reportMissingImports]

Array = np.ndarray[Any, Any]
MOST = 2**22  # entries of a matrix or table that is written out; of what is larger a bound is taken, or nothing said
FEW = 8  # rows of all maps over an attribute: of so many cells are left out that lie between others
ALIKE = ("Identity", "Total", "Residual")  # maps of which any two cells may be exchanged, if rows are with them
PLAIN = ("Identity", "Total", "Grouping")  # maps of ones and zeros
SLACK = 1 + Fraction(1, 2**30)  # above (1 - 2^-53)^-K for K = 2^22 roundings in a row, and what underflow loses is < 1
EIGHT = 8  # pieces into which the curve of a measure is cut
COMBINED = "combined "  # in place of an attribute's name: the columns of a combination are cells of their own


class Cannot(Exception):
    """What these files have no way to check."""


class Doc(dict[str, Any]):  # what a file holds: .name is what is stored under a name, or None
    def __getattr__(self, name: str) -> Any:
        return self.get("~class" if name == "kind" else name)


def document_fingerprint(
    value: Any,
) -> str:  # SHA-256 of a document and its arrays: by it ledgers know plans and results
    arrays = list[Array]()
    text = json.dumps(value, default=lambda a: arrays.append(a) or {"~array": f"a{len(arrays) - 1}"})
    digest = sha256(json.dumps(json.loads(text), sort_keys=True).encode())
    for i, array in enumerate(arrays):
        digest.update(f"a{i}:{array.dtype.str}:{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def calendar_period_number(
    day: str, by: str
) -> int:  # the number of the day, week, month, quarter or year that a day lies in
    unit, many, since = {"day": "D10", "week": "D73", "month": "M10", "quarter": "M30", "year": "Y10"}[by]
    return (int(np.datetime64(day, unit).astype(int)) + int(since)) // int(many)


def tree_map_rows(
    o: Any,
) -> Array:  # a row for every aligned block of cells, widest first, but those that repeat an only child
    widths = [o.branching**i for i in range(64) if not i or o.branching ** (i - 1) < o.n]
    kept = [(s, w) for w in widths[::-1] for s in range(0, o.n, w) if w == 1 or s + w // o.branching < o.n]
    cells = np.arange(o.n)
    return np.array([(cells >= s) & (cells < s + w) for s, w in kept[o.n > 1 and not o.root :]], dtype=int)


def narrow_to_int64(a: Array) -> Array:  # Python's integers as those of 64 bits, where these hold them
    return a.astype(np.int64) if all(abs(int(x)) < 2**63 for x in (a.min(), a.max())) else a


def sparse_map_rows(
    o: Any,
) -> Array:  # an entry that is stored twice would be added up by some readers and not by others
    lengths, n = np.diff(o.indptr), len(o.data)
    if len(o.indptr) < 2 or (o.indptr[0], o.indptr[-1]) != (0, n) or lengths.min() < 0 or len(o.indices) != n:
        raise ValueError("the rows of a sparse map do not hold its entries, each once")
    if n and (o.indices.min() < 0 or o.indices.max() >= o.columns):
        raise ValueError("a sparse map has entries outside of its columns")
    rows = np.repeat(np.arange(len(lengths)), lengths)
    if not ((np.diff(rows) > 0) | (np.diff(o.indices) > 0)).all():
        raise ValueError("a sparse map has an entry twice, or in no order")
    if len(lengths) * o.columns > 4 * MOST:
        raise Cannot("sparse maps of so many entries")
    out = np.zeros((len(lengths), o.columns), dtype=o.data.dtype)
    out[rows, o.indices] = o.data
    return out


def toeplitz_map_rows(
    o: Any,
) -> Array:  # entry (i, j) is multiples_i coefficients_(i - j) columns_j, and 0 above the diagonal
    i = np.arange(len(o.multiples))
    below = np.tril(o.coefficients.astype(object)[abs(i[:, None] - i)]) * o.multiples[:, None]
    return below if o.columns is None else below * o.columns


ROWS: dict[str, tuple[str, Callable[[Any], Array]]] = {  # by name its fields, and the matrix. A later kind adds a line
    "Identity": ("n", lambda o: np.eye(o.n, dtype=int)),
    "Total": ("n", lambda o: np.ones((1, o.n), int)),
    "Residual": ("n", lambda o: o.n * np.eye(o.n, dtype=int) - 1),
    "Prefix": ("n", lambda o: np.tri(o.n, dtype=int)),
    "Window": ("n width", lambda o: (np.tri(o.n, k=o.width - 1) - np.tri(o.n, k=-1))[: o.n - o.width + 1].astype(int)),
    "AllRange": ("n", lambda o: np.vstack([np.tri(o.n, dtype=int)[s:] * (np.arange(o.n) >= s) for s in range(o.n)])),
    "Tree": ("n branching root", tree_map_rows),
    "Dense": ("matrix", lambda o: o.matrix),
    "Sparse": ("data indices indptr columns", sparse_map_rows),
    "Grouping": ("codes groups", lambda o: np.array(o.codes == np.arange(o.groups)[:, None], dtype=int)),
    "Toeplitz": ("coefficients multiples columns", toeplitz_map_rows),
    "Stack": ("parts", lambda o: np.concatenate(list(map(map_entries, o.parts)))),
    "Kronecker": ("factors", lambda o: np.array(reduce(np.kron, [map_entries(f).astype(object) for f in o.factors]))),
    "Compose": ("left right", lambda o: map_entries(o.left).astype(object) @ map_entries(o.right)),
    "Padded": ("operator extra", lambda o: np.pad(map_entries(o.operator), ((0, 0), (0, o.extra)))),
    "Scaled": ("operator factor", lambda o: map_entries(o.operator).astype(object) * int(whole(o.factor))),
}


def require_known_map(op: Any) -> Any:  # a field that is not known here may mean anything
    if op.kind not in ROWS or not op.keys() <= {"~class", *ROWS[op.kind][0].split()}:
        raise Cannot(f"maps of the kind {op.kind} with {', '.join(op)}")
    if op.kind == "Grouping" and (not len(op.codes) or op.codes.min() < -1 or op.codes.max() >= op.groups):
        raise ValueError("cells are in groups that are not there")
    return op


def map_entries(op: Any) -> Array:  # all entries: integers of 64 bits, or Python's own where they may be larger
    cells = op.n or (len(op.coefficients) if require_known_map(op).kind == "Toeplitz" else 0)
    if cells ** (3 if op.kind == "AllRange" else 2) + (op.groups or 0) * len(op.get("codes", ())) > 4 * MOST:
        raise Cannot(f"maps made with {op.kind} of so many cells; plan whole tables, or tables at levels of places")
    out = ROWS[op.kind][1](op)
    if out.dtype not in (np.int64, object) or out.ndim != 2 or not out.size or out.min() == -(2**63):
        raise ValueError("a map that was measured has entries that are no integers of 64 bits below 2^63")
    return out


def map_shape(op: Any) -> tuple[int, int]:
    if require_known_map(op).kind == "Compose" and require_known_map(op.right).kind == "Grouping":
        return map_shape(op.left)[0], len(op.right.codes)
    if op.kind == "Grouping":
        return op.groups, len(op.codes)
    if op.kind in ALIKE and op.n < 1:
        raise ValueError("a map of no cells")
    return (1 if op.kind == "Total" else op.n, op.n) if op.kind in ALIKE else map_entries(op).shape


def column_power_sums(op: Any, p: int) -> Array:  # of every column the sum of |entry|^p
    if op.kind in ALIKE:
        return np.full(op.n, (2 * op.n - 2, op.n**2 - op.n)[p - 1] if op.kind == "Residual" else 1, dtype=object)
    if op.kind == "Compose" and op.right.kind == "Grouping":  # a cell has the column of its group, or of -1 none
        return np.append(column_power_sums(op.left, p), 0)[op.right.codes]
    if op.kind == "Grouping":
        return ((op.codes >= 0) & (op.codes < op.groups)).astype(object) * 1
    a = abs(map_entries(op))  # of 64 bits, none of them -2^63
    return ((a if int(a.max()) ** p * len(a) < 2**63 else a.astype(object)) ** p).sum(axis=0).astype(object)


def compose_with_maps(rows: Array, maps: list[Any]) -> Any:  # a matrix after the product of some maps
    left, right = Doc({"~class": "Dense", "matrix": rows}), Doc({"~class": "Kronecker", "factors": maps})
    return Doc({"~class": "Compose", "left": left, "right": maps[0] if len(maps) == 1 else right}) if maps else left


def orbit_blocks(group: Any) -> Any:  # by piece the sums over joint orbits (kind -1), and contrasts inside others
    for piece in group.pieces:
        joint, maps, out = list[str](), list[Any](), list[Any]()
        for name, axis, kind in zip(group.names, group.axes, piece.kinds, strict=True):
            codes = axis.orbits if kind < 0 else axis.contrasts[kind].children
            if axis.cells.min() < 0:
                raise ValueError("a cell has no orbit")
            sums = Doc({"~class": "Grouping", "codes": codes[axis.cells], "groups": int(codes.max()) + 1})
            if kind >= 0:
                same = axis.contrasts[kind].parents
                between = axis.contrasts[kind].count * np.eye(len(same), dtype=int) - (same[:, None] == same)
                out.append(([name], compose_with_maps(between, [sums])))
            elif sums.groups > 1:
                joint, maps = [*joint, name], [*maps, sums]
        if piece.rows is not None and maps:  # of few of very many orbits, all of which are one partition
            codes = reduce(lambda c, s: (c[:, None] * s.groups + s.codes).ravel(), maps, np.zeros(1, int))
            maps = [Doc({"~class": "Grouping", "codes": codes, "groups": math.prod(m.groups for m in maps)})]
        held = (
            piece.matrix
            if piece.rows is None
            else narrow_to_int64(piece.matrix.astype(object) @ map_entries(piece.rows))
        )
        yield [(joint, compose_with_maps(held, maps)), *out]


def convex_hull_corners(points: Array) -> list[int]:
    """Of points (n, f) some in whose convex hull all lie, where they lie on a line or in a plane; else all of them.

    What is convex in a point, as its size and its distance from another are, is nowhere larger than at one of these.
    """
    p, axes = narrow_to_int64(points.astype(object) - points[0]), list[Array]()
    p = p if abs(p).max() < 2**30 else p.astype(object)  # products of two, and their differences, are of 64 bits
    for c in p.T:  # numbers that are multiples of others say nothing beside these
        if c.any() and all((c * a[(i := np.argmax(a != 0))] != a * c[i]).any() for a in axes):
            axes.append(c)
        if len(axes) > 2:
            return list(range(len(p)))
    x, y = [*axes, np.zeros(len(p), dtype=int), np.zeros(len(p), dtype=int)][:2]

    def beyond(a: int, b: int, some: Array) -> list[int]:  # the corners to the right of the way from a to b
        far = (x[some] - x[a]) * (y[b] - y[a]) - (y[some] - y[a]) * (x[b] - x[a])
        c, some = some[np.argmax(far)], some[far > 0]
        return [*beyond(a, c, some), int(c), *beyond(c, b, some)] if len(some) else []

    left, right = ((x == end).nonzero()[0] for end in (x.min(), x.max()))
    a, b = int(left[np.argmin(y[left])]), int(right[np.argmax(y[right])])
    return sorted({a, b, *beyond(a, b, np.arange(len(p))), *beyond(b, a, np.arange(len(p)))})


def distinct_block_columns(blocks: Any, sizes: dict[str, int], ends: bool = False) -> Array:
    """(rows, c): every column that some cell has in blocks one below the other, and none twice.

    Cells are never listed. Those of one attribute that no factor tells apart are one; attributes that a factor joins
    are gone through together; what coincides after each step is dropped. With `ends` cells of one attribute that lie
    between others are left out, so that all columns lie in the convex hull of those found: see `corners`.
    """
    parts, height, together = list[tuple[Any, Any, Array]](), 0, list[set[str]]()
    for b in blocks:
        maps = [map_entries(f) for f in b.factors]
        if math.prod(int(abs(m).max()) for m in maps) >= 2**63:
            raise Cannot("combined blocks with entries beyond 2^63")
        rows = slice(height, height := height + math.prod(map(len, maps)))
        places = np.indices([len(m) for m in maps]).reshape(len(maps), -1 if maps else 1)  # of a row those of factors
        for group, m, place in zip(b.groups, maps, places, strict=True):
            parts.append((group, (rows, place), m.astype(np.int64).reshape(-1, *(sizes[a] for a in group))))
            joined = [t for t in together if t & {*group} or t == {*group}]
            together = [*(t for t in together if t not in joined), {*group}.union(*joined)]
    found = np.ones((height, 1), dtype=np.int64)
    for joint in together:
        own = [(g, rows, m) for g, rows, m in parts if joint & {*g} or joint == {*g}]
        for a in joint:
            held = [(1 + g.index(a), m) for g, _, m in own if a in g]
            seen = np.concatenate([np.moveaxis(m, i, -1).reshape(-1, m.shape[i]) for i, m in held])
            kept = np.array(convex_hull_corners(seen.T) if ends else range(seen.shape[1]))
            kept = kept[np.unique(seen[:, kept], axis=1, return_index=True)[1]]
            own = [(g, rows, m.take(kept, 1 + g.index(a)) if a in g else m) for g, rows, m in own]
        count = {a: m.shape[1 + g.index(a)] for g, _, m in own for a in g}
        if height * found.shape[1] * math.prod(count.values()) > 8 * MOST:
            raise Cannot("combined queries that tell very many cells apart")
        grid = np.ones((height, *count.values()), dtype=np.int64)
        for g, (rows, place), m in own:
            order = [0, *(1 + g.index(a) for a in count if a in g)]
            grid[rows] *= m[place].transpose(order).reshape(-1, *(n if a in g else 1 for a, n in count.items()))
        each = np.unique(grid.reshape(height, -1), axis=1)
        found = np.unique((found[:, :, None] * each[:, None]).reshape(height, -1), axis=1)
    return found


def spectral_blocks(
    s: Any,
) -> Any:  # products of bins of rows, one of every attribute; a row of ones alone sums its own out
    for place in np.ndindex(s.multiples.shape):
        held = [(v, [0, *e], b) for v, e, b in zip(s.vectors, s.ends, place, strict=True)]
        rows = [(a, v[e[b] : e[b + 1]]) for a, (v, e, b) in zip(s.names, held, strict=True)]
        kept = [([a], Doc({"~class": "Dense", "matrix": m})) for a, m in rows if len(m) > 1 or (m != 1).any()]
        yield s.multiples[place], kept


def sliced_blocks(s: Any) -> Any:  # rows over one attribute, each with a matrix over all others together
    others = [a for i, a in enumerate(s.names) if i != s.axis]
    for row, m in zip(s.vectors, s.matrices, strict=True):
        yield 1, [(g, Doc({"~class": "Dense", "matrix": t})) for g, t in (([s.names[s.axis]], row[None]), (others, m))]


def combined_block_map(s: Any, sizes: dict[str, int]) -> Any:  # whole coefficients of all rows of some blocks
    rows = distinct_block_columns(s.blocks, sizes, ends=True)
    few = int(abs(s.matrix.astype(object)).sum(axis=1).max()) * int(abs(rows).max()) < 2**63
    return Doc({"~class": "Dense", "matrix": s.matrix @ rows if few else s.matrix.astype(object) @ rows})


def operator_of_map(
    op: Any,
) -> Any:  # a map of the closed set, own I + other J or 1 or entries, by the name that it has above
    alike = {(1, 0): "Identity", (op.n, -1): "Residual"}.get((op.own, op.other))
    kind = {"AlikeMap": alike, "TotalMap": "Total", "DenseMap": "Dense"}.get(op.kind, op.kind)
    return op if kind == op.kind else Doc({"~class": kind} | {k: op[k] for k in ("n", "matrix") if k in op})


def strategy_blocks(s: Any, sizes: dict[str, int], ops: dict[str, Any]) -> list[Any]:
    """What a strategy, or an entry of a measurement, measures: (multiple, ((attributes, key in ops), ...)) by block."""
    if s.kind in ("Stacked", "Biased", "Merged", "Allowed"):
        return [b for part in s.pieces or [s.measured] for b in strategy_blocks(part, sizes, ops)]
    if s.kind == "Compound":  # over attributes that stand for several: a name for theirs, in the order of its cells
        own = dict(zip(s.names, s.attributes, strict=True))

        def spelt(names: Any) -> tuple[str, ...]:
            return tuple(a for n in names for a in own.get(n, [n]))

        held = strategy_blocks(s.measured, sizes, ops)
        return [(m, tuple(sorted((spelt(names), op) for names, op in factors))) for m, factors in held]
    simple = {"Cells": "Identity", "TotalOnly": "Total"}  # factors of strategies; others hold their operator
    own: Any = [f.tree or f.operator or Doc(f | {"~class": simple.get(f.kind, f.kind)}) for f in s.factors or []]
    plain = [Doc({"~class": "Residual", "n": n}) for n in s.shape or []]  # n I - J, or contrasts of their own
    contrasts = [c or r for c, r in zip(s.contrasts or plain, plain, strict=True)]

    def family(maps: Any, sets: Any, multiples: Any) -> Any:  # a block for every set of attributes
        each = [([name], op) for name, op in zip(s.names, maps, strict=True)]
        multiples = [1] * len(sets) if multiples is None else multiples
        if any(int(i) < 0 for some in sets for i in some):
            raise ValueError("a set names an attribute that is not there")
        return [(m, [each[i] for i in some]) for some, m in zip(sets, multiples, strict=True)]

    cases: dict[str, Any] = {  # a later kind adds a case
        "Block": lambda: [(1, zip(s.groups, s.factors, strict=True))],
        "Family": lambda: family(s.factors, s.sets, s.multiples),
        "Product": lambda: [(s.multiple, zip(s.groups, own, strict=True))],
        "Canonical": lambda: [(s.multiple, [([s.attribute], s.tree)])],
        "WeightedTables": lambda: family(own, s.sets, s.multiples),
        "Residuals": lambda: [b for x in zip(s.sets, s.multiples, strict=True) for b in family(contrasts, *x)],
        "Combination": lambda: [
            (1, [([COMBINED + document_fingerprint(held)], held)]) for held in [combined_block_map(s, sizes)]
        ],
        "Spine": lambda: level_table_blocks(s),
        "Moments": lambda: moments(s, "Residual"),
        "MomentTables": lambda: moments(s, "Identity"),
        "Orbits": lambda: [(1, [f for some in x for f in some]) for x in product(*map(orbit_blocks, s.groups))],
        "Sliced": lambda: sliced_blocks(s),
        "Spectral": lambda: spectral_blocks(s),
    }
    kind = s.kind.removeprefix("Pair").removesuffix("Map")
    if kind not in cases:
        raise Cannot(f"strategies of the kind {s.kind}")
    out = list[Any]()
    for multiple, factors in cases[kind]():
        times, kept = int(multiple), list[Any]()
        for names, op in factors:
            while op.kind == "Scaled":
                times, op = times * whole(op.factor), op.operator
            op = operator_of_map(op)
            if names or op.kind != "Identity":
                kept.append((tuple(names), document_fingerprint(op)))
                ops[kept[-1][1]] = op
        out += [(times, tuple(sorted(kept)))] if multiple else []  # 0: what is known, and so not measured
    return out


def moments(s: Any, own: str) -> Any:  # residuals or cells of attributes, with whole numbers over the measures' cells
    sizes, merged = dict(s.sizes["~map"]), dict(s.merged["~map"] if s.merged else [])

    def factor(a: str) -> Any:  # over merged cells, which declared cells count in
        each = Doc({"~class": own, "n": sizes[a]})
        if a not in merged:
            return each
        right = Doc({"~class": "Grouping", "codes": merged[a], "groups": sizes[a]})
        return right if own == "Identity" else Doc({"~class": "Compose", "left": each, "right": right})

    for p in s.parts:
        yield 1, [*(([a], factor(a)) for a in p.attributes), (s.measures, Doc({"~class": "Dense", "matrix": p.matrix}))]


def hull(cells: int) -> Any:  # (corners, cells) of 64: around ((1-t)^2, 2t(1-t), t^2) in every three cells from an end
    table = list[
        list[int]
    ]()  # between knots to the next, by eighths, where tangents meet; ends; those without a number
    for first in range(0, cells - 2, 2):
        for a, b in [(i, i + 1) for i in range(EIGHT)]:
            meet = [(EIGHT - a) * (EIGHT - b), a * (EIGHT - b) + b * (EIGHT - a), a * b]
            table.append([0] * first + meet + [0] * (cells - first - 3))
    whole = [i for i in range(cells) if i % 2 == 0 or i == cells - 1]
    table += [[EIGHT**2 * (i == j) for j in range(cells)] for i in whole]
    return np.array(table, dtype=object)


def features(cells: int) -> Any:  # (cells, features): of every three cells 1, t, t^2 of a record; 1 without a number
    table, kinds = list[list[int]](), list[int]()
    for first in range(0, cells - 2, 2):
        for kind, own in enumerate(([1, 0, 0], [-2, 2, 0], [1, -2, 1])):
            table.append([0] * first + own + [0] * (cells - first - 3))
            kinds.append(kind)
    if cells % 2 == 0:
        table.append([0] * (cells - 1) + [1])
        kinds.append(0)
    return np.array(table, dtype=object).T, kinds


def shared(blocks: Any, ops: Any, sizes: Any, measures: Any, p: int) -> Any:
    """The same blocks over the corners of the hull of what a record adds to measures, where it is 2^24 and rounded.

    And the numbers of corners, and how much longer rounding makes what one record adds: 17/32 of a feature at most, of
    each but the first of every three cells, and of products of these.
    """
    own = {a: hull(sizes[a]) for a in measures}
    if not any(a in own for _, fs in blocks for names, _ in fs for a in names):
        return blocks, sizes, 0
    out, more = list[Any](), 0
    for times, fs in blocks:
        here = sum(a in own for names, _ in fs for a in names)
        if here > 3:
            raise Cannot("tables of more than three measures")
        kept, longest, each = list[Any](), 1, [(abs(times) ** p, 0)]
        for names, key in fs:
            if {*names} & {*own}:
                made = [
                    features(sizes[a]) if a in own else (np.eye(sizes[a], dtype=int), [0] * sizes[a]) for a in names
                ]
                columns = map_entries(ops[key]).astype(object) @ reduce(np.kron, [t.astype(object) for t, _ in made])
                kinds = reduce(lambda a, b: [x + y for x in a for y in b], [k for _, k in made])
                lengths = [int(x) for x in (abs(columns) ** p).sum(axis=0)]
                each = [(a * b, i + j) for a, i in each for b, j in zip(lengths, kinds, strict=True) if b]
                sides = [own[a].T if a in own else np.eye(sizes[a], dtype=int).astype(object) for a in names]
                m = map_entries(ops[key]).astype(object) @ reduce(np.kron, sides)
                if abs(m).max() >= 2**63:
                    raise Cannot("sums of measures with very large coefficients")
                op = Doc({"~class": "Dense", "matrix": m.astype(np.int64)})
                ops[key := document_fingerprint(op)] = op
            else:
                longest *= max(int(x) for x in column_power_sums(ops[key], p))
            kept.append((names, key))
        out.append((times * 2 ** (24 - 6 * here), tuple(sorted(kept))))
        if here:
            lengths = [longest * x for x, rounded in each if rounded]
            more += -(-17 * sum(math.isqrt(x) + 1 if p == 2 else x for x in lengths) // 32)
    return out, {a: len(own[a]) if a in own else n for a, n in sizes.items()}, more


def longer(value: int, more: int, p: int) -> int:  # a length to a power, of what is longer by so much at most
    return value + more if p == 1 else value + 2 * (math.isqrt(value) + 1) * more + more**2


def level_table_blocks(
    s: Any,
) -> Any:  # of tables at levels the multiple, and the factors over the tree and over the others
    kind = "Residual" if s.residual else "Identity"
    if any(i < 0 for i in [s.place, *s.at, *(i for some in s.sets for i in some)]):
        raise ValueError("tables at levels, or over attributes, that are not there")
    for at, some, m in zip(s.at, s.sets, s.multiples, strict=True):
        tree = [([s.names[s.place]], s.levels[at - 1])] if at else []
        yield m, [*tree, *(([s.names[i]], Doc({"~class": kind, "n": s.shape[i]})) for i in some)]


def cells_together(ops: Any, within: Any) -> dict[Any, Array]:
    """Of factors that part cells into groups inside groups: whether two cells lie together, for all ways to part two.

    First not at all; then for every number n of groups one: what has n or more groups parts them, nothing wider does.
    """
    found = dict[Any, Array]()
    for names in {f[0] for f in ops}:
        own = {f: ops[f] for f in ops if {*f[0]} & {*names}}
        near = [within.codes] if within and within.attribute in names else []
        fits = [f[0] == names and o.kind in (*ALIKE, "Grouping") for f, o in own.items()] + [len(names) < 2 or not near]
        fits += [o.codes.min() >= 0 and o.codes.max() < o.groups for o in own.values() if o.codes is not None]
        codes = [np.arange(o.n or 0) * (o.kind != "Total") if o.codes is None else o.codes for o in own.values()] + near
        seen = [np.unique(c, return_index=True, return_inverse=True)[1:] for c in codes] if all(fits) else []
        many = [len(first) for first, _ in seen]
        order = sorted(seen, key=lambda s: len(s[0]))
        if many and all((a[first][narrow] == a).all() for (_, a), (first, narrow) in pairwise(order)):
            ways = [n for n in sorted({*many}) if n > (many[-1] if near else 1)]
            found |= {f: np.array([True, *(m < n for n in ways)]) for f, m in zip(own, many, strict=False)}
    return found


def joined_change(blocks: Any, ops: Any, sizes: Any) -> int | None:
    """The largest squared distance of two columns where maps join attributes. None: there is too much to look at.

    Maps that join a cell of an attribute with others know it by the columns in which it lies with each of these, maps
    over the attribute alone by its products with other cells. So for one x of all that both know alike, attribute by
    attribute, every y is looked at that differs in what x is told from it by.
    """
    names, held, tops = sorted({a for f in ops for a in f[0]}), dict[Any, Any](), dict[Any, int]()
    for f, op in ops.items():
        partition = op.kind == "Grouping" or (op.kind == "Compose" and op.right.kind == "Grouping")
        under = (op.left or Doc({"~class": "Identity", "n": op.groups})) if partition else op
        codes = (op.right or op).codes if partition else np.arange(map_shape(op)[1])
        if (map_shape(under)[1] + 1) ** 2 > 8 * MOST:
            return None
        table = np.transpose(codes.reshape([sizes[a] for a in f[0]]), np.argsort(np.array(f[0], dtype=str)))
        held[f], tops[f] = (table, under, [names.index(a) for a in sorted(f[0])]), int(max(column_power_sums(under, 2)))
    if 4 * sum(m * m * math.prod(tops[f] for f in fs) for m, fs in blocks) >= 2**63:
        return None
    for f, (table, under, at) in held.items():  # sums of products are at most what one is of itself: exact as doubles
        m = np.pad(map_entries(under), ((0, 0), (0, 1))).astype(float if tops[f] < 2**53 else np.int64)  # -1: no column
        held[f] = table, (m.T @ m).astype(np.int64), at
    alone = [[t[1][np.ix_(t[0], t[0])] for t in held.values() if t[2] == [i]] for i in range(len(names))]
    kinds, first, beside = list[Any](), list[Any](), list[Any]()
    for i, a in enumerate(names):  # cells that are alike to all maps, one of each kind, and what is told from that one
        seen = [np.moveaxis(t[0], t[2].index(i), 0).reshape(sizes[a], -1) for t in held.values() if {i} < {*t[2]}]
        seen = np.hstack([*seen, *(np.diagonal(g)[:, None] for g in alone[i])])
        _, some, kind = np.unique(seen, axis=0, return_index=True, return_inverse=True)
        ways = {x: np.column_stack([kind.reshape(-1), *(g[x] for g in alone[i])]) for x in some.tolist()}
        kinds, first = [*kinds, kind.reshape(-1)], [*first, some]
        beside.append({x: np.unique(way, axis=0, return_index=True)[1] for x, way in ways.items()})
    most = math.prod(sum(map(len, own.values())) for own in beside)
    if most > 32 * MOST or math.prod(map(len, first)) * len(blocks) > MOST:
        return None

    def inner(m: int, fs: Any, x: Any, y: Any) -> Any:  # products of the columns of one block, of cells x and y
        each = [held[f] for f in fs]
        parts = [p[codes[tuple(x[i] for i in at)], codes[tuple(y[i] for i in at)]] for codes, p, at in each]
        return reduce(np.multiply, parts, np.array(m * m))

    def kind_of(cells: Any) -> Any:
        return [k[c] for k, c in zip(kinds, cells, strict=True)]

    every, out = np.ix_(*first), 0
    norms = sum(inner(m, fs, every, every) for m, fs in blocks) + np.zeros([len(o) for o in first], dtype=np.int64)
    for x in product(*(o.tolist() for o in first)):
        y = [own[c] for own, c in zip(beside, x, strict=True)]
        far = norms[np.ix_(*kind_of(y))] + norms[tuple(kind_of(x))]
        for m, fs in blocks:
            some = [*y]
            for codes, products, at in (held[f] for f in fs if len(f[0]) == 1):  # most are 0 beside most cells
                some[at[0]] = np.flatnonzero(products[codes[x[at[0]]], codes[y[at[0]]]])
            at = [np.arange(len(c)) if s is c else s for s, c in zip(some, y, strict=True)]
            if all(map(len, at)):
                far[np.ix_(*at)] -= 2 * inner(m, fs, x, np.ix_(*(c[s] for c, s in zip(y, at, strict=True))))
        out = max(out, int(far.max()))
    return out


def largest_record_change(
    blocks: Any, ops: Any, sizes: Any, p: int, replace: bool, public: bool, within: Any = None
) -> tuple[int, bool]:
    """The largest sum of |change|^p that one record makes, and whether one makes it, or it is a bound.

    within: where given, a record is replaced by one whose cell of an attribute is of the same group.

    What a record does to a block is told by its cells of the block's attributes, or by those it leaves and takes:
    a table, found column by column. The tables of all blocks are added up, and the largest entry is taken.
    """
    ops = {f: ops[f[1]] for _, fs in blocks for f in fs}
    held = {a: {f for f in ops if a in f[0]} for f in ops for a in f[0]}
    for a, own in held.items() if replace else ():  # a distance is convex in what few rows have at a cell
        plain = {ops[f].kind for f in own} <= {*ALIKE, "Grouping"} or any(len(f[0]) > 1 for f in own)
        if not plain and a != (within and within.attribute) and sum(map_shape(ops[f])[0] for f in own) <= FEW:
            found = {f: map_entries(ops[f]) for f in own}
            kept = convex_hull_corners(np.concatenate([*found.values()]).T)
            sizes = {**sizes, a: len(kept)}
            ops |= {f: Doc({"~class": "Dense", "matrix": m[:, kept]}) for f, m in found.items()}
    alike = {f for f in ops if ops[f].kind in ALIKE}
    near, agree = within and within.attribute, cells_together(ops, within)
    columns = {f: column_power_sums(ops[f], p) for f in ops}
    summed = {f for f in ops if f[0] and f[0][0].startswith(COMBINED)}  # whose cells go with those of other attributes
    top = {f: int(max(columns[f])) for f in ops}

    def largest(fixed: set[Any], axes: dict[Any, int], table: Any) -> Any:  # None: there are too many
        weights = dict[Any, int]()  # of blocks that differ in those factors alone that are at their largest anyway
        for m, fs in blocks:
            rest = tuple(f for f in fs if f not in fixed)
            weights[rest] = weights.get(rest, 0) + abs(m) ** p * math.prod(top[f] for f in fs if f in fixed)
        if len(axes) > 30 or math.prod(axes.values()) * len(weights) > 8 * MOST:
            return None
        total: Any = 0
        for rest, weight in weights.items():
            keys, values = table(rest)
            if values is None:
                return None
            found = np.array(values, dtype=object).reshape([axes[k] for k in keys])
            found = found.transpose([keys.index(k) for k in axes if k in keys])
            total = total + weight * found.reshape([n if k in keys else 1 for k, n in axes.items()])
        if (near, 1) in axes:  # pairs of records of which none may stand in the other's place
            same = within.codes[:, None] == within.codes
            ends = same.reshape([sizes[near] if k in ((near, 0), (near, 1)) else 1 for k in axes])
            total = np.where(ends, total, 0)  # it is symmetric in the two
        return int(np.max(total))

    def cells(rest: Any) -> Any:
        return [a for f in rest for a in f[0]], reduce(np.kron, [columns[f] for f in rest], np.ones(1, int))

    def changes(rest: Any) -> Any:  # where all cells are alike two of them, and rows as often as they occur
        each = [np.ones((1, 2), int)]
        for f in rest:
            s, n = agree.get(f), ops[f].n or 2
            a, b = (n - 1, -1) if ops[f].kind == "Residual" else (1, 0)
            rows = map_entries(ops[f]) if s is None else [np.where(w, a, b) for w in (s, ~s, s & False)]
            each.append(np.insert(rows, 0, 1 if s is None else [1, 1, n - 2], axis=1))
        times, m = (reduce(np.kron, [r[:, i].astype(object) for r in each]) for i in (np.s_[:1], np.s_[1:]))
        if int(times.sum()) * (2 * int(abs(m).max(initial=0))) ** p < 2**63:  # all sums below fit machine integers
            times, m = times.astype(np.int64), m.astype(np.int64)
        place = np.arange(m.shape[1]).reshape([r.shape[1] - 1 for r in each[1:]])
        left = place[tuple(0 if f in agree else np.s_[:] for f in rest)].ravel()
        keys = [(a, 0) for f in rest if f not in agree for a in f[0]]
        keys += [k for f in rest for k in ([f[0]] if f in agree else [(a, 1) for a in f[0]])]
        few = m.size * len(left) <= 16 * MOST
        return keys, [(times * abs(m - m[:, [u]]) ** p).sum(axis=0) for u in left] if few else None

    fixed = {f for f in ops if f in alike | {*agree} or all(held[a] == {f} for a in f[0])}
    one = largest(fixed, {a: sizes[a] for f in ops if f not in fixed for a in f[0]}, cells)
    one = one, not summed or (len(summed) == 1 and {*ops} == summed | alike)
    one = (largest(set(ops), {}, cells), False) if one[0] is None else one
    if not replace:
        return one
    fixed = {f for f in ops if not f[0] or (f in agree and agree[f].all())}
    axes: dict[Any, int] = {f[0]: len(agree[f]) for f in {*agree} - fixed}
    axes |= {(a, i): sizes[a] for f in ops if f not in agree for a in f[0] for i in (0, 1)}
    far = largest(fixed, axes, changes)
    far = joined_change(blocks, ops, sizes) if far is None and p == 2 and not (within or summed) else far
    if far is not None:  # a record may also vanish, where the number of records is not public
        far = far, not summed or len(ops) == 1
        return far if public else max(far, one)
    # |a - b|^p <= |a|^p + |b|^p where no entry is negative, else 2^(p - 1) times that
    return one[0] * (2 if all(ops[f].kind in PLAIN or map_entries(ops[f]).min() >= 0 for f in ops) else 2**p), False


def blocks_apart(blocks: Any) -> list[Any]:
    """Blocks in parts that share no attribute: of each a record has a cell of its own, so what it changes adds up."""
    parts = list[tuple[set[str], list[Any]]]()
    for b in blocks:
        own = {a for names, _ in b[1] for a in names}
        joined = [p for p in parts if p[0] & own]
        parts = [p for p in parts if p not in joined]
        parts.append((own.union(*(p[0] for p in joined)), [x for p in joined for x in p[1]] + [b]))
    return [some for _, some in parts]


def cell_places(names: Any, at: Any, sizes: Any, n: int) -> Any:  # of n joint cells, among those of some attributes
    return np.ravel_multi_index([at[a] for a in names], [sizes[a] for a in names]) if names else np.zeros(n, int)


def gram_patterns(own: Any, ops: Any, sizes: Any, differ: Any) -> Any:
    """(patterns, maps) of some maps over joined attributes the products of two columns, for all pairs of cells there
    are; of those that differ in one attribute, where that is one of theirs. None: they are too many to list."""
    names = list(dict.fromkeys(a for f in own for a in f[0]))
    shape, apart = [sizes[a] for a in names], differ in names
    if all(ops[f[1]].kind in ALIKE and len(f[0]) < 2 for f in own):
        tops = [int(max(column_power_sums(ops[f[1]], 2))) for f in own]
        kinds, n = [ops[f[1]].kind for f in own], math.prod(shape)
        others = [{"Identity": 0, "Total": t, "Residual": -n}[k] for k, t in zip(kinds, tops, strict=True)]
        return np.array([tops, others][apart : 1 + (math.prod(shape) > 1)], dtype=object)
    if math.prod(shape) > 1000 or any(a.startswith(COMBINED) for a in names):
        return None
    at = dict(zip(names, np.indices(shape).reshape(len(names), math.prod(shape)), strict=True))
    pairs = np.nonzero(at[differ][:, None] != at[differ] if apart else np.full((math.prod(shape),) * 2, True))
    columns: list[Any] = []
    for some, key in own:
        place = cell_places(some, at, sizes, math.prod(shape))
        entries = map_entries(ops[key])
        wide = int(abs(entries).max()) ** 2 * len(entries) >= 2**62
        entries = entries.astype(object) if wide else entries
        columns.append((entries.T @ entries)[place[pairs[0]], place[pairs[1]]])
    return np.array(sorted({*zip(*(c.tolist() for c in columns), strict=True)}), dtype=object)


def product_bound(blocks: Any, ops: Any, sizes: Any, differ: Any, sign: int) -> int:
    """At most so large is `sign` times the product of two columns, of cells that differ in one attribute if named.

    Maps over attributes that some map joins go together: what they have at all pairs of cells, and of all others so.
    """
    held = list(dict.fromkeys(f for _, fs in blocks for f in fs))
    joined: list[tuple[set[str], list[Any]]] = []
    for f in held:
        mine = [g for g in joined if g[0] & {*f[0]}]
        joined = [g for g in joined if g not in mine]
        joined.append(({*f[0]}.union(*(g[0] for g in mine)), [x for g in mine for x in g[1]] + [f]))
    ways: list[tuple[list[Any], Any]] = []
    for _, own in joined:
        found = gram_patterns(own, ops, sizes, differ)
        tops = [int(max(column_power_sums(ops[f[1]], 2))) for f in own]
        each = [([f], np.array([[t], [-t]], dtype=object)) for f, t in zip(own, tops, strict=True)]
        ways += each if found is None else [(own, found)]
    ways = [(own, table) for own, table in ways if len(table)]
    at = {f: (axis, k) for axis, (own, _) in enumerate(ways) for k, f in enumerate(own)}
    many = [len(table) for _, table in ways]
    total: Any = 0
    if math.prod(many) * len(blocks) <= MOST:
        for m, fs in blocks:
            part: Any = np.full([1] * len(many), m * m, dtype=object)
            for axis, k in (at[f] for f in fs if f in at):
                part = part * ways[axis][1][:, k].reshape([many[axis] if i == axis else 1 for i in range(len(many))])
            total = total + part
        return int(np.max(sign * total))
    for m, fs in blocks:
        low = high = m * m
        for axis, k in (at[f] for f in fs if f in at):
            ends = min(ways[axis][1][:, k]), max(ways[axis][1][:, k])
            corners = [a * b for a in (low, high) for b in ends]
            low, high = min(corners), max(corners)
        total += max(sign * low, sign * high)
    return total


def column_products(blocks: Any, ops: Any, sizes: Any) -> tuple[list[str], Any, Any]:
    """(their attributes, the place of every joint cell in each, products of all pairs of columns); None: too many."""
    every = sorted({a for _, fs in blocks for names, _ in fs for a in names})
    n = math.prod(sizes[a] for a in every)
    if n > 1000 or any(a.startswith(COMBINED) for a in every):
        return every, None, None
    at = dict(zip(every, np.indices([sizes[a] for a in every]).reshape(len(every), n), strict=True))
    gram: Any = np.zeros((n, n), dtype=object)
    for m, fs in blocks:
        part: Any = m * m
        for names, key in fs:
            place = cell_places(names, at, sizes, n)
            entries = map_entries(ops[key]).astype(object)
            part = part * (entries.T @ entries)[np.ix_(place, place)]
        gram = gram + part
    return every, at, gram


def pair_change(blocks: Any, ops: Any, sizes: Any, some: Any, each: int, full: int, rest: int) -> int | None:
    """A bound of the squared change of a person's rows from all pairs of columns; None where cells are many.

    A sum of s columns is as long as its pairs say: s (s - 1) / 2 of them at most, each (|a|^2 + |b|^2) / (s - 1) +
    2 <a, b>. Between none and all rows of one more group what they change is convex.
    """
    every, at, gram = column_products(blocks, ops, sizes)
    if gram is None or full > 64:
        return None
    n = len(gram)
    norms = np.diagonal(gram)
    free = any(a not in every for a in some)  # one more attribute tells groups apart, so that cells may be the same
    apart = np.full((n, n), free)
    for a in some if not free else ():
        apart |= at[a][:, None] != at[a]
    both, product = (norms[:, None] + norms)[apart], gram[apart]

    def twice(s: int) -> int:
        return int(2 * max(norms)) if s == 1 else int(max(s * both + 2 * s * (s - 1) * product))

    found = each**2 * max(twice(s) for s in range(1, full + 1))
    if rest:
        found = max(found, each * (each - rest) * twice(full) + each * rest * twice(full + 1))
    return found // 2


def somebodys_change(blocks: Any, ops: Any, sizes: Any, rows: int, groups: Any) -> int:
    """The squared change of one person there may be, of so many rows or fewer, at most `groups[-1]` in each joint cell
    of the attributes before it: row after row the one that changes most. 0 where cells are many."""
    every, at, gram = column_products(blocks, ops, sizes)
    if gram is None:
        return 0
    *once_per, most = groups
    group = cell_places([a for a in once_per if a in every], at, sizes, len(gram))
    room = np.full(int(np.max(group)) + 1, most * math.prod(sizes[a] for a in once_per if a not in every))
    value, beside = 0, np.zeros(len(gram), dtype=object)
    for _ in range(min(rows, 64)):
        more = np.where(room[group] > 0, np.diagonal(gram) + 2 * beside, 0)
        cell = int(np.argmax(more))
        value, beside = value + max(int(more[cell]), 0), beside + gram[cell]
        room[group[cell]] -= 1
        if more[cell] <= 0:
            break
    return value


def simplex_maximum(gains: Any, limits: Any) -> Fraction:
    """The largest sum of gains times a, a >= 0, where each row of coefficients, times a, is at most its last number.

    These are not negative. By the simplex method with Bland's rule, exactly."""
    n, m = len(gains), len(limits)
    table = [[*map(Fraction, row[:-1]), *(Fraction(i == j) for j in range(m)), Fraction(row[-1])]
             for i, row in enumerate(limits)]  # fmt: skip
    last, basis = [*(Fraction(-g) for g in gains), *(Fraction(0) for _ in range(m + 1))], list(range(n, n + m))
    while (enter := next((j for j in range(n + m) if last[j] < 0), None)) is not None:
        ways = [(row[-1] / row[enter], basis[i], i) for i, row in enumerate(table) if row[enter] > 0]
        if not ways:
            raise Cannot("means without end")
        out = min(ways)[2]
        pivot = [x / table[out][enter] for x in table[out]]
        table = [pivot if i == out else [x - row[enter] * y for x, y in zip(row, pivot, strict=True)]
                 for i, row in enumerate(table)]  # fmt: skip
        last = [x - last[enter] * y for x, y in zip(last, pivot, strict=True)]
        basis[out] = enter
    return last[-1]


def phantom_bound(blocks: Any, ops: Any, sizes: Any, some: Any, each: int, full: int, rest: int) -> int | None:
    """A bound of the squared change of a person's rows where cells are alike: pairs of rows as they can lie together.

    Residuals that were not measured add weights times squares, at least 0, and pull down what no rows can be in all
    their pairs. None: cells are not alike, or there are many.
    """
    held = {f for _, fs in blocks for f in fs}
    every = sorted(a for a in {*some, *(a for f in held for a in f[0])} if sizes[a] > 1)
    plain = all(ops[f[1]].kind in ALIKE and len(f[0]) < 2 for f in held)
    if not plain or not 0 < len(every) < 6 or full > 64:
        return None
    ways = [p for p in product((0, 1), repeat=len(every)) if not any(p) or any(p[every.index(a)] for a in some)]
    gram, own = [0] * len(ways), list[list[int]]()
    tops = {f: int(max(column_power_sums(ops[f[1]], 2))) for f in held}
    others = {f: {"Identity": 0, "Total": tops[f], "Residual": -math.prod(sizes[a] for a in f[0])} for f in held}
    for i, p in enumerate(ways):
        for m, fs in blocks:
            part = m * m
            for f in fs:
                apart = bool(f[0]) and f[0][0] in every and p[every.index(f[0][0])]
                part *= others[f][ops[f[1]].kind] if apart else tops[f]
            gram[i] += part
        signs = [-1 if d else sizes[a] - 1 for a, d in zip(every, p, strict=True)]
        own.append(
            [math.prod(x for x, h in zip(signs, q, strict=True) if h) for q in product((0, 1), repeat=len(every))]
        )
    bodies = [(q * each**2, q * each) for q in range(1, full + 1)]
    bodies += [(full * each**2 + rest**2, full * each + rest)] if rest else []
    if len(ways) < 2:
        return None
    shift = (max(gram[1:]) - min(gram[1:]) + 1) * 2**30  # so that all pairs are told, even of gains below 0
    found = list[Fraction]()
    for s, n in bodies:  # how often pairs agree where: in all, and so that no phantom is below 0
        limits = [
            [-(n * n - s) * own[p][k] for p in range(1, len(ways))] + [s * own[0][k]] for k in range(1, len(own[0]))
        ]
        most = simplex_maximum([g + shift for g in gram[1:]], [[1] * len(ways[1:]) + [1], *limits]) - shift
        found.append(s * gram[0] + (n * n - s) * most)
    return max(map(math.floor, found))


def columns_by_group(blocks: Any, ops: Any, sizes: Any, some: Any) -> list[int] | None:
    """For each joint cell of some attributes a bound of a column's sum of |entries|; None where they are many."""
    shape = [sizes[a] for a in some]
    if math.prod(shape) * len(blocks) > MOST // 4 or any(
        n[0].startswith(COMBINED) for _, fs in blocks for n, _ in fs if n
    ):
        return None
    total: Any = np.zeros(shape, dtype=object)
    for m, fs in blocks:
        part: Any = np.full([1] * len(shape), abs(m), dtype=object)
        for names, key in fs:
            sums = np.array(column_power_sums(ops[key], 1), dtype=object).reshape([sizes[a] for a in names])
            sums = np.max(sums, axis=tuple(i for i, a in enumerate(names) if a not in some))
            order = [a for a in names if a in some]
            sums = np.array(sums, dtype=object).transpose([order.index(a) for a in some if a in order])
            part = part * sums.reshape([sizes[a] if a in order else 1 for a in some])
        total = total + part
    return np.broadcast_to(total, shape).ravel().tolist()


def grouped_person_change(blocks: Any, ops: Any, sizes: Any, p: int, replace: bool, rows: int, groups: Any) -> int:
    """A bound of the sum of |change|^p that a person makes of whose rows at most `groups[-1]` lie in each joint cell of
    the attributes before it."""
    column = largest_record_change(blocks, ops, sizes, p, False, False)[0]
    *once_per, most = groups
    kept = [a for a in once_per if sizes[a] > 1]
    found = list[int]()
    back = 0 if replace and p == 1 else product_bound(blocks, ops, sizes, None, -1) if replace else 0
    plain = all(ops[f[1]].kind in PLAIN or map_entries(ops[f[1]]).min() >= 0 for _, fs in blocks for f in fs)
    subsets = [kept] if len(kept) > 6 else [s for k in range(len(kept) + 1) for s in combinations(kept, k)]
    for some in subsets:
        each = min(rows, most * math.prod(sizes[a] for a in kept if a not in some))
        many = math.prod(sizes[a] for a in some)
        full = min(rows // each, many)
        rest = rows - full * each if full < many else 0
        if p == 1:
            sums = columns_by_group(blocks, ops, sizes, some) or [column] * (full + 1)
            sums = sorted((min(x, column) for x in sums), reverse=True)
            one = each * sum(sums[:full]) + (rest * sums[full] if rest else 0)
            found.append(one * (1 + replace))
            continue
        other = min(column, max((product_bound(blocks, ops, sizes, a, 1) for a in some), default=column))

        def change(q: int, more: int, beside: int, each: int = each, other: int = other) -> int:
            squares = q * each**2 + more**2
            return squares * (column - other) + (q * each + more) ** 2 * (other + beside)

        def worst(beside: int, full: int = full, rest: int = rest, other: int = other, change: Any = change) -> int:
            turn = full if other + beside >= 0 else (column - other) // (-2 * (other + beside))
            some = {min(max(q, 1), full) for q in (turn, turn + 1, full)}
            return max(change(full, rest, beside), *(change(q, 0, beside) for q in some))

        found.append(min(4 * worst(0), 2 * worst(max(0, back))) if replace else worst(0))
        pairs = pair_change(blocks, ops, sizes, some, each, full, rest)
        phantoms = phantom_bound(blocks, ops, sizes, some, each, full, rest)
        times = 1 if not replace else 2 if plain else 4
        found += [x * times for x in (pairs, phantoms) if x is not None]
    return min(found)


def shared_window_bound(f: Any, times: int, apart: int, multiple: int, grain: int, alike: bool) -> int:
    """The same first sum for a table that weighs multiple / 2^grain, where taps reach from one of a person's periods to
    the next: of j of them, at most as many as `times`, j times the longest column and j (j - 1) times the largest
    product of two columns as far apart, or its size, unless what changes is `alike` in all periods."""
    n = int(f.runs.sum())
    if n > 1024:
        raise Cannot("so many periods of which one sum of counts holds several of one person")
    taps = np.repeat(np.sign(f.taps) * (abs(f.taps) * multiple >> grain), f.runs, axis=0)
    columns = np.zeros((n, n + taps.shape[1]), dtype=np.int64)
    for t in range(n):
        columns[t, t : t + taps.shape[1]] = taps[t]
    columns, far = columns[:, :n], list[int]()
    for t in range(apart, n):
        products = columns[: t - apart + 1, t:] @ columns[t, t:]
        far.append(int((products if alike else abs(products)).max()))
    longest = int((columns**2).sum(axis=1).max())
    return max(j * longest + j * (j - 1) * max(far, default=0) for j in range(1, times + 1))


def somebody_is_heard(f: Any, times: int, apart: int) -> Fraction:
    """What those who come every `apart` periods bring about, at their dearest: no more than the bound below says."""
    if f.taps is None:
        return (stream_filter_bounds(f, times, apart)[0] - 1) / SLACK
    taps = np.repeat(f.taps, f.runs, axis=0)
    n, reach = taps.shape
    squares = [int((taps[t, : n - t] ** 2).sum()) for t in range(n)]
    many = times if reach <= apart else 1  # else two of them may take from each other
    return Fraction(max(sum(squares[t::apart][:many]) for t in range(n)))


def stream_filter_bounds(f: Any, times: int, apart: int) -> tuple[Fraction, Fraction]:
    """Above the sums of squares, over all periods, of what 1 in a cell brings about and of what rounding adds to that.

    Of a stream's filter, cell by cell, with public integers r, c, b of every period, e, g and a shift:

        s_t = c_t x_t + sum_i p_i,    y_t = floor(s_t r_t / 2^shift),    p_i <- p_i - floor(p_i e_i / 2^g_i) + b_it x_t.

    The first is of 1 in any one period, times 4^shift, or in as many as `times`, each `apart` after the one before:
    where periods are alike and no response grows, 0, apart, 2 apart, ... is the worst. The floors move two states that
    change alike by less than 1 apart, so the change of a state in t by less than 1 + theta + ... + theta^(t-2), theta =
    1 - e / 2^g, and that of y_t by less than 1 + r_t / 2^shift times the sum of these, however many counts change.
    All are sums and products of doubles that are not negative, at most 2^22 behind each other: see SLACK.

    Or of a filter of taps, y_t = sum_j a_uj x_u, j = t - u below their number: nothing is rounded, and periods that are
    further apart than taps reach are heard one by one. Of others see `shared_window_bound`.
    """
    if f.taps is not None:
        a, n = f.taps, int(f.runs.sum())
        sound = a.dtype == f.runs.dtype == np.int64 and a.ndim == 2 and len(a) == len(f.runs) and a.size
        if not sound or f.runs.min() < 1 or n > 2**20 or max(a.max(), -int(a.min())) >= 2**25 or a.shape[1] > 2**12:
            raise ValueError("a stream's filter has other integers than a filter may have")
        return Fraction(times * int((a**2).sum(axis=1).max())), Fraction(0)
    (e, g), n, d = f.decays.T, int(f.runs.sum()), len(f.decays)
    within = [(f.runs, 1, 20), (f.rows, 1, 20), (f.direct, 1, 62), (f.carried, 0, 62), (g, 0, 6), (e, 1, 53)]
    held = all(a.dtype == np.int64 and low <= a.min() and a.max() <= 2**bits for a, low, bits in within)
    shapes = [a.shape for a in (f.decays, f.rows, f.direct, f.carried)]
    m = len(f.runs)
    if not held or shapes != [(d, 2), (m,), (m,), (m, d)] or n > 2**20 or max(g) > 53 or any(e > 2**g):
        raise ValueError("a stream's filter has other integers than a filter may have")
    r, c, b = (np.repeat(a, f.runs, axis=0).astype(float) for a in (f.rows, f.direct, f.carried))
    kept, longest, rounded = (2.0**g - e) / 2.0**g, 0.0, 0.0  # exact, for g is at most 53
    later, both = np.zeros((d, d)), np.outer(kept, kept)
    for t in reversed(range(n if times == 1 else 0)):  # column by column, from the last
        longest = max(longest, (r[t] * c[t]) ** 2 + float(b[t] @ later @ b[t]))
        later = r[t] ** 2 + both * later
    if times > 1 and (m > 1 or sum(f.carried[0].tolist()) > int(f.direct[0])):
        raise Cannot("several periods of one person where periods differ, or responses grow")
    state, off = np.zeros(d), np.zeros(d)
    for t in range(n):
        here = float(t % apart == 0 and t < times * apart)
        longest += (r[t] * (c[t] * here + state.sum())) ** 2 if times > 1 else 0.0
        state = kept * state + b[t] * here
        rounded += (1 + r[t] * off.sum() / 2.0**f.shift) ** 2
        off = kept * off + 1 if t else off
    return Fraction(longest) * SLACK + 1, Fraction(rounded) * SLACK
