"""Prompts alone: how long one takes beside a bare loop, and short ones in one pass or in many.

    python -m benchmarks.prefill                                a 20M-parameter model
    python -m benchmarks.prefill --model 8b --dtype bfloat16 --length 16000

    long    a prompt from arrival to first token, by an engine with default settings that has served
            others before, over the bare loop at the length of chunks that suits it best
    packed  eight prompts of 64 tokens until all have their first token: in passes of their own over
            one pass that they share

Each pair runs both sides, the order alternating; a figure is the median of the pairs' ratios with
the quartiles. No prompt is asked twice.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from benchmarks.decode import prompt
from benchmarks.engines import ask, engine_on, submit
from benchmarks.networks import CONFIGS, make
from benchmarks.rounds import about_mlx
from bushel.engine.attention_route import choose_attention
from bushel.models import Model

CHUNKS = (512, 1024, 2048, 4096, 8192, 16384)
SHORT, TOGETHER = 64, 8  # tokens of a short prompt, and how many of them come at once
_WARM = 10  # prompts of an engine before it is measured: it then knows what they cost

Timed = Callable[[int], float]  # seconds, of the prompt of that number


def bare(model: Model, length: int, chunk: int) -> Timed:
    def run(number: int) -> float:
        ids = mx.array([prompt(number, length, model.vocab)])
        layers = make_prompt_cache(model.network)
        mx.synchronize()
        start = time.perf_counter()
        for at in range(0, length - 1, chunk):
            model.network(ids[:, at : min(at + chunk, length - 1)], cache=layers)
            mx.eval([layer.state for layer in layers])
        mx.eval(mx.argmax(model.network(ids[:, -1:], cache=layers)[0, -1]))
        return time.perf_counter() - start

    return run


def served(model: Model, length: int) -> Timed:
    engine = engine_on(model)
    engine.allocate_pages()
    return lambda number: ask(engine, prompt(number, length, model.vocab)).first


def together(model: Model, *, packed: bool) -> Timed:
    engine = engine_on(model, reuse=False)
    if not packed:
        engine.policy = replace(engine.policy, pack=0)

    def run(number: int) -> float:
        mx.synchronize()
        start = time.perf_counter()
        for row in range(TOGETHER):
            submit(engine, prompt(number * TOGETHER + row, SHORT, model.vocab), 1)
        while not engine.idle:
            engine.step()
        return time.perf_counter() - start

    return run


def ratios(one: Timed, other: Timed, pairs: int) -> tuple[list[float], list[float], list[float]]:
    """one / other of each pair, and the seconds of both."""
    numbers = itertools.count()
    for side in (one, other):
        for _ in range(_WARM):
            side(next(numbers))
    found: dict[Timed, list[float]] = {one: [], other: []}
    for at in range(pairs):
        number = next(numbers)
        for side in (one, other) if at % 2 else (other, one):
            found[side].append(side(number))
    each = [first / second for first, second in zip(found[one], found[other], strict=True)]
    return each, found[one], found[other]


def told(name: str, each: Sequence[float], one: Sequence[float], other: Sequence[float]) -> str:
    low, middle, high = statistics.quantiles(each, n=4)
    times = f"{statistics.median(one):.3f} s over {statistics.median(other):.3f} s"
    return f"{name}: {middle:.3f} ({low:.3f} … {high:.3f}), {times}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="20m", choices=CONFIGS)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--length", type=int, default=2000, help="tokens of the long prompt")
    parser.add_argument("--pairs", type=int, default=60)
    options = parser.parse_args()
    model = make(options.model, getattr(mx, options.dtype))
    attention = choose_attention(model, "auto")
    print(f"{about_mlx()}, {options.model}, {options.dtype}, {attention}")
    tries = {chunk: bare(model, options.length, chunk) for chunk in CHUNKS}
    seconds = {chunk: min(run(-at) for at in range(1, 4)) for chunk, run in tries.items()}
    best = min(seconds, key=lambda chunk: seconds[chunk])
    rates = ", ".join(f"{options.length / seconds[chunk]:.0f} in {chunk}" for chunk in CHUNKS)
    print(f"bare loop: tokens/s by length of chunks: {rates}; best {best}", flush=True)
    both = tries[best], served(model, options.length)
    print(
        told(f"{options.length} tokens, bare / engine", *ratios(*both, options.pairs)), flush=True
    )
    shared = together(model, packed=False), together(model, packed=True)
    name = f"{TOGETHER} prompts of {SHORT} tokens, one by one / in one pass"
    print(told(name, *ratios(*shared, options.pairs)))


if __name__ == "__main__":
    main()
