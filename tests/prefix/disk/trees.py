"""Small trees of entries whose arrays follow from what they are for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bushel.cache.prefix.disk import Disk, Entry, HostArray, Kind, PendingRead

SPACE = "some/Model-4bit"
LIMIT = 1 << 30
NONE = np.zeros(0, np.int64)


def tokens(*ids: int) -> np.ndarray:
    return np.array(ids, np.int64)


def arrays_for(
    kind: str, parent: str | None, start: int, key: np.ndarray, rows: int = 3
) -> dict[str, HostArray]:
    """Whoever has an entry can tell what must be in it."""
    said = f"{kind} {parent} {start} {key.tolist()}".encode()
    data = (hashlib.sha512(said).digest() * (rows // 10 + 1))[: rows * 6]
    return {
        "0.keys": HostArray("bfloat16", (1, rows, 2), data[: rows * 4]),
        "0.values": HostArray("uint16", (rows,), data[rows * 4 :]),
        "flag": HostArray("bool", (), b"\x01"),
        "nothing": HostArray("float32", (0, 4), b""),
    }


def put(disk: Disk, kind: Kind, parent: str | None, start: int, key: np.ndarray) -> str:
    name = disk.write(kind, parent, start, key, f"a {kind}", arrays_for(kind, parent, start, key))
    assert name is not None
    return name


def grow(disk: Disk) -> dict[str, str]:
    """Four edges and three snapshots.

    trunk [0, 6) ┬ left [4, 7) ── leaf [7, 9)      snapshots at 6, at 7 of left, and at 9
                 └ right [6, 8)
    """
    trunk = put(disk, "edge", None, 0, tokens(1, 2, 3, 4, 5, 6))
    left = put(disk, "edge", trunk, 4, tokens(50, 60, 70))
    leaf = put(disk, "edge", left, 7, tokens(80, 90))
    right = put(disk, "edge", trunk, 6, tokens(7, 8))
    return {
        "trunk": trunk,
        "left": left,
        "leaf": leaf,
        "right": right,
        "at trunk": put(disk, "snapshot", trunk, 6, NONE),
        "at left": put(disk, "snapshot", left, 7, NONE),
        "at leaf": put(disk, "snapshot", leaf, 9, NONE),
    }


BELOW = {
    "trunk": {"left", "leaf", "right", "at trunk", "at left", "at leaf"},
    "left": {"leaf", "at left", "at leaf"},
    "leaf": {"at leaf"},
    "right": set[str](),
    "at trunk": set[str](),
    "at left": set[str](),
    "at leaf": set[str](),
}


def plain(arrays: Mapping[str, HostArray]) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {name: (it.dtype, it.shape, bytes(it.data)) for name, it in arrays.items()}


def finish(disk: Disk, reading: PendingRead) -> PendingRead:
    for _ in range(100):
        if reading.done:
            return reading
        disk.wait(0.1)
    raise AssertionError("the read does not end")


def fetch(disk: Disk, name: str) -> PendingRead:
    return finish(disk, disk.read(name))


def right(disk: Disk, entry: Entry, rows: int = 3) -> bool:
    """Whether it reads back as it was written."""
    reading = fetch(disk, entry.name)
    expected = arrays_for(entry.kind, entry.parent, entry.start, entry.key, rows)
    return reading.arrays is not None and plain(reading.arrays) == plain(expected)


def only_folder(path: Path) -> Path:
    """Of the one namespace below a cache folder."""
    (folder,) = path.glob("v*/*")
    return folder


def files(path: Path) -> set[str]:
    """The names of all entries that lie there; there is nothing else but the lock."""
    found = {it.name for it in only_folder(path).iterdir()} - {"lock"}
    assert all(it.endswith(".safetensors") for it in found), found
    return {it.removesuffix(".safetensors") for it in found}
