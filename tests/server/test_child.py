"""When a child is thought to be stopped, and when it only has much to do."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from errno import EAGAIN
from pathlib import Path
from types import SimpleNamespace

import pytest
import uvloop

from bushel.core.wire import Encode, FromWorker, Made, MediaRules, Open
from bushel.server.errors import ApiError
from bushel.server.observability import log_queue
from bushel.server.processes import child as child_module
from bushel.server.processes.backoff import Backoff, Outage, worst
from bushel.server.processes.child import Child, cannot_spawn
from bushel.server.processes.pool import Pool

LONG = 3.0  # seconds


async def lived(module: str, work: Callable[[Child[FromWorker]], Awaitable[None]]) -> None:
    child: Child[FromWorker] = await Child.spawn(module, FromWorker, lambda *_: None)
    try:
        await work(child)
    finally:
        child.kill()
        await child.close()


async def most_frozen(child: Child[FromWorker], enough: float = LONG) -> float:
    """The longest that it was thought to be, until it is enough or some time has passed."""
    end, most = time.monotonic() + 2 * LONG, 0.0
    while time.monotonic() < end and most < enough:
        await asyncio.sleep(0.2)
        most = max(most, child.frozen)
    return most


@pytest.mark.long
def test_a_busy_child_is_not_frozen_and_a_stopped_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that computes without a word, holding the interpreter's lock; then the same, stopped,
    and the front busy meanwhile, which proves nothing."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(child_module, "_LOOK", 0.5)
    monkeypatch.setattr(child_module, "_QUIET", 1.0)
    silent = "import re; re.match('(a*)*$', 'a' * 64 + 'b')"  # C code that does not let go
    (tmp_path / "silent.py").write_text(silent)

    async def work(child: Child[FromWorker]) -> None:
        assert await most_frozen(child) < LONG / 2
        os.kill(child.pid, signal.SIGSTOP)
        time.sleep(LONG)  # the front itself does not run
        assert child.frozen < LONG / 2
        assert await most_frozen(child, LONG / 2) >= LONG / 2

    asyncio.run(lived("silent", work))


class NoThread(threading.Thread):
    def start(self) -> None:
        raise RuntimeError("can't start new thread")


def test_a_child_whose_thread_cannot_be_started_counts_as_one_that_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not an OSError would end the front; and nothing is left of it."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "quiet.py").write_text("import time; time.sleep(60)")
    monkeypatch.setattr(log_queue, "threading", SimpleNamespace(Thread=NoThread))

    def descriptors() -> int:
        return len(os.listdir("/dev/fd"))

    async def work() -> None:
        before = descriptors()
        for _ in range(3):
            with pytest.raises(BlockingIOError) as error:
                await Child.spawn("quiet", FromWorker, lambda *_: None)
            assert cannot_spawn(error.value) == f"could not be started ({os.strerror(EAGAIN)})"
        while descriptors() > before:  # those of the killed ones go when they are gone
            await asyncio.sleep(0.01)

    uvloop.run(asyncio.wait_for(work(), 20.0))


def test_a_child_is_watched_though_a_thread_could_not_be_started_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = 0

    async def to_thread(*_: object) -> float:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise RuntimeError("can't start new thread")
        return 1.0

    monkeypatch.setattr(child_module.asyncio, "to_thread", to_thread)
    monkeypatch.setattr(child_module, "_LOOK", 0.0)
    monkeypatch.setattr(child_module, "_QUIET", -1.0)  # its clock is read every time

    async def work() -> None:
        child: Child[FromWorker] = Child(FromWorker, lambda *_: None)
        watching = asyncio.create_task(child._watch(0))
        while not watching.done() and not child.frozen:
            await asyncio.sleep(0)
        assert not watching.done()
        watching.cancel()

    asyncio.run(asyncio.wait_for(work(), 20.0))


@pytest.mark.long
def test_more_memory_than_a_worker_may_use_is_refused_and_the_next_one_served(
    far_model: Path,
) -> None:
    """A text that takes too much memory is a 400 of its own. B48."""

    async def work() -> None:
        gate = asyncio.Event()
        gate.set()
        pool = Pool(Open(str(far_model), False, MediaRules(memory=16 << 20)), 1, 60.0, gate)
        running = asyncio.create_task(pool.run())
        with pytest.raises(ApiError) as refused:
            await pool.ask(Encode("1", "Tell me more. " * 400_000))
        assert (refused.value.status, refused.value.code) == (400, "preparation_failed")
        made, _ = await pool.ask(Encode("2", "Hello"))
        assert isinstance(made, Made)
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(work())


# -- back-off ----------------------------------------------------------------------------------


def test_deaths_in_a_row_are_waited_for_longer_and_forgiven_after_a_healthy_minute() -> None:
    now = 0.0
    backoff = Backoff(lambda: now)
    waits = []
    for _ in range(8):
        backoff.up()
        now += 59
        waits.append(backoff.died())
    assert waits == [0, 1, 2, 4, 8, 16, 30, 30]
    backoff.up()
    assert backoff.died(blameless=True) == 0
    backoff.up()
    now += 61
    assert backoff.died() == 0


def test_nobody_waits_for_what_never_comes_up_until_it_does() -> None:
    backoff = Backoff()
    assert [(backoff.died(), backoff.hopeless)[1] for _ in range(3)] == [False, False, True]
    backoff.up()
    assert not backoff.hopeless


def test_of_several_outages_the_hopeless_one_is_told() -> None:
    mild, bad = Outage("a"), Outage("b", hopeless=True)
    assert worst(None, None) is None
    assert worst(mild, None, bad) is bad
    assert worst(None, mild) is mild
