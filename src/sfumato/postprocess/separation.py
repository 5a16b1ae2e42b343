"""Is a point possible? A separation oracle for the bodies of possible answers, by projection and support function.

The nearest point p of the body to a point z is found, and a = z - p is the hyperplane's normal. The support function
says how far the body goes in that direction at most; where z is beyond, that is a proof.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sfumato.errors import InvalidInput
from sfumato.operators.base import FloatArray
from sfumato.postprocess.bodies import project
from sfumato.postprocess.projection import Support
from sfumato.workloads import Workload

_NEAR = 1e-6  # of the size of the answers: projections stop at a relative gap, and rounding is far below it


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Separation:
    """Whether a point lies in a body, and the proof. `sf.width(...).separation_oracle` makes it.

    Args:
        body: What answers must lie in.
        inside: Whether the point lies in the body, up to `distance`.
        distance: How far at most the point is from the body.
        nearest: (k,) a point of the body at that distance.
        normal: (k,) a, of length 1, with <a, v> <= bound for all points v of the body; None inside.
        bound: A proved bound on the support function of the body at the normal; nan inside.
        margin: By how much the point is beyond the hyperplane, <a, point> - bound: a proved lower bound on its
            distance from the body; 0 inside.
    """

    body: str
    inside: bool
    distance: float
    nearest: FloatArray
    normal: FloatArray | None
    bound: float
    margin: float

    def __repr__(self) -> str:
        if self.inside:
            return f"<Separation: inside {self.body!r}, at most {self.distance:.3g} from it>"
        return f"<Separation: outside {self.body!r}, by {self.margin:.5g} to {self.distance:.5g}>"


def separate(point: FloatArray, work: Workload, body: str, reach: Support) -> Separation:
    """A point of shares against a body of one record. Raises InvalidInput where neither side was proved."""
    nearest = project(point, work, body=body, total=1.0).answers
    off = point - nearest
    distance = float(np.linalg.norm(off))
    near = _NEAR * max(float(np.linalg.norm(nearest)), 1.0)
    if distance > 0.0:
        normal = off / distance
        bound = reach(normal).bound
        margin = float(normal @ point) - bound
        # a margin of the size of rounding proves nothing
        if margin > near:
            return Separation(body, False, distance, nearest, normal, bound, margin)
    if distance <= near:
        return Separation(body, True, distance, nearest, None, math.nan, 0.0)
    raise InvalidInput(
        f"the point is within {distance:.3g} of body={body!r}, and neither inside nor outside was proved; the search "
        "for the nearest point ended before it was near enough: take another body, or a point farther away"
    )
