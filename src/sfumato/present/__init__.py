"""One offline page from a plan or a release."""

from __future__ import annotations

from sfumato.present.page import render, write_report

__all__ = ["render", "write_report"]
