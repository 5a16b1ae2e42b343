"""What other weights of one look, and a second look, gain on all pairs and triples of Adult's 14 attributes.

    OPENBLAS_NUM_THREADS=1 python bench/adaptive_weights.py /path/to/adult.csv [draws] [rho] [look ...]
        [--table adult,tree,...]

The tables of bench/adaptive.py (91 pairs, 364 triples: "adult", "tree", "small", "independent") and "mixture", 48,842
records of five kinds of people with the same sizes (generator 200), add-remove; all pairs are asked and triples follow
from them. e2, e3: mean over pairs and triples of sum |answer - truth| / n. Every single look measures the same sets and
gets the same standard normals (draw by draw), so differences from the look named first vary less than the errors; both
with standard errors.

"two looks": a first release with .3 of the budget, the second after it, its pairs weighed by what the first saw of
each; "by size": without that. These two have normals of their own, the same for both. "share S": attributes get S of
the budget. "power P": precision of pairs as cells^P. "oracle P": precision of pairs as D^P beside that, D what the
*true* pair is away from independence (at least .005), which nobody knows before the data: it bounds what any choice of
pairs gains.
"halves A": members are fitted on the measurement and A deviations of their own noise.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
from adaptive import drawn, table
from adaptive_regimes import Case, mixture
from ladder import Counts
from projection_local import coarsened

import sfumato as sf
from sfumato.mechanisms import denoised_pairs as dividing
from sfumato.postprocess import denoising
from sfumato.postprocess.denoising import AdaptedTables

LOOKS = ("one look", "two looks", "by size", "share .2", "share .4", "power .3", "oracle .3", "oracle 1", "halves .35")
LEAST = 0.005


class Adult(Case):
    """The 14 attributes, whose cells are declared."""

    def __init__(self, path: str, rho: str, name: str = "adult") -> None:
        rows, self.sizes = coarsened(path)
        if name == "mixture":
            self.rows = np.stack(list(mixture(np.random.default_rng(200), self.sizes, len(rows), 5)), axis=1)
        else:
            self.rows = drawn(name, rows, self.sizes)
        names = [f"a{i:02}" for i in range(len(self.sizes))]
        self.held, self.order, self.n = dict(zip(names, self.rows.T, strict=True)), 2, len(self.rows)
        some = {
            a: sf.Integers(0, k - 1, outside="clamp", missing="drop") for a, k in zip(names, self.sizes, strict=True)
        }
        self.domain, self.budget = sf.Domain(some), sf.zcdp(Fraction(rho))
        self.works = {2: sf.marginals(self.domain, order=2)}
        self.counts, self.exact = Counts(self.works[2], self.held), {}
        self.truth = [self.counts.of(q.attributes) for q in self.works[2].blocks]
        axes = itertools.combinations(range(len(self.sizes)), 3)
        self.triples = {t: table(self.rows, self.sizes, t) for t in axes}

    def dependence(self) -> np.ndarray:
        """(d, d) how far the true pairs are from independence, in shares of the records."""
        out = np.full((len(self.sizes),) * 2, LEAST)
        for (i, j), t in zip(itertools.combinations(range(len(self.sizes)), 2), self.truth, strict=True):
            p = t / self.n
            out[i, j] = max(float(np.abs(p - np.outer(p.sum(axis=1), p.sum(axis=0))).sum()), LEAST)
        return out

    def errors(self, release: sf.Release) -> tuple[float, float]:
        assert release.projection is not None
        assert isinstance(release.projection.possible, AdaptedTables)
        held = release.projection.possible.adapted
        threes = [np.abs(held.table(t) - exact).sum() / self.n for t, exact in self.triples.items()]
        return self.error(release), float(np.mean(threes))


def known_best(case: Adult, power: float) -> Any:
    """The division of the budget, with the precision of pairs moved to those that depend."""
    plain, dependence = dividing._share_residual_budget, case.dependence()  # noqa: SLF001

    def shared(problem: Any, **more: Any) -> Any:
        sets, squares = plain(problem, **more)
        price = (1 - 1 / np.array(case.sizes)[sets[2]]).prod(axis=1)
        wanted = squares[2] * dependence[sets[2][:, 0], sets[2][:, 1]] ** power
        return sets, [*squares[:2], wanted * float(squares[2] @ price) / float(wanted @ price)]

    return shared


@contextmanager
def changed(case: Adult, look: str) -> Iterator[None]:
    kind, _, value = look.partition(" ")
    with ExitStack() as stack:
        for name, new in {
            "share": ("_share_of_ones", lambda *_: float(value)),
            "power": ("_cell_power", lambda *_: float(value)),
            "by": ("_MOST_FOLLOWED", 0.0),
            "oracle": ("_share_residual_budget", kind == "oracle" and known_best(case, float(value))),
        }.items():
            if name == kind:
                stack.enter_context(mock.patch.object(dividing, *new))
        if kind == "halves":
            split = functools.partial(denoising.split_in_halves, share=float(value))
            stack.enter_context(mock.patch.object(denoising, "split_in_halves", split))
            stack.enter_context(mock.patch.object(denoising, "_GROWTH", 1 + float(value) ** 2))
        yield


def main(path: str, draws: int, rho: str, looks: list[str], table_name: str) -> None:
    case, plans = Adult(path, rho, table_name), dict[str, sf.Plan]()
    for look in looks:
        with changed(case, look):
            plans[look] = case._plan(2, "adaptive")  # noqa: SLF001
    found = {look: np.zeros((0, 2)) for look in looks}
    for draw in range(draws):
        for look in looks:
            with changed(case, look):
                if look in ("two looks", "by size"):
                    made = case.twice(draw)[0]
                else:
                    made = case.released(plans[look], draw).project("mixtures")
            found[look] = np.vstack([found[look], case.errors(made)])
            print(draw, look, *found[look][-1].round(4), file=sys.stderr, flush=True)
    root = np.sqrt(draws)
    print(f"{table_name}, rho {rho}, {draws} draws")
    print(f"{'':12}{'e2':>8}{'se':>8}{'e3':>8}{'se':>8}   less {looks[0]}: e2, se, e3, se")
    for look, all_of in found.items():
        beyond = all_of - found[looks[0]]
        told = np.stack([all_of.mean(axis=0), all_of.std(axis=0, ddof=1) / root], axis=1).ravel()
        more = np.stack([beyond.mean(axis=0), beyond.std(axis=0, ddof=1) / root], axis=1).ravel()
        print(f"{look:12}", *(f"{x:7.4f}" for x in told), "  ", *(f"{x:8.4f}" for x in more), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("draws", nargs="?", type=int, default=10)
    parser.add_argument("rho", nargs="?", default="0.000177")
    parser.add_argument("looks", nargs="*", default=list(LOOKS))
    parser.add_argument("--table", default="adult")
    given = parser.parse_intermixed_args()
    for name in given.table.split(","):
        main(given.path, given.draws, given.rho, given.looks or list(LOOKS), name)
