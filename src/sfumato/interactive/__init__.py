"""Questions that arrive one by one, under one budget debited at the opening."""

from __future__ import annotations

from sfumato.interactive.opening import resume_session, session_status
from sfumato.interactive.parameters import pmw_min_alpha
from sfumato.interactive.plan import SessionPlan
from sfumato.interactive.session import KeySession, Session, SessionAnswer

__all__ = ["KeySession", "Session", "SessionAnswer", "SessionPlan", "pmw_min_alpha", "resume_session", "session_status"]
