"""Content blocks, to parts of a turn (`core.conversation.Turn`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bushel.core import RequestError

MOST_BLOCKS = 4096
Part = dict[str, Any]

_MEDIA_TYPE = re.compile(r"image/[A-Za-z0-9.+-]{1,64}")


def wrong(where: str, rule: str) -> RequestError:
    return RequestError(f"{where} {rule}.", code="invalid_value", param=where)


def unsupported(where: str, what: str) -> RequestError:
    return RequestError(
        f"{where} is {what}, which this server does not support.",
        code="unsupported_block",
        param=where,
    )


def each(where: str, content: Any) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(place, type, block) of a content; a string is one block of text."""
    if isinstance(content, str):
        yield where, "text", {"type": "text", "text": content}
        return
    if not isinstance(content, list) or len(content) > MOST_BLOCKS:
        raise wrong(where, f"must be a string or a list of at most {MOST_BLOCKS} blocks")
    for at, block in enumerate(content):
        here = f"{where}[{at}]"
        kind = block.get("type") if isinstance(block, dict) else None
        if not isinstance(kind, str):
            raise wrong(here, "must be an object with a type")
        yield here, kind, block


def text(where: str, block: Mapping[str, Any], key: str) -> str:
    said = block.get(key)
    if not isinstance(said, str):
        raise wrong(f"{where}.{key}", "must be a string")
    return said


def joined(parts: list[Part]) -> str | list[Part]:
    """Text if they are all text, so that a text and a list of one give the same tokens."""
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts if part["text"])
    return parts


def parts_of(where: str, kind: str, block: Mapping[str, Any]) -> list[Part]:
    """What a block that says or shows something is to the model."""
    made = _KINDS.get(kind)
    if made is None:
        raise unsupported(where, f"a block of type {kind[:64]!r}")
    return made(where, block)


def _text(where: str, block: Mapping[str, Any]) -> list[Part]:
    return [{"type": "text", "text": text(where, block, "text")}]


def _source(where: str, block: Mapping[str, Any]) -> Mapping[str, Any]:
    source = block.get("source")
    if not isinstance(source, dict) or not isinstance(source.get("type"), str):
        raise wrong(f"{where}.source", "must be an object with a type")
    return source


def _image(where: str, block: Mapping[str, Any]) -> list[Part]:
    here, source = f"{where}.source", _source(where, block)
    if source["type"] == "url":
        url = text(here, source, "url")
    elif source["type"] == "base64":
        kind = text(here, source, "media_type")
        if not _MEDIA_TYPE.fullmatch(kind):
            raise wrong(f"{here}.media_type", "must be the type of an image, such as image/png")
        url = f"data:{kind};base64,{text(here, source, 'data')}"
    else:
        raise unsupported(here, f"a source of type {source['type'][:64]!r}")
    return [{"type": "image_url", "image_url": {"url": url}}]


def _document(where: str, block: Mapping[str, Any]) -> list[Part]:
    """Its title and context are text before it."""
    here, source = f"{where}.source", _source(where, block)
    told = [key for key in ("title", "context") if block.get(key) is not None]
    about = [{"type": "text", "text": text(where, block, key)} for key in told]
    if source["type"] == "text":
        return [*about, {"type": "text", "text": text(here, source, "data")}]
    if source["type"] != "content":
        raise unsupported(here, f"a document's source of type {source['type'][:64]!r}")
    found = each(f"{here}.content", source.get("content"))
    return [*about, *(part for it in found for part in _plain(*it))]


def _search_result(where: str, block: Mapping[str, Any]) -> list[Part]:
    about = [{"type": "text", "text": text(where, block, key)} for key in ("title", "source")]
    found = each(f"{where}.content", block.get("content"))
    return [*about, *(part for it in found for part in _plain(*it))]


def _plain(where: str, kind: str, block: Mapping[str, Any]) -> list[Part]:
    """Documents do not hold documents."""
    if kind not in ("text", "image"):
        raise wrong(f"{where}.type", "must be text or image")
    return parts_of(where, kind, block)


_KINDS: dict[str, Callable[[str, Mapping[str, Any]], list[Part]]] = {
    "text": _text,
    "image": _image,
    "document": _document,
    "search_result": _search_result,
}
