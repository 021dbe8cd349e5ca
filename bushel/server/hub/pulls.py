"""Downloads that operators asked for: those that wait, those that run, and how the last ones ended.

    waiting ──> running ──> done
       └───────────┴─────> failed, cancelled

Everything here belongs to the event loop. A pull is a task; when the loop ends it is cancelled, and
its process is killed with it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from bushel.core.hub_errors import HubError
from bushel.core.load_progress import size_words
from bushel.server.errors import ApiError
from bushel.server.hub.jobs import run_job
from bushel.server.hub.messages import PullModel, PullProgress, RemoveModel

log = logging.getLogger(__name__)

PullState = Literal["waiting", "running", "done", "failed", "cancelled"]
AT_ONCE = 2  # that run; more only share one line
MOST = 16  # that wait or run
_REMEMBERED = 32  # that have ended


@dataclass(eq=False)
class Pull:
    """code, reason: why it failed."""

    model: str
    state: PullState = "waiting"
    progress: PullProgress = field(default_factory=lambda: PullProgress(0, 0, 0, 0))
    code: str | None = None
    reason: str | None = None
    began: float = field(default_factory=time.time)
    ended: float | None = None
    task: asyncio.Task[None] | None = None

    @property
    def lasts(self) -> bool:
        return self.ended is None


class Pulls:
    """The last pull of each model. on_done: gets its id when it has come, on_removed: when it has
    gone.
    """

    def __init__(
        self,
        on_done: Callable[[str], None] = lambda _: None,
        on_removed: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._on_done, self._on_removed = on_done, on_removed
        self.changes = 0  # how often a model has come or gone
        self._pulls: dict[str, Pull] = {}  # by model, in the order in which they were asked for
        self._removing: dict[str, asyncio.Task[int]] = {}
        self._running = asyncio.Semaphore(AT_ONCE)

    @property
    def all(self) -> list[Pull]:
        return list(self._pulls.values())

    def of(self, model: str) -> Pull | None:
        return self._pulls.get(model)

    def start(self, model: str) -> Pull:
        """One that lasts goes on; any other begins anew, with what is here of it. ApiError if there
        are too many, or it is being removed.
        """
        known = self.of(model)
        if known is not None and known.lasts:
            return known
        if model in self._removing:
            raise ApiError(
                409, f"{model} is being removed.", code="model_busy", param="model", retry_after=2
            )
        if sum(pull.lasts for pull in self._pulls.values()) >= MOST:
            raise ApiError(
                429, f"{MOST} downloads wait already.", code="queue_full", retry_after=30
            )
        self._pulls.pop(model, None)
        pull = self._pulls[model] = Pull(model)
        log.info("%s is to be downloaded: an operator asked for it", model)
        pull.task = asyncio.create_task(self._run(pull))
        self._forget()
        return pull

    async def cancel(self, pull: Pull) -> None:
        """When this returns it has ended; one that had ended is forgotten."""
        if pull.task is None or not pull.lasts:
            self._pulls.pop(pull.model, None)
            return
        pull.task.cancel()
        await asyncio.wait([pull.task])

    async def remove(self, model: str, loaded: tuple[str, ...]) -> int:
        """Bytes that are free again. ApiError while it is pulled; HubError as `hub.remove`."""
        pull = self.of(model)
        if model in self._removing or (pull is not None and pull.lasts):
            raise ApiError(
                409, f"{model} is being downloaded or removed.", code="model_busy", param="model"
            )
        self._removing[model] = task = asyncio.create_task(self._remove(model, loaded))
        # What has begun comes to its end, also when whoever asked has gone.
        return await asyncio.shield(task)

    async def _remove(self, model: str, loaded: tuple[str, ...]) -> int:
        try:
            result = await run_job(RemoveModel(model, loaded))
        except HubError as error:
            log.warning("%s was not removed: %s", model, error)
            raise
        finally:
            del self._removing[model]
        self._pulls.pop(model, None)
        self.changes += 1
        self._on_removed(model)
        freed = int(result["freed_bytes"])
        log.info("%s was removed from the disk: %s are free again", model, size_words(freed))
        return freed

    async def _run(self, pull: Pull) -> None:
        def heard(progress: PullProgress) -> None:
            pull.progress = progress

        try:
            async with self._running:
                pull.state = "running"
                result = await run_job(PullModel(pull.model), heard)
            seconds, size = time.time() - pull.began, int(result["size_bytes"])
            log.info("%s is here: %s in %.0f s", pull.model, size_words(size), seconds)
            here = pull.progress
            pull.progress = PullProgress(
                here.bytes_total, here.bytes_total, here.files_total, here.files_total
            )
            pull.state = "done"
            self.changes += 1
            self._on_done(pull.model)
        except HubError as error:
            log.warning("%s was not downloaded: %s", pull.model, error)
            pull.state, pull.code, pull.reason = "failed", error.code, str(error)
        except asyncio.CancelledError:
            log.info("the download of %s was cancelled", pull.model)
            pull.state = "cancelled"
        except Exception:
            log.exception("the download of %s failed", pull.model)
            pull.state, pull.code = "failed", "failed"
            pull.reason = "It failed unexpectedly; the server's log says why."
        finally:
            pull.ended = time.time()

    def _forget(self) -> None:
        ended = [pull for pull in self._pulls.values() if not pull.lasts]
        for pull in ended[:-_REMEMBERED]:
            del self._pulls[pull.model]
