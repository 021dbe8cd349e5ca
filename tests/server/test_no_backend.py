"""MLX as pip installs it on Linux without an extra: one line says what to install, exit code 2.

Its extension is there, and the library that it is linked to is not. So what is raised is what the
system itself says.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path

import pytest

from bushel.core.version import DISTRIBUTION
from tests.depth import one_in
from tests.server.server_process import PATIENCE, free_port

ROOT = Path(__file__).parents[2]
IMPORTS = (
    "from bushel import LLM",
    "import bushel; bushel.AsyncLLM",
    "from bushel import SharedLLM",
)
COMMANDS = (
    ("check", "bushel:tiny"),
    ("doctor",),
    ("doctor", "--json", "--section", "device"),
    ("serve", "bushel:tiny"),
    ("run", "Hello", "--model", "bushel:tiny"),
    ("serve", "bushel:tiny", "--keep-alive", "5"),
)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("no_backend")
    (folder / "mlx").mkdir()
    spec = importlib.util.find_spec("mlx.core")
    assert spec is not None
    assert spec.origin is not None
    shutil.copy(spec.origin, folder / "mlx")  # it looks for the library beside itself
    path = os.pathsep.join([str(folder), str(ROOT)])
    own = {"BUSHEL_RUNTIME_DIR": str(folder / "runtime"), "BUSHEL_PORT": str(free_port())}
    return {**os.environ, "PYTHONPATH": path, **own}


def ended(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment,
        cwd="/",
        timeout=PATIENCE,
    )
    assert "Traceback" not in done.stdout
    return done


def told_once(text: str) -> str:
    """The one line that says it."""
    [line] = [line for line in text.splitlines() if "pip install" in line]
    assert "libmlx" in line
    return line


TRIED = [it if it in COMMANDS[2:4] else pytest.param(it, marks=pytest.mark.long) for it in COMMANDS]


@pytest.mark.parametrize("command", TRIED, ids=" ".join)
def test_a_command_says_in_one_line_what_to_install(
    command: tuple[str, ...], environment: dict[str, str]
) -> None:
    more = ["--port", str(free_port())] if command[0] == "serve" else []
    done = ended(environment, "-m", "bushel", *command, *more)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    line = told_once(done.stderr)
    assert line.startswith("bushel: ")
    assert done.stderr.splitlines()[-1] == line
    if command[0] != "serve":
        assert done.stderr == f"{line}\n"
        assert not done.stdout


def test_bushel_alone_greets_all_the_same_and_says_what_to_install(
    environment: dict[str, str],
) -> None:
    done = ended(environment, "-m", "bushel")
    assert (done.returncode, done.stderr) == (0, "")
    assert "bushel chat" in done.stdout
    assert done.stdout.splitlines()[-1] == told_once(done.stdout)


@pytest.mark.parametrize("program", one_in(3, IMPORTS))
def test_a_script_is_told_the_same_as_an_import_error(
    program: str, environment: dict[str, str]
) -> None:
    done = ended(environment, "-c", program)
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1  # of the import itself, and nothing it hides
    assert told_once(done.stderr) == done.stderr.splitlines()[-1]
    caught = ended(
        environment, "-c", f"try:\n {program}\nexcept ImportError as error: print(error)"
    )
    assert caught.returncode == 0
    assert caught.stdout.count("\n") == 1
    told_once(caught.stdout)


def test_what_it_says_to_install_is_there(environment: dict[str, str]) -> None:
    line = told_once(ended(environment, "-m", "bushel", "check", "bushel:tiny").stderr)
    extras = re.findall(r"mlx\[(\w+)\]", line)
    assert extras
    for distribution in ("mlx", DISTRIBUTION):
        assert set(extras) <= set(metadata(distribution).get_all("Provides-Extra") or ())


def test_control_with_its_backend_the_same_command_has_something_else_to_say(
    environment: dict[str, str],
) -> None:
    path = {"PYTHONPATH": str(ROOT)}
    done = ended({**environment, **path}, "-m", "bushel", "check", "/no/such/directory")
    assert done.returncode == 2
    assert "pip install" not in done.stderr
