"""Settings for the whole suite."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

# before numpy is imported: the default two-thread BLAS is many times slower on factorizations
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# each of the hundreds of programs that tests start would compile the library's 260 files anew, which takes a second
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import pytest
from hypothesis import HealthCheck, settings

from support import browser as of_browser
from support import node as of_node
from support import postgres as of_postgres
from support import spark as of_spark
from support.browser import Browser
from support.patching import armed
from support.postgres import Server
from support.seeded import RANDOM, Seeded, seed_noise
from support.spark import Running

# no test asserts a speed, on a busy machine least of all
settings.register_profile(
    "sfumato", deadline=None, derandomize=not RANDOM, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("sfumato")


def pytest_configure() -> None:
    """Let no patch do nothing (see support/patching.py); have Ctrl-C heard where the suite runs in the background."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    pytest.MonkeyPatch.setattr = armed(pytest.MonkeyPatch.setattr)  # type: ignore[method-assign]

    if not RANDOM:
        Noise.seeded = seed_noise()


class Noise:
    """Where the tests' noise comes from: the operating system (None), or seeds."""

    seeded: Seeded | None = None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """The half million objects of 13,000 tests live to the end: the collector of garbage need not look at them."""
    gc.disable()
    found = yield
    gc.freeze()
    gc.enable()
    return found


def pytest_unconfigure() -> None:
    """What was left out may go when the process does; libraries of compiled code would say that it leaks."""
    gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """What a file draws when it is imported comes from its own name."""
    if Noise.seeded:
        Noise.seeded.begin(collector.nodeid)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """What a test draws, with the fixtures made for it, comes from its own name (see support/seeded.py)."""
    if Noise.seeded:
        Noise.seeded.begin(item.nodeid)
    return (yield)


# Files that take longest, first: what a process begins last, the other one waits for. In order of seconds measured.
LONG = (
    "e2e/test_docs.py",
    "laws/test_merged.py",
    "unit/curator/test_spark.py",
    "e2e/test_spark.py",
    "e2e/test_check_release.py",
    "statistical/test_stream_stress.py",
    "e2e/test_studio.py",
    "unit/measures/test_knots.py",
    "laws/test_stability.py",
    "e2e/test_european.py",
    "unit/curator/test_postgres.py",
    "laws/test_golden.py",
    "e2e/test_neighbours.py",
    "unit/measures/test_regression.py",
    "statistical/test_ledger_stress.py",
    "unit/mechanisms/test_adaptive_impossible.py",
    "unit/measures/test_measures.py",
    "statistical/test_sessions.py",
    "laws/test_descent.py",
    "unit/mechanisms/test_objective.py",
    "statistical/test_conversation_stress.py",
    "e2e/test_kills.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have the longest files begin first, one a process; a single process takes files in the order of its command."""
    if not hasattr(config, "workerinput"):
        return
    place = {Path(__file__).parent / name: i for i, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path, len(LONG)))


def _need(lacking: str | None) -> None:
    """Skip what lacks its engine; CI, which installs them, fails instead."""
    if lacking is not None:
        (pytest.fail if os.environ.get("SFUMATO_TESTS_NEED_ENGINES") else pytest.skip)(lacking)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A Postgres server of this process's tests."""
    _need(of_postgres.missing())
    with of_postgres.server() as running:
        yield running


@pytest.fixture(scope="session")
def spark() -> Iterator[Running]:
    """A Spark of this process's tests."""
    _need(of_spark.missing())
    with of_spark.spark() as running:
        yield running


@pytest.fixture(scope="session")
def java() -> None:
    """What a cluster of a test's own needs."""
    _need(of_spark.missing())


@pytest.fixture(scope="session")
def connect() -> None:
    """What a program that talks to a server of Spark needs besides."""
    _need(None if find_spec("grpc_status") else "grpcio-status is not installed (the extra 'spark')")


@pytest.fixture(scope="session")
def node() -> None:
    """What runs the script of a published site."""
    _need(of_node.missing())


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """A headless browser of this process's tests."""
    _need(of_browser.missing())
    with of_browser.browser() as running:
        yield running


@pytest.fixture(scope="module")
def browser(chromium: Browser) -> Browser:
    """The browser of this process with one empty window, whatever the file of tests before it left open."""
    chromium.forget()
    return chromium
