"""The folder of one namespace: whose it is, what lies in it, and files one at a time.

    <cache folder>/v<layout>/<namespace>/<name>.safetensors
                                        /lock            held by the process that uses it
                                        /<...>.tmp       being written

All paths below the cache folder are opened step by step and no link is followed. A file is
complete or absent: it is written under a temporary name and then renamed. It is not synced,
so after a power failure it may hold anything; its checksums tell.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bushel.cache.prefix.disk.file_format import (
    VERSION,
    Entry,
    FileDraft,
    Header,
    HostArray,
    UnusableFile,
    header_end,
)
from bushel.core import BushelError

_SUFFIX = ".safetensors"
FILE = re.compile(rf"[0-9a-f]{{64}}{re.escape(_SUFFIX)}")
# Of a file, in one read: its header and most keys (a header has 2 KB per 20 tensors).
_FIRST_READ = 64 << 10
_PIECE = 16 << 20  # macOS neither reads nor writes more than 2 GiB at once
# A pipe in place of a file must not stop the reader: O_NONBLOCK.
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Folder:
    def __init__(self, path: Path, namespace: str):
        self.namespace = namespace
        self._temporary = 0
        self._lock: int | None = None
        slug = re.sub(r"[^a-z0-9]+", "-", namespace.lower()).strip("-")[:40]
        digest = hashlib.sha256(namespace.encode()).hexdigest()[:16]
        self.path = path / f"v{VERSION}" / f"{slug}-{digest}".lstrip("-")
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            above = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            layout = _subfolder(above, self.path.parent.name)
            self._fd = _subfolder(layout, self.path.name)
        except (OSError, UnusableFile) as error:
            raise _unusable(self.path, error) from None

    def lock(self, patience: float) -> bool:
        """Whether the folder is ours alone; a process that is just ending gets `patience` s."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        until = time.monotonic() + patience
        try:
            lock = os.open("lock", flags, 0o600, dir_fd=self._fd)
            while not _lock(lock):
                if time.monotonic() >= until:
                    os.close(lock)
                    return False
                time.sleep(0.02)
        except OSError as error:
            raise _unusable(self.path, error) from None
        self._lock = lock
        return True

    def close(self) -> None:
        os.close(self._fd)
        if self._lock is not None:
            os.close(self._lock)

    # -- all files -------------------------------------------------------------------------

    def scan(self) -> Iterator[tuple[str, Entry | str, int]]:
        """Everything but the lock: file name, what it is or why it must go, its recency."""
        try:
            names = [name for name in os.listdir(self._fd) if name != "lock"]
        except OSError as error:
            raise _unusable(self.path, error) from None
        for name in names:
            try:
                yield name, *self._glance(name)
            except FileNotFoundError:
                continue
            except UnusableFile as error:
                yield name, str(error), 0
            except OSError as error:
                yield name, f"it cannot be read: {error.strerror}", 0

    def _glance(self, file: str) -> tuple[Entry, int]:
        if file.endswith(".tmp"):
            raise UnusableFile("it was never finished")
        if not FILE.fullmatch(file):
            raise UnusableFile("it is not one of ours")
        fd, about = self._open(file)
        try:
            start = os.pread(fd, _FIRST_READ, 0)
            end = header_end(start, about.st_size)
            start += _rest(fd, len(start), end)
            header = Header(start[:end])
            end += header.key_nbytes
            if end > about.st_size:
                raise UnusableFile("it ends within its key")
            start += _rest(fd, len(start), end)
        finally:
            os.close(fd)
        key = start[header.nbytes : end]
        name = file.removesuffix(_SUFFIX)
        return header.entry(key, name, self.namespace, about.st_size), about.st_mtime_ns

    def discard(self, file: str) -> None:
        """A file, link or empty folder. A folder with something in it is nobody's to delete."""
        try:
            os.unlink(file, dir_fd=self._fd)
        except FileNotFoundError:
            pass
        except OSError as error:
            try:
                os.rmdir(file, dir_fd=self._fd)
            except NotADirectoryError:
                raise error from None

    # -- one file --------------------------------------------------------------------------

    def read(self, name: str) -> tuple[Entry, dict[str, HostArray]]:
        """Every byte is checked. Raises UnusableFile or OSError."""
        fd, about = self._open(name + _SUFFIX)
        try:
            # Unlike a bytearray, this is not filled with zeros first.
            data = np.empty(about.st_size, np.uint8).data
            at = 0
            while at < len(data):
                got = os.readv(fd, [data[at : at + _PIECE]])
                if not got:
                    raise UnusableFile("it became shorter while it was read")
                at += got
        finally:
            os.close(fd)
        end = header_end(data, len(data))
        header = Header(data[:end])
        start = end + header.key_nbytes
        entry = header.entry(data[end:start], name, self.namespace, len(data))
        return entry, header.arrays(data[start:].toreadonly())

    def write(self, name: str, draft: FileDraft, stamp: int) -> None:
        self._temporary += 1
        temporary = f"{os.getpid()}-{self._temporary}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(temporary, flags, 0o600, dir_fd=self._fd)
        try:
            try:
                for piece in draft.sealed():
                    view = memoryview(piece)
                    while view:
                        view = view[os.write(fd, view[:_PIECE]) :]
                os.utime(fd, ns=(stamp, stamp))
            finally:
                os.close(fd)
            os.replace(temporary, name + _SUFFIX, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except BaseException:
            os.unlink(temporary, dir_fd=self._fd)
            raise

    def stamp(self, name: str, stamp: int) -> None:
        fd, _ = self._open(name + _SUFFIX)
        try:
            os.utime(fd, ns=(stamp, stamp))
        finally:
            os.close(fd)

    def unlink(self, name: str) -> None:
        self.discard(name + _SUFFIX)

    def _open(self, file: str) -> tuple[int, os.stat_result]:
        try:
            fd = os.open(file, _OPEN, dir_fd=self._fd)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise UnusableFile("it is a link") from None
            raise
        about = os.fstat(fd)
        if stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid():
            return fd, about
        os.close(fd)
        raise UnusableFile("it is not a regular file of ours")


def _unusable(path: Path, error: OSError | UnusableFile) -> BushelError:
    why = error.strerror if isinstance(error, OSError) else error
    return BushelError(
        f"The cache folder {path} cannot be used: {why}. Choose another with --cache-dir."
    )


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _rest(fd: int, start: int, end: int) -> bytes:
    pieces = []
    while start < end and (piece := os.pread(fd, end - start, start)):
        pieces.append(piece)
        start += len(piece)
    if start < end:
        raise UnusableFile("it became shorter while it was read")
    return b"".join(pieces)


def _subfolder(above: int, name: str) -> int:
    """Open it, made if need be, and close the one above."""
    try:
        try:
            os.mkdir(name, 0o700, dir_fd=above)
        except FileExistsError:
            if stat.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
                raise UnusableFile(f"{name} is a link") from None
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, dir_fd=above)
    finally:
        os.close(above)
    about = os.fstat(fd)
    if about.st_uid != os.geteuid():
        os.close(fd)
        raise UnusableFile(f"{name} belongs to someone else")
    if about.st_mode & 0o077:
        os.fchmod(fd, 0o700)
    return fd
