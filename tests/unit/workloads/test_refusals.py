"""What cannot be asked is refused before anything else happens."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from sfumato.domain import Bins, Booleans, Categories, Domain, Integers
from sfumato.errors import InvalidInput, WorkloadError
from sfumato.workloads import Workload, identity, marginals, predicates, prefix, queries, stack, sums, total, windows

BARE = Domain(
    {
        "age": Integers(0, 9, width=2),
        "sex": Categories({"1": "f", "2": "m"}),
        "wage": Bins([0, 10, 20, 50]),
        "ok": Booleans(),
    }
)
EXTRA = Domain(
    {
        "age": Integers(0, 9, width=2, outside="other"),
        "sex": Categories({"1": "f", "2": "m"}, missing="other"),
        "wage": Bins([0, 10, 20, 50], outside="clamp", missing="other"),
        "ok": Booleans(missing="drop"),
    }
)
DOMAINS = pytest.mark.parametrize("domain", [BARE, EXTRA], ids=["bare", "extra"])
Cell = dict[str, int]


@pytest.mark.parametrize(
    "make",
    [
        lambda: marginals(BARE),
        lambda: marginals(BARE, 2, upto=2),
        lambda: marginals(BARE, 5),
        lambda: marginals(BARE, -1),
        lambda: marginals(BARE, True),
        lambda: marginals(BARE, 1.0),  # type: ignore[arg-type]
        lambda: marginals(BARE, upto="2"),  # type: ignore[arg-type]
        lambda: marginals(BARE, sets=[]),
        lambda: marginals(BARE, sets="age"),
        lambda: marginals(BARE, sets=["age"]),
        lambda: marginals(BARE, sets=3),  # type: ignore[arg-type]
        lambda: marginals(BARE, sets=[3]),  # type: ignore[list-item]
        lambda: marginals(BARE, sets=[("age", "age")]),
        lambda: marginals(BARE, sets=[("age", "nobody")]),
        lambda: marginals(BARE, sets=[("age", "sex"), ("sex", "age")]),
        lambda: marginals(BARE, 2, weights={1: 1}),
        lambda: marginals(BARE, 2, weights={("age",): 1}),
        lambda: marginals(BARE, 2, weights={("age", "sex"): 1, ("sex", "age"): 2}),
        lambda: marginals(BARE, 2, weights={True: 1}),
        lambda: marginals(BARE, 1, weights={True: 1}),
        lambda: marginals(BARE, 2, weights={2: 0}),
        lambda: marginals(BARE, 2, weights={2: -1}),
        lambda: marginals(BARE, 2, weights=[1]),  # type: ignore[arg-type]
        lambda: marginals(Domain({f"a{i}": 2 for i in range(30)}), upto=30),
        lambda: marginals(Domain({f"a{i}": 2 for i in range(200)}), 4),
    ],
)
def test_marginals_that_cannot_be_asked_are_refused(make: Callable[[], Workload]) -> None:
    """Mutant: a million tables of a larger order are kept, and the rest dropped without a word."""
    with pytest.raises(InvalidInput):
        make()


def test_a_million_tables_at_most() -> None:
    with pytest.raises(WorkloadError, match="64,684,950"):
        marginals(Domain({f"a{i}": 2 for i in range(200)}), 4)
    with pytest.raises(WorkloadError, match="1,073,741,824"):
        marginals(Domain({f"a{i}": 2 for i in range(30)}), upto=30)


@pytest.mark.parametrize(
    "bad", [[], "age > 3", ["age > 3; DROP TABLE"], ["("], ["(" * 100_000], ["nobody > 3"], [3], None]
)
def test_predicates_that_are_none_are_refused(bad: Any) -> None:
    with pytest.raises(InvalidInput):
        predicates(BARE, bad)


@pytest.mark.parametrize(
    "make",
    [
        lambda: queries([]),
        lambda: queries([[]]),
        lambda: queries([[1, 2], [3]]),
        lambda: queries([[1, math.nan]]),
        lambda: queries([[1, math.inf]]),
        lambda: queries([[1, 1e300]]),
        lambda: queries(np.array([[1, None]], dtype=object)),
        lambda: queries([["a", "b"]]),
        lambda: queries(np.zeros((2, 2, 2))),
        lambda: queries(3),
        lambda: queries(None),
        lambda: queries([[1, 2]], BARE),
        lambda: queries([[1, 2]], BARE, "age"),
        lambda: queries([[1, 2]], BARE, "nobody"),
        lambda: queries(sp.csr_array(np.array([[1.0, math.nan]]))),
        lambda: queries([[1, 2]], labels=["one", "two"]),
        lambda: queries([[1, 2]], labels="x"),
        lambda: queries([[1, 2], [3, 4]], labels="xy"),
        lambda: queries([[1, 2]], attribute=""),
        lambda: queries([[1, 2]], attribute="a\u200b"),
        lambda: prefix(BARE, "nobody"),
        lambda: prefix(BARE, "age", by="age"),
        lambda: prefix(BARE, "age", by=["sex", "sex"]),
        lambda: prefix(BARE, "age", by=["nobody"]),
        lambda: prefix(BARE, "age", by=3),  # type: ignore[arg-type]
        lambda: prefix(BARE, ["age"]),  # type: ignore[arg-type]
        lambda: windows(BARE, "age", 6),
        lambda: windows(BARE, "age", 0),
        lambda: windows(BARE, "age", True),
        lambda: windows(BARE, "age", 2.0),  # type: ignore[arg-type]
        lambda: windows(EXTRA, "age", 6),
        lambda: identity(BARE, "nobody"),
        lambda: identity(BARE, "age", "age"),
        lambda: identity(BARE, ["age"]),  # type: ignore[arg-type]
        lambda: sums(BARE, "sex"),
        lambda: sums(BARE, "ok"),
        lambda: sums(BARE, "wage", [1, 2]),
        lambda: sums(BARE, "wage", [1, 2, 3, 4]),
        lambda: sums(EXTRA, "wage", [1, 2, 3, 4, 5]),
        lambda: sums(BARE, "wage", [1, 2, math.nan]),
        lambda: sums(BARE, "wage", [1, 2, "3"]),
        lambda: sums(BARE, "wage", [[1, 2, 3]]),
        lambda: sums(BARE, "wage", [1, [2], 3]),
        lambda: sums(BARE, "wage", 3),
        lambda: sums(BARE, "wage", by=["wage"]),
        lambda: stack(),
        lambda: stack(None),  # type: ignore[arg-type]
        lambda: stack(a=[1]),  # type: ignore[arg-type]
        lambda: stack([total(BARE)]),  # type: ignore[arg-type]
        lambda: stack(total(BARE), total(EXTRA)),
        lambda: stack(total(BARE), weights={"nobody": 2}),
        lambda: stack(total(BARE), weights={"total": 0}),
        lambda: stack(total(BARE), weights=["total"]),  # type: ignore[arg-type]
        lambda: stack(**{"a\u202e": total(BARE)}),
    ],
)
def test_what_cannot_be_asked_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(InvalidInput):
        make()
