"""Random calls and restarts against a slow, obviously correct model of the disk tier."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bushel.cache.prefix.disk import Disk, HostArray, Kind, file_format
from tests.depth import some
from tests.prefix.disk.trees import SPACE, arrays_for, fetch, files, only_folder, plain, tokens

LIMITS = (900, 2500, 5000, 1 << 30)  # an entry has about 600 bytes
ANY = st.integers(0, 1 << 30)  # which of the entries, modulo their number


@dataclass
class File:
    kind: Kind
    parent: str | None
    start: int
    key: np.ndarray
    note: str
    arrays: dict[str, HostArray]
    nbytes: int
    used: int = 0


class Model:
    def __init__(self, limit: int):
        self.limit = limit
        self.files: dict[str, File] = {}
        self.gone: set[str] = set()
        self.clock = 0

    def path(self, name: str | None) -> list[str]:
        return [name, *self.path(self.files[name].parent)] if name is not None else []

    def nbytes(self, names: list[str]) -> int:
        return sum(self.files[name].nbytes for name in names)

    def touch(self, name: str | None) -> None:
        for it in self.path(name):
            self.clock += 1
            self.files[it].used = self.clock

    def remove(self, name: str) -> None:
        for child in [it for it, file in self.files.items() if file.parent == name]:
            self.remove(child)
        del self.files[name]
        self.gone.add(name)

    def make_room(self, nbytes: int) -> None:
        while self.nbytes(list(self.files)) + nbytes > self.limit:
            parents = {file.parent for file in self.files.values()}
            leaves = [file for file in self.files if file not in parents]
            self.remove(min(leaves, key=lambda it: self.files[it].used))

    def write(self, name: str, file: File) -> bool:
        if name not in self.files:
            if self.nbytes(self.path(file.parent)) + file.nbytes > self.limit:
                return False
            self.touch(file.parent)
            self.make_room(file.nbytes)
            self.files[name] = file
            self.gone.discard(name)
        self.touch(name)
        return True


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="bushel-disk-"))
        self.model = Model(LIMITS[1])
        self.open(self.model.limit)

    def open(self, limit: int) -> None:
        """The writing thread notes after each file how many bytes there are."""
        self.most = 0
        self.disk = Disk(self.folder, SPACE, limit)
        folder = self.disk._folder
        write = folder.write

        def noted(name: str, draft: file_format.FileDraft, stamp: int) -> None:
            write(name, draft, stamp)
            self.most = max(self.most, sum(it.stat().st_size for it in folder.path.iterdir()))

        folder.write = noted  # type: ignore[method-assign]

    def teardown(self) -> None:
        self.disk.close()
        shutil.rmtree(self.folder)

    def pick(self, which: int, kind: str = "") -> str:
        names = [it for it, file in self.model.files.items() if kind in ("", file.kind)]
        return names[which % len(names)]

    def write(self, kind: Kind, parent: str | None, start: int, key: np.ndarray, rows: int) -> None:
        arrays = arrays_for(kind, parent, start, key, rows)
        nbytes = file_format.draft_file(SPACE, kind, parent, start, key, "n", arrays).nbytes
        name = file_format.name_of(SPACE, kind, parent, start, key)
        accepted = self.model.write(name, File(kind, parent, start, key, "n", arrays, nbytes))
        written = self.disk.write(kind, parent, start, key, "n", arrays)
        assert written == (name if accepted else None)

    @rule(key=st.lists(st.integers(-2, 2), min_size=1, max_size=4), rows=st.integers(0, 60))
    def root(self, key: list[int], rows: int) -> None:
        self.write("edge", None, 0, tokens(*key), rows)

    def place(self, which: int, offset: int) -> tuple[str, int]:
        parent = self.pick(which, "edge")
        file = self.model.files[parent]
        return parent, file.start + 1 + offset % len(file.key)

    @precondition(lambda self: self.model.files)
    @rule(
        which=ANY,
        offset=ANY,
        key=st.lists(st.integers(-2, 2), min_size=1, max_size=4),
        rows=st.integers(0, 60),
    )
    def edge(self, which: int, offset: int, key: list[int], rows: int) -> None:
        self.write("edge", *self.place(which, offset), tokens(*key), rows)

    @precondition(lambda self: self.model.files)
    @rule(which=ANY, offset=ANY, rows=st.integers(0, 60))
    def snapshot(self, which: int, offset: int, rows: int) -> None:
        self.write("snapshot", *self.place(which, offset), tokens(), rows)

    @precondition(lambda self: self.model.files)
    @rule(which=ANY)
    def read(self, which: int) -> None:
        name = self.pick(which)
        self.model.touch(name)
        reading = fetch(self.disk, name)
        assert reading.arrays is not None, reading.why
        assert plain(reading.arrays) == plain(self.model.files[name].arrays)

    @rule(which=ANY)
    def read_what_is_not_there(self, which: int) -> None:
        reading = fetch(self.disk, f"{which:064x}")
        assert reading.arrays is None

    @precondition(lambda self: self.model.files)
    @rule(which=ANY)
    def touch(self, which: int) -> None:
        name = self.pick(which)
        self.model.touch(name)
        self.disk.touch(name)

    @precondition(lambda self: self.model.files)
    @rule(which=ANY)
    def remove(self, which: int) -> None:
        name = self.pick(which)
        self.model.remove(name)
        self.disk.remove(name)

    @rule(sure=st.integers(0, 9))
    def clear(self, sure: int) -> None:
        if sure == 0:
            self.model.gone |= set(self.model.files)
            self.model.files.clear()
            self.disk.clear()

    @rule()
    def take_gone(self) -> None:
        assert set(self.disk.take_gone()) == self.model.gone
        self.model.gone = set()

    @rule()
    def flush(self) -> None:
        assert self.disk.flush(10)
        assert files(self.folder) == set(self.model.files)
        for name, file in self.model.files.items():
            path = only_folder(self.folder) / f"{name}.safetensors"
            assert path.stat().st_size == file.nbytes

    @rule(limit=st.sampled_from(LIMITS))
    def restart(self, limit: int) -> None:
        self.disk.close()
        self.model.limit = limit
        self.model.make_room(0)
        self.model.gone = set()
        self.open(limit)
        assert {it.name for it in self.disk.found} == set(self.model.files)
        seen: set[str | None] = {None}
        for entry in self.disk.found:
            file = self.model.files[entry.name]
            assert entry.parent in seen
            assert (entry.kind, entry.parent, entry.start) == (file.kind, file.parent, file.start)
            assert (entry.note, entry.nbytes) == (file.note, file.nbytes)
            assert entry.key.tolist() == file.key.tolist()
            seen.add(entry.name)

    @invariant()
    def the_limit_holds(self) -> None:
        assert self.disk.stats.bytes == self.model.nbytes(list(self.model.files))
        assert self.disk.stats.bytes <= self.model.limit
        assert self.most <= self.model.limit

    @invariant()
    def it_is_consistent(self) -> None:
        self.disk.check_integrity()


Machine.TestCase.settings = settings(
    derandomize=True,
    max_examples=some(60),
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
)
test_it_does_what_the_model_does = Machine.TestCase
