"""Who may talk to the page. Each test names what it catches when it is taken out of the guard; each was seen to."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from sfumato.studio.guard import MAX_BODY
from sfumato.studio.serving import listening
from support.studio import Studio, folder, studio

NOBODY = (403, 411, 413, 414, 415)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    with studio(folder(tmp_path_factory.mktemp("guard"))) as running:
        yield running


def test_it_is_reached_from_this_machine_alone() -> None:
    """Mutant: bind(("", 0)), which every machine of the network reaches."""
    with listening() as found:
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
    """Other ports of this machine are the same site, with the same cookies. Mutant: no check of Sec-Fetch-Site."""
    assert page.ask("/table", sec_fetch_site=site).status == 403
    assert page.ask("/static/table.js", sec_fetch_site=site).status == 403


@pytest.mark.parametrize("cookie", [None, "", "{name}=", "{name}=x", "{name}={token}", "sfumato-1={secret}"])
def test_without_the_cookie_nothing_is_served(page: Studio, cookie: str | None) -> None:
    """Mutants: no check of the cookie; the token taken for it; that of another port."""
    keys = page.keys
    given = None if cookie is None else cookie.format(name=keys.cookie, token=keys.token, secret=keys.secret)
    for path in ("/", "/table", "/static/table.js", "/job", "/download/spec", "/nothing"):
        said = page.ask(path, cookie=given)
        assert said.status == 403
        assert "people" not in said.text
    assert page.post("plan", {}, cookie=given).status == 403


def test_the_address_works_once(tmp_path: Path) -> None:
    """Mutant: a token that is not spent, which the browser's history keeps."""
    with studio(folder(tmp_path), entered=False) as page:
        keys = page.keys
        for wrong in ("", "token=", "token=x", f"token={keys.secret}", keys.token):
            assert page.raw("GET", f"/enter?{wrong}", {"host": keys.host}).status == 403
        assert page.raw("POST", f"/enter?token={keys.token}", {"host": keys.host, "content-length": "0"}).status == 403
        first = page.enter()
        assert first.status == 200
        found = first.headers["set-cookie"].lower()
        assert "httponly" in found
        assert "samesite=strict" in found
        assert "domain" not in found
        assert keys.token not in first.text
        assert page.enter().status == 403
        assert page.ask("/table").status == 200


def test_secrets_are_new_and_long(tmp_path: Path) -> None:
    """Mutant: a token that could be guessed."""
    del tmp_path
    from sfumato.studio.guard import Keys

    made = [Keys(1) for _ in range(50)]
    assert len({k.token for k in made} | {k.secret for k in made}) == 100
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
    for said in (page.ask("/table"), page.ask("/nothing"), page.ask("/table", cookie=None), page.post("plan", {})):
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
