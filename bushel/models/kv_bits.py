"""Keys and values in 8 or 4 bits: for which models, and how a model's state comes to be so.

Encoded from the first token on, so that a row's state does not depend on when it came. The
rules here go by what the state is; whether the model's attention can read such state, and
batches of it, only a trial tells (`engine.batching_check`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from bushel.core import ModelError

BITS = (8, 4)
# Wider groups cost less: two numbers each. Real heads are 64, 80, 96, 128 or 256 wide.
_GROUPS = (64, 32)

_PLAIN, _RECURRENT = "KVCache", "ArraysCache"
_BECAUSE = {
    "RotatingKVCache": "its sliding windows have no quantized form",
    "ChunkedKVCache": "its chunked attention has no quantized form",
    "QSAKVCache": "its sparse attention has no quantized form",
    "CacheList": "it keeps several states in one layer",
    "IndexedKVCache": "its index keys have no quantized form",
    "GroupedKVCache": "it computes attention by itself, from plain keys",
}


@dataclass(frozen=True)
class KVBits:
    """How plain keys and values are encoded; other layers stay as they are."""

    bits: int
    group: int

    def encode(self, state: list[Any]) -> list[Any]:
        """Fresh state, with the owning library's quantized layers in place of its plain ones."""
        return [
            layer.to_quantized(group_size=self.group, bits=self.bits)
            if type(layer).__name__ == _PLAIN
            else layer
            for layer in state
        ]


def plan_kv_bits(bits: int, state: Sequence[Any]) -> KVBits:
    """The encoding for a model, from plain state that has run a token; or why there is none."""
    plain = [layer for layer in state if type(layer).__name__ == _PLAIN]
    for name in (type(layer).__name__ for layer in state):
        if name not in (_PLAIN, _RECURRENT):
            _refuse(bits, _BECAUSE.get(name, f"its state has layers of another kind ({name})"))
    if not plain:
        _refuse(bits, "it keeps no keys and values")
    if any(layer.keys is None for layer in plain):
        _refuse(bits, "some of its layers keep nothing")
    if any(_latent(layer) for layer in plain):
        _refuse(bits, "its latent attention (MLA) reads the stored latents itself")
    widths = {array.shape[-1] for layer in plain for array in (layer.keys, layer.values)}
    for group in _GROUPS:
        if all(width and width % group == 0 for width in widths):
            return KVBits(bits, group)
    listed = " and ".join(map(str, sorted(widths)))
    _refuse(bits, f"its heads are {listed} wide, which is not a multiple of {_GROUPS[-1]}")


def _latent(layer: Any) -> bool:
    """Keys are one head of latents, values are the part that carries positions."""
    return layer.keys.shape[1] == 1 and layer.keys.shape[-1] != layer.values.shape[-1]


def _refuse(bits: int, reason: str) -> NoReturn:
    raise ModelError(f"kv_bits={bits} does not work with it: {reason}.")
