"""Content blocks, to parts of a turn (`core.conversation.Turn`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bushel.server.api.errors import InvalidField

MOST_BLOCKS = 4096
Part = dict[str, Any]

MEDIA_TYPE = re.compile(r"image/[A-Za-z0-9.+-]{1,64}")


def unsupported_block(where: str, what: str) -> InvalidField:
    rule = f"is {what}, which this server does not support"
    return InvalidField(where, rule, code="unsupported_block")


def blocks_of(where: str, content: Any) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(place, type, block) of a content; a string is one block of text."""
    if isinstance(content, str):
        yield where, "text", {"type": "text", "text": content}
        return
    if not isinstance(content, list) or len(content) > MOST_BLOCKS:
        raise InvalidField(where, f"must be a string or a list of at most {MOST_BLOCKS} blocks")
    for at, block in enumerate(content):
        here = f"{where}[{at}]"
        kind = block.get("type") if isinstance(block, dict) else None
        if not isinstance(kind, str):
            raise InvalidField(here, "must be an object with a type")
        yield here, kind, block


def text(where: str, block: Mapping[str, Any], key: str) -> str:
    value = block.get(key)
    if not isinstance(value, str):
        raise InvalidField(f"{where}.{key}", "must be a string")
    return value


def joined(parts: list[Part]) -> str | list[Part]:
    """Text if they are all text, so that a text and a list of one give the same tokens."""
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts if part["text"])
    return parts


def parts_of(where: str, kind: str, block: Mapping[str, Any]) -> list[Part]:
    """What a block that says or shows something is to the model."""
    read = _KINDS.get(kind)
    if read is None:
        raise unsupported_block(where, f"a block of type {kind[:64]!r}")
    return read(where, block)


def _text(where: str, block: Mapping[str, Any]) -> list[Part]:
    return [{"type": "text", "text": text(where, block, "text")}]


def _source(where: str, block: Mapping[str, Any]) -> Mapping[str, Any]:
    source = block.get("source")
    if not isinstance(source, dict) or not isinstance(source.get("type"), str):
        raise InvalidField(f"{where}.source", "must be an object with a type")
    return source


def _image(where: str, block: Mapping[str, Any]) -> list[Part]:
    here, source = f"{where}.source", _source(where, block)
    if source["type"] == "url":
        url = text(here, source, "url")
    elif source["type"] == "base64":
        kind = text(here, source, "media_type")
        if not MEDIA_TYPE.fullmatch(kind):
            raise InvalidField(
                f"{here}.media_type", "must be the type of an image, such as image/png"
            )
        url = f"data:{kind};base64,{text(here, source, 'data')}"
    else:
        raise unsupported_block(here, f"a source of type {source['type'][:64]!r}")
    return [{"type": "image_url", "image_url": {"url": url}}]


def _document(where: str, block: Mapping[str, Any]) -> list[Part]:
    """Its title and context are text before it."""
    here, source = f"{where}.source", _source(where, block)
    keys = [key for key in ("title", "context") if block.get(key) is not None]
    about = [{"type": "text", "text": text(where, block, key)} for key in keys]
    if source["type"] == "text":
        return [*about, {"type": "text", "text": text(here, source, "data")}]
    if source["type"] != "content":
        raise unsupported_block(here, f"a document's source of type {source['type'][:64]!r}")
    return [*about, *_plain_parts(f"{here}.content", source.get("content"))]


def _search_result(where: str, block: Mapping[str, Any]) -> list[Part]:
    about = [{"type": "text", "text": text(where, block, key)} for key in ("title", "source")]
    return [*about, *_plain_parts(f"{where}.content", block.get("content"))]


def _plain_parts(where: str, content: Any) -> list[Part]:
    """Documents do not hold documents."""
    parts: list[Part] = []
    for here, kind, block in blocks_of(where, content):
        if kind not in ("text", "image"):
            raise InvalidField(f"{here}.type", "must be text or image")
        parts += parts_of(here, kind, block)
    return parts


_KINDS: dict[str, Callable[[str, Mapping[str, Any]], list[Part]]] = {
    "text": _text,
    "image": _image,
    "document": _document,
    "search_result": _search_result,
}
