"""A release in SDMX: SDMX-CSV 2.0, one file for each table, and the structures that it names, as SDMX-ML 2.1."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from sfumato._util.catalogue import page_language, say_words
from sfumato._util.frames import printable
from sfumato.publishing.office_tables import OfficeFiles, WrittenTable, csv_text, write_office_text
from sfumato.publishing.workbook import NUMBERS

_PERIOD = re.compile(r"\d{4}(-(\d\d(-\d\d)?|Q[1-4]|S[12]|W\d\d))?")
"""What SDMX takes for a period of time."""
_SDMX = "http://www.sdmx.org/resources/sdmxml/schemas/v2_1"
_ATTRIBUTES = {"STANDARD_ERROR": "Double", "LOW": "Double", "HIGH": "Double", "RELATIVE_STANDARD_ERROR": "Double"}


def _sdmx_ids(texts: Sequence[str], *, upper: bool = False) -> list[str]:
    """Identifiers as SDMX takes them, one for each text, no two alike."""
    found: dict[str, None] = {}  # in their order
    for text in texts:
        clean = re.sub(r"[^A-Za-z0-9_]+", "_", text.upper() if upper else text).strip("_") or "X"
        clean = f"N{clean}" if upper and clean[0].isdigit() else clean
        made, number = clean, 1
        while made in found:
            number += 1
            made = f"{clean}_{number}"
        found[made] = None
    return list(found)


def write_sdmx(files: OfficeFiles) -> None:
    """SDMX-CSV 2.0, one file for each table, and the structures that it names, as SDMX-ML 2.1."""
    told = files.publication
    agency = _sdmx_ids([told.text("institution") or "SFUMATO"], upper=True)[0][:50]
    period = text if _PERIOD.fullmatch(text := told.text("period")) else ""
    lists: dict[tuple[str, tuple[str, ...]], tuple[str, list[str], Sequence[str], str]] = {}
    structures: list[tuple[str, str, str]] = []
    for t in files.tables:
        flow = _sdmx_ids([t.stem], upper=True)[0]
        reserved = [
            "OBS_VALUE",
            "TIME_PERIOD",
            "STRUCTURE",
            "STRUCTURE_ID",
            "ACTION",
            "OBS_STATUS",
            "FLAG",
            *_ATTRIBUTES,
        ]
        dimensions = _sdmx_ids([*reserved, *t.table.attributes], upper=True)[len(reserved) :]
        codes = [_sdmx_ids(labels) for labels in t.table.labels]
        keys = list(zip(t.table.attributes, t.table.labels, strict=True))
        for key, name, ids, texts, heading in zip(keys, dimensions, codes, t.texts, t.headings, strict=True):
            if key not in lists:  # two measures may have different statistics
                known = [one for one, *_ in lists.values()]
                lists[key] = (_sdmx_ids([*known, f"CL_{name}"])[-1], ids, texts, heading)
        structures.append(
            _sdmx_structure(
                agency,
                flow,
                t,
                [(d, lists[key][0]) for d, key in zip(dimensions, keys, strict=True)],
                period=bool(period),
                flags=bool(told.flags),
            )
        )
        head = ["STRUCTURE", "STRUCTURE_ID", "ACTION", *dimensions, *(["TIME_PERIOD"] if period else []), "OBS_VALUE"]
        head += [*_ATTRIBUTES, "OBS_STATUS", *(["FLAG"] if told.flags else [])]
        rows: list[list[Any]] = [head]
        for cell, row in zip(itertools.product(*codes), t.frame.rows(), strict=True):
            values = [row[n] for n in NUMBERS]
            flag = row.get("flag", "")
            # U of the code list OBS_STATUS: low reliability; M: missing
            status = "M" if values[0] is None else "U" if flag else "A"
            line = ["dataflow", f"{agency}:{flow}(1.0)", "I", *cell, *([period] if period else []), *values, status]
            rows.append([*line, *([flag] if told.flags else [])])
        write_office_text(files, f"sdmx/{t.stem}.csv", csv_text(rows))
    write_office_text(files, "sdmx/structures.xml", _sdmx_message(agency, list(lists.values()), structures, files))


def _sdmx_names(name: str) -> str:
    return f'<com:Name xml:lang="{page_language()}">{escape(printable(name))}</com:Name>'


def _sdmx_structure(
    agency: str, flow: str, t: WrittenTable, dimensions: list[tuple[str, str]], *, period: bool, flags: bool
) -> tuple[str, str, str]:
    """The concepts of a table, its data structure and its dataflow."""
    scheme = f'maintainableParentID="CS_{flow}" maintainableParentVersion="1.0" agencyID="{agency}"'
    concept = f'<Ref id="{{}}" {scheme} class="Concept" package="conceptscheme"/>'

    def identity(name: str) -> str:
        return f"<str:ConceptIdentity>{concept.format(name)}</str:ConceptIdentity>"

    def listed(code_list: str) -> str:
        ref = f'<Ref id="{code_list}" version="1.0" agencyID="{agency}" class="Codelist" package="codelist"/>'
        return f"<str:LocalRepresentation><str:Enumeration>{ref}</str:Enumeration></str:LocalRepresentation>"

    def typed(kind: str) -> str:
        return f'<str:LocalRepresentation><str:TextFormat textType="{kind}"/></str:LocalRepresentation>'

    parts = [
        f'<str:Dimension id="{d}" position="{i}">{identity(d)}{listed(code_list)}</str:Dimension>'
        for i, (d, code_list) in enumerate(dimensions, 1)
    ]
    if period:
        time = f'<str:TimeDimension id="TIME_PERIOD" position="{len(dimensions) + 1}">{identity("TIME_PERIOD")}'
        parts.append(f"{time}{typed('ObservationalTimePeriod')}</str:TimeDimension>")
    kinds = {**_ATTRIBUTES, "OBS_STATUS": "String"} | ({"FLAG": "String"} if flags else {})
    attributes = "".join(
        f'<str:Attribute id="{a}" assignmentStatus="Conditional">{identity(a)}{typed(kind)}<str:AttributeRelationship>'
        '<str:PrimaryMeasure><Ref id="OBS_VALUE"/></str:PrimaryMeasure></str:AttributeRelationship></str:Attribute>'
        for a, kind in kinds.items()
    )
    measure = f'<str:PrimaryMeasure id="OBS_VALUE">{identity("OBS_VALUE")}{typed("Double")}</str:PrimaryMeasure>'
    made = {d: h for (d, _), h in zip(dimensions, t.headings, strict=True)}
    made |= {"OBS_VALUE": say_words("Answer")} | ({"TIME_PERIOD": say_words("Period")} if period else {})
    called = {
        "STANDARD_ERROR": say_words("Standard error"),
        "LOW": say_words("Low"),
        "HIGH": say_words("High"),
        "RELATIVE_STANDARD_ERROR": say_words("Relative standard error"),
        "OBS_STATUS": say_words("Observation status"),
        "FLAG": say_words("Flag"),
    }
    made |= {a: called[a] for a in kinds}
    concepts = "".join(f'<str:Concept id="{c}">{_sdmx_names(n)}</str:Concept>' for c, n in made.items())
    own = f'agencyID="{agency}" version="1.0"'
    return (
        f'<str:ConceptScheme id="CS_{flow}" {own}>{_sdmx_names(t.title)}{concepts}</str:ConceptScheme>',
        f'<str:DataStructure id="DSD_{flow}" {own}>{_sdmx_names(t.title)}<str:DataStructureComponents>'
        f'<str:DimensionList id="DimensionDescriptor">{"".join(parts)}</str:DimensionList>'
        f'<str:AttributeList id="AttributeDescriptor">{attributes}</str:AttributeList>'
        f'<str:MeasureList id="MeasureDescriptor">{measure}</str:MeasureList>'
        "</str:DataStructureComponents></str:DataStructure>",
        f'<str:Dataflow id="{flow}" {own}>{_sdmx_names(t.title)}<str:Structure><Ref id="DSD_{flow}" version="1.0" '
        f'agencyID="{agency}" class="DataStructure"/></str:Structure></str:Dataflow>',
    )


def _sdmx_message(
    agency: str,
    lists: list[tuple[str, list[str], Sequence[str], str]],
    structures: list[tuple[str, str, str]],
    files: OfficeFiles,
) -> str:
    """The message with all code lists, concepts, structures and flows."""
    own = f'agencyID="{agency}" version="1.0"'
    codes = "".join(
        f'<str:Codelist id="{name}" {own}>{_sdmx_names(heading)}'
        + "".join(f"<str:Code id={quoteattr(i)}>{_sdmx_names(t)}</str:Code>" for i, t in zip(ids, texts, strict=True))
        + "</str:Codelist>"
        for name, ids, texts, heading in lists
    )
    concepts, made, flows = ("".join(part[i] for part in structures) for i in range(3))
    held = {"Dataflows": flows, "Codelists": codes, "Concepts": concepts, "DataStructures": made}
    # a release of totals and named counts has no table, and none of these may be there without what it lists
    listed = "".join(f"<str:{name}>{text}</str:{name}>" for name, text in held.items() if text)
    spaces = f'xmlns:mes="{_SDMX}/message" xmlns:str="{_SDMX}/structure" xmlns:com="{_SDMX}/common"'
    when = files.release.provenance.created
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<mes:Structure {spaces}><mes:Header><mes:ID>SFUMATO</mes:ID>'
        f"<mes:Test>false</mes:Test><mes:Prepared>{escape(when)}</mes:Prepared>"
        f'<mes:Sender id="{agency}"/></mes:Header><mes:Structures>{listed}</mes:Structures></mes:Structure>\n'
    )
