"""Random-weight models of real shapes, made in memory: for speed only, their words mean nothing."""

from __future__ import annotations

import importlib
import json
import math
from pathlib import Path
from string import ascii_letters
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map_with_path
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from bushel.core.checkpoint import Checkpoint
from bushel.models.text_model import TextModel
from bushel.text.tokenizer import Tokenizer


def _llama(hidden: int, layers: int, heads: int, kv: int, mlp: int, vocab: int) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "intermediate_size": mlp,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": hidden // heads,
        "rms_norm_eps": 1e-5,
        "vocab_size": vocab,
        "max_position_embeddings": 131072,
        "rope_theta": 500000.0,
        "tie_word_embeddings": hidden < 4096,
    }


_HYBRID: dict[str, Any] = {
    "model_type": "qwen3_5",
    "text_config": {
        "model_type": "qwen3_5_text",
        "hidden_size": 2560,
        "num_hidden_layers": 32,
        "intermediate_size": 9216,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "linear_num_value_heads": 32,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "full_attention_interval": 4,
        "rms_norm_eps": 1e-6,
        "vocab_size": 248320,
        "max_position_embeddings": 262144,
        "tie_word_embeddings": True,
        "rope_parameters": {
            "type": "default",
            "mrope_section": [11, 11, 10],
            "rope_theta": 10000000,
            "partial_rotary_factor": 0.25,
        },
    },
}

_SMALL_HYBRID = {
    **_HYBRID,
    "text_config": {
        **_HYBRID["text_config"],
        "hidden_size": 256,
        "num_hidden_layers": 8,
        "intermediate_size": 768,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "linear_num_value_heads": 8,
        "linear_num_key_heads": 4,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "vocab_size": 8192,
        "rope_parameters": {
            **_HYBRID["text_config"]["rope_parameters"],
            "mrope_section": [3, 3, 2],
        },
    },
}

# Five of six layers see the last 1,024 tokens only.
_WINDOWS: dict[str, Any] = {
    "model_type": "gemma3_text",
    "hidden_size": 2560,
    "num_hidden_layers": 34,
    "intermediate_size": 10240,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-6,
    "vocab_size": 262208,
    "max_position_embeddings": 131072,
    "sliding_window": 1024,
    "sliding_window_pattern": 6,
    "tie_word_embeddings": True,
}

CONFIGS: dict[str, dict[str, Any]] = {
    "nano": _llama(64, 2, 2, 2, 128, 4096),  # nothing but overhead
    "20m": _llama(384, 8, 6, 2, 1280, 8192),
    "1b": _llama(2048, 16, 32, 8, 8192, 128256),
    "8b": _llama(4096, 32, 32, 8, 14336, 128256),
    "hybrid8m": _SMALL_HYBRID,
    "hybrid4b": _HYBRID,
    "windows4b": _WINDOWS,
}


BYTES = 256  # the first tokens are single bytes, which prompts and replies do without


def word_of(token: int) -> str:
    """a, b, ... Z, aa, ab, ...: every beginning of a word is a word before it."""
    letters, rest = "", token - BYTES + 1
    while rest:
        rest, at = divmod(rest - 1, len(ascii_letters))
        letters = ascii_letters[at] + letters
    return letters


# mlx-vlm gives the template of a model that sees a list of parts.
_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}{{ part.text }}{% endfor %}{% endif %}"
    "{% endfor %}"
)


def _tokenizer(vocab: int) -> PreTrainedTokenizerFast:
    """Byte-level, with made-up words up to the model's vocabulary, so that text is decoded.

    Each word is merged from the one before its last letter: classes that put their own splitting
    of text in place of the file's, as those for Qwen do, read the same tokens.
    """
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [f"Ġ{word_of(token)}" for token in range(BYTES, vocab - 1)]
    ids = {text: at for at, text in enumerate([*letters, *words, "<|end|>"])}
    merges = [(word[:-1], word[-1]) for word in words]
    fast = FastTokenizer(models.BPE(vocab=ids, merges=merges))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=fast, eos_token="<|end|>")
    made.chat_template = _TEMPLATE
    return made


_VOCABULARY = ("embed_tokens", "lm_head")


def _draw(name: str, initial: mx.array, dtype: mx.Dtype) -> mx.array:
    """Replies depend on all of the prompt: matrices keep the variance of their input, and vectors
    their initial value. Scores spread by 2, so that a tied model does not echo one token."""
    if initial.ndim == 1:
        return initial.astype(dtype)
    module = name.split(".")[-2]
    inputs = math.prod(initial.shape[1:]) if "conv" in module else initial.shape[-1]
    drawn = (mx.random.normal(initial.shape) * inputs**-0.5).astype(dtype)
    if module in _VOCABULARY:
        # Neither bytes nor the end: a reply ends by its length, and its text tells its tokens.
        drawn[:BYTES] = 0
        drawn[-1] = 0
        return 2 * drawn
    return drawn


def make(name: str, dtype: mx.Dtype) -> TextModel:
    return build(name, CONFIGS[name], dtype)


def write(name: str, dtype: mx.Dtype, folder: Path) -> None:
    """The same model as a checkpoint, for a server to load."""
    model = make(name, dtype)
    save(name, model.network, dtype, folder)
    model.close()


def save(name: str, network: Any, dtype: mx.Dtype, folder: Path) -> None:
    weights: Any = dict(tree_flatten(network.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
    kind, vocab = str(dtype).removeprefix("mlx.core."), _vocab(CONFIGS[name])
    config = {**CONFIGS[name], "torch_dtype": kind, "eos_token_id": vocab - 1}
    (folder / "config.json").write_text(json.dumps(config))
    _tokenizer(vocab).save_pretrained(folder)


def _vocab(config: dict[str, Any]) -> int:
    return int(config.get("text_config", config)["vocab_size"])


def build(name: str, config: dict[str, Any], dtype: mx.Dtype) -> TextModel:
    module = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    mx.random.seed(0)
    network = module.Model(module.ModelArgs.from_dict(config))
    weights = tree_map_with_path(
        lambda name, initial: _draw(name, initial, dtype), network.parameters()
    )
    network.update(weights)
    mx.eval(network.parameters())
    network.eval()
    checkpoint = Checkpoint(Path(name), config, {}, {}, frozenset())
    tokenizer = _tokenizer(_vocab(config))
    return TextModel(checkpoint, network, Tokenizer(tokenizer, checkpoint))
