"""The closed set of integer maps that are measured: each applied exactly, and each priced exactly.

    AlikeMap     a I + b J: every cell, n I - J           ToeplitzMap   m_i c_(i-j) for j <= i
    TotalMap     the sum of all cells                     StackMap      one below the other
    RangesMap    sums of runs of cells (trees)            MultipleMap   k times a map
    SparseMap    compressed rows                          KroneckerMap  factors on a joint group of attributes
    DenseMap     entry by entry                           MergedMap     a map after cells were merged or left out

Blocks of them, families of blocks and combinations of blocks' rows are what is measured.

Whoever plans may use any operator; before anything is priced it is *lowered* to one of these, and what is measured
is the lowered map. A planner that lowers wrongly changes what is measured, never what it costs.

Every measurement loads those named here; runs, compressed rows, stacks and products lie in `structured.py`, Toeplitz
maps in `toeplitz.py`, which are loaded where a plan has them.
"""

from sfumato.maps.base import Map, check_price
from sfumato.maps.composite import BlockMap, CombinationMap, FamilyMap, MergedMap, MultipleMap
from sfumato.maps.explicit import AlikeMap, DenseMap, TotalMap

__all__ = [
    "AlikeMap",
    "BlockMap",
    "CombinationMap",
    "DenseMap",
    "FamilyMap",
    "Map",
    "MergedMap",
    "MultipleMap",
    "TotalMap",
    "check_price",
]
