"""What lies on the desk: one spec file, its plan, a ledger, and the releases and sessions beside them.

Places are fixed when the studio is started; a page names releases and sessions and never a path. What a page changes
goes to the spec file at once, and only if the file is still as that page saw it.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sfumato._util.description import Description
from sfumato._util.documents import write_text_atomically
from sfumato.curator.people.declared import spec_person_source
from sfumato.curator.rows.samples import OtherEncoding, column_names, spec_table_source, undeclared_notation
from sfumato.curator.rows.written import source_of
from sfumato.curator.streams.stored import is_stream
from sfumato.errors import InvalidInput, NameTaken, SfumatoError, SourceError
from sfumato.interactive.opening import keeps_session, session_status
from sfumato.interactive.plan import SessionPlan
from sfumato.interactive.session import status_facts
from sfumato.interactive.streams import stored_release
from sfumato.planner.opening import load
from sfumato.plans.iterative import IterativePlan
from sfumato.plans.labels import LabelPlan
from sfumato.plans.plan import Plan
from sfumato.plans.streams import StreamPlan
from sfumato.privacy.ledger import Ledger
from sfumato.specs import Spec
from sfumato.studio import conversations, drafts
from sfumato.studio.drafts import check_draft
from sfumato.workloads.reading import parse_toml

_KEPT_STATES = 4  # the text that pages show, the one that comes next, and two to go back to; each holds all labels
_KEPT_CHANGES = 50  # that can be taken back; each holds the whole text
_SAVING = 0.2  # seconds that a change waits for another window's: a few keys are saved in less, a long list is not
_KEPT_PLANS = 8  # the last variants of weights that somebody goes back and forth between; each may hold megabytes
_KEPT_RELEASES = 4  # two to compare, and two that were looked at before
_IN_RECORDS = (".json", ".ndjson", ".jsonl")
_NAME = 64  # characters of a release's name, which is a folder's name too
# a place in quotes, blanks and all; or one without
_ODD = re.compile(
    r"(?<=')(?:[A-Za-z]:)?[/\\][^'\n]*(?=')|(?<![\w.:/])(?:[A-Za-z]:)?[/\\](?:[^\s'\"<>/\\]+[/\\])+[^\s'\"<>,;:]*"
)

AnyPlan = Plan | IterativePlan | LabelPlan | StreamPlan | SessionPlan


@dataclass(frozen=True, slots=True)
class Places:
    """Where things are: the spec's file, the ledger's, the folder of releases, and that of sessions and streams.

    What is in the last is as secret as the table, so that it is never the folder that somebody publishes.
    """

    spec: Path
    ledger: Path
    releases: Path
    sessions: Path


def checked_name(name: object) -> str:
    """A release's name that is a folder's name on every system. Raises InvalidInput."""
    text = name if isinstance(name, str) else ""
    fits = 0 < len(text) <= _NAME and text == text.strip() and all(c.isalnum() or c in "._- " for c in text)
    if not fits or not text[0].isalnum() or text[-1] == ".":
        raise InvalidInput(
            f"a name is at most {_NAME} letters, digits, blanks, points, dashes and underscores, and begins with a "
            "letter or digit: such as 2026-11"
        )
    return text


@dataclass(slots=True)
class Workspace:
    """The state behind all pages; any thread may use it."""

    places: Places
    header: tuple[str, ...] | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _writing: threading.Lock = field(default_factory=threading.Lock)
    _undone: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    _states: OrderedDict[str, dict[str, Any]] = field(default_factory=OrderedDict)
    _plans: OrderedDict[str, AnyPlan] = field(default_factory=OrderedDict)
    _alone: OrderedDict[str, dict[str, float | None]] = field(default_factory=OrderedDict)
    _planning: dict[str, threading.Lock] = field(default_factory=dict)
    _releases: OrderedDict[tuple[str, str], Any] = field(default_factory=OrderedDict)

    # -- the spec ------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """The spec file as it is now. Raises InvalidInput where it cannot be read."""
        try:
            return self.places.spec.read_text(encoding="utf-8").replace("\r\n", "\n")
        except (OSError, UnicodeDecodeError):
            raise InvalidInput("the spec file is gone, or is no text; put it back, or start again") from None

    def change(
        self,
        version: object,
        changes: object,
        about: str = "",
        conditions: Sequence[str] = (),
        ready: Callable[[str], object] = lambda _: None,
    ) -> str:
        """The file with changes made to the state that `version` names, written. Raises NameTaken for another.

        Where the change is `about` one place, it is refused, and the file stays, if that place would be wrong then.
        `ready` is called with the new text before it is the file's: until then other windows are answered from the
        old one, and afterwards find done what takes long. Their own changes meanwhile are refused, for those would be
        to a state that is about to go.
        """
        if not self._writing.acquire(timeout=_SAVING):
            raise NameTaken("another window is saving a change of the spec; load this page again in a moment")
        try:
            text = self.seen(version)
            written = drafts.apply_changes(text, changes)
            if about:
                check_draft(written, self.places.spec, about, conditions)
            if written != text:
                ready(written)
                self.seen(version)  # an editor may have written meanwhile
                write_text_atomically(self.places.spec, written)
                self._undone = [*self._undone[1 - _KEPT_CHANGES :], (drafts.text_version(written), text)]
            return written
        finally:
            self._writing.release()

    @property
    def undoable(self) -> bool:
        """Whether the file is as the last change here left it, so that this can be taken back."""
        return bool(self._undone) and self._undone[-1][0] == drafts.text_version(self.text)

    def undo(self, version: object) -> str:
        """The file as it was before the last change that was made here. Raises InvalidInput where there is none.

        What an editor wrote since stays: nothing is taken back then.
        """
        with self._writing:
            self.seen(version)
            if not self.undoable:
                raise InvalidInput("nothing that was changed here can be taken back: an editor wrote since, or nobody")
            _, before = self._undone.pop()
            write_text_atomically(self.places.spec, before)
            return before

    def seen(self, version: object) -> str:
        """The text that a page saw. Raises NameTaken where the file is another by now."""
        text = self.text
        if version != drafts.text_version(text):
            raise NameTaken("the spec was changed meanwhile, in another window or an editor; load this page again")
        return text

    def spec(self, text: str | None = None) -> Spec:
        """What the file, or a variant of it, declares. Raises SpecError."""
        return drafts.parse_spec(self.text if text is None else text, self.places.spec)

    def state(self, text: str, say: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What `say` says of a text of the spec; said once, for as long as the files that it names stay as they are."""
        files = drafts.column_files(drafts.spec_tables(text).get("schema"), self.places.spec.parent)
        return self._recent(self._states, f"{drafts.text_version(text)} {files}", _KEPT_STATES, say)

    def names(self) -> tuple[str, ...]:
        """The names of the table's columns, read anew; no row is looked at. Raises InvalidInput."""
        try:
            tables = drafts.spec_tables(self.text)
        except ValueError:
            raise InvalidInput("the spec is not TOML; mend it in an editor") from None
        table = self._source(tables)
        try:
            self.header = column_names(table)
        except OtherEncoding as error:
            raise InvalidInput(f"{error}, under “How its texts are written”. Nothing else of it was read") from None
        except (SfumatoError, OSError):
            raise InvalidInput(
                "no table can be opened there; the terminal's sfumato init says why. Nothing of it was read"
            ) from None
        return self.header

    def _source(self, tables: dict[str, Any]) -> Any:
        """What the spec says that the table is. Raises InvalidInput where that is not said yet."""
        root, folder = parse_toml(self.text), self.places.spec.parent
        if "people" in tables:
            return spec_person_source(root, folder, root.section("people").text("key"))
        data = tables.get("data")
        source = data.get("source") if isinstance(data, dict) else None
        if not isinstance(source, str) or not source:
            raise InvalidInput("say where the table is; then its columns' names can be read")
        return spec_table_source(root.section("data"), folder)

    def doubt(self) -> str:
        """What the table's beginning gives reason to declare; see `undeclared_notation`."""
        return undeclared_notation(self._source(drafts.spec_tables(self.text)))

    def absent(self, spec: Spec | None = None) -> tuple[str, ...]:
        """Columns that are declared, or say whose a row is, and that the names which were read do not hold.

        Of a spec, of its table's names read anew, where these do not hang on rows: JSON has them in its records.
        """
        header = self.header
        if spec is not None:
            header = None
            place = source_of(spec.source).table
            kind = Path(place).suffix.lower() if isinstance(place, (str, Path)) else ""
            if place is not None and kind not in _IN_RECORDS:
                with contextlib.suppress(SfumatoError, OSError):  # what cannot be opened is told by the payment
                    header = column_names(spec.source)
            wanted = (*spec.domain.grid.read_columns, spec.person)
        else:
            tables = drafts.spec_tables(self.text)
            parts = [tables.get(k) for k in ("schema", "privacy")]
            schema, privacy = (p if isinstance(p, dict) else {} for p in parts)
            read = [(d.get("columns") if isinstance(d, dict) else None) or [n] for n, d in schema.items()]
            wanted = (*(n for names in read if isinstance(names, list) for n in names), privacy.get("person"))
        return tuple(n for n in wanted if isinstance(n, str) and n and header is not None and n not in header)

    # -- plans ---------------------------------------------------------------------------------------

    def plan(self, text: str, what: str = conversations.RELEASE) -> AnyPlan:
        """The plan of a spec's text for what is to be paid; planned once, however many pages ask. No data are read.

        A release or a stream of what the spec asks, or a session over its columns (`talking.WAYS`).
        """
        account = self.ledger() if what == conversations.ONE_BY_ONE else None
        currency = None if account is None else account.currency.value
        key = f"{drafts.text_version(text)} {what} {currency}"
        with self._lock:
            turn = self._planning.setdefault(key, threading.Lock())
        with turn:
            with self._lock:
                if key in self._plans:
                    self._plans.move_to_end(key)
                    return self._plans[key]
            found = conversations.plan_conversation(self.spec(text), what, currency)
            with self._lock:
                self._plans[key] = found
                while len(self._plans) > _KEPT_PLANS:
                    self._plans.popitem(last=False)
                self._planning.pop(key, None)
        return found

    def alone(self, text: str) -> dict[str, float | None]:
        """What is known by now of a spec's tables by themselves; a budget or a column that changed is another spec."""
        key = drafts.text_version(text)
        with self._lock:
            found = self._alone.setdefault(key, {})
            self._alone.move_to_end(key)
            while len(self._alone) > _KEPT_PLANS:
                self._alone.popitem(last=False)
            return found

    # -- ledger and releases --------------------------------------------------------------------------

    def ledger(self) -> Ledger | None:
        """The ledger, or None where there is none yet. Raises LedgerError."""
        return Ledger(self.places.ledger) if self.places.ledger.exists() else None

    def shelf(self) -> list[str]:
        """Names of what is stored beside the spec and can be read, the newest first."""
        found = [
            p
            for folder in (self.places.releases, self.places.sessions)
            if folder.is_dir()
            for p in _readable_in_folder(folder)
        ]
        return list(dict.fromkeys(p.name for p in sorted(found, key=lambda p: -p.stat().st_mtime)))

    def place(self, name: object) -> Path:
        """Where the release of a name is, or will be. Raises InvalidInput for what is no name."""
        return self.places.releases / checked_name(name)

    def store(self, name: object) -> Path:
        """Where the session or stream of a name is kept, or will be. Raises InvalidInput for what is no name."""
        return self.places.sessions / checked_name(name)

    def stored(self, name: object) -> Path:
        """Where what is stored under a name is. Raises InvalidInput where there is nothing, or only a link."""
        for place in (self.place(name), self.store(name)):
            if _is_readable_store(place):
                return place
        raise InvalidInput("no release of that name is stored here")

    def release(self, name: object) -> Any:
        """What is stored under a name: a release, or what else sf.load gives. Raises InvalidInput.

        Of a stream that is kept here all that is public of it; how a session stands.
        """
        place = self.stored(name)
        if place.is_file() and keeps_session(place):
            status = session_status(place)
            # the source is a place of this machine
            return Description(
                f"Session {place.name}", [status_facts({k: v for k, v in status.items() if k != "source"})]
            )
        if place.is_file() and is_stream(place):
            return self._kept((place.name, conversations.store_anchor(place)), lambda: stored_release(place))
        stamp = (place / "release.json" if place.is_dir() else place).stat().st_mtime_ns
        return self._kept((place.name, str(stamp)), lambda: load(place))

    def _kept(self, key: tuple[str, str], read: Callable[[], Any]) -> Any:
        return self._recent(self._releases, key, _KEPT_RELEASES, read)

    def _recent(self, kept: OrderedDict[Any, Any], key: object, most: int, make: Callable[[], Any]) -> Any:
        """What is kept under a key, or is made now and kept among the `most` that were asked for last."""
        with self._lock:
            if key in kept:
                kept.move_to_end(key)
                return kept[key]
        found = make()
        with self._lock:
            kept[key] = found
            while len(kept) > most:
                kept.popitem(last=False)
        return found

    # -- what is said --------------------------------------------------------------------------------

    def said(self, error: Exception) -> str:
        """A refusal for a page: without places of this machine, and of a table's reader only that it failed."""
        if isinstance(error, SourceError):
            return (
                "the table could not be read as it is declared; nothing was spent. The reason is shown where sfumato "
                "studio was started"
            )
        return self.placeless(str(error))

    def placeless(self, text: str) -> str:
        """A text without places of this machine."""
        for folder in {self.places.spec.parent, self.places.spec.parent.resolve(), self.places.ledger.parent}:
            text = text.replace(f"{folder}{os.sep}", "")
        return _ODD.sub("…", text)


def _readable_in_folder(folder: Path) -> Iterator[Path]:
    return (p for p in folder.iterdir() if _is_readable_store(p))


def _is_readable_store(place: Path) -> bool:
    """A release's folder, or a file of one or of a session; links lead elsewhere and are not followed."""
    if place.is_symlink():
        return False
    if place.is_dir():
        return (place / "release.json").is_file()
    # what is a database first, for it ends like a zip too
    return place.is_file() and (keeps_session(place) or is_stream(place) or zipfile.is_zipfile(place))
