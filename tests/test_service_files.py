"""The launchd agent in the docs runs a server, and lets it end in good order."""

from __future__ import annotations

import plistlib
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bushel.core.options import EngineOptions
from bushel.server import run
from bushel.server.options import ServerOptions
from bushel.server.processes import supervisor

DOCS = Path(__file__).parents[1] / "docs"
DEFAULT = 20  # seconds that launchd waits if it is not told


@pytest.fixture
def job() -> dict[str, Any]:
    return dict(plistlib.loads((DOCS / "launchd.plist").read_bytes()))


def longest_end() -> float:
    """Seconds from SIGTERM to the exit: what runs, last words, and the engine's own end."""
    drain = ServerOptions(EngineOptions("m")).drain_seconds
    return drain + 2 * run._PARTING + supervisor._END


def test_a_server_has_the_time_to_drain_before_it_is_killed(job: dict[str, Any]) -> None:
    assert job["ExitTimeOut"] > longest_end()
    assert longest_end() > DEFAULT  # or nobody would have to say it


def test_a_crash_is_followed_by_a_start_and_a_stop_is_not(job: dict[str, Any]) -> None:
    assert job["KeepAlive"] == {"SuccessfulExit": False}
    assert job["RunAtLoad"] is True


def test_signals_reach_the_server_and_it_is_what_the_machine_stays_awake_for(
    job: dict[str, Any], tmp_path: Path
) -> None:
    """The shell's command, with programs that say who they are."""
    shell, flag, command, *arguments = job["ProgramArguments"]
    assert arguments[1].endswith("/bushel")
    assert arguments[2] == "serve"
    noted = tmp_path / "caffeinate.txt"
    caffeinate, server = tmp_path / "caffeinate", tmp_path / "bushel"
    caffeinate.write_text(f'#!/bin/sh\necho "$@" > {noted}.new; mv {noted}.new {noted}\n')
    server.write_text(f'#!/bin/sh\nuntil [ -e {noted} ]; do sleep 0.05; done\necho $$ "$@"\n')
    for program in (caffeinate, server):
        program.chmod(0o755)
    command = command.replace("/usr/bin/caffeinate", str(caffeinate))
    arguments[1] = str(server)
    running = subprocess.Popen([shell, flag, command, *arguments], stdout=subprocess.PIPE)
    said, _ = running.communicate(timeout=60)
    assert said.decode().split() == [str(running.pid), *arguments[2:]]
    assert noted.read_text().split() == ["-is", "-w", str(running.pid)]


def test_the_page_shows_the_file_and_what_it_says_of_it_is_so(job: dict[str, Any]) -> None:
    page = (DOCS / "macos.md").read_text()
    assert "(launchd.plist)" in page
    assert job["Label"] in page
    assert f"SIGKILL after {DEFAULT} s" in page
