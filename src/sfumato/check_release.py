"""A stranger's check of a release: what its noise costs, derived anew from its own files and the ledger that paid.

    python check_release.py DIR --ledger LEDGER [--anchor ANCHOR] [--earlier RELEASE] [--json]

It imports numpy and the standard library, and of sfumato the two files beside it alone: `check_forms.py`, what a
document may hold, and `check_maps.py`, what was measured and how far one record moves it. DIR is the folder of a
release or of a description, or the file of a sketch or of a stream.
Exit code 0: accepted. 2: rejected, with every reason; or not checked, with what these files have no way to check.
PROVED, if the values are B x + z, x the counts (of a stream what its filter makes of them), B the stored maps, z draws
of the stored law, independent: the release keeps the guarantee of its ledger line. By the names of the checks:
  forms  every field of every document is known and of its type, every number exact
  maps   those of the plan's strategy are those of the values
  total  a number of records is public only where it may
  price  this noise costs, at the sensitivity found here in integers, at most the price, and that keeps the budget
  looks  no more was chosen or measured than was paid for
  files  no file was changed, and release.json says what the release holds: its words on privacy follow from the price
  chain  the ledger's lines hash on from each other, add up, and each costs at least what its event does
  anchor the ledger goes on from the line that was kept elsewhere
  entry  the ledger's line is of this plan, price and name, and its result is these values and no others
  unit   neighbours, person, rows and table are those of the ledger's line
  earlier  a stream goes on from the periods of a release that was made before
TRUSTED, as no file shows it: that samplers draw the law; that rows were counted under the declared domain and limits;
that what is called public is; that choices among candidates were made at their price; that answers, predicted errors,
models, notes and pages follow from the values and the plan; of a stream what is printed as believed. A ledger made
anew as a whole is found by an anchor kept elsewhere, or not at all.
"""

import argparse
import json
import math
import re
import sqlite3
import sys
import zipfile
from collections.abc import Callable
from contextlib import closing
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cache
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

if __package__:
    from sfumato import check_forms as forms
    from sfumato import check_maps as maps
else:  # by itself, with the others beside it
    import check_forms as forms  # pyright: ignore[reportMissingImports]
    import check_maps as maps  # pyright: ignore[reportMissingImports]

Cannot, number, fingerprint = maps.Cannot, forms.read_stored_fraction, maps.document_fingerprint
LAWS = {"RoundedGaussian": ("gaussian", 2, 1), "DiscreteGaussian": ("zcdp", 2, 2), "DiscreteLaplace": ("pure", 1, 1)}
CURRENCY = {"pure": "epsilon", "zcdp": "rho", "gaussian": "mu^2", "gdp": "mu^2"}  # in which events and budgets add up
HASHED = (  # of plans
    "names types formats workload keys budget unit mechanism strategy map noise terms price pairs stability course "
    "body periods cut found whole unlabelled"
)
BROKEN = (ArithmeticError, AttributeError, LookupError, MemoryError, OSError, RecursionError, StopIteration, TypeError,
    ValueError, sqlite3.Error, zipfile.BadZipFile)  # fmt: skip
NAMED = {"pure": "epsilon", "approx": "epsilon", "zcdp": "rho", "gdp": "mu"}  # the parameter of a budget
RATIO = re.compile(r"(0|[1-9][0-9]*)(/[1-9][0-9]*)?", re.ASCII)
SAMPLER = "exact integer law from the operating system's generator; no seed"
TRUST = "central: the custodian holds the table"
FACTS = "format name created privacy mechanism error hashes workload ledger snapshot post_processing versions files"
PROFILED = "format name created privacy hashes ledger table snapshot versions expected records columns pairs"
MORE = "table features impossible cautions other cut_persons projection model_gap"  # what release.json may have besides
ROOT = Decimal("2.50662827463100050241576528481104525300698674060993831662992357634229365460784197494659583837806")
SLACK = Decimal("1e-85")  # far more than arithmetic of 110 digits, and this root of 2 pi, are wrong by


def read_release_document(
    path: Path,
) -> Any:  # a stored document, a zip of JSON and plain arrays, the arrays in place of their names
    with zipfile.ZipFile(path) as bundle:
        members = bundle.namelist()
        text, names = bundle.read("document.json"), [n for n in members if n.endswith(".npy")]
        arrays: dict[str, Any] = {n[:-4]: np.lib.format.read_array(bundle.open(n), allow_pickle=False) for n in names}
    if sorted(members) != sorted({"document.json", *names}):
        raise forms.Malformed("a zip holds a part twice, or one that is no array")
    tree = forms.parse_strict_json(text)
    if type(tree) is dict and "~outside" in tree:  # values too many for memory lie beside
        for key, name in tree["~outside"].items():
            if (
                tree.keys() != {"~outside", "value"}
                or key in arrays
                or not re.fullmatch(r"values-[0-9]{1,6}\.npy", name)
            ):
                raise forms.Malformed("values lie in a foreign file")
            arrays[key] = np.load(path.parent / name, mmap_mode="r", allow_pickle=False)
        tree = tree["value"]
    forms.check_document_forms(tree, arrays)

    return build_document(tree, arrays)


def build_document(v: Any, arrays: Any = None) -> Any:  # documents in which .name is what stands under a name
    if type(v) is list:
        return [build_document(item, arrays) for item in v]
    if type(v) is not dict:
        return v
    return (
        arrays[v["~array"]] if "~array" in v else maps.Doc({k: build_document(item, arrays) for k, item in v.items()})
    )


def parse_exact_fraction(text: str) -> Fraction:  # as ledgers and release.json write it: one text for every number
    if not RATIO.fullmatch(text) or str(Fraction(text)) != text:
        raise forms.Malformed(f"{text[:40]} is no exact number as they are written")
    return Fraction(text)


def stored_event_text(doc: Any) -> str:  # a stored event as ledgers write it
    kind = re.sub("(?<=[a-z])(?=[A-Z])", "-", doc.kind.removesuffix("Event")).lower()
    return " ".join([kind, *(str(number(v)) for k, v in doc.items() if k != "~class")])


def fraction_to_decimal(x: Fraction) -> Decimal:
    return Decimal(x.numerator) / x.denominator


def normal_tail(x: Decimal) -> Decimal:  # P(N > x) for a standard normal N and |x| <= 15, wrong by less than SLACK
    term = total = x
    square = x * x
    for k in range(3, 2000, 2):
        term = term * square / k
        if total + term == total:  # terms have one sign, and fall once they are this small
            break
        total += term
    return Decimal("0.5") - total * (-x * x / 2).exp() / ROOT


def parse_event_text(event: str) -> tuple[str, Fraction, Fraction]:  # the kind, its parameter, and its delta or 0
    kind, *numbers = event.split(" ")
    own = kind in ("approx", "approx-gaussian")
    known = (own or kind in ("gaussian", "pure", "zcdp", "bounded-range")) and len(numbers) == 1 + own
    e, delta = [*map(parse_exact_fraction, numbers), Fraction(0)][:2]
    if not known or e > 10**18 or (own and not 0 < delta < 1):
        raise forms.Malformed(f"{event[:60]} is no event")
    return kind, e, delta


def event_cost(
    event: str, currency: str
) -> Fraction:  # at most this where a ledger adds it up; KeyError: it has no price
    kind, e, _ = parse_event_text(event)
    if currency == "mu^2" and kind in ("pure", "bounded-range"):  # the least mu^2 of all such mechanisms, rounded up
        if e > 100:
            raise Cannot(f"an epsilon of {float(e):.3g} as mu^2")
        e = fraction_to_decimal(e if kind == "pure" else e / 2)
        low, high = Decimal(0), (8 * e).sqrt()
        for _ in range(80):
            mu = (low + high) / 2
            low, high = (low, mu) if (normal_tail(mu / 2) + SLACK) * (1 + e.exp()) <= 1 else (mu, high)
        return Fraction(high) ** 2
    known = {("epsilon", k): e for k in ("pure", "bounded-range", "approx")}
    known |= {("mu^2", k): e for k in ("gaussian", "approx-gaussian")}
    rho = {"gaussian": e / 2, "approx-gaussian": e / 2, "pure": e**2 / 2, "zcdp": e, "bounded-range": e**2 / 8}
    return rho[kind] if currency == "rho" else known[currency, kind]


def event_keeps_budget(
    event: str, stated: str, b: Fraction, delta: Fraction, aside: Fraction = Fraction(0)
) -> bool:  # whether it is as private as a budget says
    kind, e, own = parse_event_text(event)
    if stated != "approx":
        return event_cost(event, CURRENCY[stated]) <= (b * b if stated == "gdp" else b)
    if kind in ("pure", "approx"):
        return e <= b and own <= delta
    mu, eps = fraction_to_decimal(e).sqrt(), fraction_to_decimal(b)
    if own > aside:
        return False
    if kind not in ("gaussian", "approx-gaussian") or eps / mu + mu / 2 > 15:
        raise Cannot("so large an epsilon, so small a delta, or zCDP as the price of both")
    return normal_tail(eps / mu - mu / 2) + SLACK - eps.exp() * (
        normal_tail(eps / mu + mu / 2) - SLACK
    ) <= fraction_to_decimal(delta - aside)


def declared_cell_counts(plan: Any) -> dict[str, int]:  # how many cells every attribute has
    found = dict[str, int]()
    for name, a in plan.workload.domain.attributes["~map"]:
        many = a.source or {label for _, label in a.get("values", {}).get("~map", ())} or (a.edges or [0, 1, 2])[1:]
        low, high = (maps.calendar_period_number(d, a.by) if a.by else d for d in (a.low, a.high))
        measure = a.kind == "Measure"  # in whose cells records have shares
        many = (
            3 + 2 * len(a.knots or ())
            if measure
            else len(many)
            if low is None
            else -((low - high - 1) // (a.width or 1))
        )
        found[name] = many + ("other" in (a.outside, a.missing))
        if not 1 <= found[name] <= 10**7:
            raise forms.Malformed(f"{name} has {found[name]} cells")
    return found


def rule_cell_counts(grid: Any) -> dict[str, int]:  # how many cells every column has, by its rule
    found = dict[str, int]()
    for name, rule in zip(grid.names, grid.rules, strict=True):
        many = {"Kinds": 3, "Truths": 2}.get(rule.kind) or len(rule.edges or [0]) - 1
        many = many or 1 + max(rule.cells or [len(rule.codes) - 1])
        found[name] = many + ("other" in (rule.outside, rule.missing))
        if rule.kind not in ("Kinds", "Truths", "Edges", "Days", "Codes") or not 1 <= found[name] <= 10**7:
            raise Cannot(f"columns counted by {rule.kind}")
    return found


def summed(plan: Any) -> list[str]:  # the attributes in whose cells a record has shares
    return [name for name, a in plan.workload.domain.attributes["~map"] if a.kind == "Measure"]


def is_total_public(
    plan: Any, unit: Any
) -> bool:  # whether neighbours have as many records, none of which may be dropped
    drops = any("drop" in (a.outside, a.missing) for _, a in plan.workload.domain.attributes["~map"])
    return unit[0] == "replace-one" and unit[1] is None and not drops


def opposing_products_bound(blocks: Any, ops: Any) -> int:
    """Above what two records of any cells point apart: the inner products of all blocks that are negative, added up.

    One of a block is a product of one for each of its attributes. A sum of the negative parts of such products is
    convex in every one of them, so it is largest at the ends of their ranges: the same for all blocks where factors are
    few, else of every block by itself, where one alone is at its lower end.
    """
    ops = {f: ops[f[1]] for _, fs in blocks for f in fs}
    top = {f: int(max(maps.column_power_sums(op, 2))) for f, op in ops.items()}
    low = {f: -min(op.n or 0, top[f]) if op.kind == "Residual" else -top[f] for f, op in ops.items()}
    low |= {f: int(op.kind == "Total") for f, op in ops.items() if op.kind in maps.PLAIN}
    if len(ops) > 10:
        each = (
            m * m * math.prod(top[f] for f in fs) * max((Fraction(-low[f], top[f] or 1) for f in fs), default=0)
            for m, fs in blocks
        )
        return math.ceil(sum(max(0, x) for x in each))
    ends = (dict(zip(ops, some, strict=True)) for some in product(*((low[f], top[f]) for f in ops)))
    return max(sum(max(0, -m * m * math.prod(end[f] for f in fs)) for m, fs in blocks) for end in ends)


def equal_as_json(a: Any, b: Any) -> bool:  # to the type: 1, 1.0 and true are three
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def noise_variance(noise: Any) -> float:  # of one draw
    if noise.kind == "DiscreteLaplace":
        return 1 / (2 * math.sinh(1 / (2 * float(number(noise.scale)))) ** 2)
    sigma, rounded = float(number(noise.sigma)), noise.kind == "RoundedGaussian"
    if sigma > 4:
        return sigma**2 + rounded / 12
    ends = [math.erf((k - 0.5) / sigma / math.sqrt(2)) for k in range(66)]
    mass = [ends[k + 1] - ends[k] if rounded else math.exp(-((k / sigma) ** 2) / 2) for k in range(65)]
    return 2 * sum(k * k * w for k, w in enumerate(mass)) / (mass[0] + 2 * sum(mass[1:]))


def format_digits(x: Fraction, digits: int) -> str:  # rounded, as people read it
    y = Context(prec=digits, Emin=-(10**6), Emax=10**6).divide(Decimal(x.numerator), Decimal(x.denominator)).normalize()
    return (f"{y:f}" if -5 <= y.adjusted() < 12 else f"{y:e}").replace("e+", "e")


def format_fraction(x: Fraction) -> str:  # exact where that is short
    odd = x.denominator
    for p in (2, 5):
        while odd % p == 0:
            odd //= p
    if odd > 1 and x.denominator < 1000:
        return str(x) if x.numerator < 1000 else "~" + format_digits(x, 8)
    return format_digits(x, 40) if odd == 1 and Fraction(format_digits(x, 40)) == x else "~" + format_digits(x, 8)


def round_significant(x: Fraction, up: bool = False) -> Fraction:  # a decimal of 16 digits, at most x or at least x
    y = fraction_to_decimal(x)
    unit = Fraction(10) ** (y.adjusted() - 15)
    return unit * (math.ceil(x / unit) if up else math.floor(x / unit))


def fraction_square_root(x: Fraction) -> Fraction:  # at most the root, and near it
    whole = Fraction(math.isqrt(x.numerator), math.isqrt(x.denominator))
    return whole if whole * whole == x else Fraction(fraction_to_decimal(x).sqrt()) * (1 - Fraction(1, 10**30))


def export_event(event: str) -> dict[str, str]:  # an event for an outside accountant
    kind, e, delta = parse_event_text(event)
    scale = "inf"
    if e:  # of the noise for a sensitivity of 1
        scale = format_fraction(
            round_significant(
                fraction_square_root(1 / (2 * e if kind == "zcdp" else e))
                if kind in ("gaussian", "approx-gaussian", "zcdp")
                else 1 / e
            )
        )
    found = {"mechanism": kind, "sensitivity": "1", "scale": scale, "guarantee": str(e)}
    return found | ({"delta": str(delta)} if delta else {})


def log_normal_tail(x: Decimal) -> Decimal:  # log P(N > x): the continued fraction, to more digits than are shown
    if x < 4:
        return (normal_tail(x) if x > -4 else 1 - log_normal_tail(-x).exp()).ln()
    below = x
    for k in range(400, 0, -1):
        below = x + k / below
    return -x * x / 2 - (ROOT * below).ln()


def gdp_delta_at_epsilon(
    eps: Decimal, mu: Decimal
) -> Decimal:  # the delta of mu-GDP at an epsilon; for words, not for proofs
    with localcontext() as context:
        context.prec = 50
        first = log_normal_tail(
            eps / mu - mu / 2
        ).exp()  # beyond 2^16 words go without the second term, to be on the safe side
        return first if eps > 2**16 else first - (eps + log_normal_tail(eps / mu + mu / 2)).exp()


def bisect_largest(holds: Callable[[Decimal], bool]) -> Fraction:  # the largest number for which it holds, to 15 digits
    low, high = Decimal("1e-320"), Decimal(1)
    while holds(high):
        low, high = high, 2 * high
    while high - low > high * Decimal("1e-15"):
        middle = (low * high).sqrt() if high > 4 * low else (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return Fraction(low)


def zcdp_epsilon(rho: Fraction, delta: Fraction) -> Fraction:  # by any order a > 1, of which the best is taken
    def epsilon(t: float) -> float:
        x = math.exp(t)
        log = t - (1 + x) * math.log1p(-1 / (1 + x)) if t > 0 else -x * t + (1 + x) * math.log1p(x)
        return float(rho) * (1 + x) - (math.log(delta) + log) / x

    low, high = -30.0, 30.0
    best = min((low + (high - low) * i / 4000 for i in range(4001)), key=epsilon)
    low, high = best - 0.015, best + 0.015
    for _ in range(80):
        a, c = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, c) if epsilon(a) < epsilon(c) else (a, high)
    return max(Fraction(0), Fraction(epsilon((low + high) / 2)))


@cache
def budget_sentence(  # a budget in words
    kind: str, b: Fraction, delta: Fraction, aside: Fraction = Fraction(0)
) -> str:
    value, at = format_fraction(b), Fraction(1, 10**6)
    if kind == "pure":
        return f"{value}-DP (pure epsilon); Laplace scale {format_digits(1 / b, 5)} per unit of L1 sensitivity"
    if kind == "approx":
        left = fraction_to_decimal(delta - aside)
        mu = bisect_largest(lambda mu: gdp_delta_at_epsilon(fraction_to_decimal(b), mu) <= left)
        return (
            f"({value}, {format_fraction(delta)})-DP; Gaussian noise multiplier "
            f"{format_digits(1 / mu, 5)}; mu = {format_digits(mu, 5)}"
            + (f"; {format_fraction(aside)} of delta set aside for thresholds" if aside else "")
        )
    mu = b if kind == "gdp" else fraction_square_root(2 * b)
    if kind == "zcdp":
        epsilon = zcdp_epsilon(b, at)
    else:
        none = gdp_delta_at_epsilon(Decimal(0), fraction_to_decimal(mu)) <= fraction_to_decimal(at)
        epsilon = (
            Fraction(0)
            if none
            else bisect_largest(
                lambda eps: gdp_delta_at_epsilon(eps, fraction_to_decimal(mu)) > fraction_to_decimal(at)
            )
        )
    name = {"zcdp": "zCDP", "gdp": "GDP"}[kind]
    return (
        f"{value}-{name}; Gaussian noise multiplier {format_digits(1 / mu, 5)}; "
        f"({format_digits(epsilon, 5)}, {format_fraction(at)})-DP"
    )


def protection_sentence(unit: Any) -> str:  # a unit in words
    who = "one record" if unit[1] is None else f"one person (column {unit[1]!r})"
    rows = "" if unit[2] == 1 else f" with at most {unit[2]} rows"
    verb = "added or removed" if unit[0] == "add-remove" else "replaced by another"
    if len(unit) == 4:  # of each joint cell of some attributes so many
        *names, each = unit[3]
        return f"{who}{rows}, {'one' if each == 1 else f'at most {each}'} per {' and '.join(names)}, {verb}"
    return f"{who}{rows} {verb}" + (f" of the same {unit[3]}" if unit[3:] else "")


class Stop(Exception):  # what is wrong was said, and nothing else is looked at
    pass


class Check:  # of one release: what is wrong, by the name of the check, and what this file has no way to check
    def __init__(self, release: Path, ledger: Path, anchor: str | None = None, earlier: Path | None = None) -> None:
        self.wrong, self.unknown, self.believed = list[tuple[str, str]](), list[str](), list[str]()
        self.held = {"forms"}  # the checks that were made
        try:
            with localcontext(Context(prec=110, Emax=10**9, Emin=-(10**9))):
                self.release(release, ledger, anchor, earlier)
        except Stop:
            pass
        except Cannot as error:
            self.unknown.append(str(error))
        except forms.Malformed as error:
            self.wrong.append(("forms", str(error)))
        except BROKEN as error:
            self.wrong.append(("files", f"something cannot be read: {error!r}"))
        self.verdict = "rejected" if self.wrong else "not checked" if self.unknown else "accepted"

    def must(self, check: str, why: str, holds: Any) -> None:
        self.held.add(check)
        self.wrong += [] if holds else [(check, why)]

    def ledger(self, path: Path) -> Any:  # its lines, those that spend with the result they paid for, and all hashes
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as file:
            rows = file.execute("SELECT sequence, body, hash FROM lines ORDER BY sequence").fetchall()
        hashes, lines = ["sfumato ledger"], list[list[str]]()
        for n, (sequence, text, digest) in enumerate(rows):
            hashes.append(sha256(f"{hashes[-1]}\n".encode() + text).hexdigest())
            lines.append(text.decode().split("\n"))
            self.must("chain", f"line {n} breaks the chain", (sequence, digest) == (n, hashes[-1]))
        owner, granted, currency, total, _, table = lines[0]
        given = {k: parse_exact_fraction(v) for k, v in forms.parse_strict_json(granted).items()}
        kinds = {("epsilon",): "pure", ("epsilon", "delta"): "approx", ("rho",): "zcdp", ("mu",): "gdp"}
        stated = (kinds | {("epsilon", "delta", "thresholds"): "approx"})[tuple(given)]
        if not re.fullmatch("[0-9a-f]{32}", owner) or granted != json.dumps(json.loads(granted)):
            raise forms.Malformed("the ledger's first line is spelt in another way than they are")
        event, most = {"epsilon": "pure", "rho": "zcdp", "mu^2": "gaussian"}[currency], given.get("delta", Fraction(0))
        budget, aside = given[NAMED[stated]], given.get("thresholds", Fraction(0))
        fits = event_keeps_budget(f"{event} {total}", stated, budget, most, aside)
        right = "thresholds" not in given or (0 < aside < most and currency != "epsilon")
        self.must("chain", "the total is above the budget", fits and right)
        if currency != "epsilon":  # in other currencies the total has used the delta already, but for what is set aside
            most = aside
        unit, spent, delta, seen = "", Fraction(0), Fraction(0), dict[str, list[str]]()
        for n, line in enumerate(lines[1:], 1):
            if line[1] == "named":
                self.must("chain", f"line {n} names a table that has a name", not table and len(line) == 4 and line[2])
                table = line[2]
            elif line[1] == "released":
                paid = seen[line[2]]
                right = paid[:5] == [line[8], "spend", *line[2:5]] and not paid[9]
                self.must("chain", f"line {n} stores what was not paid for, or again", right)
                right = len(line) == 10 and line[5] == "0" and parse_exact_fraction(line[6]) == spent and line[9]
                self.must("chain", f"line {n} says more than that a result was stored", right)
                paid[9] = line[9]
            else:
                price, whom = parse_exact_fraction(line[5]), line[10:]
                right = line[1] == "spend" and len(line) == 12 and line[8:10] == ["0", ""]
                self.must("chain", f"line {n} is of no kind that ledgers have", right)
                spent, delta = spent + price, delta + parse_event_text(line[4])[2]
                right = (
                    line[0] == str(n)
                    and parse_exact_fraction(line[6]) == spent <= parse_exact_fraction(total)
                    and delta <= most
                )
                self.must("chain", f"line {n} does not add up, or is above the total", right)
                right = price >= max(Fraction(0), event_cost(line[4], currency)) and line[2] not in seen
                self.must("chain", f"line {n} paid less than it cost, or pays for a name again", right)
                who = json.loads(whom[0])
                whom[0] = json.dumps(who[:2] if who[1] else who)  # a price is for all rows of a person
                self.must("chain", f"line {n} is of another unit or table", whom == [unit or whom[0], table or whom[1]])
                (unit, table), seen[line[2]] = whom, line
            self.must("chain", f"line {n} has another number", line[0] == str(n))
        return lines, hashes[1:]

    def paid(self, value: int | Fraction, exact: bool, noise: Any, event: str, least: Any = 0) -> None:
        """least: what somebody changes, where the value is a bound that others may know better."""
        kind, p, times = LAWS[noise.kind]
        (given, price, _), scale = parse_event_text(event), number(noise["scale" if p == 1 else "sigma"])
        self.must("price", "there is no noise of this scale", Fraction(1, 2**10) <= scale <= 2**55)
        covered = times * scale**p * price if given == kind else Fraction(-1)
        if not exact and least <= covered < value:
            why = f"it has too many cells, or pairs of cells, to look at all, and the bound is {float(value):.6g}"
            what = "plan under add-remove, where no pairs are looked at, or with fewer attributes"
            self.unknown.append(f"a sensitivity of {float(covered):.6g}, which was paid: {why}; {what}")
        else:
            self.must("price", f"noise at sensitivity {value} costs more than was paid", value <= covered)

    def fit(self, entries: Any, ops: Any, sizes: dict[str, int]) -> list[int]:  # rows of each entry
        shapes = {k: maps.map_shape(op) for k, op in ops.items()}
        sizes |= {a: shapes[k][1] for e in entries for _, fs in e for s, k in fs for a in s if a[:9] == maps.COMBINED}
        for _, fs in [b for entry in entries for b in entry]:
            fits = all(shapes[k][1] == math.prod(sizes[a] for a in some) for some, k in fs)
            self.must("maps", "maps do not fit the cells of their attributes", fits)
            if not fits:  # what follows could take any time and memory
                raise Stop
            named = [a for some, _ in fs for a in some]
            self.must("maps", "a block names an attribute twice", len({*named}) == len(named))
        return [sum(math.prod(shapes[k][0] for _, k in fs) for _, fs in entry) for entry in entries]

    def numbers(self, values: Any, rows: list[int]) -> None:
        fits = [(v.dtype, v.shape) for v in values] == [(np.dtype(np.int64), (n,)) for n in rows]
        self.must("maps", "values do not fit their maps", fits)

    def measured(self, m: Any, event: str, plan: Any, unit: Any) -> Any:  # its blocks, and the sensitivity if exact
        sizes, ops, public = declared_cell_counts(plan), dict[str, Any](), is_total_public(plan, unit)
        right = m.total is None or (public and 0 <= m.total < 2**63)
        self.must("total", "the number of records is not public, and stands there", right)
        entries = [maps.strategy_blocks(entry, sizes, ops) for entry in m.blocks]
        self.numbers(m["values"], self.fit(entries, ops, sizes))
        found, p = [b for entry in entries for b in entry], LAWS[m.noise.kind][1]
        replaced, measures = unit[0] == "replace-one", summed(plan)
        if measures and any(b.kind.startswith("Combination") for b in m.blocks):
            raise Cannot("combined queries over a domain with measures")
        priced, cells_of, more = maps.shared(found, ops, sizes, measures, p)
        value, exact = maps.largest_record_change(priced, ops, cells_of, p, replaced, public, plan.unit.within)
        value, exact = maps.longer(value, more * (1 + replaced), p), exact and not more
        cut = plan.cut or 0  # how often it is counted who had more rows than are counted: one person, so many
        right = [type(cut), type(m.cut)] == [int, int if cut else type(None)] and cut * bool(unit[1]) == abs(cut)
        self.must("maps", "persons who had more rows were not counted as the plan says", right)
        value *= unit[2] ** p
        if len(unit) == 4:
            grouped = maps.grouped_person_change(priced, ops, cells_of, p, replaced, unit[2], unit[3])
            value, exact = min(value, maps.longer(grouped, more * (1 + replaced) * unit[2], p)), False
        self.paid(value := value + cut**p, exact, m.noise, event)
        return found, value if exact else 0

    def single(self, plan: Any, m: Any, unit: Any) -> None:  # one look, at what the plan says
        found, value = self.measured(m, stored_event_text(plan.price), plan, unit)
        told = maps.strategy_blocks(plan.strategy, declared_cell_counts(plan), {})
        self.must("maps", "other maps were measured than the plan describes", told == found)
        known, near = (plan.strategy.measured or plan.strategy).known or [], plan.unit.within
        right = all(near and np.array_equal(k.codes, near.codes) for k in known if k.kind == "KnownGroups")
        self.must("total", "totals are public of groups in which records do not stay", right)
        self.must("price", "other noise was drawn than the plan says", plan.noise == m.noise)
        stated, power = plan.sensitivity, LAWS[m.noise.kind][1]
        right = number(stated.value) >= value and stated.power == power
        self.must("price", "the sensitivity is larger than the plan says", right)
        exactly = not value or not stated.exact or number(stated.value) == value
        self.must("price", "the sensitivity is called exact and is not", exactly)

    def labels(self, plan: Any, unit: Any) -> None:  # found by a look before, which is paid for with these tables
        price, kinds = plan.found.price, dict(plan.workload.domain.attributes["~map"])
        left, room = number(price.mu_squared), number(price.delta)
        drawn: dict[Any, list[Any]] = {}
        for look in plan.found.looks:
            mu_squared, delta = self.shown(look, unit, drawn)
            declared = kinds.get(look.attribute)
            right = (
                declared is not None and declared.kind in ("Categories", "Hierarchy") and declared.outside == "other"
            )
            self.must("maps", "labels were found of no attribute", right)
            left, room = left - mu_squared, room - delta
        left -= event_cost(stored_event_text(plan.price), "mu^2")
        self.must("price", "both looks cost more than the price", plan.found.looks and min(left, room) >= 0)
        self.believed.append("that the look before showed these labels, under the plan that was paid for")

    def shown(
        self, look: Any, unit: Any, drawn: dict[Any, list[Any]]
    ) -> tuple[Fraction, Fraction]:  # what a look for labels costs: mu^2 and delta
        law, own = look.selection, look.price
        sigma, delta, weight = number(law.noise.sigma), number(law.delta), law.weight
        mu_squared = number(own.mu_squared)
        right = 1 <= law.per_person <= min(unit[2], 1000) and sigma > 0 and weight >= 1 and 0 < delta < 1
        self.must("price", "labels are shown by no law that there is", right)
        right = weight**2 * (1 + (unit[0] == "replace-one")) <= mu_squared * sigma**2 and delta <= number(own.delta)
        self.must("price", "labels were found for less than it costs", right)
        # sums of the rounds before are added up: all of them as they were, or none
        rounds = drawn.setdefault((look.attribute, look.letters), [])
        before = [(n, number(s), weight, law.per_person) for n, s in law.before or ()]
        times = law.times or 1
        right = before in ([], rounds) and (before or times == 1) and times + sum(n for n, *_ in before) <= 31
        self.must("price", "a look for labels adds up other rounds than those before it", right)
        rounds.append((times, sigma, weight, law.per_person))
        added, whole = [*before, rounds[-1]], times + sum(n for n, *_ in before)
        self.must(
            "price", "noise of rounds is too large to be added up", not before or max(s for _, s, *_ in added) <= 2**40
        )
        spread = fraction_to_decimal(sum(((n * s) ** 2 for n, s, *_ in added), Fraction(0))).sqrt() * (1 + SLACK)
        for count in range(1, min(law.per_person, 1000) + 1):  # of each number all labels of one person stay below
            above = law.threshold - whole * (math.isqrt(weight**2 // count) + Fraction(1, 2))
            x = fraction_to_decimal(above) / (spread if before else fraction_to_decimal(sigma))
            shown = normal_tail(min(x, Decimal(15))) + SLACK if x > 0 else Decimal(1)
            right = (1 - shown) ** count >= 1 - fraction_to_decimal(delta)
            self.must("price", "labels of one person are shown at more than delta", right)
        return mu_squared, number(own.delta)

    def columns(self, plan: Any, it: Any, unit: Any) -> None:  # a description: looks one after the other, one price
        law, whole, room = parse_event_text(stored_event_text(plan.price))
        names, replaced, spent = {*plan.names}, unit[0] == "replace-one", Fraction(0)
        for i, look in enumerate(it.looks):
            m, sizes, ops = look.measured, rule_cell_counts(look.grid), dict[str, Any]()
            public = replaced and unit[1] is None and all("drop" not in (r.outside, r.missing) for r in look.grid.rules)
            right = {*sizes} <= names and (i > 0 or {r.kind for r in look.grid.rules} == {"Kinds"})
            right = right and look.grid.moves is None and m.cut is None
            self.must("maps", "a look is at no column of the plan, or the first at something else than kinds", right)
            right = m.total is None or (public and 0 <= m.total < 2**63)
            self.must("total", "the number of records is not public, and stands there", right)
            entries = [maps.strategy_blocks(entry, sizes, ops) for entry in m.blocks]
            self.numbers(m["values"], self.fit(entries, ops, sizes))
            (kind, p, times), scale = LAWS[m.noise.kind], number(m.noise["scale" if "scale" in m.noise else "sigma"])
            right = kind == law.removeprefix("approx-") and Fraction(1, 2**10) <= scale <= 2**55
            self.must("price", "the noise of a look is of another kind than was paid for, or of no scale", right)
            parts = maps.blocks_apart(b for entry in entries for b in entry)
            change = sum(maps.largest_record_change(some, ops, sizes, p, replaced, public)[0] for some in parts)
            spent += change * unit[2] ** p / (times * max(scale, Fraction(1, 2**10)) ** p)
        drawn: dict[Any, list[Any]] = {}
        for look in it.label_looks:
            mu_squared, delta = self.shown(look, unit, drawn)
            spent, room, right = spent + mu_squared, room - delta, law == "approx-gaussian" and look.attribute in names
            self.must("maps", "labels were looked for in no column of the plan", right)
        most = {look.attribute: look.most for look in it.label_looks}
        right = all(len({*labels}) == len(labels) <= most.get(name, 0) for name, labels in it.labels["~map"])
        self.must("looks", "labels are shown that no look found, or twice", right)
        self.must("looks", "there is no first look, or the looks cost more than the price", it.looks and spent <= whole)
        self.must("price", "labels are shown at more than the delta of the price", room >= 0 or not it.label_looks)
        self.believed.append("that later looks were chosen by what came of those before, and by nothing else")

    def looks(self, plan: Any, out: Any, unit: Any) -> None:  # several, each at its price. A later kind adds its draws
        course, rounds, one = plan.course, plan.course.rounds, stored_event_text(plan.course.measurement)
        if max(rounds, course.samples or 1) > 10**5:
            raise forms.Malformed("a course of more rounds than anybody goes")
        draws = {"MwemCourse": [(rounds, 1)], "BoostingCourse": [(course.samples, t) for t in range(1, rounds)]}
        if course.kind not in draws:
            raise Cannot(f"looks of the kind {course.kind}")
        free = unit[0] == "replace-one" and unit[1] is None  # the number of records
        kind, whole = stored_event_text(plan.price).split()
        draw, most = number(course.selection.epsilon), rounds + (not free)
        total = sum(n * event_cost(f"bounded-range {t * draw}", CURRENCY[kind]) for n, t in draws[course.kind])
        total += most * event_cost(one, CURRENCY[kind])
        self.must("price", "the looks cost more than the price", total <= Fraction(whole))
        looks = [m for m in out if m.kind == "Measurement"]
        found = [self.measured(m, one, plan, unit)[0] for m in looks]
        paid = sum(not free or not blocks or any(factors for _, factors in blocks) for blocks in found)
        chosen = len(out) - len(looks)
        self.must("looks", "more was measured than was paid for", paid <= most)
        right = len(looks) - paid <= 1 and chosen <= sum(n for n, _ in draws[course.kind])
        self.must("looks", "more was chosen than was paid for, or the number of records is there twice", right)
        right = all(0 <= m.chosen < m.among for m in out if m.kind == "Selection")
        self.must("looks", "something was chosen that was no candidate", right)
        self.must(
            "total", "the plan says otherwise whether the number of records is public", course.total_known == free
        )

    def stream(self, plan: Any, published: Any, unit: Any) -> None:  # filtered tables, period after period
        sizes, terms, ops, public = (
            declared_cell_counts(plan),
            plan.terms,
            dict[str, Any](),
            is_total_public(plan, unit),
        )
        if summed(plan):
            raise Cannot("streams over a domain with measures")
        families = [maps.strategy_blocks(family, sizes, ops) for family in terms.families]
        found, rows = [b for family in families for b in family], self.fit(families, ops, sizes)
        same = maps.strategy_blocks(plan.strategy, sizes, {}) == found
        self.must("maps", "other maps were measured than the plan describes", same)
        count, times, apart = (plan.periods[k] for k in ("count", "per_person", "apart"))
        right = [int(terms.filter.runs.sum()), terms.participations, terms.apart] == [count, times, apart]
        self.must("price", "the plan states other periods than are paid for", right)
        right = 1 <= times <= count and apart >= 1 and (times - 1) * apart < count and (times == 1 or unit[1])
        self.must("price", "nobody is in so many periods", right)
        labels = [p.label for p in published]
        right = len(labels) <= count and len({*labels}) == len(labels)
        self.must("looks", "more periods were measured than were paid for, or one twice", right)
        cut = terms.cut or 0  # the multiple of one cell more, that counts who is left out for the first time
        right = type(cut) is int and 0 <= cut <= bool(unit[1]) * 2**terms.grain
        self.must("maps", "who is left out is not counted as it may be", right)
        for period in published:
            self.numbers(period["values"], [*rows, *[1] * bool(cut)])
            right = period.total is None or (public and 0 <= period.total <= terms.most)
            self.must("total", "the number of records is not public, or above the most, and stands there", right)
        replace = unit[0] == "replace-one"
        parts = [(terms.filter, found)]
        if terms.total is not None:  # through a filter of its own: of two streams the squares add up
            parts = [
                (f, [b for b in found if bool(b[1]) == rest])
                for f, rest in [(terms.filter, True), (terms.total, False)]
            ]
            right = all(blocks and int(f.runs.sum()) == count for f, blocks in parts)
            self.must("maps", "a total with a filter of its own is none, or stands alone", right)
        each = [self.filtered(f, blocks, terms, ops, sizes, unit, public) for f, blocks in parts]
        shift, exact = sum((s for s, _, _ in each), Decimal(0)), all(e for _, e, _ in each)
        if cut:  # of each person one period
            response, rounding = maps.stream_filter_bounds(terms.filter, 1, 1)
            signs = terms.filter.taps is not None and int(terms.filter.taps.min()) < 0
            response *= Fraction(
                cut**2 * (1 + replace) * (1 + replace * signs), 4 ** (terms.grain + (terms.filter.shift or 0))
            )
            rounding *= (1 + replace) ** 2
            shift += (fraction_to_decimal(response).sqrt() + fraction_to_decimal(rounding).sqrt()) ** 2 * (1 + SLACK)
        least = max(least for _, _, least in each)
        shift = math.ceil(shift * 2**40) * Fraction(1, 2**40)
        self.paid(shift, exact, terms.noise, stored_event_text(plan.price), min(least, shift))
        if unit[1]:
            many = f"{times} periods, each at least {apart} after the one before" if times > 1 else "one period"
            self.believed.append(f"that nobody is in more than {many}")

    def filtered(
        self, used: Any, found: Any, terms: Any, ops: Any, sizes: Any, unit: Any, public: bool
    ) -> tuple[Decimal, bool, Fraction]:
        """The largest squared change of what comes of some tables and one filter, whether no less can be proved, and
        what somebody changes."""
        times, apart, replace = terms.participations, terms.apart, unit[0] == "replace-one"
        signs = used.taps is not None and int(used.taps.min()) < 0
        response, rounding = maps.stream_filter_bounds(used, times, apart)
        if times > 1 and used.taps is not None and used.taps.shape[1] > apart:
            each = [self.added([(1, fs)], ops, sizes, unit, False) for _, fs in found]
            heard = [maps.shared_window_bound(used, times, apart, m, terms.grain, not fs) for m, fs in found]
            response = Fraction(sum(map(math.prod, zip(each, heard, strict=True))) * (4 if replace else 1))
            exact = len(unit) < 4  # of tables one by one there is no better bound, which another plan might rest on
        else:
            value, exact = maps.largest_record_change(found, ops, sizes, 2, public, public)
            if not public:
                value, exact = self.added(found, ops, sizes, unit, used.taps is None), exact and len(unit) < 4
            if replace and not public:  # counts may be cut: one person goes, and then another comes
                value = 2 * (value + min(value, value if signs else unit[2] ** 2 * opposing_products_bound(found, ops)))
            response *= Fraction(value, 4 ** (terms.grain + (used.shift or 0)))
        largest = {k: int(max(maps.column_power_sums(op, 2))) for k, op in ops.items()}
        rounding *= (times * unit[2] * (1 + replace)) ** 2 * sum(
            math.prod(largest[k] for _, k in fs) for _, fs in found
        )
        least = Fraction(0)
        if len(unit) == 4:
            least = maps.somebodys_change(found, ops, sizes, unit[2], unit[3]) * Fraction(1, 4**terms.grain)
            least *= maps.somebody_is_heard(used, times, apart) / 4 ** (used.shift or 0)
        shift = (fraction_to_decimal(response).sqrt() + fraction_to_decimal(rounding).sqrt()) ** 2 * (1 + SLACK)
        return shift, exact, least

    def added(self, blocks: Any, ops: Any, sizes: Any, unit: Any, cut: bool) -> int:
        """The largest squared change of one period by a person who is added. Where tables are `cut`, each by itself,
        rows that cancel in one of them need not be there in another."""
        value: int = maps.largest_record_change(blocks, ops, sizes, 2, False, False)[0] * unit[2] ** 2
        if len(unit) < 4:
            return value
        parts = [[b] for b in blocks] if cut else [blocks]
        return min(value, sum(maps.grouped_person_change(p, ops, sizes, 2, False, unit[2], unit[3]) for p in parts))

    def earlier(self, it: Any, before: Any) -> None:  # no ledger holds the periods of a stream: those who read them do
        same = [it.plan, it.provenance.ledger_id, it.provenance.sequence]
        same = fingerprint(same) == fingerprint([before.plan, before.provenance.ledger_id, before.provenance.sequence])
        self.must("earlier", "it is of another stream", same)
        begun = fingerprint(it.published[: len(before.published)]) == fingerprint(before.published)
        self.must("earlier", "other periods, or in another order, were published before", begun)

    def keys(self, plan: Any, m: Any, unit: Any) -> None:  # maps of keys have bounded columns whatever their hash is
        o, event, p, replace = plan.map, stored_event_text(plan.price), LAWS[m.noise.kind][1], unit[0] == "replace-one"
        rows = o.width or o.size or len(o.elements)
        right = o.elements is None or (len(o.elements) and (o.elements[1:] > o.elements[:-1]).all())
        self.must("maps", "a key is listed twice, or in no order", right)
        change = {"Buckets": (1, 2**p), "Signs": (rows, rows * 2**p), "Listed": (1, min(2, rows))}[o.kind][replace]
        same, values = fingerprint([o, plan.noise]) == fingerprint([m.map, m.noise]), m["values"]
        self.must("maps", "another map or noise was measured than the plan says", same)
        right = len(m.heavy_texts or m.heavy) == len(m.heavy) and (plan["keys"]["kind"] == "text" or not m.heavy_texts)
        self.must("maps", "shown keys have texts that are not theirs", right)
        self.must("maps", "values do not fit their map", values.dtype == np.int64 and values.shape == (rows,))
        if plan.stability is None:
            self.must("price", "keys are shown that were not paid for", not len(m.heavy) and not len(m.heavy_counts))
        else:  # keys whose noisy count reaches a threshold are shown first
            own, (law, e, delta) = plan.stability.noise, parse_event_text(event)
            laplace = own.kind == "DiscreteLaplace"
            scale, steps = number(own.scale if laplace else own.sigma), plan.stability.threshold - 1
            self.must(
                "price", "keys are shown by a law of another kind", law == ("approx" if laplace else "approx-gaussian")
            )
            right = len(m.heavy) == len(m.heavy_counts) and (m.heavy[1:] > m.heavy[:-1]).all()
            right = right and (m.heavy_counts >= plan.stability.threshold).all()
            self.must("maps", "keys are shown twice, without a count, or below the threshold", right)
            self.must("price", "a threshold of no size", 1 <= plan.stability.threshold <= 2**40 and scale > 0)
            if laplace:
                odds = (-1 / fraction_to_decimal(scale)).exp()
                shown = odds**steps / (1 + odds)
            else:
                x = fraction_to_decimal((steps - Fraction(1, 2)) / scale)
                shown = normal_tail(min(x, Decimal(15))) + SLACK if x > 0 else Decimal(1)
            self.must(
                "price",
                "keys are shown at more than the price's delta",
                shown <= fraction_to_decimal(delta) and unit[2] == 1,
            )
            left = max(Fraction(0), e - (1 + replace) / scale ** (1 if laplace else 2))
            event = f"{'pure' if laplace else 'gaussian'} {left}"
        self.paid(change * unit[2] ** p, True, m.noise, event)

    def within(self, plan: Any, unit: Any) -> list[str]:  # groups in which records are replaced, as ledgers name them
        own, codes = plan.unit.within, plan.unit.within.codes.tolist()
        a = next(a for name, a in plan.workload.domain.attributes["~map"] if name == own.attribute)
        at = [*a.levels[:-1], own.name].index(own.name)  # the last is of cells, also by the attribute's name
        groups = [row[at] for row in a.source] + [None] * ("other" in (a.outside, a.missing))
        hashed, _, cells = own.digest.partition(":")  # of the groups, and of the rule of cells; in 0.2 of groups alone
        rule = {"~class": "Codes", "kind": "hierarchy", "codes": [row[-1] for row in a.source]}
        rule |= {"outside": a.outside, "missing": a.missing}
        rule |= {key: a[key] for key in ("edition", "columns") if a.get(key)}
        if a.beginnings:
            rule["prefixes"] = [text for text, _ in a.beginnings]
            rule["prefix_cells"] = [rule["codes"].index(code) for _, code in a.beginnings]
        right = fingerprint([own.attribute, plan.unit.within.codes]) == hashed
        right = right and (cells == fingerprint(rule) or (not cells and a.edition is None))
        self.must("unit", "records are replaced within groups that their hash does not say", right)
        right = len(groups) == len(codes) and len({*zip(groups, codes, strict=True)}) == len({*groups}) == len({*codes})
        right = right and own.name in (*a.levels, own.attribute)
        self.must("unit", "records are replaced within other groups than their name says", right)
        self.must(
            "unit", "how many records a group has is not the same for all neighbours", is_total_public(plan, unit)
        )
        return [own.name, own.attribute, own.digest]

    def groups(self, plan: Any, unit: Any) -> list[Any]:  # of which few rows of a person count, as ledgers name them
        if plan.kind not in ("Plan", "StreamPlan"):
            raise Cannot("persons whose rows are counted once per group, beside tables of one look or of a stream")
        names, each = [*plan.unit.once_per], plan.unit.rows_per_group or 1
        cells = declared_cell_counts(plan)
        right = len(names) and names == sorted({*names}) and {*names} <= {*cells} - {*summed(plan)}
        self.must("unit", "rows are counted once per what is no attribute", right)
        self.must("unit", "groups have as many rows as a person, or none", unit[1] and 1 <= each < unit[2])
        moved = plan.workload.domain.impossible
        self.must("unit", "records are moved out of the groups in which they were chosen", not moved)
        if not right:
            raise Stop
        return [[*names, each]]

    def release(self, path: Path, ledger: Path, anchor: str | None, earlier: Path | None) -> None:
        told_in = "profile" if path.is_dir() and (path / "profile.sfumato").exists() else "release"
        it = read_release_document(path / f"{told_in}.sfumato" if path.is_dir() else path)
        plan, proof, b = it.plan, it.provenance, it.plan.budget
        checks = {"Plan": self.single, "CoursePlan": self.looks, "KeyPlan": self.keys, "StreamPlan": self.stream}
        checks |= {"ProfilePlan": self.columns}
        if plan.kind not in checks:
            raise Cannot(f"plans of the kind {plan.kind}")
        unit = [plan.unit.neighbours.value, plan.unit.person, plan.unit.rows_per_person]
        # what was paid for looks before is part of what was paid
        event = stored_event_text(plan.price if plan.found is None else plan.found.price)
        if plan.unit.within is not None:
            unit += self.within(plan, unit)
        if plan.unit.once_per is not None:
            unit += self.groups(plan, unit)
        known = unit[0] in ("add-remove", "replace-one") and 1 <= unit[2] <= 10**6 and (unit[1] or unit[2] == 1)
        self.must("price", "there is no such unit", known and unit[1] != "")
        stated, given, aside = number(b.parameter), number(b.delta or 0), number(b.thresholds or 0)
        right = (b.delta is not None) == (b["kind"] == "approx") and 0 < stated <= 10**9 and 0 <= given < 1
        right = right and (b.thresholds is None or 0 < aside < given)
        self.must("price", "there is no such budget", right and (given > 0 or b.delta is None))
        kept = event_keeps_budget(event, b["kind"], stated, given, aside)
        self.must("price", "the price is above the budget that is stated", kept)
        self.must("files", "it is a part of a release that says it is one", it.part is None)
        stream, described = plan.kind == "StreamPlan", plan.kind == "ProfilePlan"
        checks[plan.kind](plan, it.published if stream else it if described else it.measurement, unit)
        if plan.found is not None:
            self.labels(plan, unit)
        if earlier is not None:
            self.earlier(it, read_release_document(earlier))
        elif stream:
            self.believed.append("that these values came out, in this order: an --earlier release shows it of its own")
        lines, hashes = self.ledger(ledger)
        n, told = proof.sequence, fingerprint([plan[k] for k in HASHED.split() if k in plan])
        line, places = lines[n] if n < len(lines) else [""] * 12, [f"{i}:{digest}" for i, digest in enumerate(hashes)]
        if anchor is not None:
            self.must("anchor", "the ledger does not go on from it", anchor in places)
        right = lines[0][0] == proof.ledger_id and proof.anchor in places[n : n + 1]
        self.must("entry", "it was paid from another ledger, or by another line", right)
        came = [it.looks, it.labels, it.label_looks] if described else it.measurement
        result, paid, owed = [fingerprint(came)], line[3], told
        if plan.found is not None:  # both looks are paid for under the plan of the first
            owed = plan.found.plan
        if stream:  # paid with the first hash of its secret store, and for all that will come out
            result, paid = [told, ""], line[3].partition(":")[0]
        right = [*line[1:3], paid, line[4]] == ["spend", proof.name, owed, event] and line[9] in result
        self.must("entry", "the line that paid has another name, plan, price or result", right)
        whom = [json.dumps(unit), proof.table or ""]
        self.must("unit", "the line that paid is of another unit or table", line[10:] == whom)
        self.unknown += ["an account in memory, which no file shows"] if proof.one_shot else []
        if path.is_dir():
            facts = build_document(forms.parse_strict_json((path / f"{told_in}.json").read_bytes()))
            if described:
                self.same(facts, self.standing(it, unit, n) | {"hashes": {"plan": told, "result": result[0]}})
                self.must("files", "profile.json has other entries than they have", {*facts} == {*PROFILED.split()})
                return
            self.says(facts, it, unit, told, n)
            for name, digest in ({"release.sfumato": None} | facts.files).items():
                plain = Path(name).name == name and name != "release.json"
                same = plain and sha256((path / name).read_bytes()).hexdigest() == digest
                self.must("files", f"{name} was changed", same)

    def same(self, facts: Any, right: dict[str, Any]) -> None:
        for key, value in right.items():
            why = f"what is said of {key} in JSON is something else than the release says"
            self.must("files", why, equal_as_json(facts.get(key), value))

    def standing(self, it: Any, unit: Any, n: int) -> dict[str, Any]:  # what JSON says of what protects, and who paid
        plan, proof, b = it.plan, it.provenance, it.plan.budget
        budget = {NAMED[b["kind"]]: str(number(b.parameter))}
        budget |= {k: str(number(b[k])) for k in ("delta", "thresholds") if b.get(k) is not None}
        within, groups = (unit[3:], []) if len(unit) != 4 else ([], unit[3])
        return {
            "format": "sfumato description 1" if plan.kind == "ProfilePlan" else "sfumato release 1",
            "name": proof.name,
            "created": proof.created,
            "privacy": {"neighbours": unit[0]}
            | ({"within": within} if within else {})
            | {
                "person": unit[1],
                "rows_per_person": unit[2],
                **({"once_per": groups[:-1], "rows_per_group": groups[-1]} if groups else {}),
                "unit": protection_sentence(unit),
                "budget": budget,
                "statement": budget_sentence(
                    b["kind"], number(b.parameter), number(b.delta or 0), number(b.thresholds or 0)
                ),
                "events": [export_event(stored_event_text(plan.price if plan.found is None else plan.found.price))],
            },
            "ledger": {"one_shot": proof.one_shot, "id": proof.ledger_id, "sequence": n, "anchor": proof.anchor},
            "table": proof.table,
            "snapshot": proof.snapshot,
            "versions": dict(proof.versions),
        }

    def says(self, facts: Any, it: Any, unit: Any, told: str, n: int) -> None:  # what release.json says, anew
        plan, proof = it.plan, it.provenance
        domain, several = plan.workload.domain, plan.kind == "CoursePlan"
        impossible = list(domain.impossible or [])
        right = self.standing(it, unit, n) | {
            "hashes": {
                "plan": told,
                "workload": fingerprint(plan.workload),
                "strategy": fingerprint(plan.course if several else plan.strategy),
                "domain": fingerprint(domain),
            },
        }
        right |= {"impossible": impossible} if impossible else {}
        right |= {"features": dict(proof.features)} if proof.features else {}
        self.same(facts, right)
        closed = {*FACTS.split()} <= {*facts} <= {*FACTS.split(), *MORE.split()} and facts.impossible != []
        closed = closed and ("features" in facts) == ("features" in right)
        self.must(
            "files", "release.json has other entries than they have", closed and (impossible or not facts.impossible)
        )
        mechanism = {
            "name": plan.mechanism,
            "sampler": SAMPLER,
            "trust_model": TRUST,
            "strategy": facts.mechanism.strategy,
        }
        if several:
            looks = facts.mechanism.looks
            kind, whole, _ = parse_event_text(stored_event_text(plan.price))
            spent = sum(k["count"] * event_cost(f"{k.mechanism} {k.guarantee}", CURRENCY[kind]) for k in looks)
            each = [
                {"purpose": k.purpose, "count": k["count"], **export_event(f"{k.mechanism} {k.guarantee}")}
                for k in looks
            ]
            slack = parse_exact_fraction(
                facts.mechanism.slack
            )  # prices are rounded up, and not everywhere to the same digit
            self.must("files", "release.json has another slack", abs(whole - spent - slack) <= whole / 10**12)
            mechanism |= {"looks": each, "slack": facts.mechanism.slack, "records": plan.records, "notes": plan.notes}
        else:
            noise, found = plan.noise, plan.sensitivity
            scale = str(number(noise["scale" if noise.kind == "DiscreteLaplace" else "sigma"]))
            norm = "L1" if found.power == 1 else "L2 squared"
            value = {"norm": norm, "value": str(number(found.value)), "exact": found.exact}
            mechanism |= {"noise": {"law": noise.kind, "scale": scale}, "sensitivity": value}
            mechanism |= {"record_limit": facts.mechanism.record_limit} | ({"cut": plan.cut} if plan.cut else {})
            said, right = facts.get("cut_persons"), "cut_persons" not in facts
            if plan.cut:
                error = math.sqrt(noise_variance(noise)) / plan.cut
                right = type(told := said["standard_error"]) is float and math.isclose(told, error, rel_tol=1e-6)
                right &= equal_as_json(said, {"value": it.measurement.cut / plan.cut, "standard_error": told})
            self.must("files", "release.json says another number of persons who had more rows", right)
        right = equal_as_json(facts.mechanism, mechanism) and type(mechanism["strategy"]) is str
        self.must("files", "release.json says something else of the mechanism than the release", right)
        text = "post_processing"
        self.must("files", f"release.json has no words in {text}", type(facts.get(text)) is str)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("release", type=Path)
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--anchor")
    parser.add_argument("--earlier", type=Path)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    found = Check(asked.release, asked.ledger, asked.anchor, asked.earlier)
    facts = {"verdict": found.verdict, "wrong": found.wrong, "cannot_check": found.unknown}
    facts |= {"believed": found.believed} if found.believed else {}
    said = [found.verdict, *map(": ".join, found.wrong), *(f"cannot check {what}" for what in found.unknown)]
    said += [f"believed {what}" for what in found.believed]
    if found.verdict == "accepted":  # the words that stand above
        told, _, trusted = (__doc__ or "").partition("TRUSTED, ")
        said += [f"checked {n}: {what}" for n, what in re.findall("^  ([a-z]+) +(.+)$", told, re.M) if n in found.held]
        said += ["trusted " + " ".join(trusted.split())]
    sys.stdout.write((json.dumps(facts) if asked.json else "\n".join(said)) + "\n")
    return 0 if found.verdict == "accepted" else 2


if __name__ == "__main__":
    sys.exit(main())
