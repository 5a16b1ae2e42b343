"""Wing of the wall: questions one by one, each chosen after earlier replies, kept in memory or in a file."""

from sfumato.wall.talk.conversing import Conversation, Minutes, is_conversation, minutes
from sfumato.wall.talk.tables import converse, resume

__all__ = ["Conversation", "Minutes", "converse", "is_conversation", "minutes", "resume"]
