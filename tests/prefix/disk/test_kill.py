"""kill -9 at any moment of writing costs nothing that was complete, and leaves nothing else.

BUSHEL_TEST_KILLS sets how often, in eighties.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

KILLS = 80 * int(os.environ.get("BUSHEL_TEST_KILLS", "1"))
ROOT = Path(__file__).parents[3]


def killing(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.prefix.disk.killed_writer", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=2 * KILLS,  # seconds; it takes 0.1 for each
        check=False,
    )


def test_a_killed_writer_leaves_whole_entries_and_nothing_else(tmp_path: Path) -> None:
    done = killing(tmp_path / "cache", KILLS)
    assert done.returncode == 0, done.stderr[-4000:]
    counts = json.loads(done.stdout)
    assert counts["rounds"] == KILLS
    # Otherwise the kills came at moments that prove nothing.
    assert counts["torn"] > KILLS // 20
    assert counts["read"] > KILLS


def test_the_kills_find_a_writer_that_promises_too_early(tmp_path: Path) -> None:
    done = killing(tmp_path / "cache", KILLS, "careless")
    assert done.returncode != 0
    assert "a complete entry is lost" in done.stderr
