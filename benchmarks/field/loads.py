"""What is asked, and when: pure and seeded, so that every side gets the same.

Lengths are those of a GPU with a model of 8 billion parameters; a scale divides them, so that a CPU
with a small model has loads of the same shape.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate

from benchmarks.networks import BYTES


@dataclass(frozen=True)
class Arrival:
    at: float  # seconds after the load's start
    ids: tuple[int, ...]
    new: int  # tokens of the reply
    system: int = 0  # tokens at the beginning that others begin with, too


Load = tuple[Arrival, ...]


@dataclass(frozen=True)
class Scale:
    """What lengths of prompts, lengths of replies and numbers of requests are divided by."""

    prompt: int
    reply: int
    requests: int


SCALES = {"full": Scale(1, 1, 1), "small": Scale(8, 4, 2), "quick": Scale(32, 8, 3)}


class Draw:
    """Random tokens, lengths and times of one load."""

    def __init__(self, name: str, vocab: int, scale: Scale, seed: int):
        self._chance = random.Random(f"{name} {seed}")
        self._vocab, self._scale = vocab, scale

    def tokens(self, count: int) -> tuple[int, ...]:
        count = max(4, count // self._scale.prompt)
        return tuple(self._chance.randrange(BYTES, self._vocab - 1) for _ in range(count))

    def reply(self, count: int) -> int:
        return max(4, count // self._scale.reply)

    def requests(self, count: int) -> int:
        return max(4, count // self._scale.requests)

    def between(self, low: int, high: int) -> int:
        return self._chance.randint(low, high)

    def mixed(self, low: int, high: int) -> int:
        """Any order of magnitude is as likely as any other."""
        return round(low * (high / low) ** self._chance.random())

    def times(self, count: int, span: float) -> list[float]:
        """Poisson arrivals: the first at 0, the last after so many seconds."""
        waits = [0.0, *(self._chance.expovariate(1) for _ in range(count - 1))]
        return [span * time / sum(waits) for time in accumulate(waits)]


def burst(draw: Draw, span: float) -> Iterator[Arrival]:
    """All at once."""
    for _ in range(draw.requests(16)):
        yield Arrival(0, draw.tokens(2000), draw.reply(128))


def poisson(draw: Draw, span: float) -> Iterator[Arrival]:
    """Mixed lengths, at any time."""
    for at in draw.times(draw.requests(32), span):
        yield Arrival(at, draw.tokens(draw.mixed(64, 8192)), draw.reply(draw.mixed(32, 512)))


def long(draw: Draw, span: float) -> Iterator[Arrival]:
    """A long prompt beside streams."""
    for _ in range(draw.requests(8)):
        yield Arrival(0, draw.tokens(256), draw.reply(256))
    yield Arrival(span / 4, draw.tokens(8192), draw.reply(128))


def shared(draw: Draw, span: float) -> Iterator[Arrival]:
    """Two system prompts, one question after another."""
    systems = [draw.tokens(2048) for _ in range(2)]
    for turn, at in enumerate(draw.times(draw.requests(16), span)):
        system = systems[turn % 2]
        yield Arrival(at, system + draw.tokens(128), draw.reply(64), len(system))


def ragged(draw: Draw, span: float) -> Iterator[Arrival]:
    """One long row among short ones."""
    yield Arrival(0, draw.tokens(8192), draw.reply(256))
    for _ in range(7):
        yield Arrival(0, draw.tokens(256), draw.reply(256))


LOADS: dict[str, Callable[[Draw, float], Iterator[Arrival]]] = {
    function.__name__: function for function in (burst, poisson, long, shared, ragged)
}


def make_load(name: str, vocab: int, scale: Scale, seed: int = 0, span: float = 1.0) -> Load:
    """span: seconds until the last request, where they do not all come at once."""
    return tuple(LOADS[name](Draw(name, vocab, scale, seed), span))


def closed_loop(clients: int, vocab: int, scale: Scale, seed: int = 0) -> Load:
    """For so many clients, each of which asks again when its reply has ended."""
    draw = Draw(f"loop {clients}", vocab, scale, seed)
    count = max(4, 2 * clients)
    return tuple(
        Arrival(0, draw.tokens(draw.between(200, 2000)), draw.reply(128)) for _ in range(count)
    )


def spread_over(load: Load, span: float) -> Load:
    """The same, with the last request after so many seconds."""
    last = max(arrival.at for arrival in load)
    return tuple(replace(one, at=one.at * span / last) for one in load) if last else load


def new_tokens(load: Load) -> int:
    return sum(arrival.new for arrival in load)


def fresh_tokens(load: Load) -> list[int]:
    """By request, tokens of its prompt that nobody before it has asked or was told."""
    return [
        len(one.ids) - max((_known(one, other) for other in load[:at]), default=0)
        for at, one in enumerate(load)
    ]


def _known(one: Arrival, before: Arrival) -> int:
    """Of a prompt, what one before it began with, and its reply if this goes on from there."""
    common = _common(one.ids, before.ids)
    if common < len(before.ids):
        return common
    return min(len(one.ids), common + before.new)


def _common(one: Iterable[int], two: Iterable[int]) -> int:
    count = 0
    for mine, other in zip(one, two, strict=False):
        if mine != other:
            break
        count += 1
    return count
