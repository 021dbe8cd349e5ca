"""`LLM`: the engine in the calling process, for scripts and tests.

It has no thread of its own: the thread that made it owns MLX, and any other gets an error.
`shared_llm.py` and `async_llm.py` put one on a thread of its own.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import mlx.core as mx

from bushel.arguments import Messages, Params, Prompt, conversations, made_from, paired
from bushel.chat.prompt import PLAIN, prepare, priority_of, salt_of
from bushel.chat.reply.choice_text import ChoiceText
from bushel.chat.reply.format_detection import reply_format_of
from bushel.chat.reply.reader import Reader
from bushel.chat.script_request import ChatFields, checked_request
from bushel.chat.tool_fields import offered_by
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
from bushel.core.embedding import cosine, sigmoid
from bushel.core.load_progress import own_progress
from bushel.core.options import EngineOptions
from bushel.core.params import (
    choices,
    params_of,
    resolve,
    tokenized_texts,
    with_token_rules,
)
from bushel.core.status import as_json
from bushel.embeddings import ONE, Embeddable, embedding_requests, numbers_of, texts_of, vectors_of
from bushel.engine.build import build, keep_to, rows_of
from bushel.engine.engine import Engine
from bushel.models.device import device_fault
from bushel.progress import progress_bar
from bushel.script_claim import ScriptClaim

# Shapes of an answer that `Choice.parsed` can read.
_JSON = frozenset({"json_object", "json_schema"})


class Handle:
    """A submitted request; `output` grows while it runs.

    >>> llm = LLM("bushel:tiny")
    >>> handle = llm.submit("Once upon a time", {"max_tokens": 4})
    >>> while not handle.done:
    ...     llm.step()
    >>> len(handle.output.token_ids)
    4
    """

    def __init__(
        self, llm: LLM, request_id: str, output: Output, replies: Sequence[ChoiceText] = ()
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
        self.take_events()
        return self._output

    def abort(self) -> None:
        """End it now. What it has said stays; its finish reason is "abort"."""
        if not self.done:
            self._llm._abort(self)

    def _take(self, event: Event) -> None:
        self._queue.append(event)
        if event.finish_reason is not None:
            self._open -= 1

    def take_events(self) -> list[Event]:
        """What has happened since the last call, with its text."""
        queue, self._queue = self._queue, []
        events = [self._read(event) for event in queue]
        for event in events:
            self._output.fold(event)
        return events

    def _read(self, event: Event) -> Event:
        if not self._replies:
            return event
        reply = self._replies[event.choice]
        text, deltas, finish = reply.take(event.token_ids, event.finish_reason)
        stop = None if finish is None else reply.stop
        return event._replace(text=text, deltas=deltas, finish_reason=finish, stop=stop)


class LLM:
    """A loaded model and its engine.

    `generate` takes prompts, `chat` conversations, `stream` one request as it is answered; what is
    asked together is served together. They belong to the thread that made the `LLM`: for several
    threads there is `SharedLLM`, for asyncio `AsyncLLM`.

    >>> llm = LLM("bushel:tiny")
    >>> outputs = llm.generate(["Once upon a time", "The weather is"], {"max_tokens": 8})
    >>> [output.usage.completion_tokens for output in outputs]
    [8, 8]
    >>> [output] = llm.chat([{"role": "user", "content": "What is 3 + 4?"}])
    >>> output.text
    '3 + 4 = 7'
    >>> llm.close()

    model: a directory or hub id. dtype: None is the checkpoint's (float32 on CPU).
    max_batch: rows that decode together, at most. prefill_chunk: tokens of a prompt that run at
    once, at most. trust_remote_code: run code that the checkpoint brings.
    max_model_len: tokens that prompt and reply have together, if that is less than the model's
    context.
    kv_bits: 8 or 4 keep attention's keys and values in as many bits, from the first token on.
    token_gap, start_wait: the two bounds of the scheduler, in seconds: the longest gap between
    two tokens of a running reply, and the longest a started prompt goes without progress.
    order: who is admitted first, by "arrival" or the "shortest" prompt.
    attention: rows of a batch have "pages", where no row costs another anything, or are "padded" to
        the longest; "auto": pages on a GPU, if they stand a trial there with this model.
    speculate: who guesses tokens ahead, which changes none of them: "lookup" finds them in prompt
        and reply, "mtp" are the model's own heads, and a directory or hub id is a draft model;
        "auto": heads if the model has some, and lookup; "off": nobody.
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

    @made_from(EngineOptions)
    def __init__(self, options: EngineOptions):
        self._thread = threading.get_ident()
        options = replace(options, model=str(options.model))
        loading = own_progress(Path(options.model).name)
        self._options = options
        self._claim = ScriptClaim()
        self._engine: Engine | None = None
        try:
            self._engine = build(options, loading=loading, allot=self._claim.allot)
        finally:
            if self._engine is None:
                self._claim.release()
        self._handles: dict[str, Handle] = {}
        self._ids = itertools.count()

    def generate(
        self,
        requests: Prompt | Iterable[Prompt],
        params: Params | Sequence[Params] = None,
        *,
        progress: bool = False,
    ) -> list[Output]:
        """Serve all requests together: one output for each, also where it is one alone.

        A request is a text, or a mapping with exactly one of prompt, prompt_token_ids and messages,
        and what `chat` takes besides: with messages all of it, with a prompt response_format,
        shape, cache_salt and priority. params: one for all requests, or a list with one for each. A
        request that cannot be served has `.error` set, and the others do not notice; a call that is
        wrong as a whole raises. progress: show a bar.
        """
        handles: list[Handle] = []
        pairs = paired(requests, params)
        try:
            with progress_bar(len(pairs), progress) as bar:
                handles += (self.submit(*pair) for pair in pairs)
                running = handles
                while running:
                    left = [handle for handle in running if not handle.done]
                    bar.update(len(running) - len(left))
                    if left:
                        self.step()
                    running = left
        except BaseException:  # nobody will read what still runs
            for handle in handles:
                if self._engine is not None:
                    handle.abort()
            raise
        return [handle.output for handle in handles]

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        params: Params | Sequence[Params] = None,
        *,
        progress: bool = False,
        **fields: Unpack[ChatFields],
    ) -> list[Output]:
        """Answer a conversation, or each of a list of them, as `/v1/chat/completions` does.

        Outputs have the answer as `text`, what else the reply says as `reasoning` and `tool_calls`,
        and `parsed` where JSON was asked for; `message` is the turn to go on with. Pictures may be
        PIL images, arrays of uint8, bytes of a file, paths and URLs:
        {"type": "image", "image": picture}.

        What is said beside the messages is the same for all conversations:

        tools: OpenAI's descriptions, or Python functions with a docstring. tool_choice: "auto",
        "none", "required" or {"type": "function", "function": {"name": …}}. parallel_tool_calls:
        False allows one call. response_format: as OpenAI's, {"type": "json_object"} or
        {"type": "json_schema", …}. shape: what that has no name for, one of {"regex": …},
        {"choice": […]} and {"grammar": …}. thinking: {"enabled": …, "effort": …, "budget": tokens}.
        chat_template_kwargs: variables of the model's template. prediction: a text that the reply
        may repeat much of, which is then said sooner. cache_salt: only requests with the
        same one share what was computed. priority: of what waits, the lowest value goes first.
        """
        return self.generate(conversations(messages, fields), params, progress=progress)

    def embed(
        self, texts: Embeddable | Iterable[Embeddable], *, dimensions: int | None = None
    ) -> list[list[float]]:
        """A vector of length one for each text, or list of token ids: what an embedding model is
        for, and the pooled hidden states of any other. dimensions: the first so many of it.
        RequestError names the first text that cannot be served.

        >>> llm = LLM("bushel:tiny")
        >>> [one, two] = llm.embed(["Once upon a time", "The weather is"], dimensions=8)
        >>> len(one), round(sum(number * number for number in one), 3)
        (8, 1.0)
        """
        return vectors_of(self._pooled(embedding_requests(texts)), dimensions)

    def score(self, query: str, documents: Iterable[str]) -> list[float]:
        """How well each document answers the query: by a cross-encoder from 0 to 1, by any other
        model the cosine of their embeddings.

        >>> llm = LLM("bushel:tiny")
        >>> [score] = llm.score("What is 3 + 4?", ["What is 3 + 4?"])
        >>> round(score, 3)
        1.0
        """
        texts = texts_of(documents)
        if self._own_engine().model.host.task == "score":
            pairs = [{"prompt": query, "text_pair": text, "field": "documents"} for text in texts]
            return [sigmoid(logit) for (logit,) in numbers_of(self._pooled(pairs))]
        asked, *found = self.embed([query, *texts])
        return [cosine(asked, each) for each in found]

    def _pooled(self, requests: Sequence[Mapping[str, Any]]) -> list[Output]:
        handles: list[Handle] = []
        try:
            handles += (self._submit(request, ONE, "embedding") for request in requests)
            while not all(handle.done for handle in handles):
                self.step()
        except BaseException:  # nobody will read what still runs
            for handle in handles:
                if self._engine is not None:
                    handle.abort()
            raise
        return [handle.output for handle in handles]

    def submit(self, request: Prompt, params: Params = None) -> Handle:
        """Let a request join whatever is running; `step` moves all of them."""
        return self._submit(request, params)

    def _submit(self, request: Prompt, params: Params, result: Result = "text") -> Handle:
        engine = self._own_engine()
        request_id = f"req-{next(self._ids)}"
        try:
            given = {"prompt": request} if isinstance(request, str) else request
            # The other requests are made by `embed` and `score`.
            asked = checked_request(given) if result == "text" else {**given, "result": result}
            settings = params_of(params)
            ready = replace(self._prepare(engine, request_id, asked, settings), result=result)
        except RequestError as error:
            return self._refused(request_id, str(error))
        except Exception as error:  # whatever a template or an image provokes is that request's
            if (fault := device_fault(error)) is not None:
                engine.start_over(fault)
            return self._refused(request_id, f"{type(error).__name__}: {error}")
        handle = self._handle(engine, ready, settings, asked)
        try:
            engine.submit(ready)
        except RequestError as error:
            del self._handles[ready.id]
            return self._refused(request_id, str(error))
        return handle

    def step(self) -> None:
        """One turn of the engine; does nothing when idle."""
        engine = self._own_engine()
        if (limit := self._claim.look()) is not None:
            keep_to(engine, self._options, limit)
        try:
            events = engine.step()
        except DeviceFault as fault:
            engine.start_over(fault)
            events = engine.take_events()
        self._deliver(events)

    def stream(self, request: Prompt, params: Params = None) -> Iterator[Event]:
        """The request's events as they happen. Leaving the loop early aborts it."""
        handle = self.submit(request, params)
        try:
            # Another stream's reader may finish this one while it is suspended here.
            while not handle.done or handle._queue:
                if not handle._queue:
                    self.step()
                yield from handle.take_events()
        finally:
            if not handle.done and self._engine is not None:
                handle.abort()

    @property
    def tokenizer(self) -> Any:
        """The model's own, of transformers: `encode`, `decode`, `apply_chat_template`, ..."""
        return self._own_engine().model.tokenizer.hf

    def status(self) -> dict[str, Any]:
        """What runs, what waits, memory, batch and lane."""
        return as_json(self._own_engine().status())

    def cache_stats(self) -> dict[str, Any]:
        """What is kept of earlier prompts, how often it was of use, and what it takes."""
        return as_json(self._own_engine().cache_status())

    def clear_cache(self) -> None:
        self._own_engine().clear_cache()

    def rest(self) -> None:
        """Give memory that is free back to the system, while nobody needs it."""
        self._own_engine().rest()

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
            self._claim.release()

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
                "thread-local. To ask from several threads use bushel.SharedLLM; in asyncio, "
                "bushel.AsyncLLM."
            )
        return self._engine

    def _prepare(
        self, engine: Engine, request_id: str, request: Mapping[str, Any], params: SamplingParams
    ) -> Request:
        model = engine.model
        count = choices(params)
        first = resolve(params, model.defaults, vocab=model.vocab, end_ids=model.tokenizer.end_ids)
        prompt = prepare(model.host, {**request, **tokenized_texts(params)})
        first = with_token_rules(first, prompt.token_rules)
        markers = reply_format_of(model.host, PLAIN).markers if "messages" in request else ()
        if not params.skip_special_tokens:
            markers = model.tokenizer.special_texts
        first = replace(first, constraint=prompt.constraint, markers=markers)
        salt, priority = salt_of(request), priority_of(request)
        return Request(request_id, prompt, rows_of(first, count), salt, priority=priority)

    def _handle(
        self,
        engine: Engine,
        ready: Request,
        params: SamplingParams,
        asked: Mapping[str, Any] | None = None,
    ) -> Handle:
        """asked: what the reply is read for; None: nobody reads it."""
        asked = asked or {}
        kept = [
            Choice(
                logprobs=None if params.logprobs is None else [],
                prompt_logprobs=None if params.prompt_logprobs is None else [],
                is_json=not _JSON.isdisjoint(asked.get("shape") or ()),
            )
            for _ in ready.choices
        ]
        output = Output(kept, Usage(prompt_tokens=len(ready.prompt.ids)))
        decode = engine.model.tokenizer.decode
        replies = [
            ChoiceText(decode, decoding, self._reader(engine, ready, asked))
            for decoding in ready.choices
        ]
        handle = self._handles[ready.id] = Handle(self, ready.id, output, replies)
        return handle

    def _reader(self, engine: Engine, ready: Request, asked: Mapping[str, Any]) -> Reader | None:
        """What is no conversation is text and nothing else."""
        if "messages" not in asked:
            return None
        reply_format = reply_format_of(engine.model.host, PLAIN)
        offered = offered_by(asked.get("tools") or ())
        return Reader(reply_format, offered, opened=ready.prompt.opened)

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
