"""What a denoised release holds: tables of any of its attributes, from the pairs by the largest entropy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sfumato.errors import NotAnswerable
from sfumato.estimate.mixtures.adapted import Adapted
from sfumato.estimate.possible import Possible, RecordCounts
from sfumato.ground.codec import storable
from sfumato.operators.base import FloatArray

__all__ = ["AdaptedTables"]

_MOST_CELLS = 2**24  # 128 MB a table


@storable
@dataclass(frozen=True, slots=True, eq=False)
class AdaptedTables(Possible):
    """Tables over the named attributes, in the order of what was adapted."""

    attributes: tuple[str, ...]
    adapted: Adapted

    def table(self, attributes: Sequence[str]) -> FloatArray:
        unknown = [a for a in attributes if a not in self.attributes]
        if unknown:
            raise NotAnswerable(
                f"nothing about {', '.join(unknown)} was measured; there is {', '.join(self.attributes)}"
            )
        axes = [self.attributes.index(a) for a in attributes]
        cells = math.prod(self.adapted.sizes[a] for a in axes)
        if cells > _MOST_CELLS:
            raise NotAnswerable(
                f"the table over {', '.join(attributes)} has {cells:,} cells, above {_MOST_CELLS:,}; ask one over "
                "fewer attributes, or draw records by release.synthetic()"
            )
        return self.adapted.table(axes)

    def records(self, count: int) -> RecordCounts:
        """Whole records, so many, whose tables of pairs are near."""
        codes, counts = self.adapted.records(count)
        return RecordCounts(self.attributes, self.adapted.sizes, codes, counts.astype(float))
