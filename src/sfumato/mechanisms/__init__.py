"""Recipes: each plans without data and runs through the curator's doors."""

from sfumato.mechanisms.choose import MECHANISMS, plan
from sfumato.mechanisms.courses import COURSES
from sfumato.mechanisms.factorize import Factorization, factorization
from sfumato.mechanisms.inverse import budget_for, plan_for
from sfumato.mechanisms.run import release
from sfumato.mechanisms.simulate import Simulation, simulate

__all__ = [
    "COURSES",
    "MECHANISMS",
    "Factorization",
    "Simulation",
    "budget_for",
    "factorization",
    "plan",
    "plan_for",
    "release",
    "simulate",
]
