"""How fast a model runs here: prompts by the size of their chunks, and decode steps."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from functools import cached_property

import mlx.core as mx

from bushel.core import BushelError, Prepared, Request, SamplingParams
from bushel.core.checkpoint import TINY
from bushel.core.options import EngineOptions
from bushel.core.params import resolve
from bushel.doctor.finding import DoctorOptions, Finding, Probe, Section, digits, duration, size
from bushel.engine import device_memory
from bushel.engine.batching_check import single_because
from bushel.engine.engine import Engine
from bushel.engine.plan import Policy
from bushel.models import Model, device, load

_CHUNKS = (128, 512, 2048)
_PROMPT = 2048  # tokens
_ROWS = (1, 8, 32)
_ENOUGH, _QUICK = 3.0, 0.5  # seconds for one figure of a prompt
_ROUNDS = 3
_STEPS = 20
_WARM = 3  # steps before they count
_ROW_PROMPT = 64  # tokens of a row that decodes
_WORTH = 1.25  # times as fast as by default, from which it is worth a flag
_LOAD = 180.0  # seconds, for weights that come from a slow disk


def section(options: DoctorOptions) -> Section:
    speed = _Speed(options)
    return Section(
        [
            Probe("load", speed.load, seconds=_LOAD),
            Probe("prefill", speed.prefill, seconds=120),
            Probe("decode", speed.decode, seconds=120),
            Probe("wired", speed.wired, seconds=90),
        ],
        speed.close,
    )


class _Speed:
    def __init__(self, options: DoctorOptions):
        self._options = options

    @cached_property
    def _model(self) -> Model:
        given = self._options
        trust = given.trust_remote_code
        return load(given.model or TINY, dtype=given.dtype, trust_remote_code=trust)

    def close(self) -> None:
        if "_model" in self.__dict__:
            self._model.close()

    def load(self) -> Iterator[Finding]:
        start = time.perf_counter()
        weights, buffers = self._model.weights
        seconds = time.perf_counter() - start
        words = f"{self._model.name}: {size(weights)} in {buffers} arrays, {duration(seconds)}"
        limit = device_memory.memory_limit()
        if weights > limit:
            advice = f"MLX should use {size(limit)} here: take a smaller model."
            yield Finding("slow", "load", words, advice)
        else:
            yield Finding("ok", "load", words)

    def prefill(self) -> Iterator[Finding]:
        """Tokens a second of a prompt, in pieces of each size."""
        length = min(512 if self._options.quick else _PROMPT, self._model.context or _PROMPT)
        speeds: dict[int, float] = {}
        for chunk in _CHUNKS:
            if chunk <= length:
                speeds[chunk] = length / self._prompt_seconds(length, chunk)
        told = ", ".join(f"{digits(speed)} in pieces of {chunk}" for chunk, speed in speeds.items())
        words = f"tokens a second, of a prompt of {length}: {told}"
        best, largest = max(speeds, key=lambda it: speeds[it], default=0), max(speeds, default=0)
        usual = EngineOptions.prefill_chunk
        if self._options.model and speeds and speeds[best] > _WORTH * speeds[largest]:
            advice = f"Try bushel serve --prefill-chunk {best}: the default is {usual} at most."
            yield Finding("slow", "prefill", words, advice)
        else:
            yield Finding("ok", "prefill", words)

    def _prompt_seconds(self, length: int, chunk: int) -> float:
        """The median, without the first time, unless that took long enough."""
        times: list[float] = []
        enough = _QUICK if self._options.quick else _ENOUGH
        begun = time.perf_counter()
        while len(times) <= _ROUNDS and time.perf_counter() - begun < enough:
            state = self._model.make_state()
            prompt = self._model.embed(Prepared(self._ids(0, length)))
            start = time.perf_counter()
            for at in range(0, length, chunk):
                self._model.prefill(prompt, at, min(at + chunk, length), state)
                mx.eval([layer.state for layer in state])
            times.append(time.perf_counter() - start)
        return statistics.median(times[1:] or times)

    def decode(self) -> Iterator[Finding]:
        lane = single_because(self._model)
        rows = _ROWS[:1] if lane else _ROWS[:2] if self._options.quick else _ROWS
        steps = {count: self._step_seconds(count) for count in rows}
        told = ", ".join(
            f"{duration(step)} with {count} ({digits(count / step)} tokens a second)"
            for count, step in steps.items()
        )
        words = f"a greedy step, by rows: {told}"
        words += f"; one row at a time, because {lane}" if lane else ""
        yield Finding("ok", "decode", words)

    def wired(self) -> Iterator[Finding]:
        """A step with weights that may be paged out, and with those that may not."""
        if device.ON_CPU or device.ON_CUDA:
            yield Finding("skipped", "wired", "only Metal has memory to be wired")
            return
        limit = device_memory.memory_limit()
        plain = self._step_seconds(1)
        claim = device_memory.claim(limit, limit - limit // 20)
        try:
            wired = self._step_seconds(1)
        finally:
            claim.release()
        words = f"a step {duration(wired)} wired, {duration(plain)} not"
        if wired > _WORTH * plain:
            advice = "Wiring should not cost anything: please report this."
            yield Finding("slow", "wired", words, advice)
        else:
            yield Finding("ok", "wired", words)

    def _step_seconds(self, count: int) -> float:
        """The median of steps in which all of so many rows decode."""
        model = self._model
        engine = Engine(model, Policy(max_batch=count))
        many = 2 * _STEPS + 2 * count  # the first row is still there when the last one joins
        params = SamplingParams(temperature=0, max_tokens=many, ignore_eos=True)
        decoding = resolve(params, model.defaults, vocab=model.vocab, end_ids=frozenset())
        for row in range(count):
            engine.submit(Request(str(row), Prepared(self._ids(row, _ROW_PROMPT)), (decoding,)))
        times: list[float] = []
        while len(times) < _STEPS + _WARM and not engine.idle:
            start = time.perf_counter()
            events = engine.step()
            if len(events) == count:
                times.append(time.perf_counter() - start)
        for row in range(count):
            engine.abort(str(row))
        if not times:
            raise BushelError(f"{count} rows never decoded together")
        return statistics.median(times[_WARM:] or times)

    def _ids(self, row: int, length: int) -> tuple[int, ...]:
        return tuple((row * 7919 + at * 104729) % (self._model.vocab - 1) for at in range(length))
