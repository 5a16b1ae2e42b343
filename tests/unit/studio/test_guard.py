"""Who may talk to the page. Each test names what it catches when it is taken out of the guard; each was seen to."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from sfumato.studio.app import MAX_BODY
from sfumato.studio.serving import listening_socket
from support.studio import Studio, folder, studio

NOBODY = (403, 411, 413, 414, 415)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    with studio(folder(tmp_path_factory.mktemp("guard"))) as running:
        yield running


def test_it_is_reached_from_this_machine_alone() -> None:
    """Mutant: bind(("", 0)), which every machine of the network reaches."""
    with listening_socket() as found:
        assert found.getsockname()[0] == "127.0.0.1"
        assert found.family is socket.AF_INET


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1:{port}.evil.example", None]
)
def test_another_name_of_this_machine_is_refused(page: Studio, host: str | None) -> None:
    """Rebinding: a foreign name that is made to mean this machine. Mutant: no check of Host."""
    named = None if host is None else host.format(port=page.keys.port)
    assert page.ask("/table", host=named).status in (400, 403)
    # without a body: what is no HTTP is hung up on before one is read, and a connection reset would tell nothing
    assert page.post("plan", b"", host=named).status in (400, 403)


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:{port}", "http://127.0.0.1:1", None]
)
def test_other_origins_change_nothing(page: Studio, origin: str | None) -> None:
    """Mutant: no check of Origin, by which another page of the same browser could pay."""
    said = page.post("plan", {}, origin=None if origin is None else origin.format(port=page.keys.port))
    assert said.status == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_other_sites_see_nothing(page: Studio, site: str) -> None:
    """Other ports of this machine are the same site. Mutant: no check of Sec-Fetch-Site."""
    assert page.ask("/table", sec_fetch_site=site).status == 403
    assert page.ask("/static/table.js", sec_fetch_site=site).status == 403


@pytest.mark.parametrize(
    "key", [None, "", "Bearer ", "Bearer x", "Bearer {token}", "{key}", "Basic {key}", "bearer{key}"]
)
def test_without_the_key_nothing_of_the_user_is_served(page: Studio, key: str | None) -> None:
    """Mutants: no check of the key; the token taken for it; a page that carries its data; a cookie that counts."""
    keys = page.keys
    given = None if key is None else key.format(key=keys.key, token=keys.token)
    cookie = f"sfumato-key={keys.key}; sfumato-{keys.port}={keys.key}"
    for path in ("/job", "/download/spec", "/download/ledger.csv", "/nothing", "/api/page"):
        assert page.ask(path, authorization=given, cookie=cookie).status == 403
    for path in ("/table", "/read?name=2026-11", "/audit", "/static/table.js"):  # the same for everybody
        said = page.ask(path, authorization=given)
        assert said.status == 200
        text = said.text
        for example in ("people.csv", "postgresql:///db?table=people", 'placeholder="people"', "people.born"):
            text = text.replace(example, "")
        assert "people" not in text
        assert page.desk.places.spec.name not in said.text
        assert "set-cookie" not in said.headers
    assert page.post("plan", {}, authorization=given, cookie=cookie).status == 403
    assert page.post("page", {"step": "table", "query": {}}, authorization=given, cookie=cookie).status == 403


def test_pages_are_alike_for_everybody(page: Studio) -> None:
    """Mutant: a page made of what its reader has. Those who enter see the same shells, and get data by calls."""
    for path in ("/table", "/questions", "/what-if", "/pay", "/read", "/audit", "/enter"):
        assert page.ask(path).body == page.ask(path, authorization=None).body
    assert page.page("/table").json["file"] == page.desk.places.spec.name


def test_the_address_works_once(tmp_path: Path) -> None:
    """Mutants: a token that is not spent, which the browser's history keeps; a key that any token gives."""
    with studio(folder(tmp_path), entered=False) as page:
        keys = page.keys
        for wrong in ("", "x", keys.key, None, 3, [keys.token]):
            assert page.post("enter", {"token": wrong}, authorization=None).status == 403
        assert page.post("enter", {"token": keys.token}, origin="http://127.0.0.1:1").status == 403
        assert page.ask(f"/enter?token={keys.token}", authorization=None).status == 200  # the page itself gives nothing
        first = page.enter()
        assert first.status == 200
        assert "set-cookie" not in first.headers
        assert keys.token not in first.text
        assert page.enter().status == 403
        assert page.page("/table").status == 200


def test_the_starting_file_goes_once_it_was_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a file with the token that stays. It is readable by this account alone, and opened by the browser."""
    from sfumato.studio import serving
    from sfumato.studio.app import AccessKeys

    led: list[str] = []
    monkeypatch.setattr(serving.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(serving.webbrowser, "open", led.append)
    keys = AccessKeys(1)
    place = serving._open_browser(keys)
    assert [place.as_uri()] == led
    assert keys.token in place.read_text()
    assert place.stat().st_mode & 0o077 == 0
    assert not keys.enter("x")
    assert place.exists()
    assert keys.enter(keys.token)
    assert not place.exists()


def _is_closed(connection: socket.socket) -> bool:
    """Whether the server ends this connection: one that it ends before it read what lies there is reset instead."""
    connection.settimeout(30)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_connections_without_a_request_are_closed(page: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle programs of this machine must not use the server up. Mutants: no time for the head; no most; the newest
    goes, so that whoever fills the server first keeps it; of a burst only one goes, for it is listed until it has."""
    from sfumato.studio import serving

    monkeypatch.setattr(serving, "_MOST", 8)
    monkeypatch.setattr(serving, "_HALF_OPEN", 3600)  # it is their number that closes these
    idle = [socket.create_connection(("127.0.0.1", page.keys.port)) for _ in range(20)]
    try:
        assert page.ask("/table").status == 200
        for early in idle[:10]:
            assert _is_closed(early)
        monkeypatch.setattr(serving, "_HALF_OPEN", 0.2)
        with socket.create_connection(("127.0.0.1", page.keys.port)) as half:
            half.sendall(b"GET /table HTTP/1.1\r\nHost: ")
            assert _is_closed(half)
    finally:
        for one in idle:
            one.close()


def test_a_body_that_does_not_end_is_refused(page: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a request that waits for its body without end."""
    from sfumato.studio import app as guard

    monkeypatch.setattr(guard, "_PATIENCE", 0.2)
    assert page.post("plan", b"{", content_length="100").status == 408


def test_what_fails_is_said_in_words(page: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a list of errors that are expected, so that any other ends in a 500 without words."""
    from sfumato.studio.workspace import Workspace

    for error in (
        RuntimeError("a row"),
        RecursionError("a row"),
        MemoryError(),
        AssertionError("a row"),
        KeyError("a"),
    ):

        def fails(self: Workspace, error: Exception = error) -> object:
            del self
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(Workspace, "ledger", fails)
            said = page.page("/audit")
        assert said.status == 400
        assert said.json["error"] == "this request could not be served; nothing was spent by it"


def test_secrets_are_new_and_long(tmp_path: Path) -> None:
    """Mutant: a token that could be guessed."""
    del tmp_path
    from sfumato.studio.app import AccessKeys

    made = [AccessKeys(1) for _ in range(50)]
    assert len({k.token for k in made} | {k.key for k in made}) == 100
    assert min(len(k.token) for k in made) >= 40


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None])
def test_forms_of_other_sites_are_no_requests(page: Studio, kind: str | None) -> None:
    """What a page may send elsewhere without asking. Mutant: no check of the type."""
    assert page.post("plan", {}, content_type=kind).status == 415


def test_sizes_are_bounded(page: Studio) -> None:
    """Mutants: bodies without a bound; lengths that are not stated; addresses without a bound."""
    assert page.post("plan", b"[" + b" " * MAX_BODY + b"]").status == 413
    assert page.post("plan", {}, content_length=None, transfer_encoding="chunked").status == 411
    assert page.ask("/read?name=" + "a" * 20_000).status in (400, 414)
    deep = b'{"a":' * 5_000 + b"1" + b"}" * 5_000
    assert page.post("plan", deep).status == 400
    assert page.ask("/table").status == 200


def test_every_answer_forbids_what_pages_do_not_need(page: Studio) -> None:
    """Mutant: headers on pages alone. Scripts and styles come from this server, as files."""
    for said in (page.ask("/table"), page.ask("/nothing"), page.ask("/job", authorization=None), page.post("plan", {})):
        policy = said.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert re.findall(r"https?:|\*", policy) == []
        assert "frame-ancestors 'none'" in policy
        assert said.headers["x-content-type-options"] == "nosniff"
        assert said.headers["referrer-policy"] == "no-referrer"
        assert said.headers["cache-control"] == "no-store"
        assert "server" not in said.headers


@pytest.mark.parametrize(
    "path",
    [
        "/static/..%2fguard.py",
        "/static/../guard.py",
        "/static/style.css%00",
        "/download/budget.db?name=x",
        "/api/open",
        "/docs",
    ],
)
def test_other_files_are_not_served(page: Studio, path: str) -> None:
    """Mutant: static files by their path on disk."""
    assert page.ask(path).status in (400, 404, 405)


@pytest.mark.parametrize(
    "name", ["..", "../spec.toml", "a/b", "a\\b", ".hidden", "", "a\x00", "x" * 65, " a", "a.", "é/..", 3, None, ["a"]]
)
def test_releases_have_names_and_no_paths(page: Studio, name: object) -> None:
    """Mutant: a name joined to a folder unseen."""
    for call in ("table", "ask", "maps", "project"):
        said = page.post(call, {"name": name, "attributes": ["age"], "question": "age >= 1"})
        assert said.status == 400
        assert "no release" in said.text or "a name is" in said.text


def test_links_out_of_the_folder_are_not_followed(page: Studio, tmp_path: Path) -> None:
    """Mutant: a link taken for a release."""
    (tmp_path / "release.json").write_text("{}", encoding="utf-8")
    shelf = page.desk.places.releases
    shelf.mkdir(exist_ok=True)
    (shelf / "linked").symlink_to(tmp_path)
    assert "linked" not in page.desk.shelf()
    assert page.ask("/download/release.json?name=linked").status == 400
    assert page.post("maps", {"name": "linked"}).status == 400
