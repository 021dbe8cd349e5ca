"""The one interface between Bushel and a loaded model, whichever library owns it.

Words used here:
  state      the list of per-layer caches the model reads and writes; one object, kept and
             passed on, because some models replace its entries in place
  position   the rotary position of a token; equals its index unless images shift it
  span       a run of placeholder tokens that stands for one image or video
  uncut      a region of the prompt that has to go through the model in one piece

Everything here runs on the thread that owns MLX.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import mlx.core as mx
from mlx.utils import tree_flatten

from bushel.core import GenerationDefaults, ModelError, Prepared
from bushel.models.hidden_states import body_of, hidden_among, recorded
from bushel.models.kv_bits import KVBits
from bushel.models.mtp.mtp_head import MTPHead
from bushel.models.pooling import Pooling
from bushel.models.preparer import Preparer
from bushel.text.tokenizer import Tokenizer

State = list[Any]


@dataclass(frozen=True)
class Prompt:
    """A prompt ready to be prefilled in pieces. Owned by one sequence, never mutated.

    `extras` belongs to the model that made it; nobody else reads it.
    """

    ids: tuple[int, ...]
    embeds: mx.array | None = None  # [1, L, D]
    positions: mx.array | None = None  # [3, 1, L] for families with explicit positions
    delta: int = 0  # the token after the prompt has position len(ids) + delta
    extras: dict[str, Any] = field(default_factory=dict)
    spans: tuple[tuple[int, int], ...] = ()
    uncut: tuple[tuple[int, int], ...] = ()

    def cut(self, start: int, want: int, last: int) -> int:
        """The end of a piece that begins at `start` and should end near `want`, at most `last`.

        It ends earlier rather than later, but never inside an uncut region, and never at
        `start`.
        """
        end = min(want, last)
        for low, high in self.uncut:
            if low < end < high:
                end = low if low > start else min(high, last)
        return end


class Features(Protocol):
    """What the vision tower made of images seen before, by their digest."""

    def get(self, digest: str) -> Mapping[str, mx.array] | None: ...

    def put(self, digest: str, arrays: Mapping[str, mx.array]) -> None:
        """The arrays are shared from now on: nobody writes into them."""


class Model(ABC):
    """A loaded checkpoint: weights, tokenizer, and how to run both.

    Logits that nobody evaluates cost nothing: `prefill` returns them lazily.
    """

    host: Preparer  # what needs no weights
    single: str | None = None  # why its rows cannot share a batch, if it is known beforehand
    heads: int  # query heads of an attention layer
    head_dim: int | None
    network: Any  # the library's own object
    kv_bits: KVBits | None = None  # how keys and values are encoded, if they are
    encodes = False  # it takes whole texts and writes none (`encode`)
    pooling: Pooling = "last"  # how hidden states become an embedding, where it does not encode
    pages: Any = None  # of the keys and values of its rows, where they are in pages (`PagePool`)
    whole_in_pages: bool = False  # all that its layers keep of a row is in them
    shares_passes: bool = False  # prompts of several rows may share a forward pass
    mtp: MTPHead | None = None  # its prediction head, where somebody drafts with it

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def tokenizer(self) -> Tokenizer:
        return self.host.tokenizer

    @property
    def defaults(self) -> GenerationDefaults:
        return self.host.defaults

    @property
    def vocab(self) -> int:
        return self.host.vocab

    @property
    def context(self) -> int | None:
        return self.host.context

    @property
    def weights(self) -> tuple[int, int]:
        """Bytes and buffers."""
        leaves: Any = tree_flatten(self.network.parameters())
        return sum(leaf.nbytes for _, leaf in leaves), len(leaves)

    @abstractmethod
    def make_state(self) -> State:
        """Fresh single-row state, from the library that owns the model."""

    @abstractmethod
    def embed(self, prepared: Prepared, start: int = 0, features: Features | None = None) -> Prompt:
        """Nothing of the prompt may stay behind on the model (B5).

        Tokens before `start` will not be run: their images need not be encoded. Others are not
        encoded again if `features` has them, and given to it if it has not.
        """

    @abstractmethod
    def prefill(self, prompt: Prompt, start: int, end: int, state: State) -> mx.array:
        """Run prompt tokens [start, end) of one row; logits [1, end - start, V]."""

    @abstractmethod
    def forward(self, tokens: mx.array, positions: Sequence[int], state: State) -> mx.array:
        """Run text tokens [B, n], row i from position positions[i] on; logits [B, n, V]."""

    @abstractmethod
    def distrust(self) -> None:
        """The device failed: whatever was learned from what it computed is forgotten."""

    def forward_with_hidden(
        self, tokens: mx.array, positions: Sequence[int], state: State
    ) -> tuple[mx.array, mx.array]:
        """As `forward`; logits, and the last hidden states [B, n, D] that they were made of.

        ModelError where the family does not show them.
        """
        with recorded(body_of(self.network)) as outputs:
            logits = self.forward(tokens, positions, state)
        return logits, hidden_among(outputs, logits, self.network)

    def prefill_with_hidden(
        self, prompt: Prompt, start: int, end: int, state: State
    ) -> tuple[mx.array, mx.array]:
        """As `prefill`; logits, and the last hidden states [1, end - start, D].

        ModelError where the family does not show them.
        """
        with recorded(body_of(self.network)) as outputs:
            logits = self.prefill(prompt, start, end, state)
        return logits, hidden_among(outputs, logits, self.network)

    def text_positions(self, positions: Sequence[int], count: int) -> dict[str, mx.array]:
        """What a layer of its network is told of so many tokens of text in each row, row i from
        positions[i] on; nothing where layers count for themselves.
        """
        return {}

    def prompt_positions(self, prompt: Prompt, start: int, end: int) -> dict[str, mx.array]:
        """Likewise of a prompt's tokens [start, end)."""
        return {}

    def encode(self, prompts: Sequence[Prompt]) -> mx.array:
        """Whole texts in one pass, where it `encodes`: [B, D] in float32; of pairs their scores."""
        raise ModelError(f"{self.name} is no encoder.")

    @abstractmethod
    def close(self) -> None:
        """Drop the weights."""

    def _encoded(self, state: State) -> State:
        return state if self.kv_bits is None else self.kv_bits.encode(state)

    def _probe_vocab(self) -> int:
        """Rows of the output projection: the shape of one token's logits, never evaluated."""
        return int(self.forward(mx.array([[0]]), [0], self.make_state()).shape[-1])
