"""What a stored document may hold, field by field: the third of a stranger's check about form.

A release, a plan, a sketch or a stream is a zip of document.json and plain arrays. FORMS has a line for every class
that document.json may name: its fields in the order in which they are stored, and of what each one is. `documents`
refuses everything else: a field that is unknown, missing, twice there or in another place, a number of another type,
a fraction that is not in lowest terms, an array of another type, one that is nowhere named or named twice.

Nothing is imported but numpy and the standard library. `check_release.py`, beside it, prices what has this form, and
the library itself reads nothing that has not. To add a field, add it to its line.
"""

import json
import math
import re
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

Arrays = Mapping[str, "np.ndarray[Any, Any]"]

# int, size (from 1 on), count (from 0 on), ratio (an exact fraction), float (finite), real (or infinite), bool, none,
# text, 'one text', [list of these], {map of these:to those}, dtype*axes (an array; dtype* of any number of axes), a
# class, any of these|or these. A field with ? was added later: it is missing where it says nothing.
SETS = """
Operator AllRange|CellSums|Compose|Dense|Grouping|Identity|Kronecker|OnMarginal|Padded|Prefix|Residual|Scaled|Sparse
    |Stack|Sum|Toeplitz|Total|Tree|Window
Map AlikeMap|DenseMap|KroneckerMap|MergedMap|MultipleMap|RangesMap|SparseMap|StackMap|ToeplitzMap|TotalMap
Strategy Allowed|Biased|Canonical|Compound|Merged|MomentTables|Moments|Orbits|PairResiduals|Product|Residuals|Sliced
    |Spectral|Spine|Stacked|WeightedTables
Factor Buffered|Cells|Contrasts|Matrix|Roots|TotalOnly|TreeSums
Attribute Bins|Booleans|Categories|Dates|Hierarchy|Integers|Measure
Rule Amounts|Codes|Days|Edges|Kinds|Truths|Wholes
Noise DiscreteGaussian|DiscreteLaplace|RoundedGaussian
Event ApproxEvent|ApproxGaussianEvent|BoundedRangeEvent|GaussianEvent|PureEvent|ZcdpEvent
KeyMap Buckets|Listed|Signs
Course BoostingCourse|MwemCourse
Possible AdaptedTables|CellCounts|Medians|PairMoments|PlacedCounts|RecordCounts|TableCounts|ValueCounts
"""
FORMS = """
Adapted sizes:[size] pairs:{[count]:float64*2} total:float weights:{text:float} predicted:{text:float} penalty:float
    restored:float noise:float models:[FittedModel] agreeing?:float triples?:{[count]:float64*3} zeros?:Zeros
AdaptedTables attributes:[text] adapted:Adapted
AlikeMap n:size own:int other:int
AllRange n:size
Allowed measured:Strategy names:[text] shape:[int] tied:[Tied] zeros:[Block]
Alone part:text order:count unit:text rmse:float|none
Amounts kind:text outside:'other'|'clamp' missing:'other' edition?:size low:float high:float knots?:[float] column?:text
ApproxEvent epsilon:ratio delta:ratio
ApproxGaussianEvent mu_squared:ratio delta:ratio
Axis cells:int64*1 orbits:int64*1 contrasts:[Contrast]
Biased measured:Product answered:[Block] reconstructions:[float64*] offsets:[float64*] limit:int
Bins outside:'other'|'clamp'|'drop'|none missing:'other'|'drop'|none edition?:size edges:[int|float]
    levels:[[text|int|float|[int|float]]]
Block groups:[[text]] factors:[Operator]
BlockMap groups:[[text]] factors:[Map]
Booleans outside:'other'|'clamp'|'drop'|none missing:'other'|'drop'|none edition?:size
BoostingCourse rounds:size samples:size selection:BoundedRangeEvent measurement:Event floor:count ceiling:count
    total_known:bool
BoundedRangeEvent epsilon:ratio
Buckets width:size coefficients:uint64*1
Budget kind:'pure'|'approx'|'zcdp'|'gdp' parameter:ratio delta:ratio|none thresholds?:ratio
Buffered operator:Toeplitz buffers:Buffers
Buffers poles:float64* zeros:float64*
Candidate mechanism:text strategy:text rmse:float|none max_standard_error:float|none note:text value:float|none
Candidates blocks:[Block|BlockMap] estimates:int64* weights:int64* penalties:int64*
Canonical attribute:text tree:Tree multiple:size
Categories outside:'other'|'clamp'|'drop'|none missing:'other'|'drop'|none edition?:size
    values:{text:text} case?:'exact'|'ignore' trim?:bool discover?:ratio most?:size
    prefixes?:[[text|size]] columns?:[text]
CellCounts attributes:[text] values:float64*
CellSums n:size cells:size
Cells n:size
Certificate method:'apart'|'cells'|'pairs'|'joined'|'classes'|'cliques'|'products' classes:[int] cliques:[[[count]]]
    products:Products|none
Codes kind:text outside:'other'|'clamp'|'drop'|none missing:'other'|'drop'|none edition?:size
    codes:[text] cells?:[count] trim?:bool ignore_case?:bool prefixes?:[text] prefix_cells?:[count]
    columns?:[text]
Combination blocks:[Block] matrix:int64*2
CombinationMap blocks:[BlockMap] matrix:int64*2
Compose left:Operator right:Operator
Compound measured:Strategy names:[text] attributes:[[text]] sizes:[[int]]
Contrast children:int64*1 parents:int64*1 count:size size:size orbit:int
Contrasts operator:Operator divisor:float
CoursePlan workload:Workload budget:Budget unit:PrivacyUnit mechanism:text price:Event course:Course
    records:count|none rmse:float|none notes:[text] considered:[Candidate]
Dates outside:'other'|'clamp'|'drop'|none missing:'other'|'drop'|none edition?:size
    low:text high:text by:'day'|'week'|'month'|'quarter'|'year' format:text starts?:[text]
Days kind:text outside:'other'|'clamp'|'drop'|none missing:'other'|'drop'|none edition?:size edges:[size] format:text
Dense matrix:int64*2|float64*2
DenseMap matrix:int64*2
DiscreteGaussian sigma:ratio
DiscreteLaplace scale:ratio
Domain attributes:{text:Attribute} impossible?:[text]
Edges kind:text outside:'other'|'clamp'|'drop'|none missing:'other'|'drop'|none edition?:size
    edges:[int|float]
Epochs count:size epsilon:ratio sensitivity:int
Expected labels:size rmse:float|none largest:float
Family names:[text] factors:[Operator] sets:int32*2 multiples:int64*1|none
FamilyMap names:[text] factors:[Map] sets:int32*2 multiples:int64*1|none
FittedModel shares:float64* forest:Forest mixture:Mixture
Forecast body:text queries:count raw:float width:float|none square:float lever:float span:float|none
    records:count|none
Forest shares:float64* edges:[[int]] tables:[float64*]
GaussianEvent mu_squared:ratio
Grid names:[text] rules:[Rule] moves?:[Moves]
Group names:[text] axes:[Axis] pieces:[Measured]
Grouping codes:int64*1 groups:size
Hierarchy outside:'other'|'clamp'|'drop'|none missing:'other'|'drop'|none edition?:size source:[[text]]
    levels:[text]|none
    code_labels:[[text|[[text]]]] beginnings?:[[text]] columns?:[text]
HistogramOpening keys:Keys unit:PrivacyUnit noise:Noise price:Event about:any salt:text digest:text ledger_id:text
    name:text plan_hash:text
HistogramPlan keys:Keys budget:Budget unit:PrivacyUnit price:Event noise:Noise
Identity n:size
IntegerFilter decays:int64*2 shift:int runs:int64*1 rows:int64*1 direct:int64*1 carried:int64*2
Integers outside:'other'|'clamp'|'drop'|none missing:'other'|'drop'|none edition?:size
    low:int high:int width:size
    levels:[[text|int|float|[int|float]]]
KeyCandidate mechanism:text error:float|none note:text
KeyMeasurement map:KeyMap values:int64*1 noise:Noise heavy:uint64*1 heavy_counts:int64*1 heavy_texts?:[text]
KeyPlan keys:Keys budget:Budget unit:PrivacyUnit mechanism:text map:KeyMap noise:Noise price:Event
    stability:Stability|none records:count|none size:float considered:[KeyCandidate]
KeyQuestion elements:uint64*1 estimate:int penalty:int
Keys column:text kind:text point:size|none
Kinds kind:text outside:'other'|'clamp'|'drop'|none missing:'other'|'drop'|none edition?:size format?:text
Knock purpose:text count:size price:Event
Known axes:[int] counts:float64*
KnownGroups axis:count codes:int64*1 counts:float64*
Kronecker factors:[Operator]
KroneckerMap parts:[Map]
LabelLook attribute:text trim:bool most:size selection:LabelSelection price:ApproxGaussianEvent letters?:size
    columns?:[text]
LabelPlan workload:Workload budget:Budget unit:PrivacyUnit mechanism:text objective:text price:ApproxGaussianEvent
    looks:[LabelLook] expected:[Expected] records:count|none notes:[text] considered:[Candidate]
LabelSelection noise:RoundedGaussian weight:size per_person:size threshold:size delta:ratio
    before?:[[size|ratio]] times?:size
LabelsFound plan:text price:ApproxGaussianEvent looks:[LabelLook]
Listed elements:uint64*1
LocalCandidate reporter:text labels:count rmse:float note:text
LocalPlan workload:Workload epsilon:ratio records:int reporter:text questions:Questions bound:float|none
    considered:[LocalCandidate]
LocalRelease plan:LocalPlan tally:int64*
Matrix operator:Operator divisor:float
Measure outside:'other'|'clamp' missing:'other' edition?:size low:int|float high:int|float
    knots?:[int|float] column?:text
Measured kinds:[int] matrix:int64*2 beyond:float64* rows?:Sparse
Measurement blocks:[Block|Family|Combination] values:[int64*1] noise:Noise total:count|none cut?:int
Medians members:[CellCounts]
Merged measured:Combination sizes:[int] public_total:bool title:text
MergedMap map:Map codes:int64*1
Misses blocks:[Block|BlockMap] estimates:int64* floor:count ceiling:count
MomentPart attributes:[text] matrix:int64*2
MomentTables sizes:{text:size} measures:[text] parts:[MomentPart] public_total:bool merged?:{text:int64*1}
    cells?:int64*1
Moments sizes:{text:size} measures:[text] parts:[MomentPart] public_total:bool merged?:{text:int64*1} cells?:int64*1
Mixture weights:float64* shares:float64*
ModelRelease plan:CoursePlan measurement:[Measurement|Selection] model:Possible provenance:Provenance part:text|none
    gap?:float
Moves axes:[int] cells:int64*1
MultipleMap map:Map factor:int
MwemCourse rounds:size whole:bool selection:BoundedRangeEvent measurement:Event total_known:bool
Neighbours value:'add-remove'|'replace-one'
OnMarginal sizes:[int] axes:[int] operator:Operator
Opening terms:Terms price:Event about:any holder:text digest:text ledger_id:text name:text plan_hash:text
Orbits groups:[Group] public_total:bool gap?:float
Padded operator:Operator extra:count
PairMoments attributes:[text] values:float64*
PairResiduals names:[text] shape:[int] sets:[int32*2] multiples:[int64*1] contrasts:[Operator|none] known:[Known]
Periods count:size per_person:size apart:size ask?:[[text|float]] objective?:text anytime?:bool promised?:bool
PlacedCounts place:text cells:count levels:[Operator] attributes:[text] sizes:[int] unit:int32*1 cell:int64*1
    count:float64*
Plan workload:Workload budget:Budget unit:PrivacyUnit mechanism:text objective:text strategy:Strategy noise:Noise
    price:Event sensitivity:Sensitivity bound:float|none records:count|none notes:[text] considered:[Candidate]
    body:text|none forecast:Forecast|none alone?:[Alone] cut?:count found?:LabelsFound
Prefix n:size
PrivacyUnit neighbours:Neighbours person:text|none rows_per_person:size within?:Within once_per?:[text]
    rows_per_group?:size
Product groups:[[text]] sizes:[[int]] factors:[Factor] multiple:size public_total:bool raw:Block|none
    reconstruction:float64*|none bias:float|int title:text
Products units:[int] costs:[int] shift:int
Profile plan:ProfilePlan looks:[ProfileLook] labels:{text:[text]} label_looks:[LabelLook] provenance:Provenance
ProfileLook grid:Grid measured:Measurement
ProfilePlan names:[text] types:[text] formats:{text:text} budget:Budget unit:PrivacyUnit mechanism:text price:Event
    pairs:ratio records:size whole:bool unlabelled:text share_error:float rank_error:float|none label_count:count|none
    pair_value:float|none
Projection answers:float64* possible:Possible gap:real certified:bool moved:float iterations:count body:text
    realisable:bool rounded:float|none norm:text rungs?:[Rung] left_out?:[text]
Provenance name:text ledger_id:text sequence:count anchor:text one_shot:bool created:text versions:[[text]]
    snapshot:text|none table?:text features?:[[text]]
Published label:text values:[int64*1] total:count|none
PureEvent epsilon:ratio
QueryBlock part:text block:Block weight:ratio unit:text labels:[[text]|none]
QueryFamily part:text family:Family weight:ratio
Questions table:uint16*2 labels:size counts:int64*1
RangesMap first:int64*1 last:int64*1 n:size
RecordCounts attributes:[text] sizes:[int] codes:int32*2 weights:float64*
Release plan:Plan measurement:Measurement provenance:Provenance part:text|none projection:Projection|none
Residual n:size
Residuals names:[text] shape:[int] sets:[int32*2] multiples:[int64*1] contrasts:[Operator|none] known:[Known]
Roots operator:Toeplitz
RoundedGaussian sigma:ratio
Rung name:text queries:count moved:float gap:float
Scaled operator:Operator factor:int|float
Selection chosen:count among:count
Sensitivity power:size value:int exact:bool
SessionPlan domain:Domain budget:Budget unit:PrivacyUnit price:Event terms:Terms threshold:count records:int
    questions:int beta:float span:count alpha:int|none growing:bool
Signs size:size coefficients:uint64*2
SketchRelease plan:KeyPlan measurement:KeyMeasurement provenance:Provenance
Sliced names:[text] shape:[int] axis:count vectors:int64*2 matrices:[int64*2]
Source table:text decimal:text thousands:text encoding:text delimiter:text|none sheet:text|none
Sparse data:int64*1|float64* indices:int64*1 indptr:int64*1 columns:size
SparseMap data:int64*1 indices:int64*1 indptr:int64*1 n:size
SparsePlan keys:Keys budget:Budget unit:PrivacyUnit price:Event terms:Terms threshold:count records:int size:size
    questions:int beta:float alpha:int|none
Source table:text decimal:text thousands:text encoding:text delimiter:text|none sheet:text|none
Spectral names:[text] vectors:[int64*2] ends:[[int]] multiples:int64*
Spine names:[text] shape:[int] place:count levels:[Operator] at:[int] sets:[[int]] multiples:[int] residual:bool
    public_total:bool known?:[KnownGroups]
Stability noise:DiscreteLaplace|RoundedGaussian threshold:count
Stack parts:[Operator]
StackMap parts:[Map]
Stacked pieces:[Strategy] title:text largest?:bool
Step question:Candidates|KeyQuestion|Misses answer:int|none above:bool
StepOpening plan_hash:text ledger_id:text name:text price:Event
StreamOpening terms:StreamTerms unit:PrivacyUnit price:Event about:any holder:text ledger_id:text name:text
    plan_hash:text names?:count people?:count
StreamPlan workload:Workload budget:Budget unit:PrivacyUnit mechanism:text objective:text strategy:Residuals
    terms:StreamTerms price:Event periods:Periods bound:float|none records:count|none notes:[text]
    considered:[Candidate] worst_bound?:float|none
StreamRelease plan:StreamPlan published:[Published] provenance:Provenance
StreamTerms filter:IntegerFilter|WindowFilter families:[FamilyMap] grain:int noise:RoundedGaussian participations:size
    apart:size most:size certificate:Certificate|none enforced?:bool cut?:count total?:WindowFilter|none
Sum parts:[Operator]
TableCounts attributes:[[text]] values:[float64*]
Terms epochs:Epochs answer:Noise|none move:count
Tied attributes:[text] allowed:bool*
Toeplitz coefficients:int64*1 multiples:int64*1 columns?:int64*1
ToeplitzMap coefficients:int64*1 multiples:int64*1 column_multiples?:int64*1
Total n:size
TotalMap n:size
TotalOnly n:size
Tree n:size branching:size root:bool
TreeSums tree:Tree
Truths kind:text outside:'other'|'clamp'|'drop'|none missing:'other'|'drop'|none edition?:size
ValueCounts held:Possible measures:[text] values:[float64*1] shares:[float64*2]
WeightedTables names:[text] factors:[Factor] sets:[[int]] multiples:[int] public_total:bool
Wholes kind:text outside:'other'|'clamp'|'drop'|none missing:'other'|'drop'|none edition?:size
    low:int high:int width:size
Window n:size width:size
WindowFilter runs:int64*1 taps:int64*2
Within name:text attribute:text digest:text codes:int64*1|none
Workload domain:Domain items:[QueryBlock|QueryFamily]
ZcdpEvent rho:ratio
Zeros names:[text] sizes:[int] tied:[Tied]
"""


def _parse_form_table(text: str) -> dict[str, str]:
    lines = re.sub(r"\n +", lambda _: " ", text).replace(" |", "|").strip().split("\n")
    return {name: rest for name, _, rest in (line.partition(" ") for line in lines)}


_SETS = _parse_form_table(SETS)
_FORMS = {name: [f.split(":", 1) for f in line.split()] for name, line in _parse_form_table(FORMS).items()}
_LARGE = 2**1024  # from there on whole numbers are stored as hexadecimal text
_DEEPEST = 100  # lists and documents in each other; honest ones are some twenty deep


class Malformed(ValueError):
    """A document that says something in another way than it is written, or something that is not known."""


@cache
def _split_alternatives(form: str) -> tuple[str, ...]:
    """The alternatives of a form, sets of classes written out."""
    depth, found = 0, [""]
    for letter in form:
        depth += (letter in "[{") - (letter in "]}")
        if letter == "|" and not depth:
            found.append("")
        else:
            found[-1] += letter
    return tuple(name for f in found for name in (_SETS[f].split("|") if f in _SETS else [f]))


def parse_strict_json(text: bytes | bytearray | str) -> Any:
    """JSON, in which no name stands twice in one place, and all numbers are numbers."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise Malformed("a name stands twice in one place")
        return found

    def none(text: str) -> None:
        raise Malformed(f"{text} is no number")

    return json.loads(text, object_pairs_hook=once, parse_constant=none)


class _FormReader:
    """One document, held against the table; every array is used once."""

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = dict(arrays)

    def holds(self, value: Any, form: str, where: str, depth: int) -> None:
        """Raise Malformed unless a value is one of the alternatives of a form."""
        if depth > _DEEPEST:
            raise Malformed(f"{where} is nested too deeply")
        alternatives = _split_alternatives(form)
        if "any" in alternatives:
            self.anything(value, where, depth)
        elif type(value) is list:
            self.inside([f[1:-1] for f in alternatives if f[0] == "["], value, form, where, depth)
        elif type(value) is dict and value.keys() == {"~map"}:
            pairs = value["~map"]
            kinds = [f[1:-1] for f in alternatives if f[0] == "{"]
            if not kinds or type(pairs) is not list or not all(type(p) is list and len(p) == 2 for p in pairs):
                raise Malformed(f"{where} is no {form}")
            if len({json.dumps(key, sort_keys=True) for key, _ in pairs}) != len(pairs):
                raise Malformed(f"{where} holds a key twice")
            of, _, to = kinds[0].partition(":")
            for key, held in pairs:
                self.holds(key, of, f"a key of {where}", depth + 1)
                self.holds(held, to, f"{where}.{str(key)[:40]}", depth + 1)
        elif type(value) is dict and "~class" in value:
            name = value["~class"]
            if name not in alternatives:
                raise Malformed(f"{where} is a {str(name)[:40]}, and no {form}")
            self.fields(name, value, where, depth)
        elif not {*self.kinds(value, where)} & {*alternatives}:
            raise Malformed(f"{where} is no {form}")

    def fields(self, name: str, value: dict[str, Any], where: str, depth: int) -> None:
        own = _FORMS[name]
        told = ["~class", *(f.rstrip("?") for f, _ in own if f[-1] != "?" or f[:-1] in value)]
        if [*value] != told:
            odd = {*told} ^ {*value}
            raise Malformed(f"{where} is a {name} with other fields: {', '.join(sorted(odd)) or 'in another order'}")
        for f, form in own:
            if f.rstrip("?") in value:
                self.holds(value[f.rstrip("?")], form, f"{where}.{f.rstrip('?')}", depth + 1)

    def inside(self, kinds: list[str], values: list[Any], form: str, where: str, depth: int) -> None:
        if not kinds:
            raise Malformed(f"{where} is a list, and no {form}")
        for i, value in enumerate(values):
            self.holds(value, kinds[0], f"{where}[{i}]", depth + 1)

    def anything(self, value: Any, where: str, depth: int) -> None:
        """What may be of any known class is of its form still."""
        if type(value) is dict and "~class" in value:
            name = str(value["~class"])
            if name not in _FORMS:
                raise Malformed(f"{where} is a {name[:40]!r} that this version does not know")
            self.holds(value, name, where, depth + 1)
        elif type(value) is dict and value.keys() == {"~map"}:
            self.holds(value, "{any:any}", where, depth + 1)
        elif type(value) is list:
            self.holds(value, "[any]", where, depth + 1)
        elif not self.kinds(value, where):
            raise Malformed(f"{where} is nothing that is stored")

    def kinds(self, value: Any, where: str) -> tuple[str, ...]:
        """All that a single value is."""
        if value is None:
            return ("none",)
        if type(value) is bool:
            return ("bool",)
        if type(value) is str:
            return "text", f"'{value}'"
        if type(value) is float:
            return ("float", "real") if math.isfinite(value) else ()
        if type(value) is int or (type(value) is dict and value.keys() == {"~integer"}):
            n = whole(value)
            return ("int", *(["count"] if n >= 0 else []), *(["size"] if n >= 1 else []))
        if type(value) is dict and value.keys() == {"~fraction"}:
            read_stored_fraction(value)
            return ("ratio",)
        if type(value) is dict and value.keys() == {"~float"}:
            return ("real",) if value["~float"] in ("inf", "-inf") else ()
        if type(value) is dict and value.keys() == {"~array"} and type(value["~array"]) is str:
            array = self.arrays.pop(value["~array"], None)
            if array is None:
                raise Malformed(
                    f"{where} names the array {value['~array'][:40]}, which is not there or stands elsewhere"
                )
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise Malformed(f"{where} holds numbers that are none")
            name = array.dtype.name
            return (f"{name}*", f"{name}*{array.ndim}") if array.dtype.str[0] in "<|" else ()
        return ()


def whole(value: Any) -> int:
    """A whole number as it is stored. Raises Malformed for anything else."""
    if isinstance(value, dict) and value.keys() == {"~integer"} and type(value["~integer"]) is str:
        text = value["~integer"]
        if len(text) <= 2**14 and re.fullmatch("-?0x[1-9a-f][0-9a-f]*", text) and abs(int(text, 16)) >= _LARGE:
            return int(text, 16)
    elif type(value) is int and abs(value) < _LARGE:
        return value
    raise Malformed(f"{str(value)[:40]} is no whole number as they are stored, of at most 16,384 digits")


def read_stored_fraction(value: Any) -> Fraction:
    """An exact number as it is stored: a whole number, or a fraction in lowest terms. Raises Malformed."""
    if not isinstance(value, dict) or value.keys() != {"~fraction"}:
        return Fraction(whole(value))
    pair = value["~fraction"]
    if type(pair) is list and len(pair) == 2:
        a, b = map(whole, pair)
        if b >= 1 and math.gcd(a, b) == 1:
            return Fraction(a, b)
    raise Malformed(f"{str(pair)[:40]} is no fraction in lowest terms")


def check_document_forms(tree: Any, arrays: Arrays) -> None:
    """Raise Malformed unless a stored document and its arrays have the form of their classes, and nothing is left."""
    reader = _FormReader(arrays)
    reader.holds(tree, "any", "the document", 0)
    if reader.arrays:
        raise Malformed(f"nothing names the arrays {', '.join(sorted(reader.arrays))[:80]}")
