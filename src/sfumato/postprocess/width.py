"""How wide a body of possible answers is: Gaussian width, mean width, support function. [NTZ13]

With h the support function, the mean width of a body K in R^k is M*(K) = E h(u), u uniform on the unit sphere, and its
Gaussian width l*(K) = E h(g), g standard normal: l* = c_k M*, c_k = E |g| = sqrt(2) Gamma((k + 1) / 2) / Gamma(k / 2).
Where noise of deviation s is on every answer, the expected squared error of the projection mechanism is at most
n s l*(K) / k.

How far projection will help, before any data: the width of the body against the noise. [NTZ13]

For counts h >= 0 of sum n and noise Z of mean 0 the projection P onto the body satisfies
E |P - F h|^2 <= n E M, with M the largest of <F_j, Z> over the body's corners F_j, whatever h is; and it is never
farther than the noisy answers are. Where n is not known the body is the cone, and P's own sum t replaces n: with
Fᵀ e = 1, t - n = <e, P - F h>, so that (1 - a/2) E |P - F h|^2 <= n E M + |e|^2 E M^2 / (2 a) for every 0 < a < 2.
These inequalities are proved; E M itself is simulated, by draws of noise that need no data, with three standard errors
added: what is said below holds up to the chance (about one in a thousand) that this is too little.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from sfumato._util.codec import storable
from sfumato.errors import InvalidInput
from sfumato.operators import LinearOperator
from sfumato.operators.base import FloatArray, real_array, single_thread
from sfumato.postprocess.bodies import BODIES, automatic_body
from sfumato.postprocess.projection import Support, SupportPoint, joint_attributes, support_function
from sfumato.postprocess.separation import Separation, separate
from sfumato.workloads import Workload

# 200 estimate a mean to a fourteenth of a deviation, which is stated; a million to a thousandth
_DRAWS, _MOST_DRAWS = 200, 10**6


@dataclass(frozen=True, slots=True, repr=False)
class Width:
    """The body of possible answers of one record (shares), and how wide it is. `sf.width` makes it.

    Args:
        body: What answers must lie in.
        queries: The number of queries, k.
        gaussian: The Gaussian width; infinite for a cone.
        gaussian_error: The standard error of its simulation.
        mean: The mean width; infinite for a cone.
        mean_error: The standard error of its simulation.
        slack: By how much, at most, `gaussian` is too small because maxima were found within a proved bound only; 0
            where they are exact, up to rounding.
        draws: The number of pairs of opposite directions.
    """

    body: str
    queries: int
    gaussian: float
    gaussian_error: float
    mean: float
    mean_error: float
    slack: float
    draws: int
    _reach: Support = field(repr=False, compare=False)
    _work: Workload = field(repr=False, compare=False)

    def support(self, direction: ArrayLike) -> float:
        """The support function h(y): the largest <y, a> over the points a of the body.

        Args:
            direction: y, (k,).

        Returns:
            h(y), exact up to `reach`.

        Raises:
            InvalidInput: The direction is not k finite numbers.
        """
        return self.reach(direction).value

    def farthest(self, direction: ArrayLike) -> FloatArray | None:
        """A point of the body that is farthest in a direction: the answer of the linear oracle.

        Args:
            direction: y, (k,).

        Returns:
            (k,) a point where h(y) is reached; None for a cone.

        Raises:
            InvalidInput: The direction is not k finite numbers.
        """
        return self.reach(direction).point

    def reach(self, direction: ArrayLike) -> SupportPoint:
        """How far the body goes in a direction, with a proved bound.

        Args:
            direction: y, (k,).

        Returns:
            `value`, a proved `bound` on h(y) from above, and the point.

        Raises:
            InvalidInput: The direction is not k finite numbers.
        """
        return self._reach(self._read(direction, "a direction"))

    def _read(self, given: ArrayLike, what: str) -> FloatArray:
        found = real_array(given, what).astype(np.float64)
        if found.shape != (self.queries,) or not np.isfinite(found).all():
            raise InvalidInput(f"{what} is of {self.queries:,} finite numbers, not of shape {found.shape}")
        return found

    def separation_oracle(self, point: ArrayLike) -> Separation:
        """Whether answers are possible, or a hyperplane between them and all that are, with its proof.

        Args:
            point: (k,) answers as shares of the records: of n records, divided by n.

        Returns:
            The hyperplane with its margin, or a point of the body within a millionth of the size of the answers.

        Raises:
            InvalidInput: The point is not k finite numbers; the body is a cone, whose records have no number; or
                neither was proved, as the search for the nearest point ended too early.

        Source:
            The paragraph on separation oracles of [Nikolov]

        >>> body = sf.width(sf.identity(sf.Domain({"age": 3})))
        >>> body.separation_oracle([0.2, 0.3, 0.5]).inside
        True
        >>> found = body.separation_oracle([1.0, 1.0, -1.0])
        >>> found, (found.normal * found.margin).round(6)
        (<Separation: outside 'simplex', by 1.2247 to 1.2247>, array([ 0.5,  0.5, -1. ]))
        """
        given = self._read(point, "a point")
        if self.body == "cone":
            raise InvalidInput("the separation oracle is for bodies with a known total, not for body='cone'")
        return separate(given, self._work, self.body, self._reach)

    def error(self, noise: float, records: int) -> float:
        """An upper bound on the root mean squared error of projected answers.

        It is sqrt(n s (w + 3 standard errors + slack) / k), w the Gaussian width, and s at most.

        Args:
            noise: s, the standard deviation of the noise of the answers, in records.
            records: n, the number of records.

        Returns:
            The bound, in records.

        Raises:
            InvalidInput: A number is not positive and finite.

        Source:
            [NTZ13]
        """
        for name, given in (("noise", noise), ("records", records)):
            if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 < given < math.inf:
                raise InvalidInput(f"{name} must be a positive number, not {given!r}")
        wide = self.gaussian + 3 * self.gaussian_error + self.slack
        return min(float(noise), math.sqrt(records * noise * wide / self.queries))

    def __repr__(self) -> str:
        return (
            f"<Width of {self.body!r} in {self.queries:,} queries: Gaussian {self.gaussian:.5g} ± "
            f"{self.gaussian_error:.2g}, mean {self.mean:.5g} ± {self.mean_error:.2g}>"
        )


def width(work: Workload, body: str = "auto", *, draws: int = _DRAWS, rng: int | np.random.Generator = 0) -> Width:
    """The Gaussian and the mean width of the body of possible answers, with its support function.

    The widths are those of shares of the records; of n records they are n times as large. With n records, noise of
    standard deviation s and the Gaussian width w, n s w / k bounds the expected mean squared error of the projected
    answers, in records.

    Args:
        work: The queries.
        body: As in `sf.project`, with a known total of one record: "auto", "simplex", "isotonic", "hull", "local",
            "sdp", "sdp+local", "exact"; or "cone", which is infinitely wide.
        draws: The number of random directions, from 2 to 1,000,000. Each is taken with its opposite: h(u) + h(-u) does
            not change when the body is moved, and neither do the widths.
        rng: A seed, or a generator of numpy.

    Returns:
        The widths with the standard errors of their simulation; `support`, the support function, and
        `separation_oracle`, which says whether answers are possible.

    Raises:
        InvalidInput: There is no such body, it does not take these queries, or `draws` is not allowed.

    Source:
        [NTZ13], Definitions 5 to 7 and Theorem 8 of the notes on the projection mechanism [Nikolov]

    >>> wide = sf.width(sf.identity(sf.Domain({"age": 3})))
    >>> wide.body, wide.queries, wide.draws
    ('simplex', 3, 200)
    >>> wide.support([1.0, 2.0, 3.0])
    3.0
    >>> wide.farthest([1.0, 2.0, 3.0])
    array([0., 0., 1.])
    """
    if not isinstance(work, Workload):
        raise InvalidInput("width needs a workload, made by sf.marginals, sf.queries, ...")
    if body not in BODIES or body == "mixtures":
        kept = ", ".join(b for b in BODIES if b != "mixtures")
        raise InvalidInput(
            f"body must be one of {kept}, not {body!r}" + " (which is a model, no body)" * (body in BODIES)
        )
    if type(draws) is not int or not 2 <= draws <= _MOST_DRAWS:
        raise InvalidInput(f"draws is a whole number from 2 to {_MOST_DRAWS:,}, not {draws!r}")
    chosen = automatic_body(work, 1.0) if body == "auto" else body
    found = support_function(chosen, work)
    k = len(work)
    if chosen == "cone" and joint_attributes(work):
        return Width(chosen, k, math.inf, 0.0, math.inf, 0.0, 0.0, 0, found, work)
    random, halves, slack = np.random.default_rng(rng), np.empty(draws), 0.0
    for i in range(draws):
        direction = random.standard_normal(k)
        direction /= np.linalg.norm(direction)
        ends = found(direction), found(-direction)
        halves[i] = sum(e.value for e in ends) / 2
        slack += sum(e.bound - e.value for e in ends) / (2 * draws)
    mean, error = float(halves.mean()), float(halves.std(ddof=1)) / math.sqrt(draws)
    length = math.sqrt(2) * math.exp(math.lgamma((k + 1) / 2) - math.lgamma(k / 2))
    slack = slack if slack > 1e-9 * abs(mean) else 0.0
    return Width(chosen, k, length * mean, length * error, mean, error, length * slack, draws, found, work)


Draws = Callable[[int], FloatArray]

_MARGIN = 3.0  # standard errors added to a simulated mean: it is then short once in about a thousand times
_SOLVED = 2_048  # cells up to which an eigendecomposition of the Gram matrix takes seconds, and 32 MB
_LESS = 0.99  # of the noise: a span of more is not worth a word
_CUT = 1e-10  # relative: directions of less length are rounding of Gram matrices, squares that they are
# each share of (0, 2) gives a valid bound and the least is taken: a hundredth moves it little
_SHARES = np.linspace(0.01, 1.99, 199)


@dataclass(frozen=True, slots=True)
class LargestProduct:
    """E M and E M^2 of the largest M >= 0 of <F_j, Z>, each with three standard errors of its simulation added."""

    mean: float
    square: float

    @classmethod
    def of(cls, largest: FloatArray) -> LargestProduct:
        """From draws of M."""
        held = np.maximum(largest, 0.0)
        count = math.sqrt(len(held))
        mean = float(held.mean() + _MARGIN * held.std(ddof=1) / count)
        return cls(mean, float((held**2).mean() + _MARGIN * (held**2).std(ddof=1) / count))


@storable
@dataclass(frozen=True, slots=True)
class Forecast:
    """What is known of the projected error of k answers before data, in the answers' units.

    body: what is projected onto. raw: root mean squared error of the unprojected answers. width, square: E M and
    E M^2 (see above), None where no bound is known. lever: |e|^2 where the number of records is unknown, 0 where
    it is public. span: the error of the noise within the span of the body. records: how many are foreseen.
    """

    body: str
    queries: int
    raw: float
    width: float | None = None
    square: float = 0.0
    lever: float = 0.0
    span: float | None = None
    records: int | None = None

    def at(self, records: int) -> Forecast:
        """The same for another number of records."""
        return replace(self, records=records)

    @property
    def bound(self) -> float | None:
        """The width's bound on the expected root mean squared error at `records`; None where there is none."""
        if self.width is None or self.records is None:
            return None
        worth = self.records * self.width
        if self.lever:
            worth = float(np.min((worth + self.lever * self.square / (2 * _SHARES)) / (1 - _SHARES / 2)))
        return math.sqrt(worth / self.queries)

    @property
    def rmse(self) -> float:
        """The least of the bounds: what is predicted at most."""
        return min(x for x in (self.raw, self.bound, self.span) if x is not None)

    @property
    def crossover(self) -> float | None:
        """n*: projection is predicted to help with fewer records, and the verdict says so below it and not from it on.

        Infinite where what of the noise lies within the span of the body is less, whatever the number of records; None
        where nothing is known.
        """
        if self.span is not None and self.span < _LESS * self.raw:
            return math.inf
        if self.width is None or self.width <= 0:
            return None
        noise = self.queries * self.raw**2
        if not self.lever:
            return noise / self.width
        worth = noise * (1 - _SHARES / 2) - self.lever * self.square / (2 * _SHARES)
        return max(0.0, float(worth.max()) / self.width)

    @property
    def proved(self) -> bool:
        """Whether `rmse` bounds the error after projection: not where models denoise."""
        return self.body != "mixtures"

    @property
    def verdict(self) -> str:
        """Whether projection is predicted to help, cannot hurt, or what is unknown, with the numbers."""
        if not self.proved:
            return (
                f"pairs have a root mean squared error of {self.raw:,.4g} before; what is left of it depends on "
                "the data: usually far less where the noise is large, but that is not guaranteed"
            )
        most = self.crossover
        if most is None or most < 1:
            return "cannot hurt in its norm; no number of records is known below which it must help"
        after = f"predicted to help: rmse at most {self.rmse:,.4g} after projection"
        if math.isinf(most):
            return f"{after}, {self.raw:,.4g} without, at any number of records"
        held = f"below {most:,.3g} records its width says that it helps (simulated, with three standard errors added)"
        if self.records is None:
            return f"cannot hurt in its norm; {held}, above that where tables are sparse (records= gives a figure)"
        if self.records < most:
            return f"{after} at {self.records:,} records, {self.raw:,.4g} without; {held}"
        return (
            f"cannot hurt in its norm; at {self.records:,} records its width promises no better error (below "
            f"{most:,.3g} it does), but it helps where tables are sparse"
        )


class HullCells:
    """The columns F_j of an operator (k, m) as corners of a hull (`total_known`) or of a cone; what forecasts share.

    The span of the body, and the lever of a cone, are known up to 2,048 cells.
    """

    def __init__(self, operator: LinearOperator, *, total_known: bool) -> None:
        self.operator, self.total_known = operator, total_known

    @property
    def solved(self) -> bool:
        """Whether the cells are few enough for the span."""
        return self.operator.shape[1] <= _SOLVED

    @functools.cached_property
    def _inverse(self) -> tuple[FloatArray, FloatArray] | None:
        """(values, vectors) of the Gram matrix of the directions of the body, those of no length left out."""
        if not self.solved:
            return None
        gram = np.asarray(self.operator.gram().dense(), dtype=np.float64)
        if self.total_known:
            # differences of columns alone: what all share is known
            gram = gram - gram.mean(axis=0) - gram.mean(axis=1)[:, None] + gram.mean()
        with single_thread():
            values, vectors = np.linalg.eigh(gram)
        kept = values > _CUT * max(float(values[-1]), 1e-300)
        return values[kept], vectors[:, kept]

    def inside(self, pull: FloatArray) -> FloatArray | None:
        """(c,) the squared lengths of z within the span of the body, from F^T z in columns; None where unknown."""
        if self._inverse is None:
            return None
        values, vectors = self._inverse
        centred = pull - pull.mean(axis=0) if self.total_known else pull
        return np.asarray(((vectors.T @ centred) ** 2 / values[:, None]).sum(axis=0))

    @functools.cached_property
    def lever(self) -> float | None:
        """|e|^2 of the least e with F^T e = 1 for a cone, 0 for a hull; None where there is none or it is unknown."""
        if self.total_known:
            return 0.0
        if self._inverse is None:
            return None
        values, vectors = self._inverse
        told = vectors.T @ np.ones(len(vectors))
        if float(np.abs(vectors @ told - 1).max(initial=0.0)) > 1e-6:
            return None
        return float((told**2 / values).sum())


def forecast_of_hull(
    body: str, cells: HullCells, draws: Draws, raw: float, records: int | None, *, count: int = 256
) -> Forecast:
    """The forecast for the hull or cone of some cells, its width by `count` draws; draws(c) is (k, c) new noise."""
    k, m = cells.operator.shape
    pulls: list[FloatArray] = []
    at_once = max(1, min(count, 2**24 // max(k, m)))
    for start in range(0, count, at_once):
        noise = draws(min(at_once, count - start))
        pulled = np.asarray(cells.operator.rmatvec(noise), dtype=np.float64)
        # of many cells the largest alone are needed, and all would fill the memory
        pulls.append(pulled if cells.solved else pulled.max(axis=0, keepdims=True))
    pull = np.concatenate(pulls, axis=1)
    inside = cells.inside(pull)
    span = None if inside is None else _noise_within_span(inside, k, raw)
    if cells.lever is None:
        return Forecast(body, k, raw, span=span, records=records)
    width = LargestProduct.of(pull.max(axis=0))
    return Forecast(body, k, raw, width.mean, width.square, cells.lever, span, records)


def _noise_within_span(inside: FloatArray, queries: int, raw: float) -> float | None:
    """The root mean square of the noise within the span, with its margin, where that is less than all of it."""
    found = float(inside.mean() + _MARGIN * inside.std(ddof=1) / math.sqrt(len(inside)))
    spanned = math.sqrt(max(found, 0.0) / queries)
    return spanned if spanned < raw else None
