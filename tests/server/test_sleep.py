"""A machine that slept is no reason to end anything, however its clocks jump apart (B52)."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
import uvloop

from bushel.core import BushelError
from bushel.core.awake_clock import AwakeClock, awake
from bushel.core.options import EngineOptions
from bushel.core.status import EngineStatus
from bushel.core.wire import Beat, Ready, Start
from bushel.engine import process
from bushel.engine.plan import Work
from bushel.engine.step_costs import Stopwatch
from bushel.server.event_loop import EventLoop
from bushel.server.processes.supervisor import Supervisor
from tests.server.server_process import FEW, PATIENCE, Server, children, serving, until
from tests.server.test_supervisor import Nobody

SHORT = 0.05  # seconds
HOURS = 8 * 3600.0


class Mac:
    """Python's clock of a Mac, which is ours to move. libuv's runs on by itself."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.awake = AwakeClock(lambda: self.now)

    def run(self, seconds: float) -> None:
        """Somebody looks at the clock often."""
        while seconds > 0:
            self.now += min(0.5, seconds)
            self.awake()
            seconds -= 0.5

    def loop(self) -> EventLoop:
        return EventLoop(self.awake)


def close_lid(mac: Mac) -> None:
    """libuv's clock runs on, Python's stands still."""
    time.sleep(4 * SHORT)


def stop_process(mac: Mac) -> None:
    """Both run on."""
    time.sleep(4 * SHORT)
    mac.now += HOURS


async def turns(count: int = 20) -> None:
    """The loop comes round a few times, and looks at its timers."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("sleep", [close_lid, stop_process])
def test_no_timer_goes_off_because_the_machine_slept(sleep: Callable[[Mac], None]) -> None:
    mac = Mac()

    async def work() -> None:
        gone_off: list[str] = []
        loop = asyncio.get_running_loop()

        async def limited() -> None:
            try:
                async with asyncio.timeout(SHORT):
                    await asyncio.Event().wait()
            except TimeoutError:
                gone_off.append("timeout")

        async def sleeping() -> None:
            await asyncio.sleep(SHORT)
            gone_off.append("sleep")

        tasks = [asyncio.create_task(limited()), asyncio.create_task(sleeping())]
        await turns()
        loop.call_later(SHORT, gone_off.append, "later")
        loop.call_later(SHORT, gone_off.append, "cancelled").cancel()
        late_cancelled = loop.call_at(loop.time() + SHORT, gone_off.append, "cancelled later")
        sleep(mac)
        await turns()
        assert gone_off == []
        late_cancelled.cancel()  # it has been set again by now
        mac.run(SHORT)
        while len(gone_off) < 3:
            time.sleep(SHORT / 10)
            await turns()
        assert sorted(gone_off) == ["later", "sleep", "timeout"]
        await asyncio.gather(*tasks)

    uvloop.run(work(), loop_factory=mac.loop)


def test_control_timers_of_uvloop_itself_go_off_at_wake() -> None:
    async def work() -> None:
        gone_off: list[str] = []
        asyncio.get_running_loop().call_later(SHORT, gone_off.append, "later")
        close_lid(Mac())
        await turns()
        assert gone_off == ["later"]

    uvloop.run(work())


def test_what_a_timer_raises_and_its_context_are_as_ever() -> None:
    async def work() -> None:
        told: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context))
        loop.call_later(0, lambda: 1 / 0)
        loop.call_later(-1, told.append, {"exception": None})
        while len(told) < 2:
            await asyncio.sleep(0.01)
        assert {type(context["exception"]) for context in told} == {ZeroDivisionError, type(None)}

    uvloop.run(work(), loop_factory=EventLoop)


def test_an_engine_is_not_thought_silent_at_wake_and_is_when_it_stays_so() -> None:
    """/health asks before anything else could have been noticed. B52."""
    mac = Mac()

    async def work() -> Supervisor:
        return Supervisor(EngineOptions("m"), Nobody(), 30.0, mac.awake)

    supervisor = asyncio.run(work())
    for message in (Ready({}), Beat(1, 0.0, 0.1, {})):
        supervisor._hear(message, memoryview(b""))
    mac.run(3)
    mac.now += HOURS
    assert supervisor.outage is None
    assert supervisor._hang() is None
    mac.run(31)
    assert supervisor.outage is not None
    assert supervisor._hang() is not None


class Enough(Exception):
    """A thread without end has done what a test wants of it."""


def busy_at_wake(clock: Callable[[], float], mac: Mac, monkeypatch: pytest.MonkeyPatch) -> float:
    """Seconds that an engine's step seems to have taken; the machine slept through most of it."""
    said: list[Any] = []

    def enough(_: float) -> None:
        raise Enough

    monkeypatch.setattr(process, "awake", clock)
    monkeypatch.setattr(process.time, "sleep", enough)
    engine: Any = SimpleNamespace(status=EngineStatus, work=Work(0.1, True, 1))
    beating = process.Process(
        engine, cast(Any, SimpleNamespace(send=said.append)), EngineOptions("m")
    )
    beating._since = clock()
    mac.run(3)
    mac.now += HOURS
    with pytest.raises(Enough):
        beating._beat()
    return float(said[-1].busy)


def test_a_step_that_the_machine_slept_through_is_not_a_long_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mac = Mac()
    assert busy_at_wake(mac.awake, mac, monkeypatch) == 3
    assert busy_at_wake(lambda: mac.now, mac, monkeypatch) == 3 + HOURS  # the control: a hang


def test_what_a_step_costs_is_told_by_the_same_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """One step of eight hours would keep prompts to the smallest pieces for dozens of steps."""
    given: list[Any] = []

    def build(*args: Any) -> None:
        given.extend(args)
        raise BushelError("That is enough.")

    link = SimpleNamespace(wait=lambda: (Start(EngineOptions("m")), None), send=lambda _: None)
    monkeypatch.setattr(process, "Link", lambda *_: link)
    monkeypatch.setattr(process, "build", build)
    monkeypatch.setattr(process.signal, "signal", lambda *_: None)
    assert process.main(0) == 2
    assert given[2] is awake
    mac, watch = Mac(), Stopwatch(behind=False)
    began = mac.awake()
    mac.run(0.5)
    mac.now += HOURS
    watch.step(began, mac.awake(), mac.awake(), rows=1)
    assert watch.costs(1).decode_step == 0.5


# -- for real ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(*FEW, "--hang-seconds", "2") as server:
        yield server


@pytest.mark.long
def test_a_server_that_slept_goes_on_as_if_it_had_not(server: Server) -> None:
    """All of its processes are stopped for longer than an engine may hang and the request may take,
    which is what sleep looks like to them."""
    before = server.status()
    pids = [server.process.pid, *children(server.process.pid)]
    body = {"prompt": "a", "max_tokens": 50_000, "ignore_eos": True, "stream": True, "timeout": 6}

    def made() -> int:
        return sum(int(request["completion_tokens"]) for request in server.status()["requests"])

    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=PATIENCE) as reply:
        lines = reply.iter_lines()
        assert next(lines).startswith("data: ")
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(7)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        assert server.health() == 200
        after = made()
        assert after, server.log
        until(lambda: made() > after, "it goes on")
        assert not any("error" in next(lines) for _ in range(20))
    now = server.status()
    assert now["engine"]["restarts"] == 0
    assert now["engine"]["pid"] == before["engine"]["pid"]
    assert [worker["pid"] for worker in now["workers"]] == [
        worker["pid"] for worker in before["workers"]
    ]
    told = server.http.post("/v1/completions", json={"prompt": "a", "max_tokens": 2})
    assert told.status_code == 200
