"""An attribute and a measure of one column: what records can be, what they cost, and what is then planned."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from sfumato.cells import POINTS
from sfumato.curator.rows.counting import ColumnCounts
from sfumato.curator.rows.sources import open_source
from sfumato.privacy import measures as priced_measures
from sfumato.privacy.measures import corners
from sfumato.privacy.same_column import SameColumn, same_columns
from support.same_column import EDGES, WAYS, declared, joint_errs


def _hostile() -> list[float]:
    """Edges, ends and knots with what lies beside them, half a step away too; and what is no number, or far off."""
    places = [*EDGES, 0.1, 0.3, 0.7, 2.0**53, 3, 10, 17, 24, 29, 30, 31, -5, 8]
    found = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e300, -1e300, 29.5, 5e-324]
    for v in places:
        found += [v, math.nextafter(v, math.inf), math.nextafter(v, -math.inf)]
        found += [v + k * w / POINTS for w in (1e3, 30.9, 13) for k in (-1, -0.5, 0.5, 1)]
    return [*found, *np.random.default_rng(186).uniform(-10, 40, 100).tolist()]


def test_records_are_where_their_cells_reach() -> None:
    """As the engine reads hostile numbers. Mutants: an edge open; a number that is cut taken to be in no cell; one that
    is absent taken to have a step; fractions beyond the last whole number forgotten."""
    values = _hostile()
    domain = declared(WAYS)
    frame = pd.DataFrame({"row": range(len(values)), **{f"c{i}": values for i in range(len(WAYS))}})
    counts = open_source(frame, domain)
    assert isinstance(counts, ColumnCounts)
    codes = {n: np.concatenate([np.asarray(c[i]) for c in counts.chunks]) for i, n in enumerate(domain.names)}
    same = same_columns(domain.grid)
    assert len(same) == len(WAYS)
    for s in same:
        seen = {*zip(codes[s.attribute].tolist(), codes[s.measure].tolist(), strict=True)}
        beyond = [(c, p) for c, p in seen if not any(a <= p <= b for a, b in s.steps[c])]
        assert not beyond, (domain[s.attribute], domain[s.measure], beyond)
        assert len({c for c, _ in seen}) > 2


def test_no_record_changes_more_than_is_priced() -> None:
    """Ten thousand were drawn by bench/measures.py. Mutants: below."""
    assert joint_errs(20)[0] == 0


def test_the_price_of_what_is_linear_on_pieces_is_what_some_record_adds() -> None:
    """But for the rounding of shares. Mutant: every pair of a cell and a number taken to be possible (its price is then
    twice and more what any record adds)."""
    low, most = joint_errs(12, hats=True)
    assert low == 0
    assert most < 1.0001


@pytest.mark.parametrize("mutant", ["corner", "cell", "end"])
def test_mutants_of_the_price_are_found(monkeypatch: pytest.MonkeyPatch, mutant: str) -> None:
    """A corner of every piece left out; the pieces of another cell; the last piece that a cell reaches left out."""
    steps = SameColumn.steps.func  # type: ignore[attr-defined]
    if mutant == "corner":
        monkeypatch.setattr(priced_measures, "corners", lambda cells: corners(cells)[:, 1:])
    elif mutant == "cell":
        monkeypatch.setattr(SameColumn, "steps", property(lambda s: (*steps(s)[1:], steps(s)[0])))
    else:
        reached = SameColumn._reached
        monkeypatch.setattr(SameColumn, "_reached", lambda s, codes: [*reached(s, codes)][:-1] or [*reached(s, codes)])
    assert joint_errs(60, enough=1)[0] > 0
