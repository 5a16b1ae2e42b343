"""A spec, its table, and what a typed command came to."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

__all__ = ["ROWS", "SPEC", "Ended", "Run", "refused", "release"]

SPEC = """\
[data]
source = "people.csv"

[schema_defaults]
outside = "other"
missing = "other"

[schema.age]
type = "integer"
min = 0
max = 99
width = 10

[schema.sex]
type = "category"
values = { "1" = "female", "2" = "male" }

[privacy]
epsilon = 1
delta = 1e-6
neighbours = "add-remove"

[[queries]]
name = "main"
upto = 2
[[queries]]
name = "old"
where = ["age >= 70 and sex == 'female'"]
"""
ROWS = "age,sex,note\n" + "".join(f"{i % 97},{1 + i % 2},x\n" for i in range(500))


class Ended(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Ended]


def release(run: Run, name: str = "first", spec: str = "spec.toml", *more: object) -> Ended:
    return run("release", spec, "--ledger", "budget.db", "--name", name, "-o", f"out/{name}", *more)


def refused(ended: Ended, *words: str) -> None:
    """Exit code 2, nothing on stdout, a few lines on stderr without a traceback."""
    assert ended.code == 2
    assert ended.out == ""
    assert "Traceback" not in ended.err
    assert 0 < len(ended.err.splitlines()) <= 8
    for word in words:
        assert word in ended.err
