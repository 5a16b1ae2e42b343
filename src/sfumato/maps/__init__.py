"""The closed set of integer maps that are measured: each applied exactly, and each priced exactly.

    IdentityMap       every cell                          ToeplitzMap   m_i c_(i-j) for j <= i
    TotalMap          the sum of all cells                StackMap      one below the other
    ResidualMap       n I - J                             MultipleMap   k times a map
    RangesMap         sums of runs of cells (trees)       KroneckerMap  factors on a joint group of attributes
    SparseMap         compressed rows                     MergedMap     a map after cells were merged or left out
    DenseMap          entry by entry

Whoever plans may use any operator; before anything is priced it is *lowered* to one of these, and what is measured
is the lowered map. A planner that lowers wrongly changes what is measured, never what it costs.
"""

from sfumato.maps.base import Map, check_price
from sfumato.maps.blocks import BlockMap, FamilyMap
from sfumato.maps.given import DenseMap, IdentityMap, RangesMap, ResidualMap, SparseMap, ToeplitzMap, TotalMap
from sfumato.maps.made import KroneckerMap, MergedMap, MultipleMap, StackMap

__all__ = [
    "BlockMap",
    "DenseMap",
    "FamilyMap",
    "IdentityMap",
    "KroneckerMap",
    "Map",
    "MergedMap",
    "MultipleMap",
    "RangesMap",
    "ResidualMap",
    "SparseMap",
    "StackMap",
    "ToeplitzMap",
    "TotalMap",
    "check_price",
]
