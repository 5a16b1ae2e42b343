"""How soon other windows of the studio are answered while 100,000 labels are pasted into one.

The server runs in a process of its own; each window is a client that asks one thing after another over HTTP. The
paste is one change of a spec. From its sending to its answer, and for a second after, the other windows ask for a page
without the spec; for a page of the spec, which holds the labels once they are written; and for changes of their own,
which are refused while the paste is saved, and made anew once it is.

    python bench/studio_windows.py [labels]
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import resource
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from sfumato.studio.app import AccessKeys
from sfumato.studio.drafts import text_version
from sfumato.studio.serving import listening_socket, make_server
from sfumato.studio.workspace import Places, Workspace

LABELS = 100_000
AFTER = 1.0  # seconds that the other windows go on once the paste is answered
SPEC = """
[data]
source = "people.csv"
[schema_defaults]
outside = "other"
missing = "other"
[schema.age]
type = "integer"
min = 0
max = 9
[schema.town]
type = "category"
values = ["a", "b"]
[privacy]
rho = 0.5
neighbours = "add-remove"
[[queries]]
marginals = 1
"""


def serve(place: str, told: Any) -> None:
    """The server of a folder, until it is told to end; what it took of the processor comes back."""
    with listening_socket() as found:
        keys = AccessKeys(found.getsockname()[1])
        folder = Path(place)
        desk = Workspace(Places(folder / "spec.toml", folder / "budget.db", folder / "releases", folder / "sessions"))
        running = make_server(desk, keys)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [found]})
        thread.start()
        told.send((keys.port, keys.key))
        while told.recv() == "used":
            told.send(resource.getrusage(resource.RUSAGE_SELF).ru_utime)
        running.should_exit = True
        thread.join()


class Window:
    """One client: what it asked, and how long each answer took."""

    def __init__(self, port: int, key: str) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        self.headers = {
            "authorization": f"Bearer {key}",
            "origin": f"http://127.0.0.1:{port}",
            "content-type": "application/json",
        }

    def post(self, name: str, value: Any) -> tuple[int, Any, float]:
        """A call: its status, what came back, and its seconds."""
        start = time.perf_counter()
        self.connection.request("POST", f"/api/{name}", json.dumps(value).encode(), self.headers)
        answer = self.connection.getresponse()
        body = answer.read()
        return answer.status, json.loads(body), time.perf_counter() - start


def main(labels: int) -> None:
    asked: dict[str, list[float]] = defaultdict(list)
    ended = threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "spec.toml"
        spec.write_text(SPEC, encoding="utf-8")
        here, there = multiprocessing.Pipe()
        process = multiprocessing.Process(target=serve, args=(folder, there))
        process.start()
        port, key = here.recv()

        def ask(name: str, value: Any) -> None:
            window = Window(port, key)
            while not ended.is_set():
                asked[f"{name} {value.get('step', '')}"].append(window.post(name, value)[2])
                time.sleep(0.05)

        def edit() -> None:
            window, periods = Window(port, key), 1
            while not ended.is_set():
                version = text_version(spec.read_text(encoding="utf-8"))
                change = [{"place": ["privacy", "rows_per_person"], "value": periods}]
                status, _, seconds = window.post("change", {"version": version, "changes": change})
                asked["change, made" if status == 200 else "change, refused"].append(seconds)
                time.sleep(0.05)

        for step in ("audit", "table", "pay"):
            Window(port, key).post("page", {"step": step, "query": {}})
        paste = {
            "version": text_version(spec.read_text(encoding="utf-8")),
            "changes": [{"place": ["schema", "town", "values"], "value": [f"label number {i}" for i in range(labels)]}],
        }
        here.send("used")
        before = here.recv()
        work = [(ask, "page", {"step": "audit", "query": {}}), (ask, "page", {"step": "table", "query": {}}), (edit,)]
        threads = [threading.Thread(target=w[0], args=w[1:]) for w in work]
        first = Window(port, key)
        done: list[Any] = []
        pasting = threading.Thread(target=lambda: done.append(first.post("change", paste)))
        pasting.start()
        time.sleep(0.05)  # the change of the paste is there first
        for thread in threads:
            thread.start()
        pasting.join()
        time.sleep(AFTER)
        ended.set()
        for thread in threads:
            thread.join()
        here.send("used")
        used = here.recv() - before
        here.send("end")
        process.join()
    status, _, seconds = done[0]
    print(f"paste of {labels:,} labels: status {status}, {seconds:.2f} s; the server took {used:.2f} CPU-s in all")
    for what, times in sorted(asked.items()):
        print(f"{what:16} {len(times):4} answers, median {median(times):.3f} s, worst {max(times):.3f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else LABELS)
