"""A stranger's check of a release: what its noise costs, derived anew from its own files and the ledger that paid.

    python check_release.py DIR --ledger LEDGER [--anchor ANCHOR] [--json]

It imports numpy and the standard library, nothing of sfumato. DIR is a release's folder, or the file of a sketch.
Exit code 0: accepted. 2: rejected, with every reason; or not checked, with what this file has no way to check.
PROVED, if the values are B x + z, x the counts, B the stored integer maps, z independent draws of the stored law: the
release keeps the guarantee that its ledger line states. By the names of the checks:
  maps   those of the plan's strategy are those of the values     total  a number of records is public only where it may
  price  this noise costs, at the sensitivity found here in integers, at most the price, and that keeps the budget
  looks  no more was chosen or measured than was paid for         files  release.json says what the release holds
  chain  the ledger's lines hash on from each other, add up, and each costs at least what its event does (and anchor)
  entry  the ledger's line is of this plan, price and name, and its result is these values and no others
  unit   neighbours, person, rows and table are those of the ledger's line
TRUSTED, as no file shows it: that samplers draw the law; that rows were counted under the declared domain and limits;
that what is called public is; that choices among candidates were made at their price; that answers, models and pages
follow from the values alone. A ledger made anew as a whole is found by an anchor kept elsewhere, or not at all.
"""

import argparse
import json
import math
import sqlite3
import sys
import zipfile
from collections.abc import Callable
from contextlib import closing
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import reduce
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
MOST = 2**22  # entries of a matrix or table that is written out; of what is larger a bound is taken, or nothing said
ALIKE = ("Identity", "Total", "Residual")  # maps of which any two cells may be exchanged, if rows are with them
LAWS = {"RoundedGaussian": ("gaussian", 2, 1), "DiscreteGaussian": ("zcdp", 2, 2), "DiscreteLaplace": ("pure", 1, 1)}
CURRENCY = {"pure": "epsilon", "zcdp": "rho", "gaussian": "mu^2", "gdp": "mu^2"}  # in which events and budgets add up
HASHED = "workload keys budget unit mechanism strategy map noise price stability course body"  # of plans
BROKEN = ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError, sqlite3.Error, zipfile.BadZipFile
ROOT = Decimal("2.50662827463100050241576528481104525300698674060993831662992357634229365460784197494659583837806")
SLACK = Decimal("1e-85")  # far more than arithmetic of 110 digits, and this root of 2 pi, are wrong by
Cannot = NotImplementedError  # what this file has no way to check


class Doc(dict[str, Any]):  # what a file holds: .name is what is stored under a name, or None
    def __getattr__(self, name: str) -> Any:
        return self.get("~class" if name == "kind" else name)


def read(path: Path) -> Any:  # a stored document, a zip of JSON and plain arrays, the arrays in place of their names
    with zipfile.ZipFile(path) as bundle:
        text, names = bundle.read("document.json"), [n for n in bundle.namelist() if n.endswith(".npy")]
        arrays = {n[:-4]: np.lib.format.read_array(bundle.open(n), allow_pickle=False) for n in names}
    for key, name in json.loads(text).get("~outside", {}).items():  # values too many for memory lie beside
        arrays[key] = np.load(path.parent / Path(name).name, mmap_mode="r", allow_pickle=False)
    found = json.loads(text, object_hook=lambda d: arrays[d["~array"]] if "~array" in d else Doc(d))
    return found["value"] if "~outside" in found else found


def fingerprint(value: Any) -> str:  # SHA-256 of a document and its arrays: by it ledgers know plans and results
    arrays = list[Array]()
    text = json.dumps(value, default=lambda a: arrays.append(a) or {"~array": f"a{len(arrays) - 1}"})
    digest = sha256(json.dumps(json.loads(text), sort_keys=True).encode())
    for i, array in enumerate(arrays):
        digest.update(f"a{i}:{array.dtype.str}:{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def number(value: Any) -> Fraction:  # an exact number; a float is none
    if not isinstance(value, dict):
        return Fraction(value.__index__())
    return Fraction(int(value["~integer"], 16)) if "~integer" in value else Fraction(*map(number, value["~fraction"]))


def event_of(doc: Any) -> str:  # a stored event as ledgers write it
    kind = "bounded-range" if doc.kind == "BoundedRangeEvent" else doc.kind.removesuffix("Event").lower()
    return " ".join([kind, *(str(number(v)) for k, v in doc.items() if k != "~class")])


def tree(o: Any) -> Array:  # a row for every aligned block of cells, widest first, but those that repeat an only child
    widths = [o.branching**i for i in range(64) if not i or o.branching ** (i - 1) < o.n]
    kept = [(s, w) for w in widths[::-1] for s in range(0, o.n, w) if w == 1 or s + w // o.branching < o.n]
    cells = np.arange(o.n)
    return np.array([(cells >= s) & (cells < s + w) for s, w in kept[o.n > 1 and not o.root :]], dtype=int)


def sparse(o: Any) -> Array:
    out = np.zeros((len(o.indptr) - 1, o.columns), dtype=o.data.dtype)
    out[np.repeat(np.arange(len(out)), np.diff(o.indptr)), o.indices] = o.data
    return out


def toeplitz(o: Any) -> Array:  # entry (i, j) is multiples_i coefficients_(i - j), and 0 above the diagonal
    i = np.arange(len(o.multiples))
    return np.tril(o.coefficients.astype(object)[abs(i[:, None] - i)]) * o.multiples[:, None]


ROWS: dict[str, Callable[[Any], Array]] = {  # the matrix that an operator is, by its name. A later kind adds a line
    "Identity": lambda o: np.eye(o.n, dtype=int),
    "Total": lambda o: np.ones((1, o.n), int),
    "Residual": lambda o: o.n * np.eye(o.n, dtype=int) - 1,
    "Prefix": lambda o: np.tri(o.n, dtype=int),
    "Window": lambda o: (np.tri(o.n, k=o.width - 1) - np.tri(o.n, k=-1))[: o.n - o.width + 1].astype(int),
    "AllRange": lambda o: np.vstack([np.tri(o.n, dtype=int)[s:] * (np.arange(o.n) >= s) for s in range(o.n)]),
    "Tree": tree,
    "Dense": lambda o: o.matrix,
    "Sparse": sparse,
    "Grouping": lambda o: np.array(o.codes == np.arange(o.groups)[:, None], dtype=int),
    "Toeplitz": toeplitz,
    "Stack": lambda o: np.concatenate(list(map(matrix, o.parts))),
    "Kronecker": lambda o: np.array(reduce(np.kron, [matrix(f).astype(object) for f in o.factors])),
    "Compose": lambda o: matrix(o.left).astype(object) @ matrix(o.right),
    "Padded": lambda o: np.pad(matrix(o.operator), ((0, 0), (0, o.extra))),
    "Scaled": lambda o: matrix(o.operator).astype(object) * int(number(o.factor)),
}


def matrix(op: Any) -> Array:  # all entries: integers of 64 bits, or Python's own where they may be larger
    if op.kind not in ROWS or (op.n or 0) > 2 * MOST**0.5:
        raise Cannot(f"maps made with {op.kind}, or so large ones")
    out = ROWS[op.kind](op)
    if out.dtype.kind not in "iO" or out.ndim != 2 or out.min() == -(2**63):
        raise ValueError("a map that was measured has entries that are no integers below 2^63")
    return out


def column(op: Any, p: int) -> Array:  # of every column the sum of |entry|^p
    if op.kind in ALIKE:
        return np.full(op.n, (2 * op.n - 2, op.n**2 - op.n)[p - 1] if op.kind == "Residual" else 1, dtype=object)
    a = abs(matrix(op))
    return ((a if int(a.max()) ** p * len(a) < 2**63 else a.astype(object)) ** p).sum(axis=0).astype(object)


def composed(rows: Array, maps: list[Any]) -> Any:  # a matrix after the product of some maps
    left, right = Doc({"~class": "Dense", "matrix": rows}), Doc({"~class": "Kronecker", "factors": maps})
    return Doc({"~class": "Compose", "left": left, "right": maps[0] if len(maps) == 1 else right}) if maps else left


def orbits(group: Any) -> Any:  # by piece the sums over joint orbits (kind -1), and contrasts inside others
    for piece in group.pieces:
        joint, maps, out = list[str](), list[Any](), list[Any]()
        for name, axis, kind in zip(group.names, group.axes, piece.kinds, strict=True):
            codes = axis.orbits if kind < 0 else axis.contrasts[kind].children
            sums = Doc({"~class": "Grouping", "codes": codes[axis.cells], "groups": int(codes.max()) + 1})
            if kind >= 0:
                same = axis.contrasts[kind].parents
                between = axis.contrasts[kind].count * np.eye(len(same), dtype=int) - (same[:, None] == same)
                out.append(([name], composed(between, [sums])))
            elif sums.groups > 1:
                joint, maps = [*joint, name], [*maps, sums]
        yield [(joint, composed(piece.matrix, maps)), *out]


def combined(s: Any) -> Any:  # sums of rows of blocks, over the cells that their factors tell apart by attribute
    each = [{g[0]: matrix(f) for g, f in zip(b.groups, b.factors, strict=True) if len(g) == 1} for b in s.blocks]
    seen = {a: np.vstack([e[a] for e in each if a in e]) for a in sorted({a for e in each for a in e})}
    kept = {a: np.unique(m, axis=1, return_index=True)[1] for a, m in seen.items()}
    joint = math.prod(map(len, kept.values()))
    if joint * s.matrix.size > 8 * MOST or any(len(e) < len(b.groups) for e, b in zip(each, s.blocks, strict=True)):
        raise Cannot("combined queries that join attributes, or tell very many cells apart")
    place = dict(zip(kept, np.indices([len(k) for k in kept.values()]).reshape(len(kept), joint), strict=True))
    held = [[e[a][:, kept[a][place[a]]] for a in e] for e in each]
    rows = [reduce(lambda x, m: (x[:, None] * m).reshape(-1, joint), h, np.ones((1, joint), int)) for h in held]
    return Doc({"~class": "Dense", "matrix": np.array((s.matrix.astype(object) @ np.vstack(rows)).tolist())})


def blocks(s: Any, ops: dict[str, Any]) -> list[Any]:
    """What a strategy, or an entry of a measurement, measures: (multiple, ((attributes, key in ops), ...)) by block."""
    if s.kind in ("Stacked", "Biased", "Merged"):
        return [b for part in s.pieces or [s.measured] for b in blocks(part, ops)]
    simple = {"Cells": "Identity", "TotalOnly": "Total"}  # factors of strategies; others hold their operator
    own: Any = [f.tree or f.operator or Doc(f | {"~class": simple.get(f.kind, f.kind)}) for f in s.factors or []]
    plain = [Doc({"~class": "Residual", "n": n}) for n in s.shape or []]  # n I - J, or contrasts of their own
    contrasts = [c or r for c, r in zip(s.contrasts or plain, plain, strict=True)]

    def family(maps: Any, sets: Any, multiples: Any) -> Any:  # a block for every set of attributes
        each = [([name], op) for name, op in zip(s.names, maps, strict=True)]
        multiples = [1] * len(sets) if multiples is None else multiples
        return [(m, [each[i] for i in some]) for some, m in zip(sets, multiples, strict=True)]

    cases: dict[str, Any] = {  # a later kind adds a case
        "Block": lambda: [(1, zip(s.groups, s.factors, strict=True))],
        "Family": lambda: family(s.factors, s.sets, s.multiples),
        "Product": lambda: [(s.multiple, zip(s.groups, own, strict=True))],
        "Canonical": lambda: [(s.multiple, [([s.attribute], s.tree)])],
        "WeightedTables": lambda: family(own, s.sets, s.multiples),
        "Residuals": lambda: [b for x in zip(s.sets, s.multiples, strict=True) for b in family(contrasts, *x)],
        "Combination": lambda: [(1, [(["combined " + fingerprint(s.matrix)], combined(s))])],
        "Orbits": lambda: [(1, [f for some in x for f in some]) for x in product(*map(orbits, s.groups))],
    }
    if s.kind.removeprefix("Pair") not in cases:
        raise Cannot(f"strategies of the kind {s.kind}")
    out = list[Any]()
    for multiple, factors in cases[s.kind.removeprefix("Pair")]():
        times, kept = int(multiple), list[Any]()
        for names, op in factors:
            while op.kind == "Scaled":
                times, op = times * int(number(op.factor)), op.operator
            if names or op.kind != "Identity":
                kept.append((tuple(names), fingerprint(op)))
                ops[kept[-1][1]] = op
        out += [(times, tuple(sorted(kept)))] if multiple else []  # 0: what is known, and so not measured
    return out


def sensitivity(blocks: Any, ops: Any, sizes: Any, p: int, replace: bool, public: bool) -> tuple[int, bool]:
    """The largest sum of |change|^p that one record makes, and whether one makes it, or it is a bound.

    What a record does to a block is told by its cells of the block's attributes, or by those it leaves and takes:
    a table, found column by column. The tables of all blocks are added up, and the largest entry is taken.
    """
    ops = {f: ops[f[1]] for _, fs in blocks for f in fs}
    held = {a: {f for f in ops if a in f[0]} for f in ops for a in f[0]}
    alike = {f for f in ops if ops[f].kind in ALIKE}
    simple = {f for f in alike if all(g in alike and g[0] == f[0] for a in f[0] for g in held[a])}
    columns = {f: column(ops[f], p) for f in ops}
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
        return int(np.max(total))

    def cells(rest: Any) -> Any:
        return [a for f in rest for a in f[0]], reduce(np.kron, [columns[f] for f in rest], np.ones(1, int))

    def changes(rest: Any) -> Any:  # where all cells are alike two of them, and rows as often as they occur
        each = [np.ones((1, 2), int)]
        for f in rest:
            a, b = (1, 0) if ops[f].kind == "Identity" else ((ops[f].n or 0) - 1, -1)
            two = [(1, a, b), (1, b, a), ((ops[f].n or 0) - 2, b, b)]
            each.append(np.array(two) if f in simple else np.insert(matrix(ops[f]), 0, 1, axis=1))
        times, m = (reduce(np.kron, [r[:, i].astype(object) for r in each]) for i in (np.s_[:1], np.s_[1:]))
        place = np.arange(m.shape[1]).reshape([r.shape[1] - 1 for r in each[1:]])
        left = place[tuple(0 if f in simple else np.s_[:] for f in rest)].ravel()
        keys = [(a, 0) for f in rest if f not in simple for a in f[0]]
        keys += [k for f in rest for k in ([f[0]] if f in simple else [(a, 1) for a in f[0]])]
        few = m.size * len(left) <= 16 * MOST
        return keys, [(times * abs(m - m[:, [u]]) ** p).sum(axis=0) for u in left] if few else None

    fixed = {f for f in ops if f in alike or all(held[a] == {f} for a in f[0])}
    one = largest(fixed, {a: sizes[a] for f in ops if f not in fixed for a in f[0]}, cells), True
    one = (largest(set(ops), {}, cells), False) if one[0] is None else one
    if not replace:
        return one
    fixed = {f for f in ops if not f[0] or (f in simple and (ops[f].kind == "Total" or ops[f].n == 1))}
    axes: dict[Any, int] = {f[0]: 2 for f in simple - fixed}
    axes |= {(a, i): sizes[a] for f in ops if f not in simple for a in f[0] for i in (0, 1)}
    far = largest(fixed, axes, changes)
    if far is not None:  # a record may also vanish, where the number of records is not public
        return (far, True) if public else max((far, True), one)
    # |a - b|^p <= |a|^p + |b|^p where no entry is negative, else 2^(p - 1) times that
    return one[0] * (2 if all(ops[f].kind in ALIKE[:2] or matrix(ops[f]).min() >= 0 for f in ops) else 2**p), False


def real(x: Fraction) -> Decimal:
    return Decimal(x.numerator) / x.denominator


def tail(x: Decimal) -> Decimal:  # P(N > x) for a standard normal N and |x| <= 15, wrong by less than SLACK
    term = total = x
    for k in range(3, 2000, 2):
        term *= x * x / k
        total += term
    return Decimal("0.5") - total * (-x * x / 2).exp() / ROOT


def cost(event: str, currency: str) -> Fraction:  # at most this where a ledger adds it up; KeyError: it has no price
    kind, e = event.split()[0], Fraction(event.split()[1])
    if currency == "mu^2" and kind in ("pure", "bounded-range"):  # the least mu^2 of all such mechanisms, rounded up
        if e > 100:
            raise Cannot(f"an epsilon of {float(e):.3g} as mu^2")
        e = real(e if kind == "pure" else e / 2)
        low, high = Decimal(0), (8 * e).sqrt()
        for _ in range(80):
            mu = (low + high) / 2
            low, high = (low, mu) if (tail(mu / 2) + SLACK) * (1 + e.exp()) <= 1 else (mu, high)
        return Fraction(high) ** 2
    known = {("epsilon", k): e for k in ("pure", "bounded-range", "approx")} | {("mu^2", "gaussian"): e}
    rho = {"gaussian": e / 2, "pure": e**2 / 2, "zcdp": e, "bounded-range": e**2 / 8}
    return rho[kind] if currency == "rho" else known[currency, kind]


def keeps(event: str, stated: str, b: Fraction, delta: Fraction) -> bool:  # whether it is as private as a budget says
    kind, e, own = [*event.split(), "0"][:3]
    if stated != "approx":
        return cost(event, CURRENCY[stated]) <= (b * b if stated == "gdp" else b)
    if kind in ("pure", "approx"):
        return Fraction(e) <= b and Fraction(own) <= delta
    mu, eps = real(Fraction(e)).sqrt(), real(b)
    if kind != "gaussian" or eps / mu + mu / 2 > 15:
        raise Cannot("so large an epsilon, so small a delta, or zCDP as the price of both")
    return tail(eps / mu - mu / 2) + SLACK - eps.exp() * (tail(eps / mu + mu / 2) - SLACK) <= real(delta)


class Check:  # of one release: what is wrong, by the name of the check, and what this file has no way to check
    def __init__(self, release: Path, ledger: Path, anchor: str | None = None) -> None:
        self.wrong, self.unknown = list[tuple[str, str]](), list[str]()
        try:
            with localcontext(Context(prec=110, Emax=10**9, Emin=-(10**9))):
                self.release(release, ledger, anchor)
        except Cannot as error:
            self.unknown.append(str(error))
        except BROKEN as error:
            self.wrong.append(("files", f"something cannot be read: {error!r}"))
        self.verdict = "rejected" if self.wrong else "not checked" if self.unknown else "accepted"

    def must(self, check: str, why: str, holds: Any) -> None:
        self.wrong += [] if holds else [(check, why)]

    def ledger(self, path: Path) -> Any:  # its lines, those that spend with the result they paid for, and all hashes
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as file:
            old = file.execute("PRAGMA user_version").fetchone()[0] == 1  # 0.1 kept the same facts in columns
            kept = ["genesis", "entries"] if old else ["lines"]
            rows = [row for table in kept for row in file.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()]
        hashes, lines = ["sfumato ledger"], list[list[str]]()
        for n, (sequence, *body, digest) in enumerate(rows):
            text = "\n".join(map(str, [sequence, *body[:-1]] if n else body)).encode() if old else body[0]
            hashes.append(sha256(f"{hashes[-1]}\n".encode() + text).hexdigest())
            lines.append(text.decode().split("\n"))
            self.must("chain", f"line {n} breaks the chain", (sequence, digest) == (n + (old and not n), hashes[-1]))
        _, granted, currency, total, _, *name = lines[0]
        given = {k: Fraction(v) for k, v in json.loads(granted).items()}
        stated = "approx" if "delta" in given else {"epsilon": "pure", "rho": "zcdp", "mu": "gdp"}[min(given)]
        event, most = {"epsilon": "pure", "rho": "zcdp", "mu^2": "gaussian"}[currency], given.get("delta", Fraction(0))
        self.must("chain", "the total is above the budget", keeps(f"{event} {total}", stated, given[max(given)], most))
        unit, table, spent, delta, seen = "", "".join(name), Fraction(0), Fraction(0), dict[str, list[str]]()
        for n, line in enumerate(lines[1:], 1):
            if line[1] == "named":
                self.must("chain", f"line {n} names a table that has a name", not table)
                table = line[2]
            elif line[1] == "released":
                paid = seen[line[2]]
                right = paid[:5] == [line[8], "spend", *line[2:5]] and not paid[9]
                self.must("chain", f"line {n} stores what was not paid for, or again", right)
                paid[9] = line[9]
            else:
                price, whom = Fraction(line[5]), line[10:] or [unit, table]
                spent, delta = spent + price, delta + abs(Fraction([*line[4].split(), "0"][2]))
                right = line[0] == str(n) and Fraction(line[6]) == spent <= Fraction(total) and delta <= most
                self.must("chain", f"line {n} does not add up, or is above the total", right)
                right = price >= max(Fraction(0), cost(line[4], currency)) and line[2] not in seen
                self.must("chain", f"line {n} paid less than it cost, or pays for a name again", right)
                self.must("chain", f"line {n} is of another unit or table", whom == [unit or whom[0], table or whom[1]])
                (unit, table), seen[line[2]] = whom, line
        return lines, hashes[1:]

    def paid(self, value: int, exact: bool, noise: Any, event: str) -> None:
        kind, p, times = LAWS[noise.kind]
        given, price = event.split()
        covered = times * number(noise["scale" if p == 1 else "sigma"]) ** p * Fraction(price) if given == kind else -1
        if not exact and 0 <= covered < value:
            self.unknown.append(f"a sensitivity of {float(covered):.6g}, which was paid; it proves {float(value):.6g}")
        else:
            self.must("price", f"noise at sensitivity {value} costs more than was paid", value <= covered)

    def measured(self, m: Any, event: str, plan: Any, unit: Any) -> Any:  # its blocks, and the sensitivity if exact
        sizes, ops, public = dict[str, int](), dict[str, Any](), unit[0] == "replace-one" and unit[1] is None
        for name, a in plan.workload.domain.attributes["~map"]:
            many = a.source or a.get("values", {}).get("~map") or (a.edges or [0, 1, 2])[1:]  # a boolean has two cells
            many = len(many) if a.low is None else -((a.low - a.high - 1) // a.width)
            sizes[name] = many + ("other" in (a.outside, a.missing))
            public = public and "drop" not in (a.outside, a.missing)
        self.must("total", "the number of records is not public, and stands there", public or m.total is None)
        entries = [blocks(entry, ops) for entry in m.blocks]
        shapes = {k: matrix(op).shape for k, op in ops.items() if op.kind not in ALIKE}
        shapes |= {k: (1 if op.kind == "Total" else op.n, op.n) for k, op in ops.items() if op.kind in ALIKE}
        own = {a: k for e in entries for _, fs in e for some, k in fs for a in some if a.startswith("combined ")}
        sizes |= {a: shapes[k][1] for a, k in own.items() if a not in sizes}
        for entry, values in zip(entries, m["values"], strict=True):
            rows = sum(math.prod(shapes[k][0] for _, k in fs) for _, fs in entry)
            fits = all(shapes[k][1] == math.prod(sizes[a] for a in some) for _, fs in entry for some, k in fs)
            self.must("maps", "maps do not fit the cells of their attributes", fits)
            named = [[a for some, _ in fs for a in some] for _, fs in entry]
            self.must("maps", "a block names an attribute twice", all(len({*some}) == len(some) for some in named))
            self.must("maps", "values do not fit their maps", values.dtype == np.int64 and values.shape == (rows,))
        maps, p = [b for entry in entries for b in entry], LAWS[m.noise.kind][1]
        value, exact = sensitivity(maps, ops, sizes, p, unit[0] == "replace-one", public)
        self.paid(value * unit[2] ** p, exact, m.noise, event)
        return maps, value * unit[2] ** p if exact else 0

    def single(self, plan: Any, m: Any, unit: Any) -> None:  # one look, at what the plan says
        maps, value = self.measured(m, event_of(plan.price), plan, unit)
        self.must("maps", "other maps were measured than the plan describes", blocks(plan.strategy, {}) == maps)
        self.must("price", "other noise was drawn than the plan says", plan.noise == m.noise)
        self.must("price", "the sensitivity is larger than the plan says", number(plan.sensitivity.value) >= value)

    def looks(self, plan: Any, out: Any, unit: Any) -> None:  # several, each at its price. A later kind adds its draws
        course, rounds, one = plan.course, plan.course.rounds, event_of(plan.course.measurement)
        draws = {"MwemCourse": [(rounds, 1)], "BoostingCourse": [(course.samples, t) for t in range(1, rounds)]}
        if course.kind not in draws:
            raise Cannot(f"courses of the kind {course.kind}")
        free = unit[0] == "replace-one" and unit[1] is None  # the number of records
        kind, whole = event_of(plan.price).split()
        draw, most = number(course.selection.epsilon), rounds + (not free)
        total = sum(n * cost(f"bounded-range {t * draw}", CURRENCY[kind]) for n, t in draws[course.kind])
        total += most * cost(one, CURRENCY[kind])
        self.must("price", "the looks cost more than the price", total <= Fraction(whole))
        looks = [m for m in out if m.kind == "Measurement"]
        paid, chosen = [m for m in looks if not free or any(b.groups != [] for b in m.blocks)], len(out) - len(looks)
        self.must("looks", "more was measured than was paid for", len(paid) <= most)
        self.must("looks", "more was chosen than was paid for", chosen <= sum(n for n, _ in draws[course.kind]))
        for m in looks:
            self.measured(m, one, plan, unit)

    def keys(self, plan: Any, m: Any, unit: Any) -> None:  # maps of keys have bounded columns whatever their hash is
        o, event, p, replace = plan.map, event_of(plan.price), LAWS[m.noise.kind][1], unit[0] == "replace-one"
        rows = o.width or o.size or len(o.elements)
        change = {"Buckets": (1, 2**p), "Signs": (rows, rows * 2**p), "Listed": (1, min(2, rows))}[o.kind][replace]
        same, values = fingerprint([o, plan.noise]) == fingerprint([m.map, m.noise]), m["values"]
        self.must("maps", "another map or noise was measured than the plan says", same)
        self.must("maps", "values do not fit their map", values.dtype == np.int64 and values.shape == (rows,))
        if plan.stability is None:
            self.must("price", "keys are shown that were not paid for", not len(m.heavy))
        else:  # keys whose noisy count reaches a threshold are shown first
            scale, (_, e, delta) = number(plan.stability.noise.scale), event.split()
            odds = (-1 / real(scale)).exp()
            shown = odds ** (plan.stability.threshold - 1) / (1 + odds) <= real(Fraction(delta))
            self.must("price", "keys are shown at more than the price's delta", shown and unit[2] == 1)
            event = f"pure {Fraction(e) - (1 + replace) / scale}"
        self.paid(change * unit[2] ** p, True, m.noise, event)

    def release(self, path: Path, ledger: Path, anchor: str | None) -> None:
        it = read(path / "release.sfumato" if path.is_dir() else path)
        plan, proof, b = it.plan, it.provenance, it.plan.budget
        checks = {"Plan": self.single, "CoursePlan": self.looks, "KeyPlan": self.keys}
        if plan.kind not in checks:
            raise Cannot(f"plans of the kind {plan.kind}")
        unit, event = [plan.unit.neighbours.value, plan.unit.person, plan.unit.rows_per_person], event_of(plan.price)
        known = unit[0] in ("add-remove", "replace-one") and type(unit[2]) is int and unit[2] >= 1
        self.must("price", "there is no such unit", known)
        kept = keeps(event, b["kind"], number(b.parameter), number(b.delta or 0))
        self.must("price", "the price is above the budget that is stated", kept)
        checks[plan.kind](plan, it.measurement, unit)
        lines, hashes = self.ledger(ledger)
        n, told = proof.sequence, fingerprint([plan[k] for k in HASHED.split() if k in plan])
        line, places = lines[n] if n < len(lines) else [""] * 12, [f"{i}:{digest}" for i, digest in enumerate(hashes)]
        self.must("anchor", "the ledger does not go on from it", anchor in (None, *places))
        right = lines[0][0] == proof.ledger_id and proof.anchor in places[n : n + 1]
        self.must("entry", "it was paid from another ledger, or by another line", right)
        right = line[1:5] == ["spend", proof.name, told, event] and line[9] == fingerprint(it.measurement)
        self.must("entry", "the line that paid has another name, plan, price or result", right)
        whom = [json.dumps(unit), proof.table or ""]
        self.must("unit", "the line that paid is of another unit or table", line[10:] in ([], whom))
        self.unknown += ["an account in memory, which no file shows"] if proof.one_shot else []
        if path.is_dir():
            facts = json.loads((path / "release.json").read_text(encoding="utf-8"), object_hook=Doc)
            named = {"pure": "epsilon", "approx": "epsilon", "zcdp": "rho", "gdp": "mu"}[b["kind"]]
            budget = {named: str(number(b.parameter))} | ({} if b.delta is None else {"delta": str(number(b.delta))})
            said = [facts.name, facts.table, facts.hashes.plan, facts.privacy.budget, *list(facts.ledger.values())[1:]]
            said += [facts.privacy.neighbours, facts.privacy.person, facts.privacy.rows_per_person]
            right = said == [proof.name, proof.table, told, budget, proof.ledger_id, n, proof.anchor, *unit]
            self.must("files", "release.json says something else than the release", right)
            for name, digest in ({"release.sfumato": None} | facts.files).items():
                self.must("files", f"{name} was changed", sha256((path / name).read_bytes()).hexdigest() == digest)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("release", type=Path)
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--anchor")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    found = Check(asked.release, asked.ledger, asked.anchor)
    facts = {"verdict": found.verdict, "wrong": found.wrong, "cannot_check": found.unknown}
    said = [found.verdict, *map(": ".join, found.wrong), *(f"cannot check {what}" for what in found.unknown)]
    sys.stdout.write((json.dumps(facts) if asked.json else "\n".join(said)) + "\n")
    return 0 if found.verdict == "accepted" else 2


if __name__ == "__main__":
    sys.exit(main())
