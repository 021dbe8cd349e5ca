"""What the APIs see of the server: jobs go in, tickets come out.

    with await service.open(job, wake) as ticket:  # ApiError if it cannot be served
        ticket.take(most)                          # ApiError if it is lost on its way

    open:  prepare (a worker) ──> submit ──> accepted by the engine ──> Ticket
    then:  the engine's events ──> Live ──> Ticket

A request is kept until its first event. If the engine dies before that, the next one gets it,
once; if it dies later, the request is lost and its client is told. Everything here belongs to
the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from bushel.core import Event, GenerationDefaults, RequestError, SamplingParams
from bushel.core.options import ModelInfo
from bushel.core.params import choices, resolve
from bushel.core.wire import (
    Abort,
    Accepted,
    Beat,
    Cleared,
    Decode,
    DecodedText,
    FromEngine,
    Made,
    Open,
    Prepare,
    Refused,
    Status,
    Stepped,
    Submit,
)
from bushel.server import errors
from bushel.server.counting import Counting, CountJob, check_ids
from bushel.server.errors import ApiError
from bushel.server.observability import logs
from bushel.server.observability.metrics import Metrics
from bushel.server.observability.request_record import Record
from bushel.server.options import ServerOptions
from bushel.server.processes.backoff import Outage, worst
from bushel.server.processes.pool import Pool
from bushel.server.processes.supervisor import Supervisor
from bushel.server.service.caller import Caller
from bushel.server.service.engine_queries import EngineQueries
from bushel.server.service.job import GenerationJob
from bushel.server.service.names import Names
from bushel.server.service.proven_grammars import ProvenGrammars
from bushel.server.service.ticket import Live, Ticket
from bushel.text.vocabulary import Vocabulary

log = logging.getLogger(__name__)

# Tensors of requests that have not begun, kept in the front. More wait to be prepared.
_HELD_BYTES = 1 << 30
_MOST_CRASHES = 2  # of engines that had a request, before it is given up
_RECENT = 32  # finished requests that `/v1/status` still shows


class Service:
    """Make it on the event loop, `run` it as a task, `close` it."""

    def __init__(self, options: ServerOptions, names: Names, metrics: Metrics):
        self.options = options
        self.names = names
        self.metrics = metrics
        self.draining = False
        self.ready = asyncio.Event()  # set when the first engine is
        self._held = 0  # bytes of tensors of requests that have not begun
        self._roomy = asyncio.Event()  # few enough of them
        self._roomy.set()
        self.supervisor = Supervisor(options.engine, self, options.hang_seconds)
        engine = options.engine
        self.pool = Pool(
            Open(engine.model, engine.trust_remote_code, options.media, options.chat_options),
            options.workers,
            options.prepare_seconds,
            self._roomy,
        )
        self._counting = Counting(self.pool, options.workers)
        self._vocabulary: Vocabulary | None = None
        self._records: dict[str, Record] = {}  # of everything that is not finished
        self._live: dict[str, Live] = {}  # what has been submitted, in order
        self._recent: deque[Record] = deque(maxlen=_RECENT)
        self._questions = EngineQueries(self.supervisor.send)
        self._calls = itertools.count()
        self._proofs = ProvenGrammars(self.pool)

    async def run(self) -> None:
        """Until cancelled, or until it is known that the model cannot be served."""
        workers = asyncio.create_task(self.pool.run())
        engine = asyncio.create_task(self._run_engine())
        knowing = asyncio.create_task(self._learn())
        try:
            await asyncio.wait([workers, engine], return_when=asyncio.FIRST_COMPLETED)
        finally:
            knowing.cancel()
            await self.supervisor.close()
            workers.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await workers
            await engine

    async def _run_engine(self) -> None:
        model = self.options.engine.model
        if not model.startswith("bushel:") and not Path(model).expanduser().exists():
            await asyncio.wait(
                [self.pool.model_info]
            )  # a worker fetches it; two would show it twice
        if self.pool.failed is None:
            await self.supervisor.run()

    def kill(self) -> None:
        """End all children now."""
        self.supervisor.kill()
        self.pool.kill()

    @property
    def failed(self) -> str | None:  # why the model cannot be served at all
        return self.supervisor.failed or self.pool.failed

    async def _learn(self) -> None:
        with contextlib.suppress(ApiError):  # who waits for the facts is told
            model_info = await self.pool.known()
            self._vocabulary = await asyncio.to_thread(Vocabulary, model_info)

    # -- what the APIs ask for ---------------------------------------------------------------

    @property
    def model_info(self) -> ModelInfo | None:
        done = self.pool.model_info.done() and self.pool.model_info.exception() is None
        return self.pool.model_info.result() if done else None

    @property
    def vocabulary(self) -> Vocabulary:
        if self._vocabulary is None:
            raise errors.unavailable("its tokenizer is being loaded")
        return self._vocabulary

    async def open(self, job: GenerationJob, wake: asyncio.Event) -> Ticket:
        """When this returns, the engine has accepted the request. `wake` is set whenever the ticket
        has something new.
        """
        count = _checked(choices, job.params)
        named = uuid.uuid4().hex, job.api, job.model, job.stream, count, time.monotonic()
        record = self._admit(Record(*named, job.owner))
        seconds = job.timeout if job.timeout is not None else self.options.timeout
        async with self._on_its_way(record, seconds):
            return await self._open(job, record, seconds, wake)

    async def count(self, job: CountJob) -> Made | DecodedText:
        """Admitted, recorded and given up like any other request (B47)."""
        named = job.message.id, job.api, job.model, False, 0, time.monotonic()
        record = self._admit(Record(*named, job.owner))
        async with self._on_its_way(record, self.options.timeout):
            if isinstance(job.message, Decode):
                check_ids(job.message.ids, (await self.pool.known()).vocab)
            made, _ = await self._counting.ask(job.owner, job.message)
            if record.cancelled:
                raise errors.cancelled()
            assert isinstance(made, Made | DecodedText)
            asked = made if isinstance(made, Made) else job.message
            record.prompt_tokens = len(asked.ids)  # type: ignore[union-attr]
            self._end(record, None)
            return made

    async def decode(self, ids: Sequence[int]) -> str:
        """Of a request that is on its way."""
        made, _ = await self.pool.ask(Decode(f"call-{next(self._calls)}", tuple(ids)))
        assert isinstance(made, DecodedText)
        return made.text

    @property
    def outage(self) -> Outage | None:
        """What keeps requests from being served now: health, status and answers all go by it."""
        if self.draining:
            return Outage("it is shutting down", hopeless=True)
        learning = Outage("its tokenizer is being loaded") if self._vocabulary is None else None
        return worst(self.supervisor.outage, self.pool.outage, learning)

    def health(self) -> str | None:
        return None if (outage := self.outage) is None else outage.reason

    async def status(self, caller: Caller) -> dict[str, Any]:
        """Of requests that are not the caller's, their number."""
        engine = await self._engine_status()
        rows: dict[str, dict[str, Any]] = {}
        for row in engine.pop("requests", ()):
            rows.setdefault(row["id"], row)
        now = time.monotonic()
        seen = [it for it in self._records.values() if caller.sees(it.owner)]
        return {
            "model": self.names.main,
            "health": self.health() or "ok",
            "engine": {
                "ready": self.supervisor.ready,
                "restarts": self.supervisor.restarts,
                "reason": None if self.supervisor.ready else self.supervisor.reason,
                **engine,
                "pid": self.supervisor.pid,
            },
            "workers": self.pool.report(),
            "preparing": self._preparing,
            "running": engine.get("running", 0),
            "waiting": engine.get("waiting", 0),
            "requests": [it.report(now, rows.get(it.id)) for it in seen],
            "others": len(self._records) - len(seen),
            "recent": [it.summary(now) for it in reversed(self._recent) if caller.sees(it.owner)],
        }

    async def cache(self) -> dict[str, Any]:
        """What is kept of earlier prompts, and what it was good for since the server began."""
        self._need_engine()
        status = self.supervisor.status
        with contextlib.suppress(TimeoutError):
            status = await self._questions.status()
        return self._cache(status)

    async def clear_cache(self) -> dict[str, Any]:
        self._need_engine()
        return self._cache(await self._questions.clear())

    def _need_engine(self) -> None:
        if (outage := self.supervisor.outage) is not None:
            raise errors.unavailable(outage.reason)

    def _cache(self, status: Mapping[str, Any]) -> dict[str, Any]:
        return {**status.get("cache", {}), "since_start": self.metrics.reuse.counts}

    @property
    def _preparing(self) -> int:
        return sum(it.phase == "preparing" for it in self._records.values())

    def cancel(self, caller: Caller, request_id: str) -> bool:
        """False if no such request is there, or is not the caller's."""
        record = self._records.get(request_id)
        if record is None or not caller.sees(record.owner):
            return False
        if (live := self._live.get(request_id)) is not None:
            self._abort(live, errors.cancelled())
        else:
            record.cancelled = True  # its worker is not interrupted; it is seen after that
        return True

    async def drain(self, seconds: float) -> None:
        """Take nothing new, and give what runs so many seconds."""
        self.draining = True
        end = time.monotonic() + seconds
        while self._records and time.monotonic() < end:
            await asyncio.sleep(0.05)
        gone = ApiError(503, "The server is shutting down.", code="shutting_down")
        self.pool.give_up(gone)
        for live in list(self._live.values()):
            self._abort(live, gone)

    # -- one request's way -------------------------------------------------------------------

    def _admit(self, record: Record) -> Record:
        if self.draining:
            raise ApiError(503, "The server is shutting down.", code="shutting_down", retry_after=5)
        if (outage := self.outage) is not None and outage.hopeless:
            raise errors.unavailable(outage.reason)
        waiting = [it for it in self._records.values() if it.phase in ("preparing", "queued")]
        free = self.options.limits.queue - len(waiting)
        own = sum(it.owner == record.owner for it in waiting)
        # An owner among several leaves as much of the queue free as it takes.
        if free <= 0 or (len(self.options.keys) > 1 and own >= free):
            raise errors.too_many(len(waiting))
        self._records[record.id] = record
        return record

    @contextlib.asynccontextmanager
    async def _on_its_way(self, record: Record, seconds: float | None) -> AsyncIterator[None]:
        """Ends the record of what fails, takes too long or is given up."""
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            error = errors.timed_out(seconds or 0.0)
            self._end(record, error)
            raise error from None
        except ApiError as error:
            self._end(record, error)
            raise
        except BaseException:  # above all: the client went away
            self._end(record, None, status=499)
            raise

    async def _open(
        self, job: GenerationJob, record: Record, seconds: float | None, wake: asyncio.Event
    ) -> Ticket:
        model_info = await self.pool.known()
        defaults = _overlaid(model_info.defaults, self.options.defaults)
        decoding = _checked(
            lambda params: resolve(
                params,
                defaults,
                vocab=model_info.vocab,
                end_ids=model_info.end_ids,
                max_tokens=job.reply_tokens,
            ),
            job.params,
        )
        if self.options.log_prompts:
            logs.prompt(record.id, job.request)
        made, tail = await self.pool.ask(Prepare(record.id, dict(job.request)))
        assert isinstance(made, Made)
        if record.cancelled:
            raise errors.cancelled()
        if job.reads and made.constraint is not None and made.constraint.grammar is not None:
            shaped = job.request.get("shape") is not None
            await self._proofs.prove(
                made.constraint.grammar, "response_format" if shaped else "tools"
            )
        record.prompt_tokens, record.phase = len(made.ids), "queued"
        if job.reads:
            decoding = replace(
                decoding, constraint=made.constraint, markers=model_info.reply_format.markers
            )
        submit = Submit(
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
        )
        live = self._live[record.id] = Live(record, submit, tail, wake)
        self._hold(tail.nbytes)
        try:
            if self.supervisor.ready:
                self.supervisor.send(submit, tail)
            await live.accepted
            while self._vocabulary is None:
                await asyncio.sleep(0.05)
        except BaseException:
            self._withdraw(live)
            raise
        if seconds is not None:
            left = max(0.0, record.arrived + seconds - time.monotonic())
            loop = asyncio.get_running_loop()
            live.deadline = loop.call_later(left, self._abort, live, errors.timed_out(seconds))
        return Ticket(live, self._vocabulary.decode, self._leave, job.reader(model_info, made))

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
            self._end(live.record, error, status=499)

    def _withdraw(self, live: Live) -> None:
        self.supervisor.send(Abort(live.record.id))
        self._forget(live)

    def _fail(self, live: Live, error: ApiError) -> None:
        """The engine does not have it, or has it no more."""
        live.fail(error)
        self._forget(live)
        self._end(live.record, error)

    def _forget(self, live: Live) -> None:
        self._live.pop(live.record.id, None)
        self._hold(-live.release())
        if live.deadline is not None:
            live.deadline.cancel()

    def _end(self, record: Record, error: ApiError | None, *, status: int = 200) -> None:
        if self._records.pop(record.id, None) is None:
            return
        record.finished, record.phase = time.monotonic(), "done"
        record.status = status if error is None else error.status
        record.error = None if error is None else error.code
        self._recent.append(record)
        self.metrics.finished(record)
        logs.finished(record)

    def _hold(self, size: int) -> None:
        self._held += size
        (self._roomy.set if self._held < _HELD_BYTES else self._roomy.clear)()

    # -- supervisor.Owner --------------------------------------------------------------------

    def engine_ready(self) -> None:
        self.ready.set()
        for live in list(self._live.values()):
            self.supervisor.send(live.submit, live.tail)

    def engine_lost(self, was_ready: bool) -> None:
        self.metrics.restarted(self.supervisor.ending)
        self.metrics.engine({}, up=False)
        self._questions.lose()
        outage = self.supervisor.outage
        for live in list(self._live.values()):
            live.crashes += was_ready  # otherwise it did not have it
            if live.begun or live.crashes >= _MOST_CRASHES:
                self._fail(live, errors.restarted())
            elif outage is not None and outage.hopeless:
                self._fail(live, errors.unavailable(outage.reason))
            else:
                live.record.requeue(live.crashes)

    def engine_said(self, message: FromEngine) -> None:
        if isinstance(message, Stepped):
            self._stepped(message)
        elif isinstance(message, Accepted):
            live = self._live.get(message.id)
            if live is None:
                self.supervisor.send(Abort(message.id))
            elif not live.accepted.done():
                live.record.accepted = time.monotonic()
                live.accepted.set_result(None)
        elif isinstance(message, Refused):
            if (live := self._live.get(message.id)) is not None:
                self._fail(live, ApiError.refused(message))
        elif isinstance(message, Status | Cleared):
            self._seen(message.status)
            self._questions.hear(message)
        elif isinstance(message, Beat):
            self._seen(message.status)

    def _seen(self, status: Mapping[str, Any]) -> None:
        self.metrics.engine(status, up=True, preparing=self._preparing)

    def _stepped(self, message: Stepped) -> None:
        now, gaps, tokens = time.monotonic(), list[float](), 0
        for started in message.started:
            if (live := self._live.get(started.id)) is not None:
                live.record.start(started, now)
                self.metrics.reuse.started(live.record)
        for event in message.events:
            if (live := self._live.get(event.request_id)) is None:
                continue
            if event.finish_reason in ("error", "abort"):
                self._abort(live, _lost(event))
                continue
            self._hold(-live.release())
            tokens += len(event.token_ids)
            if (gap := live.take(event, now)) is not None:
                gaps.append(gap)
            if live.done:
                self._forget(live)
                self._end(live.record, None)
            elif live.overrun:
                self._abort(live, errors.slow_reader())
        self.metrics.tokens(tokens, gaps)

    async def _engine_status(self) -> dict[str, Any]:
        if self.supervisor.ready:
            with contextlib.suppress(TimeoutError, ApiError):
                return await self._questions.status()
        return dict(self.supervisor.status)


def _checked(check: Any, params: SamplingParams) -> Any:
    try:
        return check(params)
    except RequestError as error:
        raise ApiError.of(error) from None


def _overlaid(model: GenerationDefaults, said: GenerationDefaults) -> GenerationDefaults:
    """The command line over the model's generation config (B31)."""
    stated = {it.name: getattr(said, it.name) for it in fields(said)}
    return replace(model, **{name: value for name, value in stated.items() if value is not None})


def _lost(event: Event) -> ApiError:
    if event.code is not None:
        return ApiError(400, str(event.error), code=event.code)
    return ApiError(500, "The request failed in the engine.", code="internal_error")
