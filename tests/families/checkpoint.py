"""Small checkpoints on disk, with deterministic weights and a real tokenizer.

Ids `PAD` to `END_OF_TEXT` are the same in every checkpoint, the caller's special tokens
follow in order from `FIRST_SPECIAL`, and the vocabulary always has `VOCAB` entries.
"""

import io
import json
import re
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten
from sentencepiece import SentencePieceTrainer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCAB = 512
SPECIAL = ("<|pad|>", "<|bos|>", "<|im_start|>", "<|im_end|>", "<|endoftext|>")
PAD, BOS, IM_START, IM_END, END_OF_TEXT = range(len(SPECIAL))
FIRST_SPECIAL = len(SPECIAL)

CORPUS = """\
A bushel is a measure for grain, apples and other dry goods. Eight gallons fill it.
The miller asked the farmer how many bushels the north field gave this year, and the
farmer answered that the rain had come late, so there were fewer than the year before.
What is the weather like in the valley? It is raining, and the river is rising quickly.
Please write a short story about a lighthouse keeper who collects letters from the sea.
You are a helpful assistant. The user wants the answer in one sentence, without a list.
Première récolte d'été : où sont les pommes, les poires et les œufs frais du marché ?
Größe, Übermut, Straße, Äpfel. El niño comió mañana y corazón. Привет, как дела? Хорошо.
今天天气很好,我们去公园散步吧。東京の朝は静かです。 안녕하세요 세계. שלום עולם. مرحبا بالعالم
🍎🍐🌾 🚜 👩‍🌾 👍🏽 🇫🇷 😀😂 → ≤ ∑ √ € “quoted” ± dash — and an ellipsis…
{"name": "get_weather", "arguments": {"city": "Zürich", "days": 3, "units": null}}
{"items": [{"id": 1, "price": 0.25, "ok": true}, {"id": 2, "price": 12.5, "ok": false}]}
def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
for index in range(10):
    print(f"{index:03d}", end="\\n")
"""


def chatml(image: str = "") -> str:
    """The ChatML template; a content part of type image is rendered as `image`."""
    return (
        "{%- for message in messages -%}"
        "{{- '<|im_start|>' + message['role'] + '\\n' -}}"
        "{%- if message['content'] is string -%}{{- message['content'] -}}"
        "{%- elif message['content'] -%}{%- for part in message['content'] -%}"
        "{%- if part is string -%}{{- part -}}"
        "{%- elif 'text' in part -%}{{- part['text'] -}}"
        "{%- elif 'image' in part['type'] -%}{{- IMAGE -}}"
        "{%- endif -%}{%- endfor -%}{%- endif -%}"
        "{{- '<|im_end|>\\n' -}}"
        "{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
    ).replace("IMAGE", json.dumps(image))


def write_tokenizer(
    path: Path,
    *,
    special: Sequence[str] = (),
    chat_template: str | None = None,
    named: dict[str, str] | None = None,
    config: dict[str, Any] | None = None,
) -> PreTrainedTokenizerFast:
    """Write tokenizer.json and tokenizer_config.json, and return the tokenizer they give."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "tokenizer.json").write_text(_trained(tuple(special)))
    _write_json(
        path / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "pad_token": SPECIAL[PAD],
            "bos_token": SPECIAL[BOS],
            "eos_token": SPECIAL[IM_END],
            "clean_up_tokenization_spaces": False,
            "model_max_length": 1 << 20,
            "chat_template": chat_template or chatml(),
            "extra_special_tokens": named or {},
            **(config or {}),
        },
    )
    return PreTrainedTokenizerFast.from_pretrained(path)


def write_config(path: Path, config: dict[str, Any]) -> None:
    _write_json(path / "config.json", config)


def write_generation_config(path: Path, **fields: Any) -> None:
    ids = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": [IM_END, END_OF_TEXT]}
    _write_json(path / "generation_config.json", {**ids, **fields})


def write_weights(path: Path, model: nn.Module) -> None:
    """Save in MLX layout, so that the library's `sanitize` finds nothing to convert."""
    write_arrays(path, _parameters(model))


def write_arrays(path: Path, arrays: dict[str, mx.array]) -> None:
    path.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(path / "model.safetensors"), arrays, metadata={"format": "mlx"})


def _parameters(model: nn.Module) -> dict[str, mx.array]:
    return dict(tree_flatten(model.parameters()))


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False))


@cache
def _trained(special: tuple[str, ...]) -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=[*SPECIAL, *special],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS.splitlines(keepends=True), trainer)
    assert tokenizer.get_vocab_size() == VOCAB
    return tokenizer.to_str()


def write_sentencepiece(path: Path, special: Sequence[str] = ()) -> None:
    """Write tokenizer.model, with the same ids for special tokens, and tell the config of it."""
    unknown = "<unk>"
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS.splitlines()),
        model_writer=model,
        model_type="bpe",
        vocab_size=VOCAB,
        byte_fallback=True,
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        pad_id=PAD,
        pad_piece=SPECIAL[PAD],
        bos_id=BOS,
        bos_piece=SPECIAL[BOS],
        eos_id=-1,
        unk_id=FIRST_SPECIAL + len(special),
        unk_piece=unknown,
        user_defined_symbols=[*SPECIAL[BOS + 1 :], *special],
        minloglevel=2,
        num_threads=1,
    )
    (path / "tokenizer.model").write_bytes(model.getvalue())
    (path / "tokenizer.json").unlink()
    config = json.loads((path / "tokenizer_config.json").read_text())
    # Every named token is one there is: others would be added to the vocabulary.
    named = {"cls_token": SPECIAL[BOS], "sep_token": SPECIAL[IM_END], "mask_token": SPECIAL[PAD]}
    del config["extra_special_tokens"], config["tokenizer_class"]
    config |= named | {"unk_token": unknown, "additional_special_tokens": []}
    _write_json(path / "tokenizer_config.json", config)


Draw = Callable[[np.random.Generator, mx.array], np.ndarray]


def _log_decay(rng: np.random.Generator, old: mx.array) -> np.ndarray:
    return np.log(rng.uniform(0.01, 1.0, old.shape))


def _short_step(rng: np.random.Generator, old: mx.array) -> np.ndarray:
    return rng.uniform(-4.0, -1.0, old.shape)  # through softplus or sigmoid: 0.02 to 0.3


def _slow_decay(rng: np.random.Generator, old: mx.array) -> np.ndarray:
    return rng.uniform(-6.0, -3.0, old.shape)  # exp(-4 softplus): 0.82 to 0.99 a token


def _unit(rng: np.random.Generator, old: mx.array) -> np.ndarray:
    return rng.uniform(0.0, 1.0, old.shape)


def _around_one(rng: np.random.Generator, old: mx.array) -> np.ndarray:
    return 1.0 + 0.1 * rng.standard_normal(old.shape)


def _jitter(rng: np.random.Generator, old: mx.array) -> np.ndarray:
    return np.array(old.astype(mx.float32)) + 0.1 * rng.standard_normal(old.shape)


def _small(rng: np.random.Generator, old: mx.array) -> np.ndarray:
    return 0.1 * rng.standard_normal(old.shape)


def _normal(rng: np.random.Generator, old: mx.array) -> np.ndarray:
    return rng.standard_normal(old.shape)


def _sign(rng: np.random.Generator, old: mx.array) -> np.ndarray:
    return rng.choice([-1.0, 1.0], old.shape)


def _some_expert(rng: np.random.Generator, old: mx.array) -> np.ndarray:
    return rng.permuted(np.tile(np.arange(8.0), (old.shape[0], 1)), axis=1)[:, : old.shape[1]]


# Two bits stand for -3/2 to 3/2 steps: together the variance of `_projection`, for 128 inputs.
_STEP = 0.08


def _step(rng: np.random.Generator, old: mx.array) -> np.ndarray:
    return np.full(old.shape, _STEP)


def _lowest(rng: np.random.Generator, old: mx.array) -> np.ndarray:
    return np.full(old.shape, -1.5 * _STEP)


def _projection(rng: np.random.Generator, old: mx.array) -> np.ndarray:
    # Three axes are stacked matrices (experts, heads), or a depthwise kernel if the last is 1.
    stacked = old.ndim == 3 and old.shape[-1] > 1
    fan_in = old.shape[-1] if stacked else np.prod(old.shape[1:])
    return rng.standard_normal(old.shape) / np.sqrt(fan_in)


def _loud(rng: np.random.Generator, old: mx.array) -> np.ndarray:
    # Stage after stage of convolutions between activations would leave nothing of an image.
    return 2.0 * _projection(rng, old)


VOCABULARY = re.compile(r"(embed_tokens\w*|embeddings|lm_head|wte)\.weight$|wte\.(new_)?embedding$")
RULES: tuple[tuple[str, Draw], ...] = (
    (r"A_log$", _log_decay),
    (r"dt_bias$|dt_proj\.bias$|w_lora\.lora\.2\.bias$", _short_step),
    (r"recurrent_param$", _slow_decay),
    (r"x_[rwkvag]$|k_a$", _unit),
    (r"k_k$|g_norm\.weight$|(qkv|o)_scale$|(resid|post)_lambda_\w+$", _around_one),
    (r"sinks$|r_k$|w_conv$", _normal),
    (r"reparam(_conv)?\.weight$", _loud),
    (r"\.signs$", _sign),
    (r"tid2eid$", _some_expert),
    (r"\.scales$", _step),
    (r"\.biases$", _lowest),
    (r"bias$", _small),
)


def randomise(model: nn.Module, seed: int, spread: float = 2.0) -> None:
    """Give every parameter a value that depends on `seed` and its path alone.

    Matrices keep the variance of their input, and vectors without a rule (norms, skips,
    scales) their initial value, with jitter. `spread` is the length of the vocabulary's rows,
    and so the spread of the logits after a norm near one: at 8, a tied model echoes one token.
    """
    weights = []
    for path, old in _parameters(model).items():
        rng = np.random.default_rng([seed, zlib.crc32(path.encode())])
        if old.dtype == mx.uint32:  # packed
            bits = rng.integers(0, 1 << 32, old.shape, dtype=np.uint32)
            weights.append((path, mx.array(bits)))
            continue
        if mx.issubdtype(old.dtype, mx.integer):  # tables that follow from the config
            weights.append((path, old))
            continue
        default = _projection if old.ndim > 1 else _jitter
        draw = next((draw for rule, draw in RULES if re.search(rule, path)), default)
        value = draw(rng, old) * (spread if VOCABULARY.search(path) else 1.0)
        weights.append((path, mx.array(value.astype(np.float32))))
    model.load_weights(weights)
    mx.eval(model.parameters())
