"""`bushel serve`: the front process from its first line to its last."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket

import uvloop

from bushel.core import BushelError
from bushel.server import logs
from bushel.server.app import create_app
from bushel.server.http import make_server
from bushel.server.metrics import Metrics
from bushel.server.names import Names
from bushel.server.options import ServerOptions
from bushel.server.service import Service

log = logging.getLogger(__name__)

_BACKLOG = 1024


def serve(options: ServerOptions) -> int:
    """Returns the exit code; BushelError if it cannot even begin."""
    logs.setup(options)
    names = Names.of(options.engine.model, options.served_names, options.aliases)
    with _bound(options.host, options.port) as sock:
        return uvloop.run(_serve(options, names, sock))


def _bound(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, place = found[0]
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(place)
        sock.listen(_BACKLOG)
    except OSError as error:
        raise BushelError(f"Cannot listen on {host}:{port}: {error.strerror}.") from error
    return sock


async def _serve(options: ServerOptions, names: Names, sock: socket.socket) -> int:
    service = Service(options, names, Metrics(names.main))
    server = make_server(create_app(service), options)
    running = asyncio.create_task(service.run())
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    greeting = asyncio.create_task(_greet(service, sock.getsockname()[1]))
    ending = _Ending(service, options.drain_seconds)
    try:
        await asyncio.wait([running, serving, ending.task], return_when=asyncio.FIRST_COMPLETED)
    finally:
        greeting.cancel()
        server.should_exit = True
        await asyncio.wait([serving], timeout=1.0)
        serving.cancel()
        running.cancel()
        ending.task.cancel()
        await asyncio.gather(serving, running, greeting, ending.task, return_exceptions=True)
    if service.failed is not None:
        raise BushelError(service.failed)
    for task in (running, serving):  # neither ends by itself unless something is very wrong
        if not task.cancelled() and task.exception() is not None:
            log.error("the server ended by a fault of its own", exc_info=task.exception())
            return 1
    return 0


class _Ending:
    """The first signal drains, the second ends at once."""

    def __init__(self, service: Service, seconds: float):
        self._service = service
        self._seconds = seconds
        self._asked = asyncio.Event()
        self.task = asyncio.create_task(self._drain())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signal)

    def _signal(self) -> None:
        if self._asked.is_set():
            log.warning("ending at once")
            self._service.kill()
            logs.drain()
            os._exit(1)
        self._asked.set()

    async def _drain(self) -> None:
        await self._asked.wait()
        log.info(
            "shutting down: what runs has %g s to finish; once more ends it now", self._seconds
        )
        await self._service.drain(self._seconds)


async def _greet(service: Service, port: int) -> None:
    log.info("%s is being loaded; it answers 503 on /health until then", service.names.main)
    with contextlib.suppress(Exception):
        facts = await service.pool.facts
        await service.ready.wait()
        service.metrics.loop.start()
        status = service.supervisor.status
        options, names = service.options, service.names.all
        logs.announce(logs.banner(options, names, status, context=facts.context, port=port))
