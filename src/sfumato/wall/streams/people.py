"""Who is counted in which periods of a stream: enforced, by keyed digests of names, as secret as the state.

Whether a person's rows are counted follows from the periods that this person's rows were in before, and from nothing
else: so they are counted in no more periods than are priced, and no nearer ones, wherever they turn up. What exceeds
is left out. Who is left out is in no period more; whose rows are all dropped as declared, is. Who is left out for the
first time is counted, once for ever: that too follows from the periods of this person alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.cells import Grid
from sfumato.errors import InvalidInput
from sfumato.privacy.unit import PrivacyUnit
from sfumato.wall.rows.clusters import Packing
from sfumato.wall.rows.counting import Counts
from sfumato.wall.rows.encoding import check_declared, check_type, encode
from sfumato.wall.rows.readers import open_table
from sfumato.wall.rows.session import Opened, attempt
from sfumato.wall.rows.sources import Histogram, collect

__all__ = ["FIELDS", "People", "open_people"]

FIELDS = 4
"""Numbers kept of a person: two with 128 bits of a digest, in how many periods the person was counted, to which 2^32 is
added once the person was left out, and the last of them."""
_LEFT = 2**32  # more than there are periods
_BLOCK = 64  # bytes that SHA-256 takes at once, to which HMAC pads its key
_GIVEN = "CREATE TEMP TABLE given AS SELECT *, {who} AS who FROM (SELECT {raw} FROM {source})"
_CALLED = (
    "CREATE TEMP TABLE called AS SELECT who, CAST('0x' || h[1:16] AS UBIGINT) AS high, "
    "CAST('0x' || h[17:32] AS UBIGINT) AS low FROM "
    "(SELECT who, sha256(unhex(?) || unhex(sha256(unhex(?) || encode(who)))) AS h FROM "
    "(SELECT DISTINCT who FROM given WHERE who IS NOT NULL))"
)
_ADMITTED = (
    "CREATE TEMP TABLE admitted AS SELECT called.*, coalesce(times, 0) + 1 AS times FROM called LEFT JOIN known "
    "USING (high, low) WHERE times IS NULL OR (times % {left} < {times} AND last + {apart} <= {period})"
)
_FIRST = (
    "CREATE TEMP TABLE first_left AS SELECT high, low FROM known SEMI JOIN called USING (high, low) "
    "ANTI JOIN admitted USING (high, low) WHERE times < {left}"
)
_AFTER = (
    "SELECT high, low, times, CAST({period} AS BIGINT) AS last FROM admitted UNION ALL "
    "SELECT high, low, times + {left}, last FROM known SEMI JOIN first_left USING (high, low) UNION ALL "
    "SELECT high, low, times, last FROM known ANTI JOIN admitted USING (high, low) "
    "ANTI JOIN first_left USING (high, low) ORDER BY high, low"
)


@dataclass(frozen=True, slots=True, repr=False)
class People:
    """The records of a period as they are given, beside digests of whose they are."""

    opened: Opened
    grid: Grid
    unit: PrivacyUnit
    packing: Packing

    def admit(
        self, known: NDArray[np.int64], period: int, times: int, apart: int
    ) -> tuple[Counts, int, NDArray[np.int64]]:
        """Counts of those who may be counted in this period, how many others are left out for the first time, and what
        is known after it: (people, 4), as before it."""
        connection = self.opened.session.connection
        told = {"times": times, "apart": apart, "period": period, "left": _LEFT}
        columns = zip(("high", "low", "times", "last"), known.T.copy(), strict=True)
        connection.register("known", {n: c.view(np.uint64) if n in ("high", "low") else c for n, c in columns})
        connection.execute(_ADMITTED.format(**told))
        connection.execute(_FIRST.format(**told))
        (first,), *_ = self.opened.session.rows("SELECT count(*) FROM first_left")
        after = connection.execute(_AFTER.format(**told)).fetchnumpy()
        assert self.unit.person is not None
        source, rows = "(SELECT * FROM given SEMI JOIN admitted USING (who))", self.unit.rows_per_person
        for statement in encode(self.grid, self.opened.columns, source, self.unit.person, rows):
            connection.execute(*statement)
        kept = np.column_stack([np.asarray(after[n]).view(np.int64) for n in ("high", "low", "times", "last")])
        return collect(self.opened, self.grid, self.packing, persons=True), int(first), kept


def open_people(
    source: Any, grid: Grid, unit: PrivacyUnit, packing: Packing, key: bytes, *, as_written: bool = False
) -> People:
    """Read a table once, with the digest of every name in it, or of every text of one. Raises as `open_source`."""
    person = unit.person
    assert person is not None
    if isinstance(source, Histogram):
        raise InvalidInput(
            f"a histogram has no column {person!r}, by which this stream sees to it that nobody is counted too often; "
            "give the records, or plan with sf.periods(..., promised=True)"
        )
    check_declared(grid)
    needed = list(dict.fromkeys([*grid.names, person]))
    opened = open_table(source, needed)
    try:
        check_type(person, None, opened.columns[person])
        columns = {n: replace(opened.columns[n], sql=f"k{i}") for i, n in enumerate(needed)}
        raw = ", ".join(f"{opened.columns[n].sql} AS {columns[n].sql}" for n in needed)
        called = columns[person]
        who = (called.written if as_written else called.name)(called.sql)
        pad = key.ljust(_BLOCK, b"\0")
        given = _GIVEN.format(who=who, raw=raw, source=opened.sql)
        pads = [bytes(b ^ x for b in pad).hex() for x in (0x5C, 0x36)]
        message = f"{opened.label} could not be read: it is damaged or was cut short, or memory or disk ran out"
        run = opened.session.connection.execute
        attempt(message, lambda: (run(given), run(_CALLED, pads)))
        return People(Opened(opened.session, opened.label, "given", columns, opened.records), grid, unit, packing)
    except BaseException:
        opened.session.close()
        raise
