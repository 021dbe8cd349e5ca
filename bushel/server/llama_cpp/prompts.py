"""Prompts: a text, token ids, or both in turns; or a list of such prompts.

"Once"                  one prompt
[12, 34]                one prompt
[12, "upon", 34]        one prompt
["Once", [12, "upon"]]  two prompts
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from bushel.server.api.errors import InvalidField, unsupported
from bushel.server.api.fields import LARGEST_ID, whole

# Texts that stand between token ids are tokenized one by one.
MOST_PIECES = 64
MixedPrompt = str | list[int] | list[int | str]


def _prompts(value: Any) -> list[MixedPrompt]:
    """Each as a text, as ids, or as a list in which both are."""
    if not isinstance(value, list) or _is_one(value):
        return [_prompt("", value)]
    if not value:
        raise InvalidField("", "must not be empty")
    return [_prompt(f"[{at}]", item) for at, item in enumerate(value)]


def _is_one(value: list[Any]) -> bool:
    """Texts alone are prompts of their own."""
    return any(isinstance(item, int | float) for item in value)


def _prompt(where: str, value: Any) -> MixedPrompt:
    if isinstance(value, dict):
        if value.get("multimodal_data"):
            raise unsupported(f"{where}.multimodal_data", "is not supported here")
        value = value.get("prompt_string")
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise InvalidField(where, "must be a text, token ids, or a list of both")
    pieces = [whole(item) for item in value]
    if sum(isinstance(piece, str) for piece in pieces) > MOST_PIECES:
        raise InvalidField(where, f"must have at most {MOST_PIECES} texts between token ids")
    for at, piece in enumerate(pieces):
        good = isinstance(piece, str) or (type(piece) is int and 0 <= piece <= LARGEST_ID)
        if not good:
            raise InvalidField(f"{where}[{at}]", "must be a token id or a text")
    return pieces


_ID = {"type": "integer", "minimum": 0, "maximum": LARGEST_ID}
_TEXT = {"type": "string"}
_MIXED = {"type": "array", "items": {"anyOf": [_ID, _TEXT]}, "minItems": 1}
_ONE = {"anyOf": [_TEXT, {"type": "array", "items": _ID, "minItems": 1}]}
MixedPrompts = Annotated[
    list[MixedPrompt],
    PlainValidator(_prompts),
    WithJsonSchema({"anyOf": [_TEXT, _MIXED, {"type": "array", "items": _ONE, "minItems": 1}]}),
]
