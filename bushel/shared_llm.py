"""`SharedLLM`: an `LLM` for all threads of a program."""

from __future__ import annotations

import queue
import weakref
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from functools import cached_property
from typing import Any, Unpack

from bushel.arguments import Messages, Params, Prompt, conversations, made_from, paired
from bushel.chat.script_request import ChatFields
from bushel.core import Event, Output, Result
from bushel.core.options import EngineOptions
from bushel.embeddings import ONE, Embeddable, embedding_requests, vectors_of
from bushel.engine_thread import EngineThread, Job
from bushel.llm import LLM
from bushel.progress import progress_bar


class SharedLLM:
    """An `LLM` that any thread may ask; it lives on a thread of its own.

    It takes the arguments of `LLM`, and its `generate`, `chat` and `stream` mean the same and
    return when the answer is there. What threads ask at the same time is served together.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with SharedLLM("bushel:tiny") as llm, ThreadPoolExecutor() as threads:
    ...     sums = [[{"role": "user", "content": f"What is 3 + {n}?"}] for n in (4, 5)]
    ...     for [output] in threads.map(llm.chat, sums):
    ...         print(output.text)
    3 + 4 = 7
    3 + 5 = 8
    """

    @made_from(EngineOptions)
    def __init__(self, options: EngineOptions):
        self._engine = EngineThread(options, type(self).__name__)
        self._close = weakref.finalize(self, self._engine.close)
        try:
            self._engine.loaded.result()
        except BaseException:
            self.close()
            raise

    def generate(
        self,
        requests: Prompt | Iterable[Prompt],
        params: Params | Sequence[Params] = None,
        *,
        progress: bool = False,
    ) -> list[Output]:
        """As `LLM.generate`."""
        return self._served(paired(requests, params), "text", progress)

    def embed(
        self, texts: Embeddable | Iterable[Embeddable], *, dimensions: int | None = None
    ) -> list[list[float]]:
        """As `LLM.embed`."""
        requests = [(request, ONE) for request in embedding_requests(texts)]
        return vectors_of(self._served(requests, "embedding", False), dimensions)

    def _served(
        self, pairs: Sequence[tuple[Prompt, Params]], result: Result, progress: bool
    ) -> list[Output]:
        jobs: list[Job] = []
        try:
            with progress_bar(len(pairs), progress) as bar:
                jobs += (self._engine.submit(*pair, Job(result=result)) for pair in pairs)
                for _ in as_completed([job.output for job in jobs]):
                    bar.update()
        except BaseException:
            for job in jobs:
                self._engine.abort(job)
            raise
        return [job.output.result() for job in jobs]

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        params: Params | Sequence[Params] = None,
        *,
        progress: bool = False,
        **fields: Unpack[ChatFields],
    ) -> list[Output]:
        """As `LLM.chat`."""
        return self.generate(conversations(messages, fields), params, progress=progress)

    def stream(self, request: Prompt, params: Params = None) -> Iterator[Event]:
        """The request's events as they happen. Leaving the loop early aborts it."""
        steps: queue.SimpleQueue[list[Event] | None] = queue.SimpleQueue()
        job = self._engine.submit(request, params, Job(steps.put))
        job.output.add_done_callback(lambda _: steps.put(None))
        try:
            while (events := steps.get()) is not None:
                yield from events
            job.output.result()
        finally:
            self._engine.abort(job)

    @cached_property
    def tokenizer(self) -> Any:
        """The model's own, of transformers: a copy, which is the caller's."""
        return self._engine.tokenizer().result()

    def status(self) -> dict[str, Any]:
        return self._engine.ask(LLM.status).result()

    def cache_stats(self) -> dict[str, Any]:
        return self._engine.ask(LLM.cache_stats).result()

    def clear_cache(self) -> None:
        self._engine.ask(LLM.clear_cache).result()

    def close(self) -> None:
        """Free the model. Whoever still waits for an answer gets a BushelError."""
        self._close()

    def __enter__(self) -> SharedLLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
