"""The server's processes: which there are, and what each of them holds."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Role = Literal["front", "engine", "worker"]
_MODULES: dict[str, Role] = {"bushel.engine.process": "engine", "bushel.chat.process": "worker"}


@dataclass(frozen=True)
class Held:
    role: Role
    pid: int
    memory: int  # bytes that are resident
    descriptors: int  # open; 0 where the system does not tell


def children(front: int) -> dict[int, Role]:
    """Of those that still run; a child between fork and exec has no role yet and is left out."""
    found = subprocess.run(
        ["ps", "-ww", "-A", "-o", "pid=,ppid=,stat=,args="],
        capture_output=True,
        text=True,
        check=True,
    )
    roles: dict[int, Role] = {}
    for line in found.stdout.splitlines():
        pid, parent, state, *words = line.split()
        if int(parent) == front and not state.startswith("Z"):
            for module in _MODULES.keys() & set(words):
                roles[int(pid)] = _MODULES[module]
    return roles


def held(front: int) -> list[Held]:
    """Of the server's processes, the front first."""
    roles: dict[int, Role] = {front: "front", **children(front)}
    return [Held(role, pid, _memory(pid), _descriptors(pid)) for pid, role in roles.items()]


def _memory(pid: int) -> int:
    found = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True)
    return int(found.stdout or 0) * 1024


def _descriptors(pid: int) -> int:
    folder = Path(f"/proc/{pid}/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


def left_over(before: list[Held], after: list[Held]) -> list[str]:
    """What the second list holds that the first does not explain."""
    found = []
    for role in ("front", "engine", "worker"):
        old = [it for it in before if it.role == role]
        new = [it for it in after if it.role == role]
        if len(old) != len(new):
            found.append(f"{len(new)} processes as {role}, not {len(old)}")
            continue
        most = max(it.memory for it in old) * 1.1 + 50e6
        found += [
            f"{role} {it.pid} holds {it.memory / 1e6:.0f} MB, {most / 1e6:.0f} at most"
            for it in new
            if it.memory > most
        ]
        files = max(it.descriptors for it in old)
        found += [
            f"{role} {it.pid} has {it.descriptors} descriptors, not {files}"
            for it in new
            if it.descriptors > files
        ]
    return found
