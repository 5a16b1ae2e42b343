"""Writes CHANGELOG.md from the fragments of changelog.d, as the README of that folder says.

python scripts/changelog.py            # writes
python scripts/changelog.py --check    # writes nothing; 1 where the file is not what the fragments give
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIRST = {"0.3.0": 103, "0.2.0": 30, "0.1.0": 1}
"""The first fragment of every version, newest first. After a release its fragments are closed: add the next version."""

HEADINGS = ("Added", "Changed", "Fixed", "Removed", "Privacy")
TOP = """# Changelog

Written by `make changelog` from [changelog.d](changelog.d/README.md); edit the fragments, not this page.
"""


def fragments(root: Path) -> dict[int, list[Path]]:
    """The fragments by their number. Raises ValueError for another file of the folder but its README."""
    found: dict[int, list[Path]] = {}
    for path in sorted((root / "changelog.d").iterdir()):
        if path.name == "README.md":
            continue
        named = re.fullmatch(r"(\d{4})-[a-z0-9-]+\.md", path.name)
        if named is None:
            raise ValueError(f"{path.name}: a fragment is called NNNN-short-title.md")
        found.setdefault(int(named[1]), []).append(path)
    return found


def entries(path: Path) -> dict[str, str]:
    """What a fragment says under each heading. Raises ValueError for unknown, repeated or empty ones."""
    before, *parts = re.split(r"^### (.*)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if before.strip() or not parts:
        raise ValueError(f"{path.name}: a fragment begins with one of ### {', ### '.join(HEADINGS)}")
    said: dict[str, str] = {}
    for heading, text in zip(parts[::2], parts[1::2], strict=True):
        if heading not in HEADINGS or heading in said or not text.strip().startswith("- "):
            known = ", ".join(HEADINGS)
            raise ValueError(f"{path.name}: {heading!r} is not one of {known}, stands twice, or lists nothing")
        said[heading] = text.strip("\n").replace("](../", "](")  # the page lies one folder above
    return said


def current(root: Path) -> str:
    """The version of pyproject.toml: what is newer is unreleased."""
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def number(version: str) -> tuple[int, ...]:
    """To compare versions by."""
    return tuple(int(part) for part in version.split("."))


def sections(root: Path) -> dict[str, str]:
    """The text of every version, newest first: under each heading the entries in the order of their fragments."""
    found, upper = fragments(root), 10_000
    out: dict[str, str] = {}
    for version, first in FIRST.items():
        said = [entries(p) for n in sorted(found) if first <= n < upper for p in found[n]]
        unreleased = " (unreleased)" if number(version) > number(current(root)) else ""
        lines = [f"## {version}{unreleased}"]
        for heading in HEADINGS:
            texts = [s[heading] for s in said if heading in s]
            if texts:
                lines += ["", f"### {heading}", *texts]
        out[version], upper = "\n".join(lines) + "\n", first
    return out


def changelog(root: Path) -> str:
    """The whole page."""
    return "\n".join([TOP, *sections(root).values()])


def main() -> int:
    page, made = ROOT / "CHANGELOG.md", changelog(ROOT)
    if "--check" in sys.argv[1:]:
        return int(not page.exists() or page.read_text(encoding="utf-8") != made)
    page.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
