"""The outline of input items, tools and tool choices, for the OpenAPI document."""

from __future__ import annotations

from bushel.server.api.openapi import Schema, object_schema
from bushel.server.api.tools import NAME_SCHEMA
from bushel.server.responses.content_parts import MOST_PARTS
from bushel.server.responses.items import MOST_ITEMS
from bushel.server.responses.tools import MOST_TOOLS

_TEXT: Schema = {"type": "string"}
_ANY: Schema = {"type": "object"}


def _parts(*kinds: Schema, least: int = 1) -> Schema:
    one = {"anyOf": list(kinds)}
    parts = {"type": "array", "items": one, "minItems": least, "maxItems": MOST_PARTS}
    return {"anyOf": [_TEXT, parts]}


_SAID = object_schema({"type": {"enum": ["input_text", "output_text"]}, "text": _TEXT})
_REFUSED = object_schema({"type": {"const": "refusal"}, "refusal": _TEXT})
_IMAGE = object_schema(
    {"type": {"const": "input_image"}, "image_url": {"type": "string", "minLength": 1}}
)
_FILE = object_schema(
    {
        "type": {"const": "input_file"},
        "file_data": {"type": "string", "pattern": "^data:text/plain,[a-z]*$"},
    },
    filename=_TEXT,
)
_MESSAGE: Schema = {
    "anyOf": [
        object_schema(
            {
                "role": {"enum": ["user", "system", "developer"]},
                "content": _parts(_SAID, _IMAGE, _FILE),
            },
            type={"const": "message"},
        ),
        object_schema(
            {"role": {"const": "assistant"}, "content": _parts(_SAID, _REFUSED, least=0)},
            type={"const": "message"},
        ),
    ]
}
_CALL = object_schema(
    {"type": {"const": "function_call"}, "call_id": _TEXT, "name": _TEXT, "arguments": _TEXT}
)
_RESULT = object_schema(
    {
        "type": {"const": "function_call_output"},
        "call_id": _TEXT,
        "output": _parts(_SAID, _IMAGE, least=0),
    }
)
_CUSTOM_CALL = object_schema(
    {"type": {"const": "custom_tool_call"}, "call_id": _TEXT, "name": _TEXT, "input": _TEXT}
)
_CUSTOM_RESULT = object_schema(
    {
        "type": {"const": "custom_tool_call_output"},
        "call_id": _TEXT,
        "output": _parts(_SAID, _IMAGE, least=0),
    }
)
_THOUGHT = object_schema(
    {"type": {"const": "reasoning"}, "summary": {"type": "array", "items": _ANY}},
    content={"anyOf": [{"type": "array", "items": _ANY}, {"type": "null"}]},
    encrypted_content={"anyOf": [_TEXT, {"type": "null"}]},
)
_REFERENCE = object_schema({"type": {"const": "item_reference"}, "id": _TEXT})
_ITEMS = [
    _MESSAGE,
    _CALL,
    _RESULT,
    _CUSTOM_CALL,
    _CUSTOM_RESULT,
    _THOUGHT,
    _REFERENCE,
    object_schema({"type": {"const": "web_search_call"}}),
]
INPUT: Schema = {
    "anyOf": [
        _TEXT,
        {"type": "array", "items": {"anyOf": _ITEMS}, "minItems": 1, "maxItems": MOST_ITEMS},
    ]
}

_NULL: Schema = {"type": "null"}
_FUNCTION = object_schema(
    {"type": {"const": "function"}, "name": NAME_SCHEMA},
    description={"anyOf": [_TEXT, _NULL]},
    parameters={"anyOf": [_ANY, _NULL]},
    strict={"enum": [True, False, None]},
)
_CUSTOM = object_schema(
    {"type": {"const": "custom"}, "name": NAME_SCHEMA},
    description={"anyOf": [_TEXT, _NULL]},
    format=_ANY,
)
_NAMESPACE = object_schema(
    {
        "type": {"const": "namespace"},
        "name": NAME_SCHEMA,
        "tools": {"type": "array", "items": {"anyOf": [_FUNCTION, _CUSTOM]}},
    }
)
_HOSTED = object_schema({"type": {"enum": ["web_search", "file_search", "mcp", "tool_search"]}})
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
        object_schema({"type": {"enum": ["function", "custom"]}, "name": NAME_SCHEMA}),
        object_schema(
            {
                "type": {"const": "allowed_tools"},
                "mode": {"enum": ["auto", "required"]},
                "tools": {"type": "array", "items": _ANY},
            }
        ),
    ]
}
