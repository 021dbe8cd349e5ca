"""What is asked of one engine, and how it is set up: a pure function of a family and a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Literal

from tests.fuzz.random_requests import HEADS, Ask, draw_asks, draw_crowded

Door = Literal["llm", "http"]


@dataclass(frozen=True)
class Settings:
    """room, disk: tokens whose state has room in memory and on disk; None: enough for all.

    rows: for how many long rows the memory limit has room; None: for all. delays: engine steps
    that a read from disk takes, drawn anew for each. slow_writes: milliseconds, at most.
    """

    prefill_chunk: int
    max_batch: int
    room: int | None
    files: bool
    disk: int | None
    delays: tuple[int, ...]
    slow_writes: int
    rows: int | None
    snapshot_every: int
    token_gap: float
    start_wait: float
    order: Literal["arrival", "shortest"]
    late: bool  # tokens chosen together with the next forward pass
    pages: bool  # rows have them, where the family stands the trial


@dataclass(frozen=True)
class Act:
    what: Literal["submit", "step", "abort", "drain", "restart", "clear"]
    number: int = 0  # of the ask, or of steps


@dataclass(frozen=True)
class Workload:
    family: str
    seed: str
    door: Door
    settings: Settings
    asks: tuple[Ask, ...]
    acts: tuple[Act, ...]

    def only(self, kept: list[int]) -> Workload:
        """With these of its acts alone."""
        return replace(self, acts=tuple(self.acts[at] for at in kept))


def draw(family: str, seed: str, door: Door, sees: bool) -> Workload:
    rng = random.Random(f"{family} {seed} {door}")
    settings = _settings(rng)
    if door == "llm" and rng.random() < 0.4:
        settings, asks = _crowded(rng, settings), draw_crowded(rng, 4)
        acts = _crowded_acts(rng, len(asks))
    else:
        asks = draw_asks(rng, rng.choice([3, 6, 10, 16]) if door == "llm" else 16, sees)
        acts = _acts(rng, len(asks))
    return Workload(family, seed, door, settings, tuple(asks), tuple(acts))


def _settings(rng: random.Random) -> Settings:
    return Settings(
        prefill_chunk=rng.choice([1, 2, 3, 7, 16, 24, 64, 200, 512]),
        max_batch=rng.choice([1, 2, 3, 4, 5, 6, 7, 8]),
        room=rng.choice([None, None, 0, 60, 135, 135, 180, 300]),
        files=rng.random() < 0.6,
        disk=rng.choice([None, None, 400, 120]),
        delays=rng.choice([(0,), (0, 0, 3), (0, 5, 12), (5, 20, 40)]),
        slow_writes=rng.choice([0, 0, 5, 20]),
        rows=rng.choice([None, None, None, 3, 4]),
        snapshot_every=rng.choice([4096, 4096, 16, 64]),
        token_gap=rng.choice([0.5, 0.5, 0.0]),
        start_wait=rng.choice([2.0, 0.0]),
        order=rng.choice(["arrival", "arrival", "shortest"]),
        late=rng.random() < 0.5,
        pages=rng.random() < 0.5,
    )


def _crowded(rng: random.Random, settings: Settings) -> Settings:
    """Files whose reads take long, and little memory."""
    return replace(
        settings,
        prefill_chunk=rng.choice([16, 64, 200]),
        max_batch=rng.choice([4, 6, 8]),
        room=rng.choice([120, 135, 135, 180]),
        files=True,
        disk=None,
        delays=rng.choice([(0, 5, 12), (8, 16), (5, 20, 40)]),
        rows=None,
    )


def _crowded_acts(rng: random.Random, asks: int) -> list[Act]:
    """The heads are on disk alone when the others come, one soon after the other."""
    heads = [Act("submit", ask) for ask in range(HEADS)]
    acts = [*heads, Act("drain"), Act("restart")]
    for ask in range(HEADS, asks):
        acts.append(Act("submit", ask))
        if rng.random() < 0.7:
            acts.append(Act("step", rng.choice([1, 2, 4, 8])))
        if rng.random() < 0.03:
            acts.append(Act("restart"))
    return acts


def _acts(rng: random.Random, asks: int) -> list[Act]:
    """Every ask in its turn, now and then an earlier one again; and what comes between."""
    acts: list[Act] = []
    calm = rng.random() < 0.5  # everything is answered before the next is asked
    for ask in range(asks):
        acts.append(Act("submit", ask))
        if rng.random() < 0.15:
            acts.append(Act("submit", rng.randrange(ask + 1)))
        draw = rng.random()
        if draw < 0.1:
            acts += [Act("step", rng.randrange(1, 12)), Act("abort", rng.randrange(ask + 1))]
        elif draw < (0.6 if calm else 0.2):
            acts.append(Act("drain"))
        elif draw < 0.8:
            acts.append(Act("step", rng.choice([1, 2, 5, 20])))
        if rng.random() < 0.12:
            acts.append(Act("restart"))
        elif rng.random() < 0.02:
            acts.append(Act("clear"))
    return acts
