"""The outline of input items, tools and tool choices, for the OpenAPI document."""

from __future__ import annotations

from bushel.server.api.custom_tools import FLAT_FORMAT, FORMAT
from bushel.server.api.descriptions import (
    CALL_ID,
    KIND,
    MEDIA_URL,
    SPEAKER,
    TEXT,
    described,
    tagged,
)
from bushel.server.api.openapi import Schema, object_schema
from bushel.server.api.tools import DESCRIPTION, NAME_SCHEMA, PARAMETERS, STRICT
from bushel.server.responses.content_parts import MOST_PARTS
from bushel.server.responses.items import MOST_ITEMS
from bushel.server.responses.tools import MOST_TOOLS

_TEXT: Schema = {"type": "string"}
_ANY: Schema = {"type": "object"}


def _parts(*kinds: Schema, least: int = 1) -> Schema:
    one = {"anyOf": list(kinds)}
    parts = {"type": "array", "items": one, "minItems": least, "maxItems": MOST_PARTS}
    return {"anyOf": [_TEXT, parts]}


def _message(roles: Schema, content: Schema) -> Schema:
    told = {"role": described(SPEAKER, roles), "content": described("Text, or parts.", content)}
    return object_schema(told, type=tagged("message"))


_SAID = object_schema(
    {
        "type": described(KIND, {"enum": ["input_text", "output_text"]}),
        "text": described(TEXT, _TEXT),
    }
)
_REFUSED = object_schema({"type": tagged("refusal"), "refusal": described(TEXT, _TEXT)})
_IMAGE, _VIDEO = (
    object_schema(
        {
            "type": tagged(f"input_{kind}"),
            f"{kind}_url": described(MEDIA_URL, {"type": "string", "minLength": 1}),
        }
    )
    for kind in ("image", "video")
)
_FILE = object_schema(
    {
        "type": tagged("input_file"),
        "file_data": described(
            "A data URL of a text, an image or a video.",
            {"type": "string", "pattern": "^data:text/plain,[a-z]*$"},
        ),
    },
    filename=described("Told to the model before the file's text.", _TEXT),
)
_MESSAGE: Schema = {
    "anyOf": [
        _message({"enum": ["user", "system", "developer"]}, _parts(_SAID, _IMAGE, _VIDEO, _FILE)),
        _message({"const": "assistant"}, _parts(_SAID, _REFUSED, least=0)),
    ]
}


def _call(kind: str, given: str, what: str) -> Schema:
    return object_schema(
        {
            "type": tagged(kind),
            "call_id": described(CALL_ID, _TEXT),
            "name": described("The tool that was called.", _TEXT),
            given: described(what, _TEXT),
        }
    )


def _result(kind: str) -> Schema:
    return object_schema(
        {
            "type": tagged(kind),
            "call_id": described("The `call_id` of the call that it answers.", _TEXT),
            "output": described("What the tool returned.", _parts(_SAID, _IMAGE, least=0)),
        }
    )


_THOUGHTS = {"type": "array", "items": _ANY}
_THOUGHT = object_schema(
    {
        "type": tagged("reasoning"),
        "summary": described("Parts of thoughts, read if `content` has none.", _THOUGHTS),
    },
    content=described(
        "Parts of thoughts, read if they are not encrypted.",
        {"anyOf": [_THOUGHTS, {"type": "null"}]},
    ),
    encrypted_content=described(
        "Thoughts as this server gave them; others' are ignored.",
        {"anyOf": [_TEXT, {"type": "null"}]},
    ),
)
_REFERENCE = object_schema(
    {
        "type": tagged("item_reference"),
        "id": described("An item of a response that is kept.", _TEXT),
    }
)
_ITEMS = [
    _MESSAGE,
    _call("function_call", "arguments", "Its arguments as JSON."),
    _result("function_call_output"),
    _call("custom_tool_call", "input", "The text that it was given."),
    _result("custom_tool_call_output"),
    _THOUGHT,
    _REFERENCE,
    object_schema(
        {
            "type": tagged("compaction"),
            "encrypted_content": described(
                "What stands for turns that were made shorter, as this server gave it.",
                {"type": "string", "pattern": "^bushel-1\\.$"},
            ),
        }
    ),
    object_schema({"type": tagged("web_search_call")}),
]
INPUT: Schema = {
    "anyOf": [
        _TEXT,
        {"type": "array", "items": {"anyOf": _ITEMS}, "minItems": 1, "maxItems": MOST_ITEMS},
    ]
}

_NULL: Schema = {"type": "null"}
_DESCRIPTION = described(DESCRIPTION, {"anyOf": [_TEXT, _NULL]})
_FUNCTION = object_schema(
    {"type": tagged("function"), "name": NAME_SCHEMA},
    description=_DESCRIPTION,
    parameters=described(f"{PARAMETERS} (default: it takes none).", {"anyOf": [_ANY, _NULL]}),
    strict=described(STRICT, {"enum": [True, False, None]}),
)
_CUSTOM = object_schema(
    {"type": tagged("custom"), "name": NAME_SCHEMA},
    description=_DESCRIPTION,
    format=described(FORMAT, FLAT_FORMAT),
)
_NAMESPACE = object_schema(
    {
        "type": tagged("namespace"),
        "name": NAME_SCHEMA,
        "tools": described(
            "The tools in it.", {"type": "array", "items": {"anyOf": [_FUNCTION, _CUSTOM]}}
        ),
    }
)
_HOSTED = object_schema(
    {
        "type": described(
            "A tool that others run: left out.",
            {"enum": ["web_search", "file_search", "mcp", "tool_search"]},
        )
    }
)
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
        object_schema(
            {"type": described(KIND, {"enum": ["function", "custom"]}), "name": NAME_SCHEMA}
        ),
        object_schema(
            {
                "type": tagged("allowed_tools"),
                "mode": described(
                    "Whether one of them must be called.", {"enum": ["auto", "required"]}
                ),
                "tools": described(
                    "Those that may be called, by type and name.",
                    {"type": "array", "items": _ANY},
                ),
            }
        ),
    ]
}
