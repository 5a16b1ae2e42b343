"""Near names for messages: what a misspelt one may have meant."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable

__all__ = ["nearest"]

_MAX_COMPARED = 2_000  # names compared with a misspelt one: milliseconds
_MAX_LISTED = 12  # names in an error text: a line or two


def nearest(given: str, allowed: Iterable[str]) -> str:
    """For messages: the allowed name most like the given one, and the names that are allowed."""
    names = list(itertools.islice(allowed, _MAX_COMPARED + 1))
    folded = {n.casefold(): n for n in reversed(names)}
    close = difflib.get_close_matches(given[:200].casefold(), folded, n=1)
    listed = ", ".join(repr(n) for n in names[:_MAX_LISTED])
    more = "" if len(names) <= _MAX_LISTED else ", …"
    return (f"did you mean {folded[close[0]]!r}? " if close else "") + f"Allowed: {listed}{more}"
