"""What the prefix tree sees of the disk tier when nothing goes wrong."""

from __future__ import annotations

import threading
import time
import weakref
from pathlib import Path

import pytest

from bushel.cache.prefix.disk import Disk, HostArray
from bushel.cache.prefix.disk.folder import Folder
from bushel.core import IntegrityError
from tests.prefix.disk.trees import (
    BELOW,
    LIMIT,
    NONE,
    SPACE,
    arrays_for,
    fetch,
    files,
    finish,
    grow,
    only_folder,
    plain,
    put,
    right,
    tokens,
)


def test_entries_survive_a_restart_parents_first(tmp_path: Path) -> None:
    disk = Disk(tmp_path, SPACE, LIMIT)
    names = grow(disk)
    disk.close()
    disk = Disk(tmp_path, SPACE, LIMIT)
    assert {it.name for it in disk.found} == set(names.values()) == files(tmp_path)
    seen: set[str | None] = {None}
    for entry in disk.found:
        assert entry.parent in seen
        assert entry.note == f"a {entry.kind}"
        assert right(disk, entry)
        seen.add(entry.name)
    assert disk.stats.bytes == sum(it.stat().st_size for it in only_folder(tmp_path).iterdir())
    disk.check_integrity()
    disk.close()


def test_an_entry_can_be_read_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    write = Folder.write
    monkeypatch.setattr(Folder, "write", lambda *args: (gate.wait(10), write(*args)))
    disk = Disk(tmp_path, SPACE, LIMIT)
    started = time.monotonic()
    name = put(disk, "edge", None, 0, tokens(1, 2))
    reading = disk.read(name)
    assert time.monotonic() - started < 1
    assert reading.done
    assert reading.arrays is not None
    assert disk.stats.queued_bytes == disk.stats.bytes > 0
    gate.set()
    assert disk.flush(10)
    assert disk.stats.queued_bytes == 0
    again = fetch(disk, name)
    assert again.arrays is not None
    assert plain(again.arrays) == plain(reading.arrays)
    disk.close()


def test_writing_twice_is_writing_once(tmp_path: Path) -> None:
    disk = Disk(tmp_path, SPACE, LIMIT)
    first = grow(disk)
    assert grow(disk) == first
    assert disk.flush(10)
    assert disk.stats.written == len(first) == disk.stats.files
    disk.close()


def test_reads_of_one_name_share_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(tmp_path, SPACE, LIMIT)
    name = put(disk, "edge", None, 0, tokens(1))
    assert disk.flush(10)
    gate = threading.Event()
    read = Folder.read
    monkeypatch.setattr(Folder, "read", lambda *args: (gate.wait(10), read(*args))[1])
    first, second = disk.read(name), disk.read(name)
    assert first is second
    assert not first.done
    gate.set()
    finish(disk, first)
    assert disk.stats.read == 1
    assert fetch(disk, name) is not first
    disk.close()


def test_removing_takes_everything_below(tmp_path: Path) -> None:
    for which, below in BELOW.items():
        disk = Disk(tmp_path, SPACE, LIMIT)
        names = grow(disk)
        disk.take_gone()
        disk.remove(names[which])
        went = {names[it] for it in {which, *below}}
        assert set(disk.take_gone()) == went
        assert disk.take_gone() == []
        assert fetch(disk, names[which]).why == "it is not on disk"
        assert disk.flush(10)
        assert files(tmp_path) == set(names.values()) - went
        disk.check_integrity()
        disk.close()


def test_what_came_back_is_not_gone(tmp_path: Path) -> None:
    disk = Disk(tmp_path, SPACE, LIMIT)
    name = put(disk, "edge", None, 0, tokens(1))
    disk.clear()
    assert put(disk, "edge", None, 0, tokens(1)) == name
    assert disk.take_gone() == []
    assert disk.flush(10)
    assert files(tmp_path) == {name}
    disk.close()


def test_the_least_recently_used_leaf_goes_first_also_after_a_restart(tmp_path: Path) -> None:
    disk = Disk(tmp_path, SPACE, LIMIT)
    names = grow(disk)
    for which in ("at trunk", "at leaf", "right", "at left"):
        disk.touch(names[which])
    disk.close()
    each = {it.stem: it.stat().st_size for it in only_folder(tmp_path).glob("*.safetensors")}
    order = ["at trunk", "at leaf", "leaf", "right", "at left", "left", "trunk"]
    limit = sum(each.values())
    for step, which in enumerate(order):
        limit -= each[names[which]]
        disk = Disk(tmp_path, SPACE, limit)
        assert {it.name for it in disk.found} == {names[it] for it in order[step + 1 :]}
        disk.close()


def test_room_is_made_without_what_the_new_entry_stands_on(tmp_path: Path) -> None:
    disk = Disk(tmp_path, SPACE, LIMIT)
    trunk = put(disk, "edge", None, 0, tokens(1, 2, 3))
    size = disk.stats.bytes
    other = put(disk, "edge", None, 0, tokens(9, 9, 9))
    disk.close()
    disk = Disk(tmp_path, SPACE, 2 * size + 100)
    leaf = put(disk, "edge", trunk, 3, tokens(4))  # the trunk was used least recently
    assert disk.take_gone() == [other]
    deeper = disk.write("edge", leaf, 4, tokens(5), "", arrays_for("edge", leaf, 4, tokens(5)))
    assert deeper is None  # nothing can go
    assert disk.stats.refused == {"limit": 1}
    assert disk.take_gone() == []
    assert disk.flush(10)
    assert files(tmp_path) == {trunk, leaf}
    disk.close()


def test_reads_race_removals(tmp_path: Path) -> None:
    disk = Disk(tmp_path, SPACE, LIMIT)
    hits = misses = 0
    for turn in range(60):
        names = grow(disk)
        assert disk.flush(10)
        readings = {which: disk.read(name) for which, name in names.items()}
        if turn % 3 == 0:
            disk.remove(names["trunk"])
        elif turn % 3 == 1:
            disk.remove(names["left"])
            names = grow(disk)  # while the old reads are still under way
        for reading in readings.values():
            finish(disk, reading)
            assert (reading.arrays is None) == bool(reading.why)
            hits += reading.arrays is not None
            misses += reading.arrays is None
        assert disk.stats.removed.get("damaged", 0) == 0
        disk.take_gone()
        disk.check_integrity()
        if turn % 3:
            assert disk.flush(10)
            assert files(tmp_path) == set(names.values())
    assert hits > 100  # with a race there is no telling how many misses
    disk.close()


def test_reading_and_writing_go_on_side_by_side(tmp_path: Path) -> None:
    disk = Disk(tmp_path, SPACE, LIMIT)
    rows = 20_000

    def big(it: int) -> str:
        key = tokens(it)
        name = disk.write("edge", None, 0, key, "", arrays_for("edge", None, 0, key, rows))
        assert name is not None
        return name

    old = [big(it) for it in range(20)]
    assert disk.flush(10)
    new = [big(it) for it in range(100, 150)]
    assert all(fetch(disk, name).arrays is not None for name in old * 2)
    assert disk.flush(10)
    disk.close()
    disk = Disk(tmp_path, SPACE, LIMIT)
    assert {it.name for it in disk.found} == {*old, *new}
    assert all(right(disk, it, rows) for it in disk.found)
    disk.close()


def test_an_entry_without_a_place_is_a_bug_of_the_caller(tmp_path: Path) -> None:
    disk = Disk(tmp_path, SPACE, LIMIT)
    trunk = put(disk, "edge", None, 0, tokens(1, 2))
    snapshot = put(disk, "snapshot", trunk, 2, NONE)
    for kind, parent, start, key in (
        ("edge", trunk, 3, tokens(1)),
        ("edge", None, 1, tokens(1)),
        ("edge", trunk, 1, NONE),
        ("snapshot", trunk, 1, tokens(1)),
        ("edge", snapshot, 2, tokens(1)),
    ):
        with pytest.raises(IntegrityError):
            disk.write(kind, parent, start, key, "", {})  # type: ignore[arg-type]
    with pytest.raises(IntegrityError, match="shape"):
        disk.write("edge", None, 0, tokens(5), "", {"a": HostArray("float32", (2,), b"1234")})
    assert disk.write("edge", "0" * 64, 3, tokens(1), "", {}) is None  # it may just have gone
    assert disk.stats.refused == {"parent": 1}
    disk.close()


def test_a_broken_index_is_noticed(tmp_path: Path) -> None:
    disk = Disk(tmp_path, SPACE, LIMIT)
    names = grow(disk)
    disk.check_integrity()
    disk._index._files.move_to_end(names["trunk"], last=False)
    with pytest.raises(IntegrityError, match="used before"):
        disk.check_integrity()
    disk.close()


def test_what_was_read_does_not_stay_in_memory(tmp_path: Path) -> None:
    disk = Disk(tmp_path, SPACE, LIMIT)
    name = put(disk, "edge", None, 0, tokens(1))
    assert disk.flush(10)
    reading = weakref.ref(fetch(disk, name))
    disk.take_gone()
    for _ in range(100):  # the thread may still be on its way out of the last job
        if reading() is None:
            break
        time.sleep(0.02)
    assert reading() is None
    disk.close()
