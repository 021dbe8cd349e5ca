"""What a family of checkpoints promises, as data."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

KINDS = {
    "KVCache": "kv",
    "RotatingKVCache": "window",
    "ArraysCache": "recurrent",
    "CacheList": "composite",
}


@dataclass(frozen=True)
class Family:
    """One architecture: its config.json, the kinds of layer state it keeps, its weights."""

    name: str
    config: dict[str, Any]
    kinds: tuple[str, ...]
    seed: int = 0
    spread: float = 2.0


def kinds_of(caches: Iterable[object]) -> list[str]:
    """The kind of each cache, by class name: mlx-lm and mlx-vlm have their own classes."""
    return [KINDS[type(cache).__name__] for cache in caches]
