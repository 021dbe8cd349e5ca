"""All batches of a server: kept in its folder, and run beside whatever else it does.

Owners run side by side, and of an owner's batches one after the other. After a restart each goes on
where it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.types import ASGIApp

from bushel.core import BushelError
from bushel.core.held_files import held_folder
from bushel.server.batches.batch_run import BatchRun
from bushel.server.batches.files import BatchFiles
from bushel.server.batches.folder import BatchFolder, FolderInUse
from bushel.server.batches.in_flight import InFlight
from bushel.server.batches.limits import BatchLimits
from bushel.server.batches.own_request import ask_self
from bushel.server.batches.records import BatchRecord, new_id
from bushel.server.callers import Caller
from bushel.server.errors import ApiError

if TYPE_CHECKING:
    from bushel.server.service.services import Services

log = logging.getLogger(__name__)

_TRY_AGAIN = 2.0  # seconds between two looks whether the folder is free
# Of the queue's places, what batches may take: a row each, and not nearly all.
_QUEUE_SHARE = 4
_FOLDER = "batches"


class Batches:
    """Belongs to the event loop. Nothing can be asked of it before `run`, or once that ended."""

    def __init__(self, services: Services):
        options = services.options
        self._services = services
        self._options = options
        self.limits = BatchLimits(room=options.batch_disk)
        most = min(options.engine.max_batch, max(1, options.limits.queue // _QUEUE_SHARE))
        self._in_flight = InFlight(most, self._live)
        self._why = "the server is starting"
        self._files: BatchFiles | None = None
        self._folder: BatchFolder | None = None
        self._records: dict[str, BatchRecord] = {}
        self._runs: dict[str, BatchRun] = {}  # those that run or will, in order of arrival
        self._runners: dict[str, asyncio.Task[None]] = {}  # by owner
        self._app: ASGIApp | None = None

    def _live(self) -> int:
        return sum(service.live for service in self._services.all)

    # -- from start to end -------------------------------------------------------------------

    async def run(self, app: ASGIApp, port: int) -> None:
        """Until cancelled. app: that answers the requests of batches."""
        if not self._options.batches:
            self._why = "the server was started with --no-batches"
            return
        self._app = app
        try:
            await self._open(port)
            await asyncio.get_running_loop().create_future()
        except (OSError, BushelError) as error:
            self._why = f"their folder cannot be used: {error}"
            log.warning("files and batches are not available: %s", error)
        finally:
            await self.close()

    async def close(self) -> None:
        """What runs is left as it is."""
        tasks = [*self._runners.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._runners.clear()
        if self._folder is not None:
            self._folder.close()
            self._folder = self._files = None
            self._why = "the server is shutting down"

    async def _open(self, port: int) -> None:
        given = self._options.batch_dir
        # Of servers on one machine each has its own, and finds it again.
        path = Path(given) if given else held_folder(_FOLDER) / str(port)
        told = False
        while self._folder is None:
            try:
                self._folder = BatchFolder(path)
            except FolderInUse as error:
                self._why = str(error)
                if not told:
                    log.warning("files and batches are not available: %s", error)
                told = True
                await asyncio.sleep(_TRY_AGAIN)
        folder = self._folder
        shared = len(self._options.keys) > 1
        self._files = BatchFiles(folder, self.limits, shared=shared)
        records = sorted(folder.records(_FOLDER, BatchRecord), key=_age)
        self._records = {record.id: record for record in records}
        open_batches = [record for record in records if not record.ended]
        outputs = {name for one in open_batches for name in (one.output_file_id, one.error_file_id)}
        folder.discard_strangers(self._files.ids | outputs)
        for record in open_batches:
            log.info("%s goes on", record.id)
            self._start(record)

    # -- what clients ask for ----------------------------------------------------------------

    @property
    def files(self) -> BatchFiles:
        """ApiError if there are none."""
        if self._files is None:
            message = f"Files and batches are not available: {self._why}."
            raise ApiError(503, message, code="batches_unavailable", retry_after=2)
        return self._files

    def of(self, owner: str) -> Sequence[BatchRecord]:
        """Of one key, the newest first."""
        self._need_folder()
        mine = [record for record in self._records.values() if record.owner == owner]
        return sorted(mine, key=_age, reverse=True)

    def find(self, caller: Caller, batch_id: str) -> BatchRecord:
        """ApiError if there is none, or it is somebody else's."""
        self._need_folder()
        record = self._records.get(batch_id)
        if record is None or not caller.sees(record.owner):
            raise ApiError(404, f"No batch has the id {batch_id[:80]}.", code="not_found")
        return record

    def create(
        self,
        owner: str,
        *,
        endpoint: str,
        input_file_id: str,
        window: str,
        seconds: int,
        metadata: dict[str, str] | None,
        output_seconds: int | None,
    ) -> BatchRecord:
        """window: how long it may take, in words and in seconds."""
        folder = self._need_folder()
        waiting = sum(not record.ended for record in self.of(owner))
        if waiting >= self.limits.waiting:
            raise ApiError(
                429,
                f"{waiting} batches have not ended yet.",
                code="too_many_batches",
                retry_after=60,
            )
        self._forget_some()
        now = int(time.time())
        record = BatchRecord(
            id=new_id("batch_"),
            owner=owner,
            endpoint=endpoint,
            input_file_id=input_file_id,
            completion_window=window,
            created_at=now,
            expires_at=now + seconds,
            output_file_id=self.files.new_output_id(),
            error_file_id=self.files.new_output_id(),
            metadata=metadata,
            output_seconds=output_seconds,
        )
        folder.write(_FOLDER, record.id, record)
        self._records[record.id] = record
        self._start(record)
        return record

    def cancel(self, record: BatchRecord) -> None:
        if record.ended:
            raise ApiError(
                409, f"The batch has ended: it is {record.status}.", code="batch_has_ended"
            )
        if record.status in ("validating", "in_progress"):
            self._runs[record.id].cancel()

    def uses(self, file_id: str) -> bool:
        """Whether a batch that has not ended reads it."""
        open_batches = (record for record in self._records.values() if not record.ended)
        return any(record.input_file_id == file_id for record in open_batches)

    def _need_folder(self) -> BatchFolder:
        _ = self.files
        assert self._folder is not None
        return self._folder

    def _forget_some(self) -> None:
        """Those that ended longest ago."""
        ended = sorted((one for one in self._records.values() if one.ended), key=_age)
        for record in ended[: max(0, len(self._records) - self.limits.batches + 1)]:
            self._need_folder().remove(_FOLDER, record.id)
            del self._records[record.id]

    # -- running -----------------------------------------------------------------------------

    def _start(self, record: BatchRecord) -> None:
        assert self._app is not None
        folder, ask = self._need_folder(), partial(ask_self, self._app)
        run = BatchRun(record, folder, self.files, self.limits, ask, self._in_flight)
        self._runs[record.id] = run
        if record.owner not in self._runners:
            self._runners[record.owner] = asyncio.create_task(self._run_all(record.owner))

    async def _run_all(self, owner: str) -> None:
        """Of one owner, while there are any."""
        while run := next((one for one in self._runs.values() if one.record.owner == owner), None):
            try:
                await run.run()
            except Exception:
                log.exception("%s cannot go on before the server restarts", run.record.id)
            with contextlib.suppress(KeyError):
                del self._runs[run.record.id]
        del self._runners[owner]


def _age(record: BatchRecord) -> tuple[int, str]:
    return record.created_at, record.id
