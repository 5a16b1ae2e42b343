"""Who is counted in which periods of a stream: what is enforced of people, by brute force, and what it leaves."""

from __future__ import annotations

import hmac
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.cells import Grid
from sfumato.curator import Curator
from sfumato.curator.rows.counting import one_block_per_set
from sfumato.curator.streams import PublicStream, open_public_stream, resume_stream
from sfumato.curator.streams import state as people
from sfumato.curator.streams.state import open_people
from sfumato.errors import InvalidInput, LedgerCorrupted, LedgerError, NotWritten, PlanError, SourceError
from sfumato.privacy.unit import PrivacyUnit
from support.streams import PERIODS, exact, price, terms

DOMAIN = sf.Domain(
    {
        "a": sf.Categories(["x", "y"], outside="drop", missing="drop"),
        "b": sf.Categories(["p", "q", "r"], outside="drop", missing="drop"),
    }
)
UNIT = PrivacyUnit("add-remove", "id", 3)
HASH = "0" * 64
Row = tuple[str, str, str]


def table(folder: Path, rows: list[Row]) -> str:
    path = folder / f"{len(list(folder.iterdir()))}.csv"
    path.write_text("id,a,b\n" + "".join(f"{','.join(row)}\n" for row in rows), encoding="utf-8")
    return str(path)


def drawn(rng: np.random.Generator, persons: int) -> list[Row]:
    """Up to three rows of each of some persons, some of which are dropped as declared, and rows that name nobody."""
    rows = [
        (f"pérson {i}" if i else "", str(rng.choice(["x", "y", "z"])), str(rng.choice(["p", "q", "r"])))
        for i in range(persons)
        if rng.random() < 0.6
        for _ in range(rng.integers(1, 4))
    ]
    return [rows[i] for i in rng.permutation(len(rows))]


def admitted(tables: list[list[Row]], k: int, b: int) -> list[list[Row]]:
    """Which rows are counted, person by person, in Python."""
    seen: dict[str, list[int]] = {}
    out: list[list[Row]] = []
    for t, rows in enumerate(tables):
        going = {
            name
            for name, *_ in rows
            if name and len(seen.get(name, [])) < k and all(t - s >= b for s in seen.get(name, []))
        }
        for name in going:
            seen.setdefault(name, []).append(t)
        out.append([row for row in rows if row[0] in going])
    return out


def counted(rows: list[Row]) -> np.ndarray[Any, Any]:
    found = np.zeros((2, 3), dtype=np.int64)
    for _, a, b in rows:
        if a in "xy":
            found["xy".index(a), "pqr".index(b)] += 1
    return found


def opened(folder: Path, k: int, b: int, *, enforced: bool = True, people: int = 64) -> tuple[PublicStream, Path]:
    sf.Ledger.create(folder / "l.db", total=sf.gdp(10**9))
    of = terms(k=k, b=b, enforced=enforced)
    place = {"name": "s", "plan_hash": HASH, "store": folder / "s.db", "people": people}
    return open_public_stream(curator(folder), of, price(of, UNIT), **place)[0], folder / "s.db"


def curator(folder: Path) -> Curator:
    return Curator(None, DOMAIN, UNIT, sf.Ledger(folder / "l.db"))


@pytest.mark.parametrize(("k", "b", "seed"), [(1, 1, 1), (2, 1, 2), (2, 3, 3), (3, 2, 4)])
def test_nobody_is_counted_more_often_or_nearer_than_is_priced(tmp_path: Path, k: int, b: int, seed: int) -> None:
    """Noise is 0, so that what is published is what Python counts of those who may be; resumed every period.

    Mutants: everybody admitted; k + 1 periods; b - 1 apart; who is left out is in a period more; people forgotten at a
    resumption, or where they are absent; rows of nobody."""
    rng = np.random.default_rng(seed)
    folder = tmp_path / "tables"
    folder.mkdir()
    tables = [drawn(rng, 12) for _ in range(PERIODS)]
    _, store = opened(tmp_path, k, b)
    wanted = admitted(tables, k, b)
    assert sum(map(len, wanted)) < sum(len([r for r in rows if r[0]]) for rows in tables)
    of = terms(k=k, b=b, enforced=True)
    for t, values in enumerate(exact(of, np.array([counted(rows) for rows in wanted]))):
        found = resume_stream(curator(tmp_path), store).append(table(folder, tables[t]), f"p{t}")
        assert (np.concatenate(found.values) == values).all()


@pytest.mark.parametrize("enforced", [True, False])
def test_of_a_group_few_rows_of_a_person_are_counted_in_a_period(tmp_path: Path, enforced: bool) -> None:
    """Two rows of each person, one of each value of b; noise is 0. In the next period as in the first.

    Mutants: rows anywhere; more of one value; who has many rows counted in one period alone."""
    unit = PrivacyUnit("add-remove", "id", 2, once_per=("b",))
    sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(10**9))
    of = terms(k=2, b=1, enforced=enforced)
    held = Curator(None, DOMAIN, unit, sf.Ledger(tmp_path / "l.db"))
    place = {"name": "s", "plan_hash": HASH, "store": tmp_path / "s.db", "people": 64}
    stream, _ = open_public_stream(held, of, price(of, unit), **place)
    rows: list[Row] = [*[("ann", "x", "p")] * 3, ("ann", "x", "q"), ("bob", "y", "r")]
    third: list[Row] = [("eve", "x", "p"), ("eve", "y", "q"), ("eve", "y", "r")]
    folder = tmp_path / "tables"
    folder.mkdir()
    kept = [rows[0], *rows[3:]]
    may = [counted([*kept, *two]) for two in itertools.combinations(third, 2)]
    found = [np.concatenate(stream.append(table(folder, rows + third), f"p{t}").values) for t in range(2)]
    fits = [[(e == f).all() for e, f in zip(exact(of, np.array([c, c])), found, strict=True)] for c in may]
    assert sum(map(all, fits)) == 1


def test_one_person_changes_the_periods_of_that_person_alone(tmp_path: Path) -> None:
    """Streams with and without each person, by brute force: tables differ in at most k periods, at least b apart, and
    in rows of that person alone. Mutant: a place in the stream that others' rows take."""
    rng = np.random.default_rng(7)
    tables = [drawn(rng, 5) for _ in range(PERIODS)]
    k, b = 2, 2
    _, store = opened(tmp_path, k, b)
    folder = tmp_path / "tables"
    folder.mkdir()
    whole = [counted_by(tmp_path, store, folder, rows, t) for t, rows in enumerate(tables)]
    for person in {row[0] for rows in tables for row in rows if row[0]}:
        other = tmp_path / person
        other.mkdir()
        _, kept = opened(other, k, b)
        fewer = [[row for row in rows if row[0] != person] for rows in tables]
        less = [counted_by(other, kept, folder, rows, t) for t, rows in enumerate(fewer)]
        changed = [t for t in range(PERIODS) if (whole[t] != less[t]).any()]
        assert len(changed) <= k
        assert all(later - earlier >= b for earlier, later in itertools.pairwise(changed))
        for t in changed:
            own = [row for row in tables[t] if row[0] == person]
            assert (whole[t] - less[t] == counted(own)).all()


def counted_by(folder: Path, store: Path, tables: Path, rows: list[Row], t: int) -> np.ndarray[Any, Any]:
    """The counts that the wall takes of a period, which is appended."""
    seen: list[Any] = []
    honest = people.collect_encoded

    def watched(*given: Any, **more: Any) -> Any:
        seen.append(honest(*given, **more))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(people, "collect_encoded", watched)
        resume_stream(curator(folder), store).append(table(tables, rows), f"p{t}")
    return seen[0].count([("a", "b")])["a", "b"]


def test_names_are_kept_as_hmac_alone(tmp_path: Path) -> None:
    """Mutants: a plain hash, which could be guessed; a name; the key of another stream."""
    rows: list[Row] = [("Ada", "x", "p"), ("pérson", "y", "q"), ("Ada", "x", "q"), ("", "x", "r")]
    key = bytes(range(32))
    found = open_people(table(tmp_path, rows), Grid.of(DOMAIN), UNIT, one_block_per_set, key)
    counts, _, known = found.admit(np.zeros((0, 4), dtype=np.int64), 5, 2, 1)
    assert counts.rows == 3
    digests = sorted(hmac.digest(key, name.encode(), "sha256")[:16].hex() for name in ("Ada", "pérson"))
    assert [f"{int(h) % 2**64:016x}{int(lo) % 2**64:016x}" for h, lo, *_ in known] == digests
    assert known[:, 2:].tolist() == [[1, 5], [1, 5]]

    _, store = opened(tmp_path, 2, 1)
    resume_stream(curator(tmp_path), store).append(table(tmp_path, rows), "p0")
    for file in (store, store.with_name("s.db.odd")):
        raw = file.read_bytes()
        assert not [name for name in ("Ada", "pérson") if name.encode() in raw]
        assert not [d for d in digests if bytes.fromhex(d)[:8] in raw or bytes.fromhex(d)[:8][::-1] in raw]
    assert (store.with_name("s.db.odd").stat().st_mode & 0o777) == 0o600


def test_a_period_that_is_there_or_fails_leaves_people_as_they_were(tmp_path: Path, monkeypatch: Any) -> None:
    """Mutants: people noted before the period is measured; a label that is published counts again; state in memory
    changed in place."""
    folder = tmp_path / "tables"
    folder.mkdir()
    rows: list[Row] = [("Ada", "x", "p"), ("Bob", "y", "q")]
    for memory in (False, True):
        if memory:
            of = terms(k=2, b=1, enforced=True)
            account = sf.Ledger.in_memory(sf.gdp(10**9))
            made = open_public_stream(
                Curator(None, DOMAIN, UNIT, account), of, price(of, UNIT), name="s", plan_hash=HASH
            )[0]
        else:
            made, _ = opened(tmp_path, 2, 1)
        made.append(table(folder, rows), "p0")
        made.append(table(folder, rows), "p0")
        with monkeypatch.context() as patch:
            patch.setattr("sfumato.curator.streams.curator.measure_period", None)
            with pytest.raises(NotWritten):
                made.append(table(folder, rows), "p1")
        made.append(table(folder, rows), "p1")
        made.append(table(folder, rows), "p2")
        wanted = [counted(rows), counted(rows), np.zeros((2, 3), dtype=np.int64)]
        expected = exact(terms(k=2, b=1, enforced=True), np.array(wanted))
        for period, values in zip(made.published, expected, strict=True):
            assert (np.concatenate(period.values) == values).all()


def test_what_exceeds_is_left_out_in_silence_and_nothing_is_raised_on_it(tmp_path: Path) -> None:
    """Mutant: an error, or a number, that tells how many were left out."""
    folder = tmp_path / "tables"
    folder.mkdir()
    made, store = opened(tmp_path, 1, 1)
    rows: list[Row] = [(f"{i}", "x", "p") for i in range(50)]
    first, *others = (made.append(table(folder, rows), f"p{t}") for t in range(PERIODS))
    assert np.concatenate(first.values).any()
    quiet = exact(terms(enforced=True), np.array([counted(rows)] + [counted([])] * (PERIODS - 1)))
    for found, values in zip([first, *others], quiet, strict=True):
        assert (np.concatenate(found.values) == values).all()
    # a period in which nobody is admitted leaves as long a line and as large a state
    assert store.with_name("s.db.even").stat().st_size == (2 * 2 * 12 + 64 * 4) * 8


def test_the_sizes_of_files_are_the_same_for_any_tables(tmp_path: Path) -> None:
    """Neighbouring streams, and ones with nobody or all: whoever lists the folder learns nothing.

    Mutants: 32 bytes a person; room by doubling, by steps of the exact number, or that grows at the last person; what
    only takes up room taken for a person at a resumption.
    """
    sizes = set[tuple[tuple[str, int], ...]]()
    for number in (0, 1, 7, 8, 9, 31, 32, 33, 63, 64):
        folder = tmp_path / str(number)
        (folder / "tables").mkdir(parents=True)
        _, store = opened(folder, 2, 1)
        for t in range(3):
            rows: list[Row] = [(f"{i}", "x", "p") for i in range(number)]
            found = resume_stream(curator(folder), store).append(table(folder / "tables", rows), f"p{t}")
            assert t == 2 or np.concatenate(found.values).any() == bool(number)
        sizes.add(tuple(sorted((p.name, p.stat().st_size) for p in folder.iterdir() if p.name.startswith("s.db"))))
    assert len(sizes) == 1


def test_more_people_than_there_is_room_for_are_refused_until_there_is(tmp_path: Path) -> None:
    """Mutants: people left out, which would depend on others; room that is forgotten at the next resumption."""
    (tmp_path / "tables").mkdir()
    _, store = opened(tmp_path, 2, 1, people=3)
    rows: list[Row] = [(f"{i}", "x", "p") for i in range(5)]
    for _ in range(2):
        with pytest.raises(LedgerError, match="room for 3 people"):
            resume_stream(curator(tmp_path), store).append(table(tmp_path / "tables", rows), "p0")
    assert resume_stream(curator(tmp_path), store).published == ()
    resume_stream(curator(tmp_path), store, people=6).append(table(tmp_path / "tables", rows), "p0")
    assert store.with_name("s.db.odd").stat().st_size == (2 * 2 * 12 + 6 * 4) * 8
    more: list[Row] = [("new", "x", "p"), *rows]
    found = resume_stream(curator(tmp_path), store).append(table(tmp_path / "tables", more), "p1")
    assert np.concatenate(found.values).any()
    with pytest.raises(LedgerError, match="room for 6 people"):
        resume_stream(curator(tmp_path), store).append(table(tmp_path / "tables", [*more, ("newer", "y", "q")]), "p2")


def test_refusals(tmp_path: Path) -> None:
    made, _ = opened(tmp_path, 2, 1)
    with pytest.raises(InvalidInput, match="promised=True"):
        made.append(sf.Histogram(np.zeros((2, 3), dtype=np.int64)), "p0")
    nameless = tmp_path / "n.csv"
    nameless.write_text("a,b\nx,p\n")
    with pytest.raises(SourceError, match="no column called 'id'"):
        made.append(str(nameless), "p0")
    with pytest.raises(SourceError, match="cannot be found"):
        made.append(str(tmp_path / "gone.csv"), "p0")
    of = terms(enforced=True)
    account = sf.Ledger.in_memory(sf.gdp(10**9))
    with pytest.raises(PlanError, match="says whose record a row is"):
        open_public_stream(
            Curator(None, DOMAIN, PrivacyUnit("add-remove"), account),
            of,
            price(of, PrivacyUnit("add-remove")),
            name="s",
            plan_hash=HASH,
        )
    assert not account.entries()


def test_where_it_is_promised_nothing_is_kept_of_people_and_histograms_are_taken(tmp_path: Path) -> None:
    made, store = opened(tmp_path, 2, 1, enforced=False)
    full = np.full((2, 3), 4)
    for t in range(3):
        made.append(sf.Histogram(full), f"p{t}")
    for period, values in zip(made.published, exact(terms(k=2), np.array([full] * 3)), strict=True):
        assert (np.concatenate(period.values) == values).all()
    assert store.with_name("s.db.odd").stat().st_size == 2 * 2 * 12 * 8


def test_people_that_were_changed_are_found(tmp_path: Path) -> None:
    """One of two people is gone. Mutant: a keyed hash of the sums alone: who is taken out is counted again."""
    folder = tmp_path / "tables"
    folder.mkdir()
    made, store = opened(tmp_path, 1, 1)
    made.append(table(folder, [("Ada", "x", "p"), ("Bob", "y", "q")]), "p0")
    file = store.with_name("s.db.odd")
    raw = file.read_bytes()
    file.write_bytes(raw[: (2 * 2 * 12 + 4) * 8])
    with pytest.raises(LedgerCorrupted, match="changed or put back"):
        resume_stream(curator(tmp_path), store)
