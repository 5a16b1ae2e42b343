"""Recipes: each plans without data and runs through the curator's doors."""

from sfumato.mechanisms.choose import MECHANISMS, plan
from sfumato.mechanisms.courses import COURSES
from sfumato.mechanisms.factorize import Factorization, factorization
from sfumato.mechanisms.inverse import budget_for, plan_for
from sfumato.mechanisms.run import carry_out
from sfumato.mechanisms.simulate import Simulation, simulate

__all__ = [
    "COURSES",
    "MECHANISMS",
    "Factorization",
    "Simulation",
    "budget_for",
    "carry_out",
    "factorization",
    "plan",
    "plan_for",
    "simulate",
]
