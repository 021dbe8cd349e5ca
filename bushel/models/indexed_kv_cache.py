"""Keys and values with index keys beside them, by which sparse attention chooses what it reads.

Importing this imports mlx_vlm.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_vlm.models.cache import CacheList, KVCache


class IndexedKVCache(CacheList):
    """One row or several: mlx-vlm's MiniMaxM3KVCache as two states that each have a batch form."""

    @classmethod
    def of_one_row(cls) -> IndexedKVCache:
        return cls(KVCache(), KVCache())

    @property
    def offset(self) -> Any:
        return self.caches[0].offset

    @property
    def left_padding(self) -> mx.array | None:
        return getattr(self.caches[0], "left_padding", None)

    @property
    def index_offset(self) -> int:
        return int(self.caches[1].size())

    def make_mask(self, *args: Any, **kwargs: Any) -> Any:
        return self.caches[0].make_mask(*args, **kwargs)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        return self.caches[0].update_and_fetch(keys, values)

    def update_index_and_fetch(self, keys: mx.array) -> mx.array:
        kept, index = self.caches
        found, _ = index.update_and_fetch(keys, mx.zeros((*keys.shape[:3], 0), keys.dtype))
        # As long as all blocks are taken nobody reads index keys: unevaluated, they would be a
        # chain that grows with every token.
        kept.keys = mx.depends(kept.keys, [index.keys, index.values])
        return found
