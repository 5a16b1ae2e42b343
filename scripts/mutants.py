"""Small wrong changes of the library, drawn at random, and which test notices each.

python scripts/mutants.py                            # 60 mutants, each against the tests likeliest to notice it
python scripts/mutants.py --show                     # what they change; no test is run
python scripts/mutants.py --only 3 17 --tests tests/laws/test_noise.py      # some, against files of one's choice
python scripts/mutants.py --out now.tsv --again before.tsv    # the same ones, wherever their lines are by now,
                                                     # first against the file that noticed each before

A mutant changes one expression within one function: a comparison moves its boundary or turns round, `+` is `-`, `and`
is `or`, `min` is `max`, a number is one off, a condition is negated, a call whose value nobody reads is left out. It
lives in a copy of the tree, so the tree itself stays as it is. Test files are taken in order of likeliness: those that
import the module, that bear its name, that name the function or another one of its module. The first failing test ends
a mutant's run. "escaped" says only that none of these files failed: read the mutant, and run more files or write a
test; some mutants change nothing that anybody can see.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDERS = ("curator", "privacy", "planner")
AWAY = shutil.ignore_patterns(".git", ".venv", ".*_cache", ".hypothesis", "docs-site", "dist", "build")
# Enough for the twelve likeliest files of any module but those that start Java; a loop that never ends stops there too.
SECONDS, FILES = 90, 12

COMPARISONS = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
ARITHMETIC = {
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Add,), ast.Div: (ast.Mult,), ast.FloorDiv: (ast.Mult,),
    ast.Pow: (ast.Mult,), ast.LShift: (ast.RShift,), ast.RShift: (ast.LShift,), ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
}  # fmt: skip
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "floor": "ceil", "ceil": "floor",
         "minimum": "maximum", "maximum": "minimum"}  # fmt: skip
# Nothing within these is a decision of the function: types, messages, pieces of text, functions drawn by themselves.
QUIET = (ast.Raise, ast.Assert, ast.JoinedStr, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Mutant(NamedTuple):
    """One change: the bytes from `start` to `end` of a file become `after`."""

    path: Path
    names: tuple[str, ...]  # the function's, and those of what it stands in
    line: int
    start: int
    end: int
    before: str
    after: str
    which: int = 1  # of the changes of this function that read alike

    def applied(self, text: bytes) -> bytes:
        """The file with this change."""
        return text[: self.start] + self.after.encode() + text[self.end :]

    @property
    def name(self) -> str:
        """What it changes, wherever its line is."""
        change = f"{self.path} {'.'.join(self.names)}: `{self.before}` → `{self.after}`"
        return change if self.which == 1 else f"{change}, number {self.which}"

    def __str__(self) -> str:
        return self.name.replace(" ", f":{self.line} ", 1)


def altered(node: ast.AST) -> Iterator[str]:
    """What may stand in place of a node, each a mutant."""
    match node:
        case ast.Compare(left, ops, comparators):
            for i, op in enumerate(ops):
                for other in COMPARISONS[type(op)]:
                    yield ast.unparse(ast.Compare(left, [*ops[:i], other(), *ops[i + 1 :]], comparators))
        case ast.BinOp(left, op, right) if type(op) in ARITHMETIC:
            for other in ARITHMETIC[type(op)]:
                yield ast.unparse(ast.BinOp(left, other(), right))
        case ast.BoolOp(op, values):
            yield ast.unparse(ast.BoolOp(ast.And() if isinstance(op, ast.Or) else ast.Or(), values))
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield ast.unparse(operand)
        case ast.Constant(bool(value)):
            yield str(not value)
        case ast.Constant(int(value)):
            yield from (str(value + 1), str(value - 1))
        case ast.Constant(float(value)):
            yield str(2 * value)
        case ast.Call(ast.Name(name), args, keywords) if name in CALLS:
            yield ast.unparse(ast.Call(ast.Name(CALLS[name]), args, keywords))
        case ast.Call(ast.Attribute(value, name), args, keywords) if name in CALLS:
            yield ast.unparse(ast.Call(ast.Attribute(value, CALLS[name]), args, keywords))
        case ast.If(test) | ast.IfExp(test) | ast.While(test):
            yield f"not ({ast.unparse(test)})"
        case ast.Expr(ast.Call()):
            yield "None"
        case _:
            pass


def decisions(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function's body that a mutant may change, outermost first."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, QUIET):
                yield child
                yield from decisions(child)


def functions(tree: ast.AST, names: tuple[str, ...] = ()) -> Iterator[tuple[Function, tuple[str, ...]]]:
    """Every function of a file, with its name and those of what it stands in."""
    for child in ast.iter_child_nodes(tree):
        inner = (*names, child.name) if isinstance(child, Function | ast.ClassDef) else names
        if isinstance(child, Function):
            yield child, inner
        yield from functions(child, inner)


def mutants_of(path: Path) -> Iterator[list[Mutant]]:
    """Of every place in a file that can be changed, its mutants."""
    text = (ROOT / path).read_bytes()
    starts = [0]
    for row in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(row))
    alike = Counter[str]()
    for function, names in functions(ast.parse(text)):
        for node in decisions(function):
            place = node.test if isinstance(node, ast.If | ast.IfExp | ast.While) else node
            found = []
            for after in altered(node):
                start = starts[place.lineno - 1] + place.col_offset
                end = starts[(place.end_lineno or 0) - 1] + (place.end_col_offset or 0)
                before = " ".join(text[start:end].decode().split())
                mutant = Mutant(path, names, place.lineno, start, end, before, f"({after})")
                alike[mutant.name] += 1
                found.append(mutant._replace(which=alike[mutant.name]))
            if found:
                yield found


def places(folders: Sequence[str]) -> list[list[Mutant]]:
    """The mutants of every place of some folders."""
    files = [p.relative_to(ROOT) for f in folders for p in sorted((ROOT / "src" / "sfumato" / f).glob("*.py"))]
    return [found for path in files for found in mutants_of(path)]


def drawn(count: int, seed: int, folders: Sequence[str] = FOLDERS) -> list[tuple[Mutant, list[Path]]]:
    """So many mutants of some folders: places without repetition, and one of each place's mutants; no file is known."""
    rng, every = random.Random(seed), places(folders)
    return [(rng.choice(found), []) for found in rng.sample(every, min(count, len(every)))]


def again(rows: Sequence[str], folders: Sequence[str] = FOLDERS) -> list[tuple[Mutant, list[Path]]]:
    """The mutants of what --out wrote, each with the test file that noticed it.

    Raises:
        KeyError: The code that a mutant changes is there no more.
    """
    every = {mutant.name: mutant for found in places(folders) for mutant in found}
    chosen = []
    for row in rows:
        _, verdict, said = row.split("\t")
        mutant = every[re.sub(r":\d+ ", " ", said, count=1)]
        chosen.append((mutant, [Path(verdict.split("::")[0])] if "::" in verdict else []))
    return chosen


def likely(mutant: Mutant) -> list[Path]:
    """The test files that are likeliest to notice a mutant, the likeliest first."""
    module, folder = mutant.path.stem, mutant.path.parent.name
    tree = ast.parse((ROOT / mutant.path).read_bytes())
    beside = {c.name for c in tree.body if isinstance(c, Function | ast.ClassDef) and not c.name.startswith("_")}
    own = {n for n in mutant.names if not n.startswith("__")}

    def names(text: str, words: set[str]) -> int:
        return sum(bool(re.search(rf"\b{re.escape(word)}\b", text)) for word in words)

    def score(path: Path) -> float:
        text = path.read_text(encoding="utf-8")
        imports = rf"sfumato\.{folder}\.{module}\b|from sfumato\.{folder} import [^\n]*\b{module}\b"
        words = set(path.stem.split("_"))
        shared = set(module.split("_")) & (words | {word.removesuffix("s") for word in words})
        return (
            4 * bool(re.search(imports, text)) + 3 * bool(shared) + 3 * names(text, own)
            + min(names(text, beside), 4) + (path.parent.name == folder) - 2 * ("statistical" in path.parts)
        )  # fmt: skip

    files = [p.relative_to(ROOT) for p in sorted((ROOT / "tests").rglob("test_*.py"))]
    scores = {path: score(ROOT / path) for path in files}
    return sorted((p for p in files if scores[p] > 0), key=lambda p: (-scores[p], (ROOT / p).stat().st_size))


def noticed(tree: Path, files: Sequence[Path], seconds: int) -> str:
    """The first failing test of some files in a tree, or "escaped"."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--tb=no", "-rfE"]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))

    search = os.pathsep.join([str(tree / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        done = subprocess.run(
            [*command, *map(str, files)], cwd=tree, env={**os.environ, "PYTHONPATH": search}, preexec_fn=limit,
            capture_output=True, text=True, check=False, timeout=10 * seconds,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"waits for ever (ended after {10 * seconds} s)"
    if failed := re.search(r"^(?:FAILED|ERROR) (.*?)(?: - |$)", done.stdout, re.MULTILINE):
        return failed[1]
    return {0: "escaped", 5: "escaped"}.get(done.returncode, f"ended with {done.returncode}: {done.stdout[-200:]!r}")


def main(argv: Sequence[str] | None = None) -> int:
    """Draw mutants, run each, and say what noticed it.

    Returns:
        How many escaped.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=26)
    parser.add_argument("--folders", nargs="+", default=FOLDERS)
    parser.add_argument("--only", nargs="+", type=int, help="numbers of those to run")
    parser.add_argument("--tests", nargs="+", type=Path, help="these files instead of the likeliest")
    parser.add_argument("--files", type=int, default=FILES, help="how many of the likeliest files to run")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="CPU seconds a mutant's tests may take")
    parser.add_argument("--again", type=Path, help="what --out wrote before: the mutants to run, and what noticed each")
    parser.add_argument("--out", type=Path, help="append number, verdict and mutant here, divided by tabs")
    parser.add_argument("--show", action="store_true", help="run nothing")
    asked = parser.parse_args(argv)

    if asked.again:
        chosen = again(asked.again.read_text(encoding="utf-8").splitlines(), asked.folders)
    else:
        chosen = drawn(asked.count, asked.seed, asked.folders)
    escaped = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder) / "tree"
        if not asked.show:
            shutil.copytree(ROOT, tree, ignore=AWAY)
        for i, (mutant, first) in enumerate(chosen, 1):
            if asked.only and i not in asked.only:
                continue
            if asked.show:
                print(i, mutant)
                continue
            files = asked.tests or first + [p for p in likely(mutant) if p not in first][: asked.files]
            path = tree / mutant.path
            text = path.read_bytes()
            path.write_bytes(mutant.applied(text))
            # Python takes compiled code for a file's by second and size: every mutant has a second of its own.
            os.utime(path, (i, i))
            verdict = noticed(tree, files, asked.seconds)
            path.write_bytes(text)
            escaped += verdict == "escaped"
            row = f"{i}\t{verdict}\t{mutant}"
            print(row, flush=True)
            if asked.out:
                with asked.out.open("a", encoding="utf-8") as out:
                    print(row, file=out)
    return escaped


if __name__ == "__main__":
    sys.exit(main())
