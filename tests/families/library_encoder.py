"""mlx-vlm's own forward pass over one text, the reference of all embeddings and scores."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from transformers import AutoTokenizer


class SoloEncoder:
    """One text, or pair of texts, at a time: no padding, no batch and no mask."""

    def __init__(self, path: Path, *, crosses: bool = False):
        from mlx_vlm.embedding_loader import load_embedding_model
        from mlx_vlm.models.pooling import read_pooling_config
        from mlx_vlm.reranker_loader import load_sequence_classification_model

        self.tokenizer: Any = AutoTokenizer.from_pretrained(path)
        if crosses:
            self.network: Any = load_sequence_classification_model(path)
        else:
            self.network = load_embedding_model(path)
            object.__setattr__(self.network, "pooling_config", read_pooling_config(path))

    def embedding(self, text: str | list[int]) -> np.ndarray:
        ids = self.tokenizer.encode(text) if isinstance(text, str) else text
        return np.array(self.network(mx.array([ids])).text_embeds[0])

    def score(self, query: str, text: str) -> float:
        """Between 0 and 1."""
        tokens = self.tokenizer(query, text, return_token_type_ids=True)
        types = mx.array([tokens["token_type_ids"]])
        kinds = getattr(self.network.config, "type_vocab_size", 1)
        output = self.network(
            mx.array([tokens["input_ids"]]), token_type_ids=mx.minimum(types, kinds - 1)
        )
        return float(1 / (1 + np.exp(-output.logits.item())))
