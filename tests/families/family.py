"""What a family of checkpoints promises, as data."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

# Tests run over every family, and not only over those that stand for others.
EVERY = os.environ.get("BUSHEL_TEST_FAMILIES") == "all"

KINDS = {
    "KVCache": "kv",
    "RotatingKVCache": "window",
    "ArraysCache": "recurrent",
    "Z1TCache": "recurrent",
    "CacheList": "composite",
    "MiniMaxM3KVCache": "composite",
    "ChunkedKVCache": "chunked",
    "QSAKVCache": "indexed",
    "LayerCache": "compressed",
}


@dataclass(frozen=True)
class Family:
    """One architecture: its config.json, the kinds of layer state it keeps, its weights.

    `single` families are served one row at a time. `equal_chunks` says why the result of a
    family alone depends on how its prompt is cut, where it does: it is compared with a solo run
    over the same pieces. `library` is the one that has it, where the other has not. `packed` is the
    format of its weights, where they are quantized.
    """

    name: str
    config: dict[str, Any]
    kinds: tuple[str, ...]
    seed: int = 0
    spread: float = 2.0
    single: bool = False
    equal_chunks: str = ""
    library: Literal["mlx_lm", "mlx_vlm"] = "mlx_lm"
    packed: str = ""


def kinds_of(caches: Iterable[object]) -> list[str]:
    """The kind of each cache, by class name: mlx-lm and mlx-vlm have their own classes."""
    return [KINDS[type(cache).__name__] for cache in caches]
