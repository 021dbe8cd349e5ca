"""What travels into the engine: a prompt as ids and host tensors, and how to decode it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bushel.core.constraint import Constraint
from bushel.core.params import Decoding, TokenRules

# What a request is for: generated text, or numbers that stand for the prompt (its pooled hidden
# states; of a cross-encoder, the score of a pair of texts).
Result = Literal["text", "embedding"]


@dataclass(frozen=True)
class Media:
    """An image or video in a prompt: tokens [start, end) stand for it, and for nothing else."""

    start: int
    end: int
    digest: str  # sha256 in hex, over mode, size, pixels and the processor's settings


@dataclass(frozen=True)
class Borders:
    """Where prompts to come may part from this one, in tokens; 0: nowhere known.

    tokens   system + tools | … turns … | last user message | … tool rounds … | generation prompt
                            ^ system                         ^ user            ^ history
    """

    system: int = 0
    user: int = 0
    history: int = 0  # 0 also where the generation prompt stays, so that the prompt's end serves
    reply: bool = True  # whether the reply's own tokens can be part of the next turn's prompt


@dataclass(frozen=True)
class Prepared:
    """A prompt after templating, tokenizing and image processing; nothing of it is on a device.

    `tensors` is what the model's processor made of the media (numpy arrays and plain values),
    empty for text. One Prepared may be embedded any number of times.
    """

    ids: tuple[int, ...]
    tensors: Mapping[str, Any] = field(default_factory=dict)
    media: tuple[Media, ...] = ()  # in order
    borders: Borders = Borders()
    constraint: Constraint | None = None  # what the reply is held to
    opened: bool = False  # it ends inside a thinking block
    token_rules: TokenRules = field(default_factory=TokenRules)
    prediction: tuple[int, ...] = ()  # what the reply may repeat, for those who guess it ahead

    @property
    def has_media(self) -> bool:
        return bool(self.tensors)


@dataclass(frozen=True)
class Request:
    id: str
    prompt: Prepared
    choices: tuple[Decoding, ...]  # one per choice; they share the prompt
    salt: str = ""  # only requests of the same salt share what was computed
    owner: str = ""  # whose it is; owners share the machine evenly
    group: str = ""  # requests that were one when they arrived; empty: it is one by itself
    result: Result = "text"
    priority: int = 0  # of an owner's requests those with the lowest value go first
    background: bool = False  # work that nobody waits for: all other goes first, whoever's it is
