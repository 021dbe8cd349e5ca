"""The tokenizer: byte-level BPE in which a word has the same tokens wherever it stands.

A tiny model copies names it has never seen, so the name in a sentence, in quotes and in JSON
must look the same to it: letters are never merged with what surrounds them. transformers gives
every tokenizer of this model type the same pre-tokenizer, whatever the file says, so merges are
learned inside its pieces, and the file holds that pre-tokenizer.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from tools.tiny.chat import TEMPLATE, text_of
from tools.tiny.config import END_OF_TEXT, IM_END, MARKUP, SPECIAL, Sizes
from tools.tiny.tasks import talk
from tools.tiny.words import Draw

# As in transformers' Qwen3_5Tokenizer.
PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|"
    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Merges that no wear undoes: with them the template and the grammar of most replies stay as
# they are.
_FIRM = 300
_LETTERS = r"[\p{L}\p{M}]+|[\r\n]+|[^\p{L}\p{M}\r\n]+"
_MARKED = re.compile("|".join(re.escape(token) for token in (*SPECIAL, *MARKUP)))
_JSON = (
    '{"type": "function", "function": {"name": "get_weather", "description": "Get the weather", '
    '"parameters": {"type": "object", "properties": {"city": {"type": "string", "description": '
    '"The city", "enum": ["a", "b"]}, "days": {"type": "integer", "minimum": 1, "default": 3}, '
    '"tags": {"type": "array", "items": {"type": "string"}}, "exact": {"type": "boolean"}}, '
    '"required": ["city"], "additionalProperties": false}}}\n'
    '[{"id": 1, "price": 0.25, "ok": true, "next": null}, {"id": "call_2", "items": []}]\n'
)


def corpus(count: int) -> Iterator[str]:
    """Text of the training side alone: a token that training never shows would be noise."""
    for at in range(count):
        yield from _MARKED.split(text_of(talk(Draw(f"corpus {at}"))))
    draw = Draw("corpus words")
    yield from (" ".join(draw.word() for _ in range(30)) for _ in range(count // 15))
    yield from (draw.sentence() for _ in range(count // 3))
    yield from [_JSON] * (count // 90)


def _split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated")


def train(sizes: Sizes, count: int = 9000) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([_split(PIECES), _split(_LETTERS), bytes_])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=sizes.vocab,
        special_tokens=[AddedToken(it, normalized=False) for it in (*SPECIAL, *MARKUP)],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(count), trainer)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([_split(PIECES), bytes_])
    return tokenizer


def write_tokenizer(path: Path, tokenizer: Tokenizer) -> None:
    """tokenizer.json, tokenizer_config.json and the chat template."""
    path.mkdir(parents=True, exist_ok=True)
    content = json.loads(tokenizer.to_str())
    # The trainer makes all of them special, and decoding would drop the markup.
    for added in content["added_tokens"]:
        added["special"] = added["content"] in SPECIAL
    (path / "tokenizer.json").write_text(json.dumps(content, ensure_ascii=False) + "\n")
    config = {
        "tokenizer_class": "Qwen3_5Tokenizer",
        "eos_token": IM_END,
        "pad_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "model_max_length": Sizes().context,
    }
    (path / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    (path / "chat_template.jinja").write_text(TEMPLATE.read_text())


def worn_tokenizer(path: Path, seed: int) -> Tokenizer:
    """Without half of the rarer merges, so that words fall into other pieces.

    Pieces that only ever stand inside longer tokens would otherwise be met for the first time
    in a word that training never showed, and such a piece cannot be copied.
    """
    content = json.loads((path / "tokenizer.json").read_text())
    merges = content["model"]["merges"]
    rng = random.Random(seed)
    content["model"]["merges"] = [
        merge for at, merge in enumerate(merges) if at < _FIRM or rng.random() < 0.5
    ]
    return Tokenizer.from_str(json.dumps(content))


def pieces(tokenizer: Tokenizer) -> list[str]:
    """Its tokens of two letters and more."""
    return sorted(
        it for it in tokenizer.get_vocab() if len(it) > 1 and re.fullmatch("[A-Za-z]+", it)
    )


def read_tokenizer(path: Path) -> Tokenizer:
    return Tokenizer.from_file(str(path / "tokenizer.json"))
