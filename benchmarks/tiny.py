"""How soon the model in the package is there, and how fast it reads and writes alone.

    python -m benchmarks.tiny

Promised on two CPU cores with OpenBLAS (`make` targets preload it): loaded in under 3 seconds,
60 tokens/s written, 500 tokens/s read. Medians, lowest and highest beside them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from bushel import LLM, SamplingParams

MODEL = "bushel:tiny"


def timed(run: Callable[..., None], *arguments: Any) -> float:
    start = time.perf_counter()
    run(*arguments)
    return time.perf_counter() - start


def loading() -> None:
    LLM(MODEL).close()


def show(label: str, values: list[float], unit: str) -> None:
    low, middle, high = min(values), statistics.median(values), max(values)
    print(f"{label:22} {middle:8.2f} {unit} ({low:.2f} … {high:.2f})", flush=True)


def writing(llm: LLM, tokens: int) -> None:
    params = SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True)
    (out,) = llm.generate({"messages": [{"role": "user", "content": "Hello"}]}, params)
    assert len(out.token_ids) == tokens


def reading(llm: LLM, tokens: int) -> None:
    ids = [100 + at % 1000 for at in range(tokens)]
    (out,) = llm.generate({"prompt_token_ids": ids}, SamplingParams(max_tokens=1, temperature=0))
    assert out.usage.cached_tokens == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", type=int, default=200, help="tokens")
    parser.add_argument("--read", type=int, default=2000, help="tokens")
    options = parser.parse_args()
    print(f"mlx {mx.__version__}, {mx.default_device()}")
    loads = [timed(loading) for _ in range(3)]
    show("loading, first", loads[:1], "s")
    show("loading, again", loads[1:], "s")
    with LLM(MODEL, prefix_cache=False) as llm:
        for label, run, tokens in (
            ("writing alone", writing, options.write),
            ("reading alone", reading, options.read),
        ):
            run(llm, tokens)  # what is compiled at first use
            rates = [tokens / timed(run, llm, tokens) for _ in range(options.rounds)]
            show(label, rates, "tokens/s")


if __name__ == "__main__":
    main()
