"""The conversation of a chat request: what it may look like, and errors that say where it does not.

Pictures stand beside a message's text as plain base64, and calls have no ids.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from bushel.server.api.descriptions import SPEAKER, about, described
from bushel.server.api.errors import InvalidField
from bushel.server.api.openapi import object_schema

MOST_MESSAGES = 16384
MOST_IMAGES = 4096
MOST_CALLS = 4096
_ROLES = ("system", "user", "assistant", "tool")
_TEXTS = ("content", "thinking", "tool_name", "name", "tool_call_id")


def _messages(messages: Any) -> list[dict[str, Any]]:
    if not isinstance(messages, list) or len(messages) > MOST_MESSAGES:
        raise InvalidField("", f"must be a list of at most {MOST_MESSAGES} messages")
    for at, message in enumerate(messages):
        _check(f"[{at}]", message)
    return messages


def _check(where: str, message: Any) -> None:
    if not isinstance(message, dict):
        raise InvalidField(where, "must be an object")
    if message.get("role") not in _ROLES:
        raise InvalidField(f"{where}.role", f"must be one of {', '.join(_ROLES)}")
    for name in _TEXTS:
        if not isinstance(message.get(name), str | None):
            raise InvalidField(f"{where}.{name}", "must be a string")
    if message.get("images") is not None:
        check_images(f"{where}.images", message["images"])
    calls = message.get("tool_calls")
    if calls is None:
        return
    if not isinstance(calls, list) or len(calls) > MOST_CALLS:
        raise InvalidField(f"{where}.tool_calls", f"must be a list of at most {MOST_CALLS} calls")
    for at, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        here = f"{where}.tool_calls[{at}].function"
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise InvalidField(here, "must be an object with a name")
        if not isinstance(function.get("arguments"), dict | None):
            raise InvalidField(f"{here}.arguments", "must be an object")
        if not isinstance(call.get("id"), str | None):
            raise InvalidField(f"{where}.tool_calls[{at}].id", "must be a string")


def check_images(where: str, images: Any) -> list[str]:
    if not isinstance(images, list) or len(images) > MOST_IMAGES:
        raise InvalidField(where, f"must be a list of at most {MOST_IMAGES} images")
    for at, image in enumerate(images):
        if not isinstance(image, str) or not image:
            raise InvalidField(f"{where}[{at}]", "must be an image in base64")
    return images


_IMAGES_SCHEMA = {"type": "array", "items": {"type": "string", "minLength": 1}}
Images = Annotated[
    list[str],
    PlainValidator(lambda value: check_images("", value)),
    WithJsonSchema({**_IMAGES_SCHEMA, "maxItems": MOST_IMAGES}),
]

_TEXT = {"type": ["string", "null"]}
_CALL = object_schema(
    {
        "function": described(
            "What was called.",
            object_schema(
                {"name": described("Its name.", {"type": "string"})},
                arguments=described("Its arguments.", {"type": ["object", "null"]}),
            ),
        )
    },
    id=described("Told apart by it, where there is one.", _TEXT),
)
_MESSAGE = object_schema(
    {"role": described(SPEAKER, {"enum": list(_ROLES)})},
    content=described("What is said.", _TEXT),
    thinking=described("What the assistant thought.", _TEXT),
    images=described("Pictures, in base64.", {"anyOf": [_IMAGES_SCHEMA, {"type": "null"}]}),
    tool_calls=described(
        "Calls that the assistant made.",
        {"anyOf": [{"type": "array", "items": _CALL}, {"type": "null"}]},
    ),
    tool_name=described("Of a tool's result: which tool.", _TEXT),
    tool_call_id=described("Of a tool's result: which call, where calls have ids.", _TEXT),
)
Messages = Annotated[
    list[dict[str, Any]],
    PlainValidator(_messages),
    WithJsonSchema({"type": "array", "items": _MESSAGE, "maxItems": MOST_MESSAGES}),
    about("The conversation; empty: the model is loaded, and nothing is said."),
]
