"""Builds the sdist and, from it, the wheel of what is committed into dist/, and runs the tests against that wheel.

python scripts/wheel.py                       # the whole suite
python scripts/wheel.py tests/unit -k codec   # arguments are pytest's

Nothing of the working tree is used: a copy of HEAD lies in a temporary folder, the build has an environment of its own,
and so have the tests, with the wheel and all extras that they look for, in the versions of constraints.txt. Needs git
and an index.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
WHOLE = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]  # as `make test`: the tests of a file together
EXTRAS = "test,dev,docs,spark"  # what the suite looks for: the tools of lint, the site's, Spark's
WHERE = "import pathlib, sfumato; print(pathlib.Path(sfumato.__file__).parent, sfumato.__version__)"


def run(*command: str | Path, cwd: Path) -> str:
    """What a command prints; raises CalledProcessError where it fails. Nothing of ours is on its path."""
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(
        [*map(str, command)], cwd=cwd, env=clean, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def environment(folder: Path, *packages: str) -> Path:
    """The Python of a fresh environment with some packages."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    quiet = ("--quiet", "--disable-pip-version-check", "--constraint", str(ROOT / "constraints.txt"))
    run(python, "-m", "pip", "install", *quiet, *packages, cwd=folder)
    return python


def contents(wheel: Path) -> None:
    """Every file of the package that is committed is in the wheel, and nothing but these and its own facts."""
    tracked = run("git", "ls-files", "src/sfumato", cwd=ROOT).splitlines()
    expected = {name.removeprefix("src/") for name in tracked}
    with zipfile.ZipFile(wheel) as held:
        found = {n for n in held.namelist() if ".dist-info/" not in n}
    if found != expected:
        raise SystemExit(f"the wheel differs from src/sfumato in {', '.join(sorted(found ^ expected))}")


def main() -> int:
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        source = place / "source"
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(source, filter="data")
        run(environment(place / "build", "build"), "-m", "build", "--outdir", place / "dist", source, cwd=place)
        (wheel,) = (place / "dist").glob("*.whl")
        contents(wheel)
        shutil.copytree(place / "dist", ROOT / "dist", dirs_exist_ok=True)
        python = environment(place / "test", f"{wheel}[{EXTRAS}]")
        told = run(python, "-c", WHERE, cwd=source)
        if not Path(told.split()[0]).is_relative_to(place / "test"):
            raise SystemExit(f"the tests would not see the wheel: {told}")
        print(f"{wheel.name}: {told}", flush=True)
        clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        return subprocess.run(
            [python, "-m", "pytest", "-q", *(sys.argv[1:] or WHOLE)], cwd=source, env=clean
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
