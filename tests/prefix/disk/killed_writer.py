"""A writer that is killed again and again; each time a new process looks at what is left.

    python -m tests.prefix.disk.killed_writer FOLDER ROUNDS [careless]

Both are forks of this one, because starting Python costs more than the rest of a round. Prints
how many rounds there were, in how many a file was half written, and how many entries were
read back. A careless writer says that an entry is there before it is.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bushel.cache.prefix.disk import Disk
from tests.prefix.disk.trees import (
    LIMIT,
    NONE,
    SPACE,
    arrays_for,
    files,
    only_folder,
    right,
    tokens,
)

TIGHT = 4 << 20  # makes room all the time
LONGEST = 0.06  # seconds from the first write to the kill
ROUNDS_PER_FOLDER = 5


def rows_of(start: int) -> int:
    """Some files take long enough to be caught half written."""
    return 5 if start % 3 == 1 else 150_000


def write_for_ever(folder: Path, limit: int, seed: int, careless: bool, said: int) -> None:
    """Tells `done NAME` after an entry must be there, `going NAME` before it may be gone."""
    rng = random.Random(seed)
    disk = Disk(folder, SPACE, limit)
    edges = {it.name: it.start + len(it.key) for it in disk.found if it.kind == "edge"}
    above = {it.name: it.parent for it in disk.found}
    os.write(said, b"begin\n")
    while True:
        fresh = []
        for _ in range(3):
            parent = rng.choice([None, *edges])
            start = edges[parent] if parent else 0
            snapshot = parent is not None and rng.random() < 0.3
            key = NONE if snapshot else tokens(*rng.choices(range(1000), k=rng.randint(1, 4)))
            kind = "snapshot" if snapshot else "edge"
            arrays = arrays_for(kind, parent, start, key, rows_of(start))
            name = disk.write("snapshot" if snapshot else "edge", parent, start, key, "", arrays)
            if name is not None:
                fresh.append(name)
                above[name] = parent
                if not snapshot:
                    edges[name] = start + len(key)
        assert careless or disk.flush(30)
        os.write(said, b"".join(f"done {it}\n".encode() for it in fresh))
        if rng.random() < 0.3 and edges:
            going = [rng.choice(list(edges))]
            for name in going:  # grows
                going.extend(it for it, parent in above.items() if parent == name)
            os.write(said, b"".join(f"going {it}\n".encode() for it in going))
            disk.remove(going[0])
        for name in disk.take_gone():
            edges.pop(name, None)
            above.pop(name, None)


def verify(folder: Path, limit: int, expected: set[str], said: int) -> None:
    disk = Disk(folder, SPACE, limit)
    found = {it.name for it in disk.found}
    assert found == files(folder), "something else is left"
    assert expected <= found, "a complete entry is lost"
    assert disk.stats.bytes <= limit
    assert all(right(disk, it, rows_of(it.start)) for it in disk.found), "an entry is wrong"
    disk.check_integrity()
    disk.close()
    os.write(said, b"".join(f"done {it}\n".encode() for it in found))


def child(work: Callable[[int], None]) -> tuple[int, int]:
    """Its pid, and the end of a pipe to listen at."""
    listen, said = os.pipe()
    pid = os.fork()
    if pid:
        os.close(said)
        return pid, listen
    try:
        work(said)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def heard(listen: int) -> list[list[str]]:
    with os.fdopen(listen, "rb") as pipe:
        return [line.decode().split() for line in pipe if line.endswith(b"\n")]


def kill_a_writer(
    folder: Path, limit: int, seed: int, careless: bool, wait: float
) -> list[list[str]]:
    pid, listen = child(lambda said: write_for_ever(folder, limit, seed, careless, said))
    assert os.read(listen, 6) == b"begin\n"
    time.sleep(wait)
    os.kill(pid, signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1]), "the writer failed by itself"
    return heard(listen)


def main(folder: Path, rounds: int, careless: bool) -> None:
    rng = random.Random(rounds)
    torn = read = 0
    expected: set[str] = set()
    for it in range(rounds):
        limit = TIGHT if it // ROUNDS_PER_FOLDER % 2 else LIMIT
        if it % ROUNDS_PER_FOLDER == 0:
            shutil.rmtree(folder, ignore_errors=True)
            expected = set()
        wait = rng.uniform(0, LONGEST)
        for word, name in kill_a_writer(folder, limit, it, careless, wait):
            (expected.add if word == "done" else expected.discard)(name)
        torn += bool(list(only_folder(folder).glob("*.tmp")))
        # With a tight limit there is no telling what had to go before the kill.
        must = set() if limit == TIGHT else set(expected)
        pid, listen = child(partial(verify, folder, limit, must))
        expected = {name for _, name in heard(listen)}
        assert os.waitpid(pid, 0)[1] == 0, f"round {it}"
        read += len(expected)
    print(json.dumps({"rounds": rounds, "torn": torn, "read": read}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), "careless" in sys.argv)
