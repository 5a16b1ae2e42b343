"""Every mechanism by its name: one line each. A value's file is imported when the mechanism is first asked for."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import Any

from sfumato.domain import Domain
from sfumato.errors import PlanError
from sfumato.mechanisms.mechanism import KINDS, TABLES, Mechanism, Request

__all__ = ["ASKED_FOR", "MECHANISMS", "make_mechanism", "mechanism_class", "mechanisms_serving", "plan_with_mechanism"]

MECHANISMS: dict[str, str] = {
    "auto": "sfumato.mechanisms.automatic.Auto",
    "laplace": "sfumato.mechanisms.textbook.Laplace",
    "gaussian": "sfumato.mechanisms.textbook.Gaussian",
    "tree": "sfumato.mechanisms.textbook.TreeMechanism",
    "factorization": "sfumato.mechanisms.textbook.Factorization",
    "marginals": "sfumato.mechanisms.textbook.Marginals",
    "projection": "sfumato.mechanisms.projected.Projection",
    "approximate": "sfumato.mechanisms.research.biased.Approximate",
    "adaptive": "sfumato.mechanisms.denoised_pairs.Adaptive",
    "mwem": "sfumato.mechanisms.iterative.Mwem",
    "boosting": "sfumato.mechanisms.research.boosting.Boosting",
    "hybrid": "sfumato.mechanisms.sketches.Hybrid",
    "count-sketch": "sfumato.mechanisms.sketches.CountSketch",
    "sparse-project": "sfumato.mechanisms.research.sparse_keys.SparseProject",
    "histogram": "sfumato.mechanisms.noisy_histogram.Histogram",
    "pmw": "sfumato.mechanisms.multiplicative_weights.Pmw",
    "sparse-mw": "sfumato.mechanisms.research.sparse_keys.SparseMw",
    "local": "sfumato.mechanisms.local_reports.Local",
    "continual": "sfumato.mechanisms.streams.Continual",
}
"""What `mechanism=` calls each of them, and where its class is. What "auto" tries is listed in `searches.py`."""

ASKED_FOR = frozenset(MECHANISMS) - {"laplace", "gaussian", "tree", "factorization", "marginals"}
"""Those that "auto" never tries for tables, so that it need not import them: half of the library."""


def mechanism_class(name: object) -> type[Mechanism[Any]]:
    """The class of a mechanism.

    Args:
        name: What `mechanism=` calls it, such as "count-sketch".

    Returns:
        The class.

    Raises:
        PlanError: There is no such mechanism; the message lists all names.
    """
    if not isinstance(name, str) or name not in MECHANISMS:
        raise PlanError(f"mechanism must be one of {', '.join(MECHANISMS)}, not {name!r}")
    module, _, cls = MECHANISMS[name].rpartition(".")
    return getattr(import_module(module), cls)


def mechanisms_serving(kind: str) -> list[type[Mechanism[Any]]]:
    """The mechanisms that plan questions of one kind.

    Args:
        kind: "tables", "questions", "keys", "local" or "streams".

    Returns:
        Their classes, in the order of `MECHANISMS`.
    """
    return [cls for cls in map(mechanism_class, MECHANISMS) if kind in cls.serves]


def make_mechanism(mechanism: object, **options: Any) -> Mechanism[Any]:
    """A mechanism's value.

    Args:
        mechanism: A value, which is returned as it is, or a name, which stands for its defaults.
        **options: Options of the mechanism of that name.

    Returns:
        The value.

    Raises:
        PlanError: There is no such mechanism, it does not have one of the options, or options are given beside a value.
    """
    if isinstance(mechanism, Mechanism):
        if options:
            raise PlanError(f"{mechanism!r} has its options already; leave out {', '.join(options)}")
        return mechanism
    if isinstance(mechanism, type) and issubclass(mechanism, Mechanism):
        raise PlanError(
            f"mechanism={mechanism.name!r} is a value: write sf.mechanisms.{mechanism.name.replace('-', '_')}()"
        )
    cls = mechanism_class(mechanism)
    idle = [option for option in options if option not in _option_names(cls)]
    if idle:
        owners = {option: [n for n in MECHANISMS if option in _option_names(mechanism_class(n))] for option in idle}
        said = "; ".join(f"{o}= belongs to {', '.join(names) or 'no mechanism'}" for o, names in owners.items())
        raise PlanError(f"mechanism={cls.name!r} would drop what was given: {said}")
    return cls(**options)


def plan_with_mechanism(value: Mechanism[Any], asked: Request) -> Any:
    """The plan of a mechanism, which is refused what it does not serve or would not use. Raises PlanError."""
    if asked.kind not in value.serves:
        served = " and ".join(KINDS[k] for k in value.serves)
        others = ", ".join(repr(cls.name) for cls in mechanisms_serving(asked.kind))
        raise PlanError(
            f"mechanism={value.name!r} plans {served}, not {KINDS[asked.kind]}; for that there are {others}"
        )
    value.check(asked)
    _check_measures(value, asked)
    return value.plan(asked)


def _check_measures(value: Mechanism[Any], asked: Request) -> None:
    """Refuse what measures are not summed by, before anything is planned. Raises PlanError."""
    what: Any = asked.what
    domain: Domain | None = what if isinstance(what, Domain) else getattr(what, "domain", None)
    if domain is None or not domain.measures:
        return
    known = ", ".join(domain.measures)
    if asked.kind != TABLES:
        raise PlanError(
            f"measures ({known}) are summed over one table, not by plans of {KINDS[asked.kind]}; declare a domain "
            "without them for these"
        )
    summed: bool = bool(what.measures)
    if value.measures not in (("summed",) if summed else ("summed", "beside")):
        raise PlanError(
            f"mechanism={value.name!r} sums no measures ({known}): leave it out, for 'auto', or declare a domain "
            "without them"
        )
    fixed = [f"{n}=" for n in ("strategy", "public") if getattr(asked, n) is not None]
    if getattr(value, "lattice", "fine") != "fine":
        fixed.append("lattice='unit'")
    if summed and fixed:
        raise PlanError(f"sums of measures ({known}) are planned without {', '.join(fixed)}; leave it out")


def _option_names(cls: type[Mechanism[Any]]) -> list[str]:
    return [f.name for f in fields(cls)]  # pyright: ignore[reportArgumentType]  (every mechanism is a dataclass)
