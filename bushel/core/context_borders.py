"""Where a text model's attention becomes another one, in tokens of context, by its config.

Neither sliding windows, which states tell, nor LongRoPE, which one of the libraries has with the
factors of long contexts alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Config = Mapping[str, Any]


def context_borders(config: Config) -> tuple[int, ...]:
    return tuple(sorted({*_leaves_out(config), *_scales(config)}))


def _leaves_out(config: Config) -> Iterator[int]:
    """Tokens that sparse attention looks at: of a longer context it leaves some out."""
    yield from _times(config.get("indexer_budget") or config.get("index_topk"), _pool(config))
    # MiniMax's blocks; published and saved again, they are spelt so.
    own = config.get("sparse_attention_config")
    named = own if isinstance(own, Mapping) else {}
    yield from _times(
        named.get("sparse_topk_blocks") or config.get("index_topk_blocks"),
        named.get("sparse_block_size") or config.get("index_block_size"),
    )


def _pool(config: Config) -> int:
    """Tokens of an entry that DeepSeek V4's index chooses; 1 where it chooses tokens."""
    own = config.get("compress_ratios")
    ratios = own if isinstance(own, list) else ()
    return min((ratio for ratio in ratios if isinstance(ratio, int) and ratio > 0), default=1)


def _scales(config: Config) -> Iterator[int]:
    """Where queries begin to grow with position."""
    if config.get("attn_temperature_tuning", True):  # Llama 4
        yield from _times(config.get("floor_scale"))
    yield from _times(config.get("log_scaling_n_floor"))  # Inkling
    for key in ("rope_scaling", "rope_parameters"):
        rope = config.get(key)
        # Mistral's queries. Other ropes have an original length, and no border there.
        if isinstance(rope, Mapping) and "llama_4_scaling_beta" in rope:
            name = "original_max_position_embeddings"
            yield from _times(rope.get(name) or config.get(name))


def _times(*numbers: object) -> Iterator[int]:
    """Their product, if all are positive whole numbers; floats that are whole among them."""
    product = 1
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | float) or number <= 0:
            return
        if isinstance(number, float) and not number.is_integer():
            return
        product *= int(number)
    yield product
