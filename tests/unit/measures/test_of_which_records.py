"""Sums that were measured of records with a number in several measures say of which records they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato._util.catalogue import say_note, speak
from sfumato.publishing import write_formats

BESIDE = "of records with a number in {} too"
DOMAIN = sf.Domain(
    {"group": sf.Categories(["a", "b"], outside="other", missing="other")},
    measures={"pay": sf.Measure(0, 100, knots=[50]), "school years": sf.Measure(0, 20)},
)
PEOPLE = pd.DataFrame({"group": ["a", "b"] * 500, "pay": [10.0] * 500 + [90.0] * 500, "school years": [12.0] * 1000})
PEOPLE.loc[500:, "school years"] = np.nan


def made(work: sf.Workload) -> sf.Release:
    found = sf.release(sf.plan(work, sf.zcdp(10**6), neighbours="add-remove"), PEOPLE, ledger=None, name="known")
    assert isinstance(found, sf.Release)
    return found


@pytest.fixture(scope="module")
def joint() -> sf.Release:
    """Who has school years has a pay of 10; the mean of all is 50, and nothing that was measured says so."""
    return made(sf.moments(DOMAIN, ["pay", "school years"], by="group"))


def test_means_and_moments_say_which_records_they_leave_out(joint: sf.Release) -> None:
    """Mutants: a mean of 10 that reads as one of everybody; the note where the other measure is named anyhow."""
    for frame in (
        joint.mean("pay"),
        joint.mean("pay", by="group"),
        joint.variance("pay"),
        joint.std("pay", by="group"),
    ):
        told = [note for note in frame["note"] if "no records" not in note]
        assert told
        assert all(note.endswith(BESIDE.format("school years")) for note in told), frame
    assert joint.mean("pay").rows()[0]["mean pay"] == pytest.approx(10, abs=0.1)
    assert joint.mean("school years").rows()[0]["note"].endswith(BESIDE.format("pay"))
    for frame in (joint.correlation("pay", "school years"), joint.regression("pay", "school years")):
        assert BESIDE.split(" {")[0] not in " ".join(frame["note"])
    both = made(sf.stack(sf.moments(DOMAIN, ["pay", "school years"]), sf.means(DOMAIN, "pay")))
    assert both.mean("pay").rows()[0]["note"] == "of values cut to 0 to 100"
    assert both.mean("pay").rows()[0]["mean pay"] == pytest.approx(50, abs=0.1)
    assert both.std("pay").rows()[0]["note"].endswith(BESIDE.format("school years"))


def test_an_average_in_sql_is_of_all_or_refused(joint: sf.Release) -> None:
    """Mutant: AVG and STDDEV_POP of the few, where a database would take all that have a number."""
    for asked in ("AVG", "VAR_POP", "STDDEV_POP", "SUM"):
        with pytest.raises(sf.NotAnswerable, match="not measured"):
            sf.sql(f"SELECT {asked}(pay) FROM people", DOMAIN).answer(joint)
    both = made(sf.stack(sf.moments(DOMAIN, ["pay", "school years"]), sf.moments(DOMAIN, "pay")))
    found = sf.sql("SELECT AVG(pay) AS m, STDDEV_POP(pay) AS s FROM people", DOMAIN).answer(both)
    assert found["m"][0] == pytest.approx(50, abs=0.1)
    assert found["s"][0] == pytest.approx(40, abs=0.1)


def test_files_say_so_in_their_language(joint: sf.Release, tmp_path: Path) -> None:
    """Mutants: a note of the range alone; a name whose point is made a comma."""
    text = (write_formats(joint, tmp_path / "files", ["px"]) / "px" / "pay.by.group.px").read_text(encoding="utf-8")
    assert "of records with a number in school years too" in text
    with speak("de"):
        assert say_note(BESIDE.format("a.b, c")) == "von Datensätzen, die auch bei a.b, c eine Zahl haben"
