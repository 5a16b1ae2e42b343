"""The code in README and docs runs as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def _blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("page", [p for p in PAGES if _blocks(p)], ids=lambda p: p.name)
def test_code_blocks_run_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "\n".join(f"{20 + i % 70},{'female' if i % 3 else 'male'}" for i in range(300))
    Path("people.csv").write_text(f"age,sex\n{rows}\n", encoding="utf-8")
    scope: dict[str, object] = {}
    for block in _blocks(page):
        exec(compile(block, str(page), "exec"), scope)


def test_every_reference_key_is_resolved() -> None:
    """A [Key20] in a docstring must be found in docs/references.md."""
    known = set(re.findall(r"^\| (\w+) \|", (ROOT / "docs/references.md").read_text(encoding="utf-8"), re.MULTILINE))
    used: set[str] = set()
    for file in (ROOT / "src").rglob("*.py"):
        for group in re.findall(r"\[([A-Z][A-Za-z]+\d\d(?:, [A-Z][A-Za-z]+\d\d)*)\]", file.read_text(encoding="utf-8")):
            used |= set(group.split(", "))
    assert used
    assert used <= known, f"not in docs/references.md: {sorted(used - known)}"
