"""Which Bushel servers this user runs on this machine, for commands that look for one.

servers/4711         url, process, since; locked for as long as its server runs
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from bushel.core.held_files import HeldFile, held_folder, read_held

_FOLDER = "servers"


class ServerRecord(msgspec.Struct, frozen=True):
    url: str  # from this machine
    process: int
    since: float  # by the clock of the wall


def announced(host: str, port: int, folder: Path | None = None) -> HeldFile[ServerRecord]:
    """This process serves there until the file is closed."""
    name = f"{os.getpid()}-{port}"
    held: HeldFile[ServerRecord] = HeldFile(held_folder(_FOLDER, folder) / name)
    held.write(ServerRecord(_url(host, port), os.getpid(), time.time()))
    return held


def running_servers(folder: Path | None = None) -> list[ServerRecord]:
    """The newest first."""
    paths = held_folder(_FOLDER, folder).iterdir()
    found = [record for path in paths if (record := read_held(path, ServerRecord)) is not None]
    return sorted(found, key=lambda record: -record.since)


def _url(host: str, port: int) -> str:
    """Of an address that listens on all, the one of this machine."""
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
