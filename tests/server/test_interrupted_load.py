"""Ctrl-C while a model is loaded, as a terminal sends it to the whole group: all end at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.server_process import FEW, PATIENCE, Server, alive, children, until

ROOT = Path(__file__).parents[2]
SLOW = Path(__file__).parent / "slow_load"


def environment(told: Path) -> dict[str, str]:
    path = os.pathsep.join([str(SLOW), str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, "BUSHEL_TEST_SLOW_LOAD": str(told)}


@pytest.mark.long
@pytest.mark.parametrize("times", [1, 2])
def test_a_server_that_loads_ends_with_all_its_processes(tmp_path: Path, times: int) -> None:
    told = tmp_path / "loading"
    server = Server(*FEW, start_new_session=True, env=environment(told))
    try:
        until(told.exists, f"the engine loads: {server.log}")
        kin = children(server.process.pid)
        assert int(told.read_text()) in kin
        for _ in range(times):
            os.killpg(server.process.pid, signal.SIGINT)
        assert server.process.wait(PATIENCE) == 130, server.log
        until(lambda: not any(map(alive, kin)), "all are gone")
        assert "Traceback" not in server.log
    finally:
        server.close()


def test_a_check_that_loads_ends(tmp_path: Path) -> None:
    told = tmp_path / "loading"
    process = subprocess.Popen(
        [sys.executable, "-m", "bushel", "check", "bushel:tiny"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment(told),
    )
    try:
        until(told.exists, "it loads")
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == -signal.SIGINT  # which a shell calls 130
    assert not out
    assert not err


@pytest.mark.long
def test_a_script_is_interrupted_where_it_loads(tmp_path: Path) -> None:
    """By Python's own exception, between two groups of weights."""
    program = (
        "import sys, bushel; from bushel.models import load\n"
        "module = sys.modules[load.__module__]; module._GROUP = 1; real = module._groups\n"
        "def groups(weights):\n"
        "    for group in real(weights):\n"
        "        print('loads', flush=True); sys.stdin.readline(); yield group\n"
        "module._groups = groups\n"
        "try: bushel.LLM('bushel:tiny')\n"
        "except KeyboardInterrupt: print('interrupted', flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "loads\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (0, "interrupted\n", "")
