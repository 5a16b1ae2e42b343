"""What describes itself does so once: every face shows every fact, and nothing of a label is markup or a command."""

from __future__ import annotations

import itertools
import json
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato._util.description import (
    Bar,
    Bars,
    Chart,
    CodeLines,
    Description,
    DescriptionBlock,
    Facts,
    Figures,
    Sentences,
    TitledTable,
    Warnings,
    page_html,
)
from sfumato._util.frames import Frame

HOSTILE = ("<script>alert(1)</script>", "a|b *c* `d`", "\x1b[31mred", "=1+1")
DOMAIN = sf.Domain(
    {"age": sf.Integers(0, 5), "<b>sex": sf.Categories(["f", *HOSTILE[:2], HOSTILE[3]], outside="other")}
)
COUNTS = np.arange(30).reshape(6, 5)


def every_kind(text: str) -> Description:
    """One block of each kind, with a text of its own wherever one can be: `text` and a number."""
    numbers = itertools.count()

    def new() -> str:
        return f"{text}{next(numbers):02}"

    frame = Frame({new(): [new(), "x"], "number": [1.5, float("nan")]})
    listed, quiet = Sentences([new()], title=new(), listed=True), Sentences([new()], quiet=True)
    blocks: list[DescriptionBlock] = [
        Warnings([new()], new(), new(), new()),
        Facts([(new(), new()), ("", new())], new()),
        Figures([(new(), new(), new())]),
        TitledTable(new(), frame),
        Bars([Bar(new(), new(), 2.0, new(), "chosen"), Bar("bound", "", 1.0, "1", "bound")]),
        Chart("chart", new(), new(), {"mark": "bar"}),
        CodeLines(new()),
        Description(new(), [listed, quiet], "part"),
    ]
    return Description(new(), blocks)


class Markup(HTMLParser):
    """Tags and words; every tag that is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.words = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        del attrs
        self.seen.add(tag)
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        del attrs
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def plan_of(**options: Any) -> sf.Plan:
    work = sf.stack(main=sf.marginals(DOMAIN, upto=2), named=sf.predicates(DOMAIN, ["age >= 4"]))
    return sf.plan(work, sf.gdp(1), neighbours="add-remove", mechanism="marginals", **options)


def things() -> list[Any]:
    plan, ledger = plan_of(), sf.Ledger.in_memory(sf.gdp(4))
    release = sf.release(plan, sf.Histogram(COUNTS), ledger=ledger, name="<i>first")
    keys = sf.plan(sf.Keys("k"), sf.pure(1), neighbours="add-remove", mechanism="histogram")
    session = sf.open(keys, sf.KeyCounts([3, 3, 7]), ledger=None)
    small = sf.marginals(sf.Domain({"age": 4}), upto=1)
    stream = sf.plan(small, sf.gdp(1), neighbours="add-remove", periods=4)
    return [plan, release, release.project(), release["named"], ledger, keys, session, stream]


def test_every_face_of_every_kind_shows_its_texts() -> None:
    """But for the title of warnings and what stands around them, for which pages alone have room.

    Mutants: a face without the title of a table, the small print of a figure, or a part.
    """
    found = every_kind("Word")
    words = {f"Word{i:02}" for i in range(25)}
    around = {"Word06", "Word07", "Word08"}
    faces = [found.to_text(), found.to_markdown(), found.to_html(), json.dumps(found.to_dict(), allow_nan=False)]
    for face in faces:
        assert words - around <= set(re.findall(r"Word\d\d", face))
        assert "1.5" in face
    page = f"<h1>{found.headline}</h1>{page_html(found.blocks)}"
    assert set(re.findall(r"Word\d\d", page)) == set(re.findall(r"Word\d\d", faces[-1])) == words
    for kind in ("facts", "figures", "sentences", "warnings", "table", "bars", "chart", "code", "description"):
        assert f'"type": "{kind}"' in faces[-1]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_of_a_text_is_markup_or_a_command(text: str) -> None:
    """Mutants: a text of any kind of block that is not escaped in HTML; control characters printed."""
    found = every_kind(text)
    for face in (found.to_html(), page_html(found.blocks)):
        page = Markup(face)
        assert "script" not in page.seen
        assert "\x1b" not in face
        assert page.words.count(text.replace("\x1b", "\N{REPLACEMENT CHARACTER}")) >= 18
    assert "\x1b" not in found.to_text()
    assert "\x1b" not in found.to_markdown()
    unquoted = [line for line in found.to_markdown().splitlines() if not line.startswith("    ")]
    assert "<script>" not in "\n".join(unquoted)
    table = [line for line in found.to_markdown().splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {3}


def test_blocks_without_anything_to_say_are_left_out() -> None:
    """Mutant: an empty list of warnings kept, which a page would draw as an empty note."""
    empty: list[DescriptionBlock] = [Warnings([]), Facts([]), Sentences([]), Bars([]), Figures([])]
    assert Description("x", empty).blocks == ()


def test_a_fact_stands_in_every_face() -> None:
    """Mutants: a face that takes the first block alone, or leaves sentences without a name out."""
    for thing in things():
        told = thing.describe()
        facts = [row for b in told.blocks if isinstance(b, Facts) for row in b.rows]
        tables = [b for b in told.blocks if isinstance(b, TitledTable)]
        assert facts or any(isinstance(b, Description) for b in told.blocks)
        words = Markup(thing._repr_html_()).words
        plain = json.loads(json.dumps(told.to_dict(), allow_nan=False))
        marked = re.sub(r"\\(.)", r"\1", told.to_markdown())
        for name, text in facts:
            clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text.strip())
            for face in (str(told), marked, words):
                assert name in face
                assert clean in face
            assert [name, text] in [row for b in plain["blocks"] if b["type"] == "facts" for row in b["rows"]]
        assert [b["columns"] for b in plain["blocks"] if b["type"] == "table"] == [
            list(t.frame.columns) for t in tables
        ]
        assert thing.explain() == str(thing) == told.to_text()
        assert repr(thing).startswith(f"<{type(thing).__name__} ")


def test_a_ledger_describes_what_its_facts_say(tmp_path: Any) -> None:
    """Mutants: what is unreleased left out; the spends in another order than the lines."""
    ledger = sf.Ledger.create(tmp_path / "l.db", total=sf.gdp(2), table="people")
    assert "Spends" not in ledger.describe().to_text()
    for name in ("one", "two"):
        sf.release(plan_of(), sf.Histogram(COUNTS), ledger=ledger, name=name, table="people")
    ledger.debit("lost", "0" * 64, plan_of().price, plan_of().unit, "people")
    told, facts = ledger.describe(), ledger.facts()
    (table,) = [b for b in told.blocks if isinstance(b, TitledTable)]
    assert list(table.frame["name"]) == [e["name"] for e in facts["entries"]] == ["one", "two", "lost"]
    assert facts["unreleased"] == ["lost"]
    (block,) = [b for b in told.blocks if isinstance(b, Facts)]
    said = dict(block.rows)
    assert said["unreleased"].startswith("lost: paid for")
    assert said["anchor"] == facts["anchor"] == ledger.anchor


def test_a_stored_plan_is_described_for_programs(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """`sfumato show PLAN --json` prints what the plan says of itself, as JSON."""
    from sfumato.cli.releases import show

    plan = plan_of()
    plan.save(tmp_path / "p.plan")
    show(tmp_path / "p.plan", as_json=True)
    assert json.loads(capsys.readouterr().out)["headline"] == plan.describe().headline
