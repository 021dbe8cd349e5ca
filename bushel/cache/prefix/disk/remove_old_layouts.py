"""Files that earlier versions of Bushel wrote in another layout, and that nobody reads again."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bushel.cache.prefix.disk.file_format import VERSION
from bushel.cache.prefix.disk.folder import FILE


def remove_older(cache: Path) -> Iterator[Path]:
    """Empty the folders of older layouts that no process uses; yields those it emptied.

    Only what has the names of our files is removed, and a folder only once it is empty.
    """
    for layout in _folders(cache):
        if not re.fullmatch(r"v\d{1,9}", layout.name) or int(layout.name[1:]) >= VERSION:
            continue
        for folder in _folders(layout):
            with suppress(OSError):
                _empty(folder)
                yield folder
        with suppress(OSError):
            layout.rmdir()


def _folders(path: Path) -> list[Path]:
    with suppress(OSError):
        return [folder for folder in path.iterdir() if folder.is_dir() and not folder.is_symlink()]
    return []


def _empty(folder: Path) -> None:
    """Raises OSError where another process holds the lock, or there never was one."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for file in folder.iterdir():
            if FILE.fullmatch(file.name) or file.suffix == ".tmp":
                file.unlink()
        (folder / "lock").unlink()
        folder.rmdir()
    finally:
        os.close(lock)
