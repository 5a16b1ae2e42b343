"""Sessions and streams: what they would cost, how they stand, their questions one by one, what they were asked.

A question is answered for a window that saw how the session stands: what another asked meanwhile is told first. All
that is shown here is public; the stores it is read from are not.
"""

from __future__ import annotations

import math
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from sfumato._util.description import Description, Facts, Sentences, TitledTable
from sfumato._util.frames import Frame, safe_text
from sfumato.curator.conversations.stored import StoredTranscript, is_conversation, read_transcript
from sfumato.curator.streams.stored import is_stream, read_stream
from sfumato.domain import Domain
from sfumato.errors import InvalidInput, NameTaken
from sfumato.interactive.opening import read_kept_session, resume_session, session_status
from sfumato.interactive.plan import SessionPlan
from sfumato.interactive.session import QuerySession
from sfumato.interactive.streams import read_status
from sfumato.mechanisms.registry import make_mechanism, plan_with_mechanism
from sfumato.operators import Block
from sfumato.planner.planning import make_request
from sfumato.plans.iterative import IterativePlan
from sfumato.plans.labels import LabelPlan
from sfumato.plans.plan import Plan
from sfumato.plans.streams import StreamPlan
from sfumato.privacy.conversation_price import Step
from sfumato.privacy.ledger import Ledger
from sfumato.privacy.selection import Candidates
from sfumato.releasing import plan_from_spec
from sfumato.specs import Spec

RELEASE, ONE_BY_ONE, ALL_CELLS = "release", "pmw", "histogram"
WAYS = (RELEASE, ONE_BY_ONE, ALL_CELLS)
"""What may be paid for: what the spec asks; questions to come, one by one; all cells, so that any question is free."""
_SHOWN = 200  # questions of a transcript on a page, the last ones
_NAMED = 3  # labels of a condition that is told; of more, how many

_NAMES = {"pmw": "a session", "histogram": "all cells once", 'mechanism="histogram"': "all cells once"}
_OURS = re.compile("|".join(map(re.escape, sorted(_NAMES, key=len, reverse=True))))

Json = dict[str, Any]


def plan_conversation(
    spec: Spec, what: str, currency: str | None
) -> Plan | IterativePlan | LabelPlan | StreamPlan | SessionPlan:
    """The plan of a spec for one of `WAYS`; of a session for a ledger in `currency`. Raises PlanError, InvalidInput."""
    if what not in WAYS:
        raise InvalidInput(f"there are {', '.join(WAYS)}")
    if what == RELEASE:
        return plan_from_spec(spec)
    if spec.periods is not None:
        raise InvalidInput("the spec declares a stream; take [stream] out of it to open a session")
    asked = make_request(
        spec.domain,
        spec.budget,
        neighbours=spec.neighbours,
        person=spec.person,
        rows_per_person=spec.rows_per_person,
        once_per=spec.once_per,
        rows_per_group=spec.rows_per_group,
        records=spec.records,
    )
    return plan_with_mechanism(
        make_mechanism(what, currency=currency) if what == ONE_BY_ONE else make_mechanism(what), asked
    )


def promise(plan: SessionPlan) -> Description:
    """What a session promises before it is opened, and what would err less, in the words of the pages."""
    told = plan.describe()
    facts = [(n, _OURS.sub(lambda m: _NAMES[m[0]], t)) for b in told.blocks if isinstance(b, Facts) for n, t in b.rows]
    compared = plan.compared.columns
    named = {"how": [_NAMES.get(name, "a release of each") for name in compared["mechanism"]]}
    frame = Frame(named | {n: column for n, column in compared.items() if n != "mechanism"})
    return Description(told.headline, [Facts(facts), TitledTable("Errors side by side, in records", frame)])


def store_anchor(place: Path) -> str:
    """The state of a store: what a window that shows it saw. Raises LedgerError, LedgerCorrupted, InvalidInput."""
    return read_stream(place).anchor if is_stream(place) else read_kept_session(place)[0].anchor


def conversation_status(place: Path) -> Json | None:
    """How the session or stream stands that is kept in a file; None for a release.

    Neither table nor ledger is touched. Raises LedgerError, LedgerCorrupted.
    """
    if not place.is_file():
        return None
    if is_stream(place):
        found = read_status(place)
        return {"kind": "stream", "anchor": found["anchor"]} | {k: found[k] for k in ("periods", "periods_left")}
    asked = _read_session(place)
    if asked is None:
        return None
    found, plan = asked
    state = session_status(place)
    return {
        "kind": "session",
        "anchor": found.anchor,
        "created": None,
        "guarantee": str(plan.budget),
        "protects": plan.unit.describe(),
        "promise": plan.promise(),
        "updates": plan.updates,
        "buys": plan.buys and not found.steps,
        "easy": math.ceil(state["easy_bound"]),
        "hard": math.ceil(state["hard_bound"]),
        **{k: state[k] for k in ("questions", "updates_left", "exhausted", "guaranteed_questions", "confidence")},
        "attributes": [
            {"name": n, "labels": list(a.declared_labels[:_SHOWN]) if a.intervals is None else []}
            for n, a in plan.domain.attributes.items()
        ],
    }


def put_question(session: QuerySession, seen: object, question: object) -> Json:
    """Put a question for a window that saw the session as it stands. Raises NameTaken where it has moved since."""
    if not isinstance(question, str) or not question.strip():
        raise InvalidInput("ask with a condition, such as age >= 65")
    if session.anchor != seen:
        raise NameTaken(
            "another window or program asked meanwhile, so what is left is another; load this page again. Nothing was "
            "asked"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numerical warnings could depend on the data
        found = session.ask(question)
    value, low, high = (None if x is None else f"{x:,.0f}" for x in (found.value, found.low, found.high))  # all whole
    about = {"how": found.how, "guaranteed": found.guaranteed, "exact": found.value}
    return {"question": safe_text(question), "value": value, "low": low, "high": high} | about


def resume_from_file(place: Path, ledger: Ledger | None, seen: object) -> QuerySession:
    """The session of a file, to go on with; its table is read. Raises InvalidInput and as `resume_session`."""
    if ledger is None:
        raise InvalidInput("the ledger that paid for this session is not here; put it back, and nothing is paid again")
    found = resume_session(place, ledger, anchor=seen if isinstance(seen, str) else None)
    if not isinstance(found, QuerySession):
        raise InvalidInput("a session over keys is asked by: sfumato session ask")
    return found


def conversation_transcript(place: Path) -> Description | None:
    """What a session was asked, or which periods a stream has; None for a release. Raises as `standing`."""
    if not place.is_file():
        return None
    if is_stream(place):
        store = read_stream(place)
        periods = [[f"{i:,}", p.label] for i, p in enumerate(store.published, 1)]
        return _listing_page(place.name, store.anchor, ["number", "period"], periods, "No period yet.")
    asked = _read_session(place)
    if asked is None:
        return None
    found, plan = asked
    steps = enumerate(found.steps, 1 - plan.buys)
    rows = [
        [f"{number:,}" if number else "–", *_step_in_words(plan, step, bought=number == 0)] for number, step in steps
    ]
    columns = ["number", "records with", "answer", "from", "to", "how", "update"]
    return _listing_page(place.name, found.anchor, columns, rows, "Nothing was asked yet.")


def _listing_page(name: str, anchor: str, columns: list[str], rows: list[list[str]], none: str) -> Description:
    """The last lines of a store."""
    title = f"The last {_SHOWN} of {len(rows):,}" if len(rows) > _SHOWN else ""
    frame = Frame({c: [row[i] for row in rows[-_SHOWN:]] for i, c in enumerate(columns)})
    numbers = ("number", "answer", "from", "to")
    shown = TitledTable(title, frame, numbers, f"What {name} gave") if rows else Sentences([none])
    return Description(name, [Facts([("anchor, to keep elsewhere", anchor)]), shown])


def _read_session(place: Path) -> tuple[StoredTranscript, SessionPlan] | None:
    """A session over declared columns; None for another file."""
    if not is_conversation(place):
        return None
    found = read_transcript(place)
    plan = found.about.get("plan") if isinstance(found.about, dict) else None
    return (found, plan) if isinstance(plan, SessionPlan) else None


def _step_in_words(plan: SessionPlan, step: Step, *, bought: bool) -> list[str]:
    """A step in words: the question, its reply as it was given, and what it used up."""
    question = step.question
    assert isinstance(question, Candidates)
    (block,) = question.blocks
    assert isinstance(block, Block)
    what = (
        "all records: their number, which the session begins with" if bought else question_in_words(plan.domain, block)
    )
    if step.answer is not None:
        value, bound, how = float(step.answer), plan.hard_bound, "measured"
    else:
        value, how = float(question.estimates[0]), "hypothesis"
        bound = int(question.penalties[0]) + plan.bounds.v
    numbers = [f"{x:,.0f}" for x in (value, value - bound, value + bound)]
    return [what, *numbers, how, "paid apart" if bought else "1" if step.above else "none"]


def question_in_words(domain: Domain, block: Block) -> str:
    """The records that a question of one row counts, by the cells that its store keeps."""
    factors = block.by_attribute()
    if factors is None:
        count = math.prod(f.shape[1] for f in block.factors)
        names = " and ".join(n for g in block.groups for n in g)
        chosen = math.prod(int(np.count_nonzero(f.rows(0, 1))) for f in block.factors)
        return safe_text(f"{chosen:,} of the {count:,} combinations of {names}")
    told = [_cells_in_words(domain, name, np.asarray(f.rows(0, 1)).reshape(-1)) for name, f in factors.items()]
    return safe_text(" and ".join(told)) or "all records"


def _cells_in_words(domain: Domain, name: str, row: np.ndarray[Any, Any]) -> str:
    attribute = domain[name]
    chosen = np.flatnonzero(row)
    if set(row.tolist()) - {0.0, 1.0}:
        return f"{name}, weighted"
    labels = attribute.labels
    runs = len(chosen) > 1 and chosen[-1] - chosen[0] == len(chosen) - 1 and chosen[-1] < attribute.declared_size
    if attribute.intervals is not None and runs:
        return f"{name}: {labels[chosen[0]]} to {labels[chosen[-1]]}"
    if len(chosen) > _NAMED:
        return f"{name}: {labels[chosen[0]]} and {len(chosen) - 1:,} more"
    return f"{name}: {' or '.join(labels[i] for i in chosen)}"
