"""One offline page from a plan or a release."""

from sfumato.report.page import render, write_report

__all__ = ["render", "write_report"]
