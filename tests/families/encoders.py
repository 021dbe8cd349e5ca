"""Encoder checkpoints: every family of text encoders that is served, two layers each.

Their tokenizer begins texts with <|bos|> and ends them with <|im_end|>, as BERT's does with
[CLS] and [SEP].
"""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from .checkpoint import BOS, IM_END, PAD, SPECIAL, VOCAB, randomise, write_config, write_weights
from .checkpoint import write_tokenizer as write_plain_tokenizer

CONTEXT = 256
_SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": CONTEXT,
    "pad_token_id": PAD,
}
_BERT = {**_SIZES, "model_type": "bert", "type_vocab_size": 2}
# Padding has id 0 here, so that positions begin at 1, and one is lost.
_ROBERTA = {
    **_SIZES,
    "model_type": "xlm-roberta",
    "type_vocab_size": 1,
    "max_position_embeddings": CONTEXT + 1,
}
_MODERN = {
    **_SIZES,
    "model_type": "modernbert",
    "global_attn_every_n_layers": 2,
    "local_attention": 16,
    "norm_eps": 1e-5,
    "classifier_pooling": "mean",
}
_QWEN = {
    **_SIZES,
    "model_type": "qwen3",
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}
_CONFIGS = {"bert": _BERT, "xlm_roberta": _ROBERTA, "modernbert": _MODERN}
# By their way of pooling.
EMBEDDERS = {
    "bert": (_BERT, "mean"),
    "bert_cls": (_BERT, "cls"),
    "bert_max": (_BERT, "max"),
    "xlm_roberta": (_ROBERTA, "mean"),
    "modernbert": (_MODERN, "cls"),
    "qwen3_embedding": (_QWEN, "lasttoken"),
}
CROSS_ENCODERS = {f"{name}_cross": config for name, config in _CONFIGS.items()}
ENCODERS = (*EMBEDDERS, *CROSS_ENCODERS)


def build(name: str, path: Path) -> Path:
    """Write the checkpoint of encoder `name` into `path`, ready for mlx-vlm's loaders."""
    from mlx_vlm.embedding_loader import EMBEDDING_MODEL_REMAPPING
    from mlx_vlm.utils import get_model_and_args

    crosses = name in CROSS_ENCODERS
    config = CROSS_ENCODERS[name] if crosses else EMBEDDERS[name][0]
    kind = config["model_type"]
    module, _ = get_model_and_args(
        config={**config, "model_type": EMBEDDING_MODEL_REMAPPING.get(kind, kind)}
    )
    model_class = module.SequenceClassificationModel if crosses else module.Model
    model = model_class(module.ModelConfig.from_dict({**config, "num_labels": 1}))
    randomise(model, seed=3)
    write_weights(path, model)
    if crosses:
        config = {**config, "architectures": ["TinyForSequenceClassification"], "num_labels": 1}
    write_config(path, config)
    if not crosses:
        write_pooling(path, EMBEDDERS[name][1])
    write_tokenizer(path)
    return path


def write_pooling(path: Path, mode: str) -> None:
    (path / "1_Pooling").mkdir()
    (path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": mode}))


def write_tokenizer(path: Path) -> None:
    write_plain_tokenizer(path, config={"chat_template": None})
    first, last = SPECIAL[BOS], SPECIAL[IM_END]
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    tokenizer.post_processor = TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {last} $B:1 {last}:1",
        special_tokens=[(first, BOS), (last, IM_END)],
    )
    tokenizer.save(str(path / "tokenizer.json"))
