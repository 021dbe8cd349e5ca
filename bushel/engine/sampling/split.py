"""Two choosers for one batch: rows that a kernel cannot serve go through MLX's own operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlx.core as mx
import numpy as np

from bushel.core import Decoding, IntegrityError
from bushel.engine.sampling.chooser import Chooser, Masks, SamplingStep

_Choose = Callable[[mx.array, SamplingStep], mx.array]


class SplitChooser:
    """A `Chooser` (see `chooser`) of two. As long as the kernel serves all rows, it is the kernel.

    Which one serves a row depends on its settings alone, so that its company changes nothing.
    """

    def __init__(self, kernel: Chooser, other: Chooser):
        self.kernel, self.other = kernel, other
        self._parts: list[list[int]] = [[], []]  # rows of the kernel, and of the other one
        self._count = 0

    def join(self, row: Decoding, prompt: Sequence[int], reply: Sequence[int]) -> None:
        beyond = row.shaped or row.remembers
        (self.other if beyond else self.kernel).join(row, prompt, reply)
        self._parts[beyond].append(self._count)
        self._count += 1
        self._arrange()

    def leave(self, keep: Sequence[int]) -> None:
        parts: list[list[int]] = []
        for chooser, mine in zip((self.kernel, self.other), self._parts, strict=True):
            places = {row: at for at, row in enumerate(mine)}
            kept = [(new, places[row]) for new, row in enumerate(keep) if row in places]
            if len(kept) < len(mine) or [at for _, at in kept] != [*range(len(mine))]:
                chooser.leave([at for _, at in kept])
            parts.append([new for new, _ in kept])
        self._parts, self._count = parts, len(keep)
        self._arrange()

    def tokens(self, logits: mx.array, turn: SamplingStep) -> mx.array:
        return self._joined(self.kernel.tokens, self.other.tokens, logits, turn)

    def tokens_along(self, logits: mx.array, turn: SamplingStep) -> mx.array:
        return self._joined(self.kernel.tokens_along, self.other.tokens_along, logits, turn)

    def _joined(
        self, kernel: _Choose, other: _Choose, logits: mx.array, turn: SamplingStep
    ) -> mx.array:
        kernels, others = self._parts
        if not others:
            return kernel(logits, turn)
        if not kernels:
            return other(logits, turn)
        drawn = [
            choose(logits[take], _part(turn, mine, take))
            for choose, mine, take in zip((kernel, other), self._parts, self._takes, strict=True)
        ]
        return mx.concatenate(drawn)[self._order]

    def keep(self, kept: Sequence[int]) -> None:
        for chooser, mine in zip((self.kernel, self.other), self._parts, strict=True):
            if mine:
                chooser.keep([kept[row] for row in mine])

    def _arrange(self) -> None:
        self._takes = [mx.array(mine) for mine in self._parts]
        both = [*self._parts[0], *self._parts[1]]
        self._order = mx.array(np.argsort(np.array(both, np.int64)).astype(np.uint32))

    def check_integrity(self) -> None:
        self.kernel.check_integrity()
        self.other.check_integrity()
        if sorted([*self._parts[0], *self._parts[1]]) != [*range(self._count)]:
            raise IntegrityError(f"{self._parts} of {self._count} rows")


def _part(turn: SamplingStep, rows: Sequence[int], take: mx.array) -> SamplingStep:
    inputs = turn.inputs[take]
    count, width = turn.inputs.shape
    if width > 1:
        take = mx.arange(count * width).reshape(count, width)[take].reshape(-1)
    masks = turn.masks and Masks(turn.masks.slots[take], turn.masks.words)
    return SamplingStep(
        inputs,
        [turn.indices[row] for row in rows],
        [turn.positions[row] for row in rows],
        None if turn.bias is None else turn.bias[take],
        masks,
    )
