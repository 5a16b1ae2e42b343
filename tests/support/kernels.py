"""Which kernels OpenBLAS uses; as a script, the name that OPENBLAS_CORETYPE has for them, or nothing."""

from __future__ import annotations

import numpy as np  # noqa: F401  (loaded, so that its library is seen)
import scipy.linalg  # noqa: F401
from threadpoolctl import threadpool_info

SAME = {
    "Katmai": "Prescott",
    "Core2": "Prescott",
    "Zen": "Haswell",
    "Cooperlake": "SkylakeX",
    "Sapphirerapids": "SkylakeX",
}
"""Names of kernels that stand for others here, by their instructions."""


def kernels() -> set[str]:
    """Of every OpenBLAS that numpy and scipy have loaded; none where they use another library."""
    found = {str(lib.get("architecture")) for lib in threadpool_info() if lib["internal_api"] == "openblas"}
    return {SAME.get(name, name) for name in found}


if __name__ == "__main__":
    print(*kernels())  # noqa: T201
