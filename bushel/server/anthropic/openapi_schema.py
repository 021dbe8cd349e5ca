"""What messages and tools look like, for the OpenAPI document; `conversation` checks them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import WithJsonSchema

from bushel.server.anthropic.blocks_to_parts import MEDIA_TYPE, MOST_BLOCKS
from bushel.server.anthropic.conversation import MOST_MESSAGES
from bushel.server.anthropic.tools import MOST_TOOLS
from bushel.server.api.openapi import object_schema
from bushel.server.api.tools import NAME_SCHEMA

_TEXT: dict[str, Any] = {"type": "string"}
_OBJECT: dict[str, Any] = {"type": "object"}


def _block(kind: str, required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return object_schema({"type": {"const": kind}, **required}, **optional)


def _content(*blocks: dict[str, Any], least: int = 0) -> dict[str, Any]:
    listed = {"type": "array", "items": {"anyOf": list(blocks)}, "maxItems": MOST_BLOCKS}
    return {"anyOf": [_TEXT, {**listed, "minItems": least}]}


_TEXT_BLOCK = _block("text", {"text": _TEXT})
_IMAGE_TYPE = {"type": "string", "pattern": f"^{MEDIA_TYPE.pattern}$"}
_IMAGE = _block(
    "image",
    {
        "source": {
            "anyOf": [
                _block("base64", {"media_type": _IMAGE_TYPE, "data": _TEXT}),
                _block("url", {"url": _TEXT}),
            ]
        }
    },
)
_DOCUMENT = _block(
    "document",
    {
        "source": {
            "anyOf": [
                _block("text", {"data": _TEXT}),
                _block("content", {"content": _content(_TEXT_BLOCK, _IMAGE)}),
            ]
        }
    },
    title={"type": ["string", "null"]},
    context={"type": ["string", "null"]},
)
_SEARCH = _block(
    "search_result", {"title": _TEXT, "source": _TEXT, "content": _content(_TEXT_BLOCK)}
)
_SHOWN = (_TEXT_BLOCK, _IMAGE, _DOCUMENT, _SEARCH)
_RESULT = _block(
    "tool_result",
    {"tool_use_id": _TEXT},
    content=_content(*_SHOWN, _block("tool_reference", {"tool_name": _TEXT})),
    is_error={"type": ["boolean", "null"]},
)
_SAID = (
    *_SHOWN,
    _block("thinking", {"thinking": _TEXT}, signature=_TEXT),
    _block("redacted_thinking", {"data": _TEXT}),
    _block("tool_use", {"id": _TEXT, "name": _TEXT, "input": _OBJECT}),
)
_SYSTEM = _content(_TEXT_BLOCK)
_MESSAGE = {
    "anyOf": [
        object_schema({"role": {"const": "user"}, "content": _content(*_SHOWN, _RESULT, least=1)}),
        object_schema({"role": {"const": "assistant"}, "content": _content(*_SAID)}),
        object_schema({"role": {"const": "system"}, "content": _SYSTEM}),
    ]
}
_TOOL = object_schema(
    {"name": NAME_SCHEMA, "input_schema": _OBJECT},
    type={"enum": ["custom", None]},
    description={"type": ["string", "null"]},
    defer_loading={"type": ["boolean", "null"]},
    strict={"type": ["boolean", "null"]},
)
_CHOICE = {
    "anyOf": [
        *(_block(kind, {}) for kind in ("auto", "any", "none")),
        _block("tool", {"name": NAME_SCHEMA}),
    ]
}


def _listed(items: dict[str, Any], least: int, most: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


Messages = Annotated[Any, WithJsonSchema(_listed(_MESSAGE, 1, MOST_MESSAGES))]
System = Annotated[Any, WithJsonSchema({"anyOf": [*_SYSTEM["anyOf"], {"type": "null"}]})]
Tools = Annotated[Any, WithJsonSchema({"anyOf": [_listed(_TOOL, 0, MOST_TOOLS), {"type": "null"}]})]
ToolChoice = Annotated[Any, WithJsonSchema({"anyOf": [*_CHOICE["anyOf"], {"type": "null"}]})]
