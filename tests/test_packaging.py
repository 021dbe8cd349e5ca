"""What Bushel depends on can be had for the Macs that it is for."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from uv import find_uv_bin

ROOT = Path(__file__).parents[1]
UNREACHABLE = ("error sending request", "Failed to fetch", "failed to lookup", "timed out")


def resolve(python: str, macos: str) -> subprocess.CompletedProcess[str]:
    """Wheels alone, as pip would choose them on a Mac with Apple's own chip."""
    environment = {**os.environ, "MACOSX_DEPLOYMENT_TARGET": macos}
    target = ("--python-platform", "aarch64-apple-darwin", "--python-version", python)
    only = ("--only-binary", ":all:", "--no-python-downloads")
    command = [find_uv_bin(), "pip", "compile", "pyproject.toml", *only, *target]
    made = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if made.returncode and any(words in made.stderr for words in UNREACHABLE):
        pytest.skip("the package index cannot be reached from here")
    return made


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
def test_a_mac_finds_wheels_of_everything(python: str) -> None:
    made = resolve(python, "14.0")
    assert made.returncode == 0, made.stderr
    assert {"mlx", "mlx-lm", "mlx-vlm", "mlx-metal"} <= {
        line.split("==")[0] for line in made.stdout.splitlines()
    }


def test_control_an_older_macos_does_not() -> None:
    made = resolve("3.12", "13.0")
    assert made.returncode != 0
    assert "macosx_14_0_arm64" in made.stderr
