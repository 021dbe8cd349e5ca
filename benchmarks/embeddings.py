"""Embeddings of many texts: the engine against a loop of mlx-vlm's own passes, in one run.

    python -m benchmarks.embeddings MODEL                64 texts of 4 to 128 tokens
    python -m benchmarks.embeddings MODEL --texts 512 --longest 256

Both sides get the same token ids, and their vectors are compared first. Texts per second; the
median of the rounds, with the lowest and highest beside it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np

from benchmarks.rounds import about_mlx, rounds, told
from bushel import LLM


def mixed(count: int, longest: int, vocab: int) -> list[list[int]]:
    """Token ids of texts of mixed lengths, in no order."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(4, longest + 1, count)
    return [rng.integers(vocab // 2, vocab, length).tolist() for length in lengths]


def library(path: Path, dtype: str | None) -> Callable[[list[list[int]]], list[np.ndarray]]:
    from mlx_vlm.embedding_loader import load_embedding_model
    from mlx_vlm.models.pooling import read_pooling_config

    network = load_embedding_model(path)
    object.__setattr__(network, "pooling_config", read_pooling_config(path))
    if dtype is not None:
        network.set_dtype(getattr(mx, dtype))

    def loop(texts: list[list[int]]) -> list[np.ndarray]:
        return [
            np.array(network(mx.array([ids])).text_embeds[0].astype(mx.float32)) for ids in texts
        ]

    return loop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--longest", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype")
    asked = parser.parse_args()
    with LLM(asked.model, dtype=asked.dtype) as llm:
        loop = library(Path(asked.model), asked.dtype)
        texts = mixed(asked.texts, asked.longest, len(llm.tokenizer))
        apart = np.max(np.abs(np.array(llm.embed(texts)) - np.array(loop(texts))))
        print(f"{about_mlx()}: {asked.texts} texts of 4 to {asked.longest} tokens")
        print(f"largest difference of a number {apart:.1e}")

        def speed(embed: Callable[[list[list[int]]], object]) -> Callable[[int], float]:
            def timed(_: int) -> float:
                begun = time.perf_counter()
                embed(texts)
                return len(texts) / (time.perf_counter() - begun)

            return timed

        made = rounds({"loop": speed(loop), "bushel": speed(llm.embed)}, asked.rounds)
        for name, speeds in made.items():
            print(f"{name:8} {told(speeds)} texts/s")


if __name__ == "__main__":
    main()
