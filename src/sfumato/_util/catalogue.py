"""The words of pages in a reader's language: English texts are the keys of the catalogues of all others.

A catalogue is a TOML file of this package's `catalogues`, called by its language: `[numbers]` has the marks of
decimals and thousands, `[times]` the words of axes of days, `[words]` a text for each English one, with the same names
in braces. English has no file: what a catalogue leaves out is said in English.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from sfumato._util.checks import suggest_name
from sfumato.errors import InvalidInput

_ENGLISH = "en"
Called = tuple[Mapping[str, str], Mapping[str, Mapping[str, str]]]
"""What readers call attributes, by their names, and cells, by attribute and label."""
_SPOKEN: ContextVar[str] = ContextVar("language", default=_ENGLISH)
_CALLED: ContextVar[Called] = ContextVar("called", default=({}, {}))


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The texts of one language by the English ones, and the marks of its numbers."""

    words: dict[str, str]
    decimal: str = "."
    group: str = ","
    times: Mapping[str, object] = field(default_factory=dict[str, object])


def known_languages() -> tuple[str, ...]:
    """The languages that pages speak, English first."""
    folder = resources.files("sfumato._util") / "catalogues"
    return (_ENGLISH, *sorted(p.name.removesuffix(".toml") for p in folder.iterdir() if p.name.endswith(".toml")))


@cache
def read_catalogue(language: str) -> Catalogue:
    """The catalogue of a language. Raises InvalidInput for one that there is none of."""
    if language not in known_languages():
        raise InvalidInput(f"pages have no words in {language!r}; {suggest_name(language, known_languages())}")
    if language == _ENGLISH:
        return Catalogue({})
    text = (resources.files("sfumato._util") / "catalogues" / f"{language}.toml").read_text(encoding="utf-8")
    held = tomllib.loads(text)
    return Catalogue(held["words"], held["numbers"]["decimal"], held["numbers"]["group"], held["times"])


def page_language() -> str:
    """The language that is spoken now."""
    return _SPOKEN.get()


@contextmanager
def speak(language: str, called: Called = ({}, {})) -> Generator[None]:
    """Speak a language as long as a page is made, and call attributes and cells as readers do.

    Raises InvalidInput for a language without a catalogue.
    """
    read_catalogue(language)
    tokens = _SPOKEN.set(language), _CALLED.set(called)
    try:
        yield
    finally:
        _SPOKEN.reset(tokens[0])
        _CALLED.reset(tokens[1])


def called_attribute(name: str) -> str:
    """What readers call an attribute: its name, where nobody said anything else."""
    return _CALLED.get()[0].get(name, name)


def called_cells(name: str) -> Mapping[str, str]:
    """What readers call the cells of an attribute, of those that have another name than their label."""
    return _CALLED.get()[1].get(name, {})


def say_words(text: str, **values: object) -> str:
    """An English text in the language that is spoken, its names in braces replaced by values."""
    found = read_catalogue(_SPOKEN.get()).words.get(text, text)
    return found.format(**values) if values else found


def say_amount(number: str, unit: str) -> str:
    """A number with its unit as it stands in a sentence after "of": languages bend words there, as German does."""
    text = f"of {{number}} {unit}"
    known = read_catalogue(_SPOKEN.get()).words
    return known[text].format(number=number) if text in known else f"{number} {say_words(unit)}"


def say_day(day: str) -> str:
    """A day, given as year-month-day, as prose has it."""
    year, month, date = day.split("-")
    return say_words("{year}-{month}-{day}", year=year, month=month, day=date)


_FEW = 9  # letters: a text that says less by itself, such as "{low} to {high}", takes single words alone


@cache
def _spoken_patterns(language: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    """The texts of a catalogue that have names in braces, as patterns; those that say most by themselves first."""
    own = {text: re.sub(r"\{\w+\}", "", text) for text in read_catalogue(language).words if "{" in text}
    found: list[tuple[re.Pattern[str], str]] = []
    for text, said in sorted(own.items(), key=lambda item: -len(item[1])):
        names, letters = re.findall(r"\{(\w+)\}", text), sum(map(str.isalpha, said))
        if letters and len(set(names)) == len(names):
            each = r"(?P<\1>\\S+?)" if letters < _FEW else r"(?P<\1>.+?)"
            found.append((re.compile(re.sub(r"\\\{(\w+)\\\}", each, re.escape(text)), re.DOTALL), text))
    return tuple(found)


_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\d“'\"])")
_NUMBER = re.compile(r"[-−]?[\d,]+(\.\d+)?")
_ENDS = ("low", "high")
"""Names of what are numbers mostly, and else texts."""
_CELL = re.compile(r"\[([^\s,]+), ([^\s,]+)([)\]])")
ENGLISH = re.compile(
    r"\b(the|of|and|is|are|were|for|with|by|its|it|than|to|from|be|has|have|which|that|this|they|no|errs?|noise)\b",
    re.I,
)
"""Words that an English sentence seldom lacks, and that are none of German or French."""


def say_text(text: str) -> str:
    """A finished English text in the language that is spoken: as a whole, by a pattern, or sentence by sentence.

    Names that begin with n stand for numbers with English marks, which are written anew; others for what is
    translated where the catalogue has it, and else stays. A text that the catalogue lacks is returned as it is.
    """
    if page_language() == _ENGLISH or not text.strip():
        return text
    whole = _say_whole(text)
    if whole is not None:
        return whole
    sentences = _SENTENCE.split(text)
    return text if len(sentences) == 1 else " ".join(_say_whole(one) or one for one in sentences)


def _say_whole(text: str) -> str | None:
    words = read_catalogue(page_language()).words
    if text in words:
        return words[text]
    for pattern, key in _spoken_patterns(page_language()):
        found = pattern.fullmatch(text)
        if found is None:
            continue
        values = found.groupdict()
        if any(_SENTENCE.search(v) or (k.startswith("n_") and not _NUMBER.fullmatch(v)) for k, v in values.items()):
            continue
        told = {k: local_number(v) if _stands_for_number(k, v) else _say_whole(v) or v for k, v in values.items()}
        return words[key].format(**told)
    return None


def _stands_for_number(name: str, value: str) -> bool:
    return name.startswith("n_") or (name in _ENDS and _NUMBER.fullmatch(value) is not None)


_NOTES = (
    "of records from {low} to {high}",
    "of values cut to {low} to {high}",
    "of values cut at {value}",
    "of records with a number in {measure} too",
    "mostly cut at {value}, where its mean is {low} to {high}",
    "{share} % of the interval is the width of cells, most of it that of {cell}",
    "too few to tell: {size} ± {half} records",
    "no records",
)
"""Notes that frames have, in English as all frames: pages say them in their language."""


def say_note(note: str) -> str:
    """A note of a frame in the language that is spoken; in English as it is, and so are parts that nobody knows."""
    return note if _SPOKEN.get() == _ENGLISH else "; ".join(map(_say_part, note.split("; ")))


def _say_part(part: str) -> str:
    for text in _NOTES:
        pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+)", re.escape(text))
        if found := re.fullmatch(pattern, part):
            ways: dict[str, Callable[[str], str]] = {"cell": _spoken_label, "measure": str}  # others are numbers
            return say_words(text, **{k: ways.get(k, local_number)(v) for k, v in found.groupdict().items()})
    return part


def _spoken_label(cell: str) -> str:
    """A declared label: a range in words, a number with the marks of the language, another text as it is."""
    if found := _CELL.fullmatch(cell):
        said = "{low} to under {high}" if found[3] == ")" else "{low} to {high}"
        return say_words(said, low=local_number(found[1]), high=local_number(found[2]))
    return local_number(cell) if _NUMBER.fullmatch(cell) else cell


def local_number(text: str) -> str:
    """A number with the marks that the language has for decimals and thousands, from one written as in English."""
    known = read_catalogue(_SPOKEN.get())
    return text if known.decimal == "." else text.translate({ord(","): known.group, ord("."): known.decimal})


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def superscript_exponent(text: str) -> str:
    """Computer notation such as 1e-6 as 10⁻⁶."""
    head, mark, tail = text.partition("e")
    if not mark:
        return text
    power = "10" + str(int(tail)).translate(_RAISED)
    return power if head == "1" else f"{head}·{power}"


def page_locale() -> dict[str, object]:
    """The marks of numbers and the words of days as charts take them; English days they know by themselves."""
    known = read_catalogue(_SPOKEN.get())
    marks = {"decimal": known.decimal, "thousands": known.group, "grouping": [3], "currency": ["", ""]}
    found: dict[str, object] = {"number": marks}
    return found | ({"time": known.times} if known.times else {})
