"""What choosing the tokens of one step costs by itself, by sampler and batch.

    python -m benchmarks.sampling --vocab 128256 --batch 1 32 --dtype bfloat16

Two times each: the host's, to start it, and all of it, until the tokens are there.
"""

from __future__ import annotations

import argparse
import statistics
import time

import mlx.core as mx

from benchmarks.decode import SAMPLERS
from bushel.core import GenerationDefaults
from bushel.core.params import resolve
from bushel.engine.sampling.sampler import Sampler


def measure(kind: str, batch: int, vocab: int, dtype: mx.Dtype, spread: float) -> None:
    sampler = Sampler(vocab)
    for row in range(batch):
        params = SAMPLERS[kind](row)
        decoding = resolve(params, GenerationDefaults(), vocab=vocab, end_ids=frozenset())
        sampler.join(decoding, [1, 2, 3], [5])
    logits = (mx.random.normal((batch, 1, vocab), key=mx.random.key(0)) * spread).astype(dtype)
    inputs = mx.array([[5]] * batch)
    mx.eval(logits, inputs)
    host, whole = [], []
    for step in range(60):
        start = time.perf_counter()
        sampled = sampler.sample(logits, inputs, [step + 1] * batch, [step] * batch)
        started = time.perf_counter()
        mx.eval(*sampled.arrays())
        host.append(started - start)
        whole.append(time.perf_counter() - start)
    host_us, whole_us = (1e6 * statistics.median(times[20:]) for times in (host, whole))
    print(f"{kind:9} {batch:5}  {host_us:7.0f} us host  {whole_us:7.0f} us in all", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--vocab", type=int, default=8192)
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 4, 8])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--samplers", nargs="+", default=list(SAMPLERS), choices=SAMPLERS)
    parser.add_argument("--spread", type=float, default=3.0, help="of the logits; 1 is flat")
    options = parser.parse_args()
    print(f"mlx {mx.__version__}, {mx.default_device()}, {options.vocab} x {options.dtype}")
    for batch in options.batch:
        for kind in options.samplers:
            measure(kind, batch, options.vocab, getattr(mx, options.dtype), options.spread)


if __name__ == "__main__":
    main()
