"""The disk tier under a system clock that jumps: order of use is what counts, not the time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bushel.cache.prefix.disk import Disk, index
from tests.prefix.disk.trees import LIMIT, SPACE, grow, only_folder, put, tokens

NOW = 1_800_000_000 * 10**9
DAY = 24 * 3600 * 10**9
USED = ("at trunk", "at leaf", "right", "at left")
ORDER = ["at trunk", "at leaf", "leaf", "right", "at left", "left", "trunk"]


def left(path: Path, room: int) -> set[str]:
    disk = Disk(path, SPACE, room)
    disk.check_integrity()
    disk.close()
    return {it.name for it in disk.found}


@pytest.mark.parametrize("jump", [-3650 * DAY, -1, 0, 3650 * DAY])
def test_what_was_used_last_stays_whatever_the_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: int
) -> None:
    """It jumps before every use, and once more before the restart."""
    now = NOW
    monkeypatch.setattr(index.time, "time_ns", lambda: now)
    disk = Disk(tmp_path, SPACE, LIMIT)
    names = grow(disk)
    for which in USED:
        now += jump
        disk.touch(names[which])
        disk.check_integrity()
    disk.close()
    now += jump
    each = {it.stem: it.stat().st_size for it in only_folder(tmp_path).glob("*.safetensors")}
    room = sum(each.values())
    for step, which in enumerate(ORDER):
        room -= each[names[which]]
        assert left(tmp_path, room) == {names[it] for it in ORDER[step + 1 :]}


def test_files_from_the_future_are_used_and_go_first_when_they_are_not(tmp_path: Path) -> None:
    """A folder that was written while the clock was ahead, or copied from such a machine."""
    disk = Disk(tmp_path, SPACE, LIMIT)
    old = put(disk, "edge", None, 0, tokens(1, 2, 3))
    disk.close()
    path = only_folder(tmp_path) / f"{old}.safetensors"
    ahead = path.stat().st_mtime_ns + 3650 * DAY
    os.utime(path, ns=(ahead, ahead))
    disk = Disk(tmp_path, SPACE, LIMIT)
    assert [it.name for it in disk.found] == [old]
    new = put(disk, "edge", None, 0, tokens(7, 8, 9))
    disk.close()
    assert left(tmp_path, path.stat().st_size) == {new}
