"""The whole road in a real browser, from the bundled table to a release, and what the page must never do on it."""

from __future__ import annotations

import json
import shutil
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path

import pytest

import sfumato as sf
from sfumato.present.words import round_to_error
from sfumato.releases import Release
from sfumato.releasing import plan_or_spec
from sfumato.studio.conversations import store_anchor
from sfumato.studio.serving import prepare_spec
from support.browser import Browser
from support.studio import Studio, folder, studio

STEPS = ("table", "questions", "what-if", "pay", "read", "publish", "audit")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("road")
    with resources.as_file(resources.files("sfumato.data") / "adult.parquet") as table:
        shutil.copy(table, found / "adult.parquet")
    return found


@pytest.fixture(scope="module")
def page(place: Path, browser: Browser) -> Iterator[Studio]:
    """A studio begun on the table alone, and a browser that entered."""
    spec, names = prepare_spec(str(place / "adult.parquet"), place, demo=False)
    with studio(place, spec.name, entered=False) as running:
        running.desk.header = names
        browser.forget()
        browser.look(1280, "light")
        browser.go(running.keys.address)
        browser.until(lambda: browser.text("h1") == "What is the table?" and browser.text("#file"))
        running.key = running.keys.key
        yield running


def column(browser: Browser, name: str) -> str:
    """The CSS place of a column's fields."""
    headings = browser.all("#columns h3")
    at = next(h.get_attribute("id") for h in headings if h.text == name)
    return f"[aria-labelledby={at}]"


def kind(browser: Browser, name: str, text: str) -> str:
    here = column(browser, name)
    browser.choose(f"{here} .head select", text)
    browser.until(lambda: browser.all(f"{here} .fields"))
    browser.saved()
    return column(browser, name)


def step(browser: Browser, name: str) -> None:
    browser.click(f'ol.steps a[href="/{name}"]')
    browser.until(lambda: browser.driver.current_url.endswith(f"/{name}"))


def test_table(page: Studio, browser: Browser) -> None:
    browser.click("#read-names")
    browser.until(lambda: "13 names" in browser.text("#status"))
    assert len(browser.all("#columns h3")) == 13
    here = kind(browser, "age", "whole numbers")
    browser.type(f"{here} .fields label:nth-of-type(1) input", "17")
    browser.type(f"{here} .fields label:nth-of-type(2) input", "90")
    browser.choose("#outside", "counted as (other)")
    browser.choose("#missing", "counted as (other)")
    for name, labels in (("sex", "Female\nMale"), ("income", "<=50K\n>50K")):
        here = kind(browser, name, "labels")
        browser.type(f"{here} textarea", labels)
    browser.run("document.activeElement.blur()")
    browser.until(lambda: "3 cells: Female · Male · (other)" in browser.text(column(browser, "sex")))
    assert "75 cells: 17" in browser.text(column(browser, "age"))
    here = column(browser, "age")
    browser.click(f"{here} summary")
    browser.choose(f"{here} details label:nth-of-type(1) select", "moved to the nearest cell")
    browser.until(lambda: "3 columns" in browser.text("#size") or page.desk.spec)
    browser.click("input[value=add-remove]")
    browser.type("#public-name", "adult")
    browser.run("document.activeElement.blur()")
    browser.until(lambda: 'table = "adult"' in page.desk.text and 'neighbours = "add-remove"' in page.desk.text)
    assert 'outside = "clamp"' in page.desk.text
    mock = browser.text("#mock")
    assert "Female" in mock or "Male" in mock
    assert browser.errors() == []
    browser.shot("table-1280-light")


def test_questions(page: Studio, browser: Browser) -> None:
    step(browser, "questions")
    for label in ("income", "age by sex", "sex by income"):
        words = set(label.split(" by "))
        boxes = [b for b in browser.all("#matrix input") if set(b.get_attribute("aria-label").split(" by ")) == words]
        browser.run("arguments[0].scrollIntoView({block: 'center'})", boxes[0])
        boxes[0].click()
        browser.until(lambda w=words: all(part in browser.text("#entries") for part in w))
        browser.saved()
    browser.choose("#cdf", "age")
    browser.choose("#cdf-by", "sex")
    browser.click("#add-cdf")
    browser.until(lambda: "the distribution of age within sex" in browser.text("#entries"))
    browser.click("#add-total")
    browser.until(lambda: "number of records" in browser.text("#entries"))
    refuse(page, browser)
    complete_by_keys(browser)
    browser.until(lambda: "age >= 65 and sex == 'Female'" in browser.text("#entries"))
    assert browser.errors() == []
    browser.shot("questions-1280-light")


def refuse(page: Studio, browser: Browser) -> None:
    """A condition that the grammar refuses is told in its words at the field, and the spec stays as it was.

    Mutant: the change written before it is checked, or the reason on top of the page alone.
    """
    before = page.desk.text
    browser.type("#where", "aged >= 65")
    browser.click("#add-where")
    browser.until(lambda: browser.all("#where-refused"))
    with pytest.raises(sf.errors.WorkloadError) as said:
        sf.predicates(page.desk.spec().domain, ["aged >= 65"])
    assert browser.text("#where-refused") == f"{said.value}. The spec keeps what it had."
    assert browser.find("#where").get_attribute("aria-describedby") == "where-refused"
    assert browser.all("#problem:not([hidden])") == []
    assert page.desk.text == before
    browser.type("#where", "age >= 30")
    browser.until(lambda: not browser.all("#where-refused"))
    browser.run("document.getElementById('where').value = ''")


def complete_by_keys(browser: Browser) -> None:
    """Names and labels are offered, and taken by the keyboard alone."""
    from selenium.webdriver.common.keys import Keys

    box = browser.find("#where")
    box.send_keys("ag")
    browser.until(lambda: browser.all("#where + ul li"))
    box.send_keys(Keys.ARROW_DOWN, Keys.ENTER, ">= 65 and se")
    box.send_keys(Keys.ARROW_DOWN, Keys.ENTER, "== Fem")
    browser.until(lambda: browser.text("#where + ul").strip() == "'Female'")
    box.send_keys(Keys.ARROW_DOWN, Keys.ENTER)
    assert box.get_attribute("value") == "age >= 65 and sex == 'Female' "
    box.send_keys(Keys.ENTER)


def test_what_if(page: Studio, browser: Browser) -> None:
    """Figures are the plan's; a budget scales them, a weight plans anew."""
    step(browser, "what-if")
    browser.until(lambda: browser.all("#lines tbody tr"))
    plan = plan_or_spec(page.desk.places.spec)[0]
    assert isinstance(plan, sf.Plan)

    def planned() -> int:
        return len(page.desk._plans)

    margins = plan.errors_by_order()["margin"]
    first = browser.text("#lines tbody tr td:nth-child(4)")
    assert first == f"± {float(f'{margins[0]:.3g}'):g}"
    move = "const r = arguments[0]; r.value = arguments[1]; r.dispatchEvent(new Event(arguments[2]))"
    browser.run(move, browser.find("#budget"), -30, "input")
    browser.until(lambda: "Scaled" in browser.text("#summary"))
    assert planned() == 1, "another budget is scaled, not planned"
    cheaper = sf.plan(plan.workload, sf.approx("0.501", "1e-6"), neighbours="add-remove")
    shown = float(browser.text("#lines tbody tr td:nth-child(4)").removeprefix("± ").replace(",", ""))
    assert shown == pytest.approx(cheaper.errors_by_order()["margin"][0], rel=0.01)
    browser.click("#undo")
    browser.until(lambda: "Scaled" not in browser.text("#summary"))
    browser.run(move, browser.find("#lines input[type=range]"), 3, "change")
    browser.until(lambda: not browser.find("#keep-weights").get_property("disabled"))
    assert planned() == 2
    browser.click("main details:has(#every) summary")
    browser.until(lambda: browser.all("#every td") and "…" not in browser.text("#every tbody"))
    alone = [r.find_elements("css selector", "td")[5].text for r in browser.all("#every tbody tr")]
    assert {a for a, t in zip(alone, plan.workload.blocks, strict=True) if t.is_marginal} == {"4.22"}
    browser.type("#margin", "100")
    browser.click("#wanted button")
    browser.until(lambda: "A budget of" in browser.text("#takes"))
    before = browser.text("#people")
    browser.click("#takes button")  # mutant: the shares of the budget that was above when the margin was asked
    browser.until(lambda: "Scaled" in browser.text("#summary"))
    margin = float(browser.text("#lines tbody tr td:nth-child(4)").removeprefix("± ").replace(",", ""))
    browser.until(lambda: browser.text("#people") != before)
    tenth = float(browser.text("#people").split("records: ")[1].split(" people")[0].replace(",", ""))
    assert tenth == pytest.approx(10 * margin, rel=0.01, abs=1)
    browser.click("#undo")
    browser.until(lambda: browser.text("#people") == before)
    browser.click("#keep-weights")
    browser.until(lambda: "weight = 8" in page.desk.text)
    assert browser.errors() == []
    browser.shot("what-if-1280-light")


def test_pay(page: Studio, browser: Browser) -> None:
    """Mutant: what is refused is wiped away when the ledger is asked again."""
    step(browser, "pay")
    browser.until(lambda: browser.find("#make-ledger").is_displayed())
    assert not browser.find("#pay button").is_enabled()
    browser.type("#parameter", "2")
    browser.click("#make-ledger button")
    browser.until(lambda: browser.all("#ledger svg"))
    assert "epsilon 2" in browser.text("#ledger")
    browser.type("#name", "Enquête 1/2")
    browser.click("#pay button")
    browser.until(lambda: "a name is at most 64 letters" in browser.text("#problem"))
    browser.until(lambda: browser.find("#pay button").is_enabled())
    assert "a name is at most 64 letters" in browser.text("#problem")
    browser.type("#name", "2026-11")
    browser.shot("pay-1280-light")
    browser.click("#pay button")
    browser.until(lambda: browser.find("#job").get_attribute("data-state") == "done")
    assert browser.errors() == []


def test_read(page: Studio, place: Path, browser: Browser) -> None:
    """What the page shows is what Python says, and what was paid is what the command line would have paid."""
    release = sf.load(place / "releases" / "2026-11")
    assert isinstance(release, Release)
    plan = plan_or_spec(page.desk.places.spec)[0]
    (entry, _) = sf.Ledger(place / "budget.db").entries()
    assert (entry.plan_hash, entry.name, entry.table) == (plan.fingerprint, "2026-11", "adult")
    browser.click("#job a")
    browser.until(lambda: browser.all("#table svg") and browser.all("#statistic svg"))
    assert browser.find("#a1").get_property("value") == "income", "age by itself was not asked for first"
    offered = [o.get_property("value") for o in browser.all("#a2 option")]
    assert "age" not in offered, "age by income was not measured"
    browser.click("#tables button")
    browser.until(lambda: browser.all("#table svg"))
    browser.shot("read-1280-light")
    browser.type("#question", "age >= 30 and income == '>50K'")
    browser.click("#ask button")
    browser.until(lambda: browser.all("#problem:not([hidden])"))
    with pytest.raises(sf.NotAnswerable) as said:
        release.ask("age >= 30 and income == '>50K'")
    assert browser.text("#problem") == str(said.value)
    browser.type("#question", "age < 30 and sex == 'Male'")
    browser.click("#ask button")
    found = release.ask("age < 30 and sex == 'Male'")
    browser.until(lambda: browser.all("#answers td"))
    cells = [c.text for c in browser.all("#answers td")]
    assert cells[1:4] == [round_to_error(x, found.standard_error) for x in (found.value, found.low, found.high)]
    browser.choose("#what", "quantiles")
    browser.choose("#within", "sex")
    browser.click("#statistics button")
    browser.until(lambda: "quantile" in browser.text("#statistic"))
    medians = [r for r in release.quantiles("age", [0.25, 0.5, 0.75], by="sex").rows() if r["quantile"] is not None]
    rows = [[c.text for c in r.find_elements("css selector", "td")] for r in browser.all("#statistic tbody tr")]
    assert [r[2] for r in rows][: len(medians)] == [f"{m['quantile']:,.6g}" for m in medians]
    browser.type("#calc-a", "age < 30 and sex == 'Male'")
    browser.click("#calculator button")
    browser.until(lambda: browser.find("#calculated").get_attribute("data-value"))
    share = release.share("sex").rows()[1]
    browser.type("#calc-a", "sex == 'Male'")
    browser.click("#calculator button")
    found = browser.find("#calculated")
    browser.until(lambda: abs(float(found.get_attribute("data-value")) - share["share"]) < 1e-9)
    ends = [float(found.get_attribute(f"data-{end}")) for end in ("low", "high")]
    assert ends == pytest.approx([share["low"], share["high"]], abs=1e-9)
    browser.click("#ranking button")
    browser.until(lambda: browser.all("#ranked td"))
    browser.click("#show-maps")
    browser.until(lambda: browser.all("#maps svg"))
    browser.click("#project")
    browser.until(lambda: browser.all("#projected dl"))
    assert browser.errors() == []


def test_files(page: Studio) -> None:
    """Files to take away hold what Python says."""
    import csv
    import io
    import zipfile

    release = sf.load(page.desk.places.releases / "2026-11")
    rows = list(csv.DictReader(io.StringIO(page.ask("/download/table.csv?name=2026-11&a=age&a=sex").text)))
    assert [float(r["answer"]) for r in rows] == release.table("age", "sex").values.reshape(-1).tolist()
    book = zipfile.ZipFile(io.BytesIO(page.ask("/download/tables.xlsx?name=2026-11").body))
    assert "age x sex" in book.read("xl/workbook.xml").decode()
    for file in ("answers.parquet", "report.html", "release.json"):
        said = page.ask(f"/download/{file}?name=2026-11")
        assert said.body == (page.desk.places.releases / "2026-11" / file).read_bytes()
        assert said.headers["content-disposition"].startswith("attachment")


def test_audit(page: Studio, browser: Browser) -> None:
    step(browser, "audit")
    browser.until(lambda: browser.all("#entries td"))
    assert "2026-11" in browser.text("#entries")
    browser.type("#anchor", sf.Ledger(page.desk.places.ledger).anchor)
    browser.click("#verify button")
    browser.until(lambda: "unbroken, and continues" in browser.text("#verified"))
    assert "2026-11" in page.ask("/download/ledger.csv").text
    browser.shot("audit-1280-light")


@pytest.mark.parametrize("name", STEPS)
def test_every_page_for_everybody(page: Studio, browser: Browser, name: str) -> None:
    """On a phone and wide, light and dark: no rule of axe is broken, nothing is wider than the window, and the keyboard
    reaches every control."""
    base = page.keys.origin
    browser.go(f"{base}/{name}")
    ready = {"what-if": "#lines td", "pay": "#ledger svg", "read": "#statistic svg", "publish": "#files a"}
    browser.until(lambda: not browser.all("[aria-busy]") and (name not in ready or browser.all(ready[name])))
    for width, scheme in ((1280, "light"), (390, "dark"), (390, "light"), (1280, "dark")):
        browser.look(width, scheme)
        assert browser.overflow() <= 0, (width, scheme)
        browser.shot(f"{name}-{width}-{scheme}")
        if (width, scheme) != (390, "light"):  # colours and widths were each seen by then
            assert browser.faults() == [], (width, scheme)
    browser.look(1280, "light")
    assert unreached(browser) == []
    assert browser.errors() == []


def unreached(browser: Browser) -> list[str]:
    """Controls that Tab does not come to."""
    from selenium.webdriver.common.keys import Keys

    script = (
        "window.wanted = [...document.querySelectorAll('a[href], button, input, select, textarea, summary')].filter("
        "(e) => !e.disabled && e.checkVisibility() && !(e.type === 'radio' && !e.checked && document.querySelector("
        "`input[name=${e.name}]:checked`))); window.seen = new Set(); document.addEventListener('focusin', (e) => "
        "window.seen.add(e.target)); document.activeElement.blur(); return window.wanted.length"
    )
    count = browser.run(script)
    browser.find("body").send_keys(*[Keys.TAB] * (count + 20))
    missed = browser.run(
        "return window.wanted.filter((e) => !window.seen.has(e)).map((e) => e.outerHTML.slice(0, 150))"
    )
    assert isinstance(missed, list)
    return missed


HOSTILE = (
    "</script><script>window.hacked=1</script>",
    '"><img src=x onerror=window.hacked=2>',
    "javascript:window.hacked=3",
    "{{ 7 * 123457 }} ${window.hacked=4}",
    "=HYPERLINK(1)",
    "<!-- ",
    "مرحبا בעולם",
    "ü × 日本",
    "L" * 250,
)


QUESTION = f"`{HOSTILE[1]}` == '{HOSTILE[1]}'"


def hostile_spec() -> str:
    """A spec whose every name and label would do harm where it is taken for anything but text."""
    labels = json.dumps(HOSTILE, ensure_ascii=False)
    odd = json.dumps(HOSTILE[1])
    part = json.dumps(HOSTILE[0])
    return f"""
[data]
source = "people.csv"
table = {odd}
[schema_defaults]
outside = "other"
missing = "other"
[schema.{odd}]
type = "category"
values = {labels}
[schema."{"n" * 200}"]
type = "integer"
min = 0
max = 9
[privacy]
rho = 0.5
neighbours = "add-remove"
[[queries]]
name = {part}
upto = 2
[[queries]]
name = "named"
where = [{json.dumps(QUESTION)}]
[plan]
records = 50
"""


def test_hostile_labels(tmp_path: Path, browser: Browser) -> None:
    """Nothing runs, nothing breaks: in every page, in either width. Mutant: markup made of a label."""
    rows = ["a," + "n" * 200] + [f"{i % 3},{i % 10}" for i in range(50)]
    rows[0] = json.dumps(HOSTILE[1]).replace('\\"', '""') + "," + "n" * 200
    with studio(folder(tmp_path, hostile_spec(), "\n".join(rows) + "\n"), entered=False) as page:
        browser.go(page.keys.address)
        browser.until(lambda: browser.text("#file"))
        page.key = page.keys.key
        assert page.post("ledger", {"budget": {"rho": "1"}, "table": HOSTILE[1]}).status == 200
        job = page.paid("hostile")
        assert job["state"] == "done", job
        assert page.paid("talk", "pmw")["state"] == "done"
        anchor = store_anchor(page.desk.stored("talk"))
        assert page.post("put", {"name": "talk", "seen": anchor, "question": QUESTION}).status == 200
        ready = {"what-if": "#lines td", "pay": "#ledger svg", "read": "#table table"}
        ready |= {"table": "#columns h3", "questions": "#matrix input", "audit": "#transcripts td"}
        ready |= {"read?name=hostile": ready.pop("read"), "read?name=talk": "#left p"}
        for name in ready:
            browser.go(f"{page.keys.origin}/{name}")
            browser.until(lambda n=name: browser.all(ready[n]) and not browser.all("[aria-busy]"))
            for width in (390, 1280):
                browser.look(width, "light")
                assert browser.overflow() <= 0, (name, width)
                browser.shot(f"hostile-{name.replace('?name=', '-')}-{width}")
            assert browser.run("return [window.hacked ?? null, document.images.length, document.scripts.length]") == [
                None,
                0,
                2 if name.startswith("read") else 1,
            ]
            # of a session's next question no label is shown before it is typed
            if name != "read?name=talk":
                assert "onerror=window.hacked" in browser.run("return document.documentElement.textContent")
        endless = [{"place": ["schema", HOSTILE[1], "values"], "value": ["a", "L" * 10_000]}]
        assert page.post("change", {"version": page.version, "changes": endless}).status == 200
        browser.go(f"{page.keys.origin}/table")
        browser.until(lambda: "longer than 256 bytes" in browser.text("#columns"))
        assert browser.overflow() <= 0
        assert [e for e in browser.errors() if "Refused" in e or "Error" in e] == []


HOSTILE_PAGE = (Path(__file__).parents[1] / "fixtures" / "hostile.html").read_text(encoding="utf-8")


def test_a_server_at_another_port_gets_no_credential(tmp_path: Path, browser: Browser) -> None:
    """Another account's server on this machine, in the same browser. Mutants: the key as a cookie, which every port of
    the machine is sent; no check of Origin; pages that may be framed."""
    sent: list[str] = []
    found: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent.append(f"{self.path}\n{self.headers}")
            body = HOSTILE_PAGE.replace("ORIGIN", running.keys.origin).encode() if self.path == "/" else b""
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("set-cookie", f"sfumato-{running.keys.port}=planted; path=/")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            sent.append(f"{self.path}\n{self.headers}")
            found.append(self.rfile.read(int(self.headers["content-length"])).decode())
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            del args

    with (
        studio(folder(tmp_path), entered=False) as running,
        ThreadingHTTPServer(("127.0.0.1", 0), Handler) as other,
    ):
        thread = threading.Thread(target=other.serve_forever, daemon=True)
        thread.start()
        browser.go(running.keys.address)
        browser.until(lambda: browser.text("#file") == "spec.toml")
        assert running.keys.token not in browser.driver.current_url
        browser.go(f"http://127.0.0.1:{other.server_address[1]}/")
        browser.until(lambda: found)
        other.shutdown()
        told = json.loads(found[0])
        assert told["storage"] == {}
        assert [a for a in told["answers"] if a not in ("refused", "opaque ")] == []
        assert len(told["answers"]) == 4
        for text in (*sent, *found):
            assert running.keys.key not in text
            assert running.keys.token not in text
        assert not running.desk.places.ledger.exists()
        browser.go(f"{running.keys.origin}/table")  # what was planted there changes nothing
        browser.until(lambda: browser.text("#file") == "spec.toml")
        browser.forget()


def test_labels_by_the_hundred_thousand(tmp_path: Path, browser: Browser) -> None:
    """A paste of 100,000 labels: saved, and other windows are answered meanwhile. Mutant: labels that join the spec one
    by one, each of which counts all before it (hours)."""
    with studio(folder(tmp_path), entered=False) as page:
        browser.go(page.keys.address)
        browser.until(lambda: browser.all("#columns h3"))
        page.key = page.keys.key
        here = column(browser, "sex")
        browser.run(
            "const place = document.querySelector(arguments[0]);"
            "place.value = Array.from({length: 100000}, (_, i) => `label number ${i}`).join('\\n');"
            "place.dispatchEvent(new Event('input', {bubbles: true}));",
            f"{here} textarea",
        )
        browser.until(lambda: browser.text("#status") == "Saving…", 300)
        assert page.page("/audit").status == 200
        browser.until(lambda: "100,001 cells" in browser.text(here), 300)
        browser.forget()
    with (tmp_path / "spec.toml").open("rb") as file:
        assert len(tomllib.load(file)["schema"]["sex"]["values"]) == 100_000
