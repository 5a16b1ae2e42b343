"""What may not be said of records that are replaced within groups, and the same in a spec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import PlanError, SfumatoError
from support.places import grown, nested


def declared() -> tuple[sf.Workload, np.ndarray, dict[Any, Any]]:
    """Tables at levels, counts, and the totals of the first level."""
    rng = np.random.default_rng(0)
    work = nested(grown((3, 3, 3), rng, 0.4), (2, 3), [[], ["a0"], ["a0", "a1"]])
    x = rng.poisson(2.0, work.domain.shape)
    return work, x, {("L0",): totals(work.domain, x, "L0")}


def totals(domain: sf.Domain, x: np.ndarray, level: str) -> np.ndarray:
    found = domain.grouping(level)
    assert found is not None
    return np.bincount(found.groups, x.sum(axis=(1, 2)))


REFUSED: list[tuple[str, Any, dict[str, Any], str]] = [
    ("add-remove within L0", "L0", {}, "'replace-one' alone"),
    ("replace-one within L0", "L0", {"person": "who"}, "without person="),
    ("replace-one within L9", "L0", {}, "no attribute is called 'L9'"),
    ("replace-one within L0", None, {}, "give them"),
    ("replace-one within L0", "L1", {}, "give them"),
    ("add-remove", "L0", {}, "replace-one within L0"),
    ("replace-one", "L0", {}, "replace-one within L0"),
    ("replace-one within L0", "L0", {"mechanism": "gaussian"}, "for mechanism='marginals' alone"),
    ("replace-one within L0", "L0", {"mechanism": sf.mechanisms.mwem(rounds=2), "records": 9}, "'marginals' alone"),
    ("replace-one within L0", "L0", {"objective": "max"}, "the mean error"),
    ("replace-one within L0", "L0", {"periods": 4}, "elsewhere say 'replace-one'"),
    ("replace-one within L0", "L0", {"trust": "local"}, "elsewhere say 'replace-one'"),
    ("replace-one within a0", "a0", {}, "at levels of one attribute"),
]


@pytest.mark.parametrize(("neighbours", "level", "options", "words"), REFUSED)
def test_what_is_no_such_relation_is_refused(neighbours: str, level: Any, options: dict[str, Any], words: str) -> None:
    work, x, _ = declared()
    public = None if level is None else {(level,): totals(work.domain, x, level) if level != "a0" else [5, 9]}
    with pytest.raises(SfumatoError, match=words):
        sf.plan(work, sf.zcdp(1), neighbours=neighbours, public=public, **options)


def test_totals_are_counts_that_can_be() -> None:
    work, _, public = declared()
    given = public["L0",]
    for bad, words in (
        (given[:-1], "in the order of its groups"),
        (dict(enumerate(given)), "in the order of its groups"),
        (given + 0.5, "whole numbers"),
        (-given, "not negative"),
        (given.astype(float) * np.nan, "whole numbers"),
    ):
        with pytest.raises(PlanError, match=words):
            sf.plan(work, sf.zcdp(1), neighbours="replace-one within L0", public={("L0",): bad})
    with pytest.raises(PlanError, match="and them alone"):
        sf.plan(work, sf.zcdp(1), neighbours="replace-one within L0", public={**public, ("a0",): [1, 2]})


def test_totals_of_another_table_are_told() -> None:
    work, x, public = declared()
    given = public["L0",] + np.array([5, 0, 0])
    for known, said in ((public["L0",], 0), (given, 1)):
        made = sf.plan(work, sf.zcdp(1), neighbours="replace-one within L0", public={("L0",): known})
        found = sf.release(made, sf.Histogram(x), ledger=None)
        assert len([c for c in found.cautions if "of another table" in c.text]) == said
        assert np.array_equal(found.table("L0").values, known)


def test_impossible_cells_and_totals_may_not_contradict_each_other() -> None:
    """Mutant: records moved out of their group, whose total would then differ between neighbours."""
    rows = [("A", "1"), ("A", "2"), ("B", "3")]
    place = sf.Hierarchy(rows, levels=["state", "block"])
    parts: dict[str, Any] = {"place": place, "sex": 2}

    def asked(*cannot: str) -> sf.Workload:
        domain = sf.Domain(parts, impossible=cannot)
        return sf.marginals(domain, sets=[[], ["sex"]], factors={"place": "levels"})

    relation, public = "replace-one within state", {("state",): [5, 2]}
    for gone in (["state == 'B'"], ["place == '3'"], ["state == 'B' and sex == 0", "state == 'B' and sex == 1"]):
        with pytest.raises(PlanError, match="leave out the predicates over place"):
            sf.plan(asked(*gone), sf.zcdp(1), neighbours=relation, public=public)
    # within its group a record may be moved
    for kept in ("place == '1'", "state == 'B' and sex == 0"):
        work = asked(kept)
        made = sf.plan(work, sf.zcdp(1), neighbours=relation, public=public)
        found = sf.release(made, sf.Histogram([[1, 1], [1, 2], [1, 1]]), ledger=None)
        assert np.allclose(found.table("state").values, [5, 2])


def test_a_spec_says_it_too(tmp_path: Path) -> None:
    (tmp_path / "codes.csv").write_text("state,block\nA,1\nA,2\nB,3\n")
    place = {"type": "hierarchy", "values_from": "codes.csv", "levels": ["state", "block"]}
    lines = ["[schema.place]", *(f"{k} = {v!r}" for k, v in place.items()), "outside = 'other'", "missing = 'other'"]
    lines += ["[schema.adult]", "type = 'boolean'", "outside = 'other'", "missing = 'other'"]
    lines += ["[privacy]", "rho = '0.5'", "neighbours = 'replace-one within state'"]
    lines += ["[[public]]", "table = ['state']", "counts = [5, 2, 0]"]
    lines += ["[[queries]]", "sets = [[], ['adult']]", "factors = {place = 'levels'}"]
    spec = sf.read_spec(written(tmp_path, lines))
    assert spec.neighbours == "replace-one within state"
    made = sf.plan(spec.workload, spec.budget, neighbours=spec.neighbours, public=spec.public)
    assert made.unit.describe() == "one record replaced by another of the same state"
    bad = [line.replace("within state", "within town") for line in lines]
    with pytest.raises(sf.errors.SpecError, match=r"line 13: privacy\.neighbours: no attribute is called 'town'"):
        sf.read_spec(written(tmp_path, bad))


def written(folder: Path, lines: list[str]) -> Path:
    (folder / "spec.toml").write_text("\n".join(lines))
    return folder / "spec.toml"
