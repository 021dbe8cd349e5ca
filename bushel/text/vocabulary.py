"""A model's tokens as text and bytes, for replies and for log-probabilities. No MLX."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

from tokenizers import Tokenizer

from bushel.core.options import ModelInfo

_BROKEN = "\ufffd"
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Vocabulary:
    """Built from `ModelInfo.tokenizer`, or from the checkpoint where it has no such form."""

    def __init__(self, model_info: ModelInfo):
        self._fast: Tokenizer | None = None
        self._slow: Any = None
        self._byte_level = False
        self._bytes_alone = False  # a text is its tokens' bytes, one after the other
        self._added: dict[int, str] = {}
        self._special: frozenset[int] = frozenset()
        if model_info.tokenizer is not None:
            self._fast = Tokenizer.from_str(model_info.tokenizer)
            described = json.loads(model_info.tokenizer)
            decoder = described.get("decoder")
            self._byte_level = "ByteLevel" in json.dumps(decoder)
            self._bytes_alone = (decoder or {}).get("type") == "ByteLevel"
            added = described.get("added_tokens", ())
            self._added = {token["id"]: token["content"] for token in added}
            self._special = frozenset(token["id"] for token in added if token["special"])
        else:
            from transformers import AutoTokenizer

            self._slow = AutoTokenizer.from_pretrained(model_info.path)
            self._special = frozenset(self._slow.all_special_ids)
        self.bytes = lru_cache(maxsize=1 << 16)(self._bytes)
        self._alone = lru_cache(maxsize=1 << 16)(lambda token: self._decode([token]))

    def decode(self, ids: Sequence[int]) -> str:
        if len(ids) == 1:
            return self._alone(ids[0])
        if self._bytes_alone:
            text = "".join([self._alone(token) for token in ids])
            if _BROKEN not in text:  # so none of them is part of a character
                return text
        return self._decode(ids)

    def _decode(self, ids: Sequence[int]) -> str:
        if self._fast is not None:
            return str(self._fast.decode(list(ids), skip_special_tokens=True))
        return str(
            self._slow.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        )

    def hidden(self, token: int) -> bool:
        """Whether it is left out of texts."""
        return token in self._special

    @cached_property
    def special_texts(self) -> tuple[tuple[int, str], ...]:
        """Each special token, and what it is called in a text that has them."""
        return tuple((token, self.text(token)) for token in sorted(self._special))

    def text(self, token: int) -> str:
        """Half a character is shown as U+FFFD; `bytes` has it exactly."""
        return self.bytes(token).decode("utf-8", errors="replace")

    def _bytes(self, token: int) -> bytes:
        if token in self._added:
            return self._added[token].encode()
        if self._fast is None:
            piece = self._slow.convert_ids_to_tokens(token) or ""
        else:
            piece = self._fast.id_to_token(token) or ""
        if byte := _BYTE.fullmatch(piece):
            return bytes.fromhex(byte[1])
        if self._byte_level and all(character in _BYTES for character in piece):
            return bytes(_BYTES[character] for character in piece)
        return str(piece).replace("\u2581", " ").encode()


def _byte_characters() -> dict[str, int]:
    """The printable characters by which byte-level tokenizers write the 256 bytes.

    Printable Latin-1 characters stand for themselves; the other bytes, in order, are written as
    the characters from U+0100 on.
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    shifted = {chr(0x100 + at): byte for at, byte in enumerate(others)}
    return {chr(byte): byte for byte in plain} | shifted


_BYTES = _byte_characters()
