"""`bushel serve`: the front process from its first line to its last."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import threading
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import uvloop

from bushel.core import BushelError
from bushel.core.machine_memory import beside_engine, job_memory, total_memory
from bushel.core.running_servers import announced
from bushel.core.status import EngineStatus
from bushel.server.app import create_app
from bushel.server.event_loop import EventLoop
from bushel.server.http import descriptors
from bushel.server.http.connection import Server, make_server
from bushel.server.http.listener import Listener
from bushel.server.hub.downloaded import serve_downloaded
from bushel.server.models.claims import Claims
from bushel.server.models.lifecycle import MORE, ModelLifecycle
from bushel.server.models.memory_ledger import MemoryLedger
from bushel.server.observability import logs
from bushel.server.observability.metrics import Metrics
from bushel.server.options import ServerOptions
from bushel.server.service.names import Names, names_of
from bushel.server.service.service import Service
from bushel.server.service.services import Services

log = logging.getLogger(__name__)

_BACKLOG = 1024
_PARTING = 1.0  # seconds for last words
_INTERRUPTED = 130  # exit code, as shells have it


def serve(options: ServerOptions) -> int:
    """Returns the exit code; BushelError if it cannot even begin."""
    descriptors.open_standard_streams()
    logs.setup(options)
    names = names_of(options)
    options = _with_memory_shared(options)
    models = len(names) + (MORE if options.downloaded else 0)
    limits, workers = options.limits, options.workers * models + 2 * (models - 1)
    limit = descriptors.raise_limit(limits.connections, workers)
    room = descriptors.plan(limit, limits.connections, workers)
    options = replace(options, limits=replace(limits, connections=room.served))
    with _bound(options.host, options.port) as sock:
        descriptors.reserve.hold()
        return uvloop.run(_serve(options, names, sock, room), loop_factory=EventLoop)


def _with_memory_shared(options: ServerOptions) -> ServerOptions:
    """Between the engine and the workers."""
    job = min(options.media.memory, job_memory(total_memory()))
    return replace(
        options,
        media=msgspec.structs.replace(options.media, memory=job),
        engine=replace(options.engine, beside=beside_engine(options.workers, job)),
    )


def _bound(host: str, port: int) -> socket.socket:
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, place = addresses[0]
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(place)
        sock.listen(_BACKLOG)
    except OSError as error:
        raise BushelError(f"Cannot listen on {host}:{port}: {error.strerror}.") from error
    return sock


def _listener(server: Server, sock: socket.socket, room: descriptors.ConnectionRoom) -> Listener:
    """Makes connections for a server that has no sockets of its own."""
    state = server.server_state

    def connection() -> asyncio.Protocol:
        config, app_state = server.config, server.lifespan.state
        return config.http_protocol_class(config=config, server_state=state, app_state=app_state)  # type: ignore[call-arg]

    return Listener(sock, connection, state.connections, room.served + room.refused)


async def _serve(
    options: ServerOptions,
    names: Sequence[Names],
    sock: socket.socket,
    room: descriptors.ConnectionRoom,
) -> int:
    ledger = MemoryLedger(options.engine.memory_limit, Claims())
    service, services = _services(options, names, ledger)
    app = create_app(services)
    server = make_server(app, options)
    gc.freeze()  # no pause of the event loop is for looking through what stays
    running = asyncio.create_task(service.run())
    sharing = asyncio.create_task(ledger.run())
    serving = asyncio.create_task(server.serve(sockets=[]))
    while not server.started and not serving.done():
        await asyncio.sleep(0)
    port = sock.getsockname()[1]
    greeting = asyncio.create_task(_greet(services, port))
    adding = asyncio.create_task(serve_downloaded(services))
    batches = asyncio.create_task(app.state.batches.run(app, port))
    announcement = None if options.end_with_stdin else announced(options.host, port)
    ending = _Ending(service, options.drain_seconds, batches)
    if options.end_with_stdin:
        _watch_stdin(ending)
    listener = _listener(server, sock, room)
    try:
        await asyncio.wait([running, serving, ending.task], return_when=asyncio.FIRST_COMPLETED)
    finally:
        greeting.cancel()
        adding.cancel()
        batches.cancel()
        if announcement is not None:
            announcement.close()
        listener.close()
        server.should_exit = True
        await _leave(server, serving)
        serving.cancel()
        running.cancel()
        sharing.cancel()
        ending.task.cancel()
        tasks = (serving, running, sharing, greeting, adding, batches, ending.task)
        await asyncio.gather(*tasks, return_exceptions=True)
        ledger.close()
    if service.failed is not None:
        raise BushelError(service.failed)
    for task in (running, serving):  # neither ends by itself unless something is very wrong
        if not task.cancelled() and task.exception() is not None:
            log.error("the server ended by a fault of its own", exc_info=task.exception())
            return 1
    return ending.code


def _services(
    options: ServerOptions, names: Sequence[Names], ledger: MemoryLedger
) -> tuple[Service | ModelLifecycle, Services]:
    """What runs, and what is served by it."""
    if options.models:
        lifecycle = ModelLifecycle(options, names, ledger)
        return lifecycle, Services(*lifecycle.services, loading=lifecycle, aliases=options.aliases)
    [only] = names
    claim = ledger.claim(options.engine, only.main)
    metrics = Metrics(only.main, kv_bits=options.engine.kv_bits)
    service = Service(options, only, metrics, claim)
    return service, Services(service)


async def _leave(server: Server, serving: asyncio.Task[None]) -> None:
    """All that is answered goes out; who has not even sent a whole request is cut off."""
    await asyncio.wait([serving], timeout=_PARTING)
    for connection in list(server.server_state.connections):
        connection.transport.abort()
    await asyncio.wait([serving], timeout=_PARTING)


class _Ending:
    """The first signal drains, the second ends at once. code: the exit code."""

    code = 0

    def __init__(
        self, service: Service | ModelLifecycle, seconds: float, batches: asyncio.Task[None]
    ):
        self._service = service
        self._seconds = seconds
        self._batches = batches  # nobody waits for them: they go on when the server does
        self._asked = asyncio.Event()
        self.task = asyncio.create_task(self._drain())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.signal, number)

    def signal(self, number: int) -> None:
        interrupted = number == signal.SIGINT
        if self._asked.is_set():
            log.warning("ending at once")
            self._service.kill()
            logs.drain()
            os._exit(_INTERRUPTED if interrupted else 1)
        if interrupted and not self._service.ready.is_set():  # there is nothing to end in order
            self.code = _INTERRUPTED
        self._asked.set()

    async def _drain(self) -> None:
        await self._asked.wait()
        log.info(
            "shutting down: what runs has %g s to finish; once more ends it now", self._seconds
        )
        self._batches.cancel()
        await self._service.drain(self._seconds)


def _watch_stdin(ending: _Ending) -> None:
    """Its end is a request to end. A thread waits for it: a file or a terminal may be there, which
    not every event loop can wait for.
    """
    loop = asyncio.get_running_loop()

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 1 << 16):
                pass
        with contextlib.suppress(RuntimeError):  # the loop has ended before
            loop.call_soon_threadsafe(ending.signal, signal.SIGTERM)

    threading.Thread(target=watch, name="stdin", daemon=True).start()


async def _greet(services: Services, port: int) -> None:
    service = services.main
    if services.several:
        service.metrics.loop.start()
        logs.announce(logs.models_banner(service.options, services.names, port=port))
        return
    log.info("%s is being loaded; it answers 503 on /health until then", service.names.main)
    with contextlib.suppress(Exception):
        model_info = await service.pool.known()
        await service.ready.wait()
        service.metrics.loop.start()
        status = service.supervisor.status or EngineStatus()
        options, names = service.options, service.names.all
        logs.announce(logs.banner(options, names, status, context=model_info.context, port=port))
