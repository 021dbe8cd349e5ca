"""A service that plays a script, for tests of what stands in front of the real one."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

import httpx
import uvloop
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from bushel.core import Event, TextDelta, wire
from bushel.core.options import EngineOptions, ModelInfo
from bushel.server.app import create_app
from bushel.server.callers import Caller
from bushel.server.counting import CountJob
from bushel.server.errors import ApiError, unavailable
from bushel.server.http.connection import make_server
from bushel.server.http.sse import BODY, Held
from bushel.server.observability.prefix_metrics import PrefixMetrics
from bushel.server.observability.request_record import Timings
from bushel.server.options import ServerOptions
from bushel.server.service.job import GenerationJob
from bushel.server.service.names import Names
from bushel.server.service.services import Services
from bushel.server.service.ticket import Drafts

T = TypeVar("T")
# What a ticket does next: say something, fail, or wait until the test lets it go on.
Step = list[Event] | Exception | asyncio.Event
PATIENCE = 20.0  # seconds until a test that hangs is ended


def said(
    text: str = "", choice: int = 0, finish: Any = None, *, tokens: int | None = None, **more: Any
) -> Event:
    """One event; a token per character unless told otherwise, and all of it text."""
    ids = tuple(map(ord, text)) if tokens is None else (0,) * tokens
    more.setdefault("deltas", (TextDelta(text),) if text else ())
    return Event("", choice, ids, text, finish_reason=finish, **more)


class Vocabulary:
    """A token is a character, but for one that is half of one."""

    HALF = 1_200_000

    def hidden(self, token: int) -> bool:
        return False

    def bytes(self, token: int) -> bytes:
        return b"\xf0\x9f" if token == self.HALF else chr(token).encode()

    def text(self, token: int) -> str:
        return "\ufffd" if token == self.HALF else chr(token)


NO_DRAFTS = Drafts(0, 0)


class Metrics:
    def render(self) -> tuple[bytes, str]:
        return b"up 1\n", "text/plain; version=0.0.4; charset=utf-8"


class Ticket:
    """Gives one step of its script whenever something is taken of it."""

    def __init__(
        self, service: Service, job: GenerationJob, steps: Sequence[Step], wake: Callable[[], None]
    ):
        self.id = f"{next(service.numbers):032x}"
        self.created = 1_700_000_000
        self.prompt_ids = service.ids(job.request)
        self.cached_tokens = service.cached
        self.stored_tokens = len(self.prompt_ids) - 1 - service.cached
        self.timings = Timings(1.0, 2.0, 3.0)
        self.drafts = service.drafts
        self._steps = list(steps)
        self._wake = wake
        self._waiting: asyncio.Task[None] | None = None
        self.reads = 0
        self.left: str | None = None  # how its block was left

    def __enter__(self) -> Ticket:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.left = "done" if not self._steps else kind.__name__ if kind else "early"
        if self._waiting is not None:
            self._waiting.cancel()

    @property
    def more(self) -> bool:
        return bool(self._steps) and self._waiting is None

    @property
    def done(self) -> bool:
        return not self._steps

    def take(self, most: int, first_choice: int) -> list[Event]:
        self.reads += 1
        while self._steps:
            step = self._steps[0]
            if isinstance(step, asyncio.Event) and not step.is_set():
                self._waiting = self._waiting or asyncio.create_task(self._wait(step))
                return []
            self._steps.pop(0)
            if isinstance(step, Exception):
                raise step
            if isinstance(step, list):
                return [event._replace(choice=first_choice + event.choice) for event in step]
        return []

    async def _wait(self, step: asyncio.Event) -> None:
        await step.wait()
        self._waiting = None
        self._wake()


@dataclass
class Service:
    """`script` says what each job's ticket does; `gate` holds back `open` until it is set."""

    script: Callable[[GenerationJob], Sequence[Step] | Exception] = lambda job: [
        [said("Hi", finish="stop")]
    ]
    options: ServerOptions = field(
        default_factory=lambda: ServerOptions(EngineOptions("test/model"))
    )
    cached: int = 0
    drafts: Drafts = NO_DRAFTS
    context: int | None = 4096
    unwell: str | None = None
    loading: bool = False
    memory_bytes: int = 0
    gate: asyncio.Event | None = None

    def __post_init__(self) -> None:
        self.names = Names.of("test/model", self.options.served_names, self.options.aliases)
        self.metrics = Metrics()
        self.vocabulary = Vocabulary()
        self.numbers = itertools.count(1)
        self.jobs: list[GenerationJob] = []
        self.tickets: list[Ticket] = []
        self.asked: list[Mapping[str, Any]] = []
        self.opening = 0  # calls of open that have not ended
        self.given_up = 0  # calls of open that were cancelled
        self.model_info = ModelInfo("test/model", "", 1 << 20, self.context, frozenset())

    @staticmethod
    def ids(request: Mapping[str, Any]) -> tuple[int, ...]:
        text = request.get("prompt", "messages")
        return tuple(request.get("prompt_token_ids") or map(ord, text))

    async def open(self, job: GenerationJob, wake: Callable[[], None]) -> Ticket:
        self.jobs.append(job)
        self.opening += 1
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        finally:
            self.opening -= 1
        steps = self.script(job)
        if isinstance(steps, Exception):
            raise steps
        ticket = Ticket(self, job, steps, wake)
        self.tickets.append(ticket)
        return ticket

    async def count(self, job: CountJob) -> wire.Made | wire.DecodedText:
        message = job.message
        if isinstance(message, wire.Decode):
            return wire.DecodedText(message.id, await self.decode(message.ids))
        request: Mapping[str, Any] = (
            message.request
            if isinstance(message, wire.Prepare)
            else {"prompt": message.text, "add_special_tokens": message.add_special_tokens}
        )
        self.asked.append(request)
        return wire.Made(message.id, self.ids(request), {})

    async def decode(self, ids: Sequence[int], owner: str = "") -> str:
        if not all(token < self.model_info.vocab for token in ids):
            raise failing(400, "invalid_request")
        return "".join(map(chr, ids))

    def health(self) -> str | None:
        return self.unwell

    async def status(self, caller: Caller) -> dict[str, Any]:
        return {"running": len(self.tickets)}

    async def cache(self) -> dict[str, Any]:
        if self.unwell is not None:
            raise unavailable(self.unwell)
        return {"on": False, "why": "it is a script", "since_start": PrefixMetrics("").counts}

    clear_cache = cache

    def cancel(self, caller: Caller, request_id: str) -> bool:
        return any(ticket.id == request_id for ticket in self.tickets)


def options(**changes: Any) -> ServerOptions:
    return ServerOptions(EngineOptions("test/model"), **changes)


def playing(*steps: Step) -> Callable[[GenerationJob], Sequence[Step]]:
    return lambda job: steps


def failing(status: int, code: str) -> ApiError:
    return ApiError(status, "It went wrong.", code=code)


# -- asking ---------------------------------------------------------------------------------


def run(work: Coroutine[Any, Any, T]) -> T:
    """On the event loop that the server runs on."""
    return uvloop.run(asyncio.wait_for(work, PATIENCE))


class Present:
    """The service that is asked at present; routes look at it when they are asked."""

    def __init__(self, service: Service):
        self.service = service

    def __getattr__(self, name: str) -> Any:
        return getattr(self.service, name)


@cache
def _made(options: ServerOptions) -> tuple[FastAPI, Present]:
    present = Present(Service(options=options))
    return create_app(Services(present)), present  # type: ignore[arg-type]


def application(service: Service) -> FastAPI:
    """Made once for its options, which takes longer than to ask it; it serves the latest caller."""
    app, present = _made(service.options)
    present.service = service
    return app


class UnconnectedBody:
    """An `sse.StreamBody` over a `send` that never waits."""

    paused = False

    def __init__(self, send: Send):
        self._send = send

    def write(self, payload: bytes) -> None:
        with contextlib.suppress(StopIteration):
            message = {"type": "http.response.body", "body": payload, "more_body": True}
            self._send(message).__await__().send(None)

    def follow(self, source: Held | None) -> None:
        return


def unconnected(app: ASGIApp) -> ASGIApp:
    """An application that is asked without a connection."""

    async def asked(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "extensions": {BODY: UnconnectedBody(send)}}, receive, send)

    return asked


def ask(service: Service, method: str, path: str, **more: Any) -> httpx.Response:
    """One request to the application, without a network."""

    async def work() -> httpx.Response:
        transport = httpx.ASGITransport(unconnected(application(service)))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, path, **more)

    return run(work())


def chat(service: Service, **body: Any) -> httpx.Response:
    messages = body.pop("messages", [{"role": "user", "content": "Hello"}])
    return ask(service, "POST", "/v1/chat/completions", json={"messages": messages, **body})


def complete(service: Service, **body: Any) -> httpx.Response:
    return ask(service, "POST", "/v1/completions", json={"prompt": "ab", **body})


def events(text: str) -> list[Any]:
    """A stream's data, as objects; [DONE] and comments as they are."""
    found: list[Any] = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        kind, _, payload = block.partition(": ")
        found.append(json.loads(payload) if kind == "data" and payload != "[DONE]" else block)
    return found


@contextlib.asynccontextmanager
async def served(service: Service) -> AsyncIterator[int]:
    """The real HTTP server on a loopback port."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        server = make_server(application(service), service.options)
        task = asyncio.create_task(server.serve(sockets=[sock]))
        while not server.started:
            await asyncio.sleep(0.005)
        try:
            yield sock.getsockname()[1]
        finally:
            server.force_exit = server.should_exit = True
            await task


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.005)


def request_bytes(path: str, body: Mapping[str, Any] | None = None, **headers: str) -> bytes:
    """A request as it travels."""
    payload = b"" if body is None else json.dumps(body).encode()
    method = "GET" if body is None else "POST"
    lines = {"host": "127.0.0.1", "content-length": str(len(payload)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + payload
