"""Files for launchd, systemd and Docker run a server, and let it end in good order."""

from __future__ import annotations

import configparser
import json
import plistlib
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from bushel import cli
from bushel.core.options import EngineOptions
from bushel.server import run
from bushel.server.options import ServerOptions
from bushel.server.processes import supervisor

ROOT = Path(__file__).parents[1]
PACKAGING = ROOT / "packaging"
DEFAULT = 20  # seconds that launchd waits if it is not told


@pytest.fixture
def job() -> dict[str, Any]:
    return dict(plistlib.loads((PACKAGING / "launchd.plist").read_bytes()))


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
    page = (ROOT / "docs" / "guides" / "macos.md").read_text()
    assert "(../../packaging/launchd.plist)" in page
    assert job["Label"] in page
    assert f"SIGKILL after {DEFAULT} s" in page


# -- systemd ----------------------------------------------------------------------------------


@pytest.fixture
def unit() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(PACKAGING / "bushel.service")
    return parser["Service"]


def test_systemd_waits_longer_than_a_server_drains(unit: configparser.SectionProxy) -> None:
    assert int(unit["TimeoutStopSec"]) > longest_end()
    assert unit["KillMode"] == "mixed"  # or the engine would be told to end before it has drained
    assert unit["Restart"] == "on-failure"


def test_systemd_gives_a_descriptor_to_every_connection(unit: configparser.SectionProxy) -> None:
    served = ServerOptions(EngineOptions("m")).limits.connections
    assert int(unit["LimitNOFILE"]) > 2 * served


def test_the_command_of_the_unit_is_one(unit: configparser.SectionProxy, tmp_path: Path) -> None:
    program, *words = unit["ExecStart"].split()
    assert Path(program).name == "bushel"
    cli._parsed(words)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not here")
@pytest.mark.parametrize("broken", [False, True], ids=["as it is", "control: a wrong line"])
def test_systemd_understands_the_unit(broken: bool, tmp_path: Path) -> None:
    text = (PACKAGING / "bushel.service").read_text()
    text = text.replace("/opt/bushel/bin/bushel", shutil.which("true") or "/bin/true")
    copy = tmp_path / "bushel.service"
    copy.write_text(text.replace("KillMode=mixed", "KillMode=gently") if broken else text)
    told = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
    complaints = [line for line in told.stderr.splitlines() if "bushel.service" in line]
    assert bool(complaints) == broken, told.stderr


# -- Docker -----------------------------------------------------------------------------------


def seconds(text: str) -> float:
    assert text.endswith("s")
    return float(text[:-1])


def test_the_image_starts_a_server() -> None:
    text = (PACKAGING / "Dockerfile").read_text()
    entry, command = (
        json.loads(re.findall(rf"^{word} (\[.*\])$", text, re.MULTILINE)[0])
        for word in ("ENTRYPOINT", "CMD")
    )
    assert entry == ["bushel"]
    cli._parsed(command)


def test_the_image_is_built_of_files_that_are_there() -> None:
    lines = (PACKAGING / "Dockerfile.dockerignore").read_text().splitlines()
    kept = {line[1:] for line in lines if line.startswith("!")}
    assert all((ROOT / name).exists() for name in kept)
    assert {"pyproject.toml", "README.md", "LICENSE", "bushel"} <= kept


def test_open_webui_calls_bushel_by_a_name_that_is_allowed() -> None:
    services = yaml.safe_load((PACKAGING / "compose.yaml").read_text())["services"]
    bushel, webui = services["bushel"], services["open-webui"]
    words = [
        word.replace("${BUSHEL_MODEL:-bushel:tiny}", "bushel:tiny") for word in bushel["command"]
    ]
    cli._parsed(words)
    host = re.fullmatch(r"http://([\w.-]+):8000/v1", webui["environment"]["OPENAI_API_BASE_URL"])
    assert host is not None
    assert host[1] in services
    assert words[words.index("--allowed-host") + 1] == host[1]
    assert seconds(bushel["stop_grace_period"]) > longest_end()
    assert (PACKAGING / bushel["build"]["context"] / bushel["build"]["dockerfile"]).exists()


def test_what_was_not_tried_says_so() -> None:
    for name in ("Dockerfile", "compose.yaml", "bushel.rb"):
        assert "Not tested yet" in (PACKAGING / name).read_text().partition("\n\n")[0]
