"""Families that get no pictures, though they were made for them; without them they are text models.

What lists models asks this as well as what loads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# By model type, and why.
_TEXT_ALONE = {
    "molmo_point": "mlx-vlm keeps a reply's pictures on the model, and not in its state, so that "
    "later requests would be computed with them, and its replies name points by ids that are no "
    "tokens",
}


def text_alone_because(config: Mapping[str, Any]) -> str | None:
    """Why a checkpoint is not given the pictures that it was made for."""
    return _TEXT_ALONE.get(str(config.get("model_type")))
