"""Wing of the wall: the same tables period after period, under one budget debited before the first."""

from __future__ import annotations

from sfumato.curator.streams.curator import ROOM, PublicStream, resume_stream, stream

__all__ = ["ROOM", "PublicStream", "resume_stream", "stream"]
