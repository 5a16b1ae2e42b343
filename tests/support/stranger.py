"""What the stranger's checker makes of a strategy, as it is stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sfumato import check_maps
from sfumato._util.codec import encode_value
from sfumato.strategies.strategy import Strategy


def as_stored(value: object) -> Any:
    """A value as the checker reads it from a file."""
    document, arrays = encode_value(value)
    return json.loads(
        json.dumps(document), object_hook=lambda d: arrays[d["~array"]] if "~array" in d else check_maps.Doc(d)
    )


def priced_by_a_stranger(strategy: Strategy, sizes: Mapping[str, int]) -> tuple[int, bool]:
    """Its squared sensitivity, and whether that is exact; its blocks are found to be those that are measured."""

    ops: dict[str, Any] = {}
    own_sizes = dict(sizes)
    measured = check_maps.strategy_blocks(as_stored(strategy), own_sizes, ops)
    assert measured == [b for own in strategy.blocks for b in check_maps.strategy_blocks(as_stored(own), own_sizes, {})]
    return check_maps.largest_record_change(measured, ops, own_sizes, 2, False, False)
