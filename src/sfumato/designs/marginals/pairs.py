"""Residuals of small tables for answers that go beyond these: what is not spanned has an infinite error."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sfumato.designs.marginals.residuals import Residuals
from sfumato.designs.strategy import Strategy
from sfumato.errors import NotAnswerable
from sfumato.ground.codec import storable
from sfumato.operators import Block, Family
from sfumato.operators.base import FloatArray

__all__ = ["PairResiduals"]


@storable
@dataclass(frozen=True, eq=False)
class PairResiduals(Residuals):
    """Residuals of attributes, pairs and some triples. Of other questions about these they answer the part they hold.

    That part is no estimate of the whole, so its standard error is infinite; models make one of what was measured.
    """

    def check(self, query: Block) -> None:
        places = {a: i for i, a in enumerate(self.names)}
        measured = set(self.sets[1].reshape(-1).tolist()) if len(self.sets) > 1 else set[int]()
        unknown = [a for a in query.attributes if a not in places]
        unknown += [a for a, i in places.items() if a in query.attributes and self.shape[i] > 1 and i not in measured]
        if unknown:
            raise NotAnswerable(f"nothing about {', '.join(unknown)} was measured")

    def row_powers(self, query: Block, power: int) -> FloatArray:
        self.check(query)
        try:
            return super().row_powers(query, power)
        except NotAnswerable:
            return np.full((1,) * len(query.factors), math.inf)

    def family_powers(self, family: Family, power: int) -> FloatArray | None:
        if not self._is_plain(family):
            return None
        out, missing = self._table_powers(family, power)
        out[missing] = math.inf
        return out

    def source(self, query: Block) -> Strategy:
        super().check(query)
        return self

    def table_covariance(self, first: Block, second: Block) -> FloatArray | None:
        for query in (first, second):
            super().check(query)
        return super().table_covariance(first, second)
