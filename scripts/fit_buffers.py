"""Writes the tables of src/sfumato/strategies/buffered_toeplitz.py: a CPU-minute.

python scripts/fit_buffers.py
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path

from sfumato.strategies.buffered_toeplitz import Asked, BufferParameters, fit_buffer_parameters

TARGET = Path(__file__).parents[1] / "src" / "sfumato" / "designs" / "ordered" / "fitted.py"
BUFFERS = 8  # ten err less by a part in 10^4 at a million cells, and cost half as much again
ROADS = ((20, 18, 16, 14, 12, 10), (20, 22, 24))
"""Binary logarithms of numbers of cells; each fit starts from the one before."""

ASKED: tuple[Asked, ...] = ("prefixes", "ranges", "largest")


def fitted(asked: Asked) -> dict[int, BufferParameters]:
    """Parameters by the binary logarithm of the number of cells."""
    found: dict[int, BufferParameters] = {}
    for road in ROADS:
        last: BufferParameters | None = None
        for k in road:
            if k not in found:
                found[k] = fit_buffer_parameters(2**k, asked, BUFFERS, last)
            last = found[k]
    return dict(sorted(found.items()))


def lines(found: Mapping[int, BufferParameters]) -> str:
    """Those of a table: per size its binary logarithm, the numbers of buffers, and those of rows."""
    out: list[str] = []
    for k, parameters in found.items():
        numbers = [f"{v:.4f}" for v in parameters.vector]
        out += [" ".join([f"{k}", *numbers[:BUFFERS]]), "  " + " ".join(numbers[BUFFERS:])]
    return "\n".join(out)


def write(target: Path, tables: Mapping[str, str]) -> None:
    """Put tables into a file under their names, each in place of the one that is there."""
    text = target.read_text(encoding="utf-8")
    for name, table in tables.items():
        text, count = re.subn(rf'{name} """.*?"""', f'{name} """\n{table}\n"""', text, flags=re.DOTALL)
        assert count == 1
    target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    start = time.process_time()
    write(TARGET, {f'"{asked}":': lines(fitted(asked)) for asked in ASKED})
    print(f"{time.process_time() - start:.0f} CPU-s")
