"""Who may talk to the page: this machine's browser, from this page, with the page's key, in bounded requests.

A page on this machine is reached by every other page that the same browser shows, and by whoever shares the machine.
Against the first stand the names that a request must give (Host, Origin, Sec-Fetch-Site) and a key that scripts of this
origin alone can read and send; against the second a token, good for one entry, that only the browser which was opened
has seen. The key is no cookie: browsers send the cookies of one port to the servers of every other port of the machine.

Pages themselves and the files that they load are the same for everybody and hold nothing of the user's; whatever does
is asked for with the key.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["ENTRY", "MAX_BODY", "Guard", "Keys"]

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
class Keys:
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

    def __init__(self, app: ASGIApp, keys: Keys, shown: Callable[[str], bool]) -> None:
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
            body = await asyncio.wait_for(_bounded(receive), _PATIENCE)
        except TimeoutError:
            await _no(408, "the request did not end")(scope, receive, guarded)
            return
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
        path, reads = scope["path"], scope["method"] in ("GET", "HEAD")
        if path == ENTRY and reads:  # the file that leads a browser here is another site
            return None
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return _no(403, "this request comes from another site")
        if reads and self.shown(path):
            return None
        if path != _ENTERING and not keys.knows(headers.get("authorization", "")):
            return _no(403, "this browser has not entered: open the address that the terminal shows, which works once")
        if not reads:
            if headers.get("origin") != keys.origin:
                return _no(403, "this request comes from another site")
            if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
                return _no(415, "requests hold JSON")
            if not headers.get("content-length", "").isdecimal():
                return _no(411, "requests state their length")
        return None


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
