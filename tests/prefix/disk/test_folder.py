"""Whose folder it is, who may look into it, and what other tools find there."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import safetensors

from bushel.cache.prefix.disk import Disk, HostArray, folder
from bushel.cache.prefix.disk.folder import Folder
from bushel.core import BushelError
from tests.prefix.disk.trees import (
    LIMIT,
    SPACE,
    fetch,
    grow,
    only_folder,
    put,
    tokens,
)


def test_two_servers_do_not_destroy_each_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = Disk(tmp_path, SPACE, LIMIT)
    names = grow(first)
    second = Disk(tmp_path, SPACE, LIMIT, patience=0.1)
    assert second.off == "another process uses its folder"
    assert [
        message for message in caplog.messages if "another process" in message
    ] == caplog.messages
    assert len(caplog.messages) == 1
    assert second.found == []
    assert second.write("edge", None, 0, tokens(1), "", {}) is None
    assert fetch(second, names["trunk"]).why == second.off
    second.touch(names["trunk"])
    second.clear()
    second.check_integrity()
    assert second.flush(1)
    second.close()
    other = Disk(tmp_path, "another model", LIMIT)
    put(other, "edge", None, 0, tokens(1))
    other.close()
    first.close()
    third = Disk(tmp_path, SPACE, LIMIT)
    assert len(third.found) == len(names)
    third.close()


def test_a_process_that_is_just_ending_is_waited_for(tmp_path: Path) -> None:
    first = Disk(tmp_path, SPACE, LIMIT)
    timer = threading.Timer(0.2, first.close)
    timer.start()
    second = Disk(tmp_path, SPACE, LIMIT)
    assert not second.off
    timer.join()
    second.close()


def test_only_the_user_can_look_inside(tmp_path: Path) -> None:
    cache = tmp_path / "new" / "cache"
    disk = Disk(cache, SPACE, LIMIT)
    grow(disk)
    disk.close()
    for path in (cache, *cache.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_linked_folder_is_refused(depth: int, tmp_path: Path) -> None:
    cache, elsewhere = tmp_path / "cache", tmp_path / "elsewhere"
    Disk(cache, SPACE, LIMIT).close()
    linked = only_folder(cache) if depth == 2 else only_folder(cache).parent
    linked.rename(elsewhere)
    linked.symlink_to(elsewhere)
    with pytest.raises(BushelError, match=r"cannot be used: .* is a link\. Choose another"):
        Disk(cache, SPACE, LIMIT)


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for cache in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(BushelError) as failed:
            Disk(cache, SPACE, LIMIT)
        assert "cannot be used" in str(failed.value)
        assert "\n" not in str(failed.value)


def test_older_layouts_are_removed_and_nothing_else(tmp_path: Path) -> None:
    name = f"{'0' * 64}.safetensors"
    kept = [tmp_path / "v0" / "mine" / "thesis.txt", tmp_path / "v9" / "newer" / name]
    used = tmp_path / "v0" / "used" / name
    for path in (*kept, used, tmp_path / "v0" / "model" / name):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
        (path.parent / "lock").write_text("")
    kept[0].with_name("lock").unlink()
    with (used.parent / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        Disk(tmp_path, SPACE, LIMIT).close()
    assert not (tmp_path / "v0" / "model").exists()
    assert all(it.exists() for it in (*kept, used))
    Disk(tmp_path, SPACE, LIMIT).close()
    assert not used.parent.exists()
    assert all(it.exists() for it in kept)


def test_a_system_that_takes_only_so_much_at_once_gets_and_gives_all_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS answers EINVAL to one byte more than 2 GiB; the same with smaller numbers."""
    most, read, write = 1 << 10, os.readv, os.write

    def readv(fd: int, buffers: list[memoryview]) -> int:
        if sum(map(len, buffers)) > most:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return read(fd, buffers)

    def written(fd: int, data: memoryview) -> int:
        if len(data) > most:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return write(fd, data)

    monkeypatch.setattr(folder, "_PIECE", most)
    monkeypatch.setattr(os, "readv", readv)
    monkeypatch.setattr(os, "write", written)
    disk = Disk(tmp_path, SPACE, LIMIT)
    data = bytes(range(256)) * 20
    arrays = {"long": HostArray("uint8", (len(data),), data)}
    name = disk.write("edge", None, 0, tokens(1, 2), "", arrays)
    assert name is not None
    assert disk.flush(10)
    found = fetch(disk, name)
    assert found.arrays is not None, found.why
    assert bytes(found.arrays["long"].data) == data
    disk.close()


def test_models_whose_names_differ_by_case_alone_have_folders_that_do_not(tmp_path: Path) -> None:
    """On most Macs `Qwen` and `qwen` are one folder."""
    names = {Folder(tmp_path, f"{name} of an org").path.name for name in ("Qwen", "qwen", "QWEN")}
    assert len({name.lower() for name in names}) == 3


def test_any_tool_can_open_the_files(tmp_path: Path) -> None:
    disk = Disk(tmp_path, SPACE, LIMIT)
    arrays = {
        "odd": HostArray("uint8", (3,), b"abc"),
        "half": HostArray("bfloat16", (1, 3), b"123456"),
        "wide": HostArray("float32", (2,), b"12345678"),
    }
    name = disk.write("edge", None, 0, tokens(7, -8), "ein Gruß, \u4f60", arrays)
    disk.close()
    data = (only_folder(tmp_path) / f"{name}.safetensors").read_bytes()
    found = dict(safetensors.deserialize(data))
    assert found["key"]["data"] == tokens(7, -8).tobytes()
    assert found["array:half"]["dtype"] == "BF16"
    assert {it: bytes(found[f"array:{it}"]["data"]) for it in arrays} == {
        it: array.data for it, array in arrays.items()
    }


def test_a_thousand_files_are_found_in_well_under_a_second(
    tmp_path: Path,
) -> None:
    disk = Disk(tmp_path, SPACE, LIMIT)
    parent, start = None, 0
    for it in range(1000):
        parent = put(disk, "edge", parent if it % 20 else None, start if it % 20 else 0, tokens(it))
        start = start + 1 if it % 20 else 1
    disk.close(patience=30)
    started = time.process_time()
    disk = Disk(tmp_path, SPACE, LIMIT)
    assert (
        time.process_time() - started < 1
    )  # measured: 0.1 s with one tensor, 0.2 s with 72 and 512 tokens
    assert len(disk.found) == 1000
    disk.close()


def test_it_needs_no_mlx() -> None:
    source = (
        "import sys, types, pathlib, bushel\n"
        "cache = pathlib.Path(bushel.__path__[0]) / 'cache'\n"
        "for name, path in (('cache', cache), ('cache.prefix', cache / 'prefix')):\n"
        "    package = sys.modules[f'bushel.{name}'] = types.ModuleType(name)\n"
        "    package.__path__ = [str(path)]\n"
        "import bushel.cache.prefix.disk\n"
        "sys.exit('mlx.core' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", source], check=False).returncode == 0
