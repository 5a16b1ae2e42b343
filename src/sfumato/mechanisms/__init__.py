"""Mechanisms as values: `sf.mechanisms.pmw(alpha="least")`. Each has its options; a name stands for its defaults.

>>> made = sf.plan(
...     sf.marginals(sf.Domain({"age": 4, "sex": 2, "edu": 3}), order=2),
...     sf.zcdp("0.5"),
...     neighbours="add-remove",
...     records=100,
...     mechanism=sf.mechanisms.mwem(rounds=2),
... )
>>> made.mechanism, made.course.rounds
('mwem', 2)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sfumato.mechanisms.registry import MECHANISMS, make_mechanism, mechanism_class, mechanisms_serving

if TYPE_CHECKING:
    from sfumato.mechanisms.automatic import Auto as auto
    from sfumato.mechanisms.denoised_pairs import Adaptive as adaptive
    from sfumato.mechanisms.iterative import Mwem as mwem
    from sfumato.mechanisms.local_reports import Local as local
    from sfumato.mechanisms.multiplicative_weights import Pmw as pmw
    from sfumato.mechanisms.projected import Projection as projection
    from sfumato.mechanisms.research.biased import Approximate as approximate
    from sfumato.mechanisms.research.boosting import Boosting as boosting
    from sfumato.mechanisms.research.sparse_keys import SparseMw as sparse_mw
    from sfumato.mechanisms.research.sparse_keys import SparseProject as sparse_project
    from sfumato.mechanisms.sketches import CountSketch as count_sketch
    from sfumato.mechanisms.sketches import Histogram as histogram
    from sfumato.mechanisms.sketches import Hybrid as hybrid
    from sfumato.mechanisms.streams import Continual as continual
    from sfumato.mechanisms.textbook import Factorization as factorization
    from sfumato.mechanisms.textbook import Gaussian as gaussian
    from sfumato.mechanisms.textbook import Laplace as laplace
    from sfumato.mechanisms.textbook import Marginals as marginals
    from sfumato.mechanisms.textbook import TreeMechanism as tree

__all__ = [
    "MECHANISMS",
    "adaptive",
    "approximate",
    "auto",
    "boosting",
    "continual",
    "count_sketch",
    "factorization",
    "gaussian",
    "histogram",
    "hybrid",
    "laplace",
    "local",
    "make_mechanism",
    "marginals",
    "mechanism_class",
    "mechanisms_serving",
    "mwem",
    "pmw",
    "projection",
    "sparse_mw",
    "sparse_project",
    "tree",
]


def __getattr__(name: str) -> Any:
    """The mechanisms by name, each imported when it is first asked for (PEP 562)."""
    if name.replace("_", "-") not in MECHANISMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; mechanisms are {', '.join(MECHANISMS)}")
    return mechanism_class(name.replace("_", "-"))


def __dir__() -> list[str]:
    return sorted(__all__)
