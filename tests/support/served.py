"""A plain file server of a folder, as any web server would host it."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """A plain file server of a folder: its address, and the files that were asked for with their sizes."""
    asked: list[tuple[str, int]] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def log_request(self, code: Any = "-", size: Any = "-") -> None:
            place = Path(self.translate_path(self.path))
            asked.append((self.path, place.stat().st_size if place.is_file() else 0))

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
