"""Several windows of one studio: none waits for what another one changes, and each sees files as they are."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sfumato._util.documents import write_text_atomically
from sfumato.errors import NameTaken
from sfumato.studio import what_if as saying
from sfumato.studio import workspace as desks
from sfumato.studio.drafts import text_version
from sfumato.studio.what_if import spec_state
from support.studio import SPEC, folder, studio

CHANGE = [{"place": ["schema", "sex", "values"], "value": ["one", "two", "three"]}]


def test_a_change_that_takes_long_holds_up_no_other_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages show the spec as it was, and other changes are refused, until it is written; then all is ready.

    Mutants: one lock that every call takes, or that changes wait for without end; a file that is written before what
    pages say of it is known; what is said anew by every call.
    """
    begun, go_on = threading.Event(), threading.Event()
    said: list[str] = []
    plainly = saying._declared_state  # pyright: ignore[reportPrivateUsage]

    def slowly(desk: desks.Workspace, text: str) -> dict[str, object]:
        said.append(text_version(text))
        if "three" in text:
            begun.set()
            assert go_on.wait(60)
        return plainly(desk, text)

    monkeypatch.setattr(saying, "_declared_state", slowly)
    with studio(folder(tmp_path)) as page:
        before = page.version
        answers: list[int] = []
        asked = {"version": before, "changes": CHANGE}
        first = threading.Thread(target=lambda: answers.append(page.post("change", asked).status))
        first.start()
        try:
            assert begun.wait(60)
            assert page.page("/table").json["data"]["version"] == before
            assert page.page("/audit").status == 200
            other = page.post("change", {"version": before, "changes": []})
            assert (other.status, "another window" in other.text) == (409, True)
            assert not answers
        finally:
            go_on.set()
            first.join(60)
        assert answers == [200]
        shown = page.page("/table").json["data"]
        assert shown["columns"]["sex"]["cells"] == 4
        assert sorted(said) == sorted({before, text_version(page.desk.text)})


def test_an_editor_that_writes_while_a_change_is_made_is_not_overwritten(tmp_path: Path) -> None:
    """Mutant: the file looked at before the change alone."""
    with studio(folder(tmp_path)) as page:
        edited = SPEC + "# mine\n"
        with pytest.raises(NameTaken, match="changed meanwhile"):
            page.desk.change(page.version, CHANGE, ready=lambda _: write_text_atomically(page.desk.places.spec, edited))
        assert page.desk.text == edited
        page.desk.change(page.version, CHANGE)  # and nobody is kept from the next


def test_a_file_of_codes_is_read_again_once_it_was_written(tmp_path: Path) -> None:
    """Mutants: what a column declares, or what all of them do, kept by the spec's text alone."""
    spec = SPEC.replace('values = ["female", "male"]', 'values_from = "codes.csv"')
    spec = spec.replace("and sex == 'female'", "")
    with studio(folder(tmp_path, spec)) as page:
        assert "error" in spec_state(page.desk)["columns"]["sex"]
        for codes in ("code\na\nb\n", "code\na\nb\nc\n"):
            (tmp_path / "codes.csv").write_text(codes, encoding="utf-8")
            found = spec_state(page.desk)
            assert found["columns"]["sex"]["cells"] == len(codes.split())
            assert found["problem"] is None
