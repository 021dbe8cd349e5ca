"""Ways in which a file can be wrong, each with what a person is told about it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from bushel.cache.prefix.disk import Disk, file_format
from bushel.cache.prefix.disk.file_format import Header
from tests.prefix.disk.trees import LIMIT, only_folder, put, tokens

Damage = Callable[[Path], object]


def regions(data: bytes) -> dict[str, tuple[int, int]]:
    end = 8 + int.from_bytes(data[:8], "little")
    key = end + Header(data[:end]).key_nbytes
    meta = data.index(b"}", 8)
    return {
        "size": (0, 8),
        "metadata": (8, meta),
        "table": (meta, end),
        "key": (end, key),
        "tensors": (key, len(data)),
    }


def flips(data: bytes) -> Iterator[tuple[str, int, int]]:
    """Region, byte and bit: each bit of some bytes, one bit of some more."""
    for region, (start, end) in regions(data).items():
        step = max(1, (end - start) // 40)
        for at in range(start, end, step):
            yield region, at, (at * 5) % 8
        for bit in range(8):
            if end > start:
                yield region, end - 1, bit


def changed(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def replaced(old: bytes, new: bytes) -> Damage:
    """Somebody else's file, whose own checksums are right."""

    def damage(path: Path) -> None:
        data = path.read_bytes()
        assert old in data
        assert len(old) == len(new)
        data = data.replace(old, new, 1)
        end = 8 + int.from_bytes(data[:8], "little")
        key = end + Header(data[:end]).key_nbytes
        start = bytearray(data[:end])
        start[file_format._HEAD] = file_format._head_sum(start, data[end:key])
        path.write_bytes(start + data[end:])

    return damage


def flip_tensor(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(changed(data, len(data) - 1, 0))


def link(path: Path) -> None:
    """To a file that would do."""
    path.rename(path.parents[2] / "elsewhere")
    path.symlink_to(path.parents[2] / "elsewhere")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def other_name(path: Path) -> None:
    """Under the name of something that was never written."""
    path.rename(path.with_name(f"{'f' * 64}.safetensors"))


def other_content(path: Path) -> None:
    """A file of ours that is sound, but stands for something else."""
    other = min(it for it in path.parent.glob("*.safetensors") if it != path)
    shutil.copy(other, path)


def other_model(path: Path) -> None:
    cache = path.parents[2] / "other"
    disk = Disk(cache, "other/Model", LIMIT)
    name = put(disk, "edge", None, 0, tokens(1, 2, 3, 4, 5, 6))
    disk.close()
    shutil.copy(only_folder(cache) / f"{name}.safetensors", path)
    shutil.rmtree(cache)


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


DAMAGES: dict[str, tuple[Damage, str]] = {
    "flip": (flip_tensor, "checksum of its tensors"),
    "half": (half, "bytes|header|key"),
    "longer": (longer, "bytes instead of"),
    "empty": (lambda path: path.write_bytes(b""), "only 0 bytes"),
    "zeros": (lambda path: path.write_bytes(bytes(path.stat().st_size)), "size of its header"),
    "text": (lambda path: path.write_bytes(b"hello " * 200), "size of its header"),
    "version": (replaced(b'"layout":"2"', b'"layout":"0"'), "version '0'"),
    "namespace": (replaced(b"some/Model", b"gone/Model"), "another namespace"),
    "shape": (replaced(b'"shape":[1,3,2]', b'"shape":[1,3,3]'), "tensor .* damaged"),
    "dtype": (replaced(b'"BF16"', b'"BF61"'), "tensor .* damaged"),
    "other model": (other_model, "another namespace"),
    "other content": (other_content, "name does not match"),
    "link": (link, "a link"),
    "folder": (folder, "not a regular file"),
    "pipe": (pipe, "not a regular file"),
    "missing": (Path.unlink, "No such file"),
    "renamed": (other_name, "name does not match|No such file"),
}
# A start reads no tensors, and nobody misses what nobody knows.
SEEN_BY_READS_ALONE = {"flip", "shape", "dtype"}
SILENT_AT_START = {"missing"}
