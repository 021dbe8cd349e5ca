"""A generation's way: prepared by a worker, submitted, and followed to its last event.

    open:  prepare (a worker) ──> submit ──> accepted by the engine ──> Ticket
    then:  the engine's events ──> Live ──> Ticket

A request is kept until its first event. If the engine dies before that, the next one gets it,
once; if it dies later, the request is lost and its client is told.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from bushel.core import Decoding, Event, RequestError
from bushel.core.awake_clock import awake
from bushel.core.options import ModelInfo
from bushel.core.params import choices, resolve, tokenized_texts, with_token_rules
from bushel.core.wire import Abort, Accepted, Made, Prepare, Refused, Stepped, Submit
from bushel.server import errors
from bushel.server.callers import Caller
from bushel.server.errors import ApiError
from bushel.server.observability import logs
from bushel.server.observability.metrics import Metrics
from bushel.server.observability.request_record import Record
from bushel.server.options import ServerOptions
from bushel.server.processes.pool import Pool
from bushel.server.processes.supervisor import Supervisor
from bushel.server.service.job import GenerationJob
from bushel.server.service.model import ServedModel
from bushel.server.service.proven_grammars import ProvenGrammars
from bushel.server.service.requests import Requests
from bushel.server.service.ticket import Live, Ticket
from bushel.text.detokenizer import Decode

# Tensors of requests that have not begun, kept in the front. More wait to be prepared.
_HELD_BYTES = 1 << 30
_MOST_CRASHES = 2  # of engines that had a request, before it is given up
S = TypeVar("S")
T = TypeVar("T")


class HeldTensors:
    """Bytes of the tensors of requests that have not begun. `roomy`: few enough of them."""

    def __init__(self) -> None:
        self.roomy = asyncio.Event()
        self.roomy.set()
        self._bytes = 0

    def add(self, size: int) -> None:
        self._bytes += size
        (self.roomy.set if self._bytes < _HELD_BYTES else self.roomy.clear)()


class Generations:
    """All that were opened and have not ended. Belongs to the event loop."""

    def __init__(
        self,
        options: ServerOptions,
        requests: Requests,
        model: ServedModel,
        pool: Pool,
        supervisor: Supervisor,
        held: HeldTensors,
        metrics: Metrics,
    ):
        self._options = options
        self._requests = requests
        self._model = model
        self._pool = pool
        self._supervisor = supervisor
        self._held = held
        self._metrics = metrics
        self._proofs = ProvenGrammars(pool)
        self._live: dict[str, Live] = {}  # what has been submitted, in order
        self._news: dict[Callable[[], None], None] = {}  # whom to wake, each once

    # -- from a job to its ticket --------------------------------------------------------------

    async def open(self, job: GenerationJob, wake: Callable[[], None]) -> Ticket:
        count = _checked(choices, job.params)
        named = uuid.uuid4().hex, job.api, job.model, job.stream, count, awake()
        record = Record(*named, job.owner, job.part, job.background)
        self._requests.admit(record)
        seconds = job.timeout
        if seconds is None and not job.background:
            seconds = self._options.timeout
        async with self._requests.on_its_way(record, seconds):
            model_info = await self._pool.known()
            decoding = self._decoding(job, model_info)
            record.max_tokens = decoding.max_tokens if job.result == "text" else None
            made, tail = await self._prepared(job, record)
            await self._prove(job, record, made)
            decoding = _checked(lambda rules: with_token_rules(decoding, rules), made.token_rules)
            markers = await self._markers(job, model_info)
            decoding = replace(decoding, constraint=made.constraint, markers=markers)
            record.prompt_tokens, record.phase = len(made.ids), "queued"
            live = Live(record, _submit(job, record, made, decoding), tail, wake)
            decode = await self._accepted(live, tail)
            if seconds is not None:
                self._end_after(live, seconds)
            return Ticket(live, decode, self._leave, job.reader(model_info, made))

    async def _markers(
        self, job: GenerationJob, model_info: ModelInfo
    ) -> tuple[tuple[int, str], ...]:
        """Special tokens that are text in its reply."""
        if not job.params.skip_special_tokens:
            return (await self._model.known_vocabulary()).special_texts
        return model_info.reply_format.markers if job.reads else ()

    def _decoding(self, job: GenerationJob, model_info: ModelInfo) -> Decoding:
        # The command line over the generation config, which is the model's or another (B31).
        config = self._options.generation_config
        defaults = self._options.defaults.over(model_info.defaults if config is None else config)
        more = model_info.infill_ends if job.request.get("suffix") else frozenset()
        return _checked(
            lambda params: resolve(
                params,
                defaults,
                vocab=model_info.vocab,
                end_ids=model_info.end_ids | more,
                max_tokens=job.reply_tokens,
            ),
            job.params,
        )

    async def _prepared(self, job: GenerationJob, record: Record) -> tuple[Made, memoryview]:
        if self._options.log_prompts:
            logs.prompt(record.id, job.request)
        # In the background it is somebody else's, with whom the owner's own requests take turns.
        owner = f"{job.owner} in the background" if job.background else job.owner
        made, tail = await self._pool.ask(
            Prepare(record.id, {**job.request, **tokenized_texts(job.params)}),
            owner,
            job.group or record.id,
        )
        assert isinstance(made, Made)
        if record.cancelled:
            raise errors.cancelled()
        return made, tail

    async def _prove(self, job: GenerationJob, record: Record, made: Made) -> None:
        if made.constraint is not None and made.constraint.grammar is not None:
            param = "tools" if job.request.get("shape") is None else "response_format"
            group = job.group or record.id
            await self._proofs.prove(made.constraint.grammar, param, job.owner, group)

    async def _accepted(self, live: Live, tail: memoryview) -> Decode:
        """Submits it; returns what turns its tokens into text."""
        self._live[live.record.id] = live
        self._held.add(tail.nbytes)
        try:
            if self._supervisor.ready:
                self._supervisor.send(live.submit, tail)
            await live.accepted
            return (await self._model.known_vocabulary()).decode
        except BaseException:
            self._withdraw(live)
            raise

    def _end_after(self, live: Live, seconds: float) -> None:
        left = max(0.0, live.record.arrived + seconds - awake())
        loop = asyncio.get_running_loop()
        live.deadline = loop.call_later(left, self._abort, live, errors.timed_out(seconds))

    # -- ends ------------------------------------------------------------------------------------

    def cancel(self, caller: Caller, request_id: str) -> bool:
        """False if no such request is there, or is not the caller's."""
        record = self._requests.find(caller, request_id)
        if record is None:
            return False
        if (live := self._live.get(request_id)) is not None:
            self._abort(live, errors.cancelled())
        else:
            self._requests.cancel(record)
        return True

    def abort_all(self, error: ApiError) -> None:
        for live in list(self._live.values()):
            self._abort(live, error)

    def _leave(self, live: Live) -> None:
        """Its API reads no more of it."""
        if not live.done:
            self._abort(live, None)

    def _abort(self, live: Live, error: ApiError | None) -> None:
        """Stop its work now; `error` is for whoever still listens."""
        if not live.done:
            self._withdraw(live)
            if error is not None:
                live.fail(error)
            self._requests.end(live.record, error, status=499)

    def _withdraw(self, live: Live) -> None:
        self._supervisor.send(Abort(live.record.id))
        self._forget(live)

    def _fail(self, live: Live, error: ApiError) -> None:
        """The engine does not have it, or has it no more."""
        live.fail(error)
        self._forget(live)
        self._requests.end(live.record, error)

    def _forget(self, live: Live) -> None:
        self._live.pop(live.record.id, None)
        self._held.add(-live.release())
        if live.deadline is not None:
            live.deadline.cancel()

    # -- the engine ------------------------------------------------------------------------------

    def submit_again(self) -> None:
        """A new engine is ready."""
        for live in list(self._live.values()):
            self._supervisor.send(live.submit, live.tail)

    def engine_lost(self, was_ready: bool) -> None:
        outage = self._supervisor.outage
        for live in list(self._live.values()):
            live.crashes += was_ready  # otherwise it did not have it
            if live.begun or live.crashes >= _MOST_CRASHES:
                self._fail(live, errors.restarted())
            elif outage is not None and outage.hopeless:
                self._fail(live, errors.unavailable(outage.reason))
            else:
                live.record.requeue(live.crashes)

    def hear(self, message: Accepted | Refused | Stepped) -> None:
        if isinstance(message, Stepped):
            self._stepped(message)
            return
        live = self._live.get(message.id)
        if isinstance(message, Refused):
            if live is not None:
                self._fail(live, ApiError.refused(message))
        elif live is None:
            self._supervisor.send(Abort(message.id))
        elif not live.accepted.done():
            live.record.accepted = awake()
            live.accepted.set_result(None)

    def _stepped(self, message: Stepped) -> None:
        if not self._news:
            asyncio.get_running_loop().call_soon(self._tell)
        now, gaps, tokens = awake(), list[float](), 0
        for started in message.started:
            if (live := self._live.get(started.id)) is not None:
                self._requests.begin(live.record, started, now)
                self._metrics.reuse.started(live.record)
        for event in message.events:
            if (live := self._live.get(event.request_id)) is None:
                continue
            if event.finish_reason in ("error", "abort"):
                self._abort(live, _lost(event))
                continue
            if not live.begun:
                self._held.add(-live.release())
                self._metrics.prompt_done(live.record)
            tokens += len(event.token_ids)
            if event.drafted:
                self._metrics.draft(event.drafted, event.accepted)
            silent = live.record.first_token is None
            if (gap := live.take(event, now)) is not None:
                gaps.append(gap)
            elif silent and live.record.first_token is not None:
                self._metrics.first_token(live.record)
            self._news[live.wake] = None
            if event.finish_reason is not None and live.done:
                self._forget(live)
                self._requests.end(live.record, None)
            elif live.overrun:
                self._abort(live, errors.slow_reader())
        self._metrics.tokens(tokens, gaps)
        self._metrics.iteration(message.prefilled + tokens)

    def _tell(self) -> None:
        """In one callback for all, and when all that has arrived is taken: a front that is late
        tells it at once.
        """
        news, self._news = self._news, {}
        for wake in news:
            wake()


def _submit(job: GenerationJob, record: Record, made: Made, decoding: Decoding) -> Submit:
    return Submit(
        id=record.id,
        ids=made.ids,
        tensors=made.tensors,
        decoding=decoding,
        choices=record.choices,
        media=made.media,
        borders=made.borders,
        salt=job.salt,
        owner=job.owner,
        group=job.group,
        result=job.result,
        priority=job.priority,
        background=job.background,
        prediction=made.prediction,
    )


def _checked(check: Callable[[S], T], said: S) -> T:
    try:
        return check(said)
    except RequestError as error:
        raise ApiError.of(error) from None


def _lost(event: Event) -> ApiError:
    if event.code is not None:
        return ApiError(400, str(event.error), code=event.code)
    return ApiError(500, "The request failed in the engine.", code="internal_error")
