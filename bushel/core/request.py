"""What travels into the engine: a prompt as ids and host tensors, and how to decode it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bushel.core.params import Decoding


@dataclass(frozen=True)
class Prepared:
    """A prompt after templating, tokenizing and image processing; nothing of it is on a device.

    `tensors` is what the model's processor made of the media (numpy arrays and plain values),
    empty for text. One Prepared may be embedded any number of times.
    """

    ids: tuple[int, ...]
    tensors: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_media(self) -> bool:
        return bool(self.tensors)


@dataclass(frozen=True)
class Request:
    id: str
    prompt: Prepared
    choices: tuple[Decoding, ...]  # one per choice; they share the prompt
