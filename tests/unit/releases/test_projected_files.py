"""A projected release on disk and beside others: everything in it comes back, and the unprojected answers stay."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import NotAnswerable
from sfumato.postprocess.possible import CellCounts, PairMoments, Possible, RecordCounts, TableCounts

BITS = sf.Domain({f"b{i}": sf.Booleans() for i in range(4)})
COUNTS = np.random.default_rng(4).multinomial(60, np.random.default_rng(5).dirichlet(np.ones(16) * 0.2))


def released(domain: sf.Domain = BITS, snapshot: str | None = None) -> sf.Release:
    plan = sf.plan(sf.marginals(domain, order=2), sf.approx(1, "1e-6"), neighbours="replace-one")
    counts = np.resize(COUNTS, domain.size).reshape(domain.shape)
    return sf.release(plan, sf.Histogram(counts), ledger=None, snapshot=snapshot)


@pytest.mark.parametrize(
    ("body", "kind"),
    [("hull", CellCounts), ("local", TableCounts), ("exact", RecordCounts), ("sdp", PairMoments)],
)
def test_every_kind_of_projection_comes_back_from_disk(body: str, kind: type[Possible], tmp_path: Path) -> None:
    projected = released().project(body)
    found = projected.projection
    assert found is not None
    assert type(found.possible) is kind
    projected.save(tmp_path / "out")
    again = sf.load(tmp_path / "out")
    back = again.projection
    assert back is not None
    assert type(back.possible) is kind
    assert again.answers.tolist() == projected.answers.tolist()
    assert again.raw.answers.tolist() == projected.raw.answers.tolist()
    for names in (("b0",), ("b2", "b1"), ()):
        assert np.array_equal(again.table(*names).values, projected.table(*names).values)
    for name in ("gap", "certified", "moved", "iterations", "body", "realisable", "rounded", "norm", "rungs"):
        assert getattr(back, name) == getattr(found, name)
    facts = json.loads((tmp_path / "out" / "release.json").read_text())
    told = facts["projection"].pop("rungs")
    assert [(r["name"], r["queries"], r["moved"], r["gap"]) for r in told] == [
        (r.name, r.queries, r.moved, r.gap) for r in found.rungs
    ]
    assert facts["projection"] == {
        "body": body,
        "norm": found.norm,
        "moved": found.moved,
        "gap": found.gap,
        "certified": found.certified,
        "realisable": found.realisable,
        "rounded": None,
        "iterations": found.iterations,
    }
    assert found.describe() in facts["post_processing"]


def test_norms_are_named() -> None:
    raw = released()
    for body, space, norm in (
        ("hull", "answers", "answers"),
        ("hull", "measurements", "noise"),
        ("local", "answers", "noise"),
        ("local", "measurements", "noise"),
        ("sdp", "answers", "answers"),
        ("sdp", "measurements", "noise"),
    ):
        found = raw.project(body, space=space).projection
        assert found is not None
        assert found.norm == norm, (body, space)
    whole = raw.project("hull", integer=True).projection
    assert whole is not None
    assert whole.rounded is not None
    assert whole.rounded > 0


def test_both_answers_are_in_the_files(tmp_path: Path) -> None:
    projected = released().project()
    projected.save(tmp_path / "out")
    with duckdb.connect() as connection:
        rows = connection.execute(
            f"SELECT answer, unprojected, standard_error, low, high FROM '{tmp_path}/out/answers.parquet'"
        )
        answer, raw, error, low, high = (np.array(c) for c in zip(*rows.fetchall(), strict=True))
    assert answer.tolist() == projected.answers.tolist()
    assert raw.tolist() == projected.raw.answers.tolist()
    assert all(e is None for e in error)
    ends = projected.intervals()
    assert low.tolist() == ends.low.tolist()
    assert high.tolist() == ends.high.tolist()
    lines = (tmp_path / "out" / "tables" / "b0.b1.csv").read_text().splitlines()
    assert lines[0] == "b0,b1,answer,unprojected,standard_error,low,high"
    cells = [line.split(",") for line in lines[1:]]
    assert [float(c[2]) for c in cells] == pytest.approx(projected.table("b0", "b1").values.reshape(-1), abs=1e-3)
    assert [float(c[3]) for c in cells] == pytest.approx(projected.raw.table("b0", "b1").values.reshape(-1), abs=1e-3)
    assert {c[4] for c in cells} == {""}


def test_attributes_may_be_called_like_columns(tmp_path: Path) -> None:
    domain = sf.Domain({"answer": sf.Booleans(), "Low": sf.Categories(["x", "y"]), "unprojected": 3})
    raw = released(domain)
    for name, release in (("raw", raw), ("projected", raw.project())):
        release.save(tmp_path / name)
        frame = release.table("answer", "Low").frame()
        assert frame["answer (attribute)"] == ["false", "false", "true", "true"]
        assert frame["answer"] == release.table("answer", "Low").values.reshape(-1).tolist()
        lines = (tmp_path / name / "tables" / "answer.unprojected.csv").read_text().splitlines()
        assert lines[0].startswith("answer (attribute),unprojected (attribute),answer,")
        assert [line.split(",")[:2] for line in lines[1:4]] == [["false", "0"], ["false", "1"], ["false", "2"]]
        assert len(lines[0].split(",")) == len(lines[1].split(","))
        other = (tmp_path / name / "tables" / "answer.Low.csv").read_text().splitlines()
        assert other[0].startswith("answer (attribute),Low (attribute),answer,")
        assert other[0].endswith(",standard_error,low,high")


def test_pooling_and_comparing_take_the_unprojected_answers() -> None:
    first, second = released(snapshot="2026"), released(snapshot="2026")
    projected = first.project(), second.project()
    assert projected[0].answers.tolist() != first.answers.tolist()
    for both in (sf.combine, sf.difference):
        expected, found = both(first, second), both(*projected)
        assert found.answers.tolist() == expected.answers.tolist()
        assert found.standard_errors().tolist() == expected.standard_errors().tolist()
        assert both(projected[0], second).answers.tolist() == expected.answers.tolist()
        assert found.intervals().low.tolist() == expected.intervals().low.tolist()


@pytest.mark.parametrize("body", ["hull", "local", "exact"])
def test_batches_and_tables_are_the_projected_ones(body: str) -> None:
    projected = released().project(body)
    batches = list(projected.batches())
    assert np.concatenate([b.values.reshape(-1) for b in batches]) == pytest.approx(projected.answers)
    assert all(b.standard_errors is None for b in batches)
    assert [b.attributes[0] for b in batches] == [t.attributes for t in projected.tables()]
    assert min(t.values.min() for t in projected.tables()) >= -1e-9


def test_what_is_not_held_is_refused() -> None:
    projected = released().project("sdp")
    with pytest.raises(NotAnswerable, match="b0, b1, b2"):
        projected.table("b0", "b1", "b2")
