"""Names that people can tell apart, and values shown to them in a bounded length."""

from __future__ import annotations

import unicodedata

from sfumato.errors import DomainError

__all__ = ["check_text", "shorten"]

_MAX_NAME_BYTES = 256  # as long as names of files are; longer ones are texts
# letters, marks and symbols that show nothing: fillers, joiners, variation selectors, the empty braille pattern
_BLANK = frozenset(
    map(chr, (0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x2800, 0x3164, *range(0xFE00, 0xFE10)))
) | frozenset(map(chr, (0xFFA0, *range(0xE0100, 0xE01F0))))


def check_text(text: object, what: str, limit: int = _MAX_NAME_BYTES) -> str:
    """A name that people can tell apart: no control, zero-width or bidirectional characters, at most `limit` bytes."""
    if not isinstance(text, str) or not text.strip():
        raise DomainError(f"{what} must be a non-empty text, not {shorten(text)}")
    if len(text) > limit or len(text.encode("utf-8", "surrogatepass")) > limit:
        raise DomainError(f"{what} {text[:40]!r}… is longer than {limit} bytes")
    # what ASCII prints can be seen
    for char in "" if text.isascii() and text.isprintable() else text:
        if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") or char in _BLANK:
            raise DomainError(f"{what} {text!r} holds the invisible character U+{ord(char):04X}; remove it")
    return text


def shorten(value: object) -> str:
    """A value for people, however long it is."""
    try:
        text = repr(value)
    except ValueError:
        # Python writes no whole numbers of more than 4300 digits
        return f"a {type(value).__name__} that is too long to show"
    return text if len(text) <= 200 else f"{text[:200]}…"
