"""Memory and files of the prefix cache, with reads that end at any time between other calls.

Each token's state is a number that follows from all tokens up to it, so that state in the wrong
place is seen when a row is made of it (B42, B43, B46).
"""

from __future__ import annotations

import random
import shutil
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from mlx_lm.models.cache import ArraysCache, KVCache

from bushel.cache.prefix import DiskFetch, PrefixCache
from bushel.cache.prefix.disk import Disk, PendingRead
from bushel.core import IntegrityError
from tests.depth import often, some
from tests.prefix.brute_force_tree import Tokens, key
from tests.prefix.stale_load_mutation import put_back

TOKENS = st.lists(st.integers(0, 2), min_size=2, max_size=12).map(tuple)
ROOTS = st.sampled_from(["", "salt"])
SORTS = st.sampled_from(["system", "prompt", "reply", "grid"])
TOKEN = 8  # bytes of one token's key and value
LIMITS = st.sampled_from([0, 6 * TOKEN, 12 * TOKEN, 30 * TOKEN, 1 << 20])
DISKS = st.sampled_from([2000, 8000, 1 << 30])  # a file has about 900 bytes
ANY = st.integers(0, 60)


class LateDisk(Disk):
    """Reads end when the test says so."""

    late: list[tuple[PendingRead, PendingRead]]

    def read(self, name: str) -> PendingRead:
        assert self.flush(10)
        real = super().read(name)
        while not real.done:
            self.wait(0.1)
        reading = PendingRead(name)
        self.late.append((reading, real))
        return reading

    def let_go(self, which: int) -> None:
        if self.late:
            reading, real = self.late.pop(which % len(self.late))
            reading.arrays, reading.start, reading.key = real.arrays, real.start, real.key
            reading.why, reading.done = real.why, True


def numbers(tokens: Tokens) -> np.ndarray:
    marks = (zlib.crc32(bytes(tokens[: end + 1])) % 99991 for end in range(len(tokens)))
    return np.array([*marks], np.float32)


@dataclass
class Waiting:
    root: str
    tokens: Tokens
    fetch: DiskFetch


class Machine(RuleBasedStateMachine):
    """snapshots: whether some layers cannot be cut by token."""

    snapshots = False

    @initialize(limit=LIMITS, disk=DISKS)
    def begin(self, limit: int, disk: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="bushel-tier-"))
        self.limit = limit
        self.waiting: list[Waiting] = []
        self.open(disk)

    def open(self, disk: int) -> None:
        def opened(_: str) -> Disk:
            self.disk = LateDisk(self.folder, "some/model", disk)
            self.disk.late = []
            return self.disk

        self.prefixes = PrefixCache(
            self.make_state, self.state((0,)), self.limit, 10_000, disk=opened
        )

    def make_state(self) -> list[Any]:
        return [KVCache(), *([ArraysCache(1)] if self.snapshots else [])]

    def state(self, tokens: Tokens) -> list[Any]:
        """Of a row that has run these."""
        layers, marks = self.make_state(), mx.array(numbers(tokens))[None, None, :, None]
        layers[0].update_and_fetch(marks, -marks)
        for layer in layers[1:]:
            layer[0] = marks[:, :, -1]
        return layers

    def teardown(self) -> None:
        if hasattr(self, "prefixes"):
            self.prefixes.close()
            shutil.rmtree(self.folder)

    # -- what the engine does ----------------------------------------------------------------

    @rule(root=ROOTS, tokens=TOKENS, sort=SORTS)
    def keep(self, root: str, tokens: Tokens, sort: str) -> None:
        self.prefixes.keep(root, key(tokens), self.state(tokens), sort)

    @rule(root=ROOTS, tokens=TOKENS)
    def arrive(self, root: str, tokens: Tokens) -> None:
        fetch = self.prefixes.ahead(root, key(tokens), len(tokens) - 1)
        if fetch is not None:
            self.waiting.append(Waiting(root, tokens, fetch))
        else:
            self.serve(root, tokens)

    @rule(which=ANY)
    def a_read_ends(self, which: int) -> None:
        self.disk.let_go(which)

    @rule(which=ANY)
    def take(self, which: int) -> None:
        done = [it for it in self.waiting if it.fetch.done]
        if done:
            job = done[which % len(done)]
            self.waiting.remove(job)
            self.prefixes.arrived(job.fetch)
            self.serve(job.root, job.tokens)

    def serve(self, root: str, tokens: Tokens) -> None:
        """What is restored is what computing would have made."""
        reuse = self.prefixes.plan(root, key(tokens), len(tokens) - 1)
        if not reuse.position:
            return
        row = self.prefixes.restore(reuse, key(tokens), len(tokens))
        assert row is not None, "a plan that cannot be carried out"
        own = numbers(tokens)[: reuse.position]
        assert np.array_equal(np.array(row[0].keys[0, 0, : reuse.position, 0]), own)
        assert np.array_equal(np.array(row[0].values[0, 0, : reuse.position, 0]), -own)
        for layer in row[1:]:
            assert float(layer[0].item()) == own[-1]
        self.prefixes.keep(root, key(tokens[: reuse.position]), row, "prompt")

    @rule(which=ANY)
    def give_up(self, which: int) -> None:
        if self.waiting:
            del self.waiting[which % len(self.waiting)]

    @rule(limit=LIMITS)
    def rows_need_memory(self, limit: int) -> None:
        self.prefixes.fit(limit, 10_000)

    @rule()
    def settle(self) -> None:
        self.prefixes.settle()

    @rule(sure=st.integers(0, 9))
    def clear(self, sure: int) -> None:
        if sure == 0:
            self.prefixes.clear()
            self.waiting.clear()

    # -- what happens to files ---------------------------------------------------------------

    @rule(disk=DISKS)
    def restart(self, disk: int) -> None:
        self.prefixes.close()
        self.waiting.clear()
        self.open(disk)

    @rule(which=ANY)
    def a_file_goes(self, which: int) -> None:
        names = self.disk._index.names()
        if names:
            self.disk.remove(names[which % len(names)])

    @precondition(lambda self: hasattr(self, "prefixes"))
    @invariant()
    def sound(self) -> None:
        self.prefixes.check_integrity()


class WithSnapshots(Machine):
    snapshots = True


def play(machine: type[Machine], seed: int, steps: int) -> None:
    """A longer series than hypothesis makes, of prompts that go on from earlier ones."""
    rng = random.Random(seed)
    played = machine()
    played.begin(limit=TOKEN * rng.choice([12, 20, 40, 4000]), disk=rng.choice([8000, 1 << 30]))
    sent: list[Tokens] = [(0, 1)]

    def where() -> dict[str, Any]:
        before = rng.choice(sent[-12:])
        before = before[: rng.randrange(len(before) + 1)] if rng.random() < 0.5 else before
        sent.append((*before[:20], *rng.choices(range(3), k=rng.randrange(2, 7))))
        return {"root": rng.choice(["", "", "", "salt"]), "tokens": sent[-1]}

    acts: list[tuple[int, Callable[[], None]]] = [
        (30, lambda: played.keep(**where(), sort=rng.choice(["prompt", "grid", "reply"]))),
        (30, lambda: played.arrive(**where())),
        (20, lambda: played.a_read_ends(which=rng.randrange(60))),
        (20, lambda: played.take(which=rng.randrange(60))),
        (8, lambda: played.rows_need_memory(limit=TOKEN * rng.choice([0, 8, 40, 4000]))),
        (3, lambda: played.give_up(which=rng.randrange(60))),
        (5, lambda: played.settle()),
        (2, lambda: played.a_file_goes(which=rng.randrange(60))),
        (2, lambda: played.restart(disk=rng.choice([8000, 1 << 30]))),
        (1, lambda: played.clear(sure=rng.randrange(3))),
    ]
    try:
        for act in rng.choices([it for _, it in acts], [weight for weight, _ in acts], k=steps):
            act()
            played.sound()
    finally:
        played.teardown()


QUICK = settings(
    max_examples=some(40),
    stateful_step_count=30,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)


@pytest.mark.parametrize("machine", [Machine, WithSnapshots])
def test_a_row_is_restored_right_whenever_reads_end(machine: type[Machine]) -> None:
    run_state_machine_as_test(machine, settings=QUICK)


@pytest.mark.parametrize("machine", often([Machine, WithSnapshots], WithSnapshots))
def test_long_series_of_reads_and_changes(machine: type[Machine]) -> None:
    for seed in range(12):
        play(machine, seed, 150)


def test_putting_what_was_read_where_it_was_is_noticed() -> None:
    """The control: nodes as they were when the read began, and state that only has to suffice."""

    def noticed() -> bool:
        for seed in range(12):
            try:
                play(Machine, seed, 150)
            except (AssertionError, IntegrityError):
                return True
        return False

    with put_back():
        assert noticed()
