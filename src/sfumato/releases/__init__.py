"""What comes out: answers, standard errors, provenance."""

from sfumato.releases.combining import Comparison, combine, difference
from sfumato.releases.core import Answer, Intervals, Provenance, Release, Table
from sfumato.releases.files import load_release, save_release

__all__ = [
    "Answer",
    "Comparison",
    "Intervals",
    "Provenance",
    "Release",
    "Table",
    "combine",
    "difference",
    "load_release",
    "save_release",
]
