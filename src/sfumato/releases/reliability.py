"""Marks of an office for how well an answer is known: its relative standard error, class by class.

Marks say nothing of privacy, which noise alone protects: they keep readers from leaning on a number that is mostly
noise. Nothing is hidden by them unless that is asked for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sfumato._util.catalogue import local_number, say_words
from sfumato._util.frames import printable
from sfumato.errors import InvalidInput
from sfumato.operators.base import FloatArray
from sfumato.plans.explain import chart_cross_table

SUPPRESS = "suppress"
"""The flag of a cell that tables for readers leave out."""
WITHHELD = "··"
"""What stands in place of its number, or behind it."""
_WORST = 2  # the largest threshold: of an answer that errs by more than twice itself not even the sign is known
_LONGEST = 8  # characters of a mark: it stands behind a number, in a cell of a table


@dataclass(frozen=True, slots=True)
class Reliability:
    """Flags with the relative standard errors above which each is set, the smallest first.

    Args:
        classes: A flag and its threshold, as a share of the answer; `suppress` comes last if there is one.
    """

    classes: tuple[tuple[str, float], ...] = ()

    def flags(self, values: ArrayLike, errors: ArrayLike) -> list[str]:
        """The flag of every answer, in the order of the flat arrays; "" for one that is well known.

        Args:
            values: Answers.
            errors: Their standard errors, of the same shape; NaN where none is known, which is flagged as badly as
                possible.

        Returns:
            Flags.
        """
        found = np.zeros(np.size(values), dtype=np.intp)
        relative = relative_errors(values, errors).reshape(-1)
        for _, above in self.classes:
            found += ~(relative <= above)
        names = ("", *(flag for flag, _ in self.classes))
        return [names[i] for i in found.tolist()]

    def statement(self, *, left_out: bool = True) -> str:
        """The rule in one sentence, for whoever reads the flags.

        Args:
            left_out: Whether numbers that are flagged to be left out are; else they stand beside their dots.

        Returns:
            Two sentences, in the language that is spoken.
        """
        names = {
            SUPPRESS: say_words("left out ({dots})" if left_out else "{dots} (too uncertain to print)", dots=WITHHELD)
        }
        told = [_class_words(names.get(flag, flag), above) for flag, above in self.classes]
        return say_words(
            "Flags tell the relative standard error, the standard error divided by the answer: {classes}. They follow "
            "from the noise and the published answers alone, and hide nothing for privacy.",
            classes=", ".join(told),
        )


def _class_words(flag: str, above: float) -> str:
    return say_words("{flag} above {share} %", flag=flag, share=local_number(f"{100 * above:.4g}"))


def chart_flagged(
    rows: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    measured: str,
    title: str,
    source: str,
    marks: Reliability,
    *,
    share: bool = False,
) -> Any:
    """A chart of cells, as `chart_cross_table` draws it, and below it what flags mean and what is missing.

    A cell that is flagged to be left out, or of which nothing is known, is not drawn.
    """
    known = [row for row in rows if row.get("flag") != SUPPRESS and math.isfinite(row["answer"])]
    unbounded = [{k: row["answer"] for k in ("low", "high") if not math.isfinite(row[k])} for row in known]
    drawn = [{**row, **ends} for row, ends in zip(known, unbounded, strict=True)]
    told = [_class_words(flag, above) for flag, above in marks.classes if any(row.get("flag") == flag for row in drawn)]
    below = [source] if source else []
    below += [say_words("Relative standard error: {classes}.", classes=", ".join(told))] if told else []
    if missing := len(rows) - len(drawn):
        one = "1 bar is missing: too little is known of its cell."
        many = "{number} bars are missing: too little is known of their cells."
        below.append(say_words(one if missing == 1 else many, number=missing))
    return chart_cross_table(drawn, names, measured, title, below, share=share)


_TYPED = re.compile(r"\s*([^=,;]+?)\s*=\s*([0-9]+(?:[.,][0-9]+)?|[.,][0-9]+)\s*(%?)\s*(?=[,;]|$)")


def parse_flags(text: str) -> dict[str, float]:
    """Flags as people type them: "*=.15, **=.30, suppress=.50", "*=0,15; **=0,30" or "*=15 %". Raises InvalidInput.

    A comma stands between two flags where a mark and = follow it, and otherwise in a number.
    """
    found: dict[str, float] = {}
    at = 0
    while at <= len(text):
        one = _TYPED.match(text, at)
        if one is None:
            raise InvalidInput(
                f"flags are marks with shares or per cent, such as '*=.15,**=.30,suppress=.50' or '*=15 %; **=30 %', "
                f"not {text!r}"
            )
        mark, number, percent = one.groups()
        if mark in found:
            raise InvalidInput(f"the flag {mark!r} has two thresholds; give it one")
        share = Decimal(number.replace(",", "."))
        if not percent and share > 1:
            raise InvalidInput(
                f"'{mark}={number}' is a share, and so a relative standard error of {100 * share:,f} %; write "
                f"'{mark}={number} %' if per cent is meant, or a share up to 1 such as '{mark}=0.15'"
            )
        found[mark] = float(share / 100 if percent else share)
        at = one.end() + 1
    return found


def relative_errors(values: ArrayLike, errors: ArrayLike) -> FloatArray:
    """Standard errors as shares of their answers' sizes: infinite for an answer of 0 or less, 0 for what is exact."""
    value, error = np.broadcast_arrays(np.asarray(values, dtype=np.float64), np.asarray(errors, dtype=np.float64))
    found = np.divide(error, value, out=np.full(value.shape, math.inf), where=value > 0)
    return np.where(error == 0, 0.0, np.where(np.isnan(found), math.inf, found))


def read_reliability(flags: Mapping[str, float] | Reliability | None) -> Reliability:
    """Flags as an office writes them, such as {"*": .15, "**": .30, "suppress": .50}.

    Raises InvalidInput unless thresholds are positive numbers up to 2, no two alike, and `suppress` has the largest.
    """
    if flags is None or isinstance(flags, Reliability):
        return flags or Reliability()
    if not isinstance(flags, Mapping):
        raise InvalidInput(f"flags are marks with their thresholds, such as {{'*': 0.15}}, not {flags!r}")
    for flag, above in flags.items():
        if not isinstance(flag, str) or not flag.strip() or len(flag) > _LONGEST or flag != printable(flag):
            raise InvalidInput(f"a flag is a text of 1 to {_LONGEST} characters, such as '*', not {flag!r}")
        number = isinstance(above, (int, float)) and not isinstance(above, bool)
        if not number or not 0 < above < math.inf:
            raise InvalidInput(
                f"the threshold of {flag!r} must be a positive share such as 0.15, for a relative standard error of "
                f"15 %, not {above!r}"
            )
        if above > _WORST:
            raise InvalidInput(
                f"the threshold of {flag!r} is {above:g}, a relative standard error of {100 * above:,.6g} %; shares go "
                f"up to {_WORST}, which is {100 * _WORST} %. For {above:g} % write {above / 100:g}"
            )
    ordered = sorted(flags.items(), key=lambda c: c[1])
    if len({above for _, above in ordered}) < len(ordered):
        raise InvalidInput("two flags have one threshold, so that one of them would never be set; give each its own")
    if any(flag == SUPPRESS for flag, _ in ordered[:-1]):
        raise InvalidInput(f"{SUPPRESS!r} must have the largest threshold: marks above it would never be seen")
    return Reliability(tuple((flag, float(above)) for flag, above in ordered))
