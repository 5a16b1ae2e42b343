"""Wing of the wall: the same tables period after period, under one budget debited before the first."""

from sfumato.wall.streams.streaming import ROOM, PublicStream, resume_stream, stream

__all__ = ["ROOM", "PublicStream", "resume_stream", "stream"]
