"""Text models, as mlx-lm runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from bushel.core import Prepared
from bushel.core.checkpoint import Checkpoint
from bushel.models.known_families import single_because
from bushel.models.library_fixes import batchable, mend
from bushel.models.model import Features, Model, Prompt, State
from bushel.models.pooling import pooling_of
from bushel.models.preparer import Preparer
from bushel.text.tokenizer import Tokenizer


class TextModel(Model):
    def __init__(self, checkpoint: Checkpoint, network: Any, tokenizer: Tokenizer):
        self.heads, self.head_dim = checkpoint.heads, checkpoint.head_dim
        mend(network, checkpoint.config)
        self.network = network
        self.single = single_because(network)
        self.pooling = pooling_of(checkpoint.pooling)
        self.host = Preparer(checkpoint, tokenizer, self._probe_vocab())

    def make_state(self) -> State:
        from mlx_lm.models.cache import make_prompt_cache

        state = batchable(self.network, list(make_prompt_cache(self.network)))
        return self._encoded(state)

    def embed(self, prepared: Prepared, start: int = 0, features: Features | None = None) -> Prompt:
        return Prompt(prepared.ids)

    def prefill(self, prompt: Prompt, start: int, end: int, state: State) -> mx.array:
        return self.network(mx.array([prompt.ids[start:end]]), cache=state)

    def forward(self, tokens: mx.array, positions: Sequence[int], state: State) -> mx.array:
        return self.network(tokens, cache=state)

    def distrust(self) -> None:
        pass  # nothing is learned here

    def close(self) -> None:
        self.network = None
