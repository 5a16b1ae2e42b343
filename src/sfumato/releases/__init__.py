"""What comes out: answers, standard errors, provenance."""

from sfumato.releases.answers import Answer
from sfumato.releases.comparing import Comparison
from sfumato.releases.files import load_release, save_release
from sfumato.releases.modelled import ModelRelease, Synthetic
from sfumato.releases.release import Release, combine, difference
from sfumato.releases.released import Provenance
from sfumato.releases.tables import Batch, Intervals, Table

__all__ = [
    "Answer",
    "Batch",
    "Comparison",
    "Intervals",
    "ModelRelease",
    "Provenance",
    "Release",
    "Synthetic",
    "Table",
    "combine",
    "difference",
    "load_release",
    "save_release",
]
