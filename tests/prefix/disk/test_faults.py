"""A disk that is slow, full, broken or closed costs entries, and never a request."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from bushel.cache.prefix.disk import Disk
from bushel.cache.prefix.disk.folder import Folder
from tests.prefix.disk.trees import (
    LIMIT,
    NONE,
    SPACE,
    arrays_for,
    fetch,
    files,
    grow,
    put,
    tokens,
)


def test_a_slow_disk_refuses_and_never_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    write = Folder.write
    monkeypatch.setattr(Folder, "write", lambda *args: (gate.wait(10), write(*args)))
    disk = Disk(tmp_path, SPACE, LIMIT, queue_bytes=2000)
    started = time.monotonic()
    written = [
        disk.write("edge", None, 0, tokens(it), "", arrays_for("edge", None, 0, tokens(it)))
        for it in range(20)
    ]
    assert time.monotonic() - started < 1
    accepted = [it for it in written if it is not None]
    assert accepted == written[: len(accepted)]
    assert disk.stats.refused == {"busy": 20 - len(accepted)}
    assert 2000 < disk.stats.queued_bytes < 4000
    gate.set()
    assert disk.flush(10)
    assert files(tmp_path) == set(accepted)
    disk.close()


@pytest.mark.parametrize("code", ["ENOSPC", "EACCES", "EIO"])
def test_a_full_or_broken_disk_loses_the_entry_and_says_so_once(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    number = getattr(errno, code)
    disk = Disk(tmp_path, SPACE, LIMIT)
    good = put(disk, "edge", None, 0, tokens(1, 2))
    assert disk.flush(10)
    replace = os.replace

    def broken(*args: object, **more: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", broken)
    bad = [put(disk, "edge", None, 0, tokens(it)) for it in range(5)]
    below = put(disk, "snapshot", bad[-1], 1, NONE)
    assert disk.flush(10)
    monkeypatch.setattr(os, "replace", replace)
    assert set(disk.take_gone()) == {*bad, below}
    assert disk.stats.removed == {"failed": 6}
    assert [os.strerror(number) in message for message in caplog.messages] == [True]
    assert disk.flush(10)
    assert files(tmp_path) == {good}
    assert put(disk, "edge", None, 0, tokens(0)) == bad[0]
    assert fetch(disk, bad[0]).arrays is not None
    disk.check_integrity()
    disk.close()


def test_a_file_that_cannot_be_removed_still_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path, SPACE, LIMIT)
    put(disk, "edge", None, 0, tokens(1))
    assert disk.flush(10)
    size = disk.stats.bytes
    disk.close()
    disk = Disk(tmp_path, SPACE, 2 * size)

    def broken(self: Folder, name: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Folder, "unlink", broken)
    disk.clear()
    assert disk.flush(10)
    monkeypatch.undo()
    for it in range(2, 6):
        put(disk, "edge", None, 0, tokens(it))
        assert disk.flush(10)
        assert len(files(tmp_path)) == 2
    disk.close()


def test_running_out_of_descriptors_does_not_cost_the_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path, SPACE, LIMIT)
    name = put(disk, "edge", None, 0, tokens(1))
    assert disk.flush(10)

    def short(*args: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Folder, "_open", short)
    assert fetch(disk, name).why == "it cannot be read: Too many open files"
    monkeypatch.undo()
    assert disk.take_gone() == []
    assert fetch(disk, name).arrays is not None
    disk.close()


def test_a_closed_tier_refuses_and_says_so(tmp_path: Path) -> None:
    disk = Disk(tmp_path, SPACE, LIMIT)
    names = grow(disk)
    disk.close()
    disk.close()
    assert disk.write("edge", None, 0, tokens(1, 2, 3, 4, 5, 6), "", {}) is None
    assert disk.read(names["trunk"]).why == "it is closed"
    assert not [it for it in threading.enumerate() if it.name.startswith("disk-")]


def test_closing_does_not_wait_for_a_hung_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    monkeypatch.setattr(Folder, "write", lambda *args: gate.wait(30))
    disk = Disk(tmp_path, SPACE, LIMIT)
    grow(disk)
    started = time.monotonic()
    disk.close(patience=0.1)
    assert time.monotonic() - started < 3
    gate.set()
