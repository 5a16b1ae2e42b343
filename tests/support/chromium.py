"""A headless Chromium, driven through a pipe by its own protocol: pages as a reader sees them."""

from __future__ import annotations

import base64
import functools
import http.server
import itertools
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("google-chrome")


class Browser:
    """One page of one browser."""

    def __init__(self, profile: Path) -> None:
        down, up = os.pipe(), os.pipe()  # its 3 and 4: what it reads, and what it writes
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]

        def placed() -> None:
            # above both numbers first: either pipe may already be one of them
            ours = os.dup2(down[0], 103), os.dup2(up[1], 104)
            os.dup2(ours[0], 3)
            os.dup2(ours[1], 4)

        self._process = subprocess.Popen(
            [PROGRAM or "chromium", *flags, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=placed,
        )
        os.close(down[0])
        os.close(up[1])
        self._in, self._out, self._rest = down[1], up[0], b""
        self._numbers = itertools.count(1)
        self.events: list[dict[str, Any]] = []
        self._session = None
        pages = self.call("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in pages if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._in, json.dumps(message).encode() + b"\0")
        while True:
            found = self._read()
            if found.get("id") == number:
                assert "error" not in found, found
                return found["result"]
            self.events.append(found)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._out, 1 << 20)
            assert more, "the browser ended"
            self._rest += more
        text, self._rest = self._rest.split(b"\0", 1)
        return json.loads(text)

    def open(self, url: str, width: int = 1280, height: int = 900, *, dark: bool = False, media: str = "") -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, expression: str) -> Any:
        """The value of an expression, awaited."""
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, condition: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < end, condition
            time.sleep(0.05)

    def picture(self, path: Path) -> None:
        """The whole page."""
        height = self.run("document.documentElement.scrollHeight")
        width = self.run("innerWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": min(height, 16000), "scale": 1}
        found = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def troubles(self) -> list[Any]:
        """What the console and the network complained of."""
        bad = ("Log.entryAdded", "Runtime.exceptionThrown", "Network.loadingFailed")
        return [e for e in self.events if e.get("method") in bad]

    def requests(self) -> list[str]:
        sent = (e for e in self.events if e.get("method") == "Network.requestWillBeSent")
        return [e["params"]["request"]["url"] for e in sent]

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        os.close(self._in)
        os.close(self._out)


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    found = Browser(profile)
    try:
        yield found
    finally:
        found.close()


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
