"""Models and their fresh state, changed where the library's own would not survive a batch.

A change never alters what one row alone computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import mlx.core as mx

from bushel.models.known_families import family_of
from bushel.models.model import State

# Families that a module of `row_positions` is for.
_BY_ROW = ("afm7", "gpt_bigcode", "llama4")
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


def mend(network: Any, config: Mapping[str, Any]) -> None:
    """Let a loaded network run batches, and see images, that its library's code would get wrong.

    config: the checkpoint's own.
    """
    family = family_of(network)
    if family in _BY_ROW:
        import_module(f"bushel.models.row_positions.{family}").install(network)
    if family in _IMAGES:
        fix = import_module(f"bushel.models.vision.image_fixes.{_IMAGES[family]}")
        fix.install(network, config)


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


_CHANGES: dict[str, Callable[[Any, State], State]] = {
    "gemma2": _grouped,
    "longcat_flash_ngram": _whole_context,
}
