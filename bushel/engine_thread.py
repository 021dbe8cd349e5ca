"""An `LLM` on a thread of its own, which any thread may send requests to.

    any thread ── messages ──> inbox ──> the engine's thread: prepare, step, fold ──> jobs

The thread makes the `LLM`, and nothing of MLX leaves it: what goes in are requests, what comes out
are events and outputs. Whoever waits hears of a job exactly once how it ended.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict
from typing import Any, NamedTuple, TypeVar

import mlx.core as mx

from bushel.arguments import Params, Prompt
from bushel.core import BushelError, Event, Output, Result
from bushel.core.options import EngineOptions
from bushel.llm import LLM, Handle

log = logging.getLogger(__name__)
T = TypeVar("T")

# Seconds of preparing between two steps, while replies run: a dozen texts, or one large picture.
_PREPARING = 0.05
_REST = 5.0  # seconds without work, after which freed memory goes back to the system


class Job:
    """A request on its way. tell: is called on the engine's thread with what each step added."""

    def __init__(self, tell: Callable[[list[Event]], None] | None = None, result: Result = "text"):
        self.result = result
        self.output: Future[Output] = Future()
        self.output.set_running_or_notify_cancel()  # it ends with its request, not before
        self.unwanted = False
        self.tell = tell
        self.handle: Handle | None = None


class _Message(NamedTuple):
    act: Callable[[LLM], None]
    lost: Callable[[BaseException], None]  # told instead, where nobody acts any more


class EngineThread:
    """`loaded` ends when the model is there, or cannot be had. owner: what has this thread."""

    def __init__(self, options: EngineOptions, owner: str):
        self.loaded: Future[None] = Future()
        self._options = options
        self._owner = owner
        self._inbox: queue.SimpleQueue[_Message | None] = queue.SimpleQueue()
        self._jobs: dict[Job, None] = {}  # that were begun, in order; the engine thread's own
        self._lock = threading.Lock()
        self._ended: BaseException | None = None  # why nothing is taken any more; under the lock
        self._thread = threading.Thread(target=self._run, name="bushel-engine", daemon=True)
        self._thread.start()

    # -- for any thread ------------------------------------------------------------------------

    def submit(self, request: Prompt, params: Params, job: Job) -> Job:
        self._post(lambda llm: self._begin(llm, request, params, job), job.output.set_exception)
        return job

    def abort(self, job: Job) -> None:
        """Its reader has gone: its row is free before the next step. Nothing, if it has ended."""
        if job.output.done():
            return
        job.unwanted = True
        with contextlib.suppress(BushelError):  # it is over, and so is the job
            self._post(lambda _: self._drop(job), lambda _: None)

    def ask(self, question: Callable[[LLM], T]) -> Future[T]:
        """What the `LLM` says, between two steps."""
        answer: Future[T] = Future()
        answer.set_running_or_notify_cancel()

        def act(llm: LLM) -> None:
            try:
                answer.set_result(question(llm))
            except Exception as error:
                answer.set_exception(error)

        self._post(act, answer.set_exception)
        return answer

    def tokenizer(self) -> Future[Any]:
        """A copy: the engine's own is used by its thread."""
        return self.ask(lambda llm: copy.deepcopy(llm.tokenizer))

    def close(self) -> None:
        """Ends what runs, frees the model, and waits for that. May be called again."""
        self._end(BushelError(f"This {self._owner} is closed."))
        self._inbox.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _post(self, act: Callable[[LLM], None], lost: Callable[[BaseException], None]) -> None:
        with self._lock:
            if self._ended is not None:
                raise self._ended
            self._inbox.put(_Message(act, lost))

    def _end(self, why: BaseException) -> None:
        with self._lock:
            self._ended = self._ended or why

    # -- on the engine's thread ----------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as error:  # nothing may leave somebody waiting
            log.error("The engine of this %s failed.", self._owner, exc_info=error)
            failed = BushelError(f"The engine failed: {type(error).__name__}: {error}")
            failed.__cause__ = error
            self._end(failed)
        self._fail_all()
        mx.synchronize()
        mx.clear_streams()  # those of this thread, which ends

    def _serve(self) -> None:
        try:
            llm = LLM(**asdict(self._options))
        except Exception as error:
            self._end(error)
            self.loaded.set_exception(error)
            return
        self.loaded.set_result(None)
        with llm:
            while self._take(llm):
                if self._jobs:
                    llm.step()
                    self._tell()

    def _take(self, llm: LLM) -> bool:
        """Acts on what was sent, and waits for it if there is nothing else to do. False: close."""
        until = None
        while self._ended is None:
            try:
                message = self._next(llm)
            except queue.Empty:
                return True
            if message is None:
                return False
            try:
                message.act(llm)
            except Exception as error:  # whatever it is, it is that message's
                log.error("A request to this %s failed.", self._owner, exc_info=error)
                message.lost(error)
            until = time.monotonic() + _PREPARING if until is None else until
            if self._jobs and time.monotonic() >= until:
                return True
        return False

    def _next(self, llm: LLM) -> _Message | None:
        """Raises queue.Empty if there is none, and other work to do."""
        if self._jobs:
            return self._inbox.get_nowait()
        try:
            return self._inbox.get(timeout=_REST)
        except queue.Empty:
            llm.rest()
            return self._inbox.get()

    def _begin(self, llm: LLM, request: Prompt, params: Params, job: Job) -> None:
        if not job.unwanted:
            job.handle = llm._submit(request, params, job.result)
            self._jobs[job] = None

    def _tell(self) -> None:
        for job in list(self._jobs):
            assert job.handle is not None
            try:
                if job.tell is not None and (events := job.handle.take_events()):
                    job.tell(events)
                output = job.handle.output if job.handle.done else None
            except Exception as error:  # its text cannot be made, or its event loop is closed
                self._drop(job, error)
                continue
            if output is not None:
                del self._jobs[job]
                job.output.set_result(output)

    def _drop(self, job: Job, error: Exception | None = None) -> None:
        if job not in self._jobs or job.handle is None:
            return
        del self._jobs[job]
        job.handle.abort()
        job.output.set_exception(error or BushelError("The request was aborted."))

    def _fail_all(self) -> None:
        """What was begun, and what is still on its way."""
        why = self._ended
        assert why is not None
        for job in self._jobs:
            job.output.set_exception(why)
        self._jobs.clear()
        with contextlib.suppress(queue.Empty):
            while True:
                if (message := self._inbox.get_nowait()) is not None:
                    message.lost(why)
