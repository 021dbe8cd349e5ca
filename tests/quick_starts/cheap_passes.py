"""A machine on which wide passes are cheap, instead of one that has to be measured."""

from __future__ import annotations

from typing import Any


def cheap(model: Any, most_rows: int, **_: Any) -> Any:
    """Instead of `profiling.measure`: each token more costs a fifth, in any batch."""
    from bushel.engine.drafts.cost_profile import CostProfile

    return CostProfile((tuple(1 + 0.2 * more for more in range(8)),) * most_rows)
