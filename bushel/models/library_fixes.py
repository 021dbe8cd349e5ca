"""Models and their fresh state, changed where the library's own would not survive a batch.

A change never alters what one row alone computes, but where that depends on how its prompt is cut.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import mlx.core as mx

from bushel.models.known_families import family_of
from bushel.models.model import State

# Families that a module of `row_positions` is for.
_BY_ROW = ("afm7", "gpt_bigcode", "llama4", "qwen4_exp")


def mend(network: Any) -> None:
    """Let a loaded network run batches that its library's code would get wrong."""
    family = family_of(network)
    if family in _BY_ROW:
        import_module(f"bushel.models.row_positions.{family}").install(network)
    elif family == "deepseek_v4":
        import_module("bushel.models.overlapping_pools").install(network)


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


_CHANGES: dict[str, Callable[[Any, State], State]] = {
    "deepseek_v4": _overlapping,
    "gemma2": _grouped,
    "glm5_next": _unprojected,
    "longcat_flash_ngram": _whole_context,
}
