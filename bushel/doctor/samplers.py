"""Every sampler: what its first use costs, what a step does, and whether it chooses right."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np

from bushel.doctor.finding import DoctorOptions, Finding, Probe, Section, duration
from bushel.engine.sampling.first_use import SAMPLERS, sampler_of
from bushel.engine.sampling.sampler import listed
from bushel.models.device import ON_CPU

VOCAB = 128_256  # as of Llama 3
ROWS = (1, 8, 32)
_QUICK = ("greedy", "temperature", "top_k and top_p")
_ENOUGH = 0.3  # seconds of steps for one figure
_MOST_STEPS = 20
_SLOW_FIRST_USE = 10.0  # seconds: whoever comes first waits for it where a server did not
# Seconds of a step with the most rows, as long as a whole step of a small model may take. A CPU
# sorts the vocabulary of each row by itself: 76 ms were seen on two busy cores.
_SLOW_STEP = 5.0 if ON_CPU else 0.02
_WRONG = "Tokens cannot be trusted on this device. Please report this, with the whole of this page."

Rows = Sequence[Mapping[str, Any]]


def section(options: DoctorOptions) -> Section:
    names = _QUICK if options.quick else tuple(SAMPLERS)
    speed = [Probe(name, partial(step_time, name), seconds=60) for name in names]
    return Section(
        [
            Probe("greedy is the likeliest", greedy, seconds=60),
            Probe("top_k keeps to the best", top_k, seconds=60),
            Probe("seeded, batch and alone", seeded, seconds=90),
            *speed,
        ]
    )


def _logits(rows: int) -> mx.array:
    """[rows, 1, V], as of words: the second is a third as likely as the first, and so on."""
    numbers = np.random.default_rng(rows)
    scores = -1.5 * np.log(np.arange(1, VOCAB + 1))  # sixty tokens have 0.9 of it
    shuffled = [numbers.permutation(scores) for _ in range(rows)]
    return mx.array(np.array(shuffled, np.float32)[:, None])


class _Sampling:
    """Steps of rows that all go on from the same logits."""

    def __init__(self, rows: Rows, logits: mx.array):
        self._sampler = sampler_of(rows, VOCAB)
        self._logits = logits
        self._count = len(rows)
        self._inputs = mx.zeros((self._count, 1), dtype=mx.uint32)
        self._done = 0

    def step(self) -> mx.array:
        """Tokens [B, 1], computed."""
        indices, positions = [self._done] * self._count, [self._done + 1] * self._count
        sampled = self._sampler.sample(self._logits, self._inputs, indices, positions)
        mx.eval(sampled.arrays())
        self._inputs = sampled.tokens
        self._done += 1
        return sampled.tokens


def step_time(name: str) -> Iterator[Finding]:
    """The first use is that of one row and of the most, as in a server's first minutes."""
    first, steps = 0.0, []
    for count in ROWS:
        logits = _logits(count)
        mx.eval(logits)
        start = time.perf_counter()
        sampling = _Sampling([SAMPLERS[name]] * count, logits)
        sampling.step()
        sampling.step()
        first += time.perf_counter() - start
        steps.append(_median_step(sampling))
    times = " / ".join(map(duration, steps))
    words = f"first use {duration(first)}; a step {times} with {' / '.join(map(str, ROWS))} rows"
    if first > _SLOW_FIRST_USE:
        advice = "Kernels are compiled at first use: a server does it before it is ready."
        yield Finding("slow", name, words, advice)
    elif steps[-1] > _SLOW_STEP:
        advice = "Close what else uses the device, and try again; if it stays so, report it."
        yield Finding("slow", name, words, advice)
    else:
        yield Finding("ok", name, words)


def _median_step(sampling: _Sampling) -> float:
    times: list[float] = []
    while sum(times) < _ENOUGH and len(times) < _MOST_STEPS:
        start = time.perf_counter()
        sampling.step()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


# -- whether it is right ---------------------------------------------------------------------


def greedy() -> Iterator[Finding]:
    """By its definition: no other token has a higher score."""
    logits = _logits(8)
    tokens = listed(_Sampling([SAMPLERS["greedy"]] * 8, logits).step())
    scores: Any = logits[:, 0].tolist()
    right = [score[token] == max(score) for score, token in zip(scores, tokens, strict=True)]
    yield _verdict("greedy is the likeliest", right, "rows")


def top_k() -> Iterator[Finding]:
    """Each of several draws is among the best so many, whatever its row's temperature."""
    best, logits = 20, _logits(8)
    sampling = _Sampling([{"top_k": best, "temperature": 2.0}] * 8, logits)
    scores: Any = logits[:, 0].tolist()
    least = [sorted(score)[-best] for score in scores]
    right = [
        score[token] >= bound
        for _ in range(4)
        for score, token, bound in zip(scores, listed(sampling.step()), least, strict=True)
    ]
    yield _verdict("top_k keeps to the best", right, "draws")


def seeded() -> Iterator[Finding]:
    """A row draws the same in company of every sampler as alone, and others' seeds do not."""
    settings = [{**chosen, "seed": at} for at, chosen in enumerate(SAMPLERS.values())]
    settings = [{key: value for key, value in it.items() if key != "logprobs"} for it in settings]
    logits = mx.repeat(_logits(1), len(settings), axis=0)
    together = _drawn(settings, logits)
    alone = [_drawn([chosen], logits[:1])[0] for chosen in settings]
    right = [one == two for one, two in zip(together, alone, strict=True)]
    yield _verdict("seeded, batch and alone", right, "rows with a sampler each, of 4 tokens")


def _drawn(rows: Rows, logits: mx.array) -> list[list[int]]:
    sampling = _Sampling(rows, logits)
    steps = [listed(sampling.step()) for _ in range(4)]
    return [list(row) for row in zip(*steps, strict=True)]


def _verdict(name: str, right: Sequence[bool], what: str) -> Finding:
    words = f"right in {sum(right)} of {len(right)} {what}"
    return Finding("ok", name, words) if all(right) else Finding("wrong", name, words, _WRONG)
