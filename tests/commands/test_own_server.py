"""A chat and a run without a server: one is started for it, and ends with it, whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bushel.core.checkpoint import TINY, read_checkpoint
from bushel.core.running_servers import announced
from tests.commands.scripted_front import scripted_front
from tests.commands.terminals import CTRL_C, CTRL_D, Terminal, person
from tests.server.scripted_service import said
from tests.server.server_process import alive, children, until

ANSWER = r"3 \+ 4 = 7"


def started_by(pid: int) -> list[int]:
    """All processes below one."""
    found = [pid]
    for one in found:
        found += children(one)
    return found[1:]


def gone(pids: list[int]) -> bool:
    return not any(alive(pid) for pid in pids)


@pytest.mark.long
def test_a_chat_brings_its_own_engine_which_is_gone_after_kill_9(tmp_path: Path) -> None:
    """Nobody else finds it, either. B80."""
    with Terminal("chat", "--temperature", "0", env=person(tmp_path)) as chat:
        chat.wait_for("No model is here yet but bushel:tiny")
        chat.wait_for("bushel:tiny: ")  # how far it is
        chat.wait_for("bushel:tiny, on its own")
        chat.prompt()
        chat.say("What is 3 + 4?")
        chat.wait_for(ANSWER)
        chat.prompt()
        below = started_by(chat.process.pid)
        assert len(below) >= 3  # front, engine, worker
        # Another command does not take it for a server of everybody.
        other = subprocess.run(
            [sys.executable, "-m", "bushel"], env=person(tmp_path), capture_output=True, text=True
        )
        assert "no server" in other.stdout
        os.kill(chat.process.pid, signal.SIGKILL)
        chat.process.wait()
        until(lambda: gone(below), "the engine went with the chat")


@pytest.mark.long
def test_an_engine_that_died_is_there_again_for_the_next_question(tmp_path: Path) -> None:
    with Terminal("chat", "bushel:tiny", "--temperature", "0", env=person(tmp_path)) as chat:
        chat.prompt()
        below = started_by(chat.process.pid)
        [front] = children(chat.process.pid)
        os.kill(front, signal.SIGKILL)
        until(lambda: gone([pid for pid in below if pid != front]), "all of it has ended")
        chat.say("What is 3 + 4?")
        chat.wait_for("starting it again")
        chat.wait_for(ANSWER)
        chat.prompt()
        chat.say("/model bushel:tiny")
        chat.wait_for("answers from now on")
        chat.prompt()
        below = started_by(chat.process.pid)
        chat.type(CTRL_D)
        assert chat.end() == 0
        assert gone(below)


@pytest.mark.long
def test_ctrl_c_ends_it_while_it_loads(tmp_path: Path) -> None:
    with Terminal("chat", "bushel:tiny", env=person(tmp_path)) as chat:
        chat.wait_for("bushel:tiny: ")
        below = until(lambda: started_by(chat.process.pid), "it is started")
        chat.type(CTRL_C)
        assert chat.end() == 130
        until(lambda: gone(below), "what was loading is gone")


def ran(home: Path, model: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bushel", "run", "Hello", "--model", model],
        env=person(home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def told_in_a_line(told: subprocess.CompletedProcess[str]) -> str:
    assert (told.returncode, told.stdout) == (2, ""), told.stderr
    [line] = told.stderr.splitlines()
    assert line.startswith("bushel: ")
    return line


def test_what_is_no_model_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{}")
    assert "model_type" in told_in_a_line(ran(tmp_path, str(tmp_path / "broken")))
    assert "neither a directory" in told_in_a_line(ran(tmp_path, "neither-a-name"))
    assert "no/such" in told_in_a_line(ran(tmp_path, "no/such"))


@pytest.mark.long
def test_a_model_that_does_not_load_is_told_in_the_words_of_its_engine(tmp_path: Path) -> None:
    shutil.copytree(read_checkpoint(TINY).path, tmp_path / "odd")
    config = json.loads((tmp_path / "odd" / "config.json").read_text())
    (tmp_path / "odd" / "config.json").write_text(json.dumps({**config, "model_type": "odd"}))
    assert "odd" in told_in_a_line(ran(tmp_path, str(tmp_path / "odd")))


@pytest.mark.long
def test_a_model_that_the_running_server_has_not_is_started_beside_it(tmp_path: Path) -> None:
    with scripted_front([said("It is me.", finish="stop")]) as (url, _):
        held = announced("127.0.0.1", int(url.rpartition(":")[2]), tmp_path / "runtime")
        there = ran(tmp_path, "test/model")
        beside = ran(tmp_path, TINY)
        held.close()
    assert (there.stdout, there.stderr) == ("It is me.\n", "")
    assert beside.returncode == 0
    assert f"{url} does not serve bushel:tiny: starting it here" in beside.stderr


@pytest.mark.long
def test_of_several_models_somebody_has_to_choose(tmp_path: Path) -> None:
    for name in ("small", "large"):
        folder = tmp_path / "hub" / "hub" / f"models--someone--{name}" / "snapshots" / "1"
        shutil.copytree(read_checkpoint(TINY).path, folder)
    command = [sys.executable, "-m", "bushel", "run", "Hello"]
    told = subprocess.run(
        command, env=person(tmp_path), stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    line = told_in_a_line(told)
    assert "someone/small" in line
    assert "someone/large" in line
    with Terminal("chat", env=person(tmp_path)) as chat:
        chat.wait_for(r"1  someone/\w+\n\s+2  someone/\w+\n\s+3  bushel:tiny")
        chat.wait_for("Which one")
        chat.say("9")
        chat.wait_for("Which one")
        chat.type(CTRL_D)
        assert chat.end() == 2


def test_a_server_ends_when_its_standard_input_does(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bushel", "serve", "--port", "0", "--end-with-stdin"]
    with subprocess.Popen(
        command, env=person(tmp_path), stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as server:
        assert server.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            server.stdin.write(b"what is written there means nothing\n")
            server.stdin.flush()
        until(lambda: children(server.pid), "it has begun")
        assert server.poll() is None
        below = started_by(server.pid)
        server.stdin.close()
        until(lambda: server.poll() is not None, "it ends")
        until(lambda: gone(below), "with all that it started")
