"""Which options of `sf.plan` go together: one that would do nothing is refused, never dropped."""

from __future__ import annotations

from sfumato.errors import PlanError

__all__ = ["refuse_idle"]

_TAKES_STRATEGY = ("auto", "gaussian", "laplace", "projection")
_LAWS = {"laplace": ("laplace",), "gaussian": ("gaussian", "discrete-gaussian")}


def refuse_idle(
    mechanism: str, *, objective: str, strategy: object, public: object, noise: str | None, compare: bool, course: bool
) -> None:
    """Raise PlanError for options that this mechanism would drop. `course` says that it looks several times."""
    if course and compare:
        raise PlanError(
            f"compare= lists plans of one look, by errors known before data; mechanism={mechanism!r} has none. Leave "
            "it out, or compare under mechanism='auto'"
        )
    if noise is not None and noise not in _LAWS.get(mechanism, (noise,)):
        raise PlanError(
            f"mechanism={mechanism!r} is noise of that law, and noise={noise!r} another; leave one of them out"
        )
    if mechanism == "projection" and objective == "max":
        raise PlanError(
            "what is proved of mechanism='projection' is an average error, so objective='max' would decide nothing; "
            "for the largest error take mechanism='auto' with objective='max', whose release can be projected for free"
        )
    if strategy is None or course:
        return
    if mechanism not in _TAKES_STRATEGY:
        raise PlanError(
            f"mechanism={mechanism!r} makes a strategy of its own, so strategy= would be dropped; leave one of them "
            "out. A strategy goes with mechanism='auto', 'laplace' and 'gaussian', which say its noise, and with "
            "'projection', which projects its answers"
        )
    if public:
        raise PlanError(
            "public= values are used by mechanism='marginals', which makes a strategy of its own; leave out "
            "strategy= or public="
        )
