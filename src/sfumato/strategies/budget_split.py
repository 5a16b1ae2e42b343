"""How a budget is split between what is measured together. Nothing here knows of data or privacy: it is arithmetic.

Part i, measured with noise of deviation s_i, costs p_i / s_i^power, power 2 for Gaussian noise and 1 for Laplace noise,
and its squared error is E_i s_i^2, each error with its weight (`Problem.objective_weight`). Where all parts together
cost 1, the least sum of errors has s_i^(2 + power) in proportion to p_i / E_i [XZK23], and the least largest error has
all of them equal. In both cases every part has a root, its share of the budget up to a common factor, and the error of
all together is a power of the sum of roots.
"""

from __future__ import annotations

from typing import Any, overload

import numpy as np

from sfumato.operators.base import FloatArray

_TINY = 1e-300  # keeps what is free, and what nobody asks for, out of divisions; errors and prices lie far above
_NO_ERROR = 1e-12  # of the largest error at the whole budget: what errs less is public, and gets no share of its own


def least_deviations(errors: FloatArray, prices: FloatArray, power: int, *, largest: bool = False) -> FloatArray:
    """The deviations of the noise of parts that cost 1 together, at the least error.

    Args:
        errors: (k,) what a unit of variance on each part adds to the error, or with `largest` the largest error in it.
        prices: (k,) what each part costs at deviation 1. What costs nothing is known exactly: its deviation is 0.
        power: 2 for Gaussian noise, 1 for Laplace noise.
        largest: Whether the largest error is to be least, rather than the sum.

    Returns:
        (k,) deviations s with sum prices / s^power = 1.
    """
    some = np.maximum(errors, _TINY)
    shape = some**-0.5 if largest else (prices / some) ** (1 / (2 + power))
    paid = prices > 0
    return shape * float((prices[paid] / shape[paid] ** power).sum()) ** (1 / power)


def relative_scales(errors: FloatArray, prices: FloatArray, power: int, *, largest: bool = False) -> FloatArray:
    """(k,) one over the deviations of `least_deviations`, the least being 1; also 1 where there is no error."""
    prices = np.maximum(prices, _TINY)
    # what a part errs by itself does not change with its unit, as `errors` alone does
    alone = errors * prices ** (2 / power)
    worth = alone > _NO_ERROR * alone.max()
    if not worth.any():
        return np.ones(len(errors))
    scales = np.ones(len(errors))
    scales[worth] = 1 / least_deviations(errors[worth], prices[worth], power, largest=largest)
    scales[worth] /= scales[worth].min()
    return scales


@overload
def root_error(error: float, price: float, power: int, *, largest: bool = False) -> float: ...
@overload
def root_error(error: FloatArray, price: FloatArray | float, power: int, *, largest: bool = False) -> FloatArray: ...
def root_error(error: Any, price: Any, power: int, *, largest: bool = False) -> Any:
    """What a part adds to the root of the least error of all parts together: the roots of parts add up.

    The root is the square root (Gaussian noise) or the cube root (Laplace noise) of its least sum of errors alone, or
    with `largest` of its least largest error the error itself, or the square root. Takes arrays, too.
    """
    return price * error ** (power / 2) if largest else (error * price ** (2 / power)) ** (power / (2 + power))
