"""Where Bushel cannot run, one line says what to install, in a setup, a command and a script."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from bushel.core import backend, platform_support
from bushel.core.errors import BackendError
from bushel.core.platform_support import mac_complaint, python_complaint

ROOT = Path(__file__).parents[1]
# What an old Python reads until it is refused.
READ_FIRST = ("__init__.py", "__main__.py", "core/__init__.py", "core/platform_support.py")
OLD = "import sys; sys.version_info = (3, 9, 6, 'final', 0)"
FILE = "bushel/core/platform_support.py"


def ran(program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("version", [(3, 8, 20), (3, 9, 6), (3, 10, 14)])
def test_an_old_python_is_told_what_to_install(version: tuple[int, ...]) -> None:
    told = python_complaint(version)
    assert f"Python 3.{version[1]} is too old" in told
    assert "3.11 or later" in told
    assert "PYTHON=python3.12 make setup" in told
    assert "\n" not in told


def test_what_pip_is_told_of_python_is_the_same() -> None:
    oldest = ".".join(map(str, platform_support.OLDEST_PYTHON))
    assert f'requires-python = ">={oldest}"' in (ROOT / "pyproject.toml").read_text()


def test_control_a_python_that_will_do_is_told_nothing() -> None:
    assert python_complaint((3, 11, 0)) == python_complaint((3, 14, 1)) == ""
    assert python_complaint((4, 0, 0)) == ""


@pytest.mark.parametrize(
    ("machine", "translated", "macos", "mend"),
    [
        ("x86_64", True, "15.1", "PYTHON=/opt/homebrew/bin/python3.12 make setup"),
        ("x86_64", False, "14.7", "a Mac with Apple's own chip"),
        ("x86_64", True, "13.6", "/opt/homebrew"),
        ("arm64", False, "13.6.1", "macOS 13.6.1 is too old for MLX: update to macOS 14"),
        ("arm64", False, "12.0", "update to macOS 14"),
    ],
)
def test_a_mac_is_told_what_it_lacks(machine: str, translated: bool, macos: str, mend: str) -> None:
    told = mac_complaint(machine, translated, macos)
    assert mend in told
    assert "\n" not in told


@pytest.mark.parametrize("macos", ["14.0", "15.1", "26.0.1", ""])
def test_control_a_mac_that_will_do_is_told_nothing(macos: str) -> None:
    assert mac_complaint("arm64", False, macos) == ""


@pytest.mark.parametrize("name", READ_FIRST)
def test_an_old_python_can_read_what_refuses_it(name: str) -> None:
    ast.parse((ROOT / "bushel" / name).read_text(), feature_version=(3, 8))


def test_control_it_could_not_read_all_of_bushel() -> None:
    with pytest.raises(SyntaxError):
        ast.parse("match 1:\n    case 1: pass\n", feature_version=(3, 8))


@pytest.mark.parametrize("name", ["-m", "/usr/local/bin/bushel"])
def test_a_command_ends_with_one_line(name: str) -> None:
    done = ran(f"{OLD}; sys.argv = [{name!r}, 'serve']; import bushel.cli")
    assert done.returncode == 2
    assert done.stderr.startswith("bushel: Python 3.9 is too old")
    assert done.stderr.count("\n") == 1


def test_a_script_gets_an_import_error() -> None:
    done = ran(f"{OLD}\ntry:\n import bushel\nexcept ImportError as error: print(error)")
    assert done.stdout.startswith("Python 3.9 is too old")
    assert done.stdout.count("\n") == 1


def test_setup_is_told_before_it_makes_anything() -> None:
    told = ran(f"{OLD}; import runpy; runpy.run_path({FILE!r}, run_name='__main__')")
    assert told.returncode == 2
    assert told.stderr.startswith("setup: Python 3.9 is too old")
    assert told.stderr.count("\n") == 1
    script = (ROOT / "scripts" / "setup.sh").read_text()
    assert f'"$python" -I {FILE} || exit 2' in script
    assert script.index(FILE) < script.index("-m venv")


def test_control_setup_goes_on_with_this_python() -> None:
    done = subprocess.run([sys.executable, "-I", FILE], cwd=ROOT, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_mac_without_mlx_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError("no such file")

    monkeypatch.setattr(backend.importlib, "import_module", missing)
    monkeypatch.setattr(backend.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform_support, "mac", lambda: mac_complaint("arm64", False, "13.6"))
    with pytest.raises(BackendError, match="update to macOS 14"):
        backend.require_backend()
    monkeypatch.setattr(platform_support, "mac", lambda: "")
    with pytest.raises(BackendError, match="mlx-metal"):
        backend.require_backend()
