"""Variants: heads that can be quantized (others are 16 wide, for speed), a long context."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from . import checkpoint_dir
from .text import TEXT
from .vision import VISION

# By name: the family it is made from, and what is changed in its config.
WIDE: dict[str, tuple[str, dict[str, Any]]] = {
    "llama_wide": ("llama", {"head_dim": 64}),
    "qwen3_wide": ("qwen3", {"head_dim": 32}),
    "qwen3_5_wide": ("qwen3_5", {"head_dim": 32}),
    "qwen3_5_vl_wide": ("qwen3_5_vl", {}),
    "qwen2_5_vl_wide": (
        "qwen2_5_vl",
        {
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "rope_scaling": {"type": "mrope", "mrope_section": [8, 4, 4]},
        },
    ),
    # Few heads, because attention over a long context is quadratic; and a layer after them, because
    # prefill leaves out what a last layer would compute beyond its state.
    "qwen3_5_long": (
        "qwen3_5",
        {
            "num_hidden_layers": 3,
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "num_attention_heads": 2,
            "max_position_embeddings": 65536,
        },
    ),
    "stablelm_wide": ("stablelm", {"num_attention_heads": 2, "num_key_value_heads": 1}),
}


@contextmanager
def known(name: str) -> Iterator[None]:
    """One of these is a family like any other."""
    origin, changed = WIDE[name]
    table: dict[str, Any] = TEXT if origin in TEXT else VISION
    config = {**table[origin].config, **changed}
    with patch.dict(table, {name: replace(table[origin], name=name, config=config)}):
        yield


def wide_dir(name: str) -> Path:
    with known(name):
        return checkpoint_dir(name)
