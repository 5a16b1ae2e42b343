"""The bundled table is what its source describes, and its spec declares all of it."""

from __future__ import annotations

from importlib.resources import files

import numpy as np

from sfumato.curator.rows.sources import open_source
from sfumato.specs import read_spec

SPEC = read_spec(str(files("sfumato") / "data" / "adult.toml"))
COUNTS = open_source(SPEC.source, SPEC.domain)


def test_the_records_are_those_of_the_source() -> None:
    """Figures of the data set's own description: 48,842 records, 45,222 without unknowns, 23.93 % above 50K."""
    assert COUNTS.rows == 48_842
    unknown = ("workclass", "occupation", "country")
    tables = COUNTS.count([("income",), unknown])
    assert tables[unknown][:-1, :-1, :-1].sum() == 45_222
    assert round(tables[("income",)][1] / 48_842 * 100, 2) == 23.93


def test_nothing_falls_outside_its_declaration_but_the_unknown() -> None:
    unknown = {name: int(COUNTS.count([(name,)])[(name,)][-1]) for name in SPEC.domain.names}
    assert {name: n for name, n in unknown.items() if n} == {"workclass": 2799, "occupation": 2809, "country": 857}


def test_every_category_and_bin_occurs_and_the_ends_are_real() -> None:
    """A misspelt category would be an empty cell."""
    for name, attribute in SPEC.domain.attributes.items():
        table = COUNTS.count([(name,)])[(name,)][: len(attribute.declared_labels)]
        if name not in ("hours_per_week", "age"):
            assert (table > 0).sum() >= table.size - (name == "capital_gain"), name
        assert table[0] > 0
        assert table[-1] > 0


def test_the_spec_asks_what_the_demo_shows() -> None:
    named = ("older than 64", "graduates", "unpaid or out of work")
    assert tuple(SPEC.workload.parts) == ("main", "people", "age CDF", *named)
    assert SPEC.neighbours.value == "add-remove"
    assert SPEC.person is None
    assert not SPEC.domain.drops
    assert np.prod([float(s) for s in SPEC.domain.shape]) == SPEC.domain.size


def test_the_file_is_small_and_says_where_it_comes_from() -> None:
    content = (files("sfumato") / "data" / "adult.parquet").read_bytes()
    assert len(content) < 300_000
    assert b"doi:10.24432/C5XW20, CC BY 4.0" in content
