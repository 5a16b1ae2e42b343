"""How every plan, release and session tells of itself: a headline, lines that each begin with a word, tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

from sfumato.ground import markup
from sfumato.ground.frames import Frame

__all__ = ["Told"]


class Told(ABC):
    """What explains itself: `explain()`, `str` and notebooks show the same words, `repr` a few of them."""

    __slots__ = ()

    @abstractmethod
    def headline(self) -> str:
        """What it is, in one line."""

    def lines(self) -> Iterator[tuple[str, str]]:
        """What there is to say, each with a word that says what it is about; with no word, a sentence."""
        return iter(())

    def appended(self) -> Iterator[str]:
        """What follows the lines."""
        return iter(())

    def shown(self) -> Mapping[str, Frame]:
        """Tables for notebooks, by their captions."""
        return {}

    @abstractmethod
    def brief(self) -> str:
        """What `repr` says after the name of the class."""

    def explain(self) -> str:
        """All of it in words."""
        lines = (f"  {name:<10} {text}" if name else f"  {text}" for name, text in self.lines())
        return "\n".join([self.headline(), *lines, *self.appended()])

    def __str__(self) -> str:
        return self.explain()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.brief()}>"

    def _repr_html_(self) -> str:
        return markup.card(self.headline(), self.lines(), self.shown())
