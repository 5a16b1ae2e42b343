"""All tables of at most three of many attributes, from rows to streamed cells: `python bench/large.py [d] [folder]`.

10,000 random rows, ten cells an attribute, exact noise. With a folder the release is stored there.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import sfumato as sf

ROWS = 10_000


def main(attributes: int, folder: str | None) -> None:
    domain = sf.Domain({f"a{i}": sf.Integers(0, 9, outside="clamp", missing="drop") for i in range(attributes)})
    generator = np.random.default_rng(1)
    table = pa.table({n: generator.integers(0, 10, ROWS) for n in domain.names})
    clock = [time.process_time()]

    def lap() -> float:
        clock.append(time.process_time())
        return clock[-1] - clock[-2]

    plan = sf.plan(sf.marginals(domain, upto=3), sf.gdp(1), neighbours="add-remove", objective="cells")
    print(f"plan {lap():.2f} CPU-s: rmse {plan.rmse:.4f}, proved bound {plan.lower_bound:.4f}")
    out = None if folder is None else Path(tempfile.mkdtemp(dir=folder)) / "release"
    release = sf.release(plan, table, ledger=None, out=out)
    print(f"count, measure{'' if out is None else ', store'} {lap():.2f} CPU-s")
    cells = sum(batch.values.size for batch in release.batches())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"reconstruct and stream {cells:,} cells {lap():.2f} CPU-s")
    print(f"all {clock[-1] - clock[0]:.2f} CPU-s, peak {peak:.0f} MB")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100, sys.argv[2] if len(sys.argv) > 2 else None)
