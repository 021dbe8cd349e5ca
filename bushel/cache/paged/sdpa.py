"""Lets the attention of both libraries' models read pages.

All of them come to `mx.fast.scaled_dot_product_attention`, which they look up when they call it.
From `install` on that name is a function that asks whether the keys are pages. If they are arrays,
as they are everywhere but in the batch of a paged model, MLX's own is called with what was given.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from bushel.cache.paged.attention import AttentionShape
from bushel.cache.paged.layer_pages import LayerPages
from bushel.cache.paged.paged_kv import NotPaged, PagedKeys, PagedValues
from bushel.models.device import ON_CPU

_of_arrays: Any = mx.fast.scaled_dot_product_attention


def install() -> None:
    mx.fast.scaled_dot_product_attention = _attention


def _attention(q: Any, k: Any, v: Any, *args: Any, **kwargs: Any) -> mx.array:
    if type(k) is not PagedKeys:
        made: mx.array = _of_arrays(q, k, v, *args, **kwargs)
        return made
    return _of_pages(q, k, v, *args, **kwargs)


def _of_pages(
    queries: mx.array,
    keys: PagedKeys,
    values: PagedValues,
    *,
    scale: float,
    mask: Any = None,
    sinks: mx.array | None = None,
) -> mx.array:
    if type(values) is not PagedValues or values.layer is not keys.layer:
        raise NotPaged("its attention takes keys and values from different places")
    if mask is not None and not (isinstance(mask, str) and mask == "causal"):
        raise NotPaged("its attention has a mask of its own")
    if keys.layer.pages.starts is not None:
        return _of_prompts(queries, keys, values, scale=scale, mask=mask, sinks=sinks)
    if ON_CPU:
        return _row_by_row(queries, keys, values, scale=scale, mask=mask, sinks=sinks)
    store, pages = keys.layer.store, keys.layer.pages
    asked = queries.shape[1], queries.shape[2], scale, sinks is not None
    shape = store.asked.get(asked) or _shape_of(store, *asked)
    fresh = keys.fresh, values.fresh
    return store.attend(shape, queries, fresh, pages.table, pages.lengths, sinks)


def _shape_of(
    store: LayerPages, heads: int, width: int, scale: float, sinks: bool
) -> AttentionShape:
    assert store.shape is not None
    dtype, key_heads, key_dim, value_dim = store.shape
    shape = AttentionShape(dtype, heads, key_heads, key_dim, value_dim, width, scale, sinks=sinks)
    if shape.why_not is not None:
        raise NotPaged(f"no kernel for {shape.why_not}")
    store.asked[heads, width, scale, sinks] = shape
    return shape


def _row_by_row(queries: mx.array, keys: PagedKeys, values: PagedValues, **how: Any) -> mx.array:
    """Each row's own pages, put together, and MLX's attention to them."""
    layer = keys.layer
    layer.store.write_step(layer.pages.slots(keys.fresh.shape[1]), keys.fresh, values.fresh)
    rows = [
        _of_arrays(queries[row : row + 1], *layer.row(row, 0, length), **how)
        for row, length in enumerate(layer.pages.after)
    ]
    return mx.concatenate(rows)


def _of_prompts(queries: mx.array, keys: PagedKeys, values: PagedValues, **how: Any) -> mx.array:
    """Prompts that run together: each attends to what is before it in its pages, and to itself."""
    layer, pages, width = keys.layer, keys.layer.pages, keys.fresh.shape[2]
    starts, again = pages.starts, pages.again
    assert starts is not None
    for row, (start, run) in enumerate(zip(starts, again, strict=True)):
        fresh = (part.fresh[row : row + 1, :, run:] for part in (keys, values))
        layer.write(row, start + run, *fresh)
    if not any(starts) and not any(again):
        made: mx.array = _of_arrays(queries, keys.fresh, values.fresh, **how)
        return made
    parts = [
        _of_arrays(queries[row : row + 1], *layer.row(row, 0, start + width), **how)
        for row, start in enumerate(starts)
    ]
    return parts[0] if len(parts) == 1 else mx.concatenate(parts)
