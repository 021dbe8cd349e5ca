"""One layer's pages on the device: keys and values [pages x heads x PAGE, D].

On a GPU they are written in place, by kernels that MLX takes for readers (`kernel_preludes`); on a
CPU by MLX's own operations, which may copy them.
"""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from bushel.cache.paged import page_kernels
from bushel.cache.paged.attention import AttentionShape, attend
from bushel.cache.paged.page_kernels import PAGE, PageShape
from bushel.models.device import ON_CPU
from bushel.models.kernel_preludes import AFTER


class LayerPages:
    def __init__(self) -> None:
        self.shape: PageShape | None = None  # None: the model has not written any
        self.keys = self.values = self.last = mx.zeros(0)
        self.capacity = 0  # pages
        # By heads, width, scale and sinks: every layer asks in every step.
        self.asked: dict[tuple[int, int, float, bool], AttentionShape] = {}

    @property
    def written(self) -> bool:
        return self.shape is not None

    @property
    def page_bytes(self) -> int:
        return 0 if self.shape is None else self.shape.nbytes

    @property
    def to_evaluate(self) -> list[mx.array]:
        """All that was written is written when these are there."""
        if self.shape is None or not self.capacity:
            return []
        return [self.keys, self.values] if ON_CPU else [self.last]

    def fit(self, capacity: int, keys: mx.array, values: mx.array) -> None:
        """Have so many pages, of tokens like these: [*, heads, *, D]."""
        if self.shape is None:
            _, heads, _, key_dim = keys.shape
            self.shape = PageShape(keys.dtype, heads, key_dim, values.shape[3])
        if self.capacity < capacity:
            self.resize(capacity)

    def resize(self, capacity: int) -> None:
        """All of these pages and more, or the first of them; if that fails, as many as before."""
        if self.shape is None:
            return
        rows, dims = self.shape.heads * PAGE, (self.shape.key_dim, self.shape.value_dim)
        held = min(self.capacity, capacity)
        mx.eval(self.last)  # MLX does not know that its own operations have to wait for it

        def resized(pool: mx.array, dim: int) -> mx.array:
            whole = mx.zeros((capacity - held, rows * dim), self._dtype)
            if held:
                whole = mx.concatenate([pool.reshape(self.capacity, rows * dim)[:held], whole])
            made = whole.reshape(capacity * rows, dim)
            mx.eval(made)  # one by one: what is made on the way is there once
            return made

        keys, values = resized(self.keys, dims[0]), resized(self.values, dims[1])
        self.keys, self.values, self.last = keys, values, mx.zeros(AFTER, self._dtype)
        self.capacity = capacity

    def move(self, sources: list[int], targets: list[int]) -> None:
        """All of some pages into others, which nobody holds; where that fails, nothing is lost."""
        if not self.written or not self.capacity:
            return
        last = self.last
        try:
            self.write(targets, 0, *self.read(sources, 0, len(sources) * PAGE))
            mx.eval(self.to_evaluate)
        except Exception:
            self.last = last
            raise

    @property
    def _dtype(self) -> mx.Dtype:
        assert self.shape is not None
        return self.shape.dtype

    def write(self, pages: list[int], place: int, keys: mx.array, values: mx.array) -> None:
        """Tokens [1, heads, T, D] into pages, from a place in the first one on."""
        assert self.shape is not None
        if ON_CPU:
            slots = self._slots(pages, place, keys.shape[2])
            self.keys[slots], self.values[slots] = keys, values
        else:
            table = mx.array(pages, dtype=mx.int32)
            pool = self.keys, self.values
            self.last = page_kernels.put(self.shape, pool, table, place, (keys, values), self.last)

    def write_step(self, slots: mx.array, keys: mx.array, values: mx.array) -> None:
        """Tokens [B, heads, L, D] of all rows, each to its slot; on a CPU."""
        self.keys[slots], self.values[slots] = keys, values

    def read(self, pages: list[int], place: int, tokens: int) -> tuple[mx.array, mx.array]:
        """Tokens from a place in the first of these pages on: [1, heads, T, D]."""
        assert self.shape is not None
        if ON_CPU:
            slots = self._slots(pages, place, tokens)
            return self.keys[slots], self.values[slots]
        table = mx.array(pages, dtype=mx.int32)
        pool = self.keys, self.values
        return page_kernels.gather(self.shape, pool, table, place, tokens, self.last)

    def _slots(self, pages: list[int], place: int, tokens: int) -> mx.array:
        """[1, heads, tokens]"""
        assert self.shape is not None
        at, heads = place + np.arange(tokens), self.shape.heads
        first = np.array(pages, np.int64)[at // PAGE] * heads
        slots = (first + np.arange(heads)[:, None]) * PAGE + at % PAGE
        return mx.array(slots[None].astype(np.int32))

    def copy(self, source: int, target: int) -> None:
        """All of a page."""
        if self.written and self.capacity:
            self.write([target], 0, *self.read([source], 0, PAGE))

    def attend(
        self,
        shape: AttentionShape,
        queries: mx.array,
        fresh: tuple[mx.array, mx.array],
        table: mx.array,
        lengths: mx.array,
        sinks: mx.array | None,
    ) -> mx.array:
        """Writes a step's own tokens and attends to all; on a GPU."""
        pool = self.keys, self.values
        self.last = attend(shape, queries, fresh, pool, table, lengths, self.last, sinks)
        return self.last
