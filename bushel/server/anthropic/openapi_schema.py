"""What messages and tools look like, for the OpenAPI document; `conversation` checks them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import WithJsonSchema

from bushel.server.anthropic.blocks_to_parts import MEDIA_TYPE, MOST_BLOCKS
from bushel.server.anthropic.conversation import MOST_MESSAGES
from bushel.server.anthropic.tools import MOST_TOOLS
from bushel.server.api.descriptions import (
    CALL_ID,
    MEDIA_URL,
    SPEAKER,
    TEXT,
    about,
    described,
    tagged,
)
from bushel.server.api.openapi import object_schema
from bushel.server.api.tools import DESCRIPTION, NAME_SCHEMA, PARAMETERS, STRICT

_TEXT: dict[str, Any] = {"type": "string"}
_OBJECT: dict[str, Any] = {"type": "object"}
_TEXT_OR_NULL: dict[str, Any] = {"type": ["string", "null"]}
_FLAG_OR_NULL: dict[str, Any] = {"type": ["boolean", "null"]}


def _block(kind: str, required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return object_schema({"type": tagged(kind), **required}, **optional)


def _content(*blocks: dict[str, Any], least: int = 0) -> dict[str, Any]:
    listed = {"type": "array", "items": {"anyOf": list(blocks)}, "maxItems": MOST_BLOCKS}
    return {"anyOf": [_TEXT, {**listed, "minItems": least}]}


def _said(*blocks: dict[str, Any], least: int = 0) -> dict[str, Any]:
    return described("Text, or blocks.", _content(*blocks, least=least))


_TEXT_BLOCK = _block("text", {"text": described(TEXT, _TEXT)})
_IMAGE_TYPE = {"type": "string", "pattern": f"^{MEDIA_TYPE.pattern}$"}
_IMAGE_SOURCE = {
    "anyOf": [
        _block(
            "base64",
            {
                "media_type": described("The image's type, such as image/png.", _IMAGE_TYPE),
                "data": described("The image in base64.", _TEXT),
            },
        ),
        _block("url", {"url": described(MEDIA_URL, _TEXT)}),
    ]
}
_IMAGE = _block("image", {"source": described("The image itself, or its URL.", _IMAGE_SOURCE)})
_DOCUMENT_SOURCE = {
    "anyOf": [
        _block("text", {"data": described("The document's text.", _TEXT)}),
        _block("content", {"content": _said(_TEXT_BLOCK, _IMAGE)}),
    ]
}
_DOCUMENT = _block(
    "document",
    {
        "source": described(
            "The document: as text, or as blocks of text and images.", _DOCUMENT_SOURCE
        )
    },
    title=described("Text before the document.", _TEXT_OR_NULL),
    context=described("Text before the document, behind its title.", _TEXT_OR_NULL),
)
_SEARCH = _block(
    "search_result",
    {
        "title": described("Text before the result.", _TEXT),
        "source": described("Where it is from: text before the result, behind its title.", _TEXT),
        "content": _said(_TEXT_BLOCK),
    },
)
_SHOWN = (_TEXT_BLOCK, _IMAGE, _DOCUMENT, _SEARCH)
_REFERENCE = _block(
    "tool_reference",
    {"tool_name": described("A tool with `defer_loading` that the model is told of here.", _TEXT)},
)
_RESULT = _block(
    "tool_result",
    {"tool_use_id": described("The `id` of the call that it answers.", _TEXT)},
    content=_said(*_SHOWN, _REFERENCE),
    is_error=described(
        "Whether the call failed: told to the model if there is no content.", _FLAG_OR_NULL
    ),
)
_SAID = (
    *_SHOWN,
    _block(
        "thinking",
        {"thinking": described("What the model thought.", _TEXT)},
        signature=described(
            "As it came: it holds the thoughts where their text was omitted.", _TEXT
        ),
    ),
    _block("redacted_thinking", {"data": described("Ignored: it cannot be read here.", _TEXT)}),
    _block(
        "tool_use",
        {
            "id": described(CALL_ID, _TEXT),
            "name": described("The tool that was called.", _TEXT),
            "input": described("Its arguments.", _OBJECT),
        },
    ),
)
_SYSTEM = _content(_TEXT_BLOCK)


def _message(role: str, content: dict[str, Any]) -> dict[str, Any]:
    return object_schema({"role": described(SPEAKER, {"const": role}), "content": content})


_MESSAGE = {
    "anyOf": [
        _message("user", _said(*_SHOWN, _RESULT, least=1)),
        _message("assistant", _said(*_SAID)),
        _message("system", _said(_TEXT_BLOCK)),
    ]
}
_TOOL = object_schema(
    {"name": NAME_SCHEMA, "input_schema": described(f"{PARAMETERS}.", _OBJECT)},
    type=described(
        "custom, or a tool that others run, which is left out (default: custom).",
        {"enum": ["custom", None]},
    ),
    description=described(DESCRIPTION, _TEXT_OR_NULL),
    defer_loading=described(
        "Whether the model is told of it only where a tool_reference names it (default: false).",
        _FLAG_OR_NULL,
    ),
    strict=described(STRICT, _FLAG_OR_NULL),
)
_CHOICE = {
    "anyOf": [
        *(_block(kind, {}) for kind in ("auto", "any", "none")),
        _block("tool", {"name": NAME_SCHEMA}),
    ]
}


def _listed(items: dict[str, Any], least: int, most: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


Messages = Annotated[
    Any,
    WithJsonSchema(_listed(_MESSAGE, 1, MOST_MESSAGES)),
    about("The conversation; one that ends with the assistant's text is gone on with."),
]
System = Annotated[
    Any,
    WithJsonSchema({"anyOf": [*_SYSTEM["anyOf"], {"type": "null"}]}),
    about("What the model is told before the conversation."),
]
Tools = Annotated[Any, WithJsonSchema({"anyOf": [_listed(_TOOL, 0, MOST_TOOLS), {"type": "null"}]})]
ToolChoice = Annotated[Any, WithJsonSchema({"anyOf": [*_CHOICE["anyOf"], {"type": "null"}]})]
