"""The masks of a batch: what each of its constrained rows may say next."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile

import mlx.core as mx
import numpy as np
from llguidance import LLExecutor

from bushel.engine.constraints.constraint import ConstrainedRow
from bushel.engine.sampling.chooser import Masks

_THREADS = min(8, os.cpu_count() or 1)

Failures = list[tuple[int, Exception]]
_Part = tuple[int, ConstrainedRow, int]  # a row, what it is held to, and where its masks begin
_Allow = Callable[[_Part], list[int] | Exception]


class Masker:
    """Owned by one engine."""

    def __init__(self, vocab: int, known: int, ends: frozenset[int]):
        """known: tokens that the tokenizer has, which may be more than the model's."""
        self._ends = sorted(end for end in ends if end < vocab)
        self._width = -(-vocab // 32)
        bits = np.arange(-(-max(vocab, known) // 32) * 32) < vocab
        self._valid = np.packbits(bits, bitorder="little").view(np.uint32)
        self._vocab = vocab
        self._executor: LLExecutor | None = None
        self._threads: ThreadPoolExecutor | None = None

    def make(self, constraints: Sequence[ConstrainedRow | None]) -> tuple[Masks | None, Failures]:
        """For a batch whose tokens have all been read; None: the row is free.

        A row that fails is named with its error, and has no mask.
        """
        held = [
            (at, constraint) for at, constraint in enumerate(constraints) if constraint is not None
        ]
        if not held:
            return None, []
        words = np.full((len(held) + 1, len(self._valid)), 0xFFFFFFFF, np.uint32)
        done = self._together([constraint for _, constraint in held], words)
        slots, failed = [len(held)] * len(constraints), Failures()
        for slot, (at, row) in enumerate(held):
            try:
                if row not in done:
                    row.measure(words[slot])
                words[slot] &= self._valid
                row.allow(words[slot], self._ends)
                slots[at] = slot
            except Exception as error:  # a matcher's fault is its row's
                failed.append((at, error))
        sent = mx.array(words[:, : self._width])
        return Masks(mx.array(slots, dtype=mx.int32), sent), failed

    def cut(
        self, constraints: Sequence[ConstrainedRow | None], drafts: Sequence[Sequence[int]]
    ) -> list[list[int]]:
        """Of every row's draft as much as it may say, so that nothing else is verified."""
        rows = zip(constraints, drafts, strict=True)
        return [
            [*draft] if row is None else row.cut(self._known(draft), self._ends)
            for row, draft in rows
        ]

    def along(
        self, constraints: Sequence[ConstrainedRow | None], drafts: Sequence[Sequence[int]]
    ) -> tuple[Masks | None, list[list[int]], Failures]:
        """At every place of a draft, as wide as the longest one; rows stay where they are.

        Returned drafts are as much of them as has masks: nothing beyond may be kept. A row that
        fails is named with its error, and has no mask.
        """
        allowed = [[*draft] for draft in drafts]
        held = [
            (at, row)
            for at, row in enumerate(constraints)
            if row is not None and row.holds_along(drafts[at])
        ]
        if not held:
            return None, allowed, []
        starts = np.cumsum([0, *(1 + len(drafts[at]) for at, _ in held)]).tolist()
        free, width = starts[-1], 1 + max(map(len, drafts))
        words = np.full((free + 1, len(self._valid)), 0xFFFFFFFF, np.uint32)
        slots = np.full((len(drafts), width), free, np.int32)

        def allow(part: _Part) -> list[int] | Exception:
            at, row, start = part
            mine = words[start : start + 1 + len(drafts[at])]
            try:
                return row.allow_along(self._known(drafts[at]), mine, self._valid, self._ends)
            except Exception as error:  # a matcher's fault is its row's
                return error

        parts = [(at, row, start) for (at, row), start in zip(held, starts, strict=False)]
        failed = Failures()
        for (at, _, start), found in zip(parts, self._map(allow, parts), strict=True):
            if isinstance(found, Exception):
                allowed[at] = []
                failed.append((at, found))
            else:
                allowed[at] = found
                slots[at, : 1 + len(found)] = np.arange(start, start + 1 + len(found))
        sent = mx.array(words[:, : self._width])
        return Masks(mx.array(slots.reshape(-1)), sent), allowed, failed

    def _known(self, draft: Sequence[int]) -> list[int]:
        """Up to a token that the model does not have."""
        return [*takewhile(lambda token: token < self._vocab, draft)]

    def _map(self, allow: _Allow, parts: list[_Part]) -> Iterable[list[int] | Exception]:
        """In threads where masks take long enough to be worth them: llguidance lets others run."""
        if sum(row.expensive for _, row, _ in parts) < 2:
            return map(allow, parts)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="draft masks")
        return self._threads.map(allow, parts)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()

    def _together(self, rows: list[ConstrainedRow], words: np.ndarray) -> list[ConstrainedRow]:
        """The masks that take long enough to be worth threads; returns whose these are."""
        expensive = [(row, row.matcher, slot) for slot, row in enumerate(rows) if row.expensive]
        if len(expensive) < 2:
            return []
        if self._executor is None:
            self._executor = LLExecutor(_THREADS)
        start = time.perf_counter()
        self._executor.unsafe_compute_mask_ptr(
            [(matcher, slot) for _, matcher, slot in expensive if matcher is not None],
            words.ctypes.data,
            words.strides[0],
            len(words),
        )
        each = (time.perf_counter() - start) * min(_THREADS, len(expensive)) / len(expensive)
        for row, _, _ in expensive:
            row.cost = each
        return [row for row, _, _ in expensive]
