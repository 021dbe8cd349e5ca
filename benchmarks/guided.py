"""What rows that are held to a grammar cost the others in their batch, in one run, interleaved.

    python -m benchmarks.guided                          a 20M-parameter model, batch 8
    python -m benchmarks.guided --model 8b --batch 8 32 --held 1 4 --dtype bfloat16

Two engines decode the same number of rows of the same model; in one of them some rows write JSON
by a schema, for ever. They take turns, A B B A; a figure is the median of the pairs' ratios of
speed, with the lowest and highest beside it. 1.00 means that grammars cost nothing; above 0.95 is
the promise.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import replace

import mlx.core as mx

from benchmarks.decode import SAMPLERS, prompt, seconds
from benchmarks.networks import CONFIGS, make
from bushel.core import Constraint, Prepared, Request
from bushel.core.params import resolve
from bushel.engine.engine import Engine
from bushel.engine.plan import Policy
from bushel.models import Model

_LINE = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 60},
        "kind": {"enum": ["one", "two", "three"]},
        "size": {"type": "integer", "minimum": 0, "maximum": 100_000},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 4},
    },
    "required": ["name", "kind", "size", "tags"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}
LINES = Constraint(f'start: line+\nline: value "\\n"\nvalue: %json {json.dumps(_LINE)}\n')


class Rows:
    """An engine with so many rows decoding, the last ones held to a grammar."""

    def __init__(self, model: Model, batch: int, held: int, length: int, sampler: str):
        self._engine = Engine(model, Policy(max_batch=batch, prefill_chunk=512))
        self._batch = batch
        for row in range(batch):
            params = SAMPLERS[sampler](row)
            decoding = resolve(params, model.defaults, vocab=model.vocab, end_ids=frozenset())
            if row >= batch - held:
                decoding = replace(decoding, constraint=LINES)
            ids = prompt(row, length, model.vocab)
            self._engine.submit(Request(str(row), Prepared(ids), (decoding,)))
        while min(it.completion_tokens for it in self._engine.status().requests) < 1:
            self._engine.step()

    def steps(self, count: int) -> None:
        for _ in range(count):
            events = self._engine.step()
            assert len(events) == self._batch, "a row stopped decoding"


def compare(free: Rows, mixed: Rows, rounds: int, count: int) -> tuple[list[float], float]:
    """Ratios of speed, mixed to free, and the free step's median seconds."""
    for side in (free, mixed):
        side.steps(count)
    ratios, steps = [], []
    for at in range(rounds):
        sides = (free, mixed) if at % 2 == 0 else (mixed, free)
        times = {side: seconds(side.steps, count) for side in sides}
        ratios.append(times[free] / times[mixed])
        steps.append(times[free])
    return ratios, statistics.median(steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", nargs="+", default=["20m"], choices=CONFIGS)
    parser.add_argument("--batch", nargs="+", type=int, default=[8])
    parser.add_argument("--held", nargs="+", type=int, default=[1, 4], help="rows with a grammar")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--samplers", nargs="+", default=["greedy", "mixed"], choices=SAMPLERS)
    parser.add_argument("--length", type=int, default=128, help="prompt tokens per row")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=24)
    options = parser.parse_args()
    print(f"mlx {mx.__version__}, {mx.default_device()}, {options.dtype}")
    print("model      batch  held  samplers  mixed/free (low … high)     free ms")
    for name in options.model:
        model = make(name, getattr(mx, options.dtype))
        for batch in options.batch:
            for held in options.held:
                for label in options.samplers:
                    free = Rows(model, batch, 0, options.length, label)
                    mixed = Rows(model, batch, held, options.length, label)
                    ratios, step = compare(free, mixed, options.rounds, options.steps)
                    print(
                        f"{name:10} {batch:5} {held:5}  {label:8}  "
                        f"{statistics.median(ratios):.3f} ({min(ratios):.3f} … {max(ratios):.3f})"
                        f"     {step * 1e3:8.2f}",
                        flush=True,
                    )
                    del free, mixed
                    mx.clear_cache()
        del model
        mx.clear_cache()


if __name__ == "__main__":
    main()
