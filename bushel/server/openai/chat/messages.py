"""The conversation of a chat request: what it may look like, and errors that say where it does not.

Only the outline is checked. What a message says, and which of its other keys mean something, is
between the client and the model's template.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from bushel.server.api.descriptions import MEDIA_URL, TEXT, about, described, tagged
from bushel.server.api.errors import InvalidField
from bushel.server.api.openapi import object_schema

MOST_MESSAGES = 16384
MOST_PARTS = 4096
MOST_FRAMES = 4096  # in one list; few of so many are looked at

# A reply may have been calls alone, and a tool may return nothing; from anyone else silence is a
# mistake.
_MAY_BE_SILENT = ("assistant", "function", "tool")
_MUST_SPEAK = ("system", "developer", "user")
_ROLES = (*_MUST_SPEAK, *_MAY_BE_SILENT)
_PARTS = ("text", "refusal", "image_url", "video_url", "video")
_TEXTS = ("text", "refusal")
_THOUGHTS = ("reasoning_content", "reasoning")


def _check(messages: Any) -> list[dict[str, Any]]:
    if not isinstance(messages, list) or not messages:
        raise InvalidField("", "must be a list with at least one message")
    if len(messages) > MOST_MESSAGES:
        raise InvalidField("", f"must be at most {MOST_MESSAGES} messages")
    return [_message(f"[{at}]", message) for at, message in enumerate(messages)]


def _message(where: str, message: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise InvalidField(where, "must be an object")
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or role not in _ROLES:
        raise InvalidField(f"{where}.role", f"must be one of {', '.join(_ROLES)}")
    if content is None:
        if role in _MUST_SPEAK:
            raise InvalidField(f"{where}.content", "must be a string or a list of parts")
    elif isinstance(content, list):
        _check_parts(f"{where}.content", content)
    elif not isinstance(content, str):
        raise InvalidField(f"{where}.content", "must be a string or a list of parts")
    if message.get("tool_calls") is not None:
        _check_calls(f"{where}.tool_calls", message["tool_calls"])
    if message.get("function_call") is not None:
        _check_function(f"{where}.function_call", message["function_call"])
    for name in _THOUGHTS:
        if not isinstance(message.get(name, ""), str | None):
            raise InvalidField(f"{where}.{name}", "must be a string")
    return message


def _check_calls(where: str, calls: Any) -> None:
    if not isinstance(calls, list) or len(calls) > MOST_PARTS:
        raise InvalidField(where, f"must be a list of at most {MOST_PARTS} calls")
    for at, call in enumerate(calls):
        here = f"{where}[{at}]"
        if not isinstance(call, dict):
            raise InvalidField(here, "must be an object")
        if call.get("type") == "custom":
            _check_custom(f"{here}.custom", call.get("custom"))
        else:
            _check_function(f"{here}.function", call.get("function"))
        if not isinstance(call.get("id", ""), str | None):
            raise InvalidField(f"{here}.id", "must be a string")


def _check_function(where: str, function: Any) -> None:
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise InvalidField(where, "must be an object with the name of a function")
    if not isinstance(function.get("arguments", ""), str | dict | None):
        raise InvalidField(f"{where}.arguments", "must be a string of JSON")


def _check_custom(where: str, custom: Any) -> None:
    texts = [custom.get(key) for key in ("name", "input")] if isinstance(custom, dict) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise InvalidField(where, "must be an object with a name and an input")


def _check_parts(where: str, parts: list[Any]) -> None:
    if not 1 <= len(parts) <= MOST_PARTS:
        raise InvalidField(where, f"must have between 1 and {MOST_PARTS} parts")
    for at, part in enumerate(parts):
        here = f"{where}[{at}]"
        if not isinstance(part, dict):
            raise InvalidField(here, "must be an object")
        kind = part.get("type")
        if not isinstance(kind, str) or kind not in _PARTS:
            raise InvalidField(f"{here}.type", f"must be one of {', '.join(_PARTS)}")
        _check_value(f"{here}.{kind}", kind, part.get(kind))


def _check_value(where: str, kind: str, value: Any) -> None:
    if kind in _TEXTS:
        if not isinstance(value, str):
            raise InvalidField(where, "must be a string")
        return
    url = value.get("url") if isinstance(value, dict) else value
    if kind == "video" and isinstance(url, list):
        if not 1 <= len(url) <= MOST_FRAMES or not all(it and isinstance(it, str) for it in url):
            raise InvalidField(where, f"must be a URL, or a list of 1 to {MOST_FRAMES} of frames")
        return
    if not isinstance(url, str) or not url:
        raise InvalidField(where, "must be an object with a url")


_ROLE = "Who speaks; function is the older name of tool."
_VIDEO = f"{MEDIA_URL} Or a list of them, one for each frame."
_CONTENT = "What is said: text, or parts. Only an assistant or a tool may say nothing."


def _media(kind: str) -> dict[str, Any]:
    url = {"type": "string", "minLength": 1}
    source = object_schema({"url": described(MEDIA_URL, url)})
    return object_schema(
        {"type": tagged(kind), kind: described(MEDIA_URL, {"anyOf": [source, url]})}
    )


def _frames() -> dict[str, Any]:
    """As Qwen's clients send a video, and how they say which frames of it are looked at."""
    url = {"type": "string", "minLength": 1}
    frames = {"type": "array", "items": url, "minItems": 1, "maxItems": MOST_FRAMES}
    rate = {"type": "number", "exclusiveMinimum": 0}
    number = {"type": "integer", "minimum": 1}
    return object_schema(
        {"type": tagged("video"), "video": described(_VIDEO, {"anyOf": [url, frames]})},
        fps=described("Frames a second to look at; of a list, that it has.", rate),
        nframes=described("Frames to look at.", number),
        max_frames=described("Frames to look at, at most.", number),
        max_pixels=described("Pixels of a frame, at most; larger ones are made smaller.", number),
    )


_PART_SCHEMA: dict[str, Any] = {
    "anyOf": [
        object_schema({"type": tagged("text"), "text": described(TEXT, {"type": "string"})}),
        _media("image_url"),
        _media("video_url"),
        _frames(),
    ]
}
_CONTENT_SCHEMA: list[dict[str, Any]] = [
    {"type": "string"},
    {"type": "array", "items": _PART_SCHEMA, "minItems": 1, "maxItems": MOST_PARTS},
]
_SCHEMA: dict[str, Any] = {
    "type": "array",
    "minItems": 1,
    "maxItems": MOST_MESSAGES,
    "items": {
        "anyOf": [
            object_schema(
                {
                    "role": described(_ROLE, {"enum": list(_MUST_SPEAK)}),
                    "content": described(_CONTENT, {"anyOf": _CONTENT_SCHEMA}),
                }
            ),
            object_schema(
                {"role": described(_ROLE, {"enum": list(_MAY_BE_SILENT)})},
                content=described(_CONTENT, {"anyOf": [*_CONTENT_SCHEMA, {"type": "null"}]}),
            ),
        ]
    },
}

Messages = Annotated[
    list[dict[str, Any]],
    PlainValidator(_check),
    WithJsonSchema(_SCHEMA),
    about("The conversation; keys of a message that are not named here go to the template."),
]
