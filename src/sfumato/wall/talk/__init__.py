"""Wing of the wall: questions one by one, each chosen after earlier replies, kept in memory or in a file."""

from sfumato.wall.talk.conversing import Conversation, Minutes, is_conversation, minutes

__all__ = ["Conversation", "Minutes", "is_conversation", "minutes"]
