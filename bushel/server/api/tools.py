"""Tools by their names and schemas, as every API has them."""

from __future__ import annotations

import re
from typing import Any

from bushel.server.api.descriptions import described
from bushel.server.api.errors import InvalidField

# OpenAI's own allows 64; tools that come through gateways carry longer names.
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
NAME_SCHEMA = described(
    "Its name, of letters, digits and any of `_-.:/`.",
    {"type": "string", "pattern": f"^{_NAME.pattern}$"},
)
# What an API's schema says of the rest of a tool.
DESCRIPTION = "What the tool does, as the model is told."
PARAMETERS = "A JSON schema of the object that the tool takes"
STRICT = "Whether arguments must match the schema exactly (default: false)."
OFFERED = "Tools that the model may call."
CHOSEN = "Which tools may or must be called: auto leaves it to the model (default: auto)."


def checked_name(where: str, name: Any) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidField(where, "must be 1 to 128 letters, digits, or any of _ - . : /")
    return name


def checked_description(where: str, description: Any) -> str | None:
    if not isinstance(description, str | None):
        raise InvalidField(where, "must be a string")
    return description
