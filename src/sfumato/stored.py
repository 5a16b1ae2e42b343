"""Where the classes of stored values are that are not imported with the library: files name classes, not modules.

What a file may build is closed: the classes that are imported, and these. A test finds both to be all there are.
"""

from __future__ import annotations

from importlib import import_module

__all__ = ["ELSEWHERE", "fetch"]

ELSEWHERE: dict[str, str] = {
    "Adapted": "sfumato.estimate.mixtures.adapted",
    "AdaptedTables": "sfumato.estimate.mixtures.held",
    "Alone": "sfumato.plans.predictions",
    "Axis": "sfumato.designs.unions.axes",
    "Biased": "sfumato.designs.approximate.biased",
    "BoostingCourse": "sfumato.mechanisms.research.boosted",
    "Buffered": "sfumato.designs.ordered.buffered",
    "Buffers": "sfumato.designs.ordered.buffers",
    "Candidate": "sfumato.designs.design",
    "Candidates": "sfumato.privacy.selection",
    "Canonical": "sfumato.designs.ordered.canonical",
    "CellCounts": "sfumato.estimate.possible",
    "Cells": "sfumato.designs.factors",
    "Contrast": "sfumato.designs.unions.axes",
    "Contrasts": "sfumato.designs.factors",
    "Certificate": "sfumato.privacy.sensitivity",
    "CoursePlan": "sfumato.plans.iterative",
    "DiscreteGaussian": "sfumato.privacy.noise",
    "DiscreteLaplace": "sfumato.privacy.noise",
    "Epochs": "sfumato.privacy.selection",
    "FittedModel": "sfumato.estimate.mixtures.adapted",
    "Forecast": "sfumato.estimate.widths",
    "Forest": "sfumato.estimate.mixtures.forest",
    "Group": "sfumato.designs.unions.groups",
    "HistogramOpening": "sfumato.wall.keys.store",
    "HistogramPlan": "sfumato.sessions.keyplans",
    "IntegerFilter": "sfumato.privacy.filters",
    "KeyCandidate": "sfumato.plans.keys",
    "KeyMeasurement": "sfumato.privacy.keyed",
    "KeyPlan": "sfumato.plans.keys",
    "KeyQuestion": "sfumato.privacy.keyed",
    "Knock": "sfumato.plans.iterative",
    "Known": "sfumato.designs.known",
    "LocalCandidate": "sfumato.local.plans",
    "LocalPlan": "sfumato.local.plans",
    "LocalRelease": "sfumato.local.collecting",
    "Matrix": "sfumato.designs.factors",
    "Measured": "sfumato.designs.unions.groups",
    "Measurement": "sfumato.measurements",
    "Medians": "sfumato.estimate.possible",
    "Merged": "sfumato.designs.merged.strategy",
    "Misses": "sfumato.privacy.misses",
    "Mixture": "sfumato.estimate.mixtures.fitting",
    "ModelRelease": "sfumato.releases.modelled",
    "MwemCourse": "sfumato.mechanisms.selecting",
    "Opening": "sfumato.wall.talk.filed",
    "Orbits": "sfumato.designs.unions.strategy",
    "PairMoments": "sfumato.estimate.possible",
    "PairResiduals": "sfumato.designs.marginals.pairs",
    "Periods": "sfumato.designs.continual.periods",
    "Plan": "sfumato.plans.plan",
    "Product": "sfumato.designs.product",
    "Products": "sfumato.privacy.products",
    "Projection": "sfumato.estimate.projection",
    "Provenance": "sfumato.releases.provenance",
    "Published": "sfumato.privacy.continual",
    "Questions": "sfumato.local.questions",
    "RecordCounts": "sfumato.estimate.possible",
    "Release": "sfumato.releases.core",
    "Residuals": "sfumato.designs.marginals.residuals",
    "Roots": "sfumato.designs.ordered.roots",
    "RoundedGaussian": "sfumato.privacy.noise",
    "Rung": "sfumato.estimate.ladder.told",
    "Selection": "sfumato.measurements",
    "Sensitivity": "sfumato.privacy.sensitivity",
    "SessionPlan": "sfumato.sessions.plans",
    "SketchRelease": "sfumato.releases.sketched",
    "SparsePlan": "sfumato.sessions.keyplans",
    "Stability": "sfumato.privacy.keyed",
    "Stacked": "sfumato.designs.stacked",
    "Step": "sfumato.privacy.conversing",
    "StreamOpening": "sfumato.wall.streams.store",
    "StreamPlan": "sfumato.plans.streams",
    "StreamRelease": "sfumato.releases.streamed",
    "StreamTerms": "sfumato.privacy.continual",
    "TableCounts": "sfumato.estimate.possible",
    "Terms": "sfumato.privacy.conversing",
    "TotalOnly": "sfumato.designs.factors",
    "TreeSums": "sfumato.designs.ordered.trees",
    "WeightedTables": "sfumato.designs.weighted.strategy",
}


def fetch(name: str) -> None:
    """Import the module of a class of stored values, where it is one."""
    if name in ELSEWHERE:
        import_module(ELSEWHERE[name])
