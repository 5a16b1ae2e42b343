"""Tables of persons: features that a person's rows tell, and rows with their person's columns, as sources to count."""

from __future__ import annotations

from sfumato.curator.people.tables import Joined, PerPerson, Rows, joined, per_person, rows

__all__ = ["Joined", "PerPerson", "Rows", "joined", "per_person", "rows"]
