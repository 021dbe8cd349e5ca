"""Decode speed of the engine against a bare loop over the same model, in one run, interleaved.

    python -m benchmarks.decode                          a 20M-parameter model, batch 1, 4, 8
    python -m benchmarks.decode --model 1b 8b --batch 1 8 32 --dtype bfloat16

The bare loop is what a step costs with nothing around it: `model(x, cache)`, argmax, one step
ahead with async_eval, the library's own batch cache. Each measurement is a pair (bare, engine)
taken back to back, the order alternating; a figure is the median of the pairs' ratios, with
the lowest and highest beside it. Machines change their speed within seconds, so that many short
pairs say more than a few long ones. 1.00 means that the engine costs nothing; above 0.95 is the
promise.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any, get_args

import mlx.core as mx

from benchmarks.networks import CONFIGS, make
from benchmarks.rounds import about_mlx
from bushel.cache import BatchState, Snapshot, take_snapshot
from bushel.core import Prepared, Request, SamplingParams
from bushel.core.options import Attention
from bushel.core.params import resolve
from bushel.engine.attention_route import choose_attention
from bushel.engine.engine import Engine
from bushel.engine.plan import Policy
from bushel.engine.row_state import new_row
from bushel.models import Model


def prompt(row: int, length: int, vocab: int) -> tuple[int, ...]:
    return tuple((row * 7919 + at * 104729) % (vocab - 1) for at in range(length))


def filled(model: Model, length: int, *, bare: bool = False) -> Snapshot:
    """The state after a prompt's tokens but the last; what they are does not matter for speed."""
    state = model.make_state() if bare else new_row(model)
    embedded = model.embed(Prepared(prompt(0, length, model.vocab)))
    for start in range(0, length - 1, 512):
        model.prefill(embedded, start, min(start + 512, length - 1), state)
        mx.eval([layer.state for layer in state])
    return take_snapshot(state, length - 1)


def rows_of(model: Model, count: int, snapshot: Snapshot, *, bare: bool = False) -> BatchState:
    rows = BatchState(model.make_state, None if bare else model.pages)
    for _ in range(count):
        fresh = model.make_state() if bare else new_row(model)
        rows.join(snapshot.restore(fresh), snapshot.position)
    mx.eval([layer.state for layer in rows.layers])
    return rows


def _forever(**settings: Any) -> SamplingParams:
    return SamplingParams(max_tokens=1 << 30, ignore_eos=True, **settings)


def _mixed(row: int) -> SamplingParams:
    """A different sampler in every row: each of the usual knobs, and several together."""
    kinds: list[dict[str, Any]] = [
        {"top_p": 0.9 - 0.005 * row, "top_k": 20 + row},
        {"top_p": 0.95 - 0.005 * row},
        {"min_p": 0.05 + 0.001 * row},
        {"top_k": 40 - row // 2, "repetition_penalty": 1.1},
    ]
    return _forever(temperature=0.5 + 0.03 * row, seed=row, **kinds[row % 4])


SAMPLERS: dict[str, Callable[[int], SamplingParams]] = {
    "greedy": lambda row: _forever(temperature=0),
    "mixed": _mixed,
    "top_k": lambda row: _forever(temperature=0.5 + 0.03 * row, top_k=20 + row, seed=row),
    "top_p": lambda row: _forever(temperature=0.5 + 0.03 * row, top_p=0.9, seed=row),
    "low_p": lambda row: _forever(temperature=0.5 + 0.03 * row, top_p=0.5, seed=row),
    "min_p": lambda row: _forever(temperature=0.5 + 0.03 * row, min_p=0.05, seed=row),
    "penalty": lambda row: _forever(temperature=0, repetition_penalty=1.05 + 0.01 * row),
    "logprobs": lambda row: _forever(temperature=0, logprobs=5),
}


class Bare:
    """The design's bare loop."""

    def __init__(self, model: Model, batch: int, length: int):
        self._model = model
        self._cache = rows_of(model, batch, filled(model, length, bare=True), bare=True).layers
        self._next = mx.array([prompt(row, length, model.vocab)[-1] for row in range(batch)])
        self._launch()

    def _launch(self) -> None:
        logits = self._model.network(self._next[:, None], cache=self._cache)
        self._next = mx.argmax(logits[:, -1], axis=-1)
        mx.async_eval(self._next)

    def steps(self, count: int) -> None:
        for _ in range(count):
            before = self._next
            self._launch()
            before.tolist()


class Served:
    """The engine with every row decoding."""

    def __init__(
        self, model: Model, batch: int, length: int, params: Callable[[int], SamplingParams]
    ):
        self._engine = Engine(model, Policy(max_batch=batch, prefill_chunk=512))
        self._batch = batch
        for row in range(batch):
            decoding = resolve(params(row), model.defaults, vocab=model.vocab, end_ids=frozenset())
            ids = prompt(row, length, model.vocab)
            self._engine.submit(Request(str(row), Prepared(ids), (decoding,)))
        while min(it.completion_tokens for it in self._engine.status().requests) < 1:
            self._engine.step()

    def steps(self, count: int) -> None:
        for _ in range(count):
            events = self._engine.step()
            assert len(events) == self._batch, "a row stopped decoding"


def seconds(run: Callable[[int], None], count: int) -> float:
    start = time.perf_counter()
    run(count)
    return (time.perf_counter() - start) / count


def compare(bare: Bare, served: Served, rounds: int, count: int) -> tuple[list[float], float]:
    """Ratios bare / engine of pairs, and the bare step's median seconds."""
    for side in (bare, served):
        side.steps(24)
    ratios, steps = [], []
    for at in range(rounds):
        times: dict[Bare | Served, float] = {}
        for side in (served, bare) if at % 2 else (bare, served):
            side.steps(1)  # begins with what the other side left in the processor's caches
            times[side] = seconds(side.steps, count)
        ratios.append(times[bare] / times[served])
        steps.append(times[bare])
    return ratios, statistics.median(steps)


def join_and_leave(model: Model, batch: int, length: int, step: float) -> tuple[float, float]:
    """Time of one join and of one leave, in decode steps."""
    snapshot = filled(model, length)
    joins, leaves = list[float](), list[float]()
    for _ in range(4):
        rows = rows_of(model, batch - 1, snapshot)
        last = snapshot.restore(new_row(model))
        mx.eval([layer.state for layer in last])
        for change, found in (
            (lambda rows=rows, last=last: rows.join(last, length - 1), joins),
            (lambda rows=rows: rows.leave([at for at in range(batch) if at != 1]), leaves),
        ):
            start = time.perf_counter()
            change()
            mx.eval([layer.state for layer in rows.layers])
            found.append((time.perf_counter() - start) / step)
    return statistics.median(joins), statistics.median(leaves)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", nargs="+", default=["20m"], choices=CONFIGS)
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 4, 8])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--samplers", nargs="+", default=["greedy", "mixed"], choices=SAMPLERS)
    parser.add_argument("--length", type=int, default=128, help="prompt tokens per row")
    parser.add_argument("--attention", default="auto", choices=get_args(Attention))
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_args()
    print(f"{about_mlx()}, {options.dtype}")
    print("model      batch  samplers  engine/bare (low … high)   bare ms  tok/s engine")
    for name in options.model:
        model = make(name, getattr(mx, options.dtype))
        print(f"{name:10} attention: {choose_attention(model, options.attention)}")
        for batch in options.batch:
            for label in options.samplers:
                # Both fresh, so that their contexts grow alike.
                bare = Bare(model, batch, options.length)
                served = Served(model, batch, options.length, SAMPLERS[label])
                ratios, step = compare(bare, served, options.rounds, options.steps)
                middle = statistics.median(ratios)
                print(
                    f"{name:10} {batch:5}  {label:8}  {middle:.3f} ({min(ratios):.3f} … "
                    f"{max(ratios):.3f})     {step * 1e3:8.2f}  {batch * middle / step:8.0f}",
                    flush=True,
                )
                del served, bare
                mx.clear_cache()
        batch = max(options.batch)
        if batch > 2:
            bare = Bare(model, batch, 2048)
            bare.steps(2)
            step = seconds(bare.steps, 6)
            del bare
            joined, left = join_and_leave(model, batch, 2048, step)
            print(f"{name:10} {batch:5}  at 2048 tokens a row: join {joined:.2f} decode steps, "
                  f"leave {left:.2f} (step {step * 1e3:.1f} ms)", flush=True)  # fmt: skip
        del model
        mx.clear_cache()


if __name__ == "__main__":
    main()
