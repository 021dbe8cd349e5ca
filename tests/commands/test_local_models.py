"""`bushel list`, `pull` and `rm`, against a stand-in for the hub and a cache of their own."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bushel.core.checkpoint import TINY, read_checkpoint
from bushel.core.terminal_line import CLEAR
from tests.commands.hub_stand_in import HubStandIn, hub_stand_in
from tests.depth import often
from tests.families import checkpoint_dir

NAME = "someone/small"


class Machine:
    """Somebody's, who has a hub and a cache."""

    def __init__(self, hub: HubStandIn, home: Path):
        self.hub, self.home = hub, home
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        self.environment = {**kept, "HF_ENDPOINT": hub.address, "HF_HOME": str(home)}

    def bushel(
        self, *arguments: str, answer: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """answer: what is typed on a terminal; without, there is none."""
        command = [sys.executable, "-m", "bushel", *arguments]
        given: int = subprocess.DEVNULL
        if answer is not None:
            typed, given = pty.openpty()
            os.write(typed, answer.encode())
        return subprocess.run(
            command, env=self.environment, stdin=given, capture_output=True, text=True, timeout=120
        )

    def on_terminal(self, *arguments: str) -> str:
        """What a terminal is given."""
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "bushel", *arguments]
        given = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
        with subprocess.Popen(command, env=self.environment, **given) as process:
            os.close(theirs)
            shown = b""
            with contextlib.suppress(OSError):  # the end of a terminal
                while part := os.read(ours, 1 << 16):
                    shown += part
        os.close(ours)
        assert process.returncode == 0
        return shown.decode()

    def listed(self) -> list[str]:
        said = json.loads(self.bushel("list", "--json").stdout)
        return [model["name"] for model in said["models"]]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with hub_stand_in(NAME, checkpoint_dir("llama")) as hub:
        yield Machine(hub, tmp_path / "home")


def test_a_family_that_gets_no_pictures_is_not_listed_as_one_that_sees(tmp_path: Path) -> None:
    """Though its checkpoint was made for them. B7a."""
    with hub_stand_in(NAME, checkpoint_dir("molmo_point")) as hub:
        machine = Machine(hub, tmp_path / "home")
        assert machine.bushel("pull", NAME).returncode == 0
        [model] = json.loads(machine.bushel("list", "--json").stdout)["models"]
    assert read_checkpoint(str(checkpoint_dir("molmo_point"))).sees
    assert (model["model_type"], model["sees"]) == ("molmo_point", False)


def test_a_model_is_pulled_listed_and_removed(machine: Machine) -> None:
    assert machine.listed() == []
    pulled = machine.bushel("pull", NAME)
    assert pulled.returncode == 0, pulled.stderr
    path = Path(pulled.stdout.splitlines()[-1].partition(" is here: ")[2])
    assert read_checkpoint(str(path)).model_type == "llama"
    sent = machine.hub.sent.total()
    again = machine.bushel("pull", NAME)  # nothing is fetched twice
    assert (again.returncode, machine.hub.sent.total()) == (0, sent)

    table = machine.bushel("list").stdout
    assert machine.listed() == [NAME]
    assert NAME in table
    assert TINY in table

    removed = machine.bushel("rm", NAME, "--yes")
    assert removed.returncode == 0
    assert "free again" in removed.stdout
    assert machine.listed() == []
    assert not path.exists()
    assert (machine.hub.folder / "config.json").exists()


def test_a_download_that_is_cut_off_goes_on_where_it_was(tmp_path: Path) -> None:
    with hub_stand_in(NAME, read_checkpoint(TINY).path) as hub:
        machine = Machine(hub, tmp_path / "home")
        size = next(f.stat().st_size for f in hub.files() if f.suffix == ".safetensors")
        hub.cut = 11 << 20  # of each answer; the hub's library writes 10 MiB at a time
        pulled = machine.bushel("pull", NAME)
        assert pulled.returncode == 0, pulled.stderr
        assert size < hub.sent["model.safetensors"] <= size + (1 << 20)
        assert machine.listed() == [NAME]


def test_a_terminal_has_one_line_of_bytes_and_nothing_where_all_is_there(tmp_path: Path) -> None:
    with hub_stand_in(NAME, read_checkpoint(TINY).path) as hub:
        machine = Machine(hub, tmp_path / "home")
        hub.pause = 0.2  # between two parts of a file
        shown = machine.on_terminal("pull", NAME)
        again = machine.on_terminal("pull", NAME)
    assert len(re.findall(r"downloading  [\d.]+ of 15\.9 MB", shown)) >= 1
    assert CLEAR + "downloading" in shown
    assert shown.count("\n") == 2, shown  # what it will take, and where it is
    assert "downloading" not in again
    assert again.count("\n") == 1, again


@pytest.mark.long
def test_one_that_fails_is_told_in_a_line_and_what_came_is_kept(machine: Machine) -> None:
    machine.hub.cut = 1
    failed = machine.bushel("pull", NAME)
    assert failed.returncode == 2
    assert failed.stderr.splitlines()[-1].startswith("bushel: ")
    assert "Traceback" not in failed.stderr
    machine.hub.cut = None
    assert machine.bushel("pull", NAME).returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("pull", "someone/else"),
        pytest.param(("pull", "neither-a-name"), marks=pytest.mark.long),
        pytest.param(("rm", "someone/else", "--yes"), marks=pytest.mark.long),
        ("rm", NAME),  # nobody can be asked
        pytest.param(("rm", ".", "--yes"), marks=pytest.mark.long),
    ],
)
def test_what_is_wrong_is_one_line(machine: Machine, arguments: tuple[str, ...]) -> None:
    said = machine.bushel(*arguments)
    assert said.returncode == 2
    assert len(said.stderr.splitlines()) == 1, said.stderr
    assert said.stderr.startswith("bushel: ")


@pytest.mark.parametrize(("answer", "left"), often([("n\n", [NAME]), ("y\n", [])], ("y\n", [])))
def test_removing_asks_first(machine: Machine, answer: str, left: list[str]) -> None:
    machine.bushel("pull", NAME)
    said = machine.bushel("rm", NAME, answer=answer)
    assert f"Delete {NAME}" in said.stdout
    assert machine.listed() == left
