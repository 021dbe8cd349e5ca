"""Runs a job on the hub's cache in a child process, and waits for what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from bushel.core.hub_errors import HubError
from bushel.core.wire import Failed, LogLine
from bushel.server.hub.messages import FromHub, HubJob, HubRefusal, HubResult, PullProgress
from bushel.server.observability import logs
from bushel.server.processes.child import Child, cannot_spawn

_LABEL = "hub"


async def run_job(
    job: HubJob, heard: Callable[[PullProgress], None] = lambda _: None
) -> dict[str, Any]:
    """The job's result; HubError if there is none. Whoever is cancelled here has no process left
    behind: the child is killed, and files that a download completed stay.
    """
    done: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def hear(message: FromHub, _: memoryview) -> None:
        if isinstance(message, LogLine):
            logs.relay(_LABEL, message.level, message.text)
        elif isinstance(message, PullProgress):
            heard(message)
        elif done.done():
            return
        elif isinstance(message, HubResult):
            done.set_result(message.result)
        elif isinstance(message, HubRefusal):
            done.set_exception(HubError(message.code, message.message))
        elif isinstance(message, Failed):
            done.set_exception(HubError("failed", message.reason))

    try:
        child: Child[FromHub] = await Child.spawn(
            "bushel.server.hub.process", FromHub, hear, label=_LABEL
        )
    except OSError as error:
        raise HubError("failed", f"A process for it {cannot_spawn(error)}.") from error
    try:
        child.send(job)
        both: list[asyncio.Future[Any]] = [done, child.ended]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await child.close()
    if not done.done():
        raise HubError("failed", "The process that worked on it was lost. Ask for it again.")
    return done.result()
