"""`LLM`: the engine in the calling process, for scripts and tests.

It has no thread of its own: the thread that made it owns MLX, and any other gets an error.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from inspect import signature
from typing import Any, Concatenate, ParamSpec, TypeVar

import mlx.core as mx

from bushel.chat.prompt import prepare, salt_of
from bushel.core import (
    BushelError,
    Choice,
    DeviceFault,
    Event,
    Output,
    Request,
    RequestError,
    Result,
    SamplingParams,
    ThreadError,
    Usage,
)
from bushel.core.options import EngineOptions
from bushel.core.params import choices, resolve
from bushel.core.status import as_json
from bushel.engine.build import build, rows_of
from bushel.engine.engine import Engine
from bushel.models.device import device_fault
from bushel.text.detokenizer import OutputProcessor


class Handle:
    """A submitted request; `output` grows while it runs."""

    def __init__(
        self, llm: LLM, request_id: str, output: Output, replies: Sequence[OutputProcessor] = ()
    ):
        self.id = request_id
        self._llm = llm
        self._output = output
        self._replies = replies
        self._open = len(output.choices)  # choices without a finish reason
        self._queue: list[Event] = []  # not folded yet: text is made when someone looks

    @property
    def done(self) -> bool:
        return self._open == 0

    @property
    def output(self) -> Output:
        self._drain()
        return self._output

    def abort(self) -> None:
        if not self.done:
            self._llm._abort(self)

    def _take(self, event: Event) -> None:
        self._queue.append(event)
        if event.finish_reason is not None:
            self._open -= 1

    def _drain(self) -> list[Event]:
        """Fold what has happened since the last call; returns it, with its text."""
        queue, self._queue = self._queue, []
        events = [event._replace(text=self._text(event)) for event in queue]
        for event in events:
            self._output.fold(event)
        return events

    def _text(self, event: Event) -> str:
        if not self._replies:
            return ""
        reply = self._replies[event.choice]
        ended = [reply.add(token) for token in event.token_ids]
        if event.finish_reason is not None and not any(ended):
            reply.finish()
        return reply.take()


_P = ParamSpec("_P")
_T = TypeVar("_T")
_Self = TypeVar("_Self")


def _made_from(
    make: Callable[_P, _T],
) -> Callable[[Callable[[_Self, _T], None]], Callable[Concatenate[_Self, _P], None]]:
    """Let an `__init__` of one argument take what makes it, so that nothing is listed twice."""

    def decorate(init: Callable[[_Self, _T], None]) -> Callable[Concatenate[_Self, _P], None]:
        @wraps(init)
        def made(self: _Self, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
            init(self, make(*args, **kwargs))

        own = next(iter(signature(init).parameters.values()))
        shown = signature(make)
        named = shown.replace(parameters=[own, *shown.parameters.values()])
        made.__signature__ = named  # type: ignore[attr-defined]
        return made

    return decorate


class LLM:
    """A loaded model and its engine.

    model: a directory or hub id. dtype: None is the checkpoint's (float32 on CPU).
    max_batch: rows that decode together, at most. prefill_chunk: tokens of a prompt that run at
    once, at most. trust_remote_code: run code that the checkpoint brings.
    kv_bits: 8 or 4 keep attention's keys and values in as many bits, from the first token on.
    token_gap, start_wait: the two bounds of the scheduler, in seconds: the longest gap between
    two tokens of a running reply, and the longest a started prompt goes without progress.
    order: who is admitted first, by "arrival" or the "shortest" prompt.
    attention: rows of a batch have "pages", where no row costs another anything, or are "padded" to
        the longest; "auto": pages on a GPU, if they stand a trial there with this model.
    memory_limit, headroom: bytes that MLX may use, None for what this machine should spare, and
    how many of them to leave alone, None for a twentieth. What does not fit waits. beside: bytes
    that others on this machine may take.
    self_check: try a family that nothing is known of in a batch first, and serve it one row at a
    time if that is not exact.
    prefix_cache: what one prompt has computed, a later one that begins alike does not compute
    again. cache_memory: bytes for that, None for half of what is free beside the weights; running
    requests come first. snapshot_every: tokens between two states kept of a long prompt, where
    the model has layers that cannot go back. cache_kv_bits: 8 or 4 keep it in as many bits.
    cache_dir, cache_disk: a folder that outlives the process, and bytes for it.
    """

    @_made_from(EngineOptions)
    def __init__(self, options: EngineOptions):
        self._thread = threading.get_ident()
        self._engine: Engine | None = build(replace(options, model=str(options.model)))
        self._handles: dict[str, Handle] = {}
        self._ids = itertools.count()

    def generate(
        self,
        requests: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[Output]:
        """Serve all requests together; a request that cannot be served has `.error` set."""
        if isinstance(requests, Mapping):
            requests = [requests]
        if params is None or isinstance(params, SamplingParams):
            params = [params or SamplingParams()] * len(requests)
        if len(params) != len(requests):
            raise BushelError(f"{len(requests)} requests but {len(params)} params.")
        handles = [self.submit(*pair) for pair in zip(requests, params, strict=True)]
        while not all(handle.done for handle in handles):
            self.step()
        return [handle.output for handle in handles]

    def submit(self, request: Mapping[str, Any], params: SamplingParams | None = None) -> Handle:
        return self._submit(request, params or SamplingParams())

    def _submit(
        self, request: Mapping[str, Any], params: SamplingParams, result: Result = "text"
    ) -> Handle:
        engine = self._own_engine()
        request_id = f"req-{next(self._ids)}"
        try:
            ready = replace(self._prepare(engine, request_id, request, params), result=result)
        except RequestError as error:
            return self._refused(request_id, str(error))
        except Exception as error:  # whatever a template or an image provokes is that request's
            if (fault := device_fault(error)) is not None:
                engine.start_over(fault)
            return self._refused(request_id, f"{type(error).__name__}: {error}")
        handle = self._handle(engine, ready, params)
        try:
            engine.submit(ready)
        except RequestError as error:
            del self._handles[ready.id]
            return self._refused(request_id, str(error))
        return handle

    def step(self) -> None:
        """One turn of the engine; does nothing when idle."""
        engine = self._own_engine()
        try:
            events = engine.step()
        except DeviceFault as fault:
            engine.start_over(fault)
            events = engine.take_events()
        self._deliver(events)

    def stream(
        self, request: Mapping[str, Any], params: SamplingParams | None = None
    ) -> Iterator[Event]:
        """The request's events as they happen. Leaving the loop early aborts it."""
        handle = self.submit(request, params)
        try:
            # Another stream's reader may finish this one while it is suspended here.
            while not handle.done or handle._queue:
                if not handle._queue:
                    self.step()
                yield from handle._drain()
        finally:
            if not handle.done and self._engine is not None:
                handle.abort()

    def status(self) -> dict[str, Any]:
        return as_json(self._own_engine().status())

    def cache_stats(self) -> dict[str, Any]:
        """What is kept of earlier prompts, how often it was of use, and what it takes."""
        return as_json(self._own_engine().cache_status())

    def clear_cache(self) -> None:
        self._own_engine().clear_cache()

    def check_integrity(self) -> None:
        self._own_engine().check_integrity()

    def close(self) -> None:
        """Free the model and everything that runs on it."""
        engine, self._engine = getattr(self, "_engine", None), None
        if engine is not None:
            for handle in list(self._handles.values()):
                engine.abort(handle.id)
            self._deliver(engine.take_events())
            engine.close()
            mx.clear_cache()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _own_engine(self) -> Engine:
        if self._engine is None:
            raise BushelError("This LLM is closed.")
        if threading.get_ident() != self._thread:
            raise ThreadError(
                "An LLM belongs to the thread that made it, because MLX streams are "
                "thread-local. Make one in this thread, or send the work to that one."
            )
        return self._engine

    def _prepare(
        self, engine: Engine, request_id: str, request: Mapping[str, Any], params: SamplingParams
    ) -> Request:
        model = engine.model
        count = choices(params)
        first = resolve(params, model.defaults, vocab=model.vocab, end_ids=model.tokenizer.end_ids)
        prompt = prepare(model.host, request)
        first = replace(first, constraint=prompt.constraint)
        return Request(request_id, prompt, rows_of(first, count), salt_of(request))

    def _handle(self, engine: Engine, ready: Request, params: SamplingParams) -> Handle:
        kept = [
            Choice(
                logprobs=None if params.logprobs is None else [],
                prompt_logprobs=None if params.prompt_logprobs is None else [],
            )
            for _ in ready.choices
        ]
        output = Output(kept, Usage(prompt_tokens=len(ready.prompt.ids)))
        decode = engine.model.tokenizer.decode
        replies = [OutputProcessor(decode, decoding) for decoding in ready.choices]
        handle = self._handles[ready.id] = Handle(self, ready.id, output, replies)
        return handle

    def _refused(self, request_id: str, message: str) -> Handle:
        handle = Handle(self, request_id, Output([Choice()]))
        handle._take(Event(request_id, 0, finish_reason="error", error=message))
        return handle

    def _deliver(self, events: Sequence[Event]) -> None:
        for started in self._engine.take_started() if self._engine is not None else ():
            if started.id in self._handles:
                self._handles[started.id]._output.usage.cached_tokens = started.cached
        for event in events:
            handle = self._handles.get(event.request_id)
            if handle is None:
                continue
            handle._take(event)
            if handle.done:
                del self._handles[event.request_id]

    def _abort(self, handle: Handle) -> None:
        engine = self._own_engine()
        engine.abort(handle.id)
        self._deliver(engine.take_events())
