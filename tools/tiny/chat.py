"""Conversations as the chat template writes them, and as tokens with what is to be learned."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
import jinja2.sandbox

from tools.tiny.config import IM_END, IM_START, IMAGE_PAD, MARKUP, SPECIAL
from tools.tiny.scene import Picture

TEMPLATE = Path(__file__).with_name("template.jinja")


@dataclass
class Check:
    """What a right reply is: `how` names a function of `tools.tiny.score`."""

    how: str
    expected: Any = None


@dataclass
class Talk:
    """A conversation that ends with the reply to learn, or to be compared with.

    A message's content is text or a list of parts; an image part holds its `Picture`.
    """

    kind: str
    messages: list[dict[str, Any]]
    check: Check
    tools: list[dict[str, Any]] | None = None
    thinking: bool = False
    tool_format: str = "json"
    pictures: list[Picture] = field(default_factory=list)

    def __post_init__(self) -> None:
        parts = [
            part
            for message in self.messages
            if isinstance(message.get("content"), list)
            for part in message["content"]
        ]
        self.pictures = [part["image"] for part in parts if part["type"] == "image"]


def _tojson(value: object, **_: object) -> str:
    return json.dumps(value, ensure_ascii=False)


@cache
def _template() -> jinja2.Template:
    """The environment that transformers gives to chat templates."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    return environment.from_string(TEMPLATE.read_text())


def render(
    messages: Sequence[dict[str, Any]],
    tools: Sequence[dict[str, Any]] | None = None,
    add_generation_prompt: bool = False,
    **options: object,
) -> str:
    return _template().render(
        messages=messages,
        tools=tools,
        add_generation_prompt=add_generation_prompt,
        **options,
    )


def text_of(talk: Talk) -> str:
    return render(talk.messages, talk.tools, tool_format=talk.tool_format)


@dataclass
class Encoded:
    """ids with every picture's place expanded; trained marks the assistant's tokens."""

    ids: list[int]
    trained: list[bool]
    pictures: list[Picture]


def encode(talk: Talk, tokenizer: Any) -> Encoded:
    """`tokenizer` is a tokenizers.Tokenizer."""
    start, end, pad = (SPECIAL.index(token) for token in (IM_START, IM_END, IMAGE_PAD))
    think = len(SPECIAL) + MARKUP.index("<think>")
    header = _header(tokenizer)
    raw = tokenizer.encode(text_of(talk), add_special_tokens=False).ids
    ids: list[int] = []
    trained: list[bool] = []
    pictures = iter(talk.pictures)
    speaking, at = False, 0
    while at < len(raw):
        token = raw[at]
        if token == pad:
            count = next(pictures).tokens
            ids += [pad] * count
            trained += [False] * count
            at += 1
        elif token == start and raw[at + 1 : at + 1 + len(header)] == header:
            taken = 1 + len(header)
            if raw[at + taken] == think:  # the prompt already opened the thought
                taken += 2
            ids += raw[at : at + taken]
            trained += [False] * taken
            speaking = True
            at += taken
        else:
            ids.append(token)
            trained.append(speaking)
            speaking = speaking and token != end
            at += 1
    return Encoded(ids, trained, list(talk.pictures))


_HEADERS: dict[int, list[int]] = {}


def _header(tokenizer: Any) -> list[int]:
    if id(tokenizer) not in _HEADERS:
        _HEADERS[id(tokenizer)] = tokenizer.encode("assistant\n", add_special_tokens=False).ids
    return _HEADERS[id(tokenizer)]
