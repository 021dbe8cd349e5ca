"""How a field of a request or a reply says what it does.

The OpenAPI document shows it, and docs/reference.md, which has "(default: …)" at its end in a
column of its own.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

# What fields of several schemas say.
KIND = "What kind of object this is."
SPEAKER = "Who speaks."
TEXT = "The text."
CALL_ID = "The call's id, which its result names."
MEDIA_URL = "A data URL; an http, https or file URL only where the server allows it."


def about(text: str) -> Any:
    """Of a field with a type, or of an alias that several APIs share."""
    return Field(description=text)


KIND_OF_OBJECT = about(KIND)


def described(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Of a field that is written as a JSON schema."""
    return {**schema, "description": text}


def tagged(kind: str) -> dict[str, Any]:
    """The schema of a field that has one value, by which its object is known."""
    return described(KIND, {"const": kind})
