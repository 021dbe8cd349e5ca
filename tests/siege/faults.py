"""What goes wrong with processes, disks, folders and descriptors, one after or into the other."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.siege.exchange import Exchange
from tests.siege.processes import Role, children
from tests.siege.tally import Tally

Fault = Callable[[random.Random], Coroutine[Any, Any, None]]
_MANY = 700  # connections, more than the descriptors that the server is given


class Disk:
    """A file system of its own that can be full, where one may be mounted; a folder otherwise."""

    def __init__(self, folder: Path, megabytes: int = 48):
        self.folder = folder
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "none", str(folder)]
        with contextlib.suppress(FileNotFoundError):
            self.small = subprocess.run(mount, capture_output=True).returncode == 0

    small = False

    def fill(self) -> None:
        with contextlib.suppress(OSError), (self.folder / "filler").open("wb") as file:
            while True:
                file.write(bytes(1 << 20))

    def free(self) -> None:
        (self.folder / "filler").unlink(missing_ok=True)

    def close(self) -> None:
        if self.small:
            subprocess.run(["umount", str(self.folder)], capture_output=True)


class Faults:
    def __init__(self, front: int, port: int, operator: str, model: Path, disk: Disk, tally: Tally):
        self._front = front
        self._port = port
        self._operator = operator
        self._model = model
        self._disk = disk
        self._tally = tally
        self.seen: set[int] = set()  # every child there ever was, as far as anyone looked
        self.all: list[Fault] = [
            # Where the engine dies all the time, little else can go wrong.
            *(self.kill_engine, self.kill_again_and_again, self.stop_engine, self.model_away),
            *([self.kill_worker, self.stop_worker, self.many_connections, self.clear_cache] * 2),
            *([self.disk_full] * 2 if disk.small else []),
        ]

    def pids(self, *roles: Role) -> list[int]:
        found = children(self._front)
        self.seen.update(found)
        return [pid for pid, role in found.items() if role in roles]

    def _signal(self, chance: random.Random, number: int, *roles: Role) -> int | None:
        pids = self.pids(*roles)
        if not pids:
            return None
        pid = chance.choice(pids)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        return pid

    # -- processes ---------------------------------------------------------------------------

    async def kill_engine(self, chance: random.Random) -> None:
        self._signal(chance, signal.SIGKILL, "engine")

    async def kill_worker(self, chance: random.Random) -> None:
        self._signal(chance, signal.SIGKILL, "worker")

    async def kill_again_and_again(self, chance: random.Random) -> None:
        """Whatever recovers is killed while it recovers."""
        for _ in range(chance.randint(2, 5)):
            self._signal(chance, signal.SIGKILL, "engine", "worker")
            await asyncio.sleep(chance.random() * 4)

    async def stop_engine(self, chance: random.Random) -> None:
        await self._stop(chance, "engine")

    async def stop_worker(self, chance: random.Random) -> None:
        await self._stop(chance, "worker")

    async def _stop(self, chance: random.Random, role: Role) -> None:
        pid = self._signal(chance, signal.SIGSTOP, role)
        await asyncio.sleep(chance.choice([0.5, 3.0, 15.0]) * chance.random())
        if chance.random() < 0.3:
            self._signal(chance, signal.SIGKILL, role)
        with contextlib.suppress(ProcessLookupError):
            if pid is not None:
                os.kill(pid, signal.SIGCONT)

    # -- what they stand on ------------------------------------------------------------------

    async def model_away(self, chance: random.Random) -> None:
        """The checkpoint cannot be opened for a while, and something has to."""
        away = self._model.with_name("away")
        if away.exists():
            return
        self._model.rename(away)
        try:
            self._signal(chance, signal.SIGKILL, "engine", "worker")
            await asyncio.sleep(1 + 5 * chance.random())
        finally:
            away.rename(self._model)

    async def disk_full(self, chance: random.Random) -> None:
        self._disk.fill()
        await asyncio.sleep(1 + 6 * chance.random())
        self._disk.free()

    async def many_connections(self, chance: random.Random) -> None:
        """More than there are descriptors; meanwhile a process may die."""
        held: list[asyncio.StreamWriter] = []
        try:
            for _ in range(_MANY):
                with contextlib.suppress(OSError, TimeoutError):
                    async with asyncio.timeout(2.0):
                        _, writer = await asyncio.open_connection("127.0.0.1", self._port)
                        held.append(writer)
            if chance.random() < 0.5:
                self._signal(chance, signal.SIGKILL, "engine", "worker")
            await asyncio.sleep(1 + 4 * chance.random())
        finally:
            for writer in held:
                writer.transport.abort()

    async def clear_cache(self, chance: random.Random) -> None:
        headers = {"Authorization": f"Bearer {self._operator}"}
        with contextlib.suppress(OSError):
            async with Exchange(self._port, "DELETE", "/v1/cache", headers=headers) as body:
                await body.whole()
                if body.status not in (200, 503):
                    self._tally.bad(f"clearing the cache gave {body.status}")


async def strike(faults: Faults, seed: int, every: float, ended: asyncio.Event) -> None:
    """A fault every so many seconds, some while the one before is still there."""
    chance = random.Random(seed)
    running: set[asyncio.Task[None]] = set()
    while not ended.is_set():
        fault = chance.choice(faults.all)
        faults._tally.faults[fault.__name__] += 1
        task = asyncio.create_task(fault(random.Random(chance.getrandbits(32))))
        running.add(task)
        task.add_done_callback(running.discard)
        pause = 0.2 if chance.random() < 0.2 else every * 2 * chance.random()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), pause)
    await asyncio.gather(*running)
