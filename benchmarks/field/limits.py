"""The least time that a load can take on this machine, and what bare loops would take.

A limit is a roofline over the whole load: the bytes that have to be read over the bandwidth, or the
operations that have to be done over their rate, whichever takes longer. Each is measured in the
same run, by the best of what MLX does on large arrays. Weights are read once for each token of the
longest reply, or once for each full batch if that is more; keys and values are those of real
tokens. What prompts have in common counts once. Both are as if all requests had come at once,
and a load does not end before its last request has come.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache

from benchmarks.decode import Bare, prompt, seconds
from benchmarks.field.loads import Load, fresh_tokens, new_tokens
from bushel.engine.footprint import footprint
from bushel.models import Model


@dataclass(frozen=True)
class Machine:
    bandwidth: float  # bytes a second
    rate: float  # operations a second


@dataclass(frozen=True)
class Sizes:
    """Of a model."""

    weights: int  # bytes that a decode step reads
    body: int  # parameters that every token of a prompt is multiplied with
    head: int  # and those of the head, which the last one alone needs
    per_token: int  # bytes of keys and values that a token leaves
    per_pair: int  # operations for a token that looks at another one


def passes(load: Load, rows: int) -> int:
    """Decode steps that a load needs if never more than so many rows run together."""
    return max(max(one.new for one in load), math.ceil(new_tokens(load) / rows))


def load_bytes(load: Load, sizes: Sizes, rows: int) -> int:
    looked_at = sum(one.new * len(one.ids) + one.new * (one.new - 1) // 2 for one in load)
    return passes(load, rows) * sizes.weights + sizes.per_token * looked_at


def load_operations(load: Load, sizes: Sizes) -> int:
    tokens, pairs = 0, 0
    for one, fresh in zip(load, fresh_tokens(load), strict=True):
        end = len(one.ids) + one.new
        begin = len(one.ids) - fresh
        tokens += end - begin
        pairs += (end * end - begin * begin) // 2
    return 2 * (sizes.body * tokens + sizes.head * new_tokens(load)) + sizes.per_pair * pairs


def limit(load: Load, sizes: Sizes, machine: Machine, rows: int) -> float:
    """Seconds."""
    read = load_bytes(load, sizes, rows) / machine.bandwidth
    computed = load_operations(load, sizes) / machine.rate
    return max(read, computed, max(one.at for one in load))


def bare_together(load: Load, rows: int, prefill: float, step: float) -> float:
    """Seconds of a bare prefill and then a bare decode loop.

    prefill: tokens a second. step: seconds of a decode step of so many rows.
    """
    busy = sum(fresh_tokens(load)) / prefill + passes(load, rows) * step
    return max(busy, max(one.at for one in load))


def sizes_of(model: Model) -> Sizes:
    leaves: Any = tree_flatten(model.network.parameters())
    sizes = {name: leaf.size for name, leaf in leaves}
    table = sum(size for name, size in sizes.items() if "embed_tokens" in name)
    head = sum(size for name, size in sizes.items() if "lm_head" in name)
    weights = sum(leaf.nbytes for _, leaf in leaves)
    looked_up = sum(leaf.nbytes for name, leaf in leaves if "embed_tokens" in name) if head else 0
    args = getattr(model.network, "language_model", model.network).args
    heads = args.num_attention_heads
    wide = getattr(args, "head_dim", None) or args.hidden_size // heads
    # A window's bytes are left out: the limit stays one.
    appended = [layer for layer in footprint(model).layers if layer.per_token and not layer.window]
    return Sizes(
        weights=weights - looked_up,
        body=sum(sizes.values()) - table - head,
        head=head or table,
        per_token=sum(layer.count * layer.per_token for layer in appended),
        per_pair=4 * heads * wide * sum(layer.count for layer in appended),
    )


def _best(work: Callable[[], mx.array], times: int = 6) -> float:
    mx.eval(work())
    return min(seconds(lambda _: mx.eval(work()), 1) for _ in range(times))


def measure_machine(dtype: mx.Dtype) -> Machine:
    on_gpu = mx.default_device() == mx.Device(mx.gpu)
    wide = 16384 if on_gpu else 4096
    table = mx.random.normal((wide, wide)).astype(dtype)
    vector = mx.random.normal((wide, 1)).astype(dtype)
    mx.eval(table, vector)
    reads = (lambda: table.sum(), lambda: table @ vector, lambda: table.max())
    bandwidth = max(table.nbytes / _best(read) for read in reads)
    side = 8192 if on_gpu else 1024
    one = mx.contiguous(table[:side, :side])
    mx.eval(one)
    rate = 2 * side**3 / _best(lambda: one @ one)
    return Machine(bandwidth, rate)


class BareLoops:
    """Rates of bare loops over a model, each measured once."""

    def __init__(self, model: Model):
        self._model = model
        self.prefill = cache(self._prefill)
        self.step = cache(self._step)

    def _prefill(self, length: int) -> float:
        """Tokens a second of a prompt, in pieces of 2,048 as mlx-lm runs it."""
        ids = mx.array([prompt(0, length, self._model.vocab)])
        best = math.inf
        for _ in range(3):
            layers = make_prompt_cache(self._model.network)
            start = time.perf_counter()
            for at in range(0, length, 2048):
                self._model.network(ids[:, at : at + 2048], cache=layers)
                mx.eval([layer.state for layer in layers])
            best = min(best, time.perf_counter() - start)
        return length / best

    def _step(self, rows: int, length: int) -> float:
        bare = Bare(self._model, rows, length)
        bare.steps(2)
        return min(seconds(bare.steps, 4) for _ in range(3))

    def together(self, load: Load, rows: int) -> float:
        """Seconds; lengths are rounded up, so that loads alike share a measurement."""
        longest = max(len(one.ids) for one in load)
        middle = sum(len(one.ids) for one in load) // len(load)
        prefill = self.prefill(_rounded(longest))
        return bare_together(load, rows, prefill, self.step(rows, _rounded(middle)))


def _rounded(length: int) -> int:
    """Up, by less than an eighth."""
    step = max(32, (1 << length.bit_length()) // 16)
    return -(-length // step) * step
