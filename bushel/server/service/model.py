"""What is known of the served model, once a worker has opened its checkpoint."""

from __future__ import annotations

import asyncio
import contextlib

from bushel.core.options import ModelInfo
from bushel.server import errors
from bushel.server.errors import ApiError
from bushel.server.processes.backoff import Outage
from bushel.server.processes.pool import Pool
from bushel.text.vocabulary import Vocabulary


class ServedModel:
    """Belongs to the event loop."""

    def __init__(self, pool: Pool):
        self._pool = pool
        self._vocabulary: Vocabulary | None = None
        self._learned = asyncio.Event()

    async def learn(self) -> None:
        """To be run whenever the model is loaded."""
        with contextlib.suppress(ApiError):  # who waits for the facts is told
            model_info = await self._pool.known()
            if self._learned.is_set():
                return
            self._vocabulary = await asyncio.to_thread(Vocabulary, model_info)
            self._learned.set()

    @property
    def outage(self) -> Outage | None:
        """Why no reply can be written yet."""
        return Outage("its tokenizer is being loaded") if self._vocabulary is None else None

    @property
    def info(self) -> ModelInfo | None:
        done = self._pool.model_info.done() and self._pool.model_info.exception() is None
        return self._pool.model_info.result() if done else None

    @property
    def vocabulary(self) -> Vocabulary:
        if self._vocabulary is None:
            raise errors.unavailable("its tokenizer is being loaded")
        return self._vocabulary

    async def known_vocabulary(self) -> Vocabulary:
        """Waits for it."""
        await self._learned.wait()
        return self.vocabulary
