"""`sf.load`: anything that was stored, as it was."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

from sfumato._util.documents import read_document
from sfumato.curator.streams.stored import is_stream
from sfumato.errors import InvalidInput
from sfumato.interactive.key_plans import HistogramPlan, SparsePlan
from sfumato.interactive.opening import keeps_session, resume_session
from sfumato.interactive.plan import SessionPlan
from sfumato.interactive.streams import resume_stored
from sfumato.local.collecting import LocalRelease
from sfumato.local.plan import LocalPlan
from sfumato.plans.iterative import IterativePlan
from sfumato.plans.keys import KeyPlan
from sfumato.plans.labels import LabelPlan
from sfumato.plans.plan import Plan
from sfumato.plans.profiles import ProfilePlan
from sfumato.plans.streams import StreamPlan
from sfumato.privacy.ledger import Ledger
from sfumato.privacy.ledger.ledger import FORMAT
from sfumato.privacy.unit import is_file_of_kind
from sfumato.releases.files import load_release
from sfumato.releases.profiles import PROFILE, Profile, load_profile
from sfumato.releases.released import as_ledger
from sfumato.releases.sketches import SketchRelease
from sfumato.releases.streams import StreamRelease

T = TypeVar("T")

DOCUMENTS = (
    Plan,
    IterativePlan,
    LabelPlan,
    ProfilePlan,
    Profile,
    StreamPlan,
    StreamRelease,
    KeyPlan,
    LocalPlan,
    SessionPlan,
    HistogramPlan,
    SparsePlan,
    SketchRelease,
    LocalRelease,
)
"""What one file holds; a release of tables is a folder, sessions and ledgers are databases."""


def load(
    path: str | os.PathLike[str],
    *,
    ledger: str | os.PathLike[str] | Ledger | None = None,
    source: Any = None,
    anchor: str | None = None,
) -> Any:
    """Read anything that was stored: a plan, a release, a ledger, or a session, which goes on.

    Args:
        path: The file; of a release of tables, or of a description, its folder.
        ledger: For a session or a stream, the ledger that paid for it: a file cannot be believed about who paid.
        source: For a session, its table; by default the path that it was opened on.
        anchor: For a session or a stream, its anchor of an earlier moment: a file that was put back to a state before
            it is refused.

    Returns:
        The plan, release, ledger, session or stream.

    Raises:
        InvalidInput: Nothing that sfumato wrote is there, it was changed since, or an argument does not apply.
        LedgerError: The ledger does not fit.
        LedgerCorrupted: The ledger or the session's file was changed or put back.
        SourceError: The table cannot be loaded, or is not the one of the session.

    >>> found = sf.plan(sf.identity(sf.Domain({"age": 4})), sf.pure(1), neighbours="add-remove")
    >>> found.save("ages.plan")
    >>> sf.load("ages.plan").fingerprint == found.fingerprint
    True
    """
    try:
        place = Path(path)
        folder, there = place.is_dir(), place.exists()
    except (OSError, TypeError, ValueError) as error:
        raise InvalidInput(f"{path!r} is no path: {error}") from error
    if not there:
        raise InvalidInput(f"nothing is at {place}")
    # databases are told by SQLite alone: to open and close one otherwise gives up the locks of this process
    if not folder and keeps_session(place):
        return resume_session(place, ledger, source, anchor=anchor)
    if not folder and is_stream(place):
        if source is not None:
            raise InvalidInput(f"{place} keeps a stream, which takes its tables by append; leave source out")
        return resume_stored(place, as_ledger(ledger), anchor)
    given = [name for name, value in (("ledger", ledger), ("source", source), ("anchor", anchor)) if value is not None]
    if given:
        raise InvalidInput(f"{', '.join(given)} belong to a session, and {place} holds none; leave them out")
    if folder:
        return load_profile(place) if (place / PROFILE).exists() else load_release(place)
    return Ledger(place) if is_file_of_kind(place, FORMAT) else read_document(place, DOCUMENTS)


def read_stored(path: str | os.PathLike[str], *kinds: type[T]) -> T:
    """What was stored at a path, if it is of one of these kinds. Raises InvalidInput, and as `load`."""
    found = load(path)
    if not isinstance(found, kinds):
        wanted = " or ".join(_CALLED.get(kind.__name__, f"a {kind.__name__}") for kind in kinds)
        name = type(found).__name__
        raise InvalidInput(f"{path} holds {_CALLED.get(name, f'a {name}')}; asked for is {wanted}{_NEXT.get(name, '')}")
    return found


_CALLED = {
    "Plan": "a plan for tables",
    "IterativePlan": "a plan for tables in several looks",
    "LabelPlan": "a plan for tables over labels that are to be found",
    "ProfilePlan": "a plan to describe a table",
    "Profile": "a description of a table",
    "StreamPlan": "a plan for a stream",
    "StreamRelease": "what a stream published",
    "KeyPlan": "a plan for keys",
    "LocalPlan": "a plan for reports",
    "SessionPlan": "a plan for a session",
    "HistogramPlan": "a plan for a session over keys",
    "SparsePlan": "a plan for a session over keys",
    "SketchRelease": "a sketch of keys",
    "LocalRelease": "a release of reports",
    "Release": "a release of tables",
    "ModelRelease": "a release of tables",
    "Ledger": "a ledger",
}
_NEXT = {
    "KeyPlan": ": it is measured first, by sfumato keys sketch or sf.release",
    "SketchRelease": ": it is asked by sfumato keys ask or sf.load(...).ask",
    "Release": ": it is asked by sfumato ask or sf.load(...).ask",
    "ModelRelease": ": it is asked by sfumato ask or sf.load(...).ask",
    "ProfilePlan": ": it is carried out by sf.release",
    "Profile": ": it is read by sfumato show",
    "StreamRelease": ": it is read by sfumato stream show",
    "Ledger": ": it is read by sfumato ledger status",
}
