"""A studio of the tests' own, in a thread, and requests to it with whatever headers a test wants."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from sfumato.studio.app import AccessKeys
from sfumato.studio.drafts import text_version
from sfumato.studio.serving import listening_socket, make_server
from sfumato.studio.workspace import Places, Workspace

SPEC = """
[data]
source = "people.csv"
table = "people"

[schema_defaults]
outside = "other"
missing = "other"

[schema.age]
type = "integer"
min = 0
max = 9

[schema.sex]
type = "category"
values = ["female", "male"]

[privacy]
rho = 0.5
neighbours = "add-remove"

[[queries]]
name = "main"
upto = 2

[[queries]]
name = "curve"
prefix = "age"
by = ["sex"]

[[queries]]
name = "counts"
where = ["age >= 5 and sex == 'female'"]
"""
ROWS = "age,sex\n" + "".join(f"{i % 10},{'female' if i % 3 else 'male'}\n" for i in range(300))


@dataclass(frozen=True)
class Said:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass
class Studio:
    """A running studio; `ask` and `post` send what the page's browser would, unless told otherwise."""

    desk: Workspace
    keys: AccessKeys
    key: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    def raw(self, method: str, path: str, headers: dict[str, str], body: bytes | None = None) -> Said:
        connection = http.client.HTTPConnection("127.0.0.1", self.keys.port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return Said(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def ask(self, path: str, **change: str | None) -> Said:
        """A GET; a header that is None is left out."""
        return self.raw("GET", path, self._headers(change))

    def post(self, name: str, value: Any, **change: str | None) -> Said:
        """A call with JSON."""
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        given = {"origin": self.keys.origin, "content-type": "application/json", "content-length": str(len(body))}
        return self.raw("POST", f"/api/{name}", self._headers(given | change), body)

    def _headers(self, change: dict[str, str | None]) -> dict[str, str]:
        usual = {"host": self.keys.host, "authorization": f"Bearer {self.key}", "sec-fetch-site": "same-origin"}
        return {
            k.replace("_", "-"): v
            for k, v in (usual | {k.replace("_", "-"): v for k, v in change.items()}).items()
            if v is not None
        }

    def enter(self) -> Said:
        found = self.post("enter", {"token": self.keys.token}, authorization=None)
        self.key = found.json.get("key", self.key)
        return found

    def page(self, address: str, **change: str | None) -> Said:
        """What a page shows, as its script asks for it."""
        found = urlsplit(address)
        return self.post("page", {"step": found.path.strip("/"), "query": dict(parse_qsl(found.query))}, **change)

    @property
    def version(self) -> str:
        """The state of the spec that a window which was just opened shows."""
        return text_version(self.desk.text)

    def paid(self, name: str, what: str = "release") -> dict[str, Any]:
        """Pay for the plan of the spec as it is, and wait for the end."""
        asked = {"version": self.version, "what": what}
        plan = self.post("plan", asked).json
        begun = self.post("pay", asked | {"fingerprint": plan["fingerprint"], "name": name})
        return begun.json if begun.status != 200 else self.ended()

    def ended(self) -> dict[str, Any]:
        """The payment once it is over."""
        until = time.monotonic() + 120
        while (job := self.ask("/job").json)["state"] == "paying" and time.monotonic() < until:
            time.sleep(0.02)
        return job


def folder(place: Path, spec: str = SPEC, rows: str = ROWS) -> Path:
    """A folder with a spec and its table."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "spec.toml").write_text(spec, encoding="utf-8")
    (place / "people.csv").write_text(rows, encoding="utf-8")
    return place


@contextmanager
def studio(place: Path, spec: str = "spec.toml", *, entered: bool = True) -> Iterator[Studio]:
    """A studio over a folder."""
    with listening_socket() as found:
        keys = AccessKeys(found.getsockname()[1])
        desk = Workspace(Places(place / spec, place / "budget.db", place / "releases", place / "sessions"))
        running = make_server(desk, keys)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [found]}, daemon=True)
        thread.start()
        try:
            made = Studio(desk, keys)
            while not running.started:
                time.sleep(0.01)
            if entered:
                made.enter()
            yield made
        finally:
            running.should_exit = True
            thread.join(20)
