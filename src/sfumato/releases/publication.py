"""What an office tells of a release besides its numbers: title, institution, period, labels, units, and its marks.

It belongs to the pages and files of a release, not to the release: it may be corrected, or said in another language, at
any time, and no fingerprint knows it. A spec has it under [publication] and in [schema.NAME]; a release's folder keeps
it as publication.toml, which is read wherever nothing else is given.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any, cast

from sfumato._util.catalogue import Called, read_catalogue, say_words, speak
from sfumato._util.documents import write_text_atomically
from sfumato._util.frames import safe_text
from sfumato.domain import Domain
from sfumato.errors import InvalidInput, PlanError
from sfumato.releases.reliability import read_reliability
from sfumato.workloads.reading import Section, parse_toml, read_toml

PUBLICATION = "publication.toml"
"""Its name in a release's folder."""
_LONGEST = 4_000  # characters of a text: a page of a book
Text = str | Mapping[str, str]
"""A text, or one by language, such as {"en": "Age", "de": "Alter"}."""

_FACTS = {
    "institution": "Institution",
    "contact": "Contact",
    "period": "Period",
    "licence": "Licence",
    "notes": "Notes",
}
_TEXTS = ("title", "subtitle", *_FACTS)


@dataclass(frozen=True, slots=True)
class Publication:
    """What readers are told besides the numbers. Every text may be one by language, {"en": "Age", "de": "Alter"}.

    Args:
        title: What pages and files are called.
        subtitle: The line below.
        institution: Who publishes.
        contact: Whom to ask.
        period: The time that the table is about.
        notes: What else is to be known.
        licence: Under which terms numbers may be used; an address or a name.
        language: The language of pages: "en", "de" or "fr".
        flags: Marks with the relative standard errors above which each is set, as `Table.crosstab` takes them.
        labels: What readers call an attribute, by its name.
        units: In what an attribute is measured, by its name.
        categories: What readers call the cells of an attribute, by its name and then by the declared label. Where all
            declared cells of an attribute are listed, readers see them in this order.

    Raises:
        InvalidInput: A text is none, the language has no catalogue, or flags are no marks with thresholds.

    >>> from sfumato.publishing import Publication
    >>> told = Publication(title={"en": "Cities", "de": "Städte"}, labels={"pop": "inhabitants"}, language="de")
    >>> told.text("title"), told.heading("pop")
    ('Städte', 'inhabitants')
    """

    title: Text = ""
    subtitle: Text = ""
    institution: Text = ""
    contact: Text = ""
    period: Text = ""
    notes: Text = ""
    licence: Text = ""
    language: str = "en"
    flags: Mapping[str, float] = field(default_factory=dict[str, float])
    labels: Mapping[str, Text] = field(default_factory=dict[str, Text])
    units: Mapping[str, Text] = field(default_factory=dict[str, Text])
    categories: Mapping[str, Mapping[str, Text]] = field(default_factory=dict[str, Mapping[str, Text]])

    def __post_init__(self) -> None:
        read_catalogue(self.language)
        read_reliability(self.flags)
        for name in _TEXTS:
            _check_words(getattr(self, name), name)
        for what in (self.labels, self.units):
            for name, text in what.items():
                _check_words(text, name)
        for name, cells in self.categories.items():
            for label, text in cells.items():
                _check_words(text, f"{name} = {label}")

    def text(self, name: str) -> str:
        """One of the texts in the publication's language, else in English, else in the first that there is.

        Args:
            name: Which one, such as "title".

        Returns:
            The text, or "".
        """
        return self._chosen(getattr(self, name))

    def _chosen(self, text: Text) -> str:
        if isinstance(text, str):
            return text
        return text.get(self.language) or text.get("en") or next(iter(text.values()), "")

    def heading(self, attribute: str) -> str:
        """What readers call an attribute, with its unit.

        Args:
            attribute: Its name.

        Returns:
            Its label, or its name where there is none, and the unit in brackets.
        """
        label = self._chosen(self.labels.get(attribute, attribute))
        unit = self._chosen(self.units.get(attribute, ""))
        return f"{label} ({unit})" if unit else label

    def category_texts(self, attribute: str) -> dict[str, str]:
        """What readers call the cells of an attribute.

        Args:
            attribute: Its name.

        Returns:
            Texts by the declared labels, of those cells that have one.
        """
        return {label: self._chosen(text) for label, text in self.categories.get(attribute, {}).items()}

    def spoken(self, language: str | None) -> Publication:
        """The same for readers of another language.

        Args:
            language: "en", "de" or "fr"; None leaves it as it is.

        Returns:
            The publication.

        Raises:
            InvalidInput: The language has no catalogue.
        """
        return self if language is None else replace(self, language=language)

    def called(self) -> Called:
        """What readers call attributes and cells, as `speak` takes it.

        Returns:
            Headings by attribute, and texts of cells by attribute and label.
        """
        headings = {n: self.heading(n) for n in (*self.labels, *self.units)}
        return headings, {n: self.category_texts(n) for n in self.categories}

    def facts(self) -> list[tuple[str, str]]:
        """Institution, contact, period, licence and notes, those that are given.

        Returns:
            Pairs of what it is, in the publication's language, and the text.
        """
        with speak(self.language):
            return [(say_words(told), safe_text(text)) for name, told in _FACTS.items() if (text := self.text(name))]

    def source_line(self, release: Any) -> str:
        """The line below a chart: who publishes, what, when, and that noise was added.

        Args:
            release: The release that it shows.

        Returns:
            One line.
        """
        with speak(self.language):
            parts = [self.text("institution"), self.text("title") or release.provenance.name, self.text("period")]
            said = ", ".join(safe_text(p) for p in parts if p)
            return say_words("Source: {source}. Noise protects every person; lines are 95 % intervals.", source=said)

    def fingerprint(self) -> str:
        """What tells it apart from any other.

        Returns:
            The SHA-256 of its text, in hex.
        """
        return hashlib.sha256("\n".join(_toml_lines(self)).encode()).hexdigest()

    def check_names(self, domain: Domain) -> None:
        """Refuse labels of what a domain does not declare.

        Args:
            domain: The attributes of the release that it is about.

        Raises:
            PlanError: An attribute or a category is not declared.
        """
        for name in (*self.labels, *self.units, *self.categories):
            if name not in domain:
                raise PlanError(f"the publication has a label of {name!r}, which is no declared attribute")
        for name, cells in self.categories.items():
            strange = [label for label in cells if label not in domain[name].labels]
            if strange:
                raise PlanError(f"the publication has a text for {strange[0]!r} of {name}, which is none of its cells")


def _check_words(text: Any, name: str) -> None:
    given = {"en": text} if isinstance(text, str) else text
    if not isinstance(given, Mapping) or not all(isinstance(t, str) for pair in given.items() for t in pair):
        raise InvalidInput(f"{name} is a text, or one by language such as {{'en': …, 'de': …}}, not {text!r}")
    if any(len(t) > _LONGEST for t in given.values()):
        raise InvalidInput(f"the text of {name} has more than {_LONGEST:,} characters")


def publication_from_root(root: Section) -> Publication | None:
    """What [publication] and the words in [schema.NAME] and [measures.NAME] say; None where there are neither.

    Raises SpecError, with the line.
    """
    table = root.section("publication")
    table.allow(*_TEXTS, "language", "flags")
    given: dict[str, Any] = {name: _read_words(table, name) for name in _TEXTS if name in table}
    given |= {} if "language" not in table else {"language": table.text("language")}
    if "flags" in table:
        marks = table.section("flags")
        given["flags"] = {name: cast(float, marks.number(name)) for name in marks}
        with table.guard("flags"):
            read_reliability(given["flags"])
    words: dict[str, dict[str, Any]] = {"label": {}, "unit": {}, "categories": {}}
    for kind in ("schema", "measures"):
        declared = root.section(kind)
        for name in declared:
            one = declared.section(name)
            for key in ("label", "unit"):
                words[key] |= {name: _read_words(one, key)} if key in one else {}
            if "categories" in one:
                cells = one.section("categories")
                words["categories"][name] = {label: _read_words(cells, label) for label in cells}
    if not given and not any(words.values()):
        return None
    with table.guard(*(["language"] if "language" in table else [])):
        return Publication(**given, labels=words["label"], units=words["unit"], categories=words["categories"])


def _read_words(table: Section, key: str) -> Text:
    """A text, or one for each language."""
    if not isinstance(table.raw(key), dict):
        return table.text(key) or ""
    each = table.section(key)
    return {language: each.text(language) or "" for language in each}


def read_publication(path: str | PathLike[str]) -> Publication:
    """The publication of a spec or of a publication.toml. Raises SpecError, and InvalidInput where it has none."""
    root = read_toml(path)
    found = publication_from_root(root)
    if found is None:
        raise InvalidInput(f"{path} has no section [publication], and no label or unit in [schema.NAME]")
    return found


def folder_publication(folder: str | PathLike[str]) -> Publication | None:
    """The publication that a release's folder keeps, or None."""
    place = Path(folder) / PUBLICATION
    return read_publication(place) if place.is_file() else None


def write_publication(publication: Publication, folder: str | PathLike[str]) -> Path:
    """Keep a publication in a release's folder, in the form of a spec."""
    text = "\n".join(_toml_lines(publication)) + "\n"
    parse_toml(text)  # what is written is read again
    write_text_atomically(target := Path(folder) / PUBLICATION, text)
    return target


def _toml_lines(publication: Publication) -> Iterator[str]:
    yield "[publication]"
    for one in fields(publication):
        value = getattr(publication, one.name)
        if one.name in (*_TEXTS, "language") and value:
            yield f"{one.name} = {_toml_words(value)}"
    if publication.flags:
        yield f"flags = {{{', '.join(f'{_toml_text(k)} = {v!r}' for k, v in publication.flags.items())}}}"
    for name in dict.fromkeys((*publication.labels, *publication.units, *publication.categories)):
        yield f"\n[schema.{_toml_text(name)}]"
        for key, held in (("label", publication.labels), ("unit", publication.units)):
            if name in held:
                yield f"{key} = {_toml_words(held[name])}"
        if cells := publication.categories.get(name):
            yield f"\n[schema.{_toml_text(name)}.categories]"
            yield from (f"{_toml_text(label)} = {_toml_words(text)}" for label, text in cells.items())


def _toml_words(text: Text) -> str:
    if isinstance(text, str):
        return _toml_text(text)
    return f"{{{', '.join(f'{_toml_text(k)} = {_toml_text(v)}' for k, v in text.items())}}}"


def _toml_text(text: str) -> str:
    """A text as TOML has it: that of JSON, and DEL escaped as well."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
