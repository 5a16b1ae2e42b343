"""The line below a notebook's cell: there while something takes long, gone afterwards, and never in the way."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato._util import display as notebooks

WORK = sf.stack(sf.marginals(sf.Domain({"a": 4, "b": 3, "c": 3}), upto=2))


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A notebook of the test's own, and what it was given to draw."""
    found: list[str] = []

    class Handle:
        def update(self, text: str) -> None:
            found.append(text)

    def display(text: str, *, display_id: bool) -> Handle:
        assert display_id
        found.append(text)
        return Handle()

    ipython = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", ipython)  # type: ignore[arg-type]
    shown = types.SimpleNamespace(display=display, HTML=str)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)  # type: ignore[arg-type]
    monkeypatch.setattr(notebooks, "_AFTER", 0.0)
    monkeypatch.setattr(notebooks, "_EVERY", 0.0)
    return found


def released() -> sf.Release:
    plan = sf.plan(WORK, sf.gdp(1), neighbours="add-remove", mechanism="marginals")
    return sf.release(plan, sf.Histogram(np.full((4, 3, 3), 2)), ledger=None, name="x")


def test_it_is_drawn_and_taken_away(drawn: list[str]) -> None:
    """Mutant: a line that is left behind."""
    release = released()
    drawn.clear()
    release.project(body="hull", space="answers")
    assert drawn[0].startswith("<div><progress")
    assert "projecting: step " in drawn[0]
    assert drawn[-1] == notebooks.EMPTY
    drawn.clear()
    sf.plan(sf.prefix(sf.Domain({"t": 12}), "t"), sf.gdp(1), neighbours="replace-one")
    assert not drawn or drawn[-1] == notebooks.EMPTY


def test_what_is_quick_draws_nothing(drawn: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebooks, "_AFTER", 60.0)
    released().project(body="hull", space="answers")
    assert drawn == []


def test_a_progress_of_ones_own_is_taken(drawn: list[str]) -> None:
    steps: list[int] = []
    released().project(body="hull", space="answers", progress=lambda step, _: steps.append(step))
    assert steps
    assert drawn == []


def test_a_picture_that_fails_stops_nothing(drawn: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: an error of the notebook passed on, where budget may have been spent."""

    def broken(*_: object, **__: Any) -> None:
        raise OSError("the browser is gone")

    monkeypatch.setattr(sys.modules["IPython.display"], "display", broken)
    assert released().project(body="hull", space="answers").projection is not None
    assert drawn == []


def test_outside_of_a_notebook_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in a plain program nor in IPython's terminal."""
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: None))  # type: ignore[arg-type]
    assert not notebooks.in_notebook()
    monkeypatch.delitem(sys.modules, "IPython")
    assert not notebooks.in_notebook()


def test_text_is_text(drawn: list[str]) -> None:
    with notebooks.show_progress("<b>", None) as line:
        assert line is not None
        line(1, 0.5)
        line.jobs("<i>", 1, 2)  # type: ignore[attr-defined]
    assert "<b>" not in drawn[0]
    assert "within 50.0% of the proved bound" in drawn[0]
    assert "<i>" not in drawn[1]
    assert 'value="1" max="2"' in drawn[1]


def test_the_projection_and_the_factorization_by_themselves_draw_one_too(drawn: list[str]) -> None:
    """Mutant: a verb that is called without a release or a plan, and is silent."""
    work = sf.marginals(sf.Domain({"a": 3, "b": 3, "c": 3}), upto=2)
    sf.project(np.arange(len(work), dtype=float), work, body="hull", total=40)
    assert "projecting: step " in drawn[0]
    assert drawn[-1] == notebooks.EMPTY
    for neighbours in ("add-remove", "replace-one"):
        for objective in ("mean", "max"):
            drawn.clear()
            sf.factorization(np.tri(12) + np.eye(12), neighbours, objective=objective)
            assert "factorizing: step " in drawn[0], (neighbours, objective)
            assert drawn[-1] == notebooks.EMPTY
