"""Predicted against real peak memory: families of every kind of state, scaled to about 1 GB.

    python -m benchmarks.memory                       all of them, and one long row beside short
    python -m benchmarks.memory --model llama gemma3_text

Real is what MLX's allocator saw while eight requests of mixed lengths were served; predicted is
what admission would have reserved for exactly them (`bushel.core.footprint`), from shapes.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from benchmarks.decode import prompt
from benchmarks.networks import build
from bushel.core import Prepared, Request, SamplingParams
from bushel.core.footprint import Footprint
from bushel.core.params import resolve
from bushel.engine.engine import Engine
from bushel.engine.footprint import footprint
from bushel.engine.plan import Policy
from tests.families.text import TEXT

WIDE: dict[str, Any] = {
    "vocab_size": 32000,
    "hidden_size": 1536,
    "intermediate_size": 6144,
    "num_attention_heads": 24,
    "num_key_value_heads": 8,
    "head_dim": 64,
}
DELTA = {"linear_num_key_heads": 16, "linear_num_value_heads": 16}
EXPERTS = {"moe_intermediate_size": 768, "shared_expert_intermediate_size": 768}
# What else has to grow so that a fixture's config stays consistent.
ALSO: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama_sliding": {"sliding_window": 512},
    "qwen3": {},
    "qwen3_moe": EXPERTS,
    "qwen3_next": {**DELTA, **EXPERTS},
    "qwen3_5": DELTA,
    "gemma3_text": {"sliding_window": 512, "query_pre_attn_scalar": 64},
    "gpt_oss": {"intermediate_size": 1536, "sliding_window": 512},
    "falcon_h1": {},
    "deepseek_v3": {"kv_lora_rank": 256, "moe_intermediate_size": 768},
    "olmo_hybrid": DELTA,
}
LONG = {
    **WIDE,
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "max_position_embeddings": 65536,
}
# The longest come last, when the others are there already.
MIXED = (30, 60, 100, 200, 300, 400, 600, 700)
REPLY = 24


def served(model: Any, lengths: Sequence[int], chunk: int, reply: int) -> int:
    """The allocator's peak while these prompts are served together."""
    # Whole chunks whatever they take, or the first rows would have ended when the last one comes.
    policy = Policy(max_batch=len(lengths), prefill_chunk=chunk, token_gap=math.inf)
    engine = Engine(model, policy)
    params = SamplingParams(max_tokens=reply, ignore_eos=True, temperature=0)
    mx.synchronize()
    mx.reset_peak_memory()
    for row, length in enumerate(lengths):
        decoding = resolve(params, model.defaults, vocab=model.vocab, end_ids=frozenset())
        ids = prompt(row, length, model.vocab)
        engine.submit(Request(str(row), Prepared(ids), (decoding,)))
    while not engine.idle:
        engine.step()
    mx.synchronize()
    return mx.get_peak_memory()


def compare(name: str, model: Any, lengths: Sequence[int], chunk: int, reply: int = REPLY) -> None:
    sizes: Footprint = footprint(model)
    said = sizes.peak(len(lengths), max(lengths) + reply, min(chunk, max(lengths)))
    real = served(model, lengths, chunk, reply)
    state = sizes.state(len(lengths), max(lengths) + reply)
    print(
        f"{name:24} {sizes.weights / 1e6:8.0f} {state / 1e6:8.0f} {said / 1e6:10.0f} "
        f"{real / 1e6:8.0f}  {said / real - 1:+7.1%}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", nargs="*", default=[*ALSO, "long"], choices=[*ALSO, "long"])
    parser.add_argument("--chunk", type=int, default=512)
    parser.add_argument("--long", type=int, default=32768, help="tokens of the long row")
    options = parser.parse_args()
    print(f"mlx {mx.__version__}, {mx.default_device()}; MB")
    print("family                    weights    state  predicted     real")
    for name in options.model:
        if name == "long":
            model = build("long", {**TEXT["llama"].config, **LONG}, mx.float32)
            rows = (options.long, *[256] * 7)
            # The short ones have to be there still when the long one's prompt has been run.
            compare(f"1 x {options.long} + 7 x 256", model, rows, options.chunk, reply=1024)
        else:
            config = {**TEXT[name].config, **WIDE, **ALSO[name]}
            model = build(name, config, mx.float32)
            compare(name, model, MIXED, options.chunk)
        del model
        mx.clear_cache()


if __name__ == "__main__":
    main()
