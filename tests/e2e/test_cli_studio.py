"""`sfumato studio`: what it begins with, what it needs, and what else it reads."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import sfumato as sf
from sfumato.studio import serving
from sfumato.studio.app import AccessKeys
from sfumato.studio.workspace import Places, Workspace
from support.studio import folder, studio
from support.typed import Run

Begun = list[tuple[Places, tuple[str, ...] | None, bool]]


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Begun:
    """What would be served, and whether a browser was led there."""
    found: Begun = []

    class Silent:
        def __init__(self, desk: Workspace, keys: AccessKeys) -> None:
            assert keys.port
            found.append((desk.places, desk.header, bool(opened)))
            opened.clear()

        def run(self, sockets: list[socket.socket]) -> None:
            assert [s.getsockname()[0] for s in sockets] == ["127.0.0.1"]

    opened: list[AccessKeys] = []
    monkeypatch.setattr(serving, "make_server", Silent)
    monkeypatch.setattr(serving, "_open_browser", opened.append)
    return found


def test_it_begins_with_a_table_a_spec_or_nothing(run: Run, places: Begun) -> None:
    """Only names are read of a table; a spec that is there is never written over."""
    for given in ([], ["people.csv"], ["spec.toml", "--ledger", "other.db", "--out", "elsewhere", "--no-browser"]):
        assert run("studio", *given).code == 0
    (blank, none, _), (begun, names, _), (ready, _, opens) = places
    assert (blank.spec.name, none) == ("table.toml", None)
    assert begun.spec.read_text().count('source = "people.csv"') == 1
    assert names == tuple(Path("people.csv").read_text().splitlines()[0].split(","))
    assert (ready.spec, ready.ledger, ready.releases) == (Path("spec.toml"), Path("other.db"), Path("elsewhere"))
    assert opens is False
    begun.spec.write_text("# mine\n")
    assert run("studio", "people.csv").code == 0
    assert begun.spec.read_text() == "# mine\n"
    assert run("studio", "none.toml").code == 2
    assert run("studio", "none.csv").code == 2
    with pytest.raises(sf.errors.SpecError):
        sf.read_spec("table.toml")


def test_the_bundled_table_is_a_spec_that_runs(run: Run, places: Begun) -> None:
    assert run("studio", "--demo").code == 0
    spec = sf.read_spec(places[0][0].spec)
    assert Path(spec.source or "").is_file()
    assert run("studio", "--demo").code == 0
    assert places[0][0].spec != places[1][0].spec


def test_without_the_extra_it_says_what_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.startswith(("sfumato.studio", "starlette"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette", None)
    said = run("studio", "--demo")
    assert said.code == 2
    assert "pip install -e '.[ui]'" in said.err


def test_nothing_else_loads_it() -> None:
    """Mutant: an import of the page at the top of the command line."""
    code = "import sys, sfumato, sfumato.cli; print([m for m in sys.modules if 'studio' in m or 'starlette' in m])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"


def test_other_kinds_are_read_or_told(tmp_path: Path) -> None:
    """A stream's totals as a release; a session and what nobody's page can do in words."""
    place = folder(tmp_path)
    space = sf.Domain({"sex": sf.Booleans()})
    shelf = place / "releases"
    shelf.mkdir()
    stream = sf.plan(sf.identity(space), sf.gdp(1), neighbours="add-remove", periods=4)
    with sf.open(stream, ledger=None, name="weekly") as opened:
        opened.append(sf.Histogram([30, 20]), "w1")
        opened.release().save(shelf / "weekly")
    ledger = sf.Ledger.create(place / "budget.db", total=sf.zcdp(1))
    asked = sf.plan(space, sf.zcdp("0.5"), neighbours="add-remove", mechanism="histogram")
    with sf.open(asked, sf.Histogram([30, 20]), ledger=ledger, name="desk", store=place / "desk.session"):
        pass
    found = [p for p in (place / "desk.session",) if p.is_file()]
    for session in found:
        shutil.copy(session, shelf / "desk")
    with studio(place) as page:
        read = page.page("/read?name=weekly").text
        assert "its totals up to w1" in read
        table = page.post("table", {"name": "weekly", "attributes": ["sex"]}).json
        assert len(table["blocks"][-1]["rows"]) == 2
        if found:
            told = page.page("/read?name=desk").text
            assert "sfumato session ask" in told
            assert page.post("table", {"name": "desk", "attributes": ["sex"]}).status == 400
