"""Flags as people type them, with the decimal mark and the per cent of their country."""

from __future__ import annotations

import pytest

from sfumato.errors import InvalidInput
from sfumato.releases.reliability import parse_flags


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("*=.15, **=.30, suppress=.50", {"*": 0.15, "**": 0.3, "suppress": 0.5}),
        ("*=.15,**=.30", {"*": 0.15, "**": 0.3}),
        ("*=0,15", {"*": 0.15}),
        ("*=0,15, **=0,30, suppress=0,5", {"*": 0.15, "**": 0.3, "suppress": 0.5}),
        ("*=0,15;**=,3", {"*": 0.15, "**": 0.3}),
        ("*=15%, **=30 %", {"*": 0.15, "**": 0.3}),
        ("* = 12,5 %; ** = 1", {"*": 0.125, "**": 1.0}),
        ("*=1,**=2", {"*": 1.0, "**": 2.0}),
        ("(a)=0,1,(b)=0,2", {"(a)": 0.1, "(b)": 0.2}),
    ],
)
def test_flags_are_read_in_either_notation(text: str, flags: dict[str, float]) -> None:
    """Mutants: the comma of 0,15 between two flags; 15 % as fifteen times the answer."""
    assert parse_flags(text) == flags


@pytest.mark.parametrize(
    "text", ["", "*", "*=", "*=x", "*=0.1.5", "=0.1", "*=0,15,", "*:3", "*=-1", "*=.1,*=.2", "*=nan"]
)
def test_what_are_no_flags_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"flags are marks|two thresholds"):
        parse_flags(text)
