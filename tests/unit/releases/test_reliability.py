"""Flags as people type them, with the decimal mark and the per cent of their country."""

from __future__ import annotations

import pytest

from sfumato.errors import InvalidInput
from sfumato.releases.reliability import parse_flags, read_reliability


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
        ("*=,5,**=1", {"*": 0.5, "**": 1.0}),
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


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("*=15, **=30", r"'\*=15' is a share, and so .* of 1,500 %; write '\*=15 %' if per cent is meant"),
        ("**=1,5", r"'\*\*=1,5' is a share, and so .* of 150.0 %; write '\*\*=1,5 %'"),
    ],
)
def test_a_share_above_all_is_asked_for_as_per_cent(given: str, said: str) -> None:
    """Mutant: fifteen times the answer, from whoever left the per cent out; and 150 % refused where it is said."""
    with pytest.raises(InvalidInput, match=said):
        parse_flags(given)
    assert parse_flags("*=150 %") == {"*": 1.5}
    assert read_reliability({"*": 1.5}).classes == (("*", 1.5),)
    with pytest.raises(InvalidInput, match=r"is 15, a relative standard error of 1,500 %; .* For 15 % write 0.15"):
        read_reliability({"*": 15})
