"""What costs: paid once, for the plan that was seen; races are told; refusals say nothing of rows or places."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import sfumato as sf
from sfumato.releasing import plan_or_spec
from sfumato.studio import paying
from sfumato.studio.workspace import Places, Workspace
from support.studio import ROWS, SPEC, Studio, folder, studio

ROOT = Path(__file__).parents[3]


def open_ledger(page: Studio, rho: str = "1") -> None:
    assert page.post("ledger", {"budget": {"rho": rho}, "table": "people"}).status == 200


def test_the_page_pays_what_the_command_line_would(tmp_path: Path) -> None:
    """The same plan, price and files. Mutant: a plan made of anything but the spec file."""
    place = folder(tmp_path / "ours")
    with studio(place) as page:
        open_ledger(page)
        assert page.paid("2026-11")["state"] == "done"
        entry = sf.Ledger(place / "budget.db").entries()[0]
    theirs = folder(tmp_path / "theirs")
    plan, source, table = plan_or_spec(theirs / "spec.toml")
    ledger = sf.Ledger.create(theirs / "budget.db", total=sf.zcdp(1), table=table)
    sf.release(plan, source, ledger=ledger, name="2026-11", out=theirs / "releases/2026-11", table=table)  # type: ignore[call-overload]
    other = ledger.entries()[0]
    assert (entry.name, entry.plan_hash, entry.price, entry.table) == (
        other.name,
        other.plan_hash,
        other.price,
        "people",
    )
    names = [sorted(p.relative_to(f) for p in (f / "releases/2026-11").rglob("*")) for f in (place, theirs)]
    assert names[0] == names[1]
    assert (place / "spec.toml").read_text() == SPEC


def test_a_plan_that_changed_since_is_not_paid(tmp_path: Path) -> None:
    """Mutants: the spec read again at payment; the fingerprint not compared."""
    with studio(folder(tmp_path)) as page:
        open_ledger(page)
        seen = page.version
        plan = page.post("plan", {"version": seen}).json
        cheaper = [{"place": ["privacy", "rho"], "value": {"number": "0.6"}}]
        assert page.post("change", {"version": seen, "changes": cheaper}).status == 200
        stale = page.post("pay", {"version": seen, "fingerprint": plan["fingerprint"], "name": "a"})
        assert stale.status == 409
        wrong = page.post("pay", {"version": page.version, "fingerprint": plan["fingerprint"], "name": "a"})
        assert wrong.status == 409
        assert sf.Ledger(tmp_path / "budget.db").entries() == ()
        lost = page.post(
            "change", {"version": seen, "changes": [{"place": ["privacy", "rho"], "value": {"number": "9"}}]}
        )
        assert lost.status == 409
        assert "0.6" in page.desk.text


def test_of_two_windows_one_pays_and_the_other_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: no turn among payments, where both read the table. Both windows, at the same moment, for one name."""
    made = paying.release
    gate = threading.Event()

    def slow(*given: Any, **options: Any) -> Any:
        gate.wait(30)
        return made(*given, **options)

    monkeypatch.setattr(paying, "release", slow)
    with studio(folder(tmp_path)) as page:
        open_ledger(page)
        version = page.version
        asked = {"version": version, "fingerprint": page.post("plan", {"version": version}).json["fingerprint"]}
        said: list[Any] = []
        windows = [threading.Thread(target=lambda: said.append(page.post("pay", asked | {"name": "x"}))) for _ in "ab"]
        for window in windows:
            window.start()
        for window in windows:
            window.join()
        assert sorted(s.status for s in said) == [200, 409]
        assert "another window is paying" in next(s for s in said if s.status == 409).text
        gate.set()
        assert page.ended()["state"] == "done"
        assert len([e for e in sf.Ledger(tmp_path / "budget.db").entries() if e.kind == "spend"]) == 1


def test_two_studios_race_for_one_name(tmp_path: Path) -> None:
    """The ledger decides between processes: one spends, the other is told, whichever is first."""
    place = folder(tmp_path)
    with studio(place) as one, studio(place) as two:
        open_ledger(one)
        version = one.version
        asked = {
            "version": version,
            "name": "x",
            "fingerprint": one.post("plan", {"version": version}).json["fingerprint"],
        }
        two.post("plan", {"version": version})
        assert one.post("pay", asked).status == 200
        assert two.post("pay", asked).status == 200
        ends = {page.ended()["state"] for page in (one, two)}
        assert "done" in ends
        assert ends <= {"done", "refused"}
        assert len([e for e in sf.Ledger(place / "budget.db").entries() if e.kind == "spend"]) == 1


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with studio(folder(tmp_path)) as page:
        assert "no ledger" in page.paid("a")["error"]
        open_ledger(page, "0.4")
        assert page.post("account", {"version": page.version}).json["ledger"]["fits"] is False
        job = page.paid("a")
        assert job["state"] == "refused"
        assert "nothing was spent" in job["text"].lower()
        assert not (tmp_path / "releases" / "a").exists()
        assert page.post("ledger", {"budget": {"rho": "9"}, "table": None}).status == 400  # there is one already


BROKEN = [
    ROWS + '"unbalanced,female\n',
    ROWS + "1,female,3,4\n" * 5,
    None,
]
UNNAMED = {"x": "'age', 'sex'", ROWS.replace("age", "years", 1): "'age'"}


def test_refusals_do_not_hang_on_rows(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Whatever is wrong with the rows, the page says one thing, names no place, and nothing is spent.

    Mutant: the reader's own words, which name files and say what it stumbled over.
    """
    said = set[str]()
    for i, rows in enumerate(BROKEN):
        place = folder(tmp_path / f"secret-{i}", rows=rows or ROWS)
        if rows is None:
            (place / "people.csv").unlink()
        with studio(place) as page:
            open_ledger(page)
            job = page.paid("a")
            assert job["state"] in ("refused", "done")
            if job["state"] == "refused":
                said.add(job["text"])
                assert sf.Ledger(place / "budget.db").entries() == ()
    assert len(said) == 1
    assert "secret" not in said.pop()
    assert "sfumato studio: SourceError" in capfd.readouterr().err


def test_a_column_that_is_not_in_the_header_is_named_whatever_the_rows_are(tmp_path: Path) -> None:
    """Only what the spec declares and the first line lacks, as it is told on request; nothing is spent.

    Mutant: a name that the table has, or a word that hangs on rows.
    """
    for i, (rows, names) in enumerate(UNNAMED.items()):
        for j, more in enumerate(("", "1,female\n", '1,"\n' * 9)):
            place = folder(tmp_path / f"secret-{i}-{j}", rows=rows.rstrip("\n") + "\n" + more)
            with studio(place) as page:
                open_ledger(page)
                assert page.paid("a") == {"error": f"the table has no column called {names}"}
                assert sf.Ledger(place / "budget.db").entries() == ()


def test_names_of_columns_are_read_without_rows(tmp_path: Path) -> None:
    """Mutant: a table opened as a whole for its names."""
    answers = set[bytes]()
    for i, rows in enumerate([ROWS, ROWS + "broken\n" * 9, "age,sex\n"]):
        with studio(folder(tmp_path / f"{i}", rows=rows)) as page:
            answers.add(page.post("names", {}).body)
    assert len(answers) == 1
    with studio(folder(tmp_path / "none")) as page:
        (tmp_path / "none" / "people.csv").unlink()
        missing = page.post("names", {})
        assert missing.status == 400
        assert str(tmp_path) not in missing.text
        assert "people" not in missing.text


def test_no_refusal_names_a_place(tmp_path: Path) -> None:
    """Mutant: the text of an error as it is."""
    place = folder(tmp_path / "hidden place", SPEC.replace('values = ["female", "male"]', 'values_from = "codes.csv"'))
    (place / "budget.db").write_text("no ledger", encoding="utf-8")
    with studio(place) as page:
        texts = [
            page.page("/questions").text,
            page.page("/audit").text,
            page.post("plan", {"version": page.version}).text,
        ]
        texts.append(page.post("verify", {}).text)
        (place / "spec.toml").unlink()
        texts += [page.page("/table").text, page.post("plan", {"version": ""}).text]
    for text in texts:
        assert str(tmp_path) not in text
        assert "hidden place" not in text
        assert "Traceback" not in text


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("'/home/ann/my files/a.csv' cannot be read", "'…' cannot be read"),
        ("/home/ann/a.csv: no such file", "…: no such file"),
        ("C:\\Users\\ann\\a.csv is gone", "… is gone"),
        ("and/or, 1/2, 'a/b' and http://x stay", "and/or, 1/2, 'a/b' and http://x stay"),
    ],
)
def test_places_are_taken_out_of_texts(tmp_path: Path, said: str, shown: str) -> None:
    """Mutant: only the spec's own folder, where a ledger or table may lie elsewhere."""
    desk = Workspace(
        Places(tmp_path / "spec.toml", tmp_path / "budget.db", tmp_path / "releases", tmp_path / "sessions")
    )
    assert desk.placeless(said) == shown
    assert desk.placeless(f"{tmp_path}/codes.csv is empty") == "codes.csv is empty"


KILLED = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from sfumato.mechanisms import carry_out
from sfumato.releases.files import Draft
Draft.keep = lambda *_: os._exit(9)
from support.studio import studio
with studio(Path(sys.argv[1])) as page:
    page.paid("killed")
"""


def test_killed_in_mid_payment_it_says_so_afterwards(tmp_path: Path) -> None:
    """Paid, not stored, no refund: the next start says it, does not measure again, and other names still work."""
    place = folder(tmp_path)
    with studio(place) as page:
        open_ledger(page)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}"}
    call = [sys.executable, "-c", KILLED, str(place), str(ROOT / "tests")]
    assert subprocess.run(call, env=environment, check=False, capture_output=True).returncode == 9
    with studio(place) as page:
        account = page.post("account", {"version": page.version}).json["ledger"]
        assert account["unreleased"] == ["killed"]
        assert "no refund" in dict(account["described"]["blocks"][0]["rows"])["unreleased"]
        again = page.paid("killed")
        assert again["state"] == "refused"
        assert len(sf.Ledger(place / "budget.db").entries()) == 1
        assert page.paid("next")["state"] == "done"
        assert sf.Ledger(place / "budget.db").unreleased()[0].name == "killed"


def test_a_release_that_cannot_be_stored_is_told_as_spent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: "nothing was spent" said of everything that fails."""
    from sfumato.releases.files import Draft

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "/secret/place")

    monkeypatch.setattr(Draft, "keep", full)
    with studio(folder(tmp_path)) as page:
        open_ledger(page)
        job = page.paid("a")
    assert job["state"] == "lost"
    assert "budget is spent" in job["text"]
    assert "nothing was spent" not in job["text"].lower()
    assert "secret" not in job["text"]


def test_amounts_have_few_digits_and_budgets_are_in_words(tmp_path: Path) -> None:
    """What is left is never more than there is, what is spent never less; every digit stands beside.

    Mutants: 32 digits of mu^2; code for the budget; what is left rounded up.
    """
    account = sf.Ledger.create(tmp_path / "b.db", total=sf.approx("1.455", "1e-6"))
    plan = sf.plan(sf.marginals(sf.Domain({"a": 3}), upto=1), sf.approx(1, "1e-6"), neighbours="add-remove")
    sf.release(plan, sf.Histogram([1, 2, 3]), ledger=account, name="one")
    found = paying.ledger_account(account, None)
    rows = {k.lower(): v for k, v in found["described"]["blocks"][0]["rows"]}
    exact = {k.lower(): v for k, v in found["exact"]}
    for name, sign in (("total", -1), ("spent", 1), ("remaining", -1)):
        short, whole = (Fraction(re.findall(r"(\d+\.\d+) of mu\^2", told[name])[0]) for told in (rows, exact))
        assert 0 < sign * (short - whole) < whole / 1000
        assert len(re.findall(r"(\d+\.\d+) of mu\^2", rows[name])[0]) < 10
    assert "sf." not in str(rows)
    assert re.search(r"a plan may cost up to epsilon [\d.]+ at delta 1e-6", rows["remaining"])
