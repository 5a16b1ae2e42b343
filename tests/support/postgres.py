"""A Postgres server of the tests' own, in a folder that vanishes, or the one line that says why there is none."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

__all__ = ["Server", "missing", "server"]

_PLACES = ["/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin"]
# Everybody comes in by the socket, but for one who needs a password.
_DOOR = "local all locked scram-sha-256\nlocal all all trust\n"


def _binaries() -> Path | None:
    """The folder of initdb and pg_ctl: on the path, or where packages put them."""
    found = shutil.which("pg_ctl")
    near = [Path(found).resolve().parent] if found else []
    far = [p for place in _PLACES for p in sorted(Path("/").glob(place.lstrip("/")), reverse=True)]
    return next((p for p in near + far if (p / "initdb").exists() and (p / "pg_ctl").exists()), None)


def _user() -> str | None:
    """Whom the server runs as where the tests run as root, which it refuses."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in names), None)


def missing() -> str | None:
    """Why no server can be started, or None."""
    lacking = [m for m in ("adbc_driver_postgresql", "adbc_driver_manager", "pyarrow") if find_spec(m) is None]
    if lacking:
        return f"{', '.join(lacking)} not installed (the extra 'postgres')"
    if sys.platform == "win32" or _binaries() is None:
        return "no Postgres server here: initdb and pg_ctl are in none of the usual places"
    return None if os.geteuid() != 0 or _user() else "a Postgres server refuses root, and there is no other user"


class Server:
    """A running server: `address` names a table of it, `run` runs statements, as its superuser unless told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._own: Any = None

    def uri(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@/{quote(database, safe='')}?host={self.folder}"

    def address(self, table: str, **of: str) -> str:
        return f"{self.uri(**of)}&table={quote(table, safe='')}"

    def run(self, *statements: str, database: str = "postgres", user: str = "postgres") -> list[dict[str, object]]:
        """Each by itself, at once durable; the rows of the last. No statement finds what an earlier call has set."""
        import adbc_driver_postgresql.dbapi as driver

        if (database, user) != ("postgres", "postgres"):
            with driver.connect(self.uri(database, user), autocommit=True) as connection:
                return _said(connection, statements)
        if self._own is None:  # a connection takes twenty times as long as a statement
            self._own = driver.connect(self.uri(), autocommit=True)
        try:
            return _said(self._own, statements)
        finally:
            _said(self._own, ("DISCARD ALL",))

    def connections(self) -> int:
        """Those of sfumato that are open, and stay: a server learns of a closed one a while later."""
        told = "SELECT count(*) AS n FROM pg_stat_activity WHERE application_name = 'sfumato'"
        end = time.monotonic() + 30
        while (found := int(str(self.run(told)[0]["n"]))) and time.monotonic() < end:
            time.sleep(0.05)
        return found

    def close(self) -> None:
        """Close the connection that `run` keeps."""
        if self._own is not None:
            self._own.close()


def _said(connection: Any, statements: Sequence[str]) -> list[dict[str, object]]:
    """The rows of the last statement."""
    rows: list[dict[str, object]] = []
    for statement in statements:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            rows = [] if cursor.description is None else cursor.fetch_arrow_table().to_pylist()
    return rows


@contextmanager
def server(encoding: str = "UTF8") -> Generator[Server]:
    """A server that listens on a socket in a folder of its own."""
    binaries, user = _binaries(), _user()
    assert binaries is not None
    # not below the folders of pytest, which nobody else may enter
    folder = Path(tempfile.mkdtemp(prefix="sfumato-pg-"))
    if user is not None:
        shutil.chown(folder, user)

    def call(*command: str) -> None:
        group = None if user is None else pwd.getpwnam(user).pw_gid
        extra = [] if user is None else None
        done = subprocess.run(
            command, user=user, group=group, extra_groups=extra, cwd=folder, capture_output=True, timeout=120
        )
        assert done.returncode == 0, (done.stdout, done.stderr)

    data = folder / "data"
    options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off -c log_min_messages=fatal"
    try:
        call(f"{binaries}/initdb", "-D", str(data), "-U", "postgres", "-A", "trust", "-N", "-E", encoding, "--locale=C")
        (data / "pg_hba.conf").write_text(_DOOR)
        # output to a file: a pipe that the server inherits would never end
        call(f"{binaries}/pg_ctl", "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
        running = Server(folder)
        try:
            yield running
        finally:
            running.close()
            call(f"{binaries}/pg_ctl", "-D", str(data), "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
