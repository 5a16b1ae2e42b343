"""Questions that arrive one by one, under one budget debited at the opening."""

from sfumato.sessions.answers import SessionAnswer
from sfumato.sessions.core import KeySession, Session
from sfumato.sessions.opening import resume_session, session_status
from sfumato.sessions.parameters import pmw_min_alpha
from sfumato.sessions.plans import SessionPlan

__all__ = [
    "KeySession",
    "Session",
    "SessionAnswer",
    "SessionPlan",
    "pmw_min_alpha",
    "resume_session",
    "session_status",
]
