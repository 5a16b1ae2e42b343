"""What is imported when: wings when they are first touched, classes of stored values when a file names them."""

from __future__ import annotations

import importlib
import json
import pkgutil
import subprocess
import sys

import sfumato
from sfumato._util import codec
from sfumato.stored import ELSEWHERE

_PLAIN = """
import json, sys
import sfumato
from sfumato._util import codec
print(json.dumps([sorted(codec._CLASSES), sorted(m for m in sys.modules if m.startswith("sfumato."))]))
"""


def test_every_stored_class_is_found_and_wings_wait() -> None:
    """Mutants: a storable class in no list, whose file a fresh process cannot read; a wing that is always imported."""
    for module in pkgutil.walk_packages(sfumato.__path__, "sfumato."):
        importlib.import_module(module.name)
    own = {name: cls.__module__ for name, cls in codec._CLASSES.items() if cls.__module__ in sys.modules}
    said = subprocess.run([sys.executable, "-c", _PLAIN], capture_output=True, text=True, check=True).stdout
    first, modules = json.loads(said)
    assert {name: place for name, place in own.items() if name not in first} == ELSEWHERE
    rooms = {name.split(".")[1] for name in modules}
    assert not rooms & {
        "mechanisms",
        "planner",
        "interactive",
        "local",
        "releases",
        "curator",
        "strategies",
        "present",
        "postprocess",
    }


def test_every_public_name_is_there() -> None:
    """Mutant: a name on the page without its line among those that are imported late."""
    for name in sfumato.__all__:
        assert getattr(sfumato, name) is not None
    assert set(sfumato.__all__) <= set(dir(sfumato))
    assert set(sfumato._LATE) <= set(sfumato.__all__)
