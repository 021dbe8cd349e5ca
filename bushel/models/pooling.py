"""How a decoder's hidden states become one embedding: as its checkpoint says, or by the last token.

Encoders pool by themselves, as mlx-vlm's forward pass does it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from bushel.core import ModelError

Pooling = Literal["last", "mean"]
# Names of sentence-transformers' settings, old and new.
_FLAGS = "pooling_mode_"
_NAMES: Mapping[str, Pooling] = {
    "lasttoken": "last",
    "mean": "mean",
    "mean_tokens": "mean",
}


def pooling_of(config: Mapping[str, Any]) -> Pooling:
    """config: of `1_Pooling/config.json`; nothing, where there is none. ModelError for a way that
    would give other vectors than the model was trained for.
    """
    if not config:
        return "last"
    mode = config.get("pooling_mode")
    flags = [name for name, on in config.items() if name.startswith(_FLAGS) and on is True]
    modes = [mode] if isinstance(mode, str) else [name.removeprefix(_FLAGS) for name in flags]
    if len(modes) != 1 or modes[0] not in _NAMES:
        known = " and ".join(get_args(Pooling))
        wanted = " + ".join(modes) or "nothing that is known"
        raise ModelError(f"its pooling is {wanted}; of a decoder, {known} are served.")
    return _NAMES[modes[0]]
