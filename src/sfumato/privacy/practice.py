"""Budgets that were published with real releases: landmarks for whoever chooses one, no advice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Practice:
    """One published budget.

    Args:
        epsilon: As it was published, or what it amounts to; a range as text.
        delta: The delta that goes with it, or "" where there is none.
        year: Of the release.
        what: Who released what.
        unit: Who, or what of a person, is protected.
        source: Where it was published.
    """

    epsilon: str
    delta: str
    year: int
    what: str
    unit: str
    source: str


PRACTICE = (
    Practice(
        "1",
        "1e-7",
        2023,
        "Wikimedia, daily page views by country",
        "the first ten pages of a device in a day",
        "arXiv 2308.16298 (rho = 0.015)",
    ),
    Practice(
        "2 to 16",
        "",
        2017,
        "Apple, words, emoji and web pages of phones",
        "one person in a day, without a curator",
        "Apple, Learning with Privacy at Scale",
    ),
    Practice(
        "2.64",
        "",
        2020,
        "Google, mobility reports of the pandemic",
        "one person in a day",
        "arXiv 2004.04145",
    ),
    Practice(
        "9.98",
        "",
        2024,
        "Israel's Ministry of Health, births of 2014",
        "a mother with her newborn, once for all",
        "arXiv 2405.00267",
    ),
    Practice(
        "17.14",
        "1e-10",
        2021,
        "US Census Bureau, redistricting file of 2020, persons",
        "one person, once in ten years",
        "Census Bureau, 9 June 2021 (rho = 2.56)",
    ),
)
"""What others chose, the smallest first. Units differ, so the numbers do not compare by themselves."""
