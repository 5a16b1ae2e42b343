"""`make docs` builds: no warning, no broken link, nothing loaded from another host, everything searched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import sfumato as sf
from support.scripts import script


def test_the_site_builds_and_is_whole(tmp_path: Path) -> None:
    """MkDocs is strict: a link to what is not there, or a name that is not found, ends the build."""
    for package in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(package)
    docs = script("scripts/docs.py")
    docs.build(tmp_path / "site")
    for name in sf.__all__:
        page = (tmp_path / "site" / "api" / f"{docs.page_name(name)}.html").read_text(encoding="utf-8")
        assert "doc-contents" in page, name
    found = json.loads((tmp_path / "site" / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert any("Fieller" in entry["text"] for entry in found["docs"])
    gallery = (tmp_path / "site" / "gallery" / "1-analyst.html").read_text(encoding="utf-8")
    assert 'class="vega"' in gallery
