"""Every release that has errors is projected: what a body cannot hold keeps its answer as it was, and is named."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sfumato as sf

SIZES = dict.fromkeys("abcdef", 12)  # with (other) 4,826,809 cells: no joint table


def domain() -> sf.Domain:
    return sf.Domain({n: sf.Integers(0, s - 1, outside="other", missing="other") for n, s in SIZES.items()})


def rows(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame({n: rng.integers(0, s, 3_000) for n, s in SIZES.items()})


@functools.cache
def released(which: str, neighbours: str = "add-remove") -> sf.Release:
    plan = sf.plan(asked(which), sf.approx(1, "1e-6"), neighbours=neighbours)  # type: ignore[arg-type]
    return sf.release(plan, rows(1), ledger=None)


def asked(which: str) -> sf.Workload:
    d = domain()
    named = sf.predicates(d, ["a < 5 and b < 4", "a >= 6 and c < 7 and d < 5", "e < 3 and f >= 6"])
    tables = sf.marginals(d, upto=1)
    return {
        "named": lambda: sf.stack(tables=tables, named=named),
        "named alone": lambda: named,
        "sums": lambda: sf.stack(some=sf.marginals(d, sets=[(x,) for x in "cdef"]), sums=sf.sums(d, "a", by="b")),
        "prefix": lambda: sf.stack(tables=tables, prefix=sf.prefix(d, "a"), named=named),
    }[which]()


@pytest.mark.parametrize(
    ("which", "neighbours"),
    [
        ("named", "add-remove"),
        ("named alone", "add-remove"),
        ("named alone", "replace-one"),
        ("sums", "replace-one"),
        ("prefix", "add-remove"),
    ],
)
def test_auto_takes_every_release_and_says_what_stays(which: str, neighbours: str) -> None:
    """Mutants: the refusal as it was; all queries left out where one is; what stays clipped at 0."""
    release = released(which, neighbours)
    done = release.project()
    found = done.projection
    assert found is not None
    said = {"named": "3 of 'named'", "named alone": "3 of 'predicates'", "prefix": "3 of 'named'"}.get(which)
    assert said in found.left_out if said else "13 of 'sums'" in found.left_out[0]
    assert "stay as they were measured" in done.explain()
    start = 0
    for q in release.workload.blocks:
        here = slice(start, start := start + q.rows)
        if q.is_marginal:
            assert (done.answers[here] >= -1e-9).all()
        elif "prefix" not in q.part:
            assert np.array_equal(done.answers[here], release.answers[here])
    ends = done.intervals()
    assert (ends.low <= done.answers + 1e-6).all()
    assert (done.answers <= ends.high + 1e-6).all()


def test_what_stays_is_stored_asked_and_left_out_of_records(tmp_path: Path) -> None:
    release = released("named", "add-remove")
    done = release.project()
    done.save(tmp_path / "out")
    again = sf.load(tmp_path / "out")
    assert isinstance(again, sf.Release)
    assert again.projection is not None
    assert again.projection.left_out == ("3 of 'named'",)
    assert np.array_equal(again.answers, done.answers)
    assert done.ask("a < 5 and b < 4").value == release.ask("a < 5 and b < 4").value
    whole = release.project(integer=True)
    assert whole.projection is not None
    assert whole.projection.rounded is not None
    records = done.synthetic(500)
    assert len(records) == 500
    with pytest.raises(sf.NotAnswerable, match="no records follow"):
        released("named alone", "add-remove").synthetic()
