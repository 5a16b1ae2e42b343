"""A public site says what readers must know; whether labels match is for those who declared them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import sfumato as sf
from sfumato.publishing import publish


@pytest.fixture(scope="module")
def release() -> sf.Release:
    domain = sf.Domain({"sex": sf.Categories(["f", "m"], outside="other", missing="other")})
    work = sf.stack(tables=sf.marginals(domain, order=1), all=sf.total(domain))
    plan = sf.plan(work, sf.gdp(1), neighbours="add-remove", person="who", rows_per_person=2)
    rows = pd.DataFrame({"who": [f"p{i // 4}" for i in range(4_000)], "sex": ["F"] * 4_000})
    return sf.release(plan, rows, ledger=None, name="people")


def test_the_makers_cautions_are_not_on_the_site(release: sf.Release, tmp_path: Path) -> None:
    """Mutant: all of `release.cautions`."""
    assert any("do the labels match" in c.text for c in release.cautions)
    page = (publish(release, tmp_path / "site") / "index.html").read_text(encoding="utf-8")
    assert "do the labels match" not in page
    assert "persons had more than 2 rows" in page
