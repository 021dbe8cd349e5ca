"""How many tokens each row of a batch has, for layers in which every row has its own length.

Known on the host, so that nothing waits for the device to tell. What a pass needs of it on the
device is made once for all layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlx.core as mx


class RowLengths:
    """Owned by one `BatchState`; its layers read it."""

    def __init__(self) -> None:
        self.tokens: list[int] = []  # of each row, before the pass that runs next
        self.passes = 0  # changes whenever they do
        self._made: dict[tuple[object, ...], mx.array] = {}

    def set(self, tokens: Sequence[int]) -> None:
        self.tokens = list(tokens)
        self.passes += 1
        self._made = {}

    @property
    def alone(self) -> bool:
        return len(self.tokens) == 1

    @property
    def longest(self) -> int:
        return max(self.tokens)

    def once(self, key: tuple[object, ...], make: Callable[[], mx.array]) -> mx.array:
        """What the first layer that asks for it makes, for all of them."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def offset(self, ran: int) -> mx.array | int:
        """Where the next token of each row is, after so many of this pass: [B]; of one row a
        number.
        """
        if self.alone:
            return self.tokens[0] + ran
        return self.once(
            ("offset", ran),
            lambda: mx.array([tokens + ran for tokens in self.tokens], dtype=mx.int32),
        )

    def positions(self, ran: int, count: int) -> mx.array:
        """Of the next tokens of every row: [B, count]."""
        return self.once(
            ("positions", ran, count),
            lambda: mx.array(
                [list(range(tokens + ran, tokens + ran + count)) for tokens in self.tokens],
                dtype=mx.int32,
            ),
        )
