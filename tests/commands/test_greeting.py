"""`bushel` alone: what it says wherever it is asked, and that it waits for nobody."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bushel.cli import main
from bushel.core.checkpoint import TINY, read_checkpoint
from bushel.core.held_files import VARIABLE
from bushel.core.hub_folders import cached_models
from bushel.core.running_servers import announced
from tests.commands.scripted_front import scripted_front
from tests.commands.terminals import Terminal, person
from tests.server.scripted_service import said
from tests.server.server_process import free_port

# As a newcomer needs them; those of a later day stand among them.
ORDER = ["chat", "run", "serve", "list", "pull", "rm", "inspect", "check", "doctor", "completion"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith(("HF_", "BUSHEL_"))]:
        monkeypatch.delenv(name)
    for name, value in person(tmp_path).items():
        monkeypatch.setenv(name, value)
    return tmp_path


def hub_model(home: Path, name: str) -> None:
    folder = home / "hub" / "hub" / f"models--{name.replace('/', '--')}" / "snapshots" / "1234"
    shutil.copytree(read_checkpoint(TINY).path, folder)


def greeted(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert main(["--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_a_newcomer_is_told_what_can_be_done(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([]) == 0
    told = capsys.readouterr().out
    lines = [line.split()[1] for line in told.splitlines() if line.startswith("  bushel ")]
    assert [name for name in lines if name in ORDER] == ORDER
    assert "no server" in told
    assert "bushel chat" in told.splitlines()[-1]
    assert "\x1b" not in told


def test_models_and_servers_are_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hub_model(home, "someone/small")
    (home / "hub" / "hub" / "models--someone--partly").mkdir()
    with scripted_front([said("Hi", finish="stop")]) as (url, _):
        host, port = url.removeprefix("http://").split(":")
        held = announced(host, int(port))
        told = greeted(capsys)
        assert main([]) == 0
        shown = capsys.readouterr().out
        held.close()
    assert told["models"] == ["someone/small"]
    assert told["servers"] == [{"url": url, "state": "ready", "models": {"test/model": "ready"}}]
    assert told["backend"] is None
    assert "1 on this machine: someone/small" in shown
    assert f"{url}  test/model" in shown


def test_a_server_that_does_not_answer_is_not_waited_for(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        held = announced("127.0.0.1", deaf.getsockname()[1])
        told = greeted(capsys)
        held.close()
    assert [server["state"] for server in told["servers"]] == ["silent"]  # type: ignore[attr-defined, union-attr]


def test_names_of_the_hub_are_those_that_its_library_finds(home: Path) -> None:
    names = ["someone/small", "other/large-4bit", "other/with--two"]
    for name in names:
        hub_model(home, name)
    (home / "hub" / "hub" / "datasets--someone--words").mkdir()
    listed = subprocess.run(
        [sys.executable, "-m", "bushel", "list", "--json"],
        env=person(home),
        capture_output=True,
        text=True,
        check=True,
    )
    library = {model["name"] for model in json.loads(listed.stdout)["models"]}
    assert set(cached_models()) == set(names)
    assert library >= {"someone/small", "other/large-4bit"}


def test_colours_are_for_terminals_that_want_them(tmp_path: Path) -> None:
    with Terminal(env=person(tmp_path)) as terminal:
        assert terminal.end() == 0
        assert "\x1b[1mBushel" in terminal.raw
    with Terminal(env=person(tmp_path, NO_COLOR="1")) as terminal:
        assert terminal.end() == 0
        assert "\x1b" not in terminal.raw


def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    script = (
        "import sys; from bushel.cli import main; main([]); "
        "print([name for name in sys.argv[1:] if name in sys.modules])"
    )
    heavy = ("transformers", "huggingface_hub", "mlx_lm", "mlx_vlm", "fastapi", "numpy", "uvloop")
    told = subprocess.run(
        [sys.executable, "-c", script, *heavy],
        env=person(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.splitlines()[-1] == "[]"


def test_json_belongs_behind_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--json", "list"])
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_place_that_nothing_can_be_written_to_is_no_reason_to_fail(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, "/proc/nowhere")
    monkeypatch.setenv("TMPDIR", "/proc/nowhere")
    monkeypatch.setattr("tempfile.tempdir", "/proc/nowhere")
    monkeypatch.setenv("BUSHEL_PORT", str(free_port()))
    assert main([]) == 0
    assert "no server" in capsys.readouterr().out
