"""A Spark of the tests' own on this machine, small, or the one line that says why there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

__all__ = ["SETTINGS", "Running", "missing", "spark"]

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # compiling for long runs costs more than these jobs
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    # what an executor that is dead had kept is asked of it three times, five seconds apart
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "200ms",
}


def missing() -> str | None:
    """Why no Spark can be started, or None."""
    if find_spec("pyspark") is None:
        return "pyspark not installed (the extra 'spark')"
    java = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{java}/bin" if java else None)
    return None if found else "no Java here: Spark runs on a headless JRE of version 17 or 21"


class Running:
    """A session, and the file to which its Java writes whatever it says."""

    def __init__(self, session: Any, log: Path, folder: Path) -> None:
        self.session, self.log, self.folder = session, log, folder

    def frame(self, sql: str) -> Any:
        """What a query gives."""
        return self.session.sql(sql)

    def view(self, name: str, sql: str) -> str:
        """The address of a view of a query."""
        self.frame(sql).createOrReplaceTempView(name)
        return f"spark://?table={name}"


@contextmanager
def spark(master: str = "local[2]") -> Generator[Running]:
    """A session, ended with its Java, and the files that it wrote."""
    folder = Path(tempfile.mkdtemp(prefix="sfumato-spark-"))
    log = folder / "log"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    paths = [str(Path(__file__).parents[2] / "src"), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in paths if p)
    with warnings.catch_warnings(), log.open("wb") as said:
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master(master).config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        for key, value in SETTINGS.items():
            builder = builder.config(key, value)
        # Java keeps what is its standard error when it starts
        own = [os.dup(1), os.dup(2)]
        try:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            session = builder.getOrCreate()
        finally:
            for number, kept in zip((1, 2), own, strict=True):
                os.dup2(kept, number)
                os.close(kept)
    gateway: subprocess.Popen[bytes] = session.sparkContext._gateway.proc
    try:
        yield Running(session, log, folder)
    finally:
        session.stop()
        gateway.stdin.close()  # type: ignore[union-attr]
        try:
            gateway.wait(20)
        except subprocess.TimeoutExpired:
            gateway.kill()
        shutil.rmtree(folder, ignore_errors=True)
