"""Bushel as it is published: a wheel, and the sources that it is built from."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from uv import find_uv_bin

ROOT = Path(__file__).parents[1]
UNREACHABLE = ("error sending request", "Failed to fetch", "failed to lookup", "timed out")
BESIDE = ("pyproject.toml", "MANIFEST.in", "LICENSE", "README.md", "CHANGELOG.md")


def call(command: Sequence[str | Path]) -> None:
    made = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if made.returncode and any(words in made.stderr for words in UNREACHABLE):
        pytest.skip("the package index cannot be reached from here")
    assert made.returncode == 0, made.stderr


def built(folder: Path) -> tuple[Path, Path]:
    """A wheel, made from the archive of sources, and that archive."""
    source = folder / "source"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "bushel", source / "bushel", ignore=ignore)
    for name in BESIDE:
        shutil.copy(ROOT / name, source)
    call([find_uv_bin(), "build", "--out-dir", folder / "dist", source])
    [wheel] = (folder / "dist").glob("*.whl")
    [sources] = (folder / "dist").glob("*.tar.gz")
    return wheel, sources
