"""The outline of input items, tools and tool choices, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from bushel.server.responses.content_parts import MOST_PARTS
from bushel.server.responses.items import MOST_ITEMS
from bushel.server.responses.tools import MOST_TOOLS, NAME

Schema = dict[str, Any]
_TEXT: Schema = {"type": "string"}
_ANY: Schema = {"type": "object"}


def _object(required: dict[str, Schema], **optional: Schema) -> Schema:
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
    }


def _parts(*kinds: Schema, least: int = 1) -> Schema:
    one = {"anyOf": list(kinds)}
    parts = {"type": "array", "items": one, "minItems": least, "maxItems": MOST_PARTS}
    return {"anyOf": [_TEXT, parts]}


_SAID = _object({"type": {"enum": ["input_text", "output_text"]}, "text": _TEXT})
_REFUSED = _object({"type": {"const": "refusal"}, "refusal": _TEXT})
_IMAGE = _object(
    {"type": {"const": "input_image"}, "image_url": {"type": "string", "minLength": 1}}
)
_FILE = _object(
    {
        "type": {"const": "input_file"},
        "file_data": {"type": "string", "pattern": "^data:text/plain,[a-z]*$"},
    },
    filename=_TEXT,
)
_MESSAGE: Schema = {
    "anyOf": [
        _object(
            {
                "role": {"enum": ["user", "system", "developer"]},
                "content": _parts(_SAID, _IMAGE, _FILE),
            },
            type={"const": "message"},
        ),
        _object(
            {"role": {"const": "assistant"}, "content": _parts(_SAID, _REFUSED, least=0)},
            type={"const": "message"},
        ),
    ]
}
_CALL = _object(
    {"type": {"const": "function_call"}, "call_id": _TEXT, "name": _TEXT, "arguments": _TEXT}
)
_RESULT = _object(
    {
        "type": {"const": "function_call_output"},
        "call_id": _TEXT,
        "output": _parts(_SAID, _IMAGE, least=0),
    }
)
_CUSTOM_CALL = _object(
    {"type": {"const": "custom_tool_call"}, "call_id": _TEXT, "name": _TEXT, "input": _TEXT}
)
_CUSTOM_RESULT = _object(
    {
        "type": {"const": "custom_tool_call_output"},
        "call_id": _TEXT,
        "output": _parts(_SAID, _IMAGE, least=0),
    }
)
_THOUGHT = _object(
    {"type": {"const": "reasoning"}, "summary": {"type": "array", "items": _ANY}},
    content={"anyOf": [{"type": "array", "items": _ANY}, {"type": "null"}]},
    encrypted_content={"anyOf": [_TEXT, {"type": "null"}]},
)
_REFERENCE = _object({"type": {"const": "item_reference"}, "id": _TEXT})
_ITEMS = [
    _MESSAGE,
    _CALL,
    _RESULT,
    _CUSTOM_CALL,
    _CUSTOM_RESULT,
    _THOUGHT,
    _REFERENCE,
    _object({"type": {"const": "web_search_call"}}),
]
INPUT: Schema = {
    "anyOf": [
        _TEXT,
        {"type": "array", "items": {"anyOf": _ITEMS}, "minItems": 1, "maxItems": MOST_ITEMS},
    ]
}

_NAME: Schema = {"type": "string", "pattern": f"^{NAME.pattern}$"}
_NULL: Schema = {"type": "null"}
_FUNCTION = _object(
    {"type": {"const": "function"}, "name": _NAME},
    description={"anyOf": [_TEXT, _NULL]},
    parameters={"anyOf": [_ANY, _NULL]},
    strict={"enum": [True, False, None]},
)
_CUSTOM = _object(
    {"type": {"const": "custom"}, "name": _NAME}, description={"anyOf": [_TEXT, _NULL]}, format=_ANY
)
_NAMESPACE = _object(
    {
        "type": {"const": "namespace"},
        "name": _NAME,
        "tools": {"type": "array", "items": {"anyOf": [_FUNCTION, _CUSTOM]}},
    }
)
_HOSTED = _object({"type": {"enum": ["web_search", "file_search", "mcp", "tool_search"]}})
TOOLS: Schema = {
    "anyOf": [
        {
            "type": "array",
            "items": {"anyOf": [_FUNCTION, _CUSTOM, _NAMESPACE, _HOSTED]},
            "maxItems": MOST_TOOLS,
        },
        _NULL,
    ]
}
CHOICE: Schema = {
    "anyOf": [
        {"enum": ["none", "auto", "required", None]},
        _object({"type": {"enum": ["function", "custom"]}, "name": _NAME}),
        _object(
            {
                "type": {"const": "allowed_tools"},
                "mode": {"enum": ["auto", "required"]},
                "tools": {"type": "array", "items": _ANY},
            }
        ),
    ]
}
