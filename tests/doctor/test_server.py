"""Lines about a server and the clocks, over a server that plays a part: each can go wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bushel.core import BushelError
from bushel.doctor import process_tree, serve_process, server, sleep
from bushel.doctor.finding import DoctorOptions, Finding


class Played:
    """A server as the probes see it. leak: bytes that each request leaves behind."""

    def __init__(self, leak: int = 0, refuses: bool = False, forgets: bool = False):
        self._leak, self._refuses, self._forgets = leak, refuses, forgets
        self.pid, self.port, self._asked, self._engine = 1, 2, 0, 3

    def ask(self, *_: Any, **__: Any) -> str:
        self._asked += 1
        if self._refuses:
            raise BushelError("503: come back later")
        return str(self._engine) if self._forgets else "7"

    def status(self) -> Any:
        memory = {"active_bytes": 1000 + self._leak * self._asked}
        return {"running": 0, "engine": {"pid": self._engine, "memory": memory}}

    def until(self, condition: Any, *_: Any) -> Any:
        return condition()

    def signal_engine(self, _: signal.Signals) -> int:
        self._engine += 1
        return self._engine - 1

    def forget(self) -> None:
        pass

    def resident(self) -> int:
        return 10**9


def flooded(played: Any) -> Finding:
    (finding,) = server._Server(DoctorOptions(quick=True)).flood(played)
    return finding


def test_memory_that_is_given_back_is_ok() -> None:
    assert flooded(Played()).status == "ok"


@pytest.mark.parametrize(
    ("played", "words"),
    [(Played(leak=1 << 20), "not given back"), (Played(refuses=True), "x 503: come back later")],
)
def test_memory_that_stays_and_requests_that_are_lost_are_wrong(played: Any, words: str) -> None:
    finding = flooded(played)
    assert finding.status == "wrong"
    assert words in finding.words


@pytest.mark.parametrize(("forgets", "status"), [(False, "ok"), (True, "wrong")])
def test_an_engine_that_says_something_else_after_its_death_is_wrong(
    forgets: bool, status: str
) -> None:
    played: Any = Played(forgets=forgets)
    (finding,) = server._Server(DoctorOptions()).killed(played)
    assert finding.status == status


def test_a_server_that_does_not_start_is_one_wrong_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_process, "TINY", "/no/such/model")
    section = server.section(DoctorOptions())
    found = [finding for probe in section.probes for finding in probe.run()]
    section.close()
    assert [finding.status for finding in found] == ["wrong"] + ["skipped"] * 5
    assert "ended by itself" in found[0].words
    assert "neither a directory" in found[0].words


# -- clocks ----------------------------------------------------------------------------------


def test_clocks_go_alike() -> None:
    (finding,) = sleep.clocks()
    assert "time.monotonic, asyncio, uvloop" in finding.words


@pytest.mark.parametrize(("slept", "status"), [(100.0, "ok"), (0.0, "skipped")])
def test_a_clock_that_stood_still_is_told(
    slept: float, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter([(0.0, 0.0), (120.0, 120.0 - slept)])
    monkeypatch.setattr(
        sleep._Clocks, "read", lambda _: dict(zip(NAMES, next(readings), strict=True))
    )
    (finding,) = sleep._waited(0.0)
    assert finding.status == status
    assert ("stood still for 100 s" in finding.words) == (status == "ok")


NAMES = ("time.time", "time.monotonic")


def test_without_being_asked_to_it_says_how_to_try() -> None:
    (finding,) = sleep.slept(0.0)
    assert finding.status == "skipped"
    assert "--sleep 120" in finding.words


# -- processes -------------------------------------------------------------------------------


def test_processes_are_found_with_ps_as_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    started = subprocess.Popen(command)
    try:
        assert started.pid in process_tree.descendants(os.getpid())
        here = process_tree.resident([os.getpid()])
        monkeypatch.setattr(process_tree, "_PROC", tmp_path)  # as on a Mac
        assert started.pid in process_tree.descendants(os.getpid())
        assert 0.5 < process_tree.resident([os.getpid()]) / here < 2
    finally:
        process_tree.kill([started.pid])
        started.wait()
