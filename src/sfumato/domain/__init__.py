"""Attributes and domains: the public names and cells of a table's columns, declared and never inferred."""

from sfumato.domain.attributes import OTHER, Attribute, Booleans, Categories, Level
from sfumato.domain.core import Domain
from sfumato.domain.hierarchies import Hierarchy
from sfumato.domain.measures import Measure
from sfumato.domain.ordered import Bins, Dates, Integers

__all__ = [
    "OTHER",
    "Attribute",
    "Bins",
    "Booleans",
    "Categories",
    "Dates",
    "Domain",
    "Hierarchy",
    "Integers",
    "Level",
    "Measure",
]
