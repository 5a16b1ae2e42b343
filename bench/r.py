"""The demo's release read by R: answers, and sums of cells with their errors, beside Python's.

python bench/r.py FOLDER, the folder of a release of the demo (sfumato demo). R must be there.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from sfumato.publishing import write_formats
from sfumato.releases import load_release

SCRIPT = """
library(sfumato)
given <- commandArgs(trailingOnly = TRUE)
began <- proc.time()[["elapsed"]]
release <- read_release(given[1])
all <- answers(release)
sums <- do.call(rbind, lapply(release$tables, function(one) {
  if (is.null(one$covariances)) return(NULL)
  weights <- seq_len(nrow(release_table(release, one$attributes))) %% 3 - 1
  cbind(data.frame(table = paste(one$attributes, collapse = " ")), combine(release, one$attributes, weights))
}))
seconds <- proc.time()[["elapsed"]] - began
full <- function(frame) {
  numbers <- vapply(frame, is.numeric, NA)
  frame[numbers] <- lapply(frame[numbers], sprintf, fmt = "%.17g")
  frame
}
write.csv(full(all), file.path(given[2], "all.csv"), row.names = FALSE)
write.csv(full(sums), file.path(given[2], "sums.csv"), row.names = FALSE)
cat(seconds)
"""


def main() -> None:
    release = load_release(sys.argv[1]).with_errors()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        files = write_formats(release, place / "files", ["plain"])
        size = sum(p.stat().st_size for p in files.rglob("*") if p.is_file())
        (place / "library").mkdir()
        (place / "script.R").write_text(SCRIPT)
        source = Path(__file__).parents[1] / "r"
        install = ["R", "CMD", "INSTALL", "--no-docs", f"--library={place / 'library'}", str(source)]
        subprocess.run(install, check=True, capture_output=True)
        said = subprocess.run(
            ["Rscript", str(place / "script.R"), str(files), folder],
            check=True,
            capture_output=True,
            text=True,
            env=os.environ | {"R_LIBS": str(place / "library")},
        ).stdout
        with (place / "all.csv").open(newline="") as handle:
            rows = list(csv.DictReader(handle))
        with (place / "sums.csv").open(newline="") as handle:
            sums = list(csv.DictReader(handle))
    ours = {".".join(t.attributes): t for t in release.tables()}
    cells, off = 0, 0.0
    for name in dict.fromkeys(row["table"] for row in rows):
        theirs = np.array([float(row["answer"]) for row in rows if row["table"] == name])
        if name in ours:
            cells += len(theirs)
            off = max(off, float(np.abs(theirs - ours[name].values.reshape(-1)).max()))
    worst = answers = 0.0
    for row in sums:
        names = tuple(row["table"].split())
        weights = np.arange(1, release.table(*names).values.size + 1) % 3 - 1
        error = np.sqrt(weights @ release.covariance(names) @ weights)
        worst = max(worst, abs(float(row["standard_error"]) / error - 1))
        answer = float(weights @ release.table(*names).values.reshape(-1))
        answers = max(answers, abs(float(row["answer"]) - answer) / max(1.0, abs(answer)))
    print(
        f"{cells:,} cells differ by at most {off:.3g}; {len(sums)} sums by {answers:.3g}, their errors by {worst:.3g}"
    )
    print(f"R took {float(said):.1f} s for {size / 1e6:.1f} MB of plain files")


if __name__ == "__main__":
    main()
