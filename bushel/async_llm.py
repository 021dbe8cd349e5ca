"""`AsyncLLM`: an `LLM` for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Unpack

from bushel.arguments import Messages, Params, Prompt, conversations, made_from, paired
from bushel.chat.script_request import ChatFields
from bushel.core import Event, Output, Result
from bushel.core.options import EngineOptions
from bushel.embeddings import ONE, Embeddable, embedding_requests, vectors_of
from bushel.engine_thread import EngineThread, Job
from bushel.llm import LLM
from bushel.progress import progress_bar


class AsyncLLM:
    """An `LLM` whose answers are awaited; it lives on a thread of its own.

    It takes the arguments of `LLM`, begins to load at once, and `ready` waits for that, as entering
    `async with` does. `generate`, `chat` and `stream` mean the same as those of `LLM`. What tasks
    ask at the same time is served together; a task that is cancelled ends its requests.

    >>> import asyncio
    >>> async def ask(llm, question):
    ...     [output] = await llm.chat([{"role": "user", "content": question}])
    ...     return output.text
    >>> async def main():
    ...     async with AsyncLLM("bushel:tiny") as llm:
    ...         return await asyncio.gather(ask(llm, "What is 3 + 4?"), ask(llm, "Hello!"))
    >>> asyncio.run(main())
    ['3 + 4 = 7', 'Hello! How can I help you?']
    """

    @made_from(EngineOptions)
    def __init__(self, options: EngineOptions):
        self._engine = EngineThread(options, type(self).__name__)
        self._close = weakref.finalize(self, self._engine.close)

    async def ready(self) -> None:
        """Returns when the model is loaded. ModelError if it cannot be."""
        await asyncio.wrap_future(self._engine.loaded)

    async def generate(
        self,
        requests: Prompt | Iterable[Prompt],
        params: Params | Sequence[Params] = None,
        *,
        progress: bool = False,
    ) -> list[Output]:
        """As `LLM.generate`."""
        return await self._served(paired(requests, params), "text", progress)

    async def embed(
        self, texts: Embeddable | Iterable[Embeddable], *, dimensions: int | None = None
    ) -> list[list[float]]:
        """As `LLM.embed`."""
        requests = [(request, ONE) for request in embedding_requests(texts)]
        return vectors_of(await self._served(requests, "embedding", False), dimensions)

    async def _served(
        self, pairs: Sequence[tuple[Prompt, Params]], result: Result, progress: bool
    ) -> list[Output]:
        jobs: list[Job] = []
        try:
            with progress_bar(len(pairs), progress) as bar:
                jobs += (self._engine.submit(*pair, Job(result=result)) for pair in pairs)
                outputs = [asyncio.wrap_future(job.output) for job in jobs]
                for output in outputs:
                    output.add_done_callback(lambda done: done.cancelled() or bar.update())
                return list(await asyncio.gather(*outputs))
        finally:
            self._leave(jobs)

    async def chat(
        self,
        messages: Messages | Sequence[Messages],
        params: Params | Sequence[Params] = None,
        *,
        progress: bool = False,
        **fields: Unpack[ChatFields],
    ) -> list[Output]:
        """As `LLM.chat`."""
        return await self.generate(conversations(messages, fields), params, progress=progress)

    async def stream(self, request: Prompt, params: Params = None) -> AsyncIterator[Event]:
        """The request's events as they happen. Leaving the loop early aborts it."""
        loop = asyncio.get_running_loop()
        steps: asyncio.Queue[list[Event] | None] = asyncio.Queue()

        def tell(events: list[Event] | None) -> None:
            loop.call_soon_threadsafe(steps.put_nowait, events)

        def end(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                tell(None)

        job = self._engine.submit(request, params, Job(tell))
        job.output.add_done_callback(end)
        try:
            while (events := await steps.get()) is not None:
                for event in events:
                    yield event
            job.output.result()
        finally:
            self._leave([job])

    async def get_tokenizer(self) -> Any:
        """The model's own, of transformers: a copy, which is the caller's."""
        return await asyncio.wrap_future(self._engine.tokenizer())

    async def status(self) -> dict[str, Any]:
        return await asyncio.wrap_future(self._engine.ask(LLM.status))

    async def cache_stats(self) -> dict[str, Any]:
        return await asyncio.wrap_future(self._engine.ask(LLM.cache_stats))

    async def clear_cache(self) -> None:
        await asyncio.wrap_future(self._engine.ask(LLM.clear_cache))

    async def close(self) -> None:
        """Free the model. Whoever still waits for an answer gets a BushelError."""
        await asyncio.to_thread(self._close)

    async def __aenter__(self) -> AsyncLLM:
        await self.ready()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _leave(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self._engine.abort(job)
