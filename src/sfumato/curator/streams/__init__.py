"""Wing of the wall: the same tables period after period, under one budget debited before the first."""

from __future__ import annotations

from sfumato.curator.streams.curator import ROOM, PublicStream, open_public_stream, resume_stream

__all__ = ["ROOM", "PublicStream", "open_public_stream", "resume_stream"]
