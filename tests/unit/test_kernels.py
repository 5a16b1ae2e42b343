"""A run under another OPENBLAS_CORETYPE is one on those kernels."""

from __future__ import annotations

import os
import platform

import pytest

from support.kernels import SAME, kernels


def test_the_kernels_are_those_asked_for() -> None:
    """Mutant: the variable misspelt in the Makefile, so that every run is on the same kernels."""
    asked = os.environ.get("OPENBLAS_CORETYPE")
    found = kernels()
    if not asked or not found or platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("no kernels were asked for, or OpenBLAS has none to choose from here")
    assert found == {SAME.get(asked, asked)}
