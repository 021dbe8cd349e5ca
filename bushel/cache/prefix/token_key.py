"""A prompt as the key under which its state is kept: one number per token.

ids    <|im_start|> user [pad] [pad] [pad] [pad] [pad] What ...
key         1        88   -d0   -d1   -d2   -d3   -d0   512 ...     d: words of the image's digest

Two prompts share a token's state only if all numbers up to it are the same, so an image's
placeholders carry what it shows. Four words hold the whole digest. Each is mixed with the token
in whose place it is: where nobody knows an image's place, it is said to be everywhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from bushel.core import Media, Prepared

Key = np.ndarray  # int64

_WORD = 16  # hex digits
_WORDS = 4


def key_of(prompt: Prepared, reply: Sequence[int] = ()) -> Key:
    """Of a prompt, and of the tokens that were run after it."""
    key = np.empty(len(prompt.ids) + len(reply), np.int64)
    key[: len(prompt.ids)] = prompt.ids
    key[len(prompt.ids) :] = reply
    for media in prompt.media:
        ids = key[media.start : media.end]
        ids[:] = -1 - (np.resize(_words(media), len(ids)) ^ ids)  # negative, as no token id is
    return key


def _words(media: Media) -> np.ndarray:
    parts = (media.digest[at * _WORD : (at + 1) * _WORD] for at in range(_WORDS))
    return np.array([int(part, 16) >> 2 for part in parts], np.int64)


def digest_of(key: Key) -> bytes:
    """What tells a key from all others."""
    return hashlib.sha256(np.ascontiguousarray(key, "<i8").data).digest()


def agree(one: Key, other: Key) -> int:
    """How many numbers two keys have in common from their beginnings."""
    length = min(len(one), len(other))
    differ = one[:length] != other[:length]
    at = int(differ.argmax()) if length else 0
    return at if length and differ[at] else length
