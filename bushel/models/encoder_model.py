"""Text encoders, as mlx-vlm runs them: whole texts in, one vector or one score each out.

    row 0   [CLS] a b c d e [SEP]     texts of one pass are padded to the longest, and the mask
    row 1   [CLS] a b [SEP]  .  .     keeps every token from seeing what is beyond a text's end

They keep no state, and nothing of a text can be computed without the rest of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from bushel.core import ModelError, Prepared
from bushel.core.checkpoint import Checkpoint
from bushel.core.options import Task
from bushel.models.model import Features, Model, Prompt, State
from bushel.models.preparer import EncoderPreparer
from bushel.text.tokenizer import Tokenizer

# Of mlx-vlm's, by model type: those that are encoders whatever stands beside them, and those that
# are decoders unless the checkpoint says how to pool.
_ENCODERS = frozenset({"bert", "modernbert", "xlm-roberta", "xlm_roberta"})
_POOLED = frozenset({"qwen3", "gemma3_text", "lfm2", "ministral3"})
# Positions of these begin behind the id that stands for padding.
_SHIFTED = frozenset({"xlm-roberta", "xlm_roberta"})


def encoder_task(checkpoint: Checkpoint) -> Task | None:
    """What a checkpoint is for, if it is an encoder; else None."""
    if checkpoint.model_type in _ENCODERS:
        return "score" if checkpoint.classifies else "embed"
    return "embed" if checkpoint.model_type in _POOLED and checkpoint.pooling else None


def open_encoder(checkpoint: Checkpoint, tokenizer: Tokenizer, task: Task) -> EncoderModel:
    """Its weights are read when they are used."""
    if task == "score":
        from mlx_vlm.reranker_loader import load_sequence_classification_model

        network: Any = load_sequence_classification_model(checkpoint.path, lazy=True)
    else:
        from mlx_vlm.embedding_loader import load_embedding_model

        if (checkpoint.path / "1_Dense").exists():
            raise ModelError("it gives a vector for every token, which is not served.")
        network = load_embedding_model(checkpoint.path, lazy=True)
    return EncoderModel(checkpoint, network, tokenizer, task)


class EncoderModel(Model):
    encodes = True

    def __init__(self, checkpoint: Checkpoint, network: Any, tokenizer: Tokenizer, task: Task):
        self.heads, self.head_dim = checkpoint.heads, checkpoint.head_dim
        self.network = network
        # Not through the module: what it is given becomes one of its parameters.
        object.__setattr__(network, "pooling_config", checkpoint.pooling)
        own, named = tokenizer.hf.pad_token_id, checkpoint.config.get("pad_token_id")
        self._pad = int(named if named is not None else own or 0)
        self._types = int(checkpoint.config.get("type_vocab_size") or 1)
        context = checkpoint.context
        if context is not None and checkpoint.model_type in _SHIFTED:
            context -= self._pad + 1
        vocab = int(checkpoint.text_config["vocab_size"])
        self.host = EncoderPreparer(checkpoint, tokenizer, vocab, task, context)

    def make_state(self) -> State:
        return []

    def embed(self, prepared: Prepared, start: int = 0, features: Features | None = None) -> Prompt:
        return Prompt(prepared.ids, extras=dict(prepared.tensors), uncut=((0, len(prepared.ids)),))

    def encode(self, prompts: Sequence[Prompt]) -> mx.array:
        lengths = [len(prompt.ids) for prompt in prompts]
        shape = len(prompts), max(lengths)
        ids, mask = np.full(shape, self._pad, np.int32), np.zeros(shape, np.int32)
        types = np.zeros(shape, np.int32)
        for row, (prompt, length) in enumerate(zip(prompts, lengths, strict=True)):
            ids[row, :length], mask[row, :length] = prompt.ids, 1
            types[row, :length] = prompt.extras.get("token_type_ids", 0)
        types = np.minimum(types, self._types - 1)  # some have one, whatever tokenizers say
        output = self.network(
            mx.array(ids), attention_mask=mx.array(mask), token_type_ids=mx.array(types)
        )
        pooled = output.text_embeds if self.host.task == "embed" else output.logits
        return pooled.astype(mx.float32)

    def prefill(self, prompt: Prompt, start: int, end: int, state: State) -> mx.array:
        raise self._no_decoder()

    def forward(self, tokens: mx.array, positions: Sequence[int], state: State) -> mx.array:
        raise self._no_decoder()

    def distrust(self) -> None:
        pass  # nothing is learned here

    def close(self) -> None:
        self.network = None

    def _no_decoder(self) -> ModelError:
        return ModelError(f"{self.name} is an encoder: it has no next token.")
