"""Rows that come, go and differ in length: in pages, padded, and in mlx-lm's BatchGenerator.

    python -m benchmarks.rows                                      a 20M-parameter model
    python -m benchmarks.rows --model 8b --dtype bfloat16 --prompt 2000 --long 32000

    burst    16 prompts at once, 128 new tokens each: tokens per second, and the longest step
    ragged   one long row beside seven short ones: a step's time, and the bytes that rows hold
    restore  a long prompt that was run before, for eight rows: a restore's time, and the bytes that
             they hold together, beside those of the prompt

Each round runs all sides after each other in one process, the order turning round; a figure is the
median of its rounds, with the lowest and highest beside it. The first round is not counted: kernels
are compiled in it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from benchmarks.decode import prompt
from benchmarks.engines import ask, engine_on, per_token, submit
from benchmarks.field.in_process import BushelSide, MlxLmSide, drive
from benchmarks.field.loads import Arrival, Load
from benchmarks.networks import CONFIGS, make
from benchmarks.rounds import about_mlx, rounds, told
from bushel.cache.prefix import key_of
from bushel.core import Prepared
from bushel.engine.attention_route import choose_attention
from bushel.engine.engine import Engine
from bushel.engine.plan import Policy
from bushel.models import Model

NEW = 128


def _all_at_once(model: Model, count: int, length: int) -> Load:
    return tuple(Arrival(0, prompt(row, length, model.vocab), NEW) for row in range(count))


def burst(model: Model, count: int, length: int) -> tuple[float, float]:
    """Tokens per second, and the longest step in seconds."""
    engine = Engine(model, Policy(max_batch=32, prefill_chunk=512))
    run = drive(BushelSide(engine), _all_at_once(model, count, length))
    return run.speed, run.longest_step


def peer_burst(model: Model, count: int, length: int) -> tuple[float, float]:
    """The same through mlx-lm, with its own settings."""
    run = drive(MlxLmSide(model), _all_at_once(model, count, length))
    return run.speed, run.longest_step


def ragged(model: Model, lengths: Sequence[int]) -> tuple[float, float]:
    """Milliseconds of a step in which all rows decode, and gigabytes that they hold."""
    engine = Engine(model, Policy(max_batch=32, prefill_chunk=2048))
    for row, length in enumerate(lengths):
        submit(engine, prompt(row, length, model.vocab), 1 << 20)
    while min(row.completion_tokens for row in engine.status().requests) < 12:
        engine.step()
    times = []
    for _ in range(40):
        start = time.perf_counter()
        engine.step()
        times.append(time.perf_counter() - start)
    held = engine.status().memory.state_bytes
    assert isinstance(held, int)
    return 1e3 * statistics.median(times), held / 1e9


def restore(model: Model, length: int) -> tuple[float, float]:
    """Milliseconds to restore a prompt, and the prompts' worth of tokens that eight rows hold."""
    engine = engine_on(model, batch=8, chunk=2048)
    ids = prompt(0, length, model.vocab)
    ask(engine, ids)
    assert engine.prefixes is not None
    key, times, rows = key_of(Prepared(ids)), [], []
    mx.synchronize()
    before = mx.get_active_memory()
    for _ in range(8):
        start = time.perf_counter()
        reuse = engine.prefixes.plan("", key, length - 1)
        rows.append(engine.prefixes.restore(reuse, key, length))
        times.append(time.perf_counter() - start)
        assert reuse.position == length - 1
    mx.synchronize()
    more = (mx.get_active_memory() - before) / (per_token(engine) * length)
    return 1e3 * statistics.median(times), 1 + more


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="20m", choices=CONFIGS)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rows", type=int, default=16, help="of the burst")
    parser.add_argument("--prompt", type=int, default=200, help="tokens of each of them")
    parser.add_argument("--long", type=int, default=2000, help="tokens of the long row")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    model = make(options.model, getattr(mx, options.dtype))
    choose_attention(model, "pages")  # or raises

    pages = model.pages

    def served(paged: bool, run: Callable[..., Any], *given: Any) -> Callable[[], Any]:
        def one(_: int) -> Any:
            model.pages = pages if paged else None
            made = run(model, *given)
            pages.clear()
            return made

        return one

    print(f"{about_mlx()}, {options.model}, {options.dtype}")
    given = options.rows, options.prompt
    figures = rounds(
        {
            "pages": served(True, burst, *given),
            "padded": served(False, burst, *given),
            "mlx-lm": lambda _: peer_burst(model, *given),
        },
        options.rounds,
    )
    print(f"burst of {options.rows} x {options.prompt} + {NEW} tokens")
    for name, made in figures.items():
        speeds, steps = zip(*made, strict=True)
        shares = [mine / peer for mine, (peer, _) in zip(speeds, figures["mlx-lm"], strict=True)]
        ratio = f"{told(shares)} of mlx-lm's"
        print(f"  {name:8} tok/s {told(speeds)}, {ratio}, longest step {told(steps)} s")
    for lengths in ([256] * 8, [options.long] + [256] * 7):
        figures = rounds(
            {
                "pages": served(True, ragged, lengths),
                "padded": served(False, ragged, lengths),
            },
            options.rounds,
        )
        print(f"rows of {lengths[0]} and 7 of 256 tokens")
        for name, made in figures.items():
            steps, held = zip(*made, strict=True)
            print(f"  {name:8} step {told(steps)} ms, keys and values {told(held)} GB")
    figures = rounds(
        {
            "pages": served(True, restore, options.long),
            "padded": served(False, restore, options.long),
        },
        options.rounds,
    )
    print(f"a prompt of {options.long} tokens, restored for eight rows")
    for name, made in figures.items():
        times, held = zip(*made, strict=True)
        print(f"  {name:8} each {told(times)} ms, with what is kept {told(held)} prompts")


if __name__ == "__main__":
    main()
