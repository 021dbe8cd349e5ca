"""Models and their fresh state, changed where the library's own would not survive a batch.

A change never alters what one row alone computes, but where that depends on how its prompt is cut,
or where the library gets that wrong as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import mlx.core as mx

from bushel.models import (
    gated_delta,
    gated_delta_kernel,
    latent_attention,
    recurrent_rollback,
    split_tables,
)
from bushel.models.known_families import family_of
from bushel.models.model import State
from bushel.models.row_positions import dynamic_ntk, long_rope

# Families that a module of `row_positions` is for, by its name.
_BY_ROW = {
    "afm7": "afm7",
    "cohere_compass": "cohere_compass",
    "deepseek_v41": "deepseek_v41",
    "gpt_bigcode": "gpt_bigcode",
    "hunyuan_vl": "hunyuan_vl",
    "inkling": "inkling",
    "limite": "limite",
    "llama4": "llama4",
    "longcat_flash_sparse": "longcat_flash_sparse",
    "minimax_m3": "minimax_m3",
    "minimax_m3_vl": "minimax_m3",
    "mistral3": "mistral3",
    "mllama": "mllama",
    "nemotron-nas": "nemotron_nas",
    "phi3small": "phi3small",
    "qwen4_exp": "qwen4_exp",
    "unlimitedocr": "unlimited_ocr",
    "z1t": "z1t",
}
# By family: a module of `vision.image_fixes`.
_IMAGES = {
    "deepseekocr": "deepseekocr",
    "deepseekocr_2": "deepseekocr",
    "fastvlm": "expansion",
    "gemma4_unified": "gemma4_unified",
    "granite4_vision": "granite4_vision",
    "granite_vision": "anyres",
    "llava_bunny": "expansion",
    "llava_next": "anyres",
}
# Families of mlx-vlm that see, and what their text models are mended by.
_OF_VISION = {
    "gemma3n": "gemma3n",
    "mistral_large3": "given_embeddings",
    "paligemma": "prefix_lm",
}


def mend(network: Any, config: Mapping[str, Any]) -> None:
    """Let a loaded network run batches, and see images, that its library's code would get wrong.

    config: the checkpoint's own.
    """
    family = family_of(network)
    if name := _BY_ROW.get(family):
        import_module(f"bushel.models.row_positions.{name}").install(network)
    if family == "deepseek_v4":
        import_module("bushel.models.overlapping_pools").install(network)
    if family == "hy_v4":
        _choose_at_any_length(network)
    if family in _IMAGES:
        fix = import_module(f"bushel.models.vision.image_fixes.{_IMAGES[family]}")
        fix.install(network, config)
    if family in _OF_VISION and type(network).__module__.startswith("mlx_vlm."):
        import_module(f"bushel.models.vision.{_OF_VISION[family]}").install(network)
    dynamic_ntk.install(network)
    long_rope.install(network)
    latent_attention.install(network)
    split_tables.install(network)
    recurrent_rollback.install(network)
    gated_delta.install()
    gated_delta_kernel.install()


def _choose_at_any_length(network: Any) -> None:
    """hy_v4 compiles its choice of the best tokens once, with the rank at which it cuts as it was
    at the first length: at others it takes worse ones. What it extends does not compile.
    """
    for layer in network.layers:
        if (indexer := layer.self_attn.indexer) is not None:
            indexer.__class__ = indexer.__class__.__base__


def batchable(network: Any, state: State) -> State:
    change = _CHANGES.get(family_of(network))
    return change(network, state) if change else state


def _grouped(network: Any, state: State) -> State:
    """gemma2 adds an axis for the query heads of a group to its scores, but not to the mask.

    A batch would fail, or use row i's mask for head i where there are as many of both.
    """
    from bushel.models.grouped_kv_cache import GroupedKVCache

    args = network.args
    shared = args.num_attention_heads > args.num_key_value_heads
    return [GroupedKVCache() for _ in state] if shared else state


def _whole_context(network: Any, state: State) -> State:
    """longcat_flash_ngram remembers the last few ids, and fewer of them at first.

    An id that is not there counts as 0, so zeros make rows of one length.
    """
    state[0][0] = mx.zeros((1, network.args.emb_neighbor_num - 1), mx.int64)
    return state


def _overlapping(network: Any, state: State) -> State:
    from bushel.models.overlapping_pools import overlapping

    return overlapping(network, state)


def _unprojected(network: Any, state: State) -> State:
    """glm5_next keeps keys and values of every head beside the latents that they are made of."""
    from bushel.models.unkept_projections import UnkeptProjections

    for layer in state:
        if hasattr(layer, "caches"):
            layer.caches = (*layer.caches[:-1], UnkeptProjections())
    return state


def _indexed(network: Any, state: State) -> State:
    """mlx-vlm's minimax_m3 keeps two states in one, of which a batch cannot be cut by row.

    mlx-lm's has them side by side.
    """
    if not any(type(layer).__name__ == "MiniMaxM3KVCache" for layer in state):
        return state
    from bushel.models.indexed_kv_cache import IndexedKVCache

    return [
        IndexedKVCache.of_one_row() if type(layer).__name__ == "MiniMaxM3KVCache" else layer
        for layer in state
    ]


def _summed(network: Any, state: State) -> State:
    from bushel.models.running_sums import RunningSums

    return [RunningSums() for _ in state]


def _in_steps(network: Any, state: State) -> State:
    """hy_v4 doubles the room of its keys: a row would have more than is counted for it."""
    from mlx_vlm.models.cache import CacheList, KVCache

    return [CacheList(*(KVCache() for _ in layer.caches)) for layer in state]


_CHANGES: dict[str, Callable[[Any, State], State]] = {
    "deepseek_v4": _overlapping,
    "gemma2": _grouped,
    "glm5_next": _unprojected,
    "hy_v4": _in_steps,
    "longcat_flash_ngram": _whole_context,
    "minimax_m3": _indexed,
    "minimax_m3_vl": _indexed,
    "z1t": _summed,
}
