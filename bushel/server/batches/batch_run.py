"""One batch from its first line to its last.

    validating ──> in_progress ──> finalizing ──> completed, expired or failed
        └> failed       └────────> cancelling ──> cancelled

What is on disk at any moment is enough to go on from there: see `results`. A line is asked again
when the server had no room for it, or lost its engine; any other answer is final.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

import msgspec

from bushel.server.api.errors import InvalidField, error_bytes
from bushel.server.batches.files import BatchFiles
from bushel.server.batches.folder import BatchFolder
from bushel.server.batches.in_flight import InFlight
from bushel.server.batches.input_lines import InputLine, check_lines, read_lines, streams
from bushel.server.batches.limits import BatchLimits
from bushel.server.batches.own_request import OwnAnswer
from bushel.server.batches.records import BatchRecord, BatchStatus, LineError
from bushel.server.batches.results import BatchResults

log = logging.getLogger(__name__)

Ask = Callable[[str, bytes, str], Awaitable[OwnAnswer]]
_AGAIN = frozenset({429, 503})  # there was no room, or nobody to answer
_LOST = "engine_restarted"
_PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # seconds before a line is asked again
_YIELD = 256  # lines that are read before others have their turn


class _ErrorCode(msgspec.Struct, frozen=True):
    code: str | None = None


class _ErrorAnswer(msgspec.Struct):
    error: _ErrorCode = _ErrorCode()


class _NoRoom(Exception):
    """Results cannot be written."""


class BatchRun:
    """Belongs to the event loop. ask: path, body and owner to an answer."""

    def __init__(
        self,
        record: BatchRecord,
        folder: BatchFolder,
        files: BatchFiles,
        limits: BatchLimits,
        ask: Ask,
        in_flight: InFlight,
    ):
        self.record = record
        self._folder = folder
        self._files = files
        self._limits = limits
        self._ask = ask
        self._in_flight = in_flight
        self._stop = asyncio.Event()
        self._begun = False
        self._results: BatchResults | None = None

    def cancel(self) -> None:
        self._enter("cancelling", ending="cancelled")
        self._stop.set()
        if not self._begun:
            self._finalize()

    async def run(self) -> None:
        """To its end. Being cancelled leaves it as it is, to be gone on with."""
        record, self._begun = self.record, True
        if record.status == "validating":
            await self._validate()
        if record.status == "in_progress":
            await self._work()
        if record.status in ("in_progress", "finalizing", "cancelling"):
            self._finalize()
        counts = f"{record.completed} of {record.total} requests, {record.failed} failed"
        log.info("%s is %s: %s", record.id, record.status, counts)

    def _enter(self, status: BatchStatus, *, ending: BatchStatus | None = None) -> None:
        self.record.enter(status)
        self.record.ending = ending or self.record.ending
        self._folder.write("batches", self.record.id, self.record)

    # -- its input ---------------------------------------------------------------------------

    async def _validate(self) -> None:
        record = self.record
        path = self._folder.content(record.input_file_id)
        try:
            total, errors = await asyncio.to_thread(
                check_lines, path, record.endpoint, self._limits
            )
        except OSError:
            total, errors = 0, [LineError("no_input_file", "The input file is not there.")]
        record.total = total
        if record.status != "validating":
            return  # it was cancelled meanwhile
        if errors:
            record.errors = errors
            self._enter("failed")
        else:
            self._enter("in_progress")

    # -- its work ----------------------------------------------------------------------------

    async def _work(self) -> None:
        record = self.record
        paths = [
            self._folder.result(name) for name in (record.output_file_id, record.error_file_id)
        ]
        self._results = results = await asyncio.to_thread(BatchResults, *paths)
        self._count(0)
        work = asyncio.create_task(self._ask_all(results))
        stopped = asyncio.create_task(self._stop.wait())
        left = max(0.0, record.expires_at - time.time())
        try:
            await asyncio.wait([work, stopped], timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                await _ended(work)
                if not self._stop.is_set():
                    await self._expire(results)
            elif (error := work.exception()) is not None:
                if not _is_no_room(error):
                    raise error
                message = "There was no room for more results; delete files and start it again."
                record.errors = [LineError("no_room", message)]
                record.ending = "failed"
        except _NoRoom:
            record.ending = "expired"
        finally:
            stopped.cancel()
            await _ended(work)
            self._files.growing -= results.size
            await asyncio.to_thread(results.close)

    def _count(self, before: int) -> None:
        """Results have grown from so many bytes."""
        assert self._results is not None
        self._files.growing += self._results.size - before
        self.record.completed = len(self._results.output.answered)
        self.record.failed = len(self._results.errors.answered)

    async def _ask_all(self, results: BatchResults) -> None:
        lines = read_lines(self._folder.content(self.record.input_file_id))
        async with asyncio.TaskGroup() as group:
            for number, line in enumerate(lines):
                if number % _YIELD == 0:
                    await asyncio.sleep(0)
                if line.custom_id in results:
                    continue
                await self._in_flight.enter()
                task = group.create_task(self._ask_one(line, results))
                task.add_done_callback(lambda _: self._in_flight.leave())

    async def _ask_one(self, line: InputLine, results: BatchResults) -> None:
        answer = await self._answer(line)
        before = results.size
        if self._files.free < len(answer.body):
            raise _NoRoom
        try:
            results.answer(line.custom_id, *answer)
        except OSError as error:
            log.error("results of %s cannot be written: %s", self.record.id, error)
            raise _NoRoom from None
        self._count(before)

    async def _answer(self, line: InputLine) -> OwnAnswer:
        """The last of as many as it takes."""
        body, record = bytes(line.body), self.record
        if streams(line):
            error = InvalidField("stream", "must be false: a batch is no stream")
            return OwnAnswer(error.status, "", error_bytes(error))
        asked = losses = 0
        while True:
            answer = await self._ask(record.endpoint, body, record.owner)
            if answer.status not in _AGAIN:
                return answer
            losses += _code(answer) == _LOST
            if losses >= self._limits.losses:
                return answer
            await asyncio.sleep(_PAUSES[min(asked, len(_PAUSES) - 1)])
            asked += 1

    async def _expire(self, results: BatchResults) -> None:
        """Of what was not answered in time, say so."""
        self.record.ending = "expired"
        message = "This request could not be executed before the completion window expired."
        for number, line in enumerate(read_lines(self._folder.content(self.record.input_file_id))):
            if number % _YIELD == 0:
                await asyncio.sleep(0)
            if line.custom_id not in results:
                before = results.size
                try:
                    results.give_up(line.custom_id, "batch_expired", message)
                except OSError:
                    raise _NoRoom from None
                self._count(before)

    # -- its end -----------------------------------------------------------------------------

    def _finalize(self) -> None:
        """Its results become files. What of that was done before is not done again."""
        record = self.record
        if record.status == "in_progress":
            self._enter("finalizing")
        for file_id, sort in ((record.output_file_id, "output"), (record.error_file_id, "error")):
            name = f"{record.id}_{sort}.jsonl"
            self._files.adopt(file_id, record.owner, name, record.output_seconds)
        self._enter(record.ending)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _is_no_room(error: BaseException) -> bool:
    return isinstance(error, ExceptionGroup) and error.subgroup(_NoRoom) is not None


def _code(answer: OwnAnswer) -> str | None:
    try:
        return msgspec.json.decode(answer.body, type=_ErrorAnswer).error.code
    except msgspec.DecodeError:
        return None
