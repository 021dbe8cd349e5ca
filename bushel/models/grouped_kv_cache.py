"""Keys and values whose batch has a mask with an axis for the query heads of a group.

Importing this imports mlx_lm.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import BatchKVCache, KVCache


class BatchGroupedKVCache(BatchKVCache):
    def make_mask(self, *args: Any, **kwargs: Any) -> mx.array:
        return mx.expand_dims(super().make_mask(*args, **kwargs), 2)


class GroupedKVCache(KVCache):
    @classmethod
    def merge(cls, caches: list[KVCache]) -> BatchGroupedKVCache:
        return BatchGroupedKVCache.merge(caches)
