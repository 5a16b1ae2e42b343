"""Wing of the wall: questions one by one, each chosen after earlier replies, kept in memory or in a file."""

from __future__ import annotations

from sfumato.curator.conversations.curator import Conversation
from sfumato.curator.conversations.exact_answers import open_conversation, resume_conversation

__all__ = ["Conversation", "open_conversation", "resume_conversation"]
