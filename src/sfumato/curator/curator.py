"""The trusted holder of the data: the one object that sees exact counts, with one door.

Order inside the door: re-derive the price from the integer maps, have the ledger debit it durably, and
only then draw the noise and look. Nothing after the debit depends on the data except the noisy value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.curator.counting import Counts
from sfumato.curator.sources import open_source
from sfumato.domain import Domain
from sfumato.errors import PlanError
from sfumato.measurements import Measurement
from sfumato.operators import Block
from sfumato.privacy.accountant import Event
from sfumato.privacy.ledger import Ledger, Receipt
from sfumato.privacy.noise import NoiseLaw
from sfumato.privacy.pricing import fits, power_of
from sfumato.privacy.sampling import BitSource
from sfumato.privacy.sensitivity import sensitivity
from sfumato.privacy.unit import Neighbours, PrivacyUnit

__all__ = ["Curator"]


class Curator:
    """Holds one table under one ledger. Opening it encodes the table and spends nothing.

    Raises SourceError (for the custodian) where the table cannot be loaded, DomainError or PlanError
    where the declaration does not allow it.
    """

    __slots__ = ("_bits", "_counts", "_domain", "_ledger", "_unit")

    def __init__(
        self, source: Any, domain: Domain, unit: PrivacyUnit, ledger: Ledger, *, insecure_bits: BitSource | None = None
    ) -> None:
        if unit.neighbours is Neighbours.REPLACE_ONE and domain.drops:
            raise PlanError("replace-one needs every record to be counted; an attribute of this domain drops rows")
        if insecure_bits is not None and ledger.durable:
            raise PlanError("reproducible bits are for tests; a durable ledger refuses them")
        self._domain, self._unit, self._ledger, self._bits = domain, unit, ledger, insecure_bits
        self._counts: Counts = open_source(source, domain, person=unit.person, rows_per_person=unit.rows_per_person)

    @property
    def unit(self) -> PrivacyUnit:
        """Whose privacy is protected."""
        return self._unit

    def measure(
        self, blocks: Sequence[Block], noise: NoiseLaw, price: Event, *, name: str, plan_hash: str
    ) -> tuple[Measurement, Receipt]:
        """B x + z in exact integers for all blocks together, after `price` was debited under `name`.

        Guarantee: the values satisfy the definition that `price` states (mu-GDP, epsilon-DP or rho-zCDP)
        for this curator's neighbour relation. Raises PlanError before any debit where the blocks cost
        more than `price`, and BudgetExceeded where the ledger holds less.
        """
        blocks = tuple(blocks)
        sizes = {n: a.size for n, a in self._domain.attributes.items()}
        for block in blocks:
            self._domain.check_names(block.attributes)
            block.check(sizes)
        if not fits(sensitivity(blocks, sizes, self._unit, power_of(noise)), noise, price):
            raise PlanError("the measurement costs more than the price it states; it is refused")
        receipt = self._ledger.debit(name, plan_hash, price)
        tables = self._counts.count([b.attributes for b in blocks])
        drawn = noise.sample(sum(b.rows for b in blocks), self._bits)
        values: list[NDArray[np.int64]] = []
        start = 0
        for block in blocks:
            # int64 throughout: what does not fit wraps around, which is post-processing of the
            # integer mechanism; nothing rounds, saturates or raises on the data
            exact = block.operator.matvec(tables[block.attributes].reshape(-1))
            values.append(exact + drawn[start : start + block.rows])
            start += block.rows
        total = int(self._counts.rows) if self._unit.total_is_public else None
        return Measurement(blocks, tuple(values), noise, total), receipt

    def __repr__(self) -> str:
        return f"<Curator of a table over {', '.join(self._domain.names)}>"
