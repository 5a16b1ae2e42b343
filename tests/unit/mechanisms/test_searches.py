"""The planner runs searches in order of cost and says of each what came of it, or why it was not run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sfumato as sf
from sfumato.mechanisms.searches import FORMULA, LONG, SEARCHED, SEARCHES, Finding, Found, Search, run
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.strategies.design import Problem

DOMAIN = sf.Domain({"a": 4, "b": 3})


def problem(work: sf.Workload) -> Problem:
    return Problem(work, sf.gdp(1), PrivacyUnit(Neighbours.ADD_REMOVE), "gaussian")


def test_noise_on_the_cells_of_one_table_ends_the_search() -> None:
    """Mutants: a bound where records are replaced, or of several tables; what is not run not said."""
    table = sf.marginals(DOMAIN, sets=[("a", "b")])
    made = sf.plan(table, sf.gdp(1), neighbours="add-remove")
    assert made.mechanism == "gaussian"
    assert made.lower_bound is not None
    assert 1 <= made.objective_value / made.lower_bound <= 1 + 1e-8
    notes = {r["mechanism"]: r["note"] for r in made.candidates.rows() if r["objective_value"] is None}
    assert {n for n in notes if notes[n].startswith("not tried")} == {"marginals", "tree", "factorization"}
    swapped = sf.plan(table, sf.gdp(1), neighbours="replace-one")
    assert swapped.lower_bound is not None
    assert swapped.lower_bound < made.lower_bound * 2**0.5 * 0.97
    both = run(problem(sf.marginals(DOMAIN, order=1)), SEARCHES)
    assert both.designs[0] is not None
    assert both.designs[0].bound is None


def test_searches_are_run_in_order_of_cost_until_one_meets_its_bound() -> None:
    """Mutants: the order of the list; one run after the bound is met; an error that ends all searches; a line twice."""
    ran: list[str] = []

    def search(label: str, cost: int, **options: Any) -> Search:
        def find(asked: Problem, found: Found, progress: Any) -> Iterable[Finding]:
            ran.append(label)
            if label == "broken":
                raise sf.errors.PlanError("it is broken")
            return next(s for s in SEARCHES if s.label == label).find(asked, found, progress)

        return Search(label, "", cost, find, **options)

    several = [search("direct", SEARCHED), search("broken", FORMULA), search("tree", LONG), search("broken", FORMULA)]
    found = run(problem(sf.identity(DOMAIN, "a")), several)
    assert ran == ["broken", "broken", "direct"]
    assert [(c.mechanism, c.note[:9]) for c in found.refused] == [("broken", "it is bro"), ("tree", "not tried")]
    ran.clear()
    run(problem(sf.identity(DOMAIN, "a")), several, most=FORMULA)
    assert ran == ["broken", "broken"]
    ran.clear()
    more = run(problem(sf.identity(DOMAIN, "a")), several, everything=found)
    assert ran == ["tree"]
    assert [c.mechanism for c in more.refused] == ["broken", "tree"]
    assert "none is asked" in more.refused[1].note
