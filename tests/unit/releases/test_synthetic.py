"""Whole records with about the answers of a release."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import InvalidInput
from sfumato.releases import Synthetic

DOMAIN = sf.Domain(
    {"age": sf.Integers(0, 5), "place": sf.Categories(["x", "=y", "z"]), "sex": sf.Booleans(), "pet": sf.Integers(0, 1)}
)
SEEN = ("age", "place", "sex")
PAIRS = sf.marginals(DOMAIN, sets=[("age", "place"), ("age", "sex"), ("place", "sex")])
MIXED = sf.stack(pairs=PAIRS, ages=sf.prefix(DOMAIN, "age"))
COUNTS = np.random.default_rng(1).multinomial(400, np.random.default_rng(2).dirichlet(np.full(72, 0.3)))


def released(work: sf.Workload = PAIRS, neighbours: str = "replace-one") -> sf.Release:
    plan = sf.plan(work, sf.approx(1, "1e-6"), neighbours=neighbours)
    return sf.release(plan, sf.Histogram(COUNTS.reshape(DOMAIN.shape)), ledger=None)


def counted(found: Synthetic, work: sf.Workload) -> np.ndarray:
    """(k,) answers of the records by themselves: what no query mentions is 0."""
    cells = np.zeros(DOMAIN.shape)
    np.add.at(cells, (*found.codes.T, 0), 1.0)
    return np.asarray(work.answer(cells.reshape(-1)), dtype=np.float64)


@pytest.mark.parametrize("body", ["hull", "exact", "local", "auto"])
@pytest.mark.parametrize("records", [None, 90, 3_000])
def test_records_have_about_the_projected_answers(body: str, records: int | None) -> None:
    """Mutants: answers not scaled to n; errors of the unscaled; the table error not divided by n."""
    projected = released().project(body)
    found = projected.synthetic(records)
    n = records or 400
    assert len(found) == n
    assert found.codes.shape == (n, 3)
    assert found.attributes == SEEN
    assert found.left_out == ("pet",)
    assert found.labels == tuple(DOMAIN[a].labels for a in SEEN)
    away = counted(found, PAIRS) - projected.answers * n / 400
    assert found.rmse == pytest.approx(np.sqrt((away**2).mean()))
    parts = np.split(np.abs(away), np.cumsum([q.rows for q in PAIRS.blocks])[:-1])
    assert found.table_error == pytest.approx(np.mean([p.sum() for p in parts]) / n)
    # rounding to whole records: .5 typically, 1.1 at most in forty draws; answers of another n are tens away. The local
    # body holds more than tables have: up to its distance from them
    assert found.rmse < 2 + (0.06 * n if body in ("local", "auto") else 0)


def test_a_release_is_projected_first() -> None:
    raw = released(MIXED)
    first, second = raw.synthetic(), raw.project().synthetic()
    assert first.codes.tolist() == second.codes.tolist()
    assert raw.projection is None
    part = raw.project()["ages"].synthetic()
    assert part.attributes == SEEN
    assert part.codes.tolist() == first.codes.tolist()


def test_the_total_is_the_released_one() -> None:
    raw = released(neighbours="add-remove").project()
    assert raw.projection is not None
    assert len(raw.synthetic()) == round(float(raw.projection.possible.table(())))
    whole = released(neighbours="add-remove").project(integer=True)
    found = whole.synthetic()
    assert found.rmse == 0
    assert counted(found, PAIRS).tolist() == whole.answers.tolist()


def test_frames_and_files(tmp_path: Path) -> None:
    found = released().synthetic(60)
    frame = found.frame()
    assert list(frame.columns) == list(SEEN)
    assert frame["place"] == [("x", "=y", "z")[i] for i in found.codes[:, 1]]
    assert found.to_pandas()["age"].tolist() == list(frame["age"])
    assert found.to_polars().height == found.to_arrow().num_rows == 60
    found.save(tmp_path / "people.csv")
    with (tmp_path / "people.csv").open(encoding="utf-8", newline="") as handle:
        head, *rows = csv.reader(handle)
    assert head == list(SEEN)
    assert [r[1] for r in rows] == [t.replace("=y", "'=y") for t in frame["place"]]
    assert [r[0] for r in rows] == list(frame["age"])
    with pytest.raises(InvalidInput, match="exists"):
        found.save(tmp_path / "people.csv")
    assert [p.name for p in tmp_path.iterdir()] == ["people.csv"]


def test_words() -> None:
    found = released().synthetic(60)
    assert repr(found) == (
        f"<Synthetic 60 records, 3 attributes (1 left out), rmse {found.rmse:,.3g}, "
        f"table error {found.table_error:.2%}>"
    )
    assert "left out, as no query mentions them: pet" in found.explain()
    sums = sf.sums(DOMAIN, "age")
    only = released(sums).synthetic(50)
    assert only.table_error is None
    assert only.attributes == ("age",)
    assert "table" not in repr(only)


@pytest.mark.parametrize("records", [-1, 2.5, True, 2**40])
def test_what_cannot_be_listed_is_refused(records: int) -> None:
    with pytest.raises(InvalidInput, match="records"):
        released().synthetic(records)


def test_none_at_all() -> None:
    found = released().synthetic(0)
    assert found.codes.shape == (0, 3)
    assert (found.rmse, found.table_error) == (0, 0)
    assert len(found.frame()) == 0
