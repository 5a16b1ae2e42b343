"""The paragraph on method that a publication prints, and what it cites: 120 to 200 words that follow from the plan.

Where measures are summed some 40 more tell their ranges and what their means err.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, cast

import numpy as np

from sfumato._util.catalogue import called_attribute, local_number, say_amount, say_day, say_words, superscript_exponent
from sfumato._util.description import CodeLines, Description, Sentences
from sfumato._util.frames import safe_text
from sfumato.domain.core import format_with_thousands
from sfumato.plans.explain import noise_name
from sfumato.privacy.amounts import readable_number
from sfumato.privacy.ledger.words import attack_success, percent_up
from sfumato.privacy.noise import DiscreteGaussian, DiscreteLaplace
from sfumato.privacy.unit import Neighbours, PrivacyUnit
from sfumato.releases.measure_tables import measure_tables

if TYPE_CHECKING:
    from sfumato.domain import Measure
    from sfumato.privacy.budget import Budget
    from sfumato.releases.release import Release

_NAMED = 3  # attributes that are named: more would fill the paragraph
_CONFIDENCE = 0.95  # errors are the same at any

_SOFTWARE = """@software{sfumato,
  author = {{The sfumato authors}},
  title = {sfumato: answers to large sets of linear queries under differential privacy},
  version = {%s},
  year = {%s}
}"""
_THEOREMS = {
    "pure": """@inproceedings{DMNS06,
  author = {Dwork, Cynthia and McSherry, Frank and Nissim, Kobbi and Smith, Adam},
  title = {Calibrating Noise to Sensitivity in Private Data Analysis},
  booktitle = {Theory of Cryptography Conference (TCC)},
  year = {2006}
}""",
    "zcdp": """@inproceedings{BS16,
  author = {Bun, Mark and Steinke, Thomas},
  title = {Concentrated Differential Privacy: Simplifications, Extensions, and Lower Bounds},
  booktitle = {Theory of Cryptography Conference (TCC)},
  year = {2016}
}""",
    "gdp": """@article{DRS22,
  author = {Dong, Jinshuo and Roth, Aaron and Su, Weijie J.},
  title = {Gaussian Differential Privacy},
  journal = {Journal of the Royal Statistical Society Series B},
  year = {2022}
}""",
    "discrete": """@inproceedings{CKS20,
  author = {Canonne, Cl{\\'e}ment L. and Kamath, Gautam and Steinke, Thomas},
  title = {The Discrete Gaussian for Differential Privacy},
  booktitle = {Advances in Neural Information Processing Systems (NeurIPS)},
  year = {2020}
}""",
    "matrix": """@inproceedings{LHR10,
  author = {Li, Chao and Hay, Michael and Rastogi, Vibhor and Miklau, Gerome and McGregor, Andrew},
  title = {Optimizing Linear Counting Queries under Differential Privacy},
  booktitle = {Principles of Database Systems (PODS)},
  year = {2010}
}""",
}


def method_description(release: Release) -> Description:
    """See `Release.methods`."""
    blocks = [Sentences([method_paragraph(release)]), CodeLines(bibliography(release))]
    heading = say_words("Method and citation")
    return Description(heading, blocks, "method", heading)


def method_paragraph(release: Release) -> str:
    """What was measured, the noise, the guarantee, who is protected, errors, what was left out, the software."""
    plan = release.plan
    asked = {a for item in release.workload.items for a in item.attributes}
    names = [n for n in plan.workload.domain.names if n in asked]
    names = names or list(plan.workload.domain.names)
    few = ", ".join(safe_text(called_attribute(n)) for n in names[:_NAMED])
    listed = few if len(names) <= _NAMED else say_words("{few} and {more} more", few=few, more=len(names) - _NAMED)
    values = sum(b.rows for b in plan.strategy.blocks)
    sentences = [
        say_words(
            "These {queries} figures about {attributes} were released under differential privacy: random noise hides "
            "what any single contribution changes.",
            queries=local_number(f"{len(release.workload):,}"),
            attributes=listed,
        ),
        say_words(
            "Instead of the figures, {values} sums over the table were measured, each with {noise}, and every figure "
            "was computed from these.",
            values=local_number(f"{values:,}"),
            noise=say_words(noise_name(plan)),
        ),
        say_words(
            "The release satisfies {guarantee}. Protected is {unit}: whoever wants to find out, with whatever else "
            "they know, is right at most {right} of the time, where guessing is right half of it.",
            guarantee=_guarantee_name(plan.budget),
            unit=_unit_words(plan.unit),
            right=local_number(percent_up(attack_success(plan.whole_price))),
        ),
        *_error_sentences(release),
        *_measure_sentences(release),
        *_left_out(release),
        say_words(
            "The computations were made with sfumato {version} on {day}.",
            version=dict(release.provenance.versions)["sfumato"],
            day=say_day(release.provenance.created[:10]),
        ),
    ]
    return " ".join(sentences)


def _guarantee_name(budget: Budget) -> str:
    value = superscript_exponent(local_number(readable_number(budget.parameter)))
    if budget.delta is not None:
        delta = superscript_exponent(local_number(readable_number(budget.delta)))
        return say_words("({epsilon}, {delta})-differential privacy", epsilon=value, delta=delta)
    return {
        "pure": say_words("pure {value}-differential privacy", value=value),
        "zcdp": say_words("{value}-zero-concentrated differential privacy", value=value),
        "gdp": say_words("{value}-Gaussian differential privacy", value=value),
    }[budget.kind]


def _unit_words(unit: PrivacyUnit) -> str:
    """Who is protected."""
    there = unit.neighbours is Neighbours.ADD_REMOVE
    if unit.person is None:
        return say_words("whether any one record is in the table" if there else "what any one record of the table says")
    return say_words(
        "whether any one person is in the table, with all counted rows"
        if there
        else "what all counted rows of a person say"
    )


def _error_sentences(release: Release) -> list[str]:
    """What answers err, and how they are to be read."""
    plan = release.plan
    least, most = (math.inf, 0.0)
    for entry in plan.entries:
        if entry.item.unit == plan.main_unit and release.part in (None, entry.item.part):
            least = min(least, float(entry.powers.min()))
            most = max(most, float(entry.powers.max()))
    known = math.isfinite(least) and math.isfinite(most)
    low, high = (math.sqrt(max(x, 0.0) * plan.noise.variance) if known else 0.0 for x in (least, most))
    ends = {"low": _figures(low), "high": say_amount(_figures(high), plan.main_unit)}
    text = "The noise gives counts standard errors of {low} to {high}, known before the table was read; "
    text += "a 95 % interval holds the exact figure in 95 of 100 such releases."
    same = "The noise gives counts a standard error of {high}, known before the table was read; "
    same += "a 95 % interval holds the exact figure in 95 of 100 such releases."
    said = [say_words(same if ends["low"] == _figures(high) else text, **ends)] if known else []
    said += [] if known else [say_words("How far each figure is from the exact one is not known in advance.")]
    said.append(say_words("Errors of the table itself, such as of sampling or non-response, are not included."))
    if release.projection is not None:
        said.append(
            say_words(
                "The figures were replaced by the nearest that a table could have given, at no cost of privacy; "
                "standard errors are those from before."
            )
        )
    else:
        said.append(
            say_words(
                "Figures are neither rounded nor cut at zero, so that sums of them stay right on average: small counts "
                "may be negative."
                if plan.bias_records is None
                else "Figures err a little on purpose, where that lets them err less in all; intervals reckon with it."
            )
        )
    return said


def _measure_sentences(release: Release) -> list[str]:
    """To which ranges values were cut, and how far means are known."""
    domain, said = release.plan.workload.domain, list[str]()
    found = list(itertools.islice(measure_tables(release, _CONFIDENCE), _NAMED))
    for name in dict.fromkeys(held.measure for held in found):
        measure = cast("Measure", domain[name])
        low, high = (local_number(format_with_thousands(x)) for x in (measure.low, measure.high))
        cut = "Values of {measure} are cut to {low} to {high}."
        absent = "Values of {measure} are those from {low} to {high}; others are left out."
        called = safe_text(called_attribute(name))
        said.append(say_words(cut if measure.outside == "clamp" else absent, measure=called, low=low, high=high))
    for held in found:
        errors = held.noise_errors()[held.labels[0].index("mean")] if "mean" in held.labels[0] else np.array([])
        known = errors[np.isfinite(errors)]
        if known.size:
            ends = [_figures(float(x)) for x in (known.min(), known.max())]
            text = "Means of {measure} have standard errors of {low} to {high}, estimated from the published figures."
            same = "The mean of {measure} has a standard error of {high}, estimated from the published figures."
            called = safe_text(called_attribute(held.measure))
            said.append(say_words(same if ends[0] == ends[1] else text, measure=called, low=ends[0], high=ends[1]))
    return said


def _left_out(release: Release) -> list[str]:
    """Which rows are in no figure, or in a class of their own."""
    plan = release.plan
    said: list[str] = []
    if plan.unit.person is not None:
        said.append(
            say_words(
                "At most {rows} rows of a person are counted; further ones are left out.",
                rows=local_number(f"{plan.unit.rows_per_person:,}"),
            )
        )
    attributes = plan.workload.domain.attributes.values()
    drops, other = (any(getattr(a, what) for a in attributes) for what in ("drops", "has_other"))
    if drops and other:
        said.append(
            say_words("Records with undeclared values are left out, or counted in a class of their own, (other).")
        )
    elif drops:
        said.append(say_words("Records with a value that was not declared, or without one, are left out."))
    elif other:
        said.append(say_words("Values that were not declared are counted in a class of their own, (other)."))
    return said


def _figures(value: float) -> str:
    """Three figures."""
    decimals = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
    return local_number(f"{value:,.{min(decimals, 9)}f}")


def bibliography(release: Release) -> str:
    """BibTeX of the software, of the theorem that the guarantee rests on, of the noise and of the method."""
    plan, versions = release.plan, dict(release.provenance.versions)
    software = _SOFTWARE % (versions["sfumato"], release.provenance.created[:4])
    law = "pure" if isinstance(plan.noise, DiscreteLaplace) else "zcdp" if plan.budget.kind == "zcdp" else "gdp"
    cited = [law, *(["discrete"] if isinstance(plan.noise, DiscreteGaussian) else []), "matrix"]
    return "\n\n".join([software, *(_THEOREMS[name] for name in cited)])
