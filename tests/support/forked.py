"""The command line for shells: each command a fork of one process that has imported everything.

Run as `python forked.py SOCKET` by `served`: a process of one thread, so that forking is safe. What a command prints,
reads and leaves, and its exit code, are those of a process of its own, which takes a second to import what it needs;
that it does so by itself is seen where programs are started (test_cli.py).
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["CLIENT", "served"]

CLIENT = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({path!r})
    told = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(asked, [b"."], [0, 1, 2])
    asked.sendall(told)
    asked.shutdown(socket.SHUT_WR)
    code = asked.recv(16)
sys.exit(int(code) if code else "the command was killed")
"""
"""What a shell runs for each command: it hands over its files and waits for the exit code."""
_BESIDE = ("duckdb", "flint", "pyarrow", "scipy.optimize", "scipy.signal", "scipy.special", "scipy.stats")


@contextmanager
def served(folder: Path) -> Generator[list[str]]:
    """The words by which a shell runs the command line, in forks of a process that ends with the block."""
    path = folder / "s"
    with subprocess.Popen([sys.executable, __file__, str(path)], stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            yield [sys.executable, "-I", "-S", "-c", CLIENT.format(path=str(path))]
        finally:
            server.terminate()


def _serve(path: str) -> None:
    import sfumato

    for module in pkgutil.walk_packages(sfumato.__path__, "sfumato."):
        if not module.name.endswith("__main__"):
            with suppress(ImportError):
                importlib.import_module(module.name)
    for name in _BESIDE:
        with suppress(ImportError):
            importlib.import_module(name)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks: they tell the client themselves
        while True:
            asked, _ = listener.accept()
            with asked:
                _, files, *_ = socket.recv_fds(asked, 1, 3)
                if not os.fork():
                    os._exit(_run(asked, files))
                for file in files:
                    os.close(file)


def _run(asked: socket.socket, files: list[int]) -> int:
    """A command, in its fork; its exit code goes back."""
    from sfumato import cli

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with asked.makefile("rb") as told:
        words, folder, environment = json.load(told)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin, sys.stdout, sys.stderr = (open(n, "r" if n == 0 else "w", closefd=False) for n in range(3))  # noqa: SIM115
    sys.argv = ["sfumato", *words]
    code = 1
    try:
        cli.main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError):
            stream.flush()
    asked.sendall(str(code).encode())
    return code


if __name__ == "__main__":
    _serve(sys.argv[1])
