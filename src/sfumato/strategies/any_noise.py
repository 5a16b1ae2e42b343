"""The least standard error of one unbiased answer that a record moves by one, whatever the law of its noise.

Let noise N keep a promise where it is moved by one, and v be a lower bound on E N^2 for all such laws of mean zero.
Take answers with noise of covariance C, of the same law on all tables, and u with uᵀd = 1 for a difference d of two
neighbours' answers. Then uᵀ(noise) is such an N. So d dᵀ <= C / v for all d: C / v is the covariance of Gaussian
noise that keeps mu = 1, of which the bound for Gaussian noise is the least [NT24], and sqrt(v) times that bound holds
for C. [CR51]

The law need not be the same on all tables. Where records are added, a mechanism that is unbiased on all tables has on
an average over a large box of them noise that keeps the promise up to one part in the length of the box; so its
largest error over all tables is above the bound. Where they are replaced, the box is no longer than the number of
records.

*At a price of mu or rho*, v = 1 / sinh(mu^2), mu^2 = 2 rho. With p, p+ and p- the laws of an answer T on a table and on
its two neighbours, f = p+ / p and g = p- / p, 2 = E T (f - g), so 4 <= Var T E (f - g)^2. E f^2 and E g^2 are at most
e^(mu^2), the order 2 of Rényi's divergence, and E f g >= exp(E ln f + E ln g) >= e^(-mu^2), by its order 1 in the other
direction. The difference is 4 sinh(mu^2). This one holds on every table that has a record in every cell.

*At (epsilon, delta)*, alone, v is the value of a linear programme. In a fibre t + Z, |t| <= 1/2, let m_k be the mass at
k + t. For any lambda >= 0 and w_k, w'_k in [0, lambda]

    E N^2 >= sum m_k ((k + t)^2 + w_k - e^epsilon w_(k - 1) + w'_k - e^epsilon w'_(k + 1)) - 2 lambda delta,

for the promise bounds sum w_k (m_k - e^epsilon m_(k + 1)) and its mirror by lambda delta. So c - 2 lambda delta is a
bound where the brackets are at least c. Right of the middle w' is zero and w_k = min over J of

    a^J lambda + sum_(j <= J) a^j ((k + j + t)^2 - c),    a = e^-epsilon,

the largest that the next bracket allows, left of it the mirror. With kappa^2 = c + (e^epsilon - 1) lambda the least is
at the last j + t below kappa: t moves it by one at most. The bracket in the middle, w_0 + w'_0 >= c - t^2, is then

    c (e^epsilon + 1) / (e^epsilon - 1) <= (a^I + a^J) kappa^2 / (e^epsilon - 1)
        + sum_(j <= I) a^j (j + t)^2 + sum_(j <= J) a^j (j - t)^2 + t^2,

and w_0, w'_0 >= 0 the other condition; both are squares in t. With delta = 0 the bound is 1 / (2 sinh^2(epsilon / 2)),
the variance of the discrete Laplace law [GRS12].
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from sfumato.operators.base import FloatArray

_MOST_MU_SQUARED = 100.0  # e^-50 of a bound, and less, says nothing
_MOST_EPSILON = 100.0  # the same
_LEAST_EPSILON = 1 / 128  # below, a step of several records is one of a larger epsilon: sums stay short
_KAPPAS = 600  # tried around the best in the continuum: the bound is flat there
_MARGIN = 1e-9  # relative, of sums of positive terms


def least_error_at_price(mu_squared: float) -> float:
    """A lower bound on the standard error of a unit change for all laws at that price of mu^2, or rho = mu^2 / 2."""
    return 1 / math.sqrt(math.sinh(mu_squared)) * (1 - _MARGIN) if mu_squared < _MOST_MU_SQUARED else 0.0


def least_error_alone(epsilon: float, delta: float = 0.0) -> float:
    """The same for all laws under (epsilon, delta), whatever a ledger takes for them."""
    if epsilon > _MOST_EPSILON or delta >= 1:
        return 0.0
    # noise that keeps a promise for one record keeps that of several, in steps of as many
    records = max(1, round(_LEAST_EPSILON / epsilon))
    grown = delta * math.expm1(records * epsilon) / math.expm1(epsilon)
    return records * math.sqrt(_least_variance(records * epsilon, grown)) * (1 - _MARGIN)


def _least_variance(epsilon: float, delta: float) -> float:
    if delta <= 0:
        return 1 / (2 * math.sinh(epsilon / 2) ** 2)
    a, grown = math.exp(-epsilon), math.expm1(epsilon)
    far = max(0.0, math.log(math.tanh(epsilon / 2) / delta)) / epsilon
    kappa = np.linspace(0.3 * far, 1.3 * far + 2, _KAPPAS)[1:]
    cell = np.arange(1, math.ceil(kappa[-1]) + 3)
    sums = [np.append(0.0, np.cumsum(cell**power * a**cell)) for power in range(3)]
    last = np.ceil(kappa).astype(np.int64) - 1
    steps = [np.maximum(last + by, 0) for by in (-1, 0, 1)]
    middle, ends = np.full(len(kappa), np.inf), np.full(len(kappa), np.inf)
    for first, second in itertools.product(steps, steps):
        still = (a**first + a**second) * kappa**2 / grown + sums[2][first] + sums[2][second]
        slope = 2 * (sums[1][first] - sums[1][second])
        middle = np.minimum(middle, _least_of_square(still, slope, sums[0][first] + sums[0][second] + 1))
    for first in steps:
        still = a**first * kappa**2 / grown + sums[2][first]
        ends = np.minimum(ends, _least_of_square(still, -2 * sums[1][first], sums[0][first]))
    c = np.minimum(grown / (grown + 2) * middle, grown * ends)
    weight = (kappa**2 - c) / grown
    return float(np.where(weight >= 0, c - 2 * delta * weight, 0.0).max(initial=0.0))


def _least_of_square(still: FloatArray, slope: FloatArray, curve: FloatArray) -> FloatArray:
    """The least value of still + slope t + curve t^2 for 0 <= t <= 1/2."""
    at = np.clip(-slope / np.maximum(2 * curve, 1e-300), 0.0, 0.5)
    return np.asarray(still + slope * at + curve * at**2)
