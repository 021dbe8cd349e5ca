"""The real HTTP front over a service that plays a script, in a thread: commands talk to it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

import uvloop

from tests.server.scripted_service import Service, Step, playing, served


@contextlib.contextmanager
def scripted_front(*steps: Step) -> Iterator[tuple[str, Service]]:
    """Its address, and the service. Every request is answered with these steps."""
    service = Service(script=playing(*steps))
    began, addresses, stops = threading.Event(), [], []

    async def serve() -> None:
        end = asyncio.Event()
        async with served(service) as port:
            addresses.append(f"http://127.0.0.1:{port}")
            loop = asyncio.get_running_loop()
            stops.append(lambda: loop.call_soon_threadsafe(end.set))
            began.set()
            await end.wait()

    thread = threading.Thread(target=lambda: uvloop.run(serve()))
    thread.start()
    assert began.wait(60)
    try:
        yield addresses[0], service
    finally:
        stops[0]()
        thread.join()
