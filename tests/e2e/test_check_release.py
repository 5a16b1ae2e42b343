"""The stranger's checker: it accepts what was made, and finds lies, however well their makers recompute hashes."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from decimal import Context, localcontext
from fractions import Fraction
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import sfumato as sf
from sfumato import check_forms, check_maps, check_release
from sfumato.privacy.ledger import Ledger
from sfumato.strategies.certificates import find_certificate
from support import grammar
from support.forging import Forged, verdict
from support.lies import LIES
from support.released import PLANS, PROFILES, SKETCHES, STREAMS, made


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    @cache
    def of(kind: str) -> tuple[Path, Path]:
        return made(kind, tmp_path_factory.mktemp("honest"))

    return of


@pytest.mark.parametrize("kind", [*PLANS, *SKETCHES, *STREAMS, *PROFILES])
def test_a_release_of_every_kind_is_accepted(kind: str, honest: Callable[[str], tuple[Path, Path]]) -> None:
    assert verdict(*honest(kind)) == ("accepted", set(), [])


def test_combinations_over_more_cells_than_all_pairs_are_looked_at_are_accepted(tmp_path: Path) -> None:
    """5,600 joint cells, one record replaced: planned, stored, read, released by the curator and checked by a stranger.

    Mutants: the certificate is not among the forms of files; the stranger takes twice the largest column.
    """
    domain = sf.Domain({"a": 20, "b": 20, "c": 14})
    counts = sf.predicates(domain, ["a < 7 and b >= 12 and c < 9", "a >= 3 and c >= 5"])
    work = sf.stack(tables=sf.marginals(domain, order=2), counts=counts, weights={"counts": 1000})
    plan = sf.plan(work, sf.gdp(1), neighbours="replace-one", objective="cells")
    proof = find_certificate(plan.strategy.blocks, dict(zip(domain.names, domain.shape, strict=True)), plan.unit, 2)
    assert proof is not None
    assert proof.method == "joined"
    assert plan.sensitivity.exact
    assert plan.lower_bound is not None
    assert plan.objective_value < 1.03 * plan.lower_bound
    plan.save(tmp_path / "plan.sfumato")
    again = sf.load(tmp_path / "plan.sfumato")
    assert again.fingerprint == plan.fingerprint
    ledger, out = tmp_path / "budget.db", tmp_path / "release"
    table = sf.Histogram(np.random.default_rng(205).poisson(1, domain.shape))
    sf.release(again, table, ledger=sf.Ledger.create(ledger, total=sf.gdp(9)), name="it", out=out)
    assert verdict(out, ledger) == ("accepted", set(), [])
    assert len(sf.load(out).frame()) == len(work)


def test_release_json_says_how_many_persons_were_cut(tmp_path: Path) -> None:
    """Mutant: the number taken as it stands."""
    release, ledger, *_ = made("residuals of persons", tmp_path)
    place = release / "release.json"
    facts = json.loads(place.read_text(encoding="utf-8"))
    facts["cut_persons"]["value"] += 1
    place.write_text(json.dumps(facts), encoding="utf-8")
    why = "release.json says another number of persons who had more rows"
    assert check_release.Check(release, ledger).wrong == [("files", why)]


def test_the_lines_before_may_count_other_numbers_of_rows_of_a_person(
    honest: Callable[[str], tuple[Path, Path]], tmp_path: Path
) -> None:
    """Mutant: whole units compared, so that no release of a ledger of several tables is accepted."""
    for kind in ("residuals of persons", "residuals of replaced persons"):
        forged = Forged(*honest(kind), tmp_path / kind)
        relation, person, rows = json.loads(forged.lines[1][10])
        forged.lines[1][10] = json.dumps([relation, person, rows + 7, ["a", 2]])
        forged.tell_ledger()
        assert verdict(forged.publish().release, forged.ledger) == ("accepted", set(), [])


@pytest.mark.parametrize(("lie", "kind"), [(lie, kind) for lie, told in LIES.items() for kind in told.kinds])
def test_a_lie_is_found_by_the_check_that_is_meant_to(
    lie: str, kind: str, honest: Callable[[str], tuple[Path, Path]], tmp_path: Path
) -> None:
    """Mutants: each check left out lets its lies through."""
    told, (release, ledger) = LIES[lie], honest(kind)
    forged = Forged(release, ledger, tmp_path / "forged")
    anchor = Ledger(ledger).verify().anchor if told.anchored else None
    if not told.last:
        told.tell(forged)
    if told.follow:
        forged.tell_ledger()
    forged.publish(told.rehash and told.rehash(forged), told.tell if told.last else None)
    earlier = release.with_name("earlier.sfumato") if told.earlier else None
    found, checks, reasons = verdict(forged.release, forged.ledger, anchor, earlier)
    assert found == "rejected"
    assert told.check in checks, reasons


def test_there_are_a_hundred_lies_and_nothing_is_found_where_none_is_told(
    honest: Callable[[str], tuple[Path, Path]], tmp_path: Path
) -> None:
    assert sum(len(told.kinds) for told in LIES.values()) >= 100
    for i, kind in enumerate(sorted({kind for told in LIES.values() for kind in told.kinds})):
        release, ledger = honest(kind)
        forged = Forged(release, ledger, tmp_path / str(i))
        forged.tell_ledger()
        assert verdict(forged.publish().release, forged.ledger, None) == ("accepted", set(), [])
        anchor = Ledger(ledger).verify().anchor
        assert verdict(release, ledger, anchor) == ("accepted", set(), [])


def test_what_is_too_large_to_look_at_is_said_with_why_and_what_to_do(
    honest: Callable[[str], tuple[Path, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: a bound above what was paid is accepted, or called a lie."""
    monkeypatch.setattr(check_maps, "MOST", 8)
    found, wrong, (reason,) = verdict(*honest("many levels, replaced"))
    assert (found, wrong) == ("not checked", set())
    for said in ("sensitivity of", "was paid", "too many cells", "the bound is", "plan under add-remove"):
        assert said in reason


@pytest.mark.parametrize("kind", ["residuals", "mwem", "dense, replaced", "hybrid", "stream", "levels within states"])
def test_lies_that_nobody_thought_of_are_believed_by_nobody(
    kind: str, honest: Callable[[str], tuple[Path, Path]], tmp_path: Path
) -> None:
    """A sample, seeds 119; `bench/lies.py` tells 200 kinds of lies about a release of every kind.

    Mutants: a field of FORMS without its type; a part of the checker's documents that is not held against it; what
    release.json alone says believed by `sf.load`.
    """
    told = 0
    for i in range(40):
        rng = np.random.default_rng([119, i])
        lie = (grammar.files if i % 6 == 5 else grammar.tell)(*honest(kind), tmp_path / str(i), rng)
        if lie is not None:
            found, loads = grammar.judged(lie)
            assert not grammar.accepted(lie, found), lie[:5]
            assert not (loads and (lie.form == grammar.FORM or grammar.derived(lie))), lie[:5]
            told += 1
    assert told > 20


def test_courses_of_absurd_length_end_no_days_work(honest: Callable[[str], tuple[Path, Path]], tmp_path: Path) -> None:
    """Mutant: all rounds are listed, however many a file says there are."""
    for kind in ("mwem", "boosting"):
        forged = Forged(*honest(kind), tmp_path / kind)
        forged.plan["course"]["rounds"] = 2**70
        forged.publish()
        assert verdict(forged.release, forged.ledger)[0] == "rejected"
        with pytest.raises(sf.errors.InvalidInput):
            sf.load(forged.release)


def test_halving_the_noise_of_the_number_of_records_is_no_lie_where_that_is_public(
    honest: Callable[[str], tuple[Path, Path]], tmp_path: Path
) -> None:
    """A lie about a look that costs nothing is none: what is told of mwem is told of looks that cost.

    Rounds of mwem may select the number of records itself. Mutants: the last look, whichever that is, is lied about;
    a look of no attributes is believed because of how it is written.
    """
    release, ledger = honest("mwem, replaced")
    for change, expected in ((lambda look: None, "accepted"), (lambda look: look["blocks"].clear(), "rejected")):
        forged = Forged(release, ledger, tmp_path / expected)
        first = forged.doc["measurement"][0]
        assert [b["groups"] for b in first["blocks"]] == [[]]
        first["noise"]["sigma"] = {"~fraction": [1, 1]}
        change(first)
        forged.tell_ledger()
        assert verdict(forged.publish().release, forged.ledger)[0] == expected
    assert any(b["groups"] for b in Forged(release, ledger, tmp_path / "x").measured["blocks"])


def approx_with_some_set_aside(epsilon: str, delta: str) -> sf.Budget:
    return sf.approx(epsilon, delta, thresholds=Fraction(delta) / 3)


@pytest.mark.parametrize("budget", [sf.pure, sf.zcdp, sf.gdp, sf.approx, approx_with_some_set_aside])
def test_sentences_about_budgets_are_those_of_the_library(budget: Callable[..., sf.Budget]) -> None:
    """Every kind of budget over its range, to the letter. Mutants: a digit more or fewer; a rounded number unmarked."""
    amounts = ["1", "0.5", "1/3", "3", "0.01", "10", "7/9", "1e-12", "123.456", "0.123456789123", "1001/1000", "1e5"]
    deltas = ["1e-6", "1e-9", "1/3", "0.01", "1e-40"]
    for given in amounts:
        for delta in deltas if budget not in (sf.pure, sf.zcdp, sf.gdp) else [None]:
            found = budget(given) if delta is None else budget(given, delta)
            with localcontext(Context(prec=110, Emax=10**9, Emin=-(10**9))):
                numbers = (found.parameter, found.delta or Fraction(0), found.thresholds or Fraction(0))
                said = check_release.budget_sentence(found.kind, *numbers)
            assert said == str(found)


@pytest.mark.parametrize("part", [check_release, check_maps, check_forms])
def test_each_file_imports_numpy_and_the_standard_library_and_those_beside_it(part: ModuleType) -> None:
    """And only those below it. Mutant: an import of another file of sfumato."""
    tree = ast.parse(Path(part.__file__ or "").read_text(encoding="utf-8"))
    imported = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    given = {(n.module or ".", a.name) for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names}
    below = {"check_release": ["check_forms", "check_maps"], "check_maps": ["check_forms"], "check_forms": []}
    beside = {*below[part.__name__.rpartition(".")[2]]}
    foreign = {(of, name) for of, name in given if of.partition(".")[0] not in sys.stdlib_module_names}
    ours = {("sfumato", name) for name in beside}
    ours |= {(f"{at}{name}", "whole") for at in ("", "sfumato.") for name in beside if part is check_maps}
    assert foreign == (ours if part is not check_maps else ours - {("sfumato", "check_forms")})
    assert {*imported} - sys.stdlib_module_names == {"numpy", *(beside if part is check_release else ())}
