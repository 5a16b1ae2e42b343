"""The pages and what they ask for: routes, each a few lines over the rooms of this folder.

Who may talk to the page: this machine's browser, from this page, with the page's key, in bounded requests.

A page on this machine is reached by every other page that the same browser shows, and by whoever shares the machine.
Against the first stand the names that a request must give (Host, Origin, Sec-Fetch-Site) and a key that scripts of this
origin alone can read and send; against the second a token, good for one entry, that only the browser which was opened
has seen. The key is no cookie: browsers send the cookies of one port to the servers of every other port of the machine.

Pages themselves and the files that they load are the same for everybody and hold nothing of the user's; whatever does
is asked for with the key.
"""

from __future__ import annotations

import asyncio
import functools
import hmac
import json
import re
import secrets
import threading
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import resources
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sfumato._util.catalogue import known_languages, read_catalogue
from sfumato._util.description import Description, Warnings
from sfumato.errors import BudgetExceeded, InvalidInput, LedgerMismatch, NameTaken, SfumatoError
from sfumato.present.charts import CONFIG
from sfumato.present.page import asset_text, template_environment
from sfumato.privacy.practice import PRACTICE
from sfumato.publishing.workbook import release_workbook
from sfumato.releases.publication import folder_publication
from sfumato.studio import conversations, outgoing, paying, reading
from sfumato.studio import reading as downloads
from sfumato.studio.calls import CALLS, Asked, Json, release_of
from sfumato.studio.what_if import ledger_csv, spec_state
from sfumato.studio.workspace import Workspace
from sfumato.terminal import replace_nonfinite

MAX_BODY = 4 * 2**20  # a spec with a hundred thousand labels; what is longer is read from a file of codes
_MAX_QUERY = 8_192  # a question of the grammar's longest
_PATIENCE = 30  # seconds for the body of a request
ENTRY = "/enter"
_ENTERING = "/api/enter"

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(slots=True)
class AccessKeys:
    """The token of the address, spent by the first entry, and the key that its browser keeps.

    `entered` is called once, by the entry.
    """

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    key: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    entered: Callable[[], None] | None = None
    _spent: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def host(self) -> str:
        """What a request must call this server."""
        return f"127.0.0.1:{self.port}"

    @property
    def origin(self) -> str:
        """Where a request that changes something must come from."""
        return f"http://{self.host}"

    @property
    def address(self) -> str:
        """The address to open, once. What stands behind # stays in the browser, out of requests and of logs."""
        return f"{self.origin}{ENTRY}#{self.token}"

    def enter(self, token: str) -> bool:
        """Whether this is the token, presented for the first time."""
        with self._lock:
            if self._spent or not hmac.compare_digest(token.encode(), self.token.encode()):
                return False
            self._spent = True
        if self.entered is not None:
            self.entered()
        return True

    def knows(self, authorization: str) -> bool:
        """Whether a request carries the key."""
        scheme, _, given = authorization.partition(" ")
        return scheme == "Bearer" and hmac.compare_digest(given.encode(), self.key.encode())


class Guard:
    """The app behind its checks; every answer gets the headers that keep a browser from running or loading others'.

    `shown` says which paths are the same for everybody: pages without their data, scripts and styles.
    """

    def __init__(self, app: ASGIApp, keys: AccessKeys, shown: Callable[[str], bool]) -> None:
        self.app = app
        self.keys = keys
        self.shown = shown

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # no page opens a socket
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message["headers"])
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        refused = self._refused(scope)
        if refused is not None:
            await refused(scope, receive, guarded)
            return
        try:
            body = await asyncio.wait_for(_read_bounded_body(receive), _PATIENCE)
        except TimeoutError:
            await _error_response(408, "the request did not end")(scope, receive, guarded)
            return
        if body is None:
            await _error_response(413, "a request holds at most 4 MiB; give long lists of labels as a file of codes")(
                scope, receive, guarded
            )
            return
        await self.app(scope, _replay_body(body, receive), guarded)

    def _refused(self, scope: Scope) -> Response | None:
        """What to answer instead of the app; None where a request may pass."""
        headers, keys = Headers(scope=scope), self.keys
        if headers.get("host") != keys.host:
            return _error_response(403, "this server is called by its address alone")
        if len(scope["query_string"]) > _MAX_QUERY:
            return _error_response(414, "the address is too long")
        path, reads = scope["path"], scope["method"] in ("GET", "HEAD")
        if path == ENTRY and reads:  # the file that leads a browser here is another site
            return None
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return _error_response(403, "this request comes from another site")
        if reads and self.shown(path):
            return None
        if path != _ENTERING and not keys.knows(headers.get("authorization", "")):
            return _error_response(
                403, "this browser has not entered: open the address that the terminal shows, which works once"
            )
        if not reads:
            if headers.get("origin") != keys.origin:
                return _error_response(403, "this request comes from another site")
            if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
                return _error_response(415, "requests hold JSON")
            if not headers.get("content-length", "").isdecimal():
                return _error_response(411, "requests state their length")
        return None


def _error_response(status: int, text: str) -> Response:
    return JSONResponse({"error": text}, status)


async def _read_bounded_body(receive: Receive) -> bytes | None:
    """The body of a request; None where it is too long."""
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return body
        body += message.get("body", b"")
        if len(body) > MAX_BODY:
            return None
        if not message.get("more_body", False):
            return body


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """The body once more, then whatever comes."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


STEPS = {
    "table": "Table",
    "questions": "Questions",
    "what-if": "What if",
    "pay": "Pay",
    "read": "Read",
    "publish": "Publish",
    "audit": "Audit",
}
"""The pages in the order of the road."""
_SCRIPTS = ("common", "completion", "enter", "key", "language", "notation", "persons", "talking", *STEPS)
_COMMENT = re.compile(r"^ *(?://.*|/\*\*[\s\S]*?\*/)\n", re.MULTILINE)
_TYPES = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}


def _static_files() -> dict[str, tuple[str, str]]:
    """Every file that a page may load: its text and type."""
    own = resources.files("sfumato.studio") / "static"
    found = {f"{n}.js": (_page_script((own / f"{n}.js").read_text(encoding="utf-8")), _TYPES["js"]) for n in _SCRIPTS}
    found["studio.css"] = ((own / "studio.css").read_text(encoding="utf-8"), _TYPES["css"])
    found["style.css"] = (asset_text("style.css"), _TYPES["css"])
    found["vega.js"] = (asset_text("vendor/vega-bundle.js"), _TYPES["js"])
    return found


def _page_script(program: str) -> str:
    """A script as pages load it: without comments and indentation, as no text of it runs over several lines."""
    return "".join(line.lstrip(" ") for line in _COMMENT.sub("", program).splitlines(keepends=True))


def make_app(desk: Workspace, keys: AccessKeys) -> Guard:
    """The whole server behind its guard."""
    payments, static = paying.Payments(desk), _static_files()
    shells = {f"/{name}": _page_shell(name) for name in STEPS}
    shells[ENTRY] = template_environment("sfumato.studio", "pages").get_template("enter.html").render()

    def page(request: Request) -> Response:
        return HTMLResponse(shells[request.url.path])

    def enter(_desk: Workspace, _payments: paying.Payments, given: Json) -> Any:
        token = given.get("token")
        if not isinstance(token, str) or not keys.enter(token):
            return JSONResponse({"error": "this address works once; start sfumato studio again for another"}, 403)
        return {"key": keys.key}

    def answer(handler: Asked) -> Callable[[Request], Any]:
        async def called(request: Request) -> Response:
            try:
                given = json.loads(await request.body())
            except (ValueError, RecursionError):
                return JSONResponse({"error": "this is not JSON"}, 400)
            if not isinstance(given, dict):
                return JSONResponse({"error": "a request is an object"}, 400)
            return await run_in_threadpool(_call_response, desk, functools.partial(handler, desk, payments, given))

        return called

    calls = CALLS | {"enter": enter, "page": _page_data}

    def file(request: Request) -> Response:
        found = static.get(request.path_params["name"])
        if found is None:
            raise HTTPException(404)
        return Response(found[0], media_type=found[1])

    def download(request: Request) -> Response:
        return _call_response(desk, lambda: _download(desk, request))

    def first(_request: Request) -> Response:
        return RedirectResponse("/table", 303)

    def job(_request: Request) -> Response:
        return JSONResponse(payments.status())

    routes = [
        Route("/", first),
        *(Route(place, page) for place in shells),
        Route("/static/{name}", file),
        Route("/job", job),
        Route("/download/{what}", download),
        *(Route(f"/api/{name}", answer(handler), methods=["POST"]) for name, handler in calls.items()),
    ]
    handlers: dict[Any, Any] = {
        404: _not_found_response,
        405: _not_found_response,
        500: _failure_response,
        SfumatoError: _refusal_handler(desk),
    }
    shown = {"/", *shells, *(f"/static/{name}" for name in static)}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), keys, shown.__contains__)


def _not_found_response(_request: Request, _error: Exception) -> Response:
    return JSONResponse({"error": "there is nothing here"}, 404)


def _failure_response(_request: Request, _error: Exception) -> Response:
    # what it says could hold anything
    return JSONResponse({"error": "something failed that should not; nothing was spent by this request"}, 500)


def _refusal_handler(desk: Workspace) -> Callable[[Request, Exception], Response]:
    def refused(_request: Request, error: Exception) -> Response:
        return _refusal_response(desk, error)

    return refused


def _refusal_response(desk: Workspace, error: Exception) -> Response:
    clash = isinstance(error, (NameTaken, LedgerMismatch, BudgetExceeded))
    return JSONResponse({"error": desk.said(error)}, 409 if clash else 400)


def _call_response(desk: Workspace, call: Callable[[], Any]) -> Response:
    """What a call returns as JSON; a refusal in words, and of anything else only that it failed."""
    try:
        found = call()
    except SfumatoError as error:
        return _refusal_response(desk, error)
    except Exception:  # whatever it says could hold anything
        return JSONResponse({"error": "this request could not be served; nothing was spent by it"}, 400)
    if isinstance(found, Response):
        return found
    return JSONResponse(replace_nonfinite(found.to_dict() if isinstance(found, Description) else found))


def _page_shell(name: str) -> str:
    """A page as everybody may see it: its data come when its script asks for them."""
    order = list(STEPS)
    at = order.index(name)
    return (
        template_environment("sfumato.studio", "pages")
        .get_template(f"{name}.html")
        .render(
            steps=STEPS,
            practice=PRACTICE,
            step=name,
            before=order[at - 1] if at else None,
            after=order[at + 1] if at + 1 < len(order) else None,
        )
    )


def _page_data(desk: Workspace, payments: paying.Payments, given: Json) -> Any:
    """What a page shows, and the name of the spec that it is about."""
    step, query = given.get("step"), given.get("query")
    if step not in _PAGES or not isinstance(query, dict) or not all(isinstance(v, str) for v in query.values()):
        raise InvalidInput(f"a page is one of {', '.join(_PAGES)}, with its query")
    return {"file": desk.places.spec.name, "data": _PAGES[step](desk, payments, query)} | _page_words(given)


def _page_words(given: Json) -> Json:
    """The words of a page's language, for its script to say finished texts anew; English needs none."""
    language = given.get("language", "en")
    if language not in known_languages():
        raise InvalidInput(f"a page speaks one of {', '.join(known_languages())}")
    if language == "en":
        return {}
    known = read_catalogue(str(language))
    marks = {"decimal": known.decimal, "thousands": known.group}
    return {"words": {"words": known.words | studio_words(str(language)), "marks": marks}}


@functools.cache
def studio_words(language: str) -> dict[str, str]:
    """What the pages alone say in a language, by the English text."""
    text = (resources.files("sfumato.studio") / "words" / f"{language}.toml").read_text(encoding="utf-8")
    return dict(tomllib.loads(text)["words"])


# -- pages ---------------------------------------------------------------------------------------------------


def _table_page(desk: Workspace, _payments: paying.Payments, _query: Json) -> Json:
    return spec_state(desk)


def _pay_page(desk: Workspace, payments: paying.Payments, _query: Json) -> Json:
    found: Json = spec_state(desk)
    found |= {"job": payments.status(), "shelf": desk.shelf(), "ledger_file": desk.places.ledger.name}
    kept = (found.get("spec") or {}).get("privacy")
    return found | {"proposal": paying.ledger_proposal(kept if isinstance(kept, dict) else {})}


def _read_page(desk: Workspace, payments: paying.Payments, query: Json) -> Json:
    shelf = desk.shelf()
    name = query.get("name") or (shelf[0] if shelf else None)
    found: Json = spec_state(desk) | {"shelf": shelf, "name": name, "config": CONFIG, "release": None, "error": None}
    found |= {"standing": None, "job": payments.status()}
    if name is not None:
        try:
            found["standing"] = conversations.conversation_status(desk.stored(name))
            found["release"] = reading.release_overview(desk.release(name), name) | {
                "files": downloads.available_files(desk.stored(name))
            }
        except SfumatoError as error:
            found["error"] = desk.said(error)
    return found


def _publish_page(desk: Workspace, _payments: paying.Payments, query: Json) -> Json:
    shelf = [name for name in desk.shelf() if desk.stored(name).is_dir()]
    name = query.get("name") or (shelf[0] if shelf else None)
    found: Json = {
        "shelf": shelf,
        "name": name,
        "told": None,
        "error": None,
        "broken": None,
        "attributes": [],
        "means": [],
    }
    if name is not None:
        try:
            release = release_of(desk, name)
            found["told"] = outgoing.publication_fields(desk.stored(name))
            found["projected"] = release.projection is not None
            found["cells"] = outgoing.labelled_cells(release)
            found["attributes"] = reading.release_overview(release, name)["attributes"]
            found["means"] = outgoing.drawable_means(release)
        except SfumatoError as error:
            found["error"] = desk.said(error)
    return found


def _audit_page(desk: Workspace, _payments: paying.Payments, _query: Json) -> Json:
    found = desk.ledger()
    name = desk.places.ledger.name
    account = None if found is None else paying.ledger_account(found, None)
    return {"ledger": account, "file": name, "shelf": desk.shelf(), "transcripts": _conversation_transcripts(desk)}


def _conversation_transcripts(desk: Workspace) -> list[Json]:
    """What every session and stream here was asked; one that cannot be read says so and leaves the others."""
    told: list[Json] = []
    for name in desk.shelf():
        try:
            found = conversations.conversation_transcript(desk.stored(name))
        except SfumatoError as error:
            found = Description(name, [Warnings([desk.said(error)])])
        told += [] if found is None else [found.to_dict()]
    return told


_PAGES: dict[str, Asked] = {
    "table": _table_page,
    "questions": _table_page,
    "what-if": _table_page,
    "pay": _pay_page,
    "read": _read_page,
    "publish": _publish_page,
    "audit": _audit_page,
}


# -- files ---------------------------------------------------------------------------------------------------


def _download(desk: Workspace, request: Request) -> Response:
    what, query = request.path_params["what"], request.query_params
    if what == "spec":
        return _attachment_response(desk.text.encode(), desk.places.spec.name, "application/toml")
    if what == "ledger.csv":
        found = desk.ledger()
        if found is None:
            raise InvalidInput("there is no ledger yet")
        return _attachment_response(ledger_csv(found).encode(), "ledger.csv", "text/csv; charset=utf-8")
    name, leave_out = query.get("name", ""), "leave_out" in query
    if what == "office.toml":
        text = outgoing.job_text(desk, name, leave_out=leave_out)
        return _attachment_response(text.encode(), what, "application/toml")
    if what in outgoing.KINDS:
        place, names = desk.stored(name), tuple(query.getlist("a"))
        body = outgoing.outgoing_file(
            release_of(desk, name), place, what, names, mean=query.get("mean"), leave_out=leave_out
        )
        return _attachment_response(body, f"{name} {what}", outgoing.KINDS[what])
    if what == downloads.STREAM:
        return _attachment_response(downloads.stream_file(desk.release(name)), f"{name}.release", "application/zip")
    if what in downloads.FILES:
        place = downloads.stored_file(desk.stored(name), what)
        return FileResponse(place, media_type=downloads.FILES[what], filename=f"{name} {what}")
    release = release_of(desk, name)
    if what == "table.csv":
        names = tuple(query.getlist("a"))
        return _attachment_response(
            downloads.table_csv(release, names).encode(), f"{name} {' x '.join(names)}.csv", "text/csv; charset=utf-8"
        )
    if what == "tables.xlsx":
        kind = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
        told = folder_publication(desk.stored(name))
        return _attachment_response(release_workbook(release, told, leave_out=leave_out), f"{name}.xlsx", kind)
    raise InvalidInput("there is no such file")


def _attachment_response(body: bytes, name: str, kind: str) -> Response:
    plain = "".join(c if c.isalnum() or c in "._- " else "-" for c in name)
    return Response(
        body, media_type=kind, headers={"content-disposition": f"attachment; filename*=utf-8''{quote(plain)}"}
    )
