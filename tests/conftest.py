"""Settings for the whole suite."""

from __future__ import annotations

import os
from collections.abc import Iterator

# before numpy is imported: the default two-thread BLAS is many times slower on factorizations
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

from support.patching import armed
from support.postgres import Server, missing, server

# no test asserts a speed, on a busy machine least of all
settings.register_profile("sfumato", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("sfumato")


def pytest_configure() -> None:
    """Let no patch do nothing: see support/patching.py."""
    pytest.MonkeyPatch.setattr = armed(pytest.MonkeyPatch.setattr)  # type: ignore[method-assign]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A Postgres server of this process's tests."""
    why = missing()
    if why is not None:
        pytest.skip(why)
    with server() as running:
        yield running
