"""How much memory work will need: a closed form over shapes, without MLX and without looking.

MLX allocates lazily, so what is in use now says nothing about what was promised. A row is promised
its prompt and some room, and grows into more; it is admitted if all that is promised fits:

    weights | state: rows x longest row | state: tokens    | the larger of    | headroom
            |  . . . . a b c d          |  of all rows, in |  a forward pass  |
            |  a b c d e f g h          |  pages           |  a layer copied  |
            |  . . a b c d e f          |                  |                  |

Where rows of a batch are padded to the longest, one long row makes all of them long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

STEP = 256  # tokens that the libraries' caches grow by
# Of the memory that is left, what one chunk may take: the next is begun before its end.
ONE_CHUNK = 0.5


@dataclass(frozen=True)
class LayerFootprint:
    """What one layer keeps of a row, and how many layers are like it."""

    per_token: int = 0
    window: int | None = None  # tokens it keeps, if it is a window
    fixed: int = 0
    buffers: int = 0
    count: int = 1
    paged: bool = False  # its tokens lie in pages that it shares with others

    def row(self, tokens: int) -> int:
        """Bytes of a row of `tokens`, which may just have grown by a step."""
        kept = tokens + STEP
        return self.fixed + self.per_token * (
            kept if self.window is None else min(kept, self.window)
        )


@dataclass(frozen=True)
class Footprint:
    """A model's sizes in bytes, as `engine.footprint.footprint` finds them."""

    weights: int
    weight_buffers: int
    layers: tuple[LayerFootprint, ...]
    per_token: int  # what is alive at once in a forward pass, per token of it
    per_score: int  # and per token of it and token it looks at; 0 where attention is fused
    per_row: int  # logits and what sampling makes of them
    per_seen: int = 0  # a token that a chunk looks at: keys and values that its latent stands for
    whole: bool = False  # prompts run in one piece each, however long they are
    drafts: int = 0  # columns of a pass that verifies drafts, at most, beside a plain step's

    def state(self, rows: int, longest: int, tokens: int | None = None) -> int:
        """tokens: that lie in pages, of all rows together; None: none are shared."""
        padded = sum(layer.count * layer.row(longest) for layer in self.layers if not layer.paged)
        tokens = rows * (longest + STEP) if tokens is None else tokens
        return rows * padded + tokens * self.paged_token

    @property
    def paged_token(self) -> int:
        """Bytes of a token in pages, and of one layer of it once more: that is copied as pools
        grow.
        """
        paged = [layer for layer in self.layers if layer.paged]
        most = max((layer.per_token for layer in paged), default=0)
        return most + sum(layer.count * layer.per_token for layer in paged)

    def copy(self, rows: int, longest: int) -> int:
        """While rows change, layer after layer is copied, and MLX works on two at a time."""
        padded = (layer.row(longest) for layer in self.layers if not layer.paged)
        return 2 * (rows + 1) * max(padded, default=0)

    def forward(self, tokens: int, context: int) -> int:
        return tokens * self.pass_token(context) + self.gathered(context)

    def pass_token(self, context: int) -> int:
        """Bytes of a forward pass for each token; the last one attends to `context` tokens."""
        windows = sum(
            layer.count * layer.per_token for layer in self.layers if layer.window is not None
        )
        return self.per_token + windows + self.per_score * context

    def token_with_logits(self, context: int) -> int:
        """Of one whose logits are wanted, as in a pass that verifies drafts."""
        return self.per_row + self.pass_token(context)

    def gathered(self, context: int) -> int:
        """A chunk of a prompt puts its row's pages together, and MLX works on two layers."""
        paged = (layer.per_token for layer in self.layers if layer.paged)
        return context * (2 * max(paged, default=0) + self.per_seen)

    def packed(self, rows: int, context: int) -> int:
        """Rows that share a pass have once more, for a while, what does not grow with them, and of
        two layers what they look at, which is put together for each.
        """
        grows = (layer.per_token for layer in self.layers if layer.window is None)
        fixed = sum(layer.count * layer.fixed for layer in self.layers)
        return rows * (fixed + context * (2 * max(grows, default=0) + self.per_seen))

    def peak(self, rows: int, longest: int, chunk: int, tokens: int | None = None) -> int:
        """All that exists at once with `rows`, of which one runs a chunk of its prompt."""
        chunk = max(chunk, longest) if self.whole else chunk
        return (
            self.weights
            + self.state(rows, longest, tokens)
            + max(self.copy(rows, longest), self.forward(max(chunk, rows), longest))
            + rows * self.per_row
            + self.drafts * self.token_with_logits(longest)
        )

    def buffers(self, rows: int) -> int:
        """The batch holds a layer's buffers once; rows on their way to it have their own."""
        return self.weight_buffers + (rows + 1) * sum(
            layer.count * layer.buffers for layer in self.layers
        )


@dataclass(frozen=True)
class Memory:
    """What may be used, and what has been promised to rows that are admitted."""

    footprint: Footprint
    limit: int
    buffer_limit: int
    rows: int = 0
    longest: int = 0
    tokens: int = 0  # of all rows, where they lie in pages

    def with_rows(self, rows: int, length: int) -> Memory:
        """As it will be when `rows` more have grown to `length`."""
        tokens = self.tokens + rows * (length + STEP)
        return replace(
            self, rows=self.rows + rows, longest=max(self.longest, length), tokens=tokens
        )

    def without_rows(self, rows: int, length: int = 0) -> Memory:
        """The longest may be among those who stay."""
        return replace(self, rows=self.rows - rows, tokens=max(0, self.tokens - rows * length))

    def peak(self, chunk: int) -> int:
        """All that will exist at once, while a chunk of `chunk` tokens runs."""
        return self.footprint.peak(self.rows, self.longest, chunk, self.tokens)

    def fits(self, chunk: int) -> bool:
        """Whether the promises hold while a chunk of `chunk` tokens runs."""
        return (
            self.peak(chunk) <= self.limit
            and self.footprint.buffers(self.rows) <= self.buffer_limit
        )

    def paged_tokens(self, chunk: int) -> int:
        """How many could lie in pages beside everything else, of rows or of what is kept."""
        each = self.footprint.paged_token
        room = self.limit - replace(self, tokens=0).peak(chunk)
        return max(0, room // each) if each else 0

    def chunk(
        self, want: int, least: int, context: int, rows_packed: int = 0, *, logits: bool = False
    ) -> int:
        """How many of `want` tokens may run at once when they look at `context` tokens, of which
        so many rows share the pass. logits: those of all tokens are made.
        """
        sizes, rows = self.footprint, self.rows
        used = sizes.weights + sizes.state(rows, self.longest, self.tokens) + rows * sizes.per_row
        drafts = sizes.drafts * sizes.token_with_logits(self.longest)
        beside = sizes.packed(rows_packed, context) if rows_packed else sizes.gathered(context)
        room = self.limit - used - drafts - beside
        each = sizes.token_with_logits(context) if logits else sizes.pass_token(context)
        most = int(room * ONE_CHUNK) // each if each else want
        return max(min(want, most), min(want, least))

    def longest_row(self, rows: int, chunk: int, most: int) -> int:
        """The longest that `rows` could be without other rows; 0 if none fits."""
        low, high = 0, most
        nobody = replace(self, rows=0, longest=0, tokens=0)
        while low < high:
            middle = (low + high + 1) // 2
            fits = nobody.with_rows(rows, middle).fits(chunk)
            low, high = (middle, high) if fits else (low, middle - 1)
        return low


def alike(layers: Sequence[LayerFootprint]) -> tuple[LayerFootprint, ...]:
    """Layers of the same sizes as one each, counted."""
    counts: dict[LayerFootprint, int] = {}
    for layer in layers:
        counts[layer] = counts.get(layer, 0) + 1
    return tuple(replace(layer, count=count) for layer, count in counts.items())
