"""What many pure mechanisms cost together in mu^2, which is less than one by one; certified."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import lru_cache

from sfumato.privacy.certified import ball, exact
from sfumato.privacy.pure import mu_of_pure, precision_for
from sfumato.privacy.rounding import round_up, sqrt_up

__all__ = ["mu_squared_of_pures"]

# Mechanisms whose binomial law is summed at once, up to an epsilon at which that gains nothing.
_TOGETHER = 256
_LARGEST_TOGETHER = 4  # one such mechanism gives nearly all away: telling them together gains nothing


def mu_squared_of_pures(epsilon: Fraction, count: int) -> Fraction:
    """A mu^2 that `count` epsilon-DP mechanisms, each chosen after earlier results, imply together; rounded up.

    Together they are at least as private as `count` randomised responses [KOV15, DRS22]: telling Bin(count, p) from
    Bin(count, 1 - p), p = 1/(1 + e^epsilon). Its trade-off curve is a chain of chords; the convex curve of mu-GDP lies
    below all of it if it lies below the vertices (a_i, b_i), so the least mu is the largest of
    Phi^-1(1 - a_i) - Phi^-1(b_i). For 40 mechanisms that is two thirds of the sum of their mu^2 one by one. More than
    256 are taken by groups, whose mu^2 add up.
    """
    groups, rest = divmod(count, _TOGETHER)
    whole = groups * _mu_together(epsilon, _TOGETHER) ** 2 if groups else Fraction(0)
    return whole + (_mu_together(epsilon, rest) ** 2 if rest else 0)


@lru_cache(maxsize=1024)
def _mu_together(epsilon: Fraction, count: int) -> Fraction:
    """The least mu of `count` mechanisms, rounded up."""
    if count == 1 or not epsilon or epsilon > _LARGEST_TOGETHER:
        return sqrt_up(count * mu_of_pure(epsilon) ** 2)
    from flint import arb, ctx  # noqa: PLC0415  (heavy)

    bits = precision_for(epsilon) + count
    while True:
        with ctx.workprec(bits):
            odds = ball(-epsilon).exp()
            terms = [math.comb(count, j) * odds**j / (1 + odds) ** count for j in range(count + 1)]
            # under Bin(count, p): P(X >= j) and P(X <= j), each a sum of positive terms
            upper = list(itertools.accumulate(reversed(terms)))[::-1]
            lower = list(itertools.accumulate(terms))
            found = arb(0)
            # the vertices i and count + 1 - i mirror each other
            for i in range(1, count // 2 + 2):
                first, kept = upper[i], lower[count - i]
                # Phi^-1(b) of b = P(X > count - i), which may be next to 1, from 1 - b
                found = found.max((2 * first).erfcinv() - (2 * kept).erfcinv())
            found = found * ball(Fraction(2)).sqrt()
            if found.is_finite() and found.rel_accuracy_bits() > 64:
                return round_up(exact(found.upper()))
        bits *= 2
