"""Who may talk to the page: this machine's browser, from this page, with the session's cookie, in bounded requests.

A page on this machine is reached by every other page that the same browser shows, and by whoever shares the machine.
Against the first stand the names that a request must give (Host, Origin, Sec-Fetch-Site) and a cookie that other sites'
requests do not carry; against the second a token, good for one entry, that only the browser which was opened has seen.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["MAX_BODY", "Guard", "Keys"]

MAX_BODY = 4 * 2**20  # a spec with a hundred thousand labels; what is longer is read from a file of codes
_MAX_QUERY = 8_192  # a question of the grammar's longest
ENTRY = "/enter"

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
# a page of its own, so that the cookie is set before anything else is asked for, whoever led here
_WELCOME = """<!doctype html><html lang="en"><meta charset="utf-8"><title>sfumato studio</title>
<link rel="icon" href="data:,">
<meta http-equiv="refresh" content="0; url=/"><p><a href="/">Go on to the page</a></p></html>"""


@dataclass(slots=True)
class Keys:
    """The token of the address, spent by the first entry, and the secret that its browser keeps."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(32))
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
        """The address to open, once."""
        return f"{self.origin}{ENTRY}?token={self.token}"

    @property
    def cookie(self) -> str:
        """The cookie's name: browsers give cookies to every port of a machine."""
        return f"sfumato-{self.port}"

    def enter(self, token: str) -> bool:
        """Whether this is the token, presented for the first time."""
        with self._lock:
            if self._spent or not hmac.compare_digest(token.encode(), self.token.encode()):
                return False
            self._spent = True
            return True

    def knows(self, cookies: str) -> bool:
        """Whether a request carries the secret."""
        given = cookie_parser(cookies).get(self.cookie, "")
        return hmac.compare_digest(given.encode(), self.secret.encode())


class Guard:
    """The app behind its checks; every answer gets the headers that keep a browser from running or loading others'."""

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self.app = app
        self.keys = keys

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
        body = await _bounded(receive)
        if body is None:
            await _no(413, "a request holds at most 4 MiB; give long lists of labels as a file of codes")(
                scope, receive, guarded
            )
            return
        await self.app(scope, _replayed(body, receive), guarded)

    def _refused(self, scope: Scope) -> Response | None:
        """What to answer instead of the app; None where a request may pass."""
        headers, keys = Headers(scope=scope), self.keys
        if headers.get("host") != keys.host:
            return _no(403, "this server is called by its address alone")
        if len(scope["query_string"]) > _MAX_QUERY:
            return _no(414, "the address is too long")
        if scope["path"] == ENTRY:
            return self._entry(scope)
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return _no(403, "this request comes from another site")
        if not keys.knows(headers.get("cookie", "")):
            return _no(403, "this browser has not entered: open the address that the terminal shows, which works once")
        if scope["method"] not in ("GET", "HEAD"):
            if headers.get("origin") != keys.origin:
                return _no(403, "this request comes from another site")
            if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
                return _no(415, "requests hold JSON")
            if not headers.get("content-length", "").isdecimal():
                return _no(411, "requests state their length")
        return None

    def _entry(self, scope: Scope) -> Response:
        query = scope["query_string"].decode("ascii", "replace")
        token = query.removeprefix("token=")
        if scope["method"] != "GET" or token == query or not self.keys.enter(token):
            return _no(403, "this address works once; start sfumato studio again for another")
        done = HTMLResponse(_WELCOME)
        done.set_cookie(self.keys.cookie, self.keys.secret, httponly=True, samesite="strict", path="/")
        return done


def _no(status: int, text: str) -> Response:
    return JSONResponse({"error": text}, status)


async def _bounded(receive: Receive) -> bytes | None:
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


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body once more, then whatever comes."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
