"""Nobody waits for somebody else's body: how long the event loop is away, whatever is sent."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import pytest
import uvloop

from bushel.server.observability.loop_probe import Longest, LoopProbe
from tests.server.expensive_bodies import bodies
from tests.server.server_process import Server, until
from tests.server.test_metrics import samples

CPU, WALL = 0.2, 1.0  # seconds that the loop may be away
STALL = "bushel:event_loop_stall_seconds{clock=%s,window=start}"


def away(server: Server) -> tuple[float, float]:
    """The longest time so far: CPU time, and by the clock."""
    found = samples(server.http.get("/metrics").text)
    return found[STALL % "cpu"], found[STALL % "wall"]


class Share:
    """How much longer work takes here than it would on a machine that does nothing else."""

    def __init__(self) -> None:
        self._worked, self._took = 0.02, 0.02
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Share:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def factor(self) -> float:
        return self._took / self._worked

    def _run(self) -> None:
        while not self._done.wait(0.1):
            began, end = time.monotonic(), time.thread_time() + 0.02
            while time.thread_time() < end:
                pass
            self._worked += 0.02
            self._took += time.monotonic() - began


@pytest.mark.long
def test_no_body_keeps_the_event_loop_from_everyone_else(stalled: Server) -> None:
    """Each is answered, by a refusal or not, and the loop is never away for long. B48, B67."""
    long: dict[str, str] = {}
    cpu, wall = away(stalled)
    for name, (path, content) in bodies():
        with Share() as share:
            reply = stalled.http.post(path, content=content)
        assert reply.status_code in (200, 400, 404, 413), f"{name}: {reply.text[:300]}"
        before, (cpu, wall) = (cpu, wall), away(stalled)
        most = WALL * share.factor
        print(f"{name}: {cpu:.3f} s of CPU, {wall:.3f} s by the clock, of {most:.1f}")
        if (cpu > CPU and cpu > before[0]) or (wall > most and wall > before[1]):
            long[name] = f"{cpu:.3f} s of CPU, {wall:.3f} s by the clock, not {most:.1f}"
    assert long == {}


# -- controls ----------------------------------------------------------------------------------


def test_a_front_that_stands_still_is_seen_by_the_clock_and_not_as_work(stalled: Server) -> None:
    before, _ = away(stalled)
    os.kill(stalled.process.pid, signal.SIGSTOP)
    time.sleep(0.6)
    os.kill(stalled.process.pid, signal.SIGCONT)
    until(lambda: away(stalled)[1] > 0.4, "the probe has seen it")
    assert away(stalled)[0] < before + CPU


def test_work_on_the_loop_is_seen_as_work_and_told_with_its_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # A warning, unless the machine is busy with others; other tests set the level of "bushel".
    caplog.set_level("DEBUG", logger="bushel.server.observability.loop_probe")
    probe = LoopProbe("org/model")

    def busy() -> None:
        end = time.thread_time() + 0.4
        while time.thread_time() < end:
            pass

    async def work() -> None:
        probe.start()
        await asyncio.sleep(0.1)
        assert probe.cpu.ever < 0.2
        for _ in range(20):  # the thread that looks may be kept waiting by other processes
            busy()
            await asyncio.sleep(0.1)
            if caplog.text:
                break

    uvloop.run(work())
    assert probe.cpu.ever > 0.3
    assert probe.clock.ever > 0.3
    assert probe.stalls >= 1
    assert "test_hostile_loop.busy" in caplog.text


def test_a_stall_is_forgotten_after_a_minute_but_not_since_the_start() -> None:
    longest = Longest()
    for now in range(0, 120):
        longest.add(5.0 if now == 10 else 0.1, float(now))
        assert longest.lately(now) == (5.0 if 10 <= now <= 70 else pytest.approx(0.1))
    assert longest.ever == 5.0
