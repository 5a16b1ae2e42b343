"""Sessions and streams from the page: opened as by the command line, asked and appended once for what a window saw."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sfumato as sf
from sfumato._util.description import TitledTable
from sfumato.curator.conversations.stored import read_transcript
from sfumato.interactive import session_status
from sfumato.interactive.opening import OnlineSession, read_kept_session
from sfumato.mechanisms.registry import make_mechanism
from sfumato.planner.opening import plan_and_open
from sfumato.specs import read_spec
from sfumato.studio import conversations as talking
from sfumato.studio import paying
from support.studio import SPEC, Studio, folder, studio

ROOT = Path(__file__).parents[3]
SESSION = SPEC.replace("rho = 0.5", "epsilon = 3\ndelta = 1e-6") + "\n[plan]\nrecords = 300\n"
STREAM = SPEC.split("[[queries]]")[0] + "[[queries]]\nname = 'main'\nupto = 2\n[stream]\nperiods = 3\n"
QUESTION = "age >= 5 and sex == 'female'"


def open_ledger(page: Studio, rho: str = "1") -> None:
    assert page.post("ledger", {"budget": {"rho": rho}, "table": "people"}).status == 200


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Studio]:
    """A studio with a ledger and an opened session called desk."""
    with studio(folder(tmp_path, SESSION)) as running:
        open_ledger(running)
        assert running.paid("desk", "pmw")["state"] == "done"
        yield running


@pytest.fixture
def flowing(tmp_path: Path) -> Iterator[Studio]:
    """A studio with a ledger and an opened stream called weeks."""
    with studio(folder(tmp_path, STREAM)) as running:
        open_ledger(running)
        assert running.paid("weeks")["state"] == "done"
        yield running


def seen(page: Studio, name: str = "desk") -> str:
    return talking.store_anchor(page.desk.stored(name))


def put(page: Studio, question: object = QUESTION, anchor: object = None, name: str = "desk") -> Any:
    return page.post("put", {"name": name, "seen": seen(page) if anchor is None else anchor, "question": question})


def append(page: Studio, label: object, anchor: str | None = None) -> dict[str, Any]:
    asked = {"version": page.version, "name": "weeks", "period": label, "seen": anchor or seen(page, "weeks")}
    begun = page.post("append", asked)
    return begun.json if begun.status != 200 else page.ended()


def test_a_session_is_the_command_lines(page: Studio, tmp_path: Path) -> None:
    """The same plan, price, unit and table. Mutants: another currency, records or unit; the spec's queries planned."""
    theirs = folder(tmp_path / "theirs", SESSION)
    spec, ledger = read_spec(theirs / "spec.toml"), sf.Ledger.create(theirs / "budget.db", total=sf.zcdp(1))
    assert spec.source is not None
    plan_and_open(
        spec.source,
        spec.domain,
        spec.budget,
        mechanism=make_mechanism("pmw", currency=ledger.currency.value),
        records=spec.records,
        ledger=ledger,
        table=spec.table,
        name="desk",
        store=theirs / "desk.session",
        neighbours=spec.neighbours,
        person=spec.person,
        rows_per_person=spec.rows_per_person,
    )
    ours = sf.Ledger(page.desk.places.ledger).entries()[0]
    other = ledger.entries()[0]
    assert (ours.plan_hash.split(":")[0], ours.event, ours.unit, ours.table) == (
        other.plan_hash.split(":")[0],
        other.event,
        other.unit,
        other.table,
    )
    place = page.desk.store("desk")
    assert (place.stat().st_mode & 0o777, place.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert not page.desk.place("desk").exists()


def test_each_question_tells_its_price_and_what_is_left(page: Studio) -> None:
    """What is told before a question is how the store stands; after it, as the transcript has it."""
    before = talking.conversation_status(page.desk.stored("desk"))
    plan = read_kept_session(page.desk.stored("desk"))[1]["plan"]
    assert before is not None
    assert (before["updates_left"], before["buys"]) == (plan.updates, True)
    assert (before["easy"], before["hard"]) == (plan.easy_bound, plan.hard_bound)
    found = put(page).json
    steps = read_transcript(page.desk.stored("desk")).steps
    last = steps[-1]
    value = last.answer if last.above else last.question.estimates[0]
    assert found["answer"]["exact"] == value
    state = session_status(page.desk.stored("desk"))
    assert found["standing"]["updates_left"] == state["updates_left"]
    assert (found["standing"]["anchor"], found["standing"]["buys"]) == (state["anchor"], False)
    told = talking.conversation_transcript(page.desk.stored("desk"))
    assert told is not None
    table = told.blocks[1]
    assert isinstance(table, TitledTable)
    assert list(table.frame["records with"]) == [
        "all records: their number, which the session begins with",
        "age: 5 to 9 and sex: female",
    ]
    assert table.frame["answer"][-1] == f"{value:,.0f}"
    assert len(sf.Ledger(page.desk.places.ledger).entries()) == 1 + 1, "nothing is paid for a question"
    assert "age: 5 to 9" in page.page("/audit").text
    shown = page.page("/read?name=desk")
    assert shown.status == 200
    assert str(page.desk.places.spec.parent) not in shown.text, "a session remembers where its table is"


def test_of_two_windows_one_asks_and_the_other_is_told(page: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: the state that a window saw not compared; compared outside of the turn of questions."""
    asks, anchor = OnlineSession.ask, seen(page)

    def slow(session: Any, question: str) -> Any:
        time.sleep(0.3)
        return asks(session, question)

    monkeypatch.setattr(OnlineSession, "ask", slow)
    said: list[Any] = []
    windows = [threading.Thread(target=lambda: said.append(put(page, anchor=anchor))) for _ in "ab"]
    for window in windows:
        window.start()
    for window in windows:
        window.join()
    assert sorted(s.status for s in said) == [200, 409]
    assert "asked meanwhile" in next(s for s in said if s.status == 409).text
    assert session_status(page.desk.stored("desk"))["questions"] == 1
    assert put(page, anchor="").status == 409
    assert put(page, anchor=["x"]).status == 409
    assert put(page).status == 200


def test_what_is_refused_uses_nothing_up(page: Studio) -> None:
    before = seen(page)
    for question in ("", "   ", 7, None, "aged >= 5", "age >= 5 or", "sex == 'x'", "L" * 100_000):
        assert put(page, question).status == 400
    assert seen(page) == before


def test_a_store_put_back_is_refused(page: Studio, tmp_path: Path) -> None:
    """An older copy of the store would spend its updates twice. Mutant: a window's state taken for any before it."""
    place = page.desk.store("desk")
    shutil.copy(place, tmp_path / "old")
    assert put(page).status == 200
    later = seen(page)
    os.replace(tmp_path / "old", place)
    with studio(tmp_path) as fresh:
        for other in (page, fresh):
            refused = put(other, anchor=later)
            assert refused.status in (400, 409)
            assert "another window" not in refused.text
            assert str(tmp_path) not in refused.text


def test_a_session_goes_on_in_another_studio_on_its_own_table_and_ledger(page: Studio, tmp_path: Path) -> None:
    """Resumed from its store, paid nothing; another table or ledger is refused, and no place or row is told."""
    assert put(page).status == 200
    with studio(tmp_path) as other:
        assert put(other).status == 200
        assert other.paid("desk", "pmw")["text"].startswith("It was opened and paid for before")
    assert len([e for e in sf.Ledger(page.desk.places.ledger).entries() if e.kind == "spend"]) == 1
    (tmp_path / "people.csv").write_text("age,sex\n1,female\n", encoding="utf-8")
    with studio(tmp_path) as other:
        changed = put(other)
        assert changed.status == 400
        assert "could not be read as it is declared" in changed.text
    page.desk.places.ledger.unlink()
    sf.Ledger.create(page.desk.places.ledger, total=sf.zcdp(1), table="people")
    with studio(tmp_path) as other:
        foreign = put(other)
        assert foreign.status in (400, 409)
        assert "another ledger" in foreign.text
        assert str(tmp_path) not in foreign.text


def test_stores_are_not_handed_out_and_links_not_followed(page: Studio, tmp_path: Path) -> None:
    """A session's file holds secret noise. Mutants: a store among the downloads; a link in the folder of sessions."""
    for file in ("answers.parquet", "release.json", "stream.release", "tables.xlsx", "desk", "measurements.npz"):
        assert page.ask(f"/download/{file}?name=desk").status in (400, 404)
    secret = tmp_path / "elsewhere"
    shutil.copy(page.desk.store("desk"), secret)
    (page.desk.places.sessions / "linked").symlink_to(secret)
    assert "linked" not in page.desk.shelf()
    assert put(page, name="linked", anchor=seen(page)).status == 400
    for name in ("../elsewhere", str(secret), "", None, "desk/../desk"):
        assert page.post("put", {"name": name, "seen": seen(page), "question": QUESTION}).status == 400
        assert page.post("append", {"version": page.version, "name": name, "seen": "", "period": "a"}).status == 400


def test_other_sites_can_neither_ask_nor_append(page: Studio) -> None:
    """Mutant: a route of its own beside the guard's."""
    anchor = seen(page)
    asked = {"name": "desk", "seen": anchor, "question": QUESTION}
    for change in ({"origin": "http://evil.example"}, {"sec_fetch_site": "cross-site"}, {"authorization": None}):
        for call in ("put", "append"):
            assert page.post(call, asked, **change).status == 403
    assert page.post("put", asked, host=f"localhost:{page.keys.port}").status == 403
    assert seen(page) == anchor


def test_one_name_is_of_one_thing(page: Studio) -> None:
    """A release called as a session is: refused before anything is spent. Mutant: places not compared."""
    job = page.paid("desk")
    assert "is the name of a session here" in job["error"]
    assert page.post("plan", {"version": page.version, "what": "cells"}).status == 400
    assert page.post("pay", {"version": page.version, "what": ["pmw"], "name": "x"}).status == 400
    assert len([e for e in sf.Ledger(page.desk.places.ledger).entries() if e.kind == "spend"]) == 1


def test_all_cells_once_is_a_release(tmp_path: Path) -> None:
    with studio(folder(tmp_path, SESSION)) as page:
        open_ledger(page)
        assert page.paid("cells", "histogram")["state"] == "done"
        assert page.post("ask", {"name": "cells", "question": QUESTION}).status == 200
        assert talking.conversation_transcript(page.desk.stored("cells")) is None


KILLED = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from sfumato._util.description import TitledTable
from sfumato.curator.conversations.transcript import FileTranscript
FileTranscript.pay = lambda *_: os._exit(9)
from support.studio import studio
with studio(Path(sys.argv[1])) as page:
    page.paid("killed", "pmw")
"""


def test_killed_in_mid_payment(tmp_path: Path) -> None:
    """Paid and not complete: said in the ledger; the same payment completes it, and nothing is paid twice."""
    place = folder(tmp_path, SESSION)
    with studio(place) as page:
        open_ledger(page)
    call = [sys.executable, "-c", KILLED, str(place), str(ROOT / "tests")]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}"}
    assert subprocess.run(call, env=environment, check=False, capture_output=True).returncode == 9
    with studio(place) as page:
        assert page.post("account", {"version": page.version}).json["ledger"]["unreleased"] == ["killed"]
        assert page.page("/read?name=killed").status == 200
        assert "did not come to its end" in page.page("/audit").text
        assert page.paid("killed", "pmw")["state"] == "done"
        assert "did not come to its end" not in page.page("/audit").text
        assert len([e for e in sf.Ledger(place / "budget.db").entries() if e.kind == "spend"]) == 1
        assert page.paid("next", "pmw")["state"] == "done"


def test_killed_before_the_ledger_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paid and kept: the same payment goes on with it, and questions are answered; nothing is paid twice."""
    from sfumato.interactive import session as requests

    place = folder(tmp_path, SESSION)
    with monkeypatch.context() as killed, studio(place) as page:
        open_ledger(page)
        killed.setattr(requests, "mark_kept", lambda *_: None)
        page.paid("killed", "pmw")
    with studio(place) as page:
        assert page.post("account", {"version": page.version}).json["ledger"]["unreleased"] == ["killed"]
        assert page.paid("killed", "pmw")["state"] == "done"
        assert put(page, name="killed", anchor=seen(page, "killed")).status == 200
        assert len([e for e in sf.Ledger(place / "budget.db").entries() if e.kind == "spend"]) == 1


def test_a_stream_is_opened_and_appended(flowing: Studio, tmp_path: Path) -> None:
    """Periods by the spec's source; what the page shows are Python's totals; a label that is there changes nothing."""
    assert "without a period" in flowing.page("/read?name=weeks").text
    assert append(flowing, "W1")["text"] == "W1 is published: 1 of 3 periods."
    (tmp_path / "week2.csv").write_text("age,sex\n" + "3,female\n" * 50, encoding="utf-8")
    moved = [{"place": ["data", "source"], "value": "week2.csv"}]
    assert flowing.post("change", {"version": flowing.version, "changes": moved}).status == 200
    assert append(flowing, " W2 ")["state"] == "done"
    assert "published before" in append(flowing, "W2")["text"]
    store = flowing.desk.stored("weeks")
    totals = sf.load(store, ledger=tmp_path / "budget.db").totals
    found = flowing.post("ask", {"name": "weeks", "question": "age == 3"}).json
    assert found["exact"] == pytest.approx(totals.ask("age == 3").value)
    told = talking.conversation_transcript(store)
    assert told is not None
    rows = told.to_dict()["blocks"][1]["rows"]
    assert rows == [["1", "W1"], ["2", "W2"]]
    public = flowing.ask("/download/stream.release?name=weeks")
    (tmp_path / "public").write_bytes(public.body)
    assert sf.load(tmp_path / "public").periods == ("W1", "W2")
    assert len([e for e in sf.Ledger(tmp_path / "budget.db").entries() if e.kind == "spend"]) == 1
    assert append(flowing, "W3")["state"] == "done"
    assert "all 3 periods" in append(flowing, "W4")["text"]
    assert flowing.paid("weeks")["text"].startswith("It was opened and paid for before")


def test_of_two_windows_one_appends(flowing: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: the state that a window saw not compared when its turn has come; no turns."""
    made_, gate, anchor = paying.resume_stored, threading.Event(), seen(flowing, "weeks")

    def slow(*given: Any) -> Any:
        gate.wait(30)
        return made_(*given)

    monkeypatch.setattr(paying, "resume_stored", slow)
    asked = {"version": flowing.version, "name": "weeks", "seen": anchor}
    assert flowing.post("append", asked | {"period": "A"}).status == 200
    other = flowing.post("append", asked | {"period": "B"})
    assert other.status == 409
    gate.set()
    assert flowing.ended()["state"] == "done"
    assert append(flowing, "B", anchor)["error"].startswith("another window or program added a period")
    # looked at before, and moved on while it waited
    monkeypatch.setattr(talking, "store_anchor", lambda *_: anchor)
    assert "meanwhile" in append(flowing, "B", anchor)["text"]
    assert sf.load(flowing.desk.stored("weeks"), ledger=flowing.desk.places.ledger).periods == ("A",)


def test_a_period_that_cannot_be_read_says_one_thing(flowing: Studio, tmp_path: Path) -> None:
    """Nor does a text that is no label publish anything. Mutant: the reader's own words, which name files."""
    before = seen(flowing, "weeks")
    for label in ("", " ", 7, None, "L" * 300, "a\nb", "=1+1\x00"):
        job = append(flowing, label)
        assert "error" in job or job["state"] == "refused"
    said = set[str]()
    for rows in ("", "x", None):
        if rows is None:
            (tmp_path / "people.csv").unlink()
        else:
            (tmp_path / "people.csv").write_text(rows, encoding="utf-8")
        job = append(flowing, "W1")
        assert job["state"] == "refused"
        said.add(job["text"])
    assert seen(flowing, "weeks") == before
    assert len(said) == 1
    assert str(tmp_path) not in said.pop()
