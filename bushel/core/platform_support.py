"""Which Pythons and Macs Bushel runs on; elsewhere, one line that says what to install.

An old Python has to be able to read this file, and reads it before any other: as part of Bushel, or
by itself (`python bushel/core/platform_support.py`, which `make setup` does).
"""

from __future__ import annotations

import os
import sys

OLDEST_PYTHON = (3, 11)
OLDEST_MACOS = 14


def python_complaint(version: tuple[int, ...]) -> str:
    """Empty, if this Python will do."""
    if version[:2] >= OLDEST_PYTHON:
        return ""
    major, minor = OLDEST_PYTHON
    return (
        f"Python {version[0]}.{version[1]} is too old: Bushel needs {major}.{minor} or later. "
        "Install one (uv python install 3.12, or brew install python@3.12) and name it: "
        "uv tool install --python 3.12 ..., or PYTHON=python3.12 make setup in a clone."
    )


def mac_complaint(machine: str, translated: bool, macos: str) -> str:
    """Empty, if this Mac and its Python will do.

    machine: what Python was built for. translated: it runs under Rosetta, on Apple's own chip.
    """
    if machine != "arm64" and translated:
        return (
            "this Python is for Intel and runs under Rosetta, where MLX has no build. Install one "
            "for Apple's chips (brew install python@3.12, in /opt/homebrew), then in a clone: "
            "PYTHON=/opt/homebrew/bin/python3.12 make setup."
        )
    if machine != "arm64":
        return "MLX needs a Mac with Apple's own chip (M1 or later), and this one has Intel's."
    release = macos.split(".")[0]
    if release.isdigit() and int(release) < OLDEST_MACOS:
        return f"macOS {macos} is too old for MLX: update to macOS {OLDEST_MACOS} or later."
    return ""


def complaint() -> str:
    """What is wrong with this machine and its Python; empty, if nothing is."""
    wrong = python_complaint(tuple(sys.version_info[:3]))
    return wrong or (mac() if os.uname().sysname == "Darwin" else "")


def mac() -> str:
    """The same of a Mac alone."""
    import platform
    import subprocess

    asked = ["sysctl", "-n", "sysctl.proc_translated"]  # 1 under Rosetta; Intel's has no such name
    told = subprocess.run(asked, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    return mac_complaint(platform.machine(), told.strip() == b"1", platform.mac_ver()[0])


def require_python() -> None:
    """Ends a command with one line, and is an ImportError to everyone else."""
    wrong = python_complaint(tuple(sys.version_info[:3]))
    if not wrong:
        return
    # As long as `python -m bushel` looks for the module, this is what it is called.
    if os.path.basename(sys.argv[0] if sys.argv else "") in ("-m", "bushel"):
        sys.stderr.write(f"bushel: {wrong}\n")
        raise SystemExit(2)
    raise ImportError(wrong)


if __name__ == "__main__":
    told = complaint()
    if told:
        sys.stderr.write(f"setup: {told}\n")
        sys.exit(2)
else:
    require_python()
