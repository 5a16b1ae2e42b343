"""mechanism="adaptive" over domains with cells that no record can be in: the same measurement, and nothing there."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import sfumato as sf
from support.impossible import drawn, impossible_mass


def planned(domain: sf.Domain, order: int, neighbours: str = "replace-one", **more: object) -> sf.Plan:
    given: dict[str, object] = {"records": 300, "mechanism": "adaptive", **more}
    plan = sf.plan(sf.marginals(domain, upto=order), sf.gdp(1), neighbours=neighbours, **given)
    assert isinstance(plan, sf.Plan)
    return plan


def histogram(domain: sf.Domain, seed: int) -> sf.Histogram:
    """With impossible records, which count elsewhere."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(domain.size, 0.2))
    return sf.Histogram(rng.multinomial(300, shares).reshape(domain.shape))


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_nobody_is_where_nobody_can_be(seed: int, order: int, neighbours: str) -> None:
    """Answers, tables, further questions, whole counts and records; tables agree.

    Mutants: a question beyond the pairs that starts from all cells; triples made to agree without zeros; zeros that the
    agreement leaves out; records left where models drew them.
    """
    domain = drawn(seed)
    plan, free = planned(domain, order, neighbours), planned(sf.Domain(domain.attributes), order, neighbours)
    assert np.array_equal(plan.standard_errors(), free.standard_errors())
    assert plan.price == free.price
    found = sf.release(plan, histogram(domain, seed), ledger=None)
    possible = domain.possible(domain.names)
    assert possible is not None
    assert impossible_mass(domain, found) == 0
    assert found.answers.min() >= 0
    whole = np.asarray(found.table(*domain.names).values)
    assert not whole[~possible].any()
    total = float(found.table(domain.names[0]).values.sum())
    assert abs(whole.sum() - total) < 1e-6 * total
    for pair in itertools.combinations(domain.names, 2):
        first, second = (np.asarray(found.table(*names).values) for names in (pair, pair[::-1]))
        assert np.array_equal(first, second.T)
        for i, name in enumerate(pair):
            np.testing.assert_allclose(first.sum(axis=1 - i), found.table(name).values, atol=1e-6)
    for made in (found.synthetic(), found.synthetic(500)):
        assert possible[tuple(made.codes.T)].all()
    whole_counts = found.project("mixtures", integer=True)
    assert impossible_mass(domain, whole_counts) == 0
    assert np.array_equal(whole_counts.answers, np.rint(whole_counts.answers))


def test_triples_that_were_measured_have_zeros() -> None:
    domain = sf.Domain(drawn(0).attributes, ["a >= 2 and c == 'x' and not b", "county == '3' and c == 'z'"])
    plan = planned(domain, 3, records=100_000)
    counts = np.random.default_rng(0).integers(0, 2_000, domain.shape)
    found = sf.release(plan, sf.Histogram(counts), ledger=None)
    assert found.projection is not None
    assert found.projection.possible.adapted.triples  # pyright: ignore[reportAttributeAccessIssue]
    assert impossible_mass(domain, found) == 0
    for axes in itertools.combinations(domain.names, 3):
        table = np.asarray(found.table(*axes).values)
        np.testing.assert_allclose(table.sum(axis=2), found.table(*axes[:2]).values, rtol=1e-6, atol=1e-3)


def test_other_releases_are_denoised_with_them_too(tmp_path: Path) -> None:
    """Of mechanism="marginals", and of two releases pooled; files keep what cannot be."""
    domain = drawn(3)
    plain = sf.release(planned(domain, 2, mechanism="marginals"), histogram(domain, 0), ledger=None)
    assert impossible_mass(domain, plain.project("mixtures")) == 0
    first = sf.release(planned(domain, 2), histogram(domain, 0), ledger=None, snapshot="one")
    rest = planned(domain, 2, mechanism=sf.mechanisms.adaptive(after=first))
    second = sf.release(rest, histogram(domain, 0), ledger=None, snapshot="one")
    assert impossible_mass(domain, second.project("mixtures", earlier=first)) == 0
    second.save(tmp_path / "r")
    again = sf.load(tmp_path / "r")
    possible = domain.possible(domain.names)
    assert possible is not None
    assert not np.asarray(again.table(*domain.names).values)[~possible].any()
