"""How much memory work will need: a closed form over shapes, without MLX and without looking.

MLX allocates lazily, so what is in use now says nothing about what was promised. A row is
admitted only if everything that is promised fits when every row has reached its full length:

    weights | state: rows x longest row | the larger of    | headroom
            |  . . . . a b c d          |  a forward pass  |
            |  a b c d e f g h          |  a layer copied  |
            |  . . a b c d e f          |                  |

Rows of a batch are padded to the longest, so that one long row makes all of them long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

STEP = 256  # tokens that the libraries' caches grow by


@dataclass(frozen=True)
class Piece:
    """What one layer keeps of a row, and how many layers are like it."""

    per_token: int = 0
    most: int | None = None  # tokens it keeps, if it is a window
    fixed: int = 0
    buffers: int = 0
    count: int = 1
    paged: bool = False  # its tokens lie in pages that it shares with others

    def row(self, tokens: int) -> int:
        """Bytes of a row of so many tokens, which may just have grown by a step."""
        kept = tokens + STEP
        return self.fixed + self.per_token * (kept if self.most is None else min(kept, self.most))


@dataclass(frozen=True)
class Footprint:
    """A model's sizes in bytes, as `measure.footprint` finds them."""

    weights: int
    weight_buffers: int
    pieces: tuple[Piece, ...]
    per_token: int  # what is alive at once in a forward pass, per token of it
    per_score: int  # and per token of it and token it looks at; 0 where attention is fused
    per_row: int  # logits and what sampling makes of them

    def state(self, rows: int, longest: int) -> int:
        return rows * sum(piece.count * piece.row(longest) for piece in self.pieces)

    def copy(self, rows: int, longest: int) -> int:
        """While rows change, layer after layer is copied, and MLX works on two at a time."""
        return 2 * (rows + 1) * max((piece.row(longest) for piece in self.pieces), default=0)

    def forward(self, tokens: int, context: int) -> int:
        windows = sum(
            piece.count * piece.per_token for piece in self.pieces if piece.most is not None
        )
        return tokens * (self.per_token + windows + self.per_score * context)

    def peak(self, rows: int, longest: int, chunk: int) -> int:
        """All that exists at once with so many rows, of which one runs a chunk of its prompt."""
        return (
            self.weights
            + self.state(rows, longest)
            + max(self.copy(rows, longest), self.forward(max(chunk, rows), longest))
            + rows * self.per_row
        )

    def buffers(self, rows: int) -> int:
        """The batch holds a layer's buffers once; rows on their way to it have their own."""
        return self.weight_buffers + (rows + 1) * sum(
            piece.count * piece.buffers for piece in self.pieces
        )


@dataclass(frozen=True)
class Memory:
    """What may be used, and what has been promised to rows that are admitted."""

    footprint: Footprint
    limit: int
    buffer_limit: int
    rows: int = 0
    longest: int = 0
    held: int = 0  # bytes that rows have now, if that may be more

    def with_rows(self, rows: int, length: int) -> Memory:
        return replace(self, rows=self.rows + rows, longest=max(self.longest, length))

    def without_rows(self, rows: int) -> Memory:
        """The longest may be among those who stay."""
        return replace(self, rows=self.rows - rows)

    def peak(self, chunk: int) -> int:
        """All that will exist at once, while a chunk of so many tokens runs."""
        return self.footprint.peak(self.rows, self.longest, chunk) + self._idle

    @property
    def _idle(self) -> int:
        """Bytes that rows have, and were not promised."""
        return max(0, self.held - self.footprint.state(self.rows, self.longest))

    def fits(self, chunk: int) -> bool:
        """Whether the promises hold while a chunk of so many tokens runs."""
        return (
            self.peak(chunk) <= self.limit
            and self.footprint.buffers(self.rows) <= self.buffer_limit
        )

    def chunk(self, want: int, least: int, context: int) -> int:
        """How many of `want` tokens may run at once when they look at `context` tokens."""
        sizes, rows = self.footprint, self.rows
        used = sizes.weights + sizes.state(rows, self.longest) + rows * sizes.per_row
        room = self.limit - used - self._idle
        each = sizes.forward(1, context)
        return max(min(want, room // each if each else want), min(want, least))

    def longest_row(self, rows: int, chunk: int, most: int) -> int:
        """The longest that so many rows could be with nobody else there; 0 if none could."""
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            alone = replace(self, rows=rows, longest=middle)
            low, high = (middle, high) if alone.fits(chunk) else (low, middle - 1)
        return low


def alike(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Layers of the same sizes as one piece each, counted."""
    counts: dict[Piece, int] = {}
    for piece in pieces:
        counts[piece] = counts.get(piece, 0) + 1
    return tuple(replace(piece, count=count) for piece, count in counts.items())
