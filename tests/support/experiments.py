"""Experiments of a harness, each in a process of its own, so that forking is safe there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["carry_out", "experiment_of"]


def experiment_of(harness: Path, name: str, **arguments: object) -> dict[str, Any]:
    """Figures of one experiment of a harness; a hang is a failure."""
    command = [sys.executable, str(harness), name, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def carry_out(experiments: Mapping[str, Callable[..., object]]) -> None:
    """What a harness does as a script: the experiment that is named, with its arguments, in a folder that goes."""
    name, arguments = sys.argv[1], json.loads(sys.argv[2])
    # A kill is no power cut: what was written survives it, on a disk or in memory, and memory is quicker.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        sys.stdout.write(json.dumps(experiments[name](Path(folder), **arguments)))
