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

from __future__ import annotations

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


class Cannot(Exception):
    """What this file has no way to check."""


def pick(table: Any, kind: str, what: str) -> Any:
    if kind not in table:
        raise Cannot(f"{what} of the kind {kind}")
    return table[kind]


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
    if isinstance(value, dict) and "~fraction" in value:
        return Fraction(*map(number, value["~fraction"]))
    return Fraction(int(value["~integer"], 16) if isinstance(value, dict) else value.__index__())


def event_of(doc: Any) -> str:  # a stored event as ledgers write it
    kind = "bounded-range" if doc.kind == "BoundedRangeEvent" else doc.kind.removesuffix("Event").lower()
    return " ".join([kind, *(str(number(v)) for k, v in doc.items() if k != "~class")])


# a row for every aligned block of cells but those that repeat their only child, widest first
def tree(o: Any) -> Array:
    widths = [o.branching**i for i in range(64) if not i or o.branching ** (i - 1) < o.n]
    kept = [(s, w) for w in widths[::-1] for s in range(0, o.n, w) if w == 1 or s + w // o.branching < o.n]
    kept = kept[o.n > 1 and not o.root :]
    return np.array([(np.arange(o.n) >= s) & (np.arange(o.n) < s + w) for s, w in kept], dtype=int)


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


def shape(op: Any) -> tuple[int, int]:  # (rows, cells)
    return (1 if op.kind == "Total" else op.n, op.n) if op.kind in ALIKE else matrix(op).shape


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


class Maps:  # blocks: multiples of Kronecker products of (attributes, operator's fingerprint), read from documents
    def __init__(self, sizes: dict[str, int]) -> None:
        self.blocks, self.ops, self.sizes = list[Any](), dict[str, Any](), sizes

    def factor(self, names: Any, op: Any) -> Any:  # (its integer multiple, what is left)
        times = 1
        while op.kind == "Scaled":
            times, op = times * int(number(op.factor)), op.operator
        key = fingerprint(op)
        self.ops[key] = op
        return times, [(tuple(names), key)] if names or op.kind != "Identity" else []

    def put(self, multiple: int, factors: Any) -> None:  # a multiple of 0 says that what is known is not measured
        kept = sorted(f for _, some in factors for f in some)
        if len({a for names, _ in kept for a in names}) < sum(len(names) for names, _ in kept):
            raise ValueError("a block names an attribute twice")
        self.blocks += [(int(multiple) * math.prod(times for times, _ in factors), tuple(kept))] if multiple else []

    def add(self, multiple: int, groups: Any, ops: Any) -> None:
        self.put(multiple, [self.factor(names, op) for names, op in zip(groups, ops, strict=True)])

    def family(self, s: Any, ops: Any, sets: Any, multiples: Any) -> None:  # a block for every set of attributes
        one = [self.factor([name], op) for name, op in zip(s.names, ops, strict=True)]
        for some, m in zip(sets, [1] * len(sets) if multiples is None else multiples, strict=True):
            self.put(m, [one[i] for i in some])

    def combined(self, s: Any) -> None:  # C Q over joint cells, each attribute's by what its factors tell apart
        each = [{g[0]: matrix(f) for g, f in zip(b.groups, b.factors, strict=True) if len(g) == 1} for b in s.blocks]
        names = [a for a in self.sizes if any(a in e for e in each)]
        kept = {a: np.unique(np.vstack([e[a] for e in each if a in e]), axis=1, return_index=True)[1] for a in names}
        few = s.matrix.size * math.prod(map(len, kept.values())) <= 8 * MOST
        if not few or any(len(e) < len(b.groups) for e, b in zip(each, s.blocks, strict=True)):
            raise Cannot("combined queries that join attributes, or tell very many cells apart")
        held = [reduce(np.kron, [e[a][:, kept[a]] if a in e else 0 * kept[a][None] + 1 for a in names]) for e in each]
        name, rows = f"combined {len(self.blocks)}", np.array((s.matrix.astype(object) @ np.vstack(held)).tolist())
        self.sizes[name] = rows.shape[1]
        self.add(1, [[name]], [Doc({"~class": "Dense", "matrix": rows})])

    def planned(self, s: Any) -> None:  # what a strategy or an entry of a measurement says. A later kind adds a case
        simple = {"Cells": "Identity", "TotalOnly": "Total"}  # factors of strategies; others hold their operator
        own = [f.tree or f.operator or Doc(f | {"~class": simple.get(f.kind, f.kind)}) for f in s.factors or []]
        plain = [Doc({"~class": "Residual", "n": n}) for n in s.shape or []]  # n I - J, or contrasts of their own
        contrasts = [c or r for c, r in zip(s.contrasts or plain, plain, strict=True)]
        cases: dict[str, Any] = {
            "Block": lambda: self.add(1, s.groups, s.factors),
            "Family": lambda: self.family(s, s.factors, s.sets, s.multiples),
            "Product": lambda: self.add(s.multiple, s.groups, own),
            "Canonical": lambda: self.add(s.multiple, [[s.attribute]], [s.tree]),
            "WeightedTables": lambda: self.family(s, own, s.sets, s.multiples),
            "Residuals": lambda: [self.family(s, contrasts, *x) for x in zip(s.sets, s.multiples, strict=True)],
            "Stacked": lambda: list(map(self.planned, s.pieces)),
            **dict.fromkeys(("Biased", "Merged"), lambda: self.planned(s.measured)),
            "Combination": lambda: self.combined(s),
            "Orbits": lambda: [
                self.put(1, [self.factor(*f) for g in x for f in g]) for x in product(*map(orbits, s.groups))
            ],
        }
        pick(cases, s.kind.removeprefix("Pair"), "strategies")()

    def sensitivity(self, sizes: dict[str, int], p: int, replace: bool, public: bool) -> tuple[int, bool]:
        """The largest sum of |change|^p that one record makes, and whether one makes it, or it is a bound.

        What a record does to a block is told by its cells of the block's attributes, or by those it leaves and takes:
        a table, found column by column. The tables of all blocks are added up, and the largest entry is taken.
        """
        ops = {f: self.ops[f[1]] for _, fs in self.blocks for f in fs}
        held = {a: {f for f in ops if a in f[0]} for f in ops for a in f[0]}
        alike = {f for f in ops if ops[f].kind in ALIKE}
        simple = {f for f in alike if all(g in alike and g[0] == f[0] for a in f[0] for g in held[a])}
        columns = {f: column(ops[f], p) for f in ops}
        top = {f: int(max(columns[f])) for f in ops}

        def largest(fixed: set[Any], axes: dict[Any, int], table: Any) -> Any:  # None: there are too many
            weights = dict[Any, int]()  # of blocks that differ in those factors alone that are at their largest anyway
            for m, fs in self.blocks:
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
        one = (largest(set(ops), {}, cells) or 0, False) if one[0] is None else one
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


def tail(x: Decimal) -> tuple[Decimal, Decimal]:  # bounds of P(N > x) for a standard normal N
    if x < 0:
        return 1 - tail(-x)[1], 1 - tail(-x)[0]
    term = total = x
    for k in range(3, 2000, 2):
        total += (term := term * x * x / k)
    found = Decimal("0.5") - total * (-x * x / 2).exp() / ROOT
    return (found - SLACK, found + SLACK) if x < 15 else (Decimal(0), (-x * x / 2).exp())


def cost(event: str, currency: str) -> Fraction:  # at most this where a ledger adds it up; KeyError: it has no price
    kind, e = event.split()[0], Fraction(event.split()[1])
    if currency == "mu^2" and kind in ("pure", "bounded-range"):  # the least mu^2 of all such mechanisms, rounded up
        if e > 100:
            raise Cannot(f"an epsilon of {float(e):.3g} as mu^2")
        e = e if kind == "pure" else e / 2
        low, high = Decimal(0), (8 * real(e)).sqrt()
        for _ in range(80):
            mu = (low + high) / 2
            low, high = (low, mu) if tail(mu / 2)[1] * (1 + real(e).exp()) <= 1 else (mu, high)
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
    return tail(eps / mu - mu / 2)[1] - eps.exp() * tail(eps / mu + mu / 2)[0] <= real(delta)


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
            right = (sequence, digest) == (n + (old and not n), hashes[-1])
            self.must("chain", f"line {n} does not hash on from the one before", right)
            lines.append(text.decode().split("\n"))
        (_, _, currency, total, *_), given = lines[0], {k: Fraction(v) for k, v in json.loads(lines[0][1]).items()}
        stated = "approx" if "delta" in given else {"epsilon": "pure", "rho": "zcdp", "mu": "gdp"}[min(given)]
        event, most = {"epsilon": "pure", "rho": "zcdp", "mu^2": "gaussian"}[currency], given.get("delta", Fraction(0))
        self.must("chain", "the total is above the budget", keeps(f"{event} {total}", stated, given[max(given)], most))
        unit, table, spent, delta, seen = "", "".join(lines[0][5:]), Fraction(0), Fraction(0), dict[str, int]()
        for n, line in enumerate(lines[1:], 1):
            if line[1] == "named":
                self.must("chain", f"line {n} names a table that has a name", not table)
                table = line[2]
            elif line[1] == "released":
                paid = lines[seen[line[2]]]
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
                right = whom[0] == (unit or whom[0]) and whom[1] == (table or whom[1])
                self.must("chain", f"line {n} is of another unit or table", right)
                (unit, table), seen[line[2]] = whom, n
        return lines, hashes[1:]

    def paid(self, value: int, exact: bool, noise: Any, event: str) -> None:
        kind, p, times = LAWS[noise.kind]
        given, price = event.split()
        covered = times * number(noise["scale" if p == 1 else "sigma"]) ** p * Fraction(price) if given == kind else -1
        if not exact and 0 <= covered < value:
            self.unknown.append(f"a sensitivity of {float(covered):.6g}, which was paid; it proves {float(value):.6g}")
        else:
            self.must("price", f"noise at sensitivity {value} costs more than was paid", value <= covered)

    def measured(self, m: Any, event: str, domain: Any, unit: Any) -> tuple[Maps, int]:
        maps = Maps(sizes := dict[str, int]())
        public = unit[0] == "replace-one" and unit[1] is None
        for name, a in domain.attributes["~map"]:
            many = a.source or a.get("values", {}).get("~map") or (a.edges or [0, 1, 2])[1:]  # a boolean has two cells
            many = len(many) if a.low is None else -((a.low - a.high - 1) // a.width)
            sizes[name] = many + ("other" in (a.outside, a.missing))
            public = public and "drop" not in (a.outside, a.missing)
        for block, values in zip(m.blocks, m["values"], strict=True):
            start = len(maps.blocks)
            maps.planned(block)
            shapes = {k: shape(op) for k, op in maps.ops.items()}
            rows = sum(math.prod(shapes[k][0] for _, k in fs) for _, fs in maps.blocks[start:])
            right = [shapes[k][1] == math.prod(sizes[a] for a in some) for _, fs in maps.blocks for some, k in fs]
            right += [values.dtype == np.int64, values.shape == (rows,)]
            self.must("maps", "maps do not fit the cells of their attributes, or the values they belong to", all(right))
        self.must("total", "the number of records is not public, and stands there", public or m.total is None)
        value, exact = maps.sensitivity(sizes, p := LAWS[m.noise.kind][1], unit[0] == "replace-one", public)
        self.paid(value * unit[2] ** p, exact, m.noise, event)
        return maps, value * unit[2] ** p if exact else 0

    def single(self, plan: Any, m: Any, unit: Any) -> None:  # one look, at what the plan says
        maps, value = self.measured(m, event_of(plan.price), plan.workload.domain, unit)
        (said := Maps(maps.sizes)).planned(plan.strategy)
        self.must("maps", "other maps were measured than the plan describes", said.blocks == maps.blocks)
        right = plan.noise == m.noise and number(plan.sensitivity.value) >= value
        self.must("price", "other noise was drawn, or it is another sensitivity, than the plan says", right)

    def looks(self, plan: Any, out: Any, unit: Any) -> None:  # several, each at its price. A later kind adds its draws
        course, rounds, one = plan.course, plan.course.rounds, event_of(plan.course.measurement)
        draws = {"MwemCourse": [(rounds, 1)], "BoostingCourse": [(course.samples, t) for t in range(1, rounds)]}
        free = unit[0] == "replace-one" and unit[1] is None  # the number of records
        kind, whole = event_of(plan.price).split()
        each = [(n, t * number(course.selection.epsilon)) for n, t in pick(draws, course.kind, "courses")]
        total = sum(n * cost(f"bounded-range {draw}", CURRENCY[kind]) for n, draw in each)
        total += (rounds + (not free)) * cost(one, CURRENCY[kind])
        self.must("price", "the looks cost more than the price", total <= Fraction(whole))
        looks = [m for m in out if m.kind == "Measurement"]
        paid = [m for m in looks if not free or any(b.groups != [] for b in m.blocks)]
        right = len(paid) <= rounds + (not free) and len(out) - len(looks) <= sum(n for n, _ in each)
        self.must("looks", "more was chosen or measured than was paid for", right)
        for m in looks:
            self.measured(m, one, plan.workload.domain, unit)

    def keys(self, plan: Any, m: Any, unit: Any) -> None:  # maps of keys have bounded columns whatever their hash is
        o, event, p, replace = plan.map, event_of(plan.price), LAWS[m.noise.kind][1], unit[0] == "replace-one"
        rows = o.width or o.size or len(o.elements)
        change = {"Buckets": (1, 2**p), "Signs": (rows, rows * 2**p), "Listed": (1, min(2, rows))}[o.kind][replace]
        same = fingerprint([o, plan.noise]) == fingerprint([m.map, m.noise])
        right = same and m["values"].dtype == np.int64 and m["values"].shape == (rows,)
        self.must("maps", "another map or noise was measured than the plan says", right)
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
        check = pick({"Plan": self.single, "CoursePlan": self.looks, "KeyPlan": self.keys}, plan.kind, "plans")
        unit, event = [plan.unit.neighbours.value, plan.unit.person, plan.unit.rows_per_person], event_of(plan.price)
        right = unit[0] in ("add-remove", "replace-one") and type(unit[2]) is int and unit[2] >= 1
        right = right and keeps(event, b["kind"], number(b.parameter), number(b.delta or 0))
        self.must("price", "the price is above the budget that is stated, or there is no such unit", right)
        check(plan, it.measurement, unit)
        lines, hashes = self.ledger(ledger)
        n, told = proof.sequence, fingerprint([plan[k] for k in HASHED.split() if k in plan])
        line, places = lines[n] if n < len(lines) else [""] * 12, [f"{i}:{digest}" for i, digest in enumerate(hashes)]
        self.must("anchor", "the ledger does not go on from it", anchor in (None, *places))
        right = lines[0][0] == proof.ledger_id and proof.anchor in places[n : n + 1]
        self.must("entry", "it was paid from another ledger, or by another line", right)
        right = line[1:5] == ["spend", proof.name, told, event] and line[9] == fingerprint(it.measurement)
        self.must("entry", "the line that paid has another name, plan, price or result", right)
        right = line[10:] in ([], [json.dumps(unit), proof.table or ""])
        self.must("unit", "the line that paid is of another unit or table", right)
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
    found = Check((asked := parser.parse_args(arguments)).release, asked.ledger, asked.anchor)
    facts = {"verdict": found.verdict, "wrong": found.wrong, "cannot_check": found.unknown}
    said = [found.verdict, *map(": ".join, found.wrong), *(f"cannot check {what}" for what in found.unknown)]
    sys.stdout.write((json.dumps(facts) if asked.json else "\n".join(said)) + "\n")
    return 0 if found.verdict == "accepted" else 2


if __name__ == "__main__":
    sys.exit(main())
