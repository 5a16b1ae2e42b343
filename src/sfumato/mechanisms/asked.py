"""The queries of a workload for mechanisms of several looks: numbered through, over the cells they ask about."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sfumato.designs.pricing.sensitivity import searched, sensitivity
from sfumato.estimate.projection import joint_attributes
from sfumato.measurements import Measurement
from sfumato.mechanisms.shares import free, noise_at
from sfumato.operators import Block, Dense
from sfumato.privacy.accountant import Event, PureEvent
from sfumato.privacy.unit import PrivacyUnit
from sfumato.wall import Curator
from sfumato.workloads import Workload

__all__ = ["TOTAL", "Asked"]

TOTAL = Block((), ())
"""The number of records, as a block."""


class Asked:
    """Attributes: `names` of all attributes that are asked about, `sizes` of them, `blocks` of queries in order."""

    def __init__(self, work: Workload, unit: PrivacyUnit, measurement: Event) -> None:
        self.names = joint_attributes(work)
        self.sizes = work.domain.sizes(self.names)
        self.blocks = tuple(q.block for q in work.blocks)
        self.every = {n: a.size for n, a in work.domain.attributes.items()}
        self.unit, self._price = unit, measurement
        self.power = 1 if isinstance(measurement, PureEvent) else 2
        self.ends = np.cumsum([b.rows for b in self.blocks])

    def place(self, query: int) -> tuple[int, int]:
        """The position of a query's block, and its row there."""
        block = int(np.searchsorted(self.ends, query, side="right"))
        return block, query - int(self.ends[block]) + self.blocks[block].rows

    def rows(self, queries: Sequence[int]) -> list[Block]:
        """The queries of these numbers, each once and ascending, as one block for every block they lie in."""
        wanted: dict[int, list[int]] = {}
        for query in sorted(set(queries)):
            block, row = self.place(query)
            wanted.setdefault(block, []).append(row)
        return [self._some(self.blocks[i], rows) for i, rows in wanted.items()]

    def _some(self, block: Block, rows: list[int]) -> Block:
        units = np.zeros((block.rows, len(rows)), dtype=np.int64)
        units[rows, np.arange(len(rows))] = 1
        return Block((block.attributes,), (Dense(block.operator.rmatvec(units).T),))

    def axes(self, block: Block) -> tuple[int, ...]:
        """The axes of a block among `names`."""
        return tuple(self.names.index(a) for a in block.attributes)

    def moved(self, blocks: Sequence[Block]) -> int:
        """The sensitivity of measuring these blocks together."""
        return sensitivity(blocks, self.every, self.unit, self.power).value

    def look(self, curator: Curator, blocks: Sequence[Block], name: str, plan_hash: str) -> Measurement:
        """Blocks with the noise that the price of a measurement buys; for nothing, where no record moves them."""
        found, proof = searched(blocks, self.every, self.unit, self.power)
        price = self._price if found.value else free(self._price)
        noise = noise_at(price, found.value)
        return curator.measure(blocks, noise, price, name=name, plan_hash=plan_hash, certificate=proof)[0]

    def total(self, curator: Curator, plan_hash: str) -> tuple[Measurement, float]:
        """The number of records: the public one, for nothing, or a measurement like any other; and at least 1."""
        found = self.look(curator, [TOTAL], "total", plan_hash)
        return found, max(1.0, float(found.values[0][0] if found.total is None else found.total))
