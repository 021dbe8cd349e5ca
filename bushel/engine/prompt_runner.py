"""Carries out the chunks of a plan: begins prompts, runs them, and hands on those that are through.

Faults stay with their prompt: whoever cannot begin ends, and of a pass that several shared and that
fails each prompt begins again, by itself. Where rows have pages, a pass that cannot be launched is
part of what is written to them: see `Engine._renew_pages`. Of a fault of the device see `engine`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from bushel.core import Event
from bushel.core.wire import Started
from bushel.engine.background_chunks import BackgroundChunks
from bushel.engine.plan import Chunk
from bushel.engine.prefill import Prefill
from bushel.engine.prefill_pass import run_together
from bushel.engine.request_queue import RequestQueue
from bushel.engine.sequence import Sequence
from bushel.engine.step_costs import Passes
from bushel.models.device import raise_device_fault


class PromptRunner:
    """Owned by one engine. tell, fail: the engine's, of what happens to a sequence."""

    def __init__(
        self,
        queue: RequestQueue,
        tell: Callable[[Event], None],
        fail: Callable[[Sequence, Exception], None],
        pages_hold: Callable[[], bool],
    ):
        """pages_hold: whether what was written to pages can be computed."""
        self._queue, self._tell, self._fail = queue, tell, fail
        self._pages_hold = pages_hold
        self._background = BackgroundChunks()
        self.started: list[Started] = []  # that nobody has been told of
        self.failed = False  # whether a pass has, in the present or the last step

    def run(self, chunks: tuple[Chunk, ...], now: float, *, catch_up: bool) -> list[Passes]:
        """Those that are packed share the pass of the one before them. catch_up: nothing else keeps
        the host from running off. Returns each pass that was run.
        """
        passes: list[Passes] = []
        self.failed = False
        for at, chunk in enumerate(chunks):
            if not chunk.packed and not self._pages_fail:
                rest = itertools.takewhile(lambda other: other.packed, chunks[at + 1 :])
                passes += self._run_pass([chunk, *rest], now, catch_up)
        return passes

    def wait(self) -> None:
        """For all that was run."""
        self._background.wait()

    def forget(self) -> None:
        """What is on its way is not waited for."""
        self._background = BackgroundChunks()

    def _run_pass(self, chunks: list[Chunk], now: float, catch_up: bool) -> list[Passes]:
        work = [(chunk, job) for chunk in chunks if (job := self._begun(chunk.job)) is not None]
        before = [job.done for _, job in work]
        try:
            states = run_together([(job, chunk.tokens) for chunk, job in work])
            self._background.start(states, catch_up=catch_up)
        except Exception as error:
            raise_device_fault(error)
            self.failed = True
            if len(work) == 1:
                self._drop(work[0][0].job, error)
                return []
            for chunk, _ in work:
                self._queue.begin_again(chunk.job, alone=True)
            if self._pages_fail:
                return []
            return [run for chunk, _ in work for run in self._run_pass([chunk], now, catch_up)]
        passes = Passes()
        width = max(
            (job.done - done for (_, job), done in zip(work, before, strict=True)), default=0
        )
        for at, ((chunk, job), done) in enumerate(zip(work, before, strict=True)):
            self._queue.ran(job, now)
            passes = passes.with_chunk(width, done, packed=at > 0)  # each is padded to the longest
            if job.remaining <= 0:
                self._finish(chunk.job, job, now)
        return [passes] if passes.tokens else []

    @property
    def _pages_fail(self) -> bool:
        """Whether whatever is run now fails too, since pages are written by what failed."""
        return self.failed and not self._pages_hold()

    def _begun(self, id: int) -> Prefill | None:
        """A prompt that can run; None if it has just failed."""
        job = self._queue.prefilling[id]
        try:
            if job.prompt is None:
                job.begin()
                self.started.extend(job.started())
        except Exception as error:
            raise_device_fault(error)
            self._drop(id, error)
            return None
        return job

    def _finish(self, id: int, job: Prefill, now: float) -> None:
        try:
            if job.wants_embedding:
                self._give_embedding(job)
                del self._queue.prefilling[id]
                return
            for ready in self._queue.finish(id, now):
                for event in job.prompt_logprob_events(ready.sequence):
                    self._tell(event)
        except Exception as error:
            raise_device_fault(error)
            self._drop(id, error)

    def _give_embedding(self, job: Prefill) -> None:
        embedding = job.embedding()
        for sequence in job.sequences:
            if not sequence.done:
                self._tell(sequence.give(embedding))

    def _drop(self, id: int, error: Exception) -> None:
        job = self._queue.prefilling.pop(id)
        for sequence in job.sequences:
            self._fail(sequence, error)
