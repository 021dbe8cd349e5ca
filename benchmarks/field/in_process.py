"""Bushel's engine and mlx-lm's BatchGenerator under one clock, in one process."""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

import mlx.core as mx
from mlx_lm.generate import BatchGenerator

from benchmarks.engines import engine_on, submit
from benchmarks.field.loads import Arrival, Load
from benchmarks.field.records import Reply, Run
from bushel.engine.engine import Engine
from bushel.models import Model

Made = Iterator[tuple[str, list[int]]]  # by request, its new tokens


class Side(Protocol):
    """One way to serve. `drive` alone calls it, from one thread."""

    @property
    def idle(self) -> bool: ...

    def submit(self, arrival: Arrival) -> str:
        """What `step` calls the request."""
        ...

    def step(self) -> Made: ...

    def close(self) -> None: ...


class BushelSide:
    def __init__(self, engine: Engine):
        self._engine = engine

    @property
    def idle(self) -> bool:
        return self._engine.idle

    def submit(self, arrival: Arrival) -> str:
        return submit(self._engine, arrival.ids, arrival.new, system=arrival.system)

    def step(self) -> Made:
        for event in self._engine.step():
            assert event.error is None, event.error
            yield event.request_id, list(event.token_ids)

    def close(self) -> None:
        """Leave the model as it was, and nothing else. An engine is part of reference cycles."""
        pages, prefixes = self._engine.model.pages, self._engine.prefixes
        del self._engine
        if prefixes is not None:
            prefixes.close()
        gc.collect()
        if pages is not None:
            pages.clear()


class MlxLmSide:
    """With its own settings, but that no token ends a reply."""

    def __init__(self, model: Model):
        self._generator = BatchGenerator(model.network)
        self._running = set[str]()

    @property
    def idle(self) -> bool:
        return not self._running

    def submit(self, arrival: Arrival) -> str:
        [uid] = self._generator.insert([list(arrival.ids)], [arrival.new])
        self._running.add(str(uid))
        return str(uid)

    def step(self) -> Made:
        _, replies = self._generator.next()
        for reply in replies:
            yield str(reply.uid), [reply.token]
            if reply.finish_reason is not None:
                self._running.discard(str(reply.uid))

    def close(self) -> None:
        """It has begun one more step, in a stream of its own."""
        mx.synchronize(self._generator.stream)
        self._generator.close()


SIDES: dict[str, Callable[[Model], Side]] = {
    "Bushel": lambda model: BushelSide(engine_on(model)),
    "mlx-lm": MlxLmSide,
}


def drive(side: Side, load: Load) -> Run:
    """Every request goes in when it is due; steps follow each other while there is work."""
    waiting = deque(sorted(enumerate(load), key=lambda pair: pair[1].at))
    replies = [Reply(arrival.at) for arrival in load]
    names: dict[str, int] = {}
    mx.synchronize()
    mx.clear_cache()
    mx.reset_peak_memory()
    start, longest = time.perf_counter(), 0.0
    while waiting or not side.idle:
        begun = time.perf_counter()
        while waiting and waiting[0][1].at <= begun - start:
            at, arrival = waiting.popleft()
            names[side.submit(arrival)] = at
        if side.idle:
            time.sleep(max(0.0, waiting[0][1].at - (time.perf_counter() - start)))
            continue
        for name, tokens in list(side.step()):
            if tokens:
                reply = replies[names[name]]
                reply.times.append(time.perf_counter() - start)
                reply.tokens += tokens
        longest = max(longest, time.perf_counter() - begun)
    mx.synchronize()
    took = time.perf_counter() - start
    peak = mx.get_peak_memory()
    side.close()
    return Run(replies, took, peak, longest)


def run_in_process(name: str, model: Model, load: Load) -> Run:
    run = drive(SIDES[name](model), load)
    gc.collect()  # peaks of others would count what is left of the side
    return run
