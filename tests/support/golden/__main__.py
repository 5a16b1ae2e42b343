"""Write the golden file anew, after a change that is meant: `python -m support.golden [--only NAME] [PYTHON ...]`.

In tests/. With `--only` the plans whose names hold that text, such as "tree", and the others as they stand: seconds.

Every plan is made on the kernels that OpenBLAS has for this processor, without the vector instructions that numpy would
use, and by the interpreters that are named (other versions of numpy and scipy). What all of these agree on is demanded
everywhere; what they do not is a search in floating-point numbers, and is demanded only where the file was written.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from support.golden.cases import CASES
from support.golden.file import FILE, compiled, entry, read, where
from support.golden.said import tell

_KERNELS = ("Prescott", "Haswell")
_WITHOUT = "AVX2 FMA3 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR X86_V3 X86_V4"
_AT_ONCE = 2


def _made(environment: dict[str, str], python: str, only: str) -> dict[str, Any]:
    call = [python, "-W", "ignore", "-m", "support.golden", "--tell", only]
    # one thread, as `make test` has it: two add in another order
    done = subprocess.run(
        call, env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **environment}, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def main(arguments: list[str]) -> None:
    """Tell some plans as they are made here, or write the file from what all ways of making them say."""
    if arguments[:1] == ["--tell"]:
        json.dump({name: tell(make()) for name, make in CASES.items() if arguments[1] in name}, sys.stdout)
        return
    only, arguments = (arguments[1], arguments[2:]) if arguments[:1] == ["--only"] else ("", arguments)
    before = read() if only else {"where": where(), "plans": {}}
    ways: list[tuple[dict[str, str], str]] = [({}, sys.executable)]
    ways += [({"OPENBLAS_CORETYPE": kernel}, sys.executable) for kernel in _KERNELS]
    ways += [({"NPY_DISABLE_CPU_FEATURES": _WITHOUT}, sys.executable)]
    ways += [({}, python) for python in arguments]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        here, *others = pool.map(lambda way: _made(*way, only), ways)
    made = {name: entry(told, [other[name] for other in others]) for name, told in here.items()}
    for kept in made.values():
        # what a search found hangs on the place: one that is not the file's stands with the plan
        kept |= {"where": where()} if "searched" in kept and before["where"] != where() else {}
    FILE.write_text(
        compiled(before["where"], {name: made.get(name, before["plans"].get(name)) for name in CASES}), encoding="utf-8"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
