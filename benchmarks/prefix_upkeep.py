"""What keeping prefixes costs a running batch, where nothing of it is ever reused."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import mlx.core as mx

from benchmarks.decode import prompt
from benchmarks.engines import engine_on, submit
from bushel.cache import kind_of
from bushel.cache.prefix import Key, PrefixCache
from bushel.engine.engine import Engine
from bushel.models import Model

_PROMPT = 64  # tokens
# Bytes for what is kept: little, so that something is evicted for everything that is kept.
_MEMORY = 1 << 29
_fresh = itertools.count(1)


class Busy:
    """An engine whose rows are always full: a reply that ends makes place for another prompt."""

    def __init__(self, engine: Engine, batch: int, reply: int):
        self._engine = engine
        self._reply = reply
        # So that they do not all end in the same step.
        for row in range(batch):
            self._submit(max(1, reply * (row + 1) // batch))

    def _submit(self, tokens: int) -> None:
        ids = prompt(next(_fresh), _PROMPT, self._engine.model.vocab)
        submit(self._engine, ids, tokens)

    def run(self, tokens: int) -> float:
        """Seconds for so many tokens of replies."""
        start = time.perf_counter()
        while tokens > 0:
            for event in self._engine.step():
                tokens -= len(event.token_ids)
                if event.finish_reason is not None:
                    self._submit(self._reply)
        mx.synchronize()
        return time.perf_counter() - start


def upkeep(model: Model, batch: int, pairs: int, reply: int) -> str:
    """Tokens a second with the cache on over off, in pairs of alternating order."""
    # Whole prompts whatever they take: pieces that depend on the clock would differ.
    engines = [
        engine_on(model, reuse=on, batch=batch, memory=_MEMORY, gap=math.inf)
        for on in (True, False)
    ]
    sides = [Busy(engine, batch, reply) for engine in engines]
    tokens = batch * reply  # every row ends once
    for side in sides:
        side.run(tokens)
    ratios, speeds = [], []
    for at in range(pairs):
        order = (0, 1) if at % 2 else (1, 0)
        took = {side: sides[side].run(tokens) for side in order}
        ratios.append(took[1] / took[0])
        speeds.append((tokens / took[0], tokens / took[1]))
    assert not engines[0].cache_status().reused_tokens, "nothing was to be reused"
    on, off = (statistics.median(it) for it in zip(*speeds, strict=True))
    spread = f"{statistics.median(ratios):.3f} ({min(ratios):.3f} … {max(ratios):.3f})"
    return f"  batch {batch:3}  {spread}  {on:8.0f} {off:8.0f}"


def keeping(model: Model, batch: int, reply: int) -> str:
    """What keeping itself takes, with everything it copies computed before: no overlap counts."""
    off, on = (
        Busy(engine_on(model, reuse=reuse, batch=batch, memory=_MEMORY, gap=math.inf), batch, reply)
        for reuse in (False, True)
    )
    spent: list[float] = []
    keep = PrefixCache.keep

    def timed(
        prefixes: PrefixCache, root: str, key: Key, state: Sequence[Any], *rest: Any, **how: Any
    ) -> None:
        mx.eval([list(kind_of(layer).arrays(layer)) for layer in state])
        mx.synchronize()
        start = time.perf_counter()
        keep(prefixes, root, key, state, *rest, **how)
        mx.synchronize()
        spent.append(time.perf_counter() - start)

    tokens = 3 * batch * reply
    for side in (off, on):
        side.run(tokens // 3)
    without = off.run(tokens)
    with patch.object(PrefixCache, "keep", timed):
        on.run(tokens)
    each = statistics.mean(spent) * 1e3
    return f"  batch {batch:3}  {each:.2f} ms each, {sum(spent) / without:.2%} of the time without"
