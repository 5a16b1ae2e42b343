"""Experiments of a harness, each in a process of its own, so that forking is safe there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["experiment_of"]


def experiment_of(harness: Path, name: str, **arguments: object) -> dict[str, Any]:
    """Figures of one experiment of a harness; a hang is a failure."""
    command = [sys.executable, str(harness), name, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
