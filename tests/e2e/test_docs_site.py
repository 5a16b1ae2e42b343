"""`make docs` builds: no warning, no broken link, nothing loaded from another host, everything searched."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

import sfumato as sf

ROOT = Path(__file__).parents[2]


def test_the_site_builds_and_is_whole(tmp_path: Path) -> None:
    """MkDocs is strict: a link to what is not there, or a name that is not found, ends the build."""
    for package in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(package)
    spec = importlib.util.spec_from_file_location("docs_site", ROOT / "scripts" / "docs.py")
    assert spec is not None
    assert spec.loader is not None
    docs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(docs)
    docs.build(tmp_path / "site")
    for name in sf.__all__:
        page = (tmp_path / "site" / "api" / f"{docs.page_name(name)}.html").read_text(encoding="utf-8")
        assert "doc-contents" in page, name
    found = json.loads((tmp_path / "site" / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert any("Fieller" in entry["text"] for entry in found["docs"])
    gallery = (tmp_path / "site" / "gallery" / "1-analyst.html").read_text(encoding="utf-8")
    assert 'class="vega"' in gallery
