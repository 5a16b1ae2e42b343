"""Sums of the rows of several blocks with whole coefficients: what is measured when queries are answered together."""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.errors import WorkloadError
from sfumato.ground.codec import storable
from sfumato.operators.base import Numbers
from sfumato.operators.explicit import Dense
from sfumato.operators.marginal import Block

__all__ = ["Combination"]


@storable
@dataclass(frozen=True, eq=False, repr=False)
class Combination:
    """C Q: `matrix` C (l, r) of whole numbers after all rows of some blocks stacked, Q (r, cells).

    The blocks may be over different attributes: each is counted on the table of its own, whatever the joint cells are.
    """

    blocks: tuple[Block, ...]
    matrix: Numbers

    def __post_init__(self) -> None:
        blocks, held = tuple(self.blocks), Dense(self.matrix)
        whole = held.integral and all(isinstance(b, Block) and all(f.integral for f in b.factors) for b in blocks)
        if not whole or held.shape[1] != sum(b.rows for b in blocks):
            raise WorkloadError(
                "a combination has one whole coefficient for each row of its blocks, all of whole numbers"
            )
        object.__setattr__(self, "blocks", blocks)
        object.__setattr__(self, "matrix", held.matrix)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that some block holds."""
        return tuple(dict.fromkeys(a for b in self.blocks for a in b.attributes))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.matrix)

    def apply(self, sums: Numbers) -> Numbers:
        """C (Q x) from Q x, (r,) -> (l,); int64 in modular arithmetic."""
        return Dense(self.matrix).matvec(sums)
