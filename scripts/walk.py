"""How far the library is from what a person can take over: the figures of its size, its names and its roads.

python scripts/walk.py                 # all, one line per figure: what is measured, the bar, and whether it is met
python scripts/walk.py --worst 20      # also the names defined at most places, and the docstrings that lack parts

A road is walked by running it: one marginal table from `sf.plan` to its answers. Of every function of the library that
was entered the lines of code are counted, nested functions and comprehensions with the one that holds them.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
import tempfile
import textwrap
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cache, cached_property
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple, get_overloads

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "sfumato"
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from support.closure import closure, code_lines, code_numbers, modules  # noqa: E402  (beside the library)

Function = ast.FunctionDef | ast.AsyncFunctionDef

# The trusted base of the one door that every release goes through, and of all doors together (tests/unit/test_wall.py).
MEASURE = ("sfumato.curator", "sfumato.curator.curator")
DOORS = (
    *MEASURE,
    "sfumato.curator.selecting",
    "sfumato.curator.conversations",
    "sfumato.curator.keys",
    "sfumato.curator.streams",
)


def files() -> list[Path]:
    """Every file of the library."""
    return sorted(SRC.rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    """A file, parsed."""
    return ast.parse(path.read_text(encoding="utf-8"))


def import_lines(path: Path) -> int:
    """Lines of a file that only say where names come from, or which ones are public."""
    found: set[int] = set()
    for node in ast.walk(tree_of(path)):
        named = isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets
        )
        if named or isinstance(node, ast.Import | ast.ImportFrom):
            found |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(found)


def functions(path: Path) -> dict[int, Function]:
    """The functions of a file that are not inside another one, by the line on which their code begins."""
    found: dict[int, Function] = {}

    def collect(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                found[min([child.lineno, *(d.lineno for d in child.decorator_list)])] = child
            else:
                collect(child)

    collect(tree_of(path))
    return found


def holding(path: Path, line: int) -> int | None:
    """The beginning of the outermost function around a line, None for code of the module or of a class."""
    for begin, node in functions(path).items():
        if begin <= line <= (node.end_lineno or begin):
            return begin
    return None


def walked(road: Callable[[], object]) -> tuple[int, int, int]:
    """How many files and functions of the library a road enters, and how many lines of code these functions have."""
    entered: set[CodeType] = set()

    def enter(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            entered.add(frame.f_code)

    threading.setprofile(enter)
    sys.setprofile(enter)
    try:
        road()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    found: set[tuple[Path, int]] = set()
    for code in entered:
        path = Path(code.co_filename)
        if path.is_relative_to(SRC):
            begin = holding(path, code.co_firstlineno)
            found |= set() if begin is None else {(path, begin)}
    lines = 0
    for path, begin in found:
        end = functions(path)[begin].end_lineno or begin
        lines += len(code_numbers(path) & set(range(begin, end + 1)))
    return len({path for path, _ in found}), len(found), lines


def one_table(**options: Any) -> Callable[[], object]:
    """One marginal table of two attributes, from `sf.plan` to its answers; all modules are imported before."""
    import sfumato as sf

    def road() -> object:
        domain = sf.Domain({"age": 4, "sex": sf.Categories(["f", "m"])})
        work = sf.marginals(domain, sets=[("age", "sex")])
        table = sf.Histogram([[3, 1], [4, 1], [5, 9], [2, 6]])
        with tempfile.TemporaryDirectory() as folder:
            ledger = sf.Ledger.create(Path(folder) / "budget.db", total=sf.gdp(9))
            return walked(lambda: sf.release(plan(work), table, ledger=ledger, name="it").answers)

    def plan(work: Any) -> Any:
        return sf.plan(work, sf.gdp(1), neighbours="add-remove", **options)

    road()
    return road


def names(of_classes: bool) -> Counter[str]:
    """At how many places each name of a function, or of a method, is defined; what the language calls is left out.

    Variants for type checkers and setters are the same place as the function that they belong to.
    """
    found: Counter[str] = Counter()
    for path in files():
        for parent in ast.walk(tree_of(path)):
            if isinstance(parent, ast.ClassDef) == of_classes:
                own = {c.name for c in ast.iter_child_nodes(parent) if isinstance(c, Function)}
                found.update(name for name in own if not (name.startswith("__") and name.endswith("__")))
    return found


SECTIONS = ("Args", "Returns", "Raises", "Guarantee", "Source")
"""The sections that a docstring of the library may have."""


class Public(NamedTuple):
    """A public name, or a member of a public class: a function, a class, or a property, as the class holds it."""

    name: str
    value: Any
    method: bool
    """Whether callers leave out its first parameter."""


INSIDE = (
    *("cells.", "maps.", "mechanisms.", "operators.", "domain.predicates.", "privacy.noise.", "releases.files."),
    *("interactive.parameters.", "local.questions.", "strategies.design.", "strategies.strategy."),
    *("strategies.time_errors.", "strategies.periods.Question", "plans.predictions.Entry", "releases.streams.History"),
    *("releases.answers.Linear", "releases.answers.Nonlinear", "releases.modelled.Findings"),
)
"""Classes and their places that public names return for the library's own use; who extends it reads them as code."""


def public() -> Iterator[Public]:
    """Every public name that can be called, what it returns, and every public method and property of these classes."""
    import sfumato as sf
    from sfumato.planner.opening import DOCUMENTS

    seen: set[int] = set()
    found: list[tuple[str, Any]] = []
    for name in sf.__all__:
        value: Any = getattr(sf, name)
        if inspect.ismodule(value):
            found += [(f"{name}.{n}", getattr(value, n)) for n in value.__all__]
        else:
            found.append((name, value))
    found += [(cls.__name__, cls) for cls in DOCUMENTS]  # whose class `sf.load` does not say
    while found:
        called, one = found.pop(0)
        if not callable(one) or id(one) in seen:
            continue
        seen.add(id(one))
        whole = [Public(called, one, False)]
        if inspect.isclass(one) and not issubclass(one, Exception):
            whole += members(called, one, seen)
        yield from whole
        found += [(cls.__name__, cls) for public in whole for cls in returned(public.value)]


def returned(value: Any) -> Iterator[type]:
    """The library's classes that a function, its variants or a property are annotated to return."""
    function = value.fget if isinstance(value, property) else getattr(value, "func", getattr(value, "__func__", value))
    for variant in [function, *get_overloads(function)] if inspect.isfunction(function) else []:
        for name in re.findall(r"\w+", str(variant.__annotations__.get("return", ""))):
            cls = variant.__globals__.get(name)
            room, _, place = f"{getattr(cls, '__module__', '')}.{name}".partition(".")
            if inspect.isclass(cls) and room == "sfumato" and not name.startswith("_") and not place.startswith(INSIDE):
                yield cls


def members(called: str, cls: type, seen: set[int]) -> Iterator[Public]:
    """The public methods and properties of a class and of those of the library that it derives from, each once."""
    for base in cls.__mro__:
        if base.__module__.startswith("sfumato"):
            for name, held in vars(base).items():
                value = getattr(held, "__func__", held)
                known = inspect.isfunction(value) or isinstance(held, property | cached_property)
                if not name.startswith("_") and known and id(value) not in seen:
                    seen.add(id(value))
                    yield Public(f"{called}.{name}", value, not isinstance(held, staticmethod))


def sections(document: str) -> dict[str, list[str]]:
    """The names under `Args` and `Raises` of a docstring, and what stands under its other sections, line by line."""
    found: dict[str, list[str]] = {}
    title = ""
    for line in document.splitlines():
        if line.strip() and not line.startswith(" "):
            title = line[:-1] if line[-1] == ":" and line[:-1] in SECTIONS else ""
            found |= {title: []} if title else {}
        elif title in ("Args", "Raises"):
            entry = re.match(r" {4}([*\w.]+): \S", line)
            found[title] += [entry[1]] if entry else []
        elif title and line.strip():
            found[title].append(line.strip())
    return found


def parameters(one: Public) -> list[str]:
    """What has to be described of a function, or of a class: what callers may give, with the stars of the rest."""
    if isinstance(one.value, type) and issubclass(one.value, Enum):
        return ["value"]
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    try:
        given = list(inspect.signature(one.value).parameters.values())
    except (TypeError, ValueError):
        return []  # of an exception that takes a message
    bound = one.method and not inspect.ismethod(one.value)
    return [stars.get(p.kind, "") + p.name for p in given[bound:] if not p.name.startswith("_")]


def raised(value: Any) -> set[str] | None:
    """The errors that the code of a function, or of the birth of a class, raises by itself; None where it raises none.

    An error that is made elsewhere has no name here.
    """
    births = [vars(value).get(name) for name in ("__init__", "__post_init__")] if inspect.isclass(value) else [value]
    found: list[ast.Raise] = []
    for birth in births:
        try:
            text = inspect.getsource(inspect.unwrap(birth)) if birth is not None else ""
        except (OSError, TypeError):
            text = ""  # what a dataclass has of itself
        found += [n for n in ast.walk(ast.parse(textwrap.dedent(text))) if isinstance(n, ast.Raise)]
    calls = [n.exc.func if isinstance(n.exc, ast.Call) else n.exc for n in found]
    named = {c.id for c in calls if isinstance(c, ast.Name) and c.id[:1].isupper()}
    # a kind that has none says so by this one, and all others override it
    return None if not found or named == {"AttributeError"} else named


def lacking(one: Public) -> list[str]:
    """What a docstring would have to have, and has not: sections, and entries of them; entries of what is not there."""
    value = one.value
    function = value.fget if isinstance(value, property) else getattr(value, "func", value)
    document = inspect.getdoc(value) or ""
    known = sections(document)
    found = [] if document else ["a docstring"]
    if function is value:
        wanted, described = parameters(one), known.get("Args", [])
        found += ["Args"] if wanted and not described else [f"Args: {p}" for p in wanted if p not in described]
        found += [f"Args: no {p}" for p in described if p not in wanted]
        returned = getattr(value, "__annotations__", {}).get("return")
        if not inspect.isclass(value) and returned not in ("None", "NoReturn") and not known.get("Returns"):
            found.append("Returns")
    errors, said = raised(function), known.get("Raises", [])
    if errors is not None:
        found += ["Raises"] if not said else [f"Raises: {e}" for e in sorted(errors) if e not in said]
    return found


def bars(worst: int) -> Iterator[str]:
    """One line per figure."""

    lines = {path: code_lines(path) for path in files()}
    yield whole("code lines", sum(lines.values()), 43_000)
    yield whole("files", len(lines), 220)
    yield whole("lines of imports and __all__", sum(map(import_lines, lines)), 3_200)
    for title, options, most in (
        ("one table", {"mechanism": "marginals"}, (30, 2_200)),
        ("one table, mechanism 'auto'", {}, (40, 2_800)),
    ):
        entered, called, long = one_table(**options)()  # type: ignore[misc]
        yield whole(f"{title}: files entered", entered, most[0])
        yield whole(f"{title}: lines of its {called} functions", long, most[1])
    found, methods = names(of_classes=False), names(of_classes=True)
    alone = sum(n == 1 and name not in methods for name, n in found.items())
    yield share("functions with a name of their own", alone, sum(found.values()), 0.9)
    documents = [(one.name, lacking(one)) for one in public()]
    yield share("public docstrings with Args, Returns, Raises", sum(not v for _, v in documents), len(documents), 1)
    known = modules()
    core = closure(MEASURE, late=False)
    yield whole("trusted base: its core, which every measurement loads", sum(code_lines(known[m]) for m in core), 2_500)
    yield whole("trusted base: what any door loads", sum(code_lines(known[m]) for m in closure(DOORS)), 5_000)
    if worst:
        yield ""
        yield from (f"{many:>4} places define {name}" for name, many in found.most_common(worst))
        yield ""
        yield from (f"{name} lacks {', '.join(v)}" for name, v in [d for d in documents if d[1]][:worst])


def whole(what: str, found: int, most: int) -> str:
    """A figure that may be no larger than its bar."""
    return f"{what:<60} {found:>7,}  bar {most:>7,}  {'met' if found <= most else 'not met'}"


def share(what: str, part: int, of: int, least: float) -> str:
    """A share that may be no smaller than its bar."""
    counted = f"{what} ({part:,} of {of:,})"
    return f"{counted:<60} {part / of:>7.1%}  bar {least:>7.0%}  {'met' if part >= least * of else 'not met'}"


def main(arguments: list[str] | None = None) -> None:
    """Print every figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worst", type=int, default=0, help="how many names and docstrings to list")
    for line in bars(parser.parse_args(arguments).worst):
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
