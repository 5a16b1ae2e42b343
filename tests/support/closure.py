"""What a module really imports, followed statically, and how many lines of code that is."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

SRC = Path(__file__).resolve().parents[2] / "src"
_QUIET = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def modules(src: Path = SRC, package: str = "sfumato") -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {p.relative_to(src).with_suffix("").parts: p for p in (src / package).rglob("*.py")}
    return {".".join(parts[:-1] if parts[-1] == "__init__" else parts): p for parts, p in found.items()}


def _documents(tree: ast.AST) -> Iterator[ast.Expr]:
    """Strings that stand by themselves: documentation, which does nothing."""
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant) and type(child.value.value) is str:
                yield child


def code_lines(path: Path) -> int:
    """How many lines have code on them: without blank lines, comments and documentation."""
    return len(code_numbers(path))


@cache
def code_numbers(path: Path) -> frozenset[int]:
    """The numbers of the lines with code on them."""
    text = path.read_text(encoding="utf-8")
    quiet = {n for d in _documents(ast.parse(text)) for n in range(d.lineno, (d.end_lineno or d.lineno) + 1)}
    tokens = (t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in _QUIET)
    return frozenset({n for t in tokens for n in range(t.start[0], t.end[0] + 1)} - quiet)


def _never_run(tree: ast.AST) -> set[int]:
    """What stands under `if TYPE_CHECKING:`, which is false whenever the program runs."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            found |= {id(inner) for statement in node.body for inner in ast.walk(statement)}
    return found


def _late(tree: ast.AST) -> set[int]:
    """Imports inside functions, which run when these are called."""
    inside = (n for f in ast.walk(tree) if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef) for n in ast.walk(f))
    return {id(n) for n in inside if isinstance(n, ast.Import | ast.ImportFrom)}


@cache
def _named(text: str, package: str, late: bool) -> frozenset[tuple[str, str]]:
    """What a module of some text in a package names: (module, "") or (module, name out of it)."""
    tree = ast.parse(text)
    skipped = _never_run(tree) | {id(d.value) for d in _documents(tree)} | (set() if late else _late(tree))
    found: set[tuple[str, str]] = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {(a.name, "") for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level else ""
            base = ".".join(part for part in (above, node.module) if part)
            found |= {(base, a.name) for a in node.names}
        elif isinstance(node, ast.Constant) and type(node.value) is str and "." in node.value:
            found.add((node.value, ""))
    return frozenset(found)


def imports(name: str, known: dict[str, Path], *, late: bool = True) -> set[str]:
    """The modules of the library that a module names: by import, anywhere in it, or by a text such as a registry has.
    Without `late`, not by imports inside functions.

    Of `from a import b`, a.b where that is a module, else a.
    """
    package = name if known[name].name == "__init__.py" else name.rpartition(".")[0]
    named = _named(known[name].read_text(encoding="utf-8"), package, late)
    return {m if f"{m}.{out}" not in known else f"{m}.{out}" for m, out in named if m in known}


def closure(roots: Iterable[str], src: Path = SRC, package: str = "sfumato", *, late: bool = True) -> set[str]:
    """Everything that importing and running some modules may import, with the packages that they lie in.
    Without `late`, what importing them alone does.

    Not the package itself: its `__init__` is the public page, which imports the doors and is imported by nobody.
    """
    known = modules(src, package)
    seen: set[str] = set()
    todo = list(roots)
    while todo:
        name = todo.pop()
        if name in seen or name == package:
            continue
        seen.add(name)
        todo += [name.rpartition(".")[0], *imports(name, known, late=late)]
    return seen


def lines(names: Iterable[str], src: Path = SRC, package: str = "sfumato") -> int:
    """Lines of code of some modules together."""
    known = modules(src, package)
    return sum(code_lines(known[n]) for n in names)
