"""An engine on a model that is in memory already, and requests to it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import mlx.core as mx

from bushel.cache.prefix import PrefixCache
from bushel.core import Borders, Prepared, Request, SamplingParams
from bushel.core.footprint import Memory
from bushel.core.options import EngineOptions
from bushel.core.params import resolve
from bushel.engine import device_memory, footprint
from bushel.engine.engine import Engine
from bushel.engine.plan import Policy
from bushel.engine.row_state import new_row
from bushel.models import Model

_ids = itertools.count()


def engine_on(
    model: Model,
    *,
    reuse: bool = True,
    batch: int = 32,
    chunk: int = EngineOptions.prefill_chunk,
    memory: int | None = None,
    gap: float = EngineOptions.token_gap,
) -> Engine:
    """memory: bytes for what is kept; None for half of what is free."""
    limit = device_memory.memory_limit() * 19 // 20
    room = Memory(footprint.footprint(model), limit, device_memory.buffer_limit())
    policy = Policy(max_batch=batch, prefill_chunk=chunk, token_gap=gap)
    prefixes = None
    if reuse:
        sample = new_row(model)
        mx.eval(model.forward(mx.array([[0]]), [0], sample))
        most = (limit - room.footprint.weights) // 2 if memory is None else memory
        prefixes = PrefixCache(partial(new_row, model), sample, most, room.buffer_limit)
    every = EngineOptions.snapshot_every
    return Engine(model, policy, memory=room, prefixes=prefixes, snapshot_every=every)


def submit(engine: Engine, ids: Sequence[int], tokens: int, salt: str = "", system: int = 0) -> str:
    """A greedy reply of exactly so many tokens. system: where the system prompt ends."""
    model, params = engine.model, SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=0)
    decoding = resolve(params, model.defaults, vocab=model.vocab, end_ids=frozenset())
    prompt = Prepared(tuple(ids), borders=Borders(system=system))
    request = Request(str(next(_ids)), prompt, (decoding,), salt)
    engine.submit(request)
    return request.id


@dataclass(frozen=True)
class Asked:
    first: float  # seconds to the first token
    cached: int  # tokens of the prompt
    reply: list[int]


def ask(
    engine: Engine, ids: Sequence[int], tokens: int = 1, salt: str = "", system: int = 0
) -> Asked:
    """One request by itself. What it leaves for later is done before this returns."""
    mx.synchronize()
    reply, first, cached = list[int](), 0.0, 0
    start = time.perf_counter()
    submit(engine, ids, tokens, salt, system)
    while not engine.idle:
        for event in engine.step():
            assert event.error is None, event.error
            first = first or time.perf_counter() - start
            reply.extend(event.token_ids)
        cached += sum(it.cached for it in engine.take_started())
    mx.synchronize()
    return Asked(first, cached, reply)


def per_token(engine: Engine) -> int:
    """Bytes that a token leaves in the layers that append, by their shapes."""
    assert engine.admission.memory is not None
    layers = engine.admission.memory.footprint.layers
    return sum(it.count * it.per_token for it in layers if it.window is None)


def states(engine: Engine) -> tuple[int, int]:
    """States that are kept: because their prompt is long, and for any other reason."""
    assert engine.prefixes is not None
    kept = [it.sorts for it in engine.prefixes._tree.nodes() if it.snapshot is not None]
    grid = sum(it == {"grid"} for it in kept)
    return grid, len(kept) - grid
