"""The engine as a process of its own: messages in, steps, messages out.

    main thread   receive -> Engine.step -> send       owns MLX
    beat thread   every second: is the main thread getting on? It looks at `awake_clock`, too
    link thread   reads; ends the process when the front is gone

Started by the front through `core.child_process`, with the descriptor of its socket.
"""

from __future__ import annotations

import gc
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

import msgspec

from bushel.core import BushelError, DeviceFault, Event, Prepared, Request
from bushel.core.awake_clock import LOOK, awake
from bushel.core.child_link import Link
from bushel.core.options import EngineOptions
from bushel.core.status import EngineStatus
from bushel.core.wire import (
    Abort,
    Accepted,
    AskLimits,
    AskStatus,
    Beat,
    ClearCache,
    Cleared,
    Failed,
    LoadedBytes,
    MachineLimits,
    Progress,
    Ready,
    Refused,
    SetMemoryLimit,
    Start,
    Status,
    Stepped,
    Stop,
    Submit,
    ToEngine,
    unpack,
)
from bushel.engine import device_memory
from bushel.engine.build import build, keep_to, rows_of
from bushel.engine.engine import Engine
from bushel.engine.prefill_pass import plan_pieces
from bushel.engine.sampling.first_use import compile_samplers
from bushel.models.device import ON_CPU, ON_CUDA

log = logging.getLogger(__name__)

_BEAT = LOOK  # seconds
_IDLE = 0.5  # seconds between looks at the status when nothing arrives
_REST = 10.0  # seconds without a request before freed memory is given back
# A step of a kind that has not been seen may have to compile its kernels first: minutes of it
# were measured on CUDA.
_FIRST_USE = 600.0
_TELL_BYTES = 0.25  # seconds between two words on how much is loaded
_DEVICE_FAILED = 3  # exit code
_FACTOR = 20  # times its predicted duration, before a step is called a hang


class Process:
    def __init__(self, engine: Engine, link: Link[ToEngine], options: EngineOptions):
        self._engine = engine
        self._link = link
        self._options = options
        self._steps = 0
        self._since: float | None = None  # when the present step began
        self._known: set[tuple[bool, int]] = set()  # kinds of steps that have been completed
        self.status = self._look()
        engine.before_prompts = lambda: self._report(engine.take_events())

    def run(self) -> None:
        """Until the front says stop."""
        threading.Thread(target=self._beat, name="beat", daemon=True).start()
        engine = self._engine
        looked = busy = awake()
        rested = False
        while True:
            for message, tail in self._link.receive(_IDLE if engine.idle else 0):
                if isinstance(message, Stop):
                    return
                self._take(message, tail)
            if not engine.idle:
                self._step()
                busy, rested = awake(), False
            elif not rested and awake() - busy >= _REST:
                engine.rest()
                rested = True
            if (now := awake()) - looked >= _IDLE:
                engine.settle_memory()
                self.status, looked = self._look(), now

    def _take(self, message: ToEngine, tail: memoryview) -> None:
        if isinstance(message, Submit):
            self._submit(message, tail)
        elif isinstance(message, Abort):
            self._engine.abort(message.id)
            self._report(self._engine.take_events())
        elif isinstance(message, AskStatus):
            self.status = self._look()
            self._link.send(Status(self.status))
        elif isinstance(message, ClearCache):
            self._engine.clear_cache()
            self.status = self._look()
            self._link.send(Cleared(self.status))
        elif isinstance(message, SetMemoryLimit):
            keep_to(self._engine, self._options, message.limit)
            self.status = self._look()
            self._link.send(Status(self.status))

    def _submit(self, message: Submit, tail: memoryview) -> None:
        try:
            tensors = unpack(message.tensors, tail)
            prompt = Prepared(
                message.ids,
                tensors,
                message.media,
                message.borders,
                prediction=message.prediction,
            )
            rows = rows_of(message.decoding, message.choices)
            whose = message.salt, message.owner, message.group
            turn = message.result, message.priority, message.background
            self._engine.submit(Request(message.id, prompt, rows, *whose, *turn))
        except Exception as error:  # whatever it is, it is this request's
            if not isinstance(error, BushelError):
                log.error("request %s failed", message.id, exc_info=error)
            self._link.send(Refused.because(message.id, error))
        else:
            self._link.send(Accepted(message.id))

    def _step(self) -> None:
        self._since = awake()
        try:
            events = self._engine.step()
        except DeviceFault:
            self._report(self._engine.take_events())  # what was read before it is right
            raise
        self._report(events, self._engine.prefilled)
        self._known.add(self._kind)
        self._since = None
        self._steps += 1

    def _report(self, events: list[Event], prefilled: int = 0) -> None:
        started = self._engine.take_started()
        for slice in _slices(events):
            self._link.send(Stepped(slice, started, prefilled))
            started, prefilled = [], 0
        if started or prefilled:
            self._link.send(Stepped([], started, prefilled))

    @property
    def _kind(self) -> tuple[bool, int]:
        work = self._engine.work
        return work.prefill, min(work.rows, 2)

    def _look(self) -> EngineStatus:
        return msgspec.structs.replace(self._engine.status(), pid=os.getpid())

    def _beat(self) -> None:
        while True:
            since, kind, now = self._since, self._kind, awake()
            busy = 0.0 if since is None else now - since
            first = kind not in self._known
            patience = _FIRST_USE if first else _FACTOR * self._engine.work.seconds
            self._link.send(Beat(self._steps, busy, patience, self.status))
            time.sleep(_BEAT)


def _slices(events: list[Event]) -> Iterator[list[Event]]:
    """Log-probabilities of a long prompt by themselves: the front decodes a message in one go."""
    kept: list[Event] = []
    for event in events:
        kept.append(event)
        if event.prompt_logprobs:
            yield kept
            kept = []
    if kept:
        yield kept


def main(descriptor: int) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the front decides when to end
    link: Link[ToEngine] = Link(descriptor, ToEngine)
    start, _ = link.wait()
    if isinstance(start, AskLimits):
        link.send(MachineLimits(device_memory.memory_limit(start.beside), ON_CPU))
        start, _ = link.wait()
    assert isinstance(start, Start)

    def progress(text: str) -> None:
        link.send(Progress(text))

    told = -math.inf  # when of bytes

    def loading(done: int, total: int) -> None:
        nonlocal told
        if done in (0, total) or awake() - told >= _TELL_BYTES:
            told = awake()
            link.send(LoadedBytes(done, total))

    try:
        engine = build(start.options, progress, awake, loading)
        if not engine.model.encodes:
            progress("trying every sampler once")
            drafts = engine.speculation.why_off is None
            compile_samplers(engine.model, progress, drafts=drafts)
            plan_pieces(engine.model, engine.admission.memory, progress)
            if ON_CUDA:
                progress("allocating pages")
                engine.allocate_pages()
    except BushelError as error:
        link.send(Failed(str(error)))
        return 2
    except OSError as error:  # a folder may go away while it is read
        link.send(Failed(f"The model cannot be read: {error.strerror or error}."))
        return 2
    if not engine.model.encodes:
        engine.masks.warm()
    gc.freeze()  # what a loaded model consists of need not be looked at again
    process = Process(engine, link, start.options)
    link.send(Ready(process.status))
    try:
        process.run()
    except DeviceFault as fault:
        log.error("%s Another engine takes over from this one.", fault)
        link.flush()
        os._exit(_DEVICE_FAILED)  # nothing is asked of that device any more
    engine.close()  # what is kept on disk is written to its end
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
