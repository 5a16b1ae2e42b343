"""The server: on this machine alone, at a port that nobody knew before, for the browser that it opens."""

from __future__ import annotations

import functools
import os
import socket
import sys
import tempfile
import webbrowser
from asyncio import TimerHandle, Transport
from importlib import resources
from pathlib import Path
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from sfumato._util.documents import write_text_atomically
from sfumato.curator.rows.samples import OtherEncoding, column_names
from sfumato.errors import InvalidInput
from sfumato.studio.app import AccessKeys, make_app
from sfumato.studio.drafts import apply_changes
from sfumato.studio.workspace import Places, Workspace

_BACKLOG = 64  # connections that wait: one browser opens six
_IDLE = 30  # seconds that a connection is kept for a next request
_HALF_OPEN = 10  # seconds for the head of a first one
_MOST = 256  # connections at once
_BLANK = """\
# A table, what is asked of it, and what that may cost. None of this comes from its rows.
# Written by sfumato studio; sfumato plan and sfumato release read the same file.

[data]
source = ""

[schema_defaults]
outside = ""
missing = ""

[privacy]
epsilon = 1
delta = 1e-6
neighbours = ""
"""


def prepare_spec(given: str | None, folder: Path, *, demo: bool) -> tuple[Path, tuple[str, ...] | None]:
    """The spec file to work on, made where there is none yet, and the names of the table's columns where it is new.

    `given` is a spec (.toml), a table, or None for a spec that asks where the table is. Raises InvalidInput, OSError.
    """
    if demo:
        return _copy_demo(folder), None
    if given is not None and given.endswith(".toml"):
        if not Path(given).is_file():
            raise InvalidInput(f"{given!r} is no file; name a spec, or a table for a new one")
        return Path(given), None
    if given is None:
        place = folder / "table.toml"
        if not place.exists():
            write_text_atomically(place, _BLANK)
        return place, None
    try:
        names = column_names(given)
    except OtherEncoding:  # the page asks for the encoding, and has no other beginning
        names = None
    stem = Path(given.partition("?")[0]).stem if "://" in given else Path(given).stem
    place = folder / f"{stem or 'table'}.toml"
    if not place.exists():
        source = given if "://" in given else os.path.relpath(given, folder)
        write_text_atomically(place, apply_changes(_BLANK, [{"place": ["data", "source"], "value": source}]))
    return place, names


def _copy_demo(folder: Path) -> Path:
    """The bundled public table in a new folder, with its spec."""
    number, place = 1, folder / "sfumato-studio"
    while place.exists():
        number += 1
        place = folder / f"sfumato-studio-{number}"
    place.mkdir(parents=True)
    for name in ("adult.toml", "adult.parquet"):
        (place / name).write_bytes((resources.files("sfumato.data") / name).read_bytes())
    return place / "adult.toml"


def listening_socket() -> socket.socket:
    """A socket on this machine's own address alone, at a port that the system chooses."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.bind(("127.0.0.1", 0))
    found.listen(_BACKLOG)
    return found


class Patient(H11Protocol):
    """A connection that is closed where no request comes, so that idle programs of this machine cannot use them up.

    Where there are too many, the oldest of those that never sent a request goes for the newest.
    """

    deadline: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self.deadline = self.loop.call_later(_HALF_OPEN, self.give_up)
        still_open = self._still_open()
        if len(still_open) > _MOST:
            kept = [one for one in still_open if one.waits()]
            oldest = min(kept, key=lambda one: cast(TimerHandle, one.deadline).when(), default=self)
            oldest.give_up()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        if self.deadline is not None:
            self.deadline.cancel()
        super().connection_lost(exc)

    def _still_open(self) -> list[Patient]:
        # the server lists those that were closed for others of the same burst until its loop comes round
        listed = (one for one in cast("set[Any]", self.connections) if isinstance(one, Patient))
        return [one for one in listed if not one.transport.is_closing()]

    def waits(self) -> bool:
        """Whether no request has come yet."""
        return self.cycle is None and self.deadline is not None  # type: ignore[reportUnnecessaryComparison]

    def give_up(self) -> None:
        """Close the connection if it still waits."""
        if self.waits() and not self.transport.is_closing():
            self.transport.close()


def make_server(desk: Workspace, keys: AccessKeys) -> uvicorn.Server:
    """The server, which says nothing of itself and keeps no log of addresses."""
    config = uvicorn.Config(
        make_app(desk, keys),
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        ws="none",
        lifespan="off",
        http=Patient,
        loop="asyncio",
        timeout_keep_alive=_IDLE,
        proxy_headers=False,
    )
    return uvicorn.Server(config)


def serve_studio(places: Places, header: tuple[str, ...] | None, *, opens: bool) -> None:
    """Serve until interrupted. The address is printed; with `opens` the browser is led there."""
    with listening_socket() as found:
        keys = AccessKeys(found.getsockname()[1])
        desk = Workspace(places, header)
        sys.stdout.write(f"Working on {places.spec}. Ctrl-C ends it; what you declared stays in the file.\n")
        sys.stdout.write(f"Open in a browser on this machine, once: {keys.address}\n")
        sys.stdout.flush()
        start = _open_browser(keys) if opens else None
        try:
            make_server(desk, keys).run(sockets=[found])
        finally:
            if start is not None:
                start.unlink(missing_ok=True)


def _open_browser(keys: AccessKeys) -> Path:
    """Lead the browser to the address by a file that only this account reads: arguments of programs all can see.

    The file is removed by the entry.
    """
    handle, name = tempfile.mkstemp(prefix="sfumato-", suffix=".html")
    place = Path(name)
    keys.entered = functools.partial(place.unlink, missing_ok=True)
    with os.fdopen(handle, "w", encoding="utf-8") as page:
        page.write(f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={keys.address}">')
    webbrowser.open(place.as_uri())
    return place
