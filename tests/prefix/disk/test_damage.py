"""Every file of a tree damaged in turn, in every way: a miss that says why, and nothing worse.

Each damage is met at the next start, and, where the file is already known, by a read.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from bushel.cache.prefix.disk import Disk, file_format
from tests.depth import one_in
from tests.prefix.disk.damages import (
    DAMAGES,
    SEEN_BY_READS_ALONE,
    SILENT_AT_START,
    changed,
    flip_tensor,
    flips,
    other_content,
    regions,
)
from tests.prefix.disk.trees import (
    BELOW,
    LIMIT,
    SPACE,
    fetch,
    files,
    finish,
    grow,
    only_folder,
    put,
    right,
)


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    path = tmp_path_factory.mktemp("grown")
    disk = Disk(path, SPACE, LIMIT)
    names = grow(disk)
    disk.close()
    return path, names


@pytest.mark.parametrize("which", one_in(2, BELOW))
@pytest.mark.parametrize("what", DAMAGES)
def test_damage_met_by_a_read(
    what: str,
    which: str,
    grown: tuple[Path, dict[str, str]],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also of files that were damaged before the start, where a start does not look."""
    damage, reason = DAMAGES[what]
    source, names = grown
    shutil.copytree(source, tmp_path / "cache")
    disk = Disk(tmp_path / "cache", SPACE, LIMIT)
    entries = {it.name: it for it in disk.found}
    damage(only_folder(tmp_path / "cache") / f"{names[which]}.safetensors")
    reading = fetch(disk, names[which])
    assert reading.arrays is None
    assert re.search(reason, reading.why)
    went = {names[it] for it in {which, *BELOW[which]}}
    assert set(disk.take_gone()) == went
    assert [
        message for message in caplog.messages if reading.why in message and names[which] in message
    ]
    for name in set(names.values()) - went:
        assert right(disk, entries[name])
    assert disk.flush(10)
    strays = {"f" * 64} if what == "renamed" else set()
    assert files(tmp_path / "cache") == set(names.values()) - went | strays
    disk.check_integrity()
    entry = entries[names[which]]
    if entry.parent is None or entry.parent not in went:  # and it can be written again
        assert put(disk, entry.kind, entry.parent, entry.start, entry.key) == entry.name
        assert disk.flush(10)
        assert right(disk, entry)
    disk.close()


@pytest.mark.parametrize("which", one_in(2, BELOW))
@pytest.mark.parametrize("what", sorted(set(DAMAGES) - SEEN_BY_READS_ALONE))
def test_damage_met_at_the_start(
    what: str,
    which: str,
    grown: tuple[Path, dict[str, str]],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    damage, reason = DAMAGES[what]
    source, names = grown
    shutil.copytree(source, tmp_path / "cache")
    damage(only_folder(tmp_path / "cache") / f"{names[which]}.safetensors")
    disk = Disk(tmp_path / "cache", SPACE, LIMIT)
    kept = set(names.values()) - {names[it] for it in {which, *BELOW[which]}}
    assert {it.name for it in disk.found} == kept == files(tmp_path / "cache")
    assert all(right(disk, it) for it in disk.found)
    assert disk.read(names[which]).why == "it is not on disk"
    about = [message for message in caplog.messages if "stands on" not in message]
    assert len(about) == (what not in SILENT_AT_START)
    assert all(re.search(reason, it) for it in about)
    assert len(caplog.messages) - len(about) == len(BELOW[which])  # a line for each orphan
    disk.check_integrity()
    disk.close()


def test_every_flipped_bit_is_noticed(grown: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    """At the start, unless it lies in the tensors; there, by a read."""
    source, names = grown
    for which in ("leaf", "at leaf"):
        cache = tmp_path / which
        shutil.copytree(source, cache)
        path = only_folder(cache) / f"{names[which]}.safetensors"
        data = path.read_bytes()
        seen = set()
        for region, at, bit in flips(data):
            path.write_bytes(changed(data, at, bit))
            disk = Disk(cache, SPACE, LIMIT)
            known = names[which] in {it.name for it in disk.found}
            assert known == (region == "tensors"), (region, at, bit)
            if known:
                assert fetch(disk, names[which]).why == "the checksum of its tensors is wrong"
                disk.take_gone()
                assert disk.flush(10)
            assert not path.exists()
            disk.close()
            restore(source, cache)
            seen.add(region)
        assert seen == {"size", "metadata", "table", "tensors"} | (
            {"key"} if which == "leaf" else set()
        )


def restore(source: Path, cache: Path) -> None:
    for file in only_folder(source).glob("*.safetensors"):
        if not (only_folder(cache) / file.name).exists():
            shutil.copy(file, only_folder(cache))


def test_every_truncation_is_noticed(grown: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    source, names = grown
    cache = tmp_path / "cache"
    shutil.copytree(source, cache)
    path = only_folder(cache) / f"{names['right']}.safetensors"
    data = path.read_bytes()
    near = {
        at + by for start, end in regions(data).values() for at in (start, end) for by in (-1, 0, 1)
    }
    lengths = near | set(range(0, len(data), 7))
    for length in sorted(it for it in lengths if 0 <= it < len(data)):
        path.write_bytes(data[:length])
        disk = Disk(cache, SPACE, LIMIT)
        assert {it.name for it in disk.found} == set(names.values()) - {names["right"]}
        assert not path.exists()
        path.write_bytes(data)
        disk.close()
        disk = Disk(cache, SPACE, LIMIT)
        path.write_bytes(data[:length])
        reading = fetch(disk, names["right"])
        assert reading.arrays is None
        disk.close()
        path.write_bytes(data)


def test_what_does_not_belong_is_removed_and_a_full_folder_is_not(
    grown: tuple[Path, dict[str, str]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, names = grown
    shutil.copytree(source, tmp_path / "cache")
    folder = only_folder(tmp_path / "cache")
    (folder / "notes.txt").write_text("x")
    (folder / "1234-1.tmp").write_text("x")
    (folder / "dangling").symlink_to("nowhere")
    (folder / f"{'0' * 64}.safetensors").mkdir()
    (folder / "mine").mkdir()
    (folder / "mine" / "thesis.txt").write_text("x")
    disk = Disk(tmp_path / "cache", SPACE, LIMIT)
    assert len(disk.found) == len(names)
    assert len(caplog.messages) == 5
    assert {it.name for it in folder.iterdir() if "safe" not in it.name} == {"lock", "mine"}
    assert (folder / "mine" / "thesis.txt").exists()
    disk.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_not_believed(
    grown: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    source, names = grown
    shutil.copytree(source, tmp_path / "cache")
    os.chown(only_folder(tmp_path / "cache") / f"{names['right']}.safetensors", 12345, 12345)
    disk = Disk(tmp_path / "cache", SPACE, LIMIT)
    assert {it.name for it in disk.found} == set(names.values()) - {names["right"]}
    disk.close()


# -- controls: without a check, the damage passes ------------------------------------------


def test_without_the_checksum_a_flipped_bit_is_served(
    grown: tuple[Path, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, names = grown
    shutil.copytree(source, tmp_path / "cache")
    flip_tensor(only_folder(tmp_path / "cache") / f"{names['right']}.safetensors")
    monkeypatch.setattr(file_format, "check_body", lambda *_: None)
    disk = Disk(tmp_path / "cache", SPACE, LIMIT)
    entry = next(it for it in disk.found if it.name == names["right"])
    assert finish(disk, disk.read(entry.name)).arrays is not None
    assert not right(disk, entry)
    disk.close()


def test_without_the_checksum_a_flipped_note_is_found(
    grown: tuple[Path, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, names = grown
    shutil.copytree(source, tmp_path / "cache")
    path = only_folder(tmp_path / "cache") / f"{names['right']}.safetensors"
    path.write_bytes(path.read_bytes().replace(b"a edge", b"b edge"))
    monkeypatch.setattr(file_format, "check_head", lambda *_: None)
    disk = Disk(tmp_path / "cache", SPACE, LIMIT)
    assert [it.note for it in disk.found if it.name == names["right"]] == ["b edge"]
    disk.close()


def test_without_the_name_check_another_files_arrays_are_served(
    grown: tuple[Path, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, names = grown
    shutil.copytree(source, tmp_path / "cache")
    disk = Disk(tmp_path / "cache", SPACE, LIMIT)
    entry = next(it for it in disk.found if it.name == names["right"])
    other_content(only_folder(tmp_path / "cache") / f"{names['right']}.safetensors")
    monkeypatch.setattr(file_format, "name_of", lambda *_: names["right"])
    assert fetch(disk, entry.name).arrays is not None
    assert not right(disk, entry)
    disk.close()
