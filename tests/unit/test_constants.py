"""Module constants that are numbers say why they have their value."""

from __future__ import annotations

import ast
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "sfumato"
ROOMS = sorted({p.relative_to(SRC).parts[0] for p in SRC.rglob("*.py")})


def is_number(node: ast.expr) -> bool:
    """Whether an expression is numbers alone: one, several, a mapping to them, arithmetic or calls of them."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return bool(parts) and all(map(is_number, parts))
        case ast.Dict(values=parts):
            return bool(parts) and all(map(is_number, parts))
        case ast.Call(args=parts, keywords=[]):
            return bool(parts) and all(map(is_number, parts))
        case _:
            return False


def bare(file: Path) -> list[int]:
    """Lines of a module's numeric constants with no comment on them or just above, and no docstring below."""
    with tokenize.open(file) as opened:
        commented = {t.start[0] for t in tokenize.generate_tokens(opened.readline) if t.type == tokenize.COMMENT}
    body = ast.parse(file.read_text(encoding="utf-8")).body
    found: list[int] = []
    for node, after in zip(body, [*body, None][1:], strict=True):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None or not is_number(node.value):
            continue
        told = (
            isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str)
        )
        above = node.lineno - 1 in commented and file.read_text(encoding="utf-8").splitlines()[
            node.lineno - 2
        ].startswith("#")
        if not told and not above and not any(n in commented for n in range(node.lineno, (node.end_lineno or 0) + 1)):
            found.append(node.lineno)
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_constants_say_why(room: str) -> None:
    files = sorted((SRC / room).rglob("*.py")) or [SRC / room]
    silent = [f"{p.relative_to(ROOT)}:{n}" for p in files for n in bare(p)]
    assert not silent, f"no reason beside {', '.join(silent)}"


def test_a_constant_without_a_reason_is_found(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text(
        "A = 1\nB = 2  # why\n# why\nC = 3\nD = 4\n'''why'''\nE, F = (1, 2.5), -3\nG = 2**8 - 1\nH = B\nI = 'x'\n"
        "J = {'a': 1}\nK: int = int(5)\nL = True\nM = (1,  # why\n2)\n",
        encoding="utf-8",
    )
    assert bare(file) == [1, 7, 8, 11, 12]
