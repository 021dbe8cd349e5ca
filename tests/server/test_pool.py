"""Which worker gets which job, and when; the workers are scripts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from bushel.core.options import ModelInfo
from bushel.core.wire import Check, DecodedText, Encode, Failed, MediaRules, Open, Opened
from bushel.server.errors import ApiError
from bushel.server.processes import pool as pool_module
from bushel.server.processes.pool import Pool

PATIENCE = 20.0  # seconds until a test that hangs is ended
CHECK = Check("1", 'start: "a"')


class Worker:
    """Opens at once, and answers when it is told to. `rate`: how much of the processor it has
    used more whenever its clock is read, in seconds."""

    rate = 0.0

    def __init__(self, hear: Callable[[Any, memoryview], None]):
        self._hear = hear
        self.pid = 0
        self.frozen = 0.0
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.got: list[Any] = []
        self.readings = 0

    def send(self, message: Any) -> None:
        if isinstance(message, Open):
            self.say(Opened(ModelInfo("m", "", 10, None, frozenset())))
        else:
            self.got.append(message)

    def say(self, message: Any) -> None:
        self._hear(message, memoryview(b""))

    def kill(self) -> None:
        if not self.ended.done():
            self.ended.set_result(-9)

    async def close(self) -> None:
        await self.ended

    async def processor_seconds(self) -> float:
        self.readings += 1
        return self.rate * self.readings


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[Worker]:
    """Those that were started."""
    started: list[Worker] = []

    async def spawn(module: str, messages: Any, hear: Any, label: str) -> Worker:
        started.append(Worker(hear))
        return started[-1]

    monkeypatch.setattr(pool_module.Child, "spawn", spawn)
    monkeypatch.setattr(pool_module, "CHECK_SECONDS", 0.02)
    return started


@contextlib.asynccontextmanager
async def running(size: int = 1, *, gate: bool = True) -> AsyncIterator[Pool]:
    opened = asyncio.Event()
    if gate:
        opened.set()
    pool = Pool(Open("m", False, MediaRules()), size, 60.0, opened)
    task = asyncio.create_task(pool.run())
    await pool.known()
    try:
        yield pool
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.001)


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, PATIENCE))


# -- too long ----------------------------------------------------------------------------------


def test_a_worker_that_got_no_processor_time_is_waited_for(workers: list[Worker]) -> None:
    """B48: stopped for a moment, or on a busy machine; neither is the job's fault."""

    async def work() -> None:
        async with running() as pool:
            asked = asyncio.create_task(pool.ask(CHECK))
            await until(lambda: asked.done() or workers[0].readings > 3)
            assert not asked.done()
            workers[0].say(DecodedText("1", ""))
            assert isinstance((await asked)[0], DecodedText)
            assert not workers[0].ended.done()

    run(work())


def test_a_worker_that_computes_for_too_long_is_killed_and_its_job_refused(
    workers: list[Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control."""
    monkeypatch.setattr(Worker, "rate", 0.01)

    async def work() -> None:
        async with running() as pool:
            with pytest.raises(ApiError) as refused:
                await pool.ask(CHECK)
            assert refused.value.code == "invalid_grammar"
            await until(lambda: len(workers) == 2)
            assert [worker.got for worker in workers] == [[CHECK], []]

    run(work())


def test_a_job_whose_worker_does_not_get_on_is_tried_elsewhere_once(
    workers: list[Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "_STARVED", 0.0)

    async def work() -> None:
        async with running() as pool:
            with pytest.raises(ApiError) as failed:
                await pool.ask(CHECK)
            assert failed.value.status == 503
            assert [worker.got for worker in workers[:2]] == [[CHECK], [CHECK]]

    run(work())


# -- turns -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "order"),
    [
        (["a0 a -", "a1 a -", "a2 a -", "b0 b -", "b1 b -"], "a0 b0 a1 b1 a2"),
        (["p0 - p", "p1 - p", "p2 - p", "q0 - q"], "p0 q0 p1 p2"),
        (["p0 a p", "p1 a p", "q0 a q", "b0 b -", "b1 b -"], "p0 b0 q0 b1 p1"),
    ],
    ids=["keys", "requests of one key", "both"],
)
def test_keys_take_turns_and_so_do_requests_of_one_key(
    workers: list[Worker], asked: list[str], order: str
) -> None:
    """B67: neither a key with many requests nor a request with many prompts delays another."""

    async def work() -> None:
        async with running(gate=False) as pool:
            jobs = [tuple(it.split()) for it in asked]
            tasks = [
                asyncio.create_task(pool.ask(Encode(name, ""), owner, group))
                for name, owner, group in jobs
            ]
            await asyncio.sleep(0)
            pool._gate.set()
            [worker] = workers
            for count in range(1, len(jobs) + 1):
                await until(lambda count=count: len(worker.got) == count)
                worker.say(DecodedText("", ""))
            await asyncio.gather(*tasks)
            assert " ".join(it.id for it in worker.got) == order

    run(work())


# -- the end of a drain ------------------------------------------------------------------------

GONE = ApiError(503, "The server is shutting down.", code="shutting_down")


def test_who_waits_for_memory_is_told_that_the_server_ends(workers: list[Worker]) -> None:
    """A job that a worker was to get as soon as the gate opens, and then does not."""

    async def work() -> None:
        async with running(gate=False) as pool:
            asked = asyncio.create_task(pool.ask(CHECK))
            for _ in range(20):  # a worker has taken it out of the queue
                await asyncio.sleep(0)
            pool.give_up(GONE)
            done, _ = await asyncio.wait([asked], timeout=1.0)
            assert [it.exception() for it in done] == [GONE]
            later = asyncio.create_task(pool.ask(Encode("2", "")))
            pool._gate.set()
            await until(lambda: bool(workers[0].got))
            assert [it.id for it in workers[0].got] == ["2"]
            later.cancel()

    run(work())


def test_a_checkpoint_that_fails_to_open_after_the_end_of_a_drain_is_no_fault_of_the_front(
    workers: list[Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Worker, "send", lambda *_: None)

    async def work() -> None:
        pool = Pool(Open("m", False, MediaRules()), 1, 60.0, asyncio.Event())
        task = asyncio.create_task(pool.run())
        await until(lambda: bool(workers))
        pool.give_up(GONE)
        workers[0].say(Failed("no such file"))
        await task
        assert pool.failed == "no such file"

    run(work())
